/* transport.c - identifies peers, and passes file descriptors over Unix sockets. */
#define _GNU_SOURCE /* MSG_CMSG_CLOEXEC, struct ucred */
#include "transport.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "text.h"

/* A connection is fast while its reader receives FAST_BYTES in a turn. MOST_GATHERED: the most bytes that gather: the
 * kernel's buffers have room for them, and for those that come while the reader wakes. */
enum { FAST_BYTES = 128 * 1024, MOST_GATHERED = 512 * 1024 };

static void set_gathering(pd_transport *transport, size_t bytes)
{
    if (transport->ops->gather == NULL || bytes == transport->gathers) return;
    if (bytes > 1 || transport->gathers > 1) transport->ops->gather(transport, bytes);
    transport->gathers = bytes;
}

void pd_transport_gather(pd_transport *transport, size_t got, uint64_t left)
{
    size_t bytes = 2 * got < MOST_GATHERED ? 2 * got : MOST_GATHERED;

    if (got == 0) return;
    if (left < bytes) bytes = (size_t)left;
    set_gathering(transport, got >= FAST_BYTES && left > 0 && !transport->eased ? bytes : 1);
    transport->eased = false;
}

void pd_transport_ease(pd_transport *transport)
{
    if (transport->gathers <= 1) return;
    set_gathering(transport, 1);
    transport->eased = true;
}

void pd_descriptor_gather(int fd, size_t bytes)
{
    int least = (int)bytes;

    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
}

static const char *const kinds[] = {
    [PD_IDENTITY_USER] = "user", [PD_IDENTITY_TOKEN] = "token", [PD_IDENTITY_CERTIFICATE] = "certificate"
};

void pd_identity_set(pd_identity *identity, pd_identity_kind kind, const char *name)
{
    size_t n = kind != PD_IDENTITY_NONE ? strlen(name) : 0;

    memset(identity, 0, sizeof *identity);
    if (n > 0 && strlen(kinds[kind]) + 1 + n < sizeof identity->text && pd_text_printable(name, n) == n) {
        identity->kind = kind;
        snprintf(identity->text, sizeof identity->text, "%s:%s", kinds[kind], name);
    } else {
        strcpy(identity->text, "anyone");
    }
}

/* Memory for one control message with one descriptor. The union aligns it. */
typedef union control_space {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
} control_space;

void pd_descriptor_replace(int *kept, int fd)
{
    if (*kept >= 0) close(*kept);
    *kept = fd;
}

int pd_descriptor_take(int *kept)
{
    int fd = *kept;

    *kept = -1;
    return fd;
}

/* Stores the first descriptor of a control message in *taken, and closes the others. */
static void keep_first(const struct cmsghdr *part, int *taken)
{
    size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    int fd;

    for (size_t i = 0; i < n; i++) {
        memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
        if (i == 0)
            pd_descriptor_replace(taken, fd);
        else
            close(fd);
    }
}

ssize_t pd_descriptor_receive(int fd, const struct iovec *iov, int n, int *taken)
{
    control_space control;
    struct msghdr message = { .msg_iov = (struct iovec *)iov,
                              .msg_iovlen = (size_t)n,
                              .msg_control = &control,
                              .msg_controllen = sizeof control };
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);

    if (got < 0) return got;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part != NULL; part = CMSG_NXTHDR(&message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) keep_first(part, taken);
    return got;
}

ssize_t pd_descriptor_send(int fd, const struct iovec *iov, int n, int *attached)
{
    control_space control = {
        .header = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS }
    };
    struct msghdr message = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n };
    ssize_t sent;

    if (*attached >= 0) {
        memcpy(CMSG_DATA(&control.header), attached, sizeof *attached);
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
    }
    sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) pd_descriptor_replace(attached, -1);
    return sent;
}

bool pd_descriptor_is_open(int fd)
{
    struct pollfd look = { .fd = fd }; /* POLLHUP and POLLERR are always reported */

    return poll(&look, 1, 0) == 0;
}

bool pd_descriptor_can_pass(int fd)
{
    int domain = AF_UNSPEC;
    socklen_t size = sizeof domain;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

void pd_descriptor_identify(int fd, pd_identity *identity)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    char name[16];

    pd_identity_set(identity, PD_IDENTITY_NONE, "");
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid == (uid_t)-1) return;
    snprintf(name, sizeof name, "%u", (unsigned)peer.uid);
    pd_identity_set(identity, PD_IDENTITY_USER, name);
}
