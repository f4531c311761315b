/* ranges.c - which rank has what of ranged parameters: declared with the set, checked against the other ranks, and what it means for memory. */
#include "training.h"

#include <stdio.h>

enum { FRAME_ALIGN = 64, RESERVE_ALIGN = 4096 };

/* ---- one declaration ---- */

int pd_range_check(const pd_param_decl *decl, int64_t elements, pd_error *err)
{
    if (!decl->ranged || (0 <= decl->start && decl->start <= decl->end && decl->end <= elements)) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s: range of elements %lld to %lld: expected 0 <= start <= end <= %lld, the elements it has",
                   decl->name, (long long)decl->start, (long long)decl->end, (long long)elements);
}

int pd_range_match(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank, pd_error *err)
{
    const pd_range *range;

    if (decl->ranged != param->ranged)
        return pd_fail(err, PD_FAILED_PRECONDITION, "parameter %.160s: job %.60s has it %s, this rank declares it %s: a parameter is ranged on every rank or on "
                       "none (a rank that has all of it gives the range 0 to %lld)", decl->name, job->name, decl->ranged ? "whole" : "in ranges",
                       decl->ranged ? "in ranges" : "whole", (long long)param->elements);
    if (!decl->ranged || !job->ranks[rank].sealed) return PD_OK;
    range = &param->round.ranges[rank];
    if (range->start == decl->start && range->end == decl->end) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION, "parameter %.160s: rank %u of job %.60s has declared elements %lld to %lld before, now it declares %lld to %lld: "
                   "the range of a rank stays the same", decl->name, rank, job->name, (long long)range->start, (long long)range->end,
                   (long long)decl->start, (long long)decl->end);
}

/* ---- all of them together ---- */

/* "0: 0-5, 1: 5-9", as many ranks as there is room for. */
static void ranges_text(const pd_round *round, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t rank = 0; rank < round->world; rank++) {
        const pd_range *range = &round->ranges[rank];
        if (used + 64 > size) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%u: %lld-%lld", rank > 0 ? ", " : "", rank, (long long)range->start, (long long)range->end);
    }
}

static int check_cover(const pd_job *job, pd_error *err)
{
    for (uint32_t i = 0; i < job->n_params; i++) {
        const pd_param *param = &job->params[i];
        pd_range gap;
        char ranges[240];
        if (!param->ranged || !pd_round_gap(&param->round, false, &gap)) continue;
        ranges_text(&param->round, ranges, sizeof ranges);
        return pd_fail(err, PD_FAILED_PRECONDITION, "parameter %.120s: no rank has elements %lld to %lld of %lld; the ranks' ranges are %s: declare such as cover it, "
                       "or drop the job where an earlier rank's is wrong", param->name, (long long)gap.start, (long long)gap.end,
                       (long long)param->elements, ranges);
    }
    return PD_OK;
}

/* What all ranks have declared covers every parameter, and suits its aggregate. */
static int check_all(const pd_job *job, pd_error *err)
{
    int rc = check_cover(job, err);

    for (uint32_t i = 0; rc == PD_OK && i < job->n_params; i++)
        if (job->params[i].ranged) rc = pd_aggregate_fits_ranges(job, &job->params[i], err);
    return rc;
}

static bool is_last(const pd_job *job, uint32_t rank)
{
    for (uint32_t r = 0; r < job->world; r++)
        if (r != rank && !job->ranks[r].sealed) return false;
    return true;
}

int pd_ranges_take(pd_job *job, const pd_request *request, pd_error *err)
{
    uint32_t rank = request->rank;
    int rc;

    if (job->ranks[rank].sealed) return PD_OK;
    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        pd_param *param = pd_declared_param(job, request, i);
        if (!decl->ranged) continue;
        pd_round_set_range(&param->round, rank, decl->start, decl->end);
        param->unlanded -= param->round.n_chunks - pd_round_count_chunks(&param->round, rank);
    }
    if (!is_last(job, rank) || (rc = check_all(job, err)) == PD_OK) return PD_OK;
    pd_ranges_give_back(job, rank);
    return rc;
}

void pd_ranges_give_back(pd_job *job, uint32_t rank)
{
    if (job->ranks[rank].sealed) return;
    for (uint32_t i = 0; i < job->n_params; i++) {
        pd_param *param = &job->params[i];
        if (!param->ranged || !param->round.ranges[rank].known) continue;
        param->unlanded += param->round.n_chunks - pd_round_count_chunks(&param->round, rank);
        pd_round_unset_range(&param->round, rank);
    }
}

/* ---- memory ---- */

static uint64_t aligned(int64_t elements)
{
    return ((uint64_t)elements * sizeof(float) + FRAME_ALIGN - 1) / FRAME_ALIGN * FRAME_ALIGN;
}

/* Bytes of all pieces of a range, each beginning at a multiple of 64: chunks have a multiple of that, so only the first and the last of them may leave a
 * rest. */
static uint64_t pieces_bytes(pd_range range, int64_t chunk)
{
    int64_t to_grid = chunk - range.start % chunk, n = range.end - range.start, first = to_grid < n ? to_grid : n;

    return aligned(first) + aligned(n - first);
}

static uint64_t most_of_frame(const pd_store_config *config)
{
    uint64_t chunk = config->chunk_elements * sizeof(float);

    return config->frame_bytes > chunk ? config->frame_bytes : chunk;
}

/* The reserve of a rank whose pieces take `all` bytes. A rank with nothing to send has a share of its own too. */
static uint64_t reserve_of(const pd_store_config *config, uint64_t all)
{
    uint64_t most = most_of_frame(config), bytes = all < most ? all : most;

    if (bytes == 0) bytes = 1;
    return (bytes + RESERVE_ALIGN - 1) / RESERVE_ALIGN * RESERVE_ALIGN;
}

uint64_t pd_ranges_reserve(const pd_job *job, uint32_t rank)
{
    const pd_store_config *config = &job->store->config;
    uint64_t most = most_of_frame(config), all = 0;

    for (uint32_t i = 0; i < job->n_params && all < most; i++) {
        const pd_param *param = &job->params[i];
        if (param->ranged && !param->round.ranges[rank].known) continue;
        all += pieces_bytes(pd_round_range(&param->round, rank), (int64_t)config->chunk_elements);
    }
    return reserve_of(config, all);
}

uint64_t pd_ranges_reserve_declared(const pd_job *job, const pd_request *request, bool own)
{
    const pd_store_config *config = &job->store->config;
    uint64_t most = most_of_frame(config), all = 0;

    for (size_t i = 0; i < request->u.declare.n && all < most; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        pd_range range = { .start = decl->start, .end = decl->end };
        if (decl->ranged && !own) continue;
        if (!decl->ranged) {
            range.start = 0;
            pd_shape_elements(&decl->shape, &range.end);
        }
        all += pieces_bytes(range, (int64_t)config->chunk_elements);
    }
    return reserve_of(config, all);
}
