/* speed.c - computes a job's steps per second over a recent window of time. */
#include "speed.h"

#define WINDOW_NS 10000000000ull /* length of the window over which the speed is measured: 10 seconds */

static const pd_speed_mark *mark_at(const pd_speed *speed, uint32_t i)
{
    return &speed->marks[(speed->first + i) % PD_SPEED_MARKS];
}

/* Adds a mark (a step and the time at which it was reached) to the ring buffer. If it is full, the oldest mark is
 * dropped. */
static void add_mark(pd_speed *speed, pd_speed_mark mark)
{
    if (speed->n == PD_SPEED_MARKS)
        speed->first = (speed->first + 1) % PD_SPEED_MARKS;
    else
        speed->n++;
    speed->marks[(speed->first + speed->n - 1) % PD_SPEED_MARKS] = mark;
}

void pd_speed_note(pd_speed *speed, uint64_t step, uint64_t now_ns)
{
    if (speed->n > 0 && step <= speed->last.step) return;
    speed->last = (pd_speed_mark){ step, now_ns };
    if (speed->n == 0 || now_ns - mark_at(speed, speed->n - 1)->ns >= WINDOW_NS / (PD_SPEED_MARKS - 1))
        add_mark(speed, speed->last);
}

double pd_speed_at(const pd_speed *speed, uint64_t now_ns)
{
    const pd_speed_mark *oldest = mark_at(speed, 0);
    double steps, elapsed, idle;

    if (speed->n == 0 || speed->last.step == oldest->step) return 0;
    steps = (double)(speed->last.step - oldest->step);
    elapsed = (double)(speed->last.ns - oldest->ns);
    idle = now_ns > speed->last.ns ? (double)(now_ns - speed->last.ns) : 0;
    /* The step that is under way is already slower than the average, so it lowers the speed. */
    if (idle > elapsed / steps) elapsed += idle - elapsed / steps;
    return elapsed > 0 ? steps * 1e9 / elapsed : 0;
}
