/* adafactor_step.c - the phases of adafactor: "sums", "moments" and "means" compute the second moments, "lengths" and
 * "limits" the learning rates and clip factors, "update" the new weights.
 *
 * A block is visited run by run. A run is a row of contiguous elements along the last dimension. Each of the two
 * moments v_row and v_col has either a single element for a whole run, or one for each element of the run. Updates are
 * not stored: each phase computes them again, which is faster than to write them to memory and read them. */
#include <string.h>

#include "adafactor_step.h"
#include "convert.h"
#include "kernels.h"
#include "lanes.h"

enum { TILE = 1024, TOGETHER = 4 };
/* Indices of the two numbers of a group: in the slot `squares` the sums of squares of its weights and of its updates,
 * in the slot `limits` its learning rate and its clip factor. */
enum { OF_WEIGHTS, OF_UPDATE };
/* Indices of the tensors that a walk follows: v_row, v_col, the numbers of each group, and the means of v_row. */
enum { ROW, COL, GROUP, BOTH, TENSORS };

/* Returns the layout of a tensor that has only some dimensions of the plan's shape: those whose factor rule (ROW,
 * COLUMN, BATCH or NONE) is in the bit set `rules`. */
static pd_over over(const pd_plan *plan, unsigned rules)
{
    pd_over to = { .elements = 1 };

    for (int d = plan->shape.rank - 1; d >= 0; d--) {
        if ((rules >> pd_adafactor_rule(plan, d) & 1) == 0) continue;
        to.stride[d] = to.elements;
        to.elements *= plan->shape.dim[d];
    }
    return to;
}

pd_over pd_over_all_but(const pd_plan *plan, pd_dim_rule rule)
{
    return over(plan, ~(1u << rule));
}

pd_over pd_over_groups(const pd_plan *plan)
{
    return over(plan, 1u << PD_DIM_BATCH);
}

pd_over pd_over_both(const pd_plan *plan)
{
    return over(plan, 1u << PD_DIM_BATCH | 1u << PD_DIM_NONE);
}

int64_t pd_over_first(const pd_over *of, const pd_block *block, int rank)
{
    int64_t first = 0;

    for (int d = 0; d < rank; d++) first += of->stride[d] * block->start[d];
    return first;
}

int64_t pd_over_size(const pd_over *of, const pd_block *block, int rank)
{
    int64_t size = 1;

    for (int d = 0; d < rank; d++) size *= of->stride[d] != 0 ? block->size[d] : 1;
    return size;
}

PD_INLINE float rounded(float x)
{
    return pd_f32_from_bf16(pd_bf16_from_f32(x));
}

/* Returns x^(-1/2), rounded to float32 only once, because T5X computes one power and not a root and a division. */
PD_INLINE float inverse_root(float x)
{
    return (float)(1 / sqrt((double)x));
}

static inline double *doubles_of(const pd_unit *unit, int slot)
{
    return (double *)unit->slot[slot];
}
static inline const pd_adafactor_own *own_of(const pd_unit *unit)
{
    return unit->plan->own;
}

/* Returns the sums of squares of the block that this call processes: an array with one sum for each group. `which`:
 * OF_WEIGHTS for the squares of the weights, OF_UPDATE for those of the updates. */
static inline double *squares_of(const pd_unit *unit, int which)
{
    const pd_adafactor_own *own = unit->plan->own;
    return doubles_of(unit, own->squares) + (2 * unit->index + which) * own->groups;
}

/* A walk over a block, run by run: the position of the current run in the parameter and in the tensors with some of its
 * dimensions. */
typedef struct walk {
    const pd_block *block;
    int rank;
    pd_over over[TENSORS]; /* layout of each tensor */
    /* distance in memory from one index to the next in each dimension of the parameter, in elements */
    int64_t stride[PD_MAX_RANK];
    /* index of the current run in each dimension of the block; always 0 in the last dimension */
    int64_t index[PD_MAX_RANK];
    /* where the first element of the current run lies: `element` is its offset in the parameter, at[i] its offset in
     * tensor number i (ROW, COL, GROUP or BOTH) */
    int64_t element, at[TENSORS];
    /* n: number of elements in a run. tile: number of elements of one group that are processed at once */
    int64_t n, tile;
    /* distance in each tensor from one element of a run to the next: 0 if the tensor has a single element for the whole
     * run, else 1 */
    int64_t step[TENSORS];
    bool still; /* whether this step multiplies its squared gradients by 0 when it adds them to the second moments */
} walk;

/* Returns whether both moments have one element for each element of a run, that is, have the last dimension. */
static inline bool is_single(const walk *w)
{
    return w->step[ROW] != 0 && w->step[COL] != 0;
}

/* Up to TOGETHER neighbouring runs that are processed together. The moment `across_is` has one element for each index i
 * of a run, and all these runs share it. In the moment `along_is` each run has a single element. */
typedef struct runs {
    int k; /* number of runs */
    int64_t n;
    /* for each run, the index in the parameter of its first element, and the index of its group */
    int64_t element[TOGETHER], group[TOGETHER];
    int64_t along[TOGETHER]; /* for each run, the index of its single element in the moment `along_is` */
    int64_t across;          /* index in the moment `across_is` of the first element that all the runs use */
    int along_is, across_is; /* one of them is ROW, the other COL */
} runs;

static inline void point_to_runs(const float **to, const runs *r, const float *base)
{
    for (int j = 0; j < r->k; j++) to[j] = base + r->element[j];
}

/* Which of a parameter's second moments have one element for each element of a run, and which have a single element for
 * the whole run:
 *
 * - ACROSS: v_col has one element for each element of a run; v_row has a single one.
 * - ALONG: v_row has one element for each element of a run; v_col has a single one.
 * - SINGLE: both moments have one element for each element of a run.
 * - WHOLE: the parameter is not factored, and has one full moment.
 * - STILL: like WHOLE, in a step that multiplies its squared gradients by 0 (walk.still). */
typedef enum moments_layout { ACROSS, ALONG, SINGLE, WHOLE, STILL } moments_layout;

/* n contiguous elements of a run, with pointers to their gradients, old and new weights, momentum, and the second
 * moments from which their updates are computed. */
typedef struct range {
    moments_layout layout;
    int64_t n;
    const float *gradient, *before, *row, *col, *v;
    float *after, *m; /* `after`: new weights; m: momentum, or NULL if there is none */
} range;

/* Returns the update of element i of a range, before clipping.
 *
 * In the layout STILL the squared gradient has the weight 0 in the moment, but is multiplied by 0 and added here. So an
 * infinite square makes the update NaN, as in T5X, even if skip_nan_updates has kept the old moment in the state. */
PD_INLINE float update_of(const range *s, moments_layout layout, int64_t i)
{
    if (layout == STILL) return s->gradient[i] * (1.0f / sqrtf(s->v[i] + 0.0f * (s->gradient[i] * s->gradient[i])));
    if (layout == WHOLE) return s->gradient[i] * (1.0f / sqrtf(s->v[i]));
    return s->gradient[i] * s->row[layout == ACROSS ? 0 : i] * s->col[layout == ALONG ? 0 : i];
}

/* Returns the factor b = 1 - t^(-decay_rate) by which a step multiplies the old second moments, where t = step -
 * step_offset + 1 and `step` counts from 0. t, the power and the difference are each rounded to float32. */
static float keep_of(const pd_unit *unit)
{
    float t = (float)(unit->count - 1 - (int64_t)unit->hyper[STEP_OFFSET]) + 1.0f;

    return 1.0f - (float)pow((double)t, -(double)(float)unit->hyper[DECAY_RATE]);
}

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

/* Advances a walk to the next run. Returns false after the last one. */
static bool next_run(walk *w)
{
    for (int d = w->rank - 2; d >= 0; d--) {
        advance(w, d, 1);
        if (++w->index[d] < w->block->size[d]) return true;
        advance(w, d, -w->block->size[d]);
        w->index[d] = 0;
    }
    return false;
}

/* Collects the next runs of a walk, at most TOGETHER, that use the same elements of one moment. This moment must have
 * an element for each element of a run, and the other moment a single element for the whole run. Returns false if no
 * run is left after these. */
static bool gather_runs(walk *w, runs *r)
{
    bool more;

    r->along_is = w->step[ROW] == 0 ? ROW : COL;
    r->across_is = r->along_is == ROW ? COL : ROW;
    r->k = 0;
    r->n = w->n;
    r->across = w->at[r->across_is];
    do {
        r->element[r->k] = w->element;
        r->group[r->k] = w->at[GROUP];
        r->along[r->k++] = w->at[r->along_is];
        more = next_run(w);
    } while (more && r->k < TOGETHER && w->at[r->across_is] == r->across);
    return more;
}

/* Returns the range of n elements of the walk's current run, from its element i on. */
static range range_of(const pd_unit *unit, const walk *w, int64_t i, int64_t n)
{
    const pd_adafactor_own *own = unit->plan->own;
    const int64_t at = w->element + i;
    range s = { .layout = w->still ? STILL : WHOLE,
                .n = n,
                .gradient = unit->gradient + at,
                .before = unit->before + at,
                .after = unit->after + at };

    if (own->m >= 0) s.m = unit->slot[own->m] + at;
    if (!own->factored) {
        s.v = unit->slot[own->v] + at;
        return s;
    }
    s.layout = is_single(w) ? SINGLE : w->step[ROW] == 0 ? ACROSS : ALONG;
    s.row = unit->slot[own->row_factors] + w->at[ROW] + i * w->step[ROW];
    s.col = unit->slot[own->col_factors] + w->at[COL] + i * w->step[COL];
    return s;
}

PD_INLINE void find_updates_as(const range *s, moments_layout layout, float *restrict y)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < s->n; i++) y[i] = update_of(s, layout, i);
}

/* Returns the sum of the squared updates of a range of at most TILE elements, whose layout is SINGLE, WHOLE or STILL.
 * The updates go to a buffer first. */
PD_CLONES(double, squared_updates, (const range *s), (s))
{
    float y[TILE];

    if (s->layout == WHOLE)
        find_updates_as(s, WHOLE, y);
    else if (s->layout == STILL)
        find_updates_as(s, STILL, y);
    else
        find_updates_as(s, SINGLE, y);
    return pd_sum_squares(y, s->n);
}

static bool is_bfloat16(const pd_unit *unit)
{
    return unit->hyper[PARAM_DTYPE] == DTYPE_BFLOAT16;
}

static double sum_rounded_squares(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (double)rounded(x[i] * x[i]);
    return sum;
}

/* Adds the squares of the weights of one run to `squares`, which has a sum for each group of the block. The first sum
 * belongs to the group `first`. */
static void add_weights(const pd_unit *unit, const walk *w, double *squares, int64_t first)
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

/* Computes s = x^2 + epsilon for each gradient x of k runs. Adds the sum of s over run j to sum[j], in 8 lanes. Adds
 * the sum of s over element i of all runs to to[i]. */
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

/* Adds the squares of the weights of several runs to `squares`, as add_weights does for one run. Each run must belong
 * to one group. */
static void add_weights_of(const pd_unit *unit, const runs *r, double *squares, int64_t first)
{
    const float *x[TOGETHER];
    double sum[TOGETHER] = { 0 };

    point_to_runs(x, r, unit->before);
    if (is_bfloat16(unit))
        for (int j = 0; j < r->k; j++) sum[j] = sum_rounded_squares(x[j], r->n);
    else if (r->k == TOGETHER)
        add_squares_four(x, r->n, sum);
    else
        for (int j = 0; j < r->k; j++) sum[j] = pd_sum_squares(x[j], r->n);
    for (int j = 0; j < r->k; j++) squares[r->group[j] - first] += sum[j];
}

/* Sets a block's sums of squared gradients for the moment `which` (ROW or COL) to 0, and returns a pointer to them.
 * Index the pointer by w->at[which], the walk's position in this moment: it is shifted so that this position finds its
 * sum. */
static double *sums_of(const pd_unit *unit, const walk *w, int which)
{
    const pd_adafactor_own *own = unit->plan->own;
    bool shared = own->shared >= 0 && own->shared_is_row == (which == ROW);
    int64_t first = w->at[which];
    double *at = shared ? doubles_of(unit, own->shared) + unit->index * own->shared_size
                        : doubles_of(unit, which == ROW ? own->row_sums : own->col_sums) + first;

    memset(at, 0, (size_t)pd_over_size(&w->over[which], unit->block, w->rank) * sizeof *at);
    return at - first;
}

static void sum_runs(const pd_unit *unit, const runs *r, double *along, double *across)
{
    const float epsilon = (float)unit->hyper[EPSILON1], *x[TOGETHER];
    double sum[TOGETHER] = { 0 };

    point_to_runs(x, r, unit->gradient);
    if (r->k == TOGETHER)
        add_shifted_four(across + r->across, x, r->n, epsilon, sum);
    else
        for (int j = 0; j < r->k; j++) add_shifted_one(across + r->across, x + j, r->n, epsilon, sum + j);
    for (int j = 0; j < r->k; j++) along[r->along[j]] += sum[j];
}

static void sum_single(const pd_unit *unit, const walk *w, double *row, double *col)
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
    walk w = walk_of(unit->plan, unit->block);
    double *sums[] = { [ROW] = sums_of(unit, &w, ROW), [COL] = sums_of(unit, &w, COL) },
           *squares = squares_of(unit, OF_WEIGHTS);
    const int64_t first = w.at[GROUP];
    bool more = !is_single(&w);
    runs r;

    while (more) {
        more = gather_runs(&w, &r);
        sum_runs(unit, &r, sums[r.along_is], sums[r.across_is]);
        if (own_of(unit)->by_scale) add_weights_of(unit, &r, squares, first);
    }
    if (!is_single(&w)) return;
    do {
        sum_single(unit, &w, sums[ROW], sums[COL]);
        if (own_of(unit)->by_scale) add_weights(unit, &w, squares, first);
    } while (next_run(&w));
}

/* The constants with which a step updates a second moment v: v <- keep v + gain (g^2 + epsilon). With `skip`, an
 * element keeps its old value if the new one would be NaN. */
typedef struct mixture {
    float keep, gain, epsilon;
    bool skip;
} mixture;

static mixture mixture_of(const pd_unit *unit)
{
    float keep = keep_of(unit);

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
    walk w = walk_of(unit->plan, unit->block);
    double *weights = squares_of(unit, OF_WEIGHTS), *update = squares_of(unit, OF_UPDATE);
    const int64_t first = w.at[GROUP];
    const mixture mix = mixture_of(unit);

    w.still = mix.gain == 0;
    do {
        for (int64_t i = 0; i < w.n; i += w.tile) {
            range s = range_of(unit, &w, i, w.n - i < w.tile ? w.n - i : w.tile);
            mix_whole((float *)s.v, s.gradient, s.n, mix);
            if (unit->hyper[CLIPPING] != 0) update[w.at[GROUP] + i * w.step[GROUP] - first] += squared_updates(&s);
        }
        if (own_of(unit)->by_scale) add_weights(unit, &w, weights, first);
    } while (next_run(&w));
}

void pd_adafactor_sums(const pd_unit *unit)
{
    const pd_adafactor_own *own = unit->plan->own;

    memset(squares_of(unit, OF_WEIGHTS), 0, 2 * (size_t)own->groups * sizeof(double));
    if (own->factored)
        sum_factored(unit);
    else
        sum_whole(unit);
}

/* Returns this step's sum of squared gradients for element i of the moment `which` (ROW or COL), added up over all
 * blocks that have a sum for it. */
static double total_of(const pd_unit *unit, int which, int64_t i)
{
    const pd_adafactor_own *own = unit->plan->own;
    const int64_t size = own->shared_size;
    const double *shared;
    double sum = 0;

    if (own->shared < 0 || own->shared_is_row != (which == ROW))
        return doubles_of(unit, which == ROW ? own->row_sums : own->col_sums)[i];
    shared = doubles_of(unit, own->shared) + i / size * own->chunks * size + i % size;
    for (int64_t chunk = 0; chunk < own->chunks; chunk++) sum += shared[chunk * size];
    return sum;
}

/* Computes new values of the moment `which` (ROW or COL), for the share of its elements that belongs to this call. Also
 * writes them to a temporary slot, from which the updates are computed, even if they are NaN (for v_col, it writes
 * their inverse roots). If skip_nan_updates is set, the moment itself keeps an old value whose new one would be NaN. */
static void mix_moment(const pd_unit *unit, int which, mixture mix)
{
    const pd_adafactor_own *own = unit->plan->own;
    const pd_over over = pd_over_all_but(unit->plan, which == ROW ? PD_DIM_COLUMN : PD_DIM_ROW);
    const float count = (float)(unit->plan->elements / over.elements);
    const int64_t begin = over.elements * unit->index / unit->n_units,
                  end = over.elements * (unit->index + 1) / unit->n_units;
    float *v = unit->slot[which == ROW ? own->v_row : own->v_col],
          *next = unit->slot[which == ROW ? own->row_factors : own->col_factors];

    for (int64_t i = begin; i < end; i++) {
        next[i] = mix.keep * v[i] + mix.gain * ((float)total_of(unit, which, i) / count);
        if (!(isnan(next[i]) && mix.skip)) v[i] = next[i];
        if (which == COL) next[i] = inverse_root(next[i]);
    }
}

void pd_adafactor_moments(const pd_unit *unit)
{
    const mixture mix = mixture_of(unit);

    mix_moment(unit, ROW, mix);
    mix_moment(unit, COL, mix);
}

/* Returns the block that the phase "means" walks over to visit each element of the moment v_row once: the whole
 * parameter, but with a single index in the COLUMN dimensions, which v_row does not have. */
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
    walk w = walk_of(unit->plan, &block);
    const float count = (float)(w.over[ROW].elements / w.over[BOTH].elements);
    double *mean = doubles_of(unit, own->row_means);
    float *factor = unit->slot[own->row_factors];

    memset(mean, 0, (size_t)w.over[BOTH].elements * sizeof *mean);
    do {
        for (int64_t i = 0; i < w.n; i++)
            mean[w.at[BOTH] + i * w.step[BOTH]] += (double)factor[w.at[ROW] + i * w.step[ROW]];
    } while (next_run(&w));
    w = walk_of(unit->plan, &block);
    do {
        for (int64_t i = 0; i < w.n; i++) {
            float *at = &factor[w.at[ROW] + i * w.step[ROW]];
            *at = inverse_root(*at / ((float)mean[w.at[BOTH] + i * w.step[BOTH]] / count));
        }
    } while (next_run(&w));
}

/* larger and smaller return the larger or smaller of two numbers; NaN if one of them is NaN. */
PD_INLINE float larger(float a, float b)
{
    return ((b > a) | (b != b)) ? b : a;
}
PD_INLINE float smaller(float a, float b)
{
    return ((b < a) | (b != b)) ? b : a;
}

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

/* Adds the sum of the squared updates of run j to sum[j], for each of k runs. The update of element i in run j is the
 * product of the gradient g[j][i], the run's factor one[j] and the element's factor many[i]. */
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

static void add_lengths(const pd_unit *unit, const runs *r, double *squares, int64_t first)
{
    const pd_adafactor_own *own = unit->plan->own;
    const float *many = unit->slot[r->across_is == ROW ? own->row_factors : own->col_factors] + r->across;
    const float *ones = unit->slot[r->along_is == ROW ? own->row_factors : own->col_factors], *g[TOGETHER];
    double sum[TOGETHER] = { 0 };
    float one[TOGETHER];

    point_to_runs(g, r, unit->gradient);
    for (int j = 0; j < r->k; j++) one[j] = ones[r->along[j]];
    if (r->k == TOGETHER)
        add_updates_four(g, one, many, r->along_is == ROW, r->n, sum);
    else
        for (int j = 0; j < r->k; j++) add_updates_one(g + j, one + j, many, r->along_is == ROW, r->n, sum + j);
    for (int j = 0; j < r->k; j++) squares[r->group[j] - first] += sum[j];
}

void pd_adafactor_lengths(const pd_unit *unit)
{
    walk w = walk_of(unit->plan, unit->block);
    double *squares = squares_of(unit, OF_UPDATE);
    const int64_t first = w.at[GROUP];
    bool more = !is_single(&w);
    runs r;

    while (more) {
        more = gather_runs(&w, &r);
        add_lengths(unit, &r, squares, first);
    }
    if (!is_single(&w)) return;
    do {
        for (int64_t i = 0; i < w.n; i += w.tile) {
            range s = range_of(unit, &w, i, w.n - i < w.tile ? w.n - i : w.tile);
            squares[w.at[GROUP] + i * w.step[GROUP] - first] += squared_updates(&s);
        }
    } while (next_run(&w));
}

/* Returns the learning rate of one group. `mean` is the mean square of the group's weights. With the option
 * multiply_by_parameter_scale its root multiplies the learning rate. */
static float rate_of(const pd_unit *unit, float mean)
{
    const double *h = unit->hyper;
    const bool coarse = is_bfloat16(unit);
    float scale, rate = (float)h[LEARNING_RATE];

    if (!own_of(unit)->by_scale) return rate;
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
    const pd_adafactor_own *own = unit->plan->own;
    const pd_plan *plan = unit->plan;
    const pd_over groups = pd_over_groups(plan);
    const float count = (float)(plan->elements / groups.elements);
    const int64_t room = own->groups;
    double *limits = doubles_of(unit, own->limits);

    memset(limits, 0, 2 * (size_t)groups.elements * sizeof *limits);
    for (size_t b = 0; b < plan->n_blocks; b++) {
        const double *squares = doubles_of(unit, own->squares) + 2 * (int64_t)b * room;
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

/* The constants with which a step changes the momentum and the weights (pass). */
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

    if (f.coarse_m) f.beta = rounded(f.beta);
    if (f.coarse_w) f.keep = rounded(f.keep);
    return f;
}

/* Computes the new weights of a range, and its new momentum if there is one, in one pass over memory. `coarse` says
 * whether the momentum or the weights are rounded to bfloat16. The callers pass all arguments but `s` and `f` as
 * constants, so the compiler makes a loop without branches for each combination. */
PD_INLINE void pass(const range *s, pull f, moments_layout layout, bool momentum, bool coarse)
{
    const range r = *s; /* a local copy: the compiler knows that the loop's writes do not change it */

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], u = f.rate * (update_of(&r, layout, i) / f.clip), kept = f.keep * w, next;
        if (momentum) {
            float old = r.m[i], rest = f.beta * old;
            u = (coarse && f.coarse_m ? rounded(rest) : rest) + f.gain * u;
            r.m[i] = ((u != u) & f.skip) ? old : u;
        }
        next = (coarse && f.coarse_w ? rounded(kept) : kept) - u;
        next = coarse && f.coarse_w ? rounded(next) : next;
        r.after[i] = ((next != next) & f.skip) ? w : next;
    }
}

PD_INLINE void update_as(const range *s, pull f, moments_layout layout)
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

PD_CLONES(void, update_across, (const range *s, pull f), (s, f))
{
    update_as(s, f, ACROSS);
}
PD_CLONES(void, update_along, (const range *s, pull f), (s, f))
{
    update_as(s, f, ALONG);
}
PD_CLONES(void, update_single, (const range *s, pull f), (s, f))
{
    update_as(s, f, SINGLE);
}
PD_CLONES(void, update_whole, (const range *s, pull f), (s, f))
{
    update_as(s, f, WHOLE);
}
PD_CLONES(void, update_still, (const range *s, pull f), (s, f))
{
    update_as(s, f, STILL);
}

void pd_adafactor_update(const pd_unit *unit)
{
    const pd_adafactor_own *own = unit->plan->own;

    static void (*const updates[])(const range *s, pull f) = { [ACROSS] = update_across,
                                                               [ALONG] = update_along,
                                                               [SINGLE] = update_single,
                                                               [WHOLE] = update_whole,
                                                               [STILL] = update_still };
    walk w = walk_of(unit->plan, unit->block);
    const double *limits = doubles_of(unit, own->limits);
    const int64_t most = w.step[GROUP] != 0 ? 1 : w.n;
    pull f = pull_of(unit);

    w.still = keep_of(unit) == 1;
    do {
        for (int64_t i = 0; i < w.n; i += most) {
            const range s = range_of(unit, &w, i, most);
            int64_t group = w.at[GROUP] + i * w.step[GROUP];
            f.rate = (float)limits[2 * group + OF_WEIGHTS];
            f.clip = (float)limits[2 * group + OF_UPDATE];
            updates[s.layout](&s, f);
        }
    } while (next_run(&w));
}
