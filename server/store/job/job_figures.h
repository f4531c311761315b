/* job_figures.h - computes the figures of jobs for operators: pages of the list of jobs, sums over a job's parameters,
 * and copies for the loop thread, once a second. Step thread.
 *
 * There may be thousands of jobs, 4,096 lines of roles that say which jobs the operator may see, 65,536 parameters of a
 * job and 262,144 roots of a parameter. So pages, sums and copies are made in parts. Sums stay valid until the job
 * changes (pd_steps.changes). A page leaves out jobs that end while it is made.
 *
 * The loop thread keeps the last copy of each job, and answers metrics and the dashboard from it. So readers cost the
 * step thread no time, and a job's parameters are read at most once a second. */
#ifndef PD_JOB_FIGURES_H
#define PD_JOB_FIGURES_H

#include "job.h"
#include "jobs.h"

enum { PD_TOTALS_OPTIMIZERS = 32 };

/* The sums of one job while they are being computed. All zero: not begun. */
typedef struct pd_totals_count {
    pd_job_totals sofar;
    uint32_t job; /* number of the job; 0: not begun */
    uint32_t at;  /* index of the parameter that is counted next */
    size_t root;  /* index of that parameter's root that is counted next */
    /* the optimizers found so far: the first rule that has the optimizer, and the number of elements of its
     * parameters */
    struct {
        const pd_rule *rule;
        uint64_t elements;
    } optimizers[PD_TOTALS_OPTIMIZERS];
    size_t n_optimizers;
} pd_totals_count;

/* Continues to compute the job's sums for about *budget_ns, from which it subtracts the time; handles at least one
 * item. Returns true when job->figures.totals has the sums, as of the begin of the computation or later; then `count`
 * is all zero again. If `count` belongs to another job, begins again. */
bool pd_totals_some(pd_totals_count *count, pd_job *job, double *budget_ns);

/* A page of the list of jobs while it is being made. */
typedef struct pd_listed_jobs {
    pd_roles_view *view; /* the operator's view, which says which jobs the operator may see; NULL: all */
    /* Numbers of the `n` jobs that exist when the page begins. Entries before `at` are checked: the operator may see
     * n_seen of them, whose numbers are moved to the front. */
    uint32_t *numbers;
    size_t n, at, n_seen;
    pd_totals_count counting; /* sums of the job that is the page's next entry */
} pd_listed_jobs;

/* Begins a page for the operator `identity`. `roles` NULL: the server has none. PD_NO_MEMORY. */
int pd_listed_jobs_begin(pd_listed_jobs *listed, const pd_jobs *jobs, pd_roles *roles, const char *identity,
                         double *budget_ns);
/* Makes the page in `info`, which has room for PD_INFO_PAGE entries, for about *budget_ns, from which it subtracts the
 * time. Returns true when it is complete. */
bool pd_listed_jobs_some(pd_listed_jobs *listed, pd_info *info, const pd_jobs *jobs, uint64_t now_ns,
                         double *budget_ns);
void pd_listed_jobs_end(pd_listed_jobs *listed);

/* Fills the entry of a rank in the list of workers. */
void pd_listed_worker_fill(pd_worker_info *info, const pd_job *job, uint32_t rank);

typedef struct pd_publishing {
    uint64_t every_ns;        /* time (ns) between two times of copying; 0: copies are never made */
    uint64_t next_ns;         /* time from which on the next copies are made */
    uint64_t began_ns;        /* time at which the last copies were begun */
    uint64_t number;          /* number of times that copies were begun */
    bool under_way;           /* true: not all copies of this time are made yet */
    bool wanted;              /* true: some job may have changed since the last copies were begun */
    pd_totals_count counting; /* sums of the job that is copied next */
} pd_publishing;

/* Remembers that a job may have changed, so that its figures are copied again. */
void pd_publishing_note(pd_publishing *publishing, pd_job *job);
/* If it is time, sends the loop thread a copy of the figures of each job that has changed. Each call does a part. If
 * there is no memory for a job's copy, it is tried again next time. */
void pd_publishing_look(pd_publishing *publishing, const pd_jobs *jobs, pd_effects *outbox, uint64_t now_ns);
/* Returns the time at which pd_publishing_look must be called next; UINT64_MAX: nothing has changed. */
uint64_t pd_publishing_next(const pd_publishing *publishing);

#endif
