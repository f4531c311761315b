/* race.h - several jobs of worker processes (fleet.h) that train the same model in different ways, and their curves. */
#ifndef PD_BENCH_RACE_H
#define PD_BENCH_RACE_H

#include "fleet.h"

enum { RACE_SEEDS = 3, RACE_METHODS = 6, RACE_SMOOTH = 5 };

/* How a job trains. */
typedef struct race_method {
    const char *name, *rule;
    const char *options[12]; /* the job's options; the list ends with NULL */
    int lane;                /* methods of a lane run one after the other, and beside those of other lanes */
    bool seeds_at_once;      /* its lane has one for each seed. Otherwise the lane runs its seeds one after the other */
    bool tells_patience;     /* see fleet_options */
    fleet_sync sync;         /* every = 0: that of race.options */
    double local_lr;         /* 0: that of race.options */
    pd_dtype push;           /* element type in which workers push; 0: float32 */
    bool forgets;            /* without error feedback */
} race_method;

/* The curve of one job: test loss over time and examples. */
typedef struct race_curve {
    int n;
    double seconds[FLEET_LOOKS], loss[FLEET_LOOKS];
    double smooth[FLEET_LOOKS]; /* mean of the last RACE_SMOOTH losses */
    double end_seconds;         /* when the job was over */
    int64_t steps, counted[FLEET_WORKERS], late[FLEET_WORKERS];
    int64_t sent, received; /* bytes of a worker's contributions and weights, mean of the workers */
    int64_t peak;           /* most bytes of all workers in 100 ms, both ways */
} race_curve;

typedef struct race {
    const race_method *methods;
    int n;
    fleet_options options; /* what all jobs have in common */
    race_curve curves[RACE_METHODS][RACE_SEEDS];
} race;

/* Runs all methods with seeds 1, 2, 3. warmed[s]: what jobs of seed s + 1 begin with; NULL: new weights. */
void race_run(race *r, warm *const warmed[RACE_SEEDS]);
/* Returns the smoothed loss at the end; INFINITY if it is not finite. */
double race_final(const race_curve *c);
/* Returns the seconds after which the smoothed loss is at or below `level`; INFINITY: it never is. */
double race_reaches(const race_curve *c, double level);
/* Returns the median of the three. */
double race_median(const double at[RACE_SEEDS]);
/* Writes one JSON object a line for each method and look: medians of the seeds, and each seed. paramd-plot reads it. */
void race_write(const race *r, const char *path);

#endif
