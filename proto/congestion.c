/* congestion.c - asks the kernel for an algorithm of congestion control, and prepares sockets to peers on this
 * machine. */
#include "congestion.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bytes of the send buffer towards a peer on this machine: less than the most that Linux allows by default
 * (net.core.wmem_max, 208 KiB). The kernel doubles the number for its own structs. */
enum { LOCAL_BYTES = 192 * 1024 };

/* Stores the names of the algorithms that any process may use; "" if the kernel does not tell. */
static void read_allowed(char *text, size_t size)
{
    int fd = open("/proc/sys/net/ipv4/tcp_allowed_congestion_control", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : 0;

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (fd >= 0) close(fd);
}

static int refuse(const char *name, int error, pd_error *err)
{
    char allowed[256];

    read_allowed(allowed, sizeof allowed);
    return pd_fail(err, PD_INVALID_ARGUMENT, "the kernel %s the TCP congestion control \"%.32s\" (%s); it allows: %s",
                   error == EPERM ? "does not allow" : "does not have", name, strerror(error), allowed);
}

int pd_congestion_set(int fd, const char *name, pd_error *err)
{
    if (name[0] == '\0' || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0 ||
        errno == EOPNOTSUPP) /* not a socket of TCP */
        return PD_OK;
    return refuse(name, errno, err);
}

/* Returns whether two addresses have the same host. */
static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a, *b6 = (const struct sockaddr_in6 *)b;

    if (a->ss_family != b->ss_family) return false;
    if (a->ss_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return a->ss_family == AF_INET6 && memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0;
}

void pd_congestion_local(int fd, const char *chosen)
{
    struct sockaddr_storage own, peer;
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    const int bytes = LOCAL_BYTES;

    if (getsockname(fd, (struct sockaddr *)&own, &own_size) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0 || !same_host(&own, &peer))
        return;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (chosen == NULL || chosen[0] == '\0') setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
}

int pd_congestion_check(const char *name, pd_error *err)
{
    int fd, rc;

    if (name[0] == '\0') return PD_OK;
    if ((fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0)
        return pd_fail(err, PD_UNAVAILABLE, "cannot open a socket: %s", strerror(errno));
    rc = pd_congestion_set(fd, name, err);
    close(fd);
    return rc;
}
