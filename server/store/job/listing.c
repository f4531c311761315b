/* listing.c - makes pages of the lists in which each parameter has some entries, with an index that finds where a page
 * begins. */
#include "listing.h"

#include "param_set.h"

#include <stdlib.h>
#include <string.h>

/* Estimated nanoseconds to count the entries of a parameter, without the comparison of its name; to examine an item;
 * and to fill an entry of the page. */
#define PARAM_NS 40.0
#define ITEM_NS 5.0
#define ENTRY_NS 600.0

enum { BLOCK = 16 }; /* number of consecutive parameters whose entries are counted together, here called a block */

/* The index of a list: how many entries come before each block of parameters, counted once. With it a page starts at
 * the right block without counting from the first parameter, so every page of a long list costs little. The job owns
 * the index of the list that was asked for last. */
struct pd_listing {
    const pd_list_kind *kind;
    /* the job's parameters, and its value of pd_steps.changes, when counting the entries began */
    const pd_param *params;
    uint64_t changes;
    size_t n_blocks;
    /* the glob that names of parameters must match, empty: all match; its bytes follow `before` in the same
     * allocation */
    char *pattern;
    /* number of entries before each block of parameters; before[n_blocks] is the number of all entries */
    uint64_t before[];
};

static size_t count_blocks(const pd_job *job)
{
    return (job->steps.n_params + BLOCK - 1) / BLOCK;
}

static bool is_of(const pd_listing *listing, const pd_job *job, const pd_list_kind *kind, const char *pattern)
{
    return listing != NULL && listing->kind == kind && listing->params == job->steps.params &&
           listing->n_blocks == count_blocks(job) && (kind->lasting || listing->changes == job->steps.changes) &&
           strcmp(listing->pattern, pattern) == 0;
}

static pd_listing *make(const pd_job *job, const pd_list_kind *kind, const char *pattern)
{
    size_t n = count_blocks(job), numbers = (n + 1) * sizeof(uint64_t);
    pd_listing *listing = malloc(sizeof *listing + numbers + strlen(pattern) + 1);

    if (listing == NULL) return NULL;
    listing->kind = kind;
    listing->params = job->steps.params;
    listing->changes = job->steps.changes;
    listing->n_blocks = n;
    listing->pattern = (char *)&listing->before[n + 1];
    memcpy(listing->pattern, pattern, strlen(pattern) + 1);
    return listing;
}

/* Takes the index from the job if it is that of the same list; otherwise makes an index whose entries are not counted
 * yet. While the page is made, the walk owns the index. PD_NO_MEMORY. */
static int take_index(pd_listing_walk *walk, pd_job *job, const char *pattern)
{
    if (is_of(job->figures.listing, job, walk->kind, pattern)) {
        walk->listing = job->figures.listing;
        walk->counted = true;
        job->figures.listing = NULL;
        return PD_OK;
    }
    walk->listing = make(job, walk->kind, pattern);
    return walk->listing != NULL ? PD_OK : PD_NO_MEMORY;
}

/* Moves the walk to the block of parameters that has entry number `start` of the list. */
static void find_block(pd_listing_walk *walk, uint64_t start)
{
    const pd_listing *listing = walk->listing;
    size_t low = 0, high = listing->n_blocks;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (listing->before[middle] <= start)
            low = middle;
        else
            high = middle;
    }
    walk->param = (uint32_t)low * BLOCK;
    walk->entry = listing->before[low];
    walk->item = 0;
    walk->found = true;
}

int pd_listing_begin(pd_listing_walk *walk, pd_job *job, const pd_list_kind *kind, const char *pattern, pd_error *err)
{
    *walk = (pd_listing_walk){ .kind = kind };
    if (pattern == NULL) pattern = "";
    if (strlen(pattern) > PD_GLOB_MAX)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "the pattern for parameters \"%.80s...\" has %zu bytes; expected at most %d: use * for a part of it",
            pattern, strlen(pattern), PD_GLOB_MAX);
    if ((pattern[0] != '\0' && (walk->glob = pd_glob_new(pattern)) == NULL) || take_index(walk, job, pattern) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for the list");
    return PD_OK;
}

bool pd_listing_fits(const pd_listing_walk *walk, const pd_job *job)
{
    return walk->listing->params == job->steps.params && walk->listing->n_blocks == count_blocks(job);
}

void pd_listing_end(pd_listing_walk *walk, pd_job *job)
{
    if (job != NULL && walk->listing != NULL && walk->counted) {
        free(job->figures.listing);
        job->figures.listing = walk->listing;
    } else {
        free(walk->listing);
    }
    pd_glob_free(walk->glob);
    *walk = (pd_listing_walk){ 0 };
}

static uint64_t entries(const pd_listing_walk *walk, const pd_param *param, double *budget_ns)
{
    uint64_t n = walk->kind->count(param);

    *budget_ns -= PARAM_NS;
    if (n == 0 || walk->glob == NULL) return n;
    *budget_ns -= pd_glob_ns(walk->glob, strlen(param->name));
    return pd_param_is_meant(param, walk->glob) ? n : 0;
}

/* Counts the list's entries until the time is used. Returns whether all are counted. */
static bool count_some(pd_listing_walk *walk, const pd_job *job, double *budget_ns)
{
    for (; walk->param < job->steps.n_params; walk->param++) {
        if (!(*budget_ns > 0)) return false;
        if (walk->param % BLOCK == 0) walk->listing->before[walk->param / BLOCK] = walk->entry;
        walk->entry += entries(walk, &job->steps.params[walk->param], budget_ns);
    }
    walk->listing->before[walk->listing->n_blocks] = walk->entry;
    return walk->counted = true;
}

static bool is_empty_block(const pd_listing_walk *walk)
{
    const uint64_t *before = &walk->listing->before[walk->param / BLOCK];

    return walk->item == 0 && walk->param % BLOCK == 0 && before[1] == before[0];
}

/* Skips the parameter if all its entries come before number info->start. Otherwise moves to its first item that may be
 * on the page. Returns whether it skipped the parameter. */
static bool pass_over(pd_listing_walk *walk, const pd_info *info, const pd_param *param, double *budget_ns)
{
    uint64_t n = entries(walk, param, budget_ns);

    if (n > 0 && walk->entry + n > info->start) {
        if (walk->kind->is_entry != NULL || walk->entry >= info->start) return false;
        walk->item = info->start - walk->entry;
        walk->entry = info->start;
        return false;
    }
    walk->entry += n;
    walk->param++;
    return true;
}

static void fill_item(pd_listing_walk *walk, pd_info *info, const pd_param *param, double *budget_ns)
{
    uint64_t item = walk->item++;

    *budget_ns -= ITEM_NS;
    if (walk->kind->is_entry != NULL && !walk->kind->is_entry(param, item)) return;
    if (walk->entry++ < info->start) return;
    walk->kind->fill(info, param, item);
    *budget_ns -= ENTRY_NS;
}

/* Adds items of the next parameter to the page until the time is used, but at least one, so that every part of the work
 * makes progress. */
static void fill_some(pd_listing_walk *walk, pd_info *info, const pd_param *param, double *budget_ns)
{
    uint64_t items = walk->kind->items(param);

    if (walk->item == 0 && pass_over(walk, info, param, budget_ns)) return;
    do {
        if (walk->item < items) fill_item(walk, info, param, budget_ns);
    } while (walk->item < items && info->n<PD_INFO_PAGE && * budget_ns> 0);
    if (walk->item < items) return;
    walk->param++;
    walk->item = 0;
}

bool pd_listing_some(pd_listing_walk *walk, pd_info *info, const pd_job *job, double *budget_ns)
{
    if (!walk->counted && !count_some(walk, job, budget_ns)) return false;
    info->total = walk->listing->before[walk->listing->n_blocks];
    if (!walk->found) find_block(walk, info->start);
    while (info->start < info->total && walk->param < job->steps.n_params && info->n < PD_INFO_PAGE) {
        if (!(*budget_ns > 0)) return false;
        if (is_empty_block(walk))
            walk->param += BLOCK;
        else
            fill_some(walk, info, &job->steps.params[walk->param], budget_ns);
    }
    return true;
}
