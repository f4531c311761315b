/* check_network.c - checks a running daemon, TCP on the loopback interface, and the kernel's buffers for TCP. */
#include "doctor.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "address.h"
#include "connection.h"
#include "format.h"

#define BUSY_MS 20 /* ms that a turn of the loop thread may take: a longer turn delays every worker */

/* Checks a daemon's status: that its version is this program's, and that neither its loop thread nor its memory is
 * overloaded. */
static void judge(const Paramd__StatusReply *status, pd_finding *out)
{
    char up[PD_CELL];

    pd_found(out, "%s, up %s, %u connections, BLAS core %s", status->server, pd_duration_text(up, status->uptime_ms),
             status->connections, status->blas_core);
    if (strstr(status->server, PD_VERSION) == NULL)
        pd_advise(out, PD_HEALTH_WARN, "paramctl is version %s: install both from one version.", PD_VERSION);
    if (status->draining)
        pd_advise(out, PD_HEALTH_WARN, "The daemon is draining: it finishes open steps and takes no new work.");
    if (status->n_loop_busy_ms == 4 && status->loop_busy_ms[1] > BUSY_MS)
        pd_advise(out, PD_HEALTH_WARN,
                  "Its loop thread is busy for %.0f ms at a time (99 %%): the machine has too few processors for it, "
                  "or other programs take them.",
                  status->loop_busy_ms[1]);
    if (status->ingest_bytes > 0 && status->ingest_used > status->ingest_bytes / 10 * 9)
        pd_advise(out, PD_HEALTH_WARN,
                  "Its memory for gradients in flight is nearly used: raise limits.ingest_bytes, or see `paramctl "
                  "params JOB' for a rank that is missing.");
}

bool pd_leads_here(const char *addresses)
{
    pd_address *at = NULL;
    bool here = true;
    size_t n = 0;

    if (pd_addresses_parse(&at, &n, addresses, PD_TO_CONNECT, NULL) != PD_OK) return false;
    for (size_t i = 0; i < n; i++)
        here = here && (at[i].local || at[i].host[0] == '\0' || strncmp(at[i].host, "127.", 4) == 0 ||
                        strcmp(at[i].host, "::1") == 0 || strcmp(at[i].host, "localhost") == 0);
    free(at);
    return here;
}

/* Asks the daemon for its status. *out lies in memory of `op`, which the caller closes, also after an error. */
static int ask(const pd_machine *machine, pd_operator *op, Paramd__StatusReply **out, pd_error *err)
{
    int rc = pd_operator_open(op, machine->server, machine->timeout, err);

    return rc == PD_OK ? pd_client_call(op->client, PD_STATUS, NULL, op->arena, (void **)out, err) : rc;
}

void pd_ask_settings(pd_machine *machine)
{
    Paramd__StatusReply *status;
    pd_operator op = { 0 };

    if (machine->server == NULL) return;
    machine->here = pd_leads_here(machine->server);
    if (ask(machine, &op, &status, NULL) == PD_OK && status->settings[0] != '\0')
        machine->asked = strdup(status->settings);
    pd_operator_close(&op);
}

void pd_check_daemon(const pd_machine *machine, pd_finding *out)
{
    Paramd__StatusReply *status;
    pd_operator op = { 0 };
    pd_error err = { 0 };

    if (machine->server == NULL) {
        pd_found(out, "not asked: --server or PARAMD_URL names none");
        return;
    }
    if (ask(machine, &op, &status, &err) == PD_OK) {
        judge(status, out);
    } else {
        pd_found(out, "%.300s", err.text);
        pd_advise(out, PD_HEALTH_FAIL, "Start it, or correct the address; its log says more.");
    }
    pd_operator_close(&op);
}

enum { PIECE = 1 << 20, LIMIT_S = 2 };

#define SECONDS 0.2
#define SLOW_RATE 500e6 /* bytes per second below which TCP is called slow */

/* The two ends of a TCP connection of this process with itself, over loopback. Bytes that are written to `writes` are
 * read from `reads`. */
typedef struct pair {
    int reads, writes;
} pair;

/* Connects a pair through a listening socket, which is then closed. Returns 0 or an errno. */
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

/* Runs on the writing thread: writes until the other end is closed, or does not read for two seconds. */
static void *write_all(void *arg)
{
    const pair *p = arg;
    char *piece = calloc(1, PIECE);

    while (piece != NULL && send(p->writes, piece, PIECE, MSG_NOSIGNAL) > 0) continue;
    shutdown(p->writes, SHUT_RDWR);
    free(piece);
    return NULL;
}

/* Reads for 0.2 s. Returns the bytes per second; 0: no bytes came. */
static double read_for_a_while(const pair *p)
{
    double begun = pd_now_s(), spent = 0, bytes = 0;
    char *piece = malloc(PIECE);
    ssize_t n = 1;

    while (piece != NULL && n > 0 && spent < SECONDS) {
        n = recv(p->reads, piece, PIECE, 0);
        if (n > 0) bytes += (double)n;
        spent = pd_now_s() - begun;
    }
    shutdown(p->reads, SHUT_RDWR);
    free(piece);
    return spent > 0 ? bytes / spent : 0;
}

static int measure_loopback(pair *p, double *rate)
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

    if (rc == 0) rc = measure_loopback(&p, &rate);
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
                  "TCP is slow on this machine, or it is busy: connect workers of this machine by a Unix socket, which "
                  "shares memory; `paramctl bench net' measures more.");
}

#define EXAMPLE_S 0.05      /* round trip in seconds over a long distance, used if the real one is not known */
#define SLOW_BITS 1e9       /* bits per second below which the buffers are called too small */
#define WANTED_BYTES 1.25e9 /* bytes per second for which advised buffers suffice: 10 Gbit/s */

/* Share of a socket's buffer that holds data. The kernel's bookkeeping takes about the other half. */
#define DATA_PART 0.5

static const uint64_t least_advice = 16 << 20, most_advice = 512 << 20;

/* Returns the largest buffer size in a file such as tcp_rmem: the third number of "4096 131072 6291456". Returns 0 if
 * there is none. */
static uint64_t largest(const pd_machine *machine, const char *path)
{
    char text[128];
    unsigned long long numbers[3];

    if (!pd_machine_text(machine, path, text, sizeof text)) return 0;
    return sscanf(text, "%llu %llu %llu", &numbers[0], &numbers[1], &numbers[2]) == 3 ? numbers[2] : 0;
}

/* Returns the bytes of a buffer that suffice for a round trip in seconds: a power of two. */
static uint64_t advised(double trip_s)
{
    uint64_t bytes = least_advice;

    while (bytes < most_advice && (double)bytes * DATA_PART < trip_s * WANTED_BYTES) bytes *= 2;
    return bytes;
}

static void advise(pd_finding *out, double trip_s)
{
    unsigned long long bytes = advised(trip_s);

    pd_advise(out, PD_HEALTH_WARN,
              "For more, as root on both machines: sysctl -w net.ipv4.tcp_rmem='4096 131072 %llu' "
              "net.ipv4.tcp_wmem='4096 16384 %llu' (a file in /etc/sysctl.d keeps it).",
              bytes, bytes);
}

/* Adds the name of the congestion control in use to the finding: the kernel's, unless the daemon's configuration
 * chooses another. */
static void tell_congestion(const pd_machine *machine, pd_finding *out)
{
    char kernels[32], chosen[32] = "";

    pd_machine_setting(machine, "tcp_congestion", chosen, sizeof chosen);
    if (chosen[0] != '\0')
        pd_found(out, ", congestion control %s (server.tcp_congestion)", chosen);
    else if (pd_machine_text(machine, "/proc/sys/net/ipv4/tcp_congestion_control", kernels, sizeof kernels))
        pd_found(out, ", congestion control %.*s", (int)strcspn(kernels, "\n"), kernels);
}

void pd_judge_network(const pd_machine *machine, double trip_s, pd_finding *out)
{
    uint64_t reads = largest(machine, "/proc/sys/net/ipv4/tcp_rmem"),
             writes = largest(machine, "/proc/sys/net/ipv4/tcp_wmem");
    double distance = trip_s > 0 ? trip_s : EXAMPLE_S;
    double bits = 8 * DATA_PART * (double)(reads < writes ? reads : writes) / distance;
    char read_text[PD_CELL], write_text[PD_CELL];

    if (reads == 0 || writes == 0) {
        pd_found(out, "TCP buffer sizes unknown");
        return;
    }
    pd_found(out, "%s of %.3g ms: buffers let one connection carry about %.0f %s (tcp_rmem %s, tcp_wmem %s)",
             trip_s > 0 ? "round trip" : "over a round trip", distance * 1e3, bits < 1e10 ? bits / 1e6 : bits / 1e9,
             bits < 1e10 ? "Mbit/s" : "Gbit/s", pd_bytes_text(read_text, reads), pd_bytes_text(write_text, writes));
    tell_congestion(machine, out);
    if (trip_s > 0 && bits < SLOW_BITS) advise(out, trip_s);
}

/* Returns the round-trip time of a connection in seconds, as the kernel has measured it; 0: not known. */
static double trip_of(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
    return info.tcpi_rtt / 1e6;
}

/* Connects to an address. Returns the round-trip time in seconds, which the kernel measures when it connects; 0: nobody
 * answers. */
static double measure_trip(const pd_address *address, double timeout)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *list = NULL;
    struct timeval limit = { .tv_sec = (time_t)timeout, .tv_usec = (long)(fmod(timeout, 1) * 1e6) };
    double trip = 0;
    int fd;

    if (address->local || getaddrinfo(address->host, address->port, &hints, &list) != 0) return 0;
    fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* this timeout limits connect(), too */
        if (connect(fd, list->ai_addr, list->ai_addrlen) == 0) trip = trip_of(fd);
        close(fd);
    }
    freeaddrinfo(list);
    return trip;
}

void pd_check_network(const pd_machine *machine, pd_finding *out)
{
    pd_address *addresses = NULL;
    double trip = 0;
    size_t n = 0;

    if (machine->server != NULL && !pd_leads_here(machine->server) &&
        pd_addresses_parse(&addresses, &n, machine->server, PD_TO_CONNECT, NULL) == PD_OK)
        trip = measure_trip(&addresses[0], machine->timeout);
    free(addresses);
    pd_judge_network(machine, trip, out);
}
