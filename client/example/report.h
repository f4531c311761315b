/* report.h - what rank 0 tells people (a progress line, a picture) and machines (one JSON object a line). */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "curve.h"

typedef struct report {
    FILE    *log;                       /* PREFIX.jsonl */
    curve    curve;
    char     picture[512];              /* PREFIX.svg */
    bool     live;                      /* standard output is a terminal: one line, rewritten in place */
    int      batch;
    uint64_t steps, per_epoch;
    uint64_t first, seen;               /* step at the beginning, and when the line was last shown */
    double   began, shown;              /* seconds */
    double   loss, speed;               /* both smoothed; speed in images/s */
    double   accuracy;                  /* of the last epoch, per cent */
} report;

/* PD_UNAVAILABLE: cannot write PREFIX.jsonl. */
int  report_open(report *r, const char *prefix, uint64_t first, uint64_t steps, uint64_t per_epoch, int batch, pd_error *err);
/* One step is done (steps count from 1). loss: of rank 0's examples before it; rate: learning rate, 0 if the optimizer's own. */
int  report_step(report *r, uint64_t step, double loss, double rate, pd_error *err);
/* Loss over the fixed training images after that step. */
int  report_train_loss(report *r, uint64_t step, double loss, pd_error *err);
/* An epoch is done; accuracy in [0, 1]. */
int  report_epoch(report *r, uint64_t step, double test_loss, double accuracy, pd_error *err);
/* Draws the picture and says what was left where. */
int  report_finish(report *r, const char *subtitle, pd_error *err);
void report_close(report *r);                           /* accepts a zeroed one */

#endif
