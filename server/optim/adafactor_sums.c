/* adafactor_sums.c - the phases of adafactor that compute its second moments: "sums" adds
 * up squares block by block, "moments" computes the new moments, "means" computes the means of the row moment. The code
 * works on runs: a run is a row of contiguous elements of a block, along the last dimension (adafactor_walk.h). */
#include <string.h>

#include "adafactor_sums.h"
#include "adafactor_walk.h"
#include "kernels.h"

static bool is_bfloat16(const pd_unit *unit)
{
    return unit->hyper[PARAM_DTYPE] == DTYPE_BFLOAT16;
}

/* ---- sums of squares ---- */

static double sum_rounded_squares(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (double)pd_rounded(x[i] * x[i]);
    return sum;
}

/* Adds the squares of the weights of one run to `squares`, which has a sum for each
 * group (one of the independent tensors that a parameter may stack) of the block. The first sum belongs to the group
 * `first`. */
static void add_weights(const pd_unit *unit, const pd_walk *w, double *squares, int64_t first)
{
    const float *weights = unit->before + w->element;

    for (int64_t i = 0; i < w->n; i += w->tile) {
        int64_t n = w->n - i < w->tile ? w->n - i : w->tile;
        squares[w->at[GROUP] + i * w->step[GROUP] - first] +=
            is_bfloat16(unit) ? sum_rounded_squares(weights + i, n) : pd_sum_squares(weights + i, n);
    }
}

/* Returns x^2 + epsilon for each of eight gradients x, computed in float32 and converted to float64. */
PD_INLINE pd_lanes shifted(const float *x, float epsilon)
{
    return pd_lanes_widen(PD_FLOATS(x) * PD_FLOATS(x) + epsilon, PD_FLOATS(x + 4) * PD_FLOATS(x + 4) + epsilon);
}

/* Computes s = x^2 + epsilon for each gradient x of k runs. Adds the sum of s over run
 * j to sum[j], in 8 lanes. Adds the sum of s over element i of all runs to to[i]. */
PD_INLINE void add_shifted(double *restrict to, const float *const *x, int k, int64_t n, float epsilon, double *sum)
{
    pd_lanes lanes[TOGETHER] = { { { 0 }, { 0 } } };
    int64_t i;

    for (i = 0; i + 8 <= n; i += 8) {
        pd_lanes all = { { 0 }, { 0 } };
        for (int j = 0; j < k; j++) {
            pd_lanes s = shifted(x[j] + i, epsilon);
            pd_lanes_add(&lanes[j], s);
            pd_lanes_add(&all, s);
        }
        *(pd_doubles *)(to + i) += all.low;
        *(pd_doubles *)(to + i + 4) += all.high;
    }
    for (int j = 0; j < k; j++) {
        double rest[8] = { 0 };
        for (int64_t e = i; e < n; e++) {
            rest[e - i] = (double)(x[j][e] * x[j][e] + epsilon);
            to[e] += rest[e - i];
        }
        pd_lanes_add(&lanes[j], (pd_lanes){ PD_DOUBLES(rest), PD_DOUBLES(rest + 4) });
        sum[j] += pd_lanes_sum(lanes[j]);
    }
}

PD_CLONES(void, add_shifted_four, (double *to, const float *const *x, int64_t n, float epsilon, double *sum),
          (to, x, n, epsilon, sum))
{
    add_shifted(to, x, TOGETHER, n, epsilon, sum);
}
PD_CLONES(void, add_shifted_one, (double *to, const float *const *x, int64_t n, float epsilon, double *sum),
          (to, x, n, epsilon, sum))
{
    add_shifted(to, x, 1, n, epsilon, sum);
}

PD_CLONES(void, add_squares_four, (const float *const *x, int64_t n, double *sum), (x, n, sum))
{
    pd_lanes lanes[TOGETHER] = { { { 0 }, { 0 } } };
    int64_t i;

    for (i = 0; i + 8 <= n; i += 8)
        for (int j = 0; j < TOGETHER; j++)
            pd_lanes_add_product(&lanes[j], pd_lanes_of(x[j] + i), pd_lanes_of(x[j] + i));
    for (int j = 0; j < TOGETHER; j++) {
        float rest[8] = { 0 };
        memcpy(rest, x[j] + i, (size_t)(n - i) * sizeof *rest);
        pd_lanes_add_product(&lanes[j], pd_lanes_of(rest), pd_lanes_of(rest));
        sum[j] += pd_lanes_sum(lanes[j]);
    }
}

/* Adds the squares of the weights of several runs to the sums in `squares`, one for each group of the block. All
 * weights of a run belong to one group. The first sum belongs to the group `first`. */
static void add_weights_of(const pd_unit *unit, const pd_runs *r, double *squares, int64_t first)
{
    const float *x[TOGETHER];
    double sum[TOGETHER] = { 0 };

    pd_runs_of(x, r, unit->before);
    if (is_bfloat16(unit))
        for (int j = 0; j < r->k; j++) sum[j] = sum_rounded_squares(x[j], r->n);
    else if (r->k == TOGETHER)
        add_squares_four(x, r->n, sum);
    else
        for (int j = 0; j < r->k; j++) sum[j] = pd_sum_squares(x[j], r->n);
    for (int j = 0; j < r->k; j++) squares[r->group[j] - first] += sum[j];
}

/* Returns the array in which a block adds up squared gradients for one of the two moments
 * (`which`: ROW for the row moment, COL for the column moment). Sets the block's sums to 0 first. The array is shifted
 * so that w->at[which], the position of the walk over the block in this moment, is an index of it. */
static double *sums_of(const pd_unit *unit, const pd_walk *w, int which)
{
    const pd_adafactor_own *own = unit->plan->own;
    bool shared = own->shared >= 0 && own->shared_is_row == (which == ROW);
    int64_t first = w->at[which];
    double *at = shared ? pd_slot_doubles(unit, own->shared) + unit->index * own->shared_size
                        : pd_slot_doubles(unit, which == ROW ? own->row_sums : own->col_sums) + first;

    memset(at, 0, (size_t)pd_over_size(&w->over[which], unit->block, w->rank) * sizeof *at);
    return at - first;
}

static void sum_runs(const pd_unit *unit, const pd_runs *r, double *along, double *across)
{
    const float epsilon = (float)unit->hyper[EPSILON1], *x[TOGETHER];
    double sum[TOGETHER] = { 0 };

    pd_runs_of(x, r, unit->gradient);
    if (r->k == TOGETHER)
        add_shifted_four(across + r->across, x, r->n, epsilon, sum);
    else
        for (int j = 0; j < r->k; j++) add_shifted_one(across + r->across, x + j, r->n, epsilon, sum + j);
    for (int j = 0; j < r->k; j++) along[r->along[j]] += sum[j];
}

static void sum_single(const pd_unit *unit, const pd_walk *w, double *row, double *col)
{
    const float epsilon = (float)unit->hyper[EPSILON1], *x = unit->gradient + w->element;

    for (int64_t i = 0; i < w->n; i++) {
        double s = (double)(x[i] * x[i] + epsilon);
        row[w->at[ROW] + i] += s;
        col[w->at[COL] + i] += s;
    }
}

static void sum_factored(const pd_unit *unit)
{
    pd_walk w = pd_walk_of(unit->plan, unit->block);
    double *sums[] = { [ROW] = sums_of(unit, &w, ROW), [COL] = sums_of(unit, &w, COL) },
           *squares = pd_squares_of(unit, OF_WEIGHTS);
    const int64_t first = w.at[GROUP];
    bool more = !pd_walk_is_single(&w);
    pd_runs r;

    while (more) {
        more = pd_walk_gather(&w, &r);
        sum_runs(unit, &r, sums[r.along_is], sums[r.across_is]);
        if (pd_adafactor_is_scaled(unit)) add_weights_of(unit, &r, squares, first);
    }
    if (!pd_walk_is_single(&w)) return;
    do {
        sum_single(unit, &w, sums[ROW], sums[COL]);
        if (pd_adafactor_is_scaled(unit)) add_weights(unit, &w, squares, first);
    } while (pd_walk_on(&w));
}

/* ---- the phase "sums" ---- */

typedef struct mixture {
    float keep, gain, epsilon;
    bool skip;
} mixture;

static mixture mixture_of(const pd_unit *unit)
{
    float keep = pd_adafactor_keep(unit);

    return (mixture){ keep, 1.0f - keep, (float)unit->hyper[EPSILON1], unit->hyper[SKIP_NAN] != 0 };
}

PD_CLONES(void, mix_whole, (float *v, const float *g, int64_t n, mixture mix), (v, g, n, mix))
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float old = v[i], next = mix.keep * old + mix.gain * (g[i] * g[i] + mix.epsilon);
        v[i] = ((next != next) & mix.skip) ? old : next;
    }
}

/* Computes the new second moment of a block whose parameter is not factored, and in the same pass over memory the sums
 * of the squared updates. One pass is enough, because each element of the moment depends on one gradient only. */
static void sum_whole(const pd_unit *unit)
{
    pd_walk w = pd_walk_of(unit->plan, unit->block);
    double *weights = pd_squares_of(unit, OF_WEIGHTS), *update = pd_squares_of(unit, OF_UPDATE);
    const int64_t first = w.at[GROUP];
    const mixture mix = mixture_of(unit);

    w.still = mix.gain == 0;
    do {
        for (int64_t i = 0; i < w.n; i += w.tile) {
            pd_stretch s = pd_stretch_of(unit, &w, i, w.n - i < w.tile ? w.n - i : w.tile);
            mix_whole((float *)s.v, s.gradient, s.n, mix);
            if (unit->hyper[CLIPPING] != 0) update[w.at[GROUP] + i * w.step[GROUP] - first] += pd_stretch_squares(&s);
        }
        if (pd_adafactor_is_scaled(unit)) add_weights(unit, &w, weights, first);
    } while (pd_walk_on(&w));
}

void pd_adafactor_sums(const pd_unit *unit)
{
    const pd_adafactor_own *own = unit->plan->own;

    memset(pd_squares_of(unit, OF_WEIGHTS), 0, 2 * (size_t)own->groups * sizeof(double));
    if (pd_adafactor_is_factored(unit))
        sum_factored(unit);
    else
        sum_whole(unit);
}

/* ---- the phase "moments" ---- */

/* Returns this step's sum of squared gradients for element i of a moment (`which`: ROW for the row moment, COL for the
 * column moment), added up over all blocks that have a sum for it. */
static double total_of(const pd_unit *unit, int which, int64_t i)
{
    const pd_adafactor_own *own = unit->plan->own;
    const int64_t size = own->shared_size;
    const double *shared;
    double sum = 0;

    if (own->shared < 0 || own->shared_is_row != (which == ROW))
        return pd_slot_doubles(unit, which == ROW ? own->row_sums : own->col_sums)[i];
    shared = pd_slot_doubles(unit, own->shared) + i / size * own->chunks * size + i % size;
    for (int64_t chunk = 0; chunk < own->chunks; chunk++) sum += shared[chunk * size];
    return sum;
}

/* Computes new values of a moment (`which`: ROW for the row moment, COL for the column moment), for the share of its
 * elements that belongs to this call. A temporary slot gets the new values too, even if they are NaN (for v_col, their
 * inverse roots); the updates are computed from it. If skip_nan_updates is set, the moment itself keeps an old value
 * whose new one would be NaN. */
static void mix_moment(const pd_unit *unit, int which, mixture mix)
{
    const pd_adafactor_own *own = unit->plan->own;
    const pd_over over = pd_over_all_but(unit->plan, which == ROW ? PD_DIM_COLUMN : PD_DIM_ROW);
    const float count = (float)(unit->plan->elements / over.elements);
    const int64_t begin = over.elements * unit->index / unit->n_units,
                  end = over.elements * (unit->index + 1) / unit->n_units;
    float *v = pd_slot_floats(unit, which == ROW ? own->v_row : own->v_col),
          *next = pd_slot_floats(unit, which == ROW ? own->row_factors : own->col_factors);

    for (int64_t i = begin; i < end; i++) {
        next[i] = mix.keep * v[i] + mix.gain * ((float)total_of(unit, which, i) / count);
        if (!(isnan(next[i]) && mix.skip)) v[i] = next[i];
        if (which == COL) next[i] = pd_inverse_root(next[i]);
    }
}

void pd_adafactor_moments(const pd_unit *unit)
{
    const mixture mix = mixture_of(unit);

    mix_moment(unit, ROW, mix);
    mix_moment(unit, COL, mix);
}

/* ---- the phase "means" ---- */

/* Returns the block that the phase "means" (a pass of the step) walks over to visit each element of the moment v_row
 * once: the whole parameter, but with a single index in the COLUMN dimensions, which v_row does not have. */
static pd_block rows_of(const pd_plan *plan)
{
    pd_block block = { 0 };

    for (int d = 0; d < plan->shape.rank; d++)
        block.size[d] = pd_adafactor_rule(plan, d) == PD_DIM_COLUMN ? 1 : plan->shape.dim[d];
    return block;
}

void pd_adafactor_means(const pd_unit *unit)
{
    const pd_adafactor_own *own = unit->plan->own;
    const pd_block block = rows_of(unit->plan);
    pd_walk w = pd_walk_of(unit->plan, &block);
    const float count = (float)(w.over[ROW].elements / w.over[BOTH].elements);
    double *mean = pd_slot_doubles(unit, own->row_means);
    float *factor = pd_slot_floats(unit, own->row_factors);

    memset(mean, 0, (size_t)w.over[BOTH].elements * sizeof *mean);
    do {
        for (int64_t i = 0; i < w.n; i++)
            mean[w.at[BOTH] + i * w.step[BOTH]] += (double)factor[w.at[ROW] + i * w.step[ROW]];
    } while (pd_walk_on(&w));
    w = pd_walk_of(unit->plan, &block);
    do {
        for (int64_t i = 0; i < w.n; i++) {
            float *at = &factor[w.at[ROW] + i * w.step[ROW]];
            *at = pd_inverse_root(*at / ((float)mean[w.at[BOTH] + i * w.step[BOTH]] / count));
        }
    } while (pd_walk_on(&w));
}
