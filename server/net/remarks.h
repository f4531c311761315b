/* remarks.h - warnings about jobs, for the workers that asked for them in their Hello. Loop thread.
 *
 * Whatever the log says about a job at the level of a warning or above is a remark. Two texts that differ only in their
 * numbers are one remark, and it is sent once to each connection. So a warning that repeats at later steps, or is the
 * same for many layers, reaches the user of the job once. */
#ifndef PD_REMARKS_H
#define PD_REMARKS_H

#include "log_entry.h"

enum {
    PD_REMARKS = 128,       /* most remarks that are kept, of all jobs; the oldest goes first */
    PD_REMARKS_OF_JOB = 16, /* most remarks of one job, of which the last says that there are more */
};

/* A warning about a job. */
typedef struct pd_remark {
    char *job, *text;
    int64_t rank; /* the rank that it is about, which does not get it; -1: none */
} pd_remark;

typedef struct pd_remarks {
    pd_remark at[PD_REMARKS]; /* a ring: remark number i is at[i % PD_REMARKS] */
    uint64_t n;               /* number of remarks so far */
} pd_remarks;

/* Keeps a log entry as a remark if it is a warning about a job. Returns the remark; NULL: the entry is none, the job
 * had it before or has PD_REMARKS_OF_JOB already, or out of memory. */
const pd_remark *pd_remarks_add(pd_remarks *remarks, const pd_log_entry *entry);
/* Returns the next remark of a job, from number *at on, and moves *at behind it. NULL: there is none. */
const pd_remark *pd_remarks_next(const pd_remarks *remarks, const char *job, uint64_t *at);
/* Forgets the remarks of an earlier job of this name: a new one begins. */
void pd_remarks_begin(pd_remarks *remarks, const char *job);
void pd_remarks_free(pd_remarks *remarks);

#endif
