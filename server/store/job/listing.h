/* listing.h - pages of a job's long lists, and sums over its parameters. Counted once, not for every request of an
 * operator. Step thread.
 *
 * A job may have 65,536 parameters, and an operator may ask for one page after another. The counts stay valid until
 * the job changes (pd_steps.changes). */
#ifndef PD_LISTING_H
#define PD_LISTING_H

#include "job.h"

/* One kind of list. Each parameter whose name matches a pattern has a number of entries in it. */
typedef struct pd_list_kind {
    /* Returns how many entries of the list a parameter has. */
    uint64_t (*count)(const pd_param *param);
    /* Adds entries of a parameter to the page, beginning with its entry number `first`, as many as the page has room
     * for. */
    void (*fill)(pd_info *info, const pd_param *param, uint64_t first);
    /* true: the entries depend only on the declared parameters, so the counts stay valid while the job trains */
    bool lasting;
} pd_list_kind;

typedef struct pd_listing pd_listing;

/* Fills info->total, and the page from entry number info->start on. `pattern`: a glob on parameter names; NULL or
 * "": all parameters. PD_NO_MEMORY. */
int pd_listing_page(pd_info *info, pd_job *job, const pd_list_kind *kind, const char *pattern);
void pd_listing_free(pd_listing *listing); /* accepts NULL */

/* Returns the sums over the job's parameters. Borrowed until the job changes. */
const pd_job_totals *pd_job_count_totals(pd_job *job);

#endif
