/* speed.h - a job's steps per second over a recent window of time, for operators. Step thread.
 *
 * The speed is computed from the times that come with requests and batches of work, not from a clock, so the same run
 * in simulated time gives the same speed. It is not saved for a restart, and no arithmetic on tensors uses it. */
#ifndef PD_SPEED_H
#define PD_SPEED_H

#include <stdint.h>

enum { PD_SPEED_MARKS = 16 };

/* A mark: a step, and the time at which the job had reached it. */
typedef struct pd_speed_mark {
    uint64_t step, ns;
} pd_speed_mark;

/* Recent steps of a job: those of the last 10 seconds, or the last 15 steps if these took longer. Begins zeroed. */
typedef struct pd_speed {
    /* ring buffer of marks (steps with their times); the oldest is at index `first` */
    pd_speed_mark marks[PD_SPEED_MARKS];
    uint32_t first, n;
    pd_speed_mark last; /* the newest step that was noted, and its time */
} pd_speed;

/* Notes that the job has reached step `step` at the time `now_ns`. Does nothing if it was noted before. */
void pd_speed_note(pd_speed *speed, uint64_t step, uint64_t now_ns);
/* Returns the job's steps per second at the time `now_ns`; 0: fewer than two steps were noted. It falls while a step
 * takes longer than the average of those before it. */
double pd_speed_at(const pd_speed *speed, uint64_t now_ns);

#endif
