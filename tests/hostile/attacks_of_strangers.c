/* attacks_of_strangers.c - attacks by connections that come and go, with and without a Hello, and by HTTP requests. */
#include "attacks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

enum { LOOK_MS = 50 };

static void run_connects(attack_scene *s)
{
    while (!foe_over(s->side)) {
        foe f;
        foe_connect(&f, s->side);
        foe_close(&f);
    }
}

/* Operators that say Hello, and hang up when they have the answer. */
static void run_operators(attack_scene *s)
{
    while (!foe_over(s->side)) {
        foe f;
        (void)foe_join(&f, s->side, &(foe_hello){ .job = "" });
        foe_close(&f);
    }
}

static int connect_http(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_port = htons((uint16_t)port);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

/* Reads the answer to its end. */
static void read_answer(const attack_scene *s, int fd)
{
    char waste[1 << 14];

    while (!foe_over(s->side)) {
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        if (poll(&polled, 1, LOOK_MS) > 0 && recv(fd, waste, sizeof waste, 0) <= 0) return;
    }
}

static void ask(attack_scene *s, const char *path)
{
    char text[200];
    int fd = connect_http(s->http_port);

    if (fd < 0) {
        s->side->count.lost++;
        return;
    }
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path);
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) > 0) {
        read_answer(s, fd);
        s->side->count.answered++;
    }
    close(fd);
}

/* Scrapes of the metrics of a job with 4,096 ranks, and its JSON for the dashboard. */
static void run_scrapes(attack_scene *s)
{
    while (!foe_over(s->side)) {
        ask(s, "/metrics");
        ask(s, "/jobs.json");
    }
}

static bool prepare_scrapes(attack_scene *s)
{
    if (s->params > ATTACK_PARAMS_OF_MANY) s->params = ATTACK_PARAMS_OF_MANY;
    return attack_make_job(s, ATTACK_MANY);
}

const attack attacks_of_strangers[] = {
    { "connects", ATTACK_CONNECTS, ATTACK_READER, NULL, run_connects },
    { "operators", PD_HELLO, ATTACK_READER, NULL, run_operators },
    { "scrapes", ATTACK_HTTP, ATTACK_READER, prepare_scrapes, run_scrapes },
    { NULL, 0, ATTACK_ADMIN, NULL, NULL },
};
