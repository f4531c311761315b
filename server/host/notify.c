/* notify.c - sends messages to the service manager in the datagrams that systemd defines, and reads which sockets it
 * has opened. */
#include "notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_SOCKET = 3 };

bool pd_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    socklen_t length;
    int fd;
    bool sent;

    if (path == NULL || path[0] == '\0') return true;
    if (strlen(path) >= sizeof address.sun_path) return false;
    strcpy(address.sun_path, path);
    length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (address.sun_path[0] == '@')
        address.sun_path[0] = '\0'; /* the socket has an address in the abstract namespace, which is no file */
    if ((fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0) return false;
    sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, length) >= 0;
    close(fd);
    return sent;
}

static uint64_t number(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

/* Returns whether the variables of the service manager are meant for this process, not inherited from its parent: the
 * variable `name` is this process's ID, or is not set. */
static bool is_ours(const char *name)
{
    const char *text = getenv(name);
    return text == NULL || strtoull(text, NULL, 10) == (uint64_t)getpid();
}

uint64_t pd_notify_watchdog_ms(void)
{
    return is_ours("WATCHDOG_PID") ? number("WATCHDOG_USEC") / 2000 : 0;
}

static bool is_word(const char *text, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

/* Removes the first name from the list *names ("tls:http"), and returns the use of a socket with this name. */
static pd_socket_use take_use(const char **names)
{
    const char *name = *names;
    size_t n = strcspn(name, ":");

    *names += n + (name[n] == ':');
    if (is_word(name, n, "tls")) return PD_SOCKET_TLS;
    return is_word(name, n, "http") ? PD_SOCKET_HTTP : PD_SOCKET_PLAIN;
}

size_t pd_notify_sockets(pd_given_socket sockets[PD_NOTIFY_SOCKETS])
{
    uint64_t n = number("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");

    if (getenv("LISTEN_PID") == NULL || !is_ours("LISTEN_PID")) return 0;
    if (names == NULL) names = "";
    for (size_t i = 0; i < n && i < PD_NOTIFY_SOCKETS; i++)
        sockets[i] = (pd_given_socket){ .fd = FIRST_SOCKET + (int)i, .use = take_use(&names) };
    return (size_t)n;
}

bool pd_notify_has_socket(pd_socket_use use)
{
    pd_given_socket sockets[PD_NOTIFY_SOCKETS];
    size_t n = pd_notify_sockets(sockets);

    for (size_t i = 0; i < n && i < PD_NOTIFY_SOCKETS; i++)
        if (sockets[i].use == use) return true;
    return false;
}
