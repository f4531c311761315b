/* listing.h - pages of a job's long lists, and sums over its parameters: counted once, not for every request of an
 * operator. Step thread.
 *
 * A job may have 65,536 parameters, and an operator may ask for one page after another. What is counted holds until
 * the job changes (pd_job.changes). */
#ifndef PD_LISTING_H
#define PD_LISTING_H

#include "job.h"

/* One kind of list: entries of parameters whose name matches a pattern. */
typedef struct pd_list_kind {
    /* Returns how many entries a parameter has. */
    uint64_t (*count)(const pd_param *param);
    /* Adds a parameter's entries from number `first` on to the page, as many as it has room for. */
    void (*fill)(pd_info *info, const pd_param *param, uint64_t first);
    /* The entries depend on the declared parameters alone, not on what a job does. */
    bool lasting;
} pd_list_kind;

typedef struct pd_listing pd_listing;

/* Fills info->total and the page from info->start on. `pattern`: a glob on names; NULL or "": all. PD_NO_MEMORY. */
int  pd_listing_page(pd_info *info, pd_job *job, const pd_list_kind *kind, const char *pattern);
void pd_listing_free(pd_listing *listing);      /* accepts NULL */

/* Returns the sums over the job's parameters. Borrowed until the job changes. */
const pd_job_totals *pd_job_count_totals(pd_job *job);

#endif
