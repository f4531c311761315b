/* totals.h - sums over the parameters of a job, for operators. Step thread.
 *
 * A job may have 65,536 parameters and a parameter 262,144 roots, so the sums are counted in parts, and stay valid
 * until the job changes (pd_steps.changes). */
#ifndef PD_TOTALS_H
#define PD_TOTALS_H

#include "job.h"

enum { PD_TOTALS_OPTIMIZERS = 32 };

/* Sums that are being counted. All zero: not begun. */
typedef struct pd_totals_count {
    pd_job_totals sofar;
    uint32_t job; /* number of the job; 0: not begun */
    uint32_t at;  /* the parameter that is counted next */
    size_t root;  /* the root of that parameter that is counted next */
    /* the optimizers met so far: the first of the rules that have each, and the number of its elements */
    struct {
        const pd_rule *rule;
        uint64_t elements;
    } optimizers[PD_TOTALS_OPTIMIZERS];
    size_t n_optimizers;
} pd_totals_count;

/* Counts on for about *budget_ns, from which it subtracts the time, but one item at least. Returns true when
 * job->totals has the sums: those of the time when the counting began or of a later one. Then `count` is all zero
 * again. If `count` has begun with another job it begins anew. */
bool pd_totals_some(pd_totals_count *count, pd_job *job, double *budget_ns);

#endif
