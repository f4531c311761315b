/* aggregate_fit.c - checks that a way to aggregate suits the number of ranks, and computes how much memory
 * contributions take while they are collected. */
#include "aggregate_fit.h"

#include "effects.h"
#include "round_ranges.h"

static bool wants_power_of_two(const pd_job_values *values)
{
    return values->at[PD_JOB_KEY_AGGREGATE] == PD_ADASUM && values->at[PD_JOB_KEY_ADASUM_FOLD] == 0;
}

int pd_aggregate_fits(const pd_job_values *values, const pd_set_rule *sets, pd_error *err)
{
    uint64_t trim = values->at[PD_JOB_KEY_TRIM];
    uint32_t fewest = pd_set_rule_fewest(sets);
    bool varies = fewest < sets->most;

    if (values->at[PD_JOB_KEY_AGGREGATE] == PD_TRIMMED_MEAN && (trim >= fewest || 2 * trim >= fewest))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "aggregate = trimmed_mean: trim = %llu drops all of %u contributions%s; set trim to less than "
                       "half of %s, or aggregate = median",
                       (unsigned long long)trim, fewest,
                       varies ? ", and quorum and min_workers allow steps with so few" : "",
                       varies ? "them, or allow no such steps" : "the workers");
    if (varies && wants_power_of_two(values))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "aggregate = adasum needs a power of two of workers, and here %u to %u may count in a step: set "
                       "adasum_fold = yes, or aggregate = adasum_vdot",
                       fewest, sets->most);
    return PD_OK;
}

int pd_aggregate_fits_whole(const pd_job_values *values, uint32_t world, pd_aggregation how, const char *name,
                            pd_error *err)
{
    if (how != PD_ADASUM || !wants_power_of_two(values) || pd_is_power_of_two(world)) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "parameter %.160s: aggregate = adasum needs a power of two of workers, not %u: set adasum_fold = "
                   "yes, or aggregate = adasum_vdot, or start another number of workers",
                   name, world);
}

/* Checks that no range is cut by another one: norms are taken over all that a rank contributes. */
static int check_uncut(const pd_param *param, pd_error *err)
{
    const pd_round *round = &param->round;

    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
        pd_rank_range own = pd_round_range(round, rank);
        pd_range common = pd_round_common_range(round, own.start, own.end);
        if (own.start == own.end || common.n == own.end - own.start) continue;
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "parameter %.160s: rank %u contributes elements %lld to %lld, and another rank's range begins or "
            "ends at %lld: aggregate = radial_mean takes the norm of all that a rank contributes, so declare "
            "ranges that are equal or have no element in common, or set another aggregate",
            param->name, rank, (long long)own.start, (long long)own.end, (long long)(common.first + common.n));
    }
    return PD_OK;
}

int pd_aggregate_fits_ranges(const pd_job_values *values, const pd_param *param, pd_error *err)
{
    const pd_round *round = &param->round;

    if (param->how == PD_RADIAL_MEAN) return check_uncut(param, err);
    if (param->how != PD_ADASUM || !wants_power_of_two(values)) return PD_OK;
    for (pd_range run = { 0, 0 }; run.first + run.n < round->elements;) {
        uint32_t n;
        run = pd_round_common_range(round, run.first + run.n, round->elements);
        n = pd_round_count_covering(round, run);
        if (pd_is_power_of_two(n)) continue;
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.160s: %u ranks contribute elements %lld to %lld, but aggregate = adasum needs a "
                       "power of two: set adasum_fold = yes, or declare other ranges",
                       param->name, n, (long long)run.first, (long long)(run.first + run.n));
    }
    return PD_OK;
}

/* Returns the bytes that the Adasum or radial mean of a round takes besides the contributions and the result.
 * UINT64_MAX: too many. */
static uint64_t adasum_bytes(pd_adasum_form form, int64_t elements, uint64_t slots, uint32_t most)
{
    uint64_t vectors = (uint64_t)pd_adasum_scratch_vectors(form, (int)most), bytes, sources;

    if (__builtin_mul_overflow(vectors * sizeof(float), (uint64_t)elements, &bytes) ||
        __builtin_mul_overflow(slots, sizeof(pd_vector_run), &sources) ||
        __builtin_add_overflow(bytes, sources, &bytes))
        return UINT64_MAX;
    return bytes;
}

pd_contributors pd_contributors_whole(int64_t elements, uint64_t chunk_elements, uint32_t world)
{
    uint64_t slots;

    return (pd_contributors){
        __builtin_mul_overflow(pd_count_chunks(elements, chunk_elements), world, &slots) ? UINT64_MAX : slots, world
    };
}

static pd_contributors contributors_of(const pd_param *param)
{
    pd_contributors all = { 0, 0 };

    if (!param->ranged)
        return pd_contributors_whole(param->elements, (uint64_t)param->round.chunk_elements,
                                     pd_round_ranks(&param->round));
    for (uint32_t c = 0; c < param->round.n_chunks; c++) {
        uint32_t ranks = pd_round_count_ranks(&param->round, &param->round.chunks[c]);
        all.slots += ranks;
        if (ranks > all.most) all.most = ranks;
    }
    return all;
}

uint64_t pd_contributors_bytes(pd_contributors all, pd_aggregation how, int64_t elements, pd_dtype pushed,
                               uint64_t chunk_elements)
{
    uint64_t n = (uint64_t)elements, chunk = n < chunk_elements ? n : chunk_elements, bytes, more = 0;

    if (pd_is_merged(how) && all.most > 0) more = adasum_bytes(pd_adasum_form_of(how), elements, all.slots, all.most);
    if (__builtin_mul_overflow(pd_pushed_bytes(pushed, chunk), all.slots, &bytes) ||
        __builtin_add_overflow(bytes, more, &bytes))
        return UINT64_MAX;
    return bytes;
}

uint64_t pd_collect_bytes(const pd_param *param)
{
    return param->round.together || pd_is_collected(param->how)
               ? pd_contributors_bytes(contributors_of(param), param->how, param->elements, param->push_dtype,
                                       (uint64_t)param->round.chunk_elements)
               : 0;
}
