/* trial.h - one training of the quickstart's model in this process: same images, same order, same first weights and the same schedule as
 * deploy/quickstart.sh with one worker and 8 epochs, no daemon between gradients and optimizer. */
#ifndef PD_TRIAL_H
#define PD_TRIAL_H

#include "plot.h"
#include "course.h"

enum { TRIAL_EPOCHS = 8, TRIAL_BATCH = 256, TRIAL_EVERY = 26, TRIAL_SMOOTH = 3 };

typedef struct trial {
    char        rule[384];              /* "sgd lr=0.1 momentum=0.9", as a job has it, for all parameters */
    uint64_t    seed;                   /* of first weights and order, as --seed */
    plot_points loss;                   /* every TRIAL_EVERY steps: mean of the last TRIAL_SMOOTH losses on COURSE_PROBE training images */
    double      accuracy;               /* on the test images after the last epoch */
    double      gradient_ms, optimizer_ms;      /* a step's mean CPU time on one core, without the looks at the loss */
    bool        diverged;               /* some loss was not finite: the points end there */
} trial;

/* Images that trials share. */
typedef struct trial_data {
    dataset train, probe, test;
} trial_data;

/* Ends the program where the images are missing. */
void trial_load(trial_data *data);
void trial_unload(trial_data *data);

/* Runs them, `threads` at a time with one core each; a line on stderr as each ends. The results do not depend on `threads`, but the times do. */
void trial_run(trial *trials, size_t n, const trial_data *data, int threads);
void trial_free(trial *t);

/* First step at which the smoothed loss is at or below `level`; INFINITY: never. */
double trial_reaches(const trial *t, double level);
/* The smoothed loss after the last epoch; INFINITY where it diverged. */
double trial_final(const trial *t);

#endif
