/* listing.h - makes pages of an operator's long lists about the parameters of a job. Step thread.
 *
 * A job may have 65,536 parameters, a parameter a million items, and an operator may ask for one page after another. So
 * a page is made in parts. The index, which says where pages begin, is computed once for the whole list and kept for
 * further pages; if the list changes while the job trains, the index is kept only until the job changes
 * (pd_steps.changes). If the job changes while a page is made, each parameter appears on the page, and counts in the
 * total, as it was when it was examined. */
#ifndef PD_LISTING_H
#define PD_LISTING_H

#include "glob.h"
#include "job.h"

/* One kind of list. Each parameter whose name matches a glob has some number of items, of which some are entries. All
 * functions take a short and constant time. */
typedef struct pd_list_kind {
    uint64_t (*items)(const pd_param *param); /* Returns how many items the parameter has. */
    /* Returns whether an item of the parameter is an entry of the list. NULL: all items are. */
    bool (*is_entry)(const pd_param *param, uint64_t item);
    /* Returns how many entries the parameter has. */
    uint64_t (*count)(const pd_param *param);
    /* Adds an item of the parameter to a page. */
    void (*fill)(pd_info *info, const pd_param *param, uint64_t item);
    /* true: the numbers of entries depend only on the declared parameters, so they stay valid while the job trains */
    bool lasting;
} pd_list_kind;

typedef struct pd_listing pd_listing;

/* A page that is being made. */
typedef struct pd_listing_walk {
    const pd_list_kind *kind;
    pd_glob *glob;        /* glob that names of parameters must match; NULL: all parameters */
    pd_listing *listing;  /* the index of the list */
    bool counted, found;  /* true: the index is complete; true: the walk is at the block in which the page begins */
    uint32_t param;       /* index of the next parameter to count; later of the next parameter to fill the page from */
    uint64_t item, entry; /* index of the next item of `param`; number of entries before it in the list */
} pd_listing_walk;

/* Begins a page. `pattern` is a glob that names of parameters must match; NULL or "": all parameters.
 * PD_INVALID_ARGUMENT: it is too long. PD_NO_MEMORY. */
int pd_listing_begin(pd_listing_walk *walk, pd_job *job, const pd_list_kind *kind, const char *pattern, pd_error *err);
/* Returns whether the walk was begun with the parameters that the job has now. If not, the caller must end the page and
 * begin it again. */
bool pd_listing_fits(const pd_listing_walk *walk, const pd_job *job);
/* Makes the page in `info` for about *budget_ns, from which it subtracts the time: the number of all entries, and
 * PD_INFO_PAGE of them from number info->start on. Returns true when it is complete. */
bool pd_listing_some(pd_listing_walk *walk, pd_info *info, const pd_job *job, double *budget_ns);
/* Ends a page and frees what it holds. Gives the index to the job, for the next page; `job` NULL: frees the index. */
void pd_listing_end(pd_listing_walk *walk, pd_job *job);

#endif
