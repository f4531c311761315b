/* declared_ranges.c - checks the ranges of elements that ranks declare of ranged parameters: against the parameter's
 * elements, against the ranges of the other ranks, and against the memory that they take. */
#include "declared_ranges.h"

#include "aggregate_fit.h"
#include "footprint.h"
#include "param_set.h"
#include "stretch.h"

#include <stdio.h>

enum { FRAME_ALIGN = 64, RESERVE_ALIGN = 4096 };

/* ---- the range in one declaration ---- */

int pd_range_check(const pd_param_decl *decl, int64_t elements, pd_error *err)
{
    if (!decl->ranged || (0 <= decl->start && decl->start <= decl->end && decl->end <= elements)) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "parameter %.256s: range of elements %lld to %lld: expected 0 <= start <= "
                   "end <= %lld, the elements it has",
                   decl->name, (long long)decl->start, (long long)decl->end, (long long)elements);
}

int pd_range_match(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank, pd_error *err)
{
    const pd_rank_range *range;

    if (decl->ranged != param->ranged)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.160s: job %.60s has it %s, this rank declares it %s: "
                       "a parameter is ranged on every rank or on none (a rank that has all of it gives the range 0 to "
                       "%lld)",
                       decl->name, job->steps.name, decl->ranged ? "whole" : "in ranges",
                       decl->ranged ? "in ranges" : "whole", (long long)param->elements);
    if (!decl->ranged || !job->ranks[rank].saved.sealed) return PD_OK;
    range = &param->round.ranges.at[rank];
    if (range->start == decl->start && range->end == decl->end) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "parameter %.160s: rank %u of job %.60s has declared elements %lld to "
                   "%lld before, now it declares %lld to %lld: the range of a rank stays the same",
                   decl->name, rank, job->steps.name, (long long)range->start, (long long)range->end,
                   (long long)decl->start, (long long)decl->end);
}

/* ---- the ranges of all ranks together ---- */

/* Writes the ranks and their ranges, like "0: 0-5, 1: 5-9", as far as `text` has room. */
static void ranges_text(const pd_round *round, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
        const pd_rank_range *range = &round->ranges.at[rank];
        if (used + 64 > size) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%u: %lld-%lld", rank > 0 ? ", " : "", rank,
                                 (long long)range->start, (long long)range->end);
    }
}

static int check_cover(const pd_job *job, pd_error *err)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        pd_rank_range gap;
        char ranges[240];
        if (!param->ranged || !pd_round_gap(&param->round, false, &gap)) continue;
        ranges_text(&param->round, ranges, sizeof ranges);
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.120s: no rank has elements %lld to %lld of %lld; the "
                       "ranks' ranges are %s: declare such as cover it, or drop the job where an earlier rank's is "
                       "wrong",
                       param->name, (long long)gap.start, (long long)gap.end, (long long)param->elements, ranges);
    }
    return PD_OK;
}

/* Checks that the ranges of all ranks together contain every element of every parameter, and that they suit the way
 * in which the job aggregates: the tree form of Adasum needs, for each element, a power of two of ranks, unless
 * adasum_fold is set. */
static int check_all(const pd_job *job, pd_error *err)
{
    int rc = check_cover(job, err);

    for (uint32_t i = 0; rc == PD_OK && i < job->steps.n_params; i++)
        if (job->steps.params[i].ranged) rc = pd_aggregate_fits_ranges(&job->steps.values, &job->steps.params[i], err);
    return rc;
}

static bool is_last(const pd_job *job, uint32_t rank)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (r != rank && !job->ranks[r].saved.sealed) return false;
    return true;
}

void pd_range_take(pd_param *param, uint32_t rank, int64_t start, int64_t end)
{
    pd_round_set_range(&param->round, rank, start, end);
    param->unlanded -= param->round.n_chunks - pd_round_count_chunks(&param->round, rank);
}

int pd_ranges_take(pd_job *job, const pd_request *request, pd_error *err)
{
    uint32_t rank = request->rank;
    int rc;

    if (job->ranks[rank].saved.sealed) return PD_OK;
    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        pd_param *param = pd_declared_param(job, request, i);
        if (!decl->ranged) continue;
        pd_range_take(param, rank, decl->start, decl->end);
    }
    if (!is_last(job, rank) || (rc = check_all(job, err)) == PD_OK) return PD_OK;
    pd_ranges_give_back(job, rank);
    return rc;
}

void pd_ranges_give_back(pd_job *job, uint32_t rank)
{
    if (job->ranks[rank].saved.sealed) return;
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        pd_param *param = &job->steps.params[i];
        if (!param->ranged || !param->round.ranges.at[rank].known) continue;
        param->unlanded += param->round.n_chunks - pd_round_count_chunks(&param->round, rank);
        pd_round_unset_range(&param->round, rank);
    }
}

/* ---- memory that ranges take ---- */

static uint64_t aligned(int64_t elements)
{
    return ((uint64_t)elements * sizeof(float) + FRAME_ALIGN - 1) / FRAME_ALIGN * FRAME_ALIGN;
}

/* Returns the bytes that a range's elements take in frames, as float32. A frame has one piece for each chunk (section
 * of a parameter) that the range touches, and each piece is padded to a multiple of 64 bytes. The size of a chunk is
 * such a multiple, so only the first and the last piece may need padding. */
static uint64_t pieces_bytes(pd_rank_range range, int64_t chunk)
{
    int64_t to_grid = chunk - range.start % chunk, n = range.end - range.start, first = to_grid < n ? to_grid : n;

    return aligned(first) + aligned(n - first);
}

static uint64_t most_of_frame(const pd_store_config *config)
{
    uint64_t chunk = config->chunk_elements * sizeof(float);

    return config->frame_bytes > chunk ? config->frame_bytes : chunk;
}

/* Returns how many bytes of the ingest budget to reserve for a rank that sends `all` bytes in a step: those of its
 * largest frame. A rank that sends no elements has a reserve, too. */
static uint64_t reserve_of(const pd_store_config *config, uint64_t all)
{
    uint64_t most = most_of_frame(config), bytes = all < most ? all : most;

    if (bytes == 0) bytes = 1;
    return (bytes + RESERVE_ALIGN - 1) / RESERVE_ALIGN * RESERVE_ALIGN;
}

uint64_t pd_ranges_reserve(const pd_job *job, uint32_t rank)
{
    const pd_store_config *config = job->steps.config;
    uint64_t most = most_of_frame(config), all = 0;

    for (uint32_t i = 0; i < job->steps.n_params && all < most; i++) {
        const pd_param *param = &job->steps.params[i];
        if (param->ranged && !param->round.ranges.at[rank].known) continue;
        all += pieces_bytes(pd_round_range(&param->round, rank), (int64_t)config->chunk_elements);
    }
    return reserve_of(config, all);
}

uint64_t pd_ranges_reserve_declared(const pd_job *job, const pd_request *request, bool own)
{
    const pd_store_config *config = job->steps.config;
    uint64_t most = most_of_frame(config), all = 0;

    for (size_t i = 0; i < request->u.declare.n && all < most; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        pd_rank_range range = { .start = decl->start, .end = decl->end };
        if (decl->ranged && !own) continue;
        if (!decl->ranged) {
            range.start = 0;
            pd_shape_elements(&decl->shape, &range.end);
        }
        all += pieces_bytes(range, (int64_t)config->chunk_elements);
    }
    return reserve_of(config, all);
}

uint64_t pd_ranges_collected_bytes(const pd_job *job)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (job->steps.params[i].ranged) bytes = pd_footprint_plus(bytes, pd_collect_bytes(&job->steps.params[i]));
    return bytes;
}

int pd_ranges_check_memory(const pd_job *job, pd_error *err)
{
    return pd_job_check_total(job, pd_ranges_collected_bytes(job) - job->collected, err);
}
