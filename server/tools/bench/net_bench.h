/* net_bench.h - measures the throughput of push and pull through a daemon, compared with bare TCP. */
#ifndef PD_NET_BENCH_H
#define PD_NET_BENCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_net_bench {
    const char *server; /* address of a running daemon; NULL: starts a daemon for the measurement */
    double timeout;
    bool json;
    int64_t workers, tensors, floats, rounds;
    const char *transport; /* "tcp", "tls", "unix" or "shm": how payloads travel */
    const char *beside;    /* another transport whose rounds take turns with those of the first; "none" */
    bool copy;             /* shm: gradients lie in memory of the worker, and the client copies them */
} pd_net_bench;

/* Measures and prints the throughput. Returns an exit status. */
int pd_net_bench_run(const pd_net_bench *want);

#endif
