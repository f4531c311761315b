/* check_network.c - computes what the kernel's buffers let one TCP connection carry over the distance to the daemon. */
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "address.h"
#include "checks.h"
#include "format.h"

#define EXAMPLE_S 0.05      /* the round trip that stands for a long distance if the real one is not known */
#define SLOW_BITS 1e9       /* bits a second below which the buffers are called small */
#define WANTED_BYTES 1.25e9 /* bytes a second for which the advice makes room: 10 Gbit/s */

/* About half of a socket's buffer holds data: the kernel's records take the rest. */
#define DATA_PART 0.5

static const uint64_t least_advice = 16 << 20, most_advice = 512 << 20;

/* Reads the third number of a file such as "4096 131072 6291456". Returns 0 if there is none. */
static uint64_t largest(const pd_machine *machine, const char *path)
{
    char text[128];
    unsigned long long numbers[3];

    if (!pd_machine_text(machine, path, text, sizeof text)) return 0;
    return sscanf(text, "%llu %llu %llu", &numbers[0], &numbers[1], &numbers[2]) == 3 ? numbers[2] : 0;
}

/* Returns a size of buffers that suits this round trip: a power of two. */
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

void pd_judge_network(const pd_machine *machine, double trip_s, pd_finding *out)
{
    uint64_t reads = largest(machine, "/proc/sys/net/ipv4/tcp_rmem"),
             writes = largest(machine, "/proc/sys/net/ipv4/tcp_wmem");
    double distance = trip_s > 0 ? trip_s : EXAMPLE_S;
    double bits = 8 * DATA_PART * (double)(reads < writes ? reads : writes) / distance;
    char read_text[PD_CELL], write_text[PD_CELL];

    if (reads == 0 || writes == 0) {
        pd_found(out, "the sizes of TCP's buffers are not known");
        return;
    }
    pd_found(out, "%s of %.3g ms: buffers let one connection carry about %.0f %s (tcp_rmem %s, tcp_wmem %s)",
             trip_s > 0 ? "round trip" : "over a round trip", distance * 1e3, bits < 1e10 ? bits / 1e6 : bits / 1e9,
             bits < 1e10 ? "Mbit/s" : "Gbit/s", pd_bytes_text(read_text, reads), pd_bytes_text(write_text, writes));
    if (trip_s > 0 && bits < SLOW_BITS) advise(out, trip_s);
}

/* Returns the round trip of a connection in seconds, as the kernel has measured it; 0: it is not known. */
static double trip_of(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
    return info.tcpi_rtt / 1e6;
}

/* Connects to an address, which measures the round trip. Returns it in seconds, or 0: nobody answers. */
static double measure(const pd_address *address, double timeout)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *list = NULL;
    struct timeval limit = { .tv_sec = (time_t)timeout, .tv_usec = (long)(fmod(timeout, 1) * 1e6) };
    double trip = 0;
    int fd;

    if (address->local || getaddrinfo(address->host, address->port, &hints, &list) != 0) return 0;
    fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* connect, too, waits no longer */
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
        trip = measure(&addresses[0], machine->timeout);
    free(addresses);
    pd_judge_network(machine, trip, out);
}
