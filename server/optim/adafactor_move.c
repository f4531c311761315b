/* adafactor_move.c - the phases of adafactor that use its second moments: "lengths" sums
 * the squares of the updates, "limits" computes learning rates and clip factors, "move" computes the new weights.
 *
 * The code works on runs: a run is a row of contiguous elements of a block, along the last dimension
 * (adafactor_walk.h). Updates are not stored. Each phase computes them again, which is faster than to write them to
 * memory and read them. */
#include <string.h>

#include "adafactor_move.h"
#include "adafactor_walk.h"

/* `larger` returns the larger of two numbers, `smaller` the smaller one. Both return NaN if one of the numbers is
 * NaN. */
PD_INLINE float larger(float a, float b)
{
    return ((b > a) | (b != b)) ? b : a;
}
PD_INLINE float smaller(float a, float b)
{
    return ((b < a) | (b != b)) ? b : a;
}

static bool is_bfloat16(const pd_unit *unit)
{
    return unit->hyper[PARAM_DTYPE] == DTYPE_BFLOAT16;
}

/* ---- the phase "lengths": squared lengths of the updates ---- */

/* Returns the updates of four elements, before clipping. The update of element i is the product of its gradient g[i],
 * the factor `one`, which all four share, and its own factor many[i]. `one_first` says whether g[i] is multiplied by
 * `one` first, or by many[i]: the rounding depends on it. */
PD_INLINE pd_floats updates_of(const float *g, float one, const float *many, bool one_first)
{
    return one_first ? PD_FLOATS(g) * one * PD_FLOATS(many) : PD_FLOATS(g) * PD_FLOATS(many) * one;
}

PD_INLINE void add_squared_updates(pd_lanes *sum, const float *g, float one, const float *many, bool one_first)
{
    pd_lanes y = pd_lanes_widen(updates_of(g, one, many, one_first), updates_of(g + 4, one, many + 4, one_first));

    pd_lanes_add_product(sum, y, y);
}

/* Adds the sum of the squared updates of each of k runs to sum[j], j being the number
 * of the run. The update of element i in run j is the product of the gradient g[j][i], the run's factor one[j] and the
 * element's factor many[i]. The additions run in 8 lanes, that is, in 8 parallel partial sums. */
PD_INLINE void add_updates(const float *const *g, const float *one, const float *many, bool one_first, int k, int64_t n,
                           double *sum)
{
    pd_lanes lanes[TOGETHER] = { { { 0 }, { 0 } } };
    float last[8] = { 0 }, last_many[8] = { 0 };
    int64_t i;

    for (i = 0; i + 8 <= n; i += 8)
        for (int j = 0; j < k; j++) add_squared_updates(&lanes[j], g[j] + i, one[j], many + i, one_first);
    memcpy(last_many, many + i, (size_t)(n - i) * sizeof *many);
    for (int j = 0; j < k; j++) {
        memcpy(last, g[j] + i, (size_t)(n - i) * sizeof *last);
        add_squared_updates(&lanes[j], last, one[j], last_many, one_first);
        sum[j] += pd_lanes_sum(lanes[j]);
    }
}

PD_CLONES(void, add_updates_four,
          (const float *const *g, const float *one, const float *many, bool one_first, int64_t n, double *sum),
          (g, one, many, one_first, n, sum))
{
    if (one_first)
        add_updates(g, one, many, true, TOGETHER, n, sum);
    else
        add_updates(g, one, many, false, TOGETHER, n, sum);
}

PD_CLONES(void, add_updates_one,
          (const float *const *g, const float *one, const float *many, bool one_first, int64_t n, double *sum),
          (g, one, many, one_first, n, sum))
{
    add_updates(g, one, many, one_first, 1, n, sum);
}

static void add_lengths(const pd_unit *unit, const pd_runs *r, double *squares, int64_t first)
{
    const pd_adafactor_own *own = unit->plan->own;
    const float *many = pd_slot_floats(unit, r->across_is == ROW ? own->row_factors : own->col_factors) + r->across;
    const float *ones = pd_slot_floats(unit, r->along_is == ROW ? own->row_factors : own->col_factors), *g[TOGETHER];
    double sum[TOGETHER] = { 0 };
    float one[TOGETHER];

    pd_runs_of(g, r, unit->gradient);
    for (int j = 0; j < r->k; j++) one[j] = ones[r->along[j]];
    if (r->k == TOGETHER)
        add_updates_four(g, one, many, r->along_is == ROW, r->n, sum);
    else
        for (int j = 0; j < r->k; j++) add_updates_one(g + j, one + j, many, r->along_is == ROW, r->n, sum + j);
    for (int j = 0; j < r->k; j++) squares[r->group[j] - first] += sum[j];
}

void pd_adafactor_lengths(const pd_unit *unit)
{
    pd_walk w = pd_walk_of(unit->plan, unit->block);
    double *squares = pd_squares_of(unit, OF_UPDATE);
    const int64_t first = w.at[GROUP];
    bool more = !pd_walk_is_single(&w);
    pd_runs r;

    while (more) {
        more = pd_walk_gather(&w, &r);
        add_lengths(unit, &r, squares, first);
    }
    if (!pd_walk_is_single(&w)) return;
    do {
        for (int64_t i = 0; i < w.n; i += w.tile) {
            pd_stretch s = pd_stretch_of(unit, &w, i, w.n - i < w.tile ? w.n - i : w.tile);
            squares[w.at[GROUP] + i * w.step[GROUP] - first] += pd_stretch_squares(&s);
        }
    } while (pd_walk_on(&w));
}

/* ---- the phase "limits": rate and clip factor of each group ---- */

/* Returns the learning rate of one group (one index of the BATCH dimensions, that is, one of the independent tensors
 * that the parameter stacks). `mean` is the mean square of the group's weights. With the option
 * multiply_by_parameter_scale its root multiplies the learning rate. */
static float rate_of(const pd_unit *unit, float mean)
{
    const double *h = unit->hyper;
    const bool coarse = is_bfloat16(unit);
    float scale, rate = (float)h[LEARNING_RATE];

    if (!pd_adafactor_is_scaled(unit)) return rate;
    scale = coarse ? pd_rounded(sqrtf(pd_rounded(mean))) : sqrtf(mean);
    scale = larger(scale, coarse ? pd_rounded((float)h[EPSILON2]) : (float)h[EPSILON2]);
    if (h[MAX_SCALE] != 0) scale = smaller(scale, coarse ? pd_rounded((float)h[MAX_SCALE]) : (float)h[MAX_SCALE]);
    return coarse ? pd_rounded(pd_rounded(rate) * scale) : rate * scale;
}

static float clip_of(const pd_unit *unit, float mean)
{
    double threshold = unit->hyper[CLIPPING];
    return threshold == 0 ? 1.0f : larger(1.0f, sqrtf(mean) / (float)threshold);
}

void pd_adafactor_limits(const pd_unit *unit)
{
    const pd_adafactor_own *own = unit->plan->own;
    const pd_plan *plan = unit->plan;
    const pd_over groups = pd_over_groups(plan);
    const float count = (float)(plan->elements / groups.elements);
    const int64_t room = own->groups;
    double *limits = pd_slot_doubles(unit, own->limits);

    memset(limits, 0, 2 * (size_t)groups.elements * sizeof *limits);
    for (size_t b = 0; b < plan->n_blocks; b++) {
        const double *squares = pd_slot_doubles(unit, own->squares) + 2 * (int64_t)b * room;
        double *to = limits + 2 * pd_over_first(&groups, &plan->blocks[b], plan->shape.rank);
        for (int64_t i = 0, n = pd_over_size(&groups, &plan->blocks[b], plan->shape.rank); i < n; i++) {
            to[2 * i + OF_WEIGHTS] += squares[i];
            to[2 * i + OF_UPDATE] += squares[room + i];
        }
    }
    for (int64_t i = 0; i < groups.elements; i++) {
        limits[2 * i + OF_WEIGHTS] = rate_of(unit, (float)limits[2 * i + OF_WEIGHTS] / count);
        limits[2 * i + OF_UPDATE] = clip_of(unit, (float)limits[2 * i + OF_UPDATE] / count);
    }
}

/* ---- the phase "move": new weights ---- */

typedef struct pull {
    float rate, clip, beta, gain, keep;
    bool skip, coarse_m, coarse_w;
} pull;

/* Returns the factor by which weight decay multiplies the weights in a step. It is computed in double and then rounded
 * to float32. */
static float kept_of(const double *h)
{
    double decay = h[WEIGHT_DECAY];

    if (!pd_adafactor_is_none(h[DECAY_EXPONENT]) && h[DECAY_EXPONENT] != 0)
        decay = (decay != 0 ? decay : 1) * pow(h[LEARNING_RATE], h[DECAY_EXPONENT]);
    return (float)(1 - decay);
}

/* Returns the constants with which a step changes the momentum and the weights, except learning rate and clip factor.
 * The decay factor of the momentum is rounded to bfloat16 if the momentum is stored as bfloat16. The decay factor of
 * the weights is rounded to bfloat16 if the weights are. */
static pull pull_of(const pd_unit *unit)
{
    const double *h = unit->hyper;
    pull f = { .beta = (float)h[BETA1],
               .gain = (float)(1 - h[BETA1]),
               .keep = kept_of(h),
               .skip = unit->hyper[SKIP_NAN] != 0,
               .coarse_m = h[DTYPE_MOMENTUM] == DTYPE_BFLOAT16,
               .coarse_w = is_bfloat16(unit) };

    if (f.coarse_m) f.beta = pd_rounded(f.beta);
    if (f.coarse_w) f.keep = pd_rounded(f.keep);
    return f;
}

/* Computes the new weights of a stretch, and its new momentum if there is one,
 * in one pass over memory. `coarse`: the momentum or the weights are rounded to bfloat16. The callers pass all
 * arguments but `s` and `f` as constants, so the compiler makes a loop without branches for each combination. */
PD_INLINE void pass(const pd_stretch *s, pull f, pd_layout layout, bool momentum, bool coarse)
{
    const pd_stretch r = *s; /* a local copy: the compiler knows that the loop's writes do not change it */

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], u = f.rate * (pd_update_of(&r, layout, i) / f.clip), kept = f.keep * w, next;
        if (momentum) {
            float old = r.m[i], rest = f.beta * old;
            u = (coarse && f.coarse_m ? pd_rounded(rest) : rest) + f.gain * u;
            r.m[i] = ((u != u) & f.skip) ? old : u;
        }
        next = (coarse && f.coarse_w ? pd_rounded(kept) : kept) - u;
        next = coarse && f.coarse_w ? pd_rounded(next) : next;
        r.after[i] = ((next != next) & f.skip) ? w : next;
    }
}

PD_INLINE void move_as(const pd_stretch *s, pull f, pd_layout layout)
{
    if (f.coarse_m || f.coarse_w) {
        if (s->m != NULL)
            pass(s, f, layout, true, true);
        else
            pass(s, f, layout, false, true);
    } else if (s->m != NULL) {
        pass(s, f, layout, true, false);
    } else {
        pass(s, f, layout, false, false);
    }
}

PD_CLONES(void, move_across, (const pd_stretch *s, pull f), (s, f))
{
    move_as(s, f, ACROSS);
}
PD_CLONES(void, move_along, (const pd_stretch *s, pull f), (s, f))
{
    move_as(s, f, ALONG);
}
PD_CLONES(void, move_single, (const pd_stretch *s, pull f), (s, f))
{
    move_as(s, f, SINGLE);
}
PD_CLONES(void, move_whole, (const pd_stretch *s, pull f), (s, f))
{
    move_as(s, f, WHOLE);
}
PD_CLONES(void, move_still, (const pd_stretch *s, pull f), (s, f))
{
    move_as(s, f, STILL);
}

void pd_adafactor_move(const pd_unit *unit)
{
    const pd_adafactor_own *own = unit->plan->own;

    static void (*const moves[])(const pd_stretch *s, pull f) = {
        [ACROSS] = move_across, [ALONG] = move_along, [SINGLE] = move_single, [WHOLE] = move_whole, [STILL] = move_still
    };
    pd_walk w = pd_walk_of(unit->plan, unit->block);
    const double *limits = pd_slot_doubles(unit, own->limits);
    const int64_t most = w.step[GROUP] != 0 ? 1 : w.n;
    pull f = pull_of(unit);

    w.still = pd_adafactor_keep(unit) == 1;
    do {
        for (int64_t i = 0; i < w.n; i += most) {
            const pd_stretch s = pd_stretch_of(unit, &w, i, most);
            int64_t group = w.at[GROUP] + i * w.step[GROUP];
            f.rate = (float)limits[2 * group + OF_WEIGHTS];
            f.clip = (float)limits[2 * group + OF_UPDATE];
            moves[s.layout](&s, f);
        }
    } while (pd_walk_on(&w));
}
