/* idle.h - decides when a daemon that no worker uses ends by itself. Loop thread. */
#ifndef PD_IDLE_H
#define PD_IDLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_idle {
    uint64_t since_ms; /* time at which a worker was connected last, or at which the daemon began */
} pd_idle;

/* Notes that a worker is connected now, or that the daemon begins. */
void pd_idle_reset(pd_idle *idle, uint64_t now_ms);
/* Returns whether no worker has been connected for limit_ms milliseconds. False if limit_ms is 0. */
bool pd_idle_is_over(const pd_idle *idle, uint64_t now_ms, uint64_t limit_ms);

#endif
