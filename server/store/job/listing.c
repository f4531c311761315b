/* listing.c - counts the entries of a list that an operator asks for, and sums over the parameters. Keeps the results
 * until the job changes. */
#include "listing.h"

#include "glob.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 }; /* number of parameters in a block; the entries of a block's parameters are counted together */

/* The index of a list: where the pages of a long list begin. It makes every page cheap: how many entries come before
 * each block of parameters is counted once. A page then starts at the right block, without counting from the first
 * parameter. The job keeps the index of the last list that was asked for. */
struct pd_listing {
    const pd_list_kind *kind;
    /* the job's parameters, and its value of pd_steps.changes, when the entries were counted */
    const pd_param *params;
    uint64_t changes;
    size_t n_blocks;
    char *pattern; /* the glob that names of parameters must match; stored after `before`, in the same memory block */
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

static uint64_t entries(const pd_list_kind *kind, const char *pattern, const pd_param *param)
{
    uint64_t n = kind->count(param);

    return n > 0 && (pattern[0] == '\0' || pd_glob_match(pattern, param->name)) ? n : 0;
}

static void count_entries(pd_listing *listing, const pd_job *job)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        if (i % BLOCK == 0) listing->before[i / BLOCK] = total;
        total += entries(listing->kind, listing->pattern, &job->steps.params[i]);
    }
    listing->before[listing->n_blocks] = total;
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
    count_entries(listing, job);
    return listing;
}

void pd_listing_free(pd_listing *listing)
{
    free(listing);
}

static int look_up(pd_job *job, const pd_list_kind *kind, const char *pattern)
{
    pd_listing *listing;

    if (is_of(job->listing, job, kind, pattern)) return PD_OK;
    if ((listing = make(job, kind, pattern)) == NULL) return PD_NO_MEMORY;
    pd_listing_free(job->listing);
    job->listing = listing;
    return PD_OK;
}

/* Returns the index of the block of parameters that has entry number `start` of the list. */
static size_t find_block(const pd_listing *listing, uint64_t start)
{
    size_t low = 0, high = listing->n_blocks;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (listing->before[middle] <= start)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void fill_block(pd_info *info, const pd_listing *listing, const pd_job *job, size_t block, uint64_t end)
{
    uint64_t at = listing->before[block];

    for (uint32_t i = (uint32_t)block * BLOCK; i < job->steps.n_params && i < (block + 1) * BLOCK && at < end; i++) {
        uint64_t n = entries(listing->kind, listing->pattern, &job->steps.params[i]);
        if (n > 0 && at + n > info->start)
            listing->kind->fill(info, &job->steps.params[i], at < info->start ? info->start - at : 0);
        at += n;
    }
}

int pd_listing_page(pd_info *info, pd_job *job, const pd_list_kind *kind, const char *pattern)
{
    const pd_listing *listing;
    uint64_t end;

    if (look_up(job, kind, pattern != NULL ? pattern : "") != PD_OK) return PD_NO_MEMORY;
    listing = job->listing;
    info->total = listing->before[listing->n_blocks];
    if (info->start >= info->total) return PD_OK;
    end = info->total - info->start < PD_INFO_PAGE ? info->total : info->start + PD_INFO_PAGE;
    for (size_t block = find_block(listing, info->start); block < listing->n_blocks && listing->before[block] < end;
         block++)
        if (listing->before[block + 1] > listing->before[block]) fill_block(info, listing, job, block, end);
    return PD_OK;
}

/* ---- sums over the parameters ---- */

static void add_roots(pd_job_totals *totals, const pd_param *param)
{
    pd_root_stats stats = pd_optim_root_stats(param->optim);

    totals->roots_due += (uint64_t)stats.due;
    totals->roots_adopted += (uint64_t)stats.adopted;
    totals->roots_failed += (uint64_t)stats.failed;
    totals->roots_unused += (uint64_t)stats.replaced;
    totals->root_waits += (uint64_t)stats.waits;
    if (stats.failed == 0 && stats.adopted == 0) return;
    for (size_t i = 0; i < pd_optim_plan(param->optim)->n_tasks; i++) {
        pd_root_state root = pd_optim_root(param->optim, i);
        uint64_t age = root.adopted > 0 ? (uint64_t)(pd_optim_count(param->optim) - root.count) : 0;
        totals->roots_failing += root.failing;
        if (age > totals->root_age) totals->root_age = age;
    }
}

/* Returns the index of the first of the job's rules that has the same optimizer as rule `r`. */
static size_t first_alike(const pd_job *job, size_t r)
{
    size_t first = 0;

    while (job->steps.rules[first].hypers.row != job->steps.rules[r].hypers.row) first++;
    return first;
}

/* Writes the names of the optimizers in use, the one of most elements first. elements[r] must be the number of
 * elements that an optimizer has, if r is the first rule with it, otherwise 0. Zeroes `elements`. */
static void name_optimizers(pd_job_totals *totals, const pd_job *job, uint64_t *elements)
{
    size_t used = 0;

    for (size_t most = 0; used < sizeof totals->optimizers; elements[most] = 0) {
        for (size_t r = 0; r < job->steps.n_rules; r++)
            if (elements[r] > elements[most]) most = r;
        if (elements[most] == 0) return;
        used += (size_t)snprintf(totals->optimizers + used, sizeof totals->optimizers - used, "%s%s",
                                 used > 0 ? "," : "", pd_row_name(job->steps.rules[most].hypers.row));
    }
}

const pd_job_totals *pd_job_count_totals(pd_job *job)
{
    pd_job_totals *totals = &job->totals;
    uint64_t *elements;

    if (totals->params == job->steps.params && totals->n == job->steps.n_params &&
        totals->changes == job->steps.changes)
        return totals;
    *totals = (pd_job_totals){ .params = job->steps.params,
                               .n = job->steps.n_params,
                               .changes = job->steps.changes,
                               .step_least = job->steps.n_params > 0 ? UINT64_MAX : 0 };
    /* elements[r]: number of elements by rule; if there is no memory for it, the names of optimizers are not shown */
    elements = calloc(job->steps.n_rules + 1, sizeof *elements);
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        totals->elements += (uint64_t)param->elements;
        totals->state_bytes += (uint64_t)pd_optim_state_bytes(param->optim);
        if (param->saved.step < totals->step_least) totals->step_least = param->saved.step;
        if (param->saved.step > totals->step_most) totals->step_most = param->saved.step;
        if (elements != NULL)
            elements[first_alike(job, (size_t)(param->rule - job->steps.rules))] += (uint64_t)param->elements;
        add_roots(totals, param);
    }
    if (elements != NULL) name_optimizers(totals, job, elements);
    free(elements);
    return totals;
}
