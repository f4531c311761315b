/* http_ask.c - asks the HTTP listener of a daemon on this machine. */
#include "http_ask.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <arpa/inet.h>
#include <netinet/in.h>

#include "daemon_process.h"
#include "test.h"

const char *http_answer(int port, const char *request)
{
    const struct timeval limit = { .tv_sec = (time_t)patient(10) };
    int fd = loopback_connect(port);
    static char answer[256 * 1024];
    size_t n = 0;
    ssize_t got;

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
    while (n < sizeof answer - 1 && (got = recv(fd, answer + n, sizeof answer - 1 - n, 0)) > 0) n += (size_t)got;
    answer[n] = '\0';
    close(fd);
    return answer;
}

bool http_answers(int port, const char *request, const char *expected)
{
    return strstr(http_answer(port, request), expected) != NULL;
}

int loopback_connect(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}
