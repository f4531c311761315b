/* http_ask.c - asks the HTTP listener of a daemon on this machine. */
#include "http_ask.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "daemon_process.h"
#include "loopback.h"
#include "test.h"

bool http_answers(int port, const char *request, const char *expected)
{
    const struct timeval limit = { .tv_sec = (time_t)patient(10) };
    int fd = loopback_connect(port);
    static char answer[65536];
    size_t n = 0;
    ssize_t got;

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
    while (n < sizeof answer - 1 && (got = recv(fd, answer + n, sizeof answer - 1 - n, 0)) > 0) n += (size_t)got;
    answer[n] = '\0';
    close(fd);
    return strstr(answer, expected) != NULL;
}
