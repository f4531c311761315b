/* net_bench.h - throughput of push and pull through a daemon, beside bare TCP. */
#ifndef PD_NET_BENCH_H
#define PD_NET_BENCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_net_bench {
    const char *server;                 /* NULL: a daemon of its own */
    double      timeout;
    bool        json;
    int64_t     workers, tensors, floats, rounds;
} pd_net_bench;

/* Measures and prints. Returns an exit status. */
int pd_net_bench_run(const pd_net_bench *want);

#endif
