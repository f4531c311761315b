/* congestion.c - asks the kernel for an algorithm of congestion control. */
#include "congestion.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
