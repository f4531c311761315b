/* job_steps.h - asks at which steps a job is on the daemons of a cluster. */
#ifndef PD_JOB_STEPS_H
#define PD_JOB_STEPS_H

#include "ask_all.h"

/* The steps of a job on all daemons. */
typedef struct pd_job_steps {
    uint64_t least, most; /* steps of the parameter that has taken fewest and most */
    double per_second;    /* of the slowest daemon; 0: not known */
    bool apart;           /* not every rank counts in each step: daemons need not come to the same steps */
} pd_job_steps;

/* Asks all daemons for the steps of a job. PD_NOT_FOUND: no daemon has the job. */
int pd_job_steps_ask(pd_job_steps *out, pd_cluster *cluster, const char *job, pd_error *err);
/* Returns a step that no daemon has begun, and none will begin within a fifth of a second: for requests that reach
 * different daemons at different times. */
uint64_t pd_job_steps_ahead(const pd_job_steps *steps);

#endif
