/* listed_jobs.h - pages of the list of jobs that an operator asks for. Step thread.
 *
 * There may be thousands of jobs, 4,096 lines of roles that say which of them the operator may see, and sums over
 * 65,536 parameters to count for each. So a page is made in parts. Jobs that end meanwhile are left out. */
#ifndef PD_LISTED_JOBS_H
#define PD_LISTED_JOBS_H

#include "jobs.h"
#include "totals.h"

/* A page that is being made. */
typedef struct pd_listed_jobs {
    pd_roles_view *view; /* which jobs the operator may see; NULL: all */
    /* numbers of the jobs that are there when the page begins; the first n_seen of those before `at` can be seen */
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

/* Fills the entry of a job. The job's sums are counted before (totals.h). */
void pd_listed_job_fill(pd_job_info *info, const pd_job *job, uint64_t now_ns);

#endif
