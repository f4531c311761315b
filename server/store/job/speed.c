/* speed.c - steps per second of a job over a recent window. */
#include "speed.h"

#define WINDOW_NS 10000000000ull /* length of the window: 10 seconds */

static const pd_speed_mark *mark_at(const pd_speed *speed, uint32_t i)
{
    return &speed->marks[(speed->first + i) % PD_SPEED_MARKS];
}

/* Adds a mark (a step and its time) to the ring. If the ring is full, the oldest mark is dropped. */
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
    if (idle > elapsed / steps) elapsed += idle - elapsed / steps; /* the step under way is slower than average */
    return elapsed > 0 ? steps * 1e9 / elapsed : 0;
}
