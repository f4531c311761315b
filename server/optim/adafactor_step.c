/* adafactor_step.c - the phases of adafactor. A block is walked in runs: elements of the last dimension, which lie together, and of which each
 * moment has either one element or as many, side by side. Updates are computed anew where they are needed, a tile of them in the cache, which
 * costs less than to write and read them. */
#include <assert.h>
#include <string.h>

#include "adafactor.h"
#include "convert.h"
#include "dispatch.h"
#include "kernels.h"

enum { TILE = 1024, TOGETHER = 4 };
enum { OF_WEIGHTS, OF_UPDATE };             /* sums of squares; where a group's limits are, its rate and its clip */

PD_INLINE float rounded(float x) { return pd_f32_from_bf16(pd_bf16_from_f32(x)); }
PD_INLINE float larger(float a, float b) { return ((b > a) | (b != b)) ? b : a; }      /* NaN where either is */
PD_INLINE float smaller(float a, float b) { return ((b < a) | (b != b)) ? b : a; }

static float *floats_of(const pd_unit *unit, int own)   { return unit->slot[unit->plan->own[own]]; }
static double *doubles_of(const pd_unit *unit, int own) { return (double *)unit->slot[unit->plan->own[own]]; }
static bool is_factored(const pd_unit *unit)            { return unit->plan->own[OWN_FACTORED] != 0; }
static bool is_scaled(const pd_unit *unit)              { return unit->plan->own[OWN_BY_SCALE] != 0; }
static bool is_bfloat16(const pd_unit *unit)            { return unit->hyper[PARAM_DTYPE] == DTYPE_BFLOAT16; }
static bool skips_nan(const pd_unit *unit)              { return unit->hyper[SKIP_NAN] != 0; }

/* ---- walking a block ---- */

enum { ROW, COL, GROUP, BOTH, TENSORS };

typedef struct walk {
    const pd_block *block;
    int     rank;
    pd_over over[TENSORS];
    int64_t stride[PD_MAX_RANK];            /* in the parameter */
    int64_t index[PD_MAX_RANK];             /* in the block; of the last dimension always 0 */
    int64_t element, at[TENSORS];           /* where the run begins */
    int64_t n, tile;                        /* elements of a run; how many of them at most have all one group */
    int64_t step[TENSORS];                  /* from one element of the run to the next: 0 or 1 */
} walk;

static walk walk_of(const pd_plan *plan, const pd_block *block)
{
    int last = plan->shape.rank - 1;
    walk w = { .block = block, .rank = plan->shape.rank, .n = block->size[last] };
    int64_t stride = 1;

    w.over[ROW] = pd_over_all_but(plan, PD_DIM_COLUMN);
    w.over[COL] = pd_over_all_but(plan, PD_DIM_ROW);
    w.over[GROUP] = pd_over_groups(plan);
    w.over[BOTH] = pd_over_both(plan);
    for (int d = last; d >= 0; d--) {
        w.stride[d] = stride;
        w.element += stride * block->start[d];
        stride *= plan->shape.dim[d];
    }
    for (int i = 0; i < TENSORS; i++) {
        w.at[i] = pd_over_first(&w.over[i], block, w.rank);
        w.step[i] = w.over[i].stride[last];
    }
    w.tile = w.step[GROUP] != 0 ? 1 : TILE;
    return w;
}

static void advance(walk *w, int d, int64_t by)
{
    w->element += by * w->stride[d];
    for (int i = 0; i < TENSORS; i++) w->at[i] += by * w->over[i].stride[d];
}

/* To the next run. False: there is none. */
static bool walk_on(walk *w)
{
    for (int d = w->rank - 2; d >= 0; d--) {
        advance(w, d, 1);
        if (++w->index[d] < w->block->size[d]) return true;
        advance(w, d, -w->block->size[d]);
        w->index[d] = 0;
    }
    return false;
}

/* ---- sums of squares ---- */

/* Where this block's sums for its groups are. */
static double *squares_of(const pd_unit *unit, int which)
{
    int64_t room = unit->plan->own[OWN_GROUPS];
    return doubles_of(unit, OWN_SQUARES) + (2 * unit->index + which) * room;
}

static double sum_rounded_squares(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (double)rounded(x[i] * x[i]);
    return sum;
}

/* A run's weights into the sums of its groups. `first`: the block's first group. */
static void add_weights(const pd_unit *unit, const walk *w, double *squares, int64_t first)
{
    const float *weights = unit->before + w->element;

    for (int64_t i = 0; i < w->n; i += w->tile) {
        int64_t n = w->n - i < w->tile ? w->n - i : w->tile;
        squares[w->at[GROUP] + i * w->step[GROUP] - first] += is_bfloat16(unit) ? sum_rounded_squares(weights + i, n) : pd_sum_squares(weights + i, n);
    }
}

typedef float  floats  __attribute__((vector_size(32), aligned(4)));
typedef double doubles __attribute__((vector_size(64)));

/* Sum of x^2 + epsilon, each rounded to float32, in 16 lanes of float64. */
PD_CLONES static double sum_shifted(const float *x, int64_t n, float epsilon)
{
    doubles low = { 0 }, high = { 0 };
    double sum = 0;
    int64_t i;

    for (i = 0; i + 16 <= n; i += 16) {
        floats a = *(const floats *)(x + i), b = *(const floats *)(x + i + 8);
        low += __builtin_convertvector(a * a + epsilon, doubles);
        high += __builtin_convertvector(b * b + epsilon, doubles);
    }
    low += high;
    for (int lane = 0; lane < 8; lane++) sum += low[lane];
    for (; i < n; i++) sum += (double)(x[i] * x[i] + epsilon);
    return sum;
}

PD_CLONES static void add_four(double *restrict to, const float *a, const float *b, const float *c, const float *d, int64_t n, float epsilon)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        to[i] += (double)(((a[i] * a[i] + epsilon) + (b[i] * b[i] + epsilon)) + ((c[i] * c[i] + epsilon) + (d[i] * d[i] + epsilon)));
}

PD_CLONES static void add_one(double *restrict to, const float *x, int64_t n, float epsilon)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) to[i] += (double)(x[i] * x[i] + epsilon);
}

/* k runs of n elements: the sum of each into *along[], and their sum, element by element, into `across`. */
static void add_runs(const float *const *x, int k, int64_t n, float epsilon, double *across, double *const *along)
{
    for (int64_t i = 0; i < n; i += TILE) {
        int64_t m = n - i < TILE ? n - i : TILE;
        if (k == TOGETHER) add_four(across + i, x[0] + i, x[1] + i, x[2] + i, x[3] + i, m, epsilon);
        else for (int j = 0; j < k; j++) add_one(across + i, x[j] + i, m, epsilon);
        for (int j = 0; j < k; j++) *along[j] += sum_shifted(x[j] + i, m, epsilon);
    }
}

/* Where a block adds up what belongs to one moment: to[walk's position]. Zero at first. */
static double *sums_of(const pd_unit *unit, const walk *w, int which)
{
    const int64_t *own = unit->plan->own;
    bool shared = own[OWN_SHARED] >= 0 && (own[OWN_SHARED_IS_ROW] != 0) == (which == ROW);
    int64_t first = w->at[which];
    double *at = shared ? doubles_of(unit, OWN_SHARED) + unit->index * own[OWN_SHARED_SIZE] : doubles_of(unit, which == ROW ? OWN_ROW_SUMS : OWN_COL_SUMS) + first;

    memset(at, 0, (size_t)pd_over_size(&w->over[which], unit->block, w->rank) * sizeof *at);
    return at - first;
}

static void sum_factored(const pd_unit *unit)
{
    walk w = walk_of(unit->plan, unit->block);
    double *row = sums_of(unit, &w, ROW), *col = sums_of(unit, &w, COL), *squares = squares_of(unit, OF_WEIGHTS);
    const int along = w.step[ROW] == 0 ? ROW : COL, across = along == ROW ? COL : ROW;
    double *const to_along = along == ROW ? row : col, *const to_across = along == ROW ? col : row;
    const float epsilon = (float)unit->hyper[EPSILON1];
    const int64_t first = w.at[GROUP];
    bool more = true;

    while (more) {
        const float *x[TOGETHER];
        double *sum[TOGETHER];
        const int64_t target = w.at[across];
        int k = 0;
        do {
            x[k] = unit->gradient + w.element;
            sum[k++] = to_along + w.at[along];
            if (is_scaled(unit)) add_weights(unit, &w, squares, first);
            more = walk_on(&w);
        } while (more && k < TOGETHER && w.at[across] == target && w.step[along] == 0);
        if (w.step[along] == 0) {
            add_runs(x, k, w.n, epsilon, to_across + target, sum);
        } else {                            /* a dimension that both moments have comes last */
            add_one(sum[0], x[0], w.n, epsilon);
            add_one(to_across + target, x[0], w.n, epsilon);
        }
    }
}

/* ---- updates, before the clip ---- */

PD_CLONES static void scale_across(float *restrict y, const float *g, float one, const float *many, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = g[i] * one * many[i];
}

PD_CLONES static void scale_along(float *restrict y, const float *g, const float *many, float one, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = g[i] * many[i] * one;
}

PD_CLONES static void scale_both(float *restrict y, const float *g, const float *row, const float *col, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = g[i] * row[i] * col[i];
}

PD_CLONES static void scale_whole(float *restrict y, const float *g, const float *v, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = g[i] * (1.0f / sqrtf(v[i]));
}

/* n elements of a run, from its element i on. */
static void find_update(const pd_unit *unit, const walk *w, int64_t i, int64_t n, float *y)
{
    const float *g = unit->gradient + w->element + i, *row, *col;

    if (!is_factored(unit)) {
        scale_whole(y, g, floats_of(unit, OWN_V) + w->element + i, n);
        return;
    }
    row = floats_of(unit, OWN_ROW_FACTORS) + w->at[ROW] + i * w->step[ROW];
    col = floats_of(unit, OWN_COL_FACTORS) + w->at[COL] + i * w->step[COL];
    if (w->step[ROW] == 0) scale_across(y, g, *row, col, n);
    else if (w->step[COL] == 0) scale_along(y, g, row, *col, n);
    else scale_both(y, g, row, col, n);
}

/* ---- phase sums ---- */

typedef struct mixture { float keep, gain, epsilon; bool skip; } mixture;

/* t = step - step_offset + 1 is rounded to float32, as are its power and the difference. */
static mixture mixture_of(const pd_unit *unit)
{
    float t = (float)(unit->count - 1 - (int64_t)unit->hyper[STEP_OFFSET]) + 1.0f;
    float keep = 1.0f - (float)pow((double)t, -(double)(float)unit->hyper[DECAY_RATE]);

    return (mixture){ keep, 1.0f - keep, (float)unit->hyper[EPSILON1], skips_nan(unit) };
}

PD_CLONES static void mix_whole(float *v, const float *g, int64_t n, mixture mix)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float old = v[i], next = mix.keep * old + mix.gain * (g[i] * g[i] + mix.epsilon);
        v[i] = (next != next) & mix.skip ? old : next;
    }
}

/* Its moment is of this element alone, so its update is known at once. */
static void sum_whole(const pd_unit *unit)
{
    walk w = walk_of(unit->plan, unit->block);
    double *weights = squares_of(unit, OF_WEIGHTS), *update = squares_of(unit, OF_UPDATE);
    const int64_t first = w.at[GROUP];
    const mixture mix = mixture_of(unit);
    float y[TILE];

    do {
        for (int64_t i = 0; i < w.n; i += w.tile) {
            int64_t n = w.n - i < w.tile ? w.n - i : w.tile;
            mix_whole(floats_of(unit, OWN_V) + w.element + i, unit->gradient + w.element + i, n, mix);
            if (unit->hyper[CLIPPING] == 0) continue;
            find_update(unit, &w, i, n, y);
            update[w.at[GROUP] + i * w.step[GROUP] - first] += pd_sum_squares(y, n);
        }
        if (is_scaled(unit)) add_weights(unit, &w, weights, first);
    } while (walk_on(&w));
}

void pd_adafactor_sums(const pd_unit *unit)
{
    memset(squares_of(unit, OF_WEIGHTS), 0, 2 * (size_t)unit->plan->own[OWN_GROUPS] * sizeof(double));
    if (is_factored(unit)) sum_factored(unit);
    else sum_whole(unit);
}

/* ---- phase moments ---- */

/* What the blocks found for element i of a moment. */
static double total_of(const pd_unit *unit, int which, int64_t i)
{
    const int64_t *own = unit->plan->own, size = own[OWN_SHARED_SIZE];
    const double *shared;
    double sum = 0;

    if (own[OWN_SHARED] < 0 || (own[OWN_SHARED_IS_ROW] != 0) != (which == ROW)) return doubles_of(unit, which == ROW ? OWN_ROW_SUMS : OWN_COL_SUMS)[i];
    shared = doubles_of(unit, OWN_SHARED) + i / size * own[OWN_CHUNKS] * size + i % size;
    for (int64_t chunk = 0; chunk < own[OWN_CHUNKS]; chunk++) sum += shared[chunk * size];
    return sum;
}

/* This unit's share of a moment. The new values, NaN and all, go into the factors: state may keep an old one instead. */
static void mix_moment(const pd_unit *unit, int which, mixture mix)
{
    const pd_over over = pd_over_all_but(unit->plan, which == ROW ? PD_DIM_COLUMN : PD_DIM_ROW);
    const double count = (double)(unit->plan->elements / over.elements);
    const int64_t begin = over.elements * unit->index / unit->n_units, end = over.elements * (unit->index + 1) / unit->n_units;
    float *v = floats_of(unit, which == ROW ? OWN_V_ROW : OWN_V_COL), *next = floats_of(unit, which == ROW ? OWN_ROW_FACTORS : OWN_COL_FACTORS);

    for (int64_t i = begin; i < end; i++) {
        next[i] = mix.keep * v[i] + mix.gain * (float)(total_of(unit, which, i) / count);
        if (!(isnan(next[i]) && mix.skip)) v[i] = next[i];
        if (which == COL) next[i] = 1.0f / sqrtf(next[i]);
    }
}

void pd_adafactor_moments(const pd_unit *unit)
{
    const mixture mix = mixture_of(unit);

    mix_moment(unit, ROW, mix);
    mix_moment(unit, COL, mix);
}

/* ---- phase means ---- */

/* v_row's shape as a block of the parameter. */
static pd_block rows_of(const pd_plan *plan)
{
    pd_block block = { 0 };

    for (int d = 0; d < plan->shape.rank; d++) block.size[d] = pd_adafactor_rule(plan, d) == PD_DIM_COLUMN ? 1 : plan->shape.dim[d];
    return block;
}

void pd_adafactor_means(const pd_unit *unit)
{
    const pd_block block = rows_of(unit->plan);
    walk w = walk_of(unit->plan, &block);
    const double count = (double)(w.over[ROW].elements / w.over[BOTH].elements);
    double *mean = doubles_of(unit, OWN_ROW_MEANS);
    float *factor = floats_of(unit, OWN_ROW_FACTORS);

    memset(mean, 0, (size_t)w.over[BOTH].elements * sizeof *mean);
    do {
        for (int64_t i = 0; i < w.n; i++) mean[w.at[BOTH] + i * w.step[BOTH]] += (double)factor[w.at[ROW] + i * w.step[ROW]];
    } while (walk_on(&w));
    w = walk_of(unit->plan, &block);
    do {
        for (int64_t i = 0; i < w.n; i++) {
            float *at = &factor[w.at[ROW] + i * w.step[ROW]];
            *at = 1.0f / sqrtf(*at / (float)(mean[w.at[BOTH] + i * w.step[BOTH]] / count));
        }
    } while (walk_on(&w));
}

/* ---- phase lengths ---- */

void pd_adafactor_lengths(const pd_unit *unit)
{
    walk w = walk_of(unit->plan, unit->block);
    double *squares = squares_of(unit, OF_UPDATE);
    const int64_t first = w.at[GROUP];
    float y[TILE];

    do {
        for (int64_t i = 0; i < w.n; i += w.tile) {
            int64_t n = w.n - i < w.tile ? w.n - i : w.tile;
            find_update(unit, &w, i, n, y);
            squares[w.at[GROUP] + i * w.step[GROUP] - first] += pd_sum_squares(y, n);
        }
    } while (walk_on(&w));
}

/* ---- phase limits ---- */

/* The learning rate times the scale of weights of this mean square. */
static float rate_of(const pd_unit *unit, float mean)
{
    const double *h = unit->hyper;
    const bool coarse = is_bfloat16(unit);
    float scale, rate = (float)h[LEARNING_RATE];

    if (!is_scaled(unit)) return rate;
    scale = coarse ? rounded(sqrtf(rounded(mean))) : sqrtf(mean);
    scale = larger(scale, coarse ? rounded((float)h[EPSILON2]) : (float)h[EPSILON2]);
    if (h[MAX_SCALE] != 0) scale = smaller(scale, coarse ? rounded((float)h[MAX_SCALE]) : (float)h[MAX_SCALE]);
    return coarse ? rounded(rounded(rate) * scale) : rate * scale;
}

static float clip_of(const pd_unit *unit, float mean)
{
    double threshold = unit->hyper[CLIPPING];
    return threshold == 0 ? 1.0f : larger(1.0f, sqrtf(mean) / (float)threshold);
}

void pd_adafactor_limits(const pd_unit *unit)
{
    const pd_plan *plan = unit->plan;
    const pd_over groups = pd_over_groups(plan);
    const double count = (double)plan->elements / (double)groups.elements;
    const int64_t room = plan->own[OWN_GROUPS];
    double *limits = doubles_of(unit, OWN_LIMITS);

    memset(limits, 0, 2 * (size_t)groups.elements * sizeof *limits);
    for (size_t b = 0; b < plan->n_blocks; b++) {
        const double *squares = doubles_of(unit, OWN_SQUARES) + 2 * (int64_t)b * room;
        double *to = limits + 2 * pd_over_first(&groups, &plan->blocks[b], plan->shape.rank);
        for (int64_t i = 0, n = pd_over_size(&groups, &plan->blocks[b], plan->shape.rank); i < n; i++) {
            to[2 * i + OF_WEIGHTS] += squares[i];
            to[2 * i + OF_UPDATE] += squares[room + i];
        }
    }
    for (int64_t i = 0; i < groups.elements; i++) {
        limits[2 * i + OF_WEIGHTS] = rate_of(unit, (float)(limits[2 * i + OF_WEIGHTS] / count));
        limits[2 * i + OF_UPDATE] = clip_of(unit, (float)(limits[2 * i + OF_UPDATE] / count));
    }
}

/* ---- phase move ---- */

typedef struct pull { float rate, clip, beta, gain, keep; bool skip; } pull;

/* What weight decay leaves of the weights, in double and then rounded. */
static float kept_of(const double *h)
{
    double decay = h[WEIGHT_DECAY];

    if (!pd_adafactor_is_none(h[DECAY_EXPONENT]) && h[DECAY_EXPONENT] != 0) decay = (decay != 0 ? decay : 1) * pow(h[LEARNING_RATE], h[DECAY_EXPONENT]);
    return (float)(1 - decay);
}

/* The same for a momentum kept in bfloat16, whose decay is a product of that type, and for weights of it. */
static pull pull_of(const pd_unit *unit)
{
    const double *h = unit->hyper;
    pull f = { .beta = (float)h[BETA1], .gain = (float)(1 - h[BETA1]), .keep = kept_of(h), .skip = skips_nan(unit) };

    if (h[DTYPE_MOMENTUM] == DTYPE_BFLOAT16) f.beta = rounded(f.beta);
    if (is_bfloat16(unit)) f.keep = rounded(f.keep);
    return f;
}

PD_CLONES static void clip(float *y, int64_t n, pull f)
{
    for (int64_t i = 0; i < n; i++) y[i] = f.rate * (y[i] / f.clip);
}

PD_INLINE void average(float *y, float *m, int64_t n, pull f, bool coarse)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float old = m[i], kept = f.beta * old, next = (coarse ? rounded(kept) : kept) + f.gain * y[i];
        m[i] = (next != next) & f.skip ? old : next;
        y[i] = next;
    }
}

PD_CLONES static void average_f32(float *y, float *m, int64_t n, pull f)  { average(y, m, n, f, false); }
PD_CLONES static void average_bf16(float *y, float *m, int64_t n, pull f) { average(y, m, n, f, true); }

PD_INLINE void subtract(float *after, const float *before, const float *y, int64_t n, pull f, bool coarse)
{
#pragma GCC ivdep                                       /* after may be before itself, never a shifted part of it */
    for (int64_t i = 0; i < n; i++) {
        float w = before[i], kept = f.keep * w, next = (coarse ? rounded(kept) : kept) - y[i];
        next = coarse ? rounded(next) : next;
        after[i] = (next != next) & f.skip ? w : next;
    }
}

PD_CLONES static void subtract_f32(float *after, const float *before, const float *y, int64_t n, pull f)  { subtract(after, before, y, n, f, false); }
PD_CLONES static void subtract_bf16(float *after, const float *before, const float *y, int64_t n, pull f) { subtract(after, before, y, n, f, true); }

void pd_adafactor_move(const pd_unit *unit)
{
    walk w = walk_of(unit->plan, unit->block);
    const double *limits = doubles_of(unit, OWN_LIMITS);
    float y[TILE], *m = unit->plan->own[OWN_M] >= 0 ? floats_of(unit, OWN_M) : NULL;
    pull f = pull_of(unit);

    do {
        for (int64_t i = 0; i < w.n; i += w.tile) {
            int64_t n = w.n - i < w.tile ? w.n - i : w.tile, at = w.element + i, group = w.at[GROUP] + i * w.step[GROUP];
            f.rate = (float)limits[2 * group + OF_WEIGHTS];
            f.clip = (float)limits[2 * group + OF_UPDATE];
            find_update(unit, &w, i, n, y);
            clip(y, n, f);
            if (m != NULL) (unit->hyper[DTYPE_MOMENTUM] == DTYPE_BFLOAT16 ? average_bf16 : average_f32)(y, m + at, n, f);
            (is_bfloat16(unit) ? subtract_bf16 : subtract_f32)(unit->after + at, unit->before + at, y, n, f);
        }
    } while (walk_on(&w));
}
