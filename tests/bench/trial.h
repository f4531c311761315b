/* trial.h - trains the quickstart's model in this process: the same images, order, initial weights and learning rates
 * as deploy/quickstart.sh with one worker and 8 epochs, but without a daemon between gradients and optimizer. */
#ifndef PD_TRIAL_H
#define PD_TRIAL_H

#include "classifier.h"

enum { TRIAL_EPOCHS = 8, TRIAL_BATCH = 256, TRIAL_EVERY = 26, TRIAL_SMOOTH = 3, TRIAL_LOOKS = 80, TRIAL_PROBE = 10000 };

/* The losses at one step. They are measured every TRIAL_EVERY steps. */
typedef struct trial_look {
    int step;
    double train_loss;  /* loss of TRIAL_PROBE training images, always the same */
    double smooth_loss; /* mean of the last TRIAL_SMOOTH values of train_loss */
    double test_loss;   /* loss of all test images; 0 if `tested` is not set */
    double cpu_seconds; /* CPU time of all steps so far (gradients and optimizer), without the measurements of losses */
} trial_look;

typedef struct trial {
    char rule[384]; /* rule of the optimizer for all parameters, such as "sgd lr=0.1 momentum=0.9" */
    uint64_t seed;  /* seed of the initial weights and of the order of images, like --seed of the example program
                     * fashion */
    bool tested;    /* whether each measurement includes the test loss */
    trial_look look[TRIAL_LOOKS];
    int looks;
    double accuracy;                  /* accuracy on the test images after the last epoch */
    double gradient_ms, optimizer_ms; /* mean CPU time of a step on one core, without the measurements of losses */
    bool diverged;                    /* a loss was not finite; there are no measurements after it */
} trial;

/* The images that all trials share. */
typedef struct trial_data {
    images train, probe, test;
} trial_data;

/* Reads the images. Ends the program if they are missing. The caller frees the result. */
trial_data *trial_load(void);

/* Runs n trials, `threads` at a time with one core each. Writes a line to stderr when a trial ends. Losses do not
 * depend on `threads`, but times do. */
void trial_run(trial *trials, size_t n, const trial_data *data, int threads);

/* Returns the first step after which the smoothed loss is at or below `level`; INFINITY: no step reaches it. */
double trial_reaches(const trial *t, double level);
/* Returns the smoothed loss after the last epoch; INFINITY if the trial diverged. */
double trial_final(const trial *t);

#endif
