/* check_loopback.c - measures TCP on the loopback interface, which bounds what workers on this machine can exchange. */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "format.h"

enum { PIECE = 1 << 20, LIMIT_S = 2 };

#define SECONDS 0.2
#define SLOW_RATE 500e6 /* bytes a second */

/* The two ends of a TCP connection over loopback, both of which this process has: what is written to `writes` is read
 * from `reads`. */
typedef struct pair {
    int reads, writes;
} pair;

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Connects through a listening socket that is closed again. Returns errno, or 0. */
static int connect_pair(pair *out)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;

    out->writes = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || out->writes < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
        connect(out->writes, (struct sockaddr *)&address, length) != 0 ||
        (out->reads = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
        rc = errno;
    if (listener >= 0) close(listener);
    return rc;
}

/* Writes until the reader closes its end, or does not read for two seconds. */
static void *write_all(void *arg)
{
    const pair *p = arg;
    char *piece = calloc(1, PIECE);

    while (piece != NULL && send(p->writes, piece, PIECE, MSG_NOSIGNAL) > 0) continue;
    shutdown(p->writes, SHUT_RDWR);
    free(piece);
    return NULL;
}

/* Reads for 0.2 s. Returns bytes per second; 0: nothing came. */
static double read_for_a_while(const pair *p)
{
    double begun = seconds_now(), spent = 0, bytes = 0;
    char *piece = malloc(PIECE);
    ssize_t n = 1;

    while (piece != NULL && n > 0 && spent < SECONDS) {
        n = recv(p->reads, piece, PIECE, 0);
        if (n > 0) bytes += (double)n;
        spent = seconds_now() - begun;
    }
    shutdown(p->reads, SHUT_RDWR);
    free(piece);
    return spent > 0 ? bytes / spent : 0;
}

static int measure(pair *p, double *rate)
{
    struct timeval limit = { .tv_sec = LIMIT_S };
    pthread_t writer;
    int rc;

    setsockopt(p->reads, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(p->writes, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if ((rc = pthread_create(&writer, NULL, write_all, p)) != 0) return rc;
    *rate = read_for_a_while(p);
    pthread_join(writer, NULL);
    return 0;
}

void pd_check_loopback(const pd_machine *machine, pd_finding *out)
{
    char text[PD_CELL];
    pair p = { -1, -1 };
    double rate = 0;
    int rc = connect_pair(&p);
    (void)machine;

    if (rc == 0) rc = measure(&p, &rate);
    if (p.reads >= 0) close(p.reads);
    if (p.writes >= 0) close(p.writes);
    if (rc != 0) {
        pd_found(out, "no TCP connection on 127.0.0.1: %s", strerror(rc));
        pd_advise(out, PD_HEALTH_FAIL, "Bring the loopback interface up: ip link set lo up");
        return;
    }
    pd_found(out, "%s/s", pd_bytes_text(text, (uint64_t)rate));
    if (rate < SLOW_RATE)
        pd_advise(out, PD_HEALTH_WARN,
                  "TCP is slow on this machine, or it is busy: connect workers of this machine by "
                  "a Unix socket, which shares memory; `paramctl bench net' measures more.");
}
