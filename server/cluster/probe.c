/* probe.c - asks whether a daemon still answers at an address. */
#define _GNU_SOURCE /* SOCK_NONBLOCK */
#include "probe.h"

#include "address.h"
#include "frame.h"
#include "message.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until the socket can be written (POLLOUT) or read (POLLIN). Returns false at the deadline. */
static bool await(int fd, short events, int64_t until_ms)
{
    struct pollfd polled = { .fd = fd, .events = events };
    int64_t left;

    while ((left = until_ms - now_ms()) > 0) {
        int n = poll(&polled, 1, (int)left);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
    return false;
}

/* Returns whether the peer at this address sends any bytes before the deadline, once it has got `hello`. */
static bool ask(const struct sockaddr *address, socklen_t length, const uint8_t *hello, size_t bytes, int64_t until_ms)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;
    socklen_t size = sizeof error;
    char byte;
    bool answers = false;

    if (fd < 0) return false;
    if (connect(fd, address, length) == 0 || errno == EINPROGRESS)
        answers = await(fd, POLLOUT, until_ms) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
                  error == 0 && send(fd, hello, bytes, MSG_NOSIGNAL) == (ssize_t)bytes && await(fd, POLLIN, until_ms) &&
                  recv(fd, &byte, 1, 0) == 1;
    close(fd);
    return answers;
}

static bool ask_local(const char *path, const uint8_t *hello, size_t bytes, int timeout_ms)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    if (strlen(path) >= sizeof address.sun_path) return false;
    strcpy(address.sun_path, path);
    return ask((const struct sockaddr *)&address, sizeof address, hello, bytes, now_ms() + timeout_ms);
}

static bool ask_host(const pd_address *to, const uint8_t *hello, size_t bytes, int timeout_ms)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    bool answers = false;

    if (getaddrinfo(to->host, to->port, &hints, &list) != 0) return false;
    for (const struct addrinfo *at = list; at != NULL && !answers; at = at->ai_next)
        answers = ask(at->ai_addr, at->ai_addrlen, hello, bytes, now_ms() + timeout_ms);
    freeaddrinfo(list);
    return answers;
}

bool pd_probe(const char *url, int timeout_ms)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    pd_address *addresses = NULL;
    uint8_t *frame = NULL;
    size_t n = 0, bytes;
    bool answers = false;

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.label = (char *)(uintptr_t) "spare";
    if (pd_frame_pack(&frame, &bytes, PD_HELLO, 0, 1, &hello.base, NULL, 0, 0) == PD_OK &&
        pd_addresses_parse(&addresses, &n, url, PD_TO_CONNECT, NULL) != PD_OK)
        n = 0;
    for (size_t i = 0; i < n && !answers; i++)
        answers = addresses[i].local ? ask_local(addresses[i].host, frame, bytes, timeout_ms)
                                     : ask_host(&addresses[i], frame, bytes, timeout_ms);
    free(addresses);
    free(frame);
    return answers;
}
