/* publishing.h - publishes copies of the figures of jobs: about once a second those of each job that has changed. Step
 * thread.
 *
 * The loop thread keeps the last copy of each job, and answers whoever asks for figures from it (metrics, the
 * dashboard). So readers cost the step thread nothing, and a job's parameters are looked at once a second at most. */
#ifndef PD_PUBLISHING_H
#define PD_PUBLISHING_H

#include "jobs.h"
#include "totals.h"

typedef struct pd_publishing {
    uint64_t every_ns;        /* time between two copies; 0: there are none */
    uint64_t next_ns;         /* time from which on the next copies are made */
    uint64_t began_ns;        /* time at which the last copies were begun */
    uint64_t number;          /* number of times that copies were begun */
    bool under_way;           /* not all of these copies are made yet */
    bool wanted;              /* some job may have changed since the last copies */
    pd_totals_count counting; /* sums of the job that is copied next */
} pd_publishing;

/* Notes that a job may have changed. */
void pd_publishing_note(pd_publishing *publishing, pd_job *job);
/* Publishes a copy of the figures of each job that has changed, if it is time: in parts, each call a part. A job for
 * whose copy there is no memory is tried again next time. */
void pd_publishing_look(pd_publishing *publishing, const pd_jobs *jobs, pd_effects *outbox, uint64_t now_ns);
/* Returns the time at which pd_publishing_look must be called next; UINT64_MAX: nothing has changed. */
uint64_t pd_publishing_next(const pd_publishing *publishing);

#endif
