/* listing.h - pages of an operator's long lists about a job, and sums over its parameters. Both are counted once, not
 * for every request.
 *
 * Step thread. A job may have 65,536 parameters, and an operator may ask for one page after another. The counts stay
 * valid until the job changes (pd_steps.changes). */
#ifndef PD_LISTING_H
#define PD_LISTING_H

#include "job.h"

/* One kind of list. Each parameter whose name matches a glob has some number of entries in it. */
typedef struct pd_list_kind {
    /* Returns how many entries of the list the parameter has. */
    uint64_t (*count)(const pd_param *param);
    /* Adds entries of the parameter to the page, from its entry number `first` on, until the page is full. */
    void (*fill)(pd_info *info, const pd_param *param, uint64_t first);
    /* true: the numbers of entries depend only on the declared parameters, so they stay valid while the job trains */
    bool lasting;
} pd_list_kind;

typedef struct pd_listing pd_listing;

/* Fills info->total (the number of all entries) and a page of entries, from number info->start on. `pattern` is a
 * glob that names of parameters must match; NULL or "": all parameters. PD_NO_MEMORY. */
int pd_listing_page(pd_info *info, pd_job *job, const pd_list_kind *kind, const char *pattern);
void pd_listing_free(pd_listing *listing); /* accepts NULL */

/* Returns sums over the job's parameters, for operators. The result is borrowed and valid until the job changes. */
const pd_job_totals *pd_job_count_totals(pd_job *job);

#endif
