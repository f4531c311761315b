/* lender.h - descriptors and shared memory of the peers of fuzz_conversation, which the input chooses. */
#ifndef PD_LENDER_H
#define PD_LENDER_H

#include "frame.h"

#include "seed.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LENT_BYTES = 4096, LENT_UNITS = LENT_BYTES / PD_PAYLOAD_ALIGN };

/* The segment of one peer. It is made when it is first used. */
typedef struct lender {
    int fd;
    uint8_t *at; /* NULL: there is none */
} lender;

enum { LENDER_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE };

/* Returns a memfd with these seals and without pages. */
static inline int lender_memfd(uint64_t bytes, int seals)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    MUST(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    if (seals != 0) MUST(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static inline void lender_make(lender *l)
{
    if (l->at != NULL) return;
    l->fd = lender_memfd(LENT_BYTES, 0);
    l->at = mmap(NULL, LENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, l->fd, 0);
    MUST(l->at != MAP_FAILED);
    memset(l->at, 0, LENT_BYTES);
    MUST(fcntl(l->fd, F_ADD_SEALS, LENDER_SEALS) == 0);
}

static inline void lender_free(lender *l)
{
    if (l->at == NULL) return;
    munmap(l->at, LENT_BYTES);
    close(l->fd);
    l->at = NULL;
}

/* Fills n bytes from a unit of the segment on, as far as they lie in it. */
static inline void lender_fill(lender *l, uint32_t place, size_t n, uint8_t fill)
{
    lender_make(l);
    if (place < LENT_UNITS && n <= (size_t)(LENT_UNITS - place) * PD_PAYLOAD_ALIGN)
        memset(l->at + place * PD_PAYLOAD_ALIGN, fill, n);
}

/* Returns a new descriptor of the kind that `how` chooses: the peer's segment, one without seals, a short one, one
 * without pages, the end of a pipe. -1: none. */
static inline int lender_descriptor(lender *l, unsigned how)
{
    int ends[2];

    switch (how) {
    case 0: return -1;
    case 1: return lender_memfd(LENT_BYTES, 0);
    case 2: return lender_memfd(PD_PAYLOAD_ALIGN, LENDER_SEALS);
    case 3:
        MUST(pipe(ends) == 0);
        close(ends[1]);
        return ends[0];
    case 5: return lender_memfd(LENT_BYTES, LENDER_SEALS);
    default: lender_make(l); return dup(l->fd);
    }
}

/* Sends bytes over a Unix socket, with a descriptor unless it is -1, and closes it. */
static inline void lender_send(int to, const uint8_t *at, size_t n, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
    struct iovec span = { (void *)at, n };
    struct msghdr message = { .msg_iov = &span, .msg_iovlen = 1 };

    if (fd >= 0) {
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
    }
    (void)sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT); /* the daemon may have closed, or not read: both are
                                                               * allowed */
    if (fd >= 0) close(fd);
}

#endif
