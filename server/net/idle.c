/* idle.c - decides when a daemon that no worker uses ends by itself. */
#include "idle.h"

void pd_idle_reset(pd_idle *idle, uint64_t now_ms)
{
    idle->since_ms = now_ms;
}

bool pd_idle_is_over(const pd_idle *idle, uint64_t now_ms, uint64_t limit_ms)
{
    return limit_ms > 0 && now_ms - idle->since_ms >= limit_ms;
}
