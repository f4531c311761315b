/* adasum.c - computes the Adasum or the radial mean of vectors in passes over fixed ranges of elements. */
#include "adasum.h"

#include <assert.h>
#include <math.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "lanes.h"
#include "gram.h"
#include "kernels.h"

enum { RANGE = 1 << 16, LEAST_RANGE = 1 << 10, BLOCK = PD_GRAM_BLOCK, MANY = PD_GRAM_VECTORS, LINE = 16 };
#define EPSILON 1e-30
/* merge(a, b) is f a + g b for two factors f and g. It counts as 0 if |f a + g b|^2 < CANCELLED (|f a|^2 + |g b|^2). */
#define CANCELLED 1e-14
#define NS_PER_DOT 0.06 /* time in ns, on one core, of the dot product of two vectors, for each element */
#define NS_PER_TERM 0.3 /* time in ns, on one core, to read an element and convert it to float64 */

/* A stage of the computation: several levels of the tree of merges, in one pass for dot products and one to combine. A
 * stage reads groups * leaves vectors. They form `groups` groups of `leaves` vectors, and each group is merged into one
 * vector. Vector j of group g (its leaf j) is vector number (g * leaves + j) * stride. If the number k of vectors is
 * not a power of two, the first stage also merges each surplus vector into a leaf: vector number r + width into vector
 * number r, where width is the largest power of two below k. */
typedef struct stage {
    int leaves, groups, stride;
} stage;

struct pd_adasum {
    pd_adasum_form form;
    pd_vectors in;
    int64_t n, range, ranges; /* number of elements of a vector; number of elements in a range; number of ranges in a
                               * vector */
    float *to;
    stage stage;
    /* Number of leaves of the whole tree of merges: the largest power of two that is at most k, the number of vectors.
     * 1 in the other forms, which have no tree. */
    int width;
    /* whether this stage reads the vectors in `in`; later stages read the results of the stage before */
    bool first;
    bool combines; /* whether this pass combines the vectors; otherwise it computes their dot products */
    int n_dots;    /* number of dot products that one unit computes */
    double *dots;  /* the dot products, by group, range and index of the dot product */
    /* The factor of each vector in the result, by group and member of the group; 1 until it is computed. Lies in the
     * allocation of `dots`. */
    double *scale;
    float *largest; /* for each range, the largest magnitude of the result (pd_largest); lies in the allocation of
                     * `dots` */
    /* The radial mean only: the weight of each vector, in the allocation of `dots`; the mean of the norms; the sum of
     * the squared weights of vectors that are not zero. */
    pd_vector_weight *weight;
    double norm, squares;
    bool directed; /* `scale` has the factors of the weighted directions, and this pass takes the norm of their sum */
    float *scratch[];
};

bool pd_adasum_is_exact(int k)
{
    return (k & (k - 1)) == 0;
}

static int largest_power(int k)
{
    int power = 1;

    while (power * 2 <= k) power *= 2;
    return power;
}

/* Returns the number of leaves of a group in the first stage. The leaves and the surplus vectors that are merged into
 * them are at most MANY vectors. */
static int first_leaves(int k)
{
    int width = largest_power(k), most = width == k ? MANY : MANY / 2;

    return width < most ? width : most;
}

int64_t pd_adasum_scratch_vectors(pd_adasum_form form, int k)
{
    return form != PD_ADASUM_TREE ? 0 : largest_power(k) / first_leaves(k) - 1;
}

/* Stores in `member` the numbers of the vectors that group g merges: first its leaves, then the surplus vectors that
 * are merged into the leaves. Returns how many they are. */
static int members(const pd_adasum *a, int g, int *member)
{
    const stage *s = &a->stage;
    int n = 0;

    for (int j = 0; j < s->leaves; j++) member[n++] = (g * s->leaves + j) * s->stride;
    for (int j = 0; a->first && j < s->leaves; j++)
        if (member[j] + a->width < a->in.k) member[n++] = member[j] + a->width;
    return n;
}

/* Returns the array for the result of the group whose first vector is number `leaf`. Each group of the first stage has
 * an array: `to` for group 0, a scratch vector for each other group. A group of a later stage overwrites the first
 * array that it reads. */
static float *result(const pd_adasum *a, int leaf)
{
    int slot = leaf / first_leaves(a->in.k);

    return slot == 0 ? a->to : a->scratch[slot - 1];
}

/* Returns elements [first, first + n) of a vector that this stage reads, followed by zeros up to `room` elements.
 * Copies them into the buffer `tile` if necessary. */
static const float *load(const pd_adasum *a, int vector, size_t run, int64_t first, int64_t n, int64_t room,
                         float *tile)
{
    if (a->first) return pd_vectors_load(&a->in, vector, run, first, n, room, tile);
    if (n == room) return result(a, vector) + first;
    memcpy(tile, result(a, vector) + first, (size_t)n * sizeof *tile);
    memset(tile + n, 0, (size_t)(room - n) * sizeof *tile);
    return tile;
}

/* Elements [first, first + n) of all vectors, at most BLOCK. In the first stage, `run` is the index of the run that
 * contains element `first`. */
typedef struct block {
    int64_t first, n;
    size_t run;
} block;

static block first_block(const pd_adasum *a, int64_t range)
{
    block b = { .first = range * a->range };

    b.n = a->n - b.first < BLOCK ? a->n - b.first : BLOCK;
    b.run = a->first ? pd_vectors_run(&a->in, b.first) : 0;
    return b;
}

static bool next_block(const pd_adasum *a, int64_t range, block *b)
{
    int64_t end = (range + 1) * a->range < a->n ? (range + 1) * a->range : a->n;

    b->first += b->n;
    if (b->first >= end) return false;
    b->n = end - b->first < BLOCK ? end - b->first : BLOCK;
    while (a->first && a->in.ends[b->run] <= b->first) b->run++;
    return true;
}

/* Adds k vectors, each times its factor, to `sum`, in order, in one loop. With `first`, the old values of `sum` are
 * ignored. The callers pass `k` and `first` as constants, so the compiler unrolls the loop. */
PD_INLINE void sum_group(double *restrict sum, const float *const *x, const double *scale, int k, bool first)
{
    for (int i = 0; i < BLOCK; i++) {
        double s = first ? scale[0] * (double)x[0][i] : sum[i] + scale[0] * (double)x[0][i];
        for (int j = 1; j < k; j++) s += scale[j] * (double)x[j][i];
        sum[i] = s;
    }
}

#define SUM(k)                                                                                                         \
    PD_CLONES(void, set_##k, (double *sum, const float *const *x, const double *scale), (sum, x, scale))               \
    {                                                                                                                  \
        sum_group(sum, x, scale, k, true);                                                                             \
    }                                                                                                                  \
    PD_CLONES(void, add_##k, (double *sum, const float *const *x, const double *scale), (sum, x, scale))               \
    {                                                                                                                  \
        sum_group(sum, x, scale, k, false);                                                                            \
    }
SUM(1)
SUM(4)

/* Adds k <= MANY vectors, each times its factor, to `sum`. With `first`, the old values of `sum` are ignored. */
static void sum_block(double *sum, const float *const *x, const double *scale, int k, bool first)
{
    for (int j = 0, some; j < k; j += some, first = false) {
        some = k - j >= 4 ? 4 : 1;
        if (some == 4)
            (first ? set_4 : add_4)(sum, x + j, scale + j);
        else
            (first ? set_1 : add_1)(sum, x + j, scale + j);
    }
}

/* Computes the sum of k vectors over one `block` of elements, MANY vectors at a time. Term j is scale[j] times vector
 * number member[j], or number j if `member` is NULL. */
static void sum_vectors(const pd_adasum *a, const block *b, int k, const int *member, const double *scale, double *sum)
{
    float tile[MANY][BLOCK];
    const float *x[MANY];

    for (int j = 0, some; j < k; j += some) {
        some = k - j < MANY ? k - j : MANY;
        for (int i = 0; i < some; i++)
            x[i] = load(a, member != NULL ? member[j + i] : j + i, b->run, b->first, b->n, BLOCK, tile[i]);
        sum_block(sum, x, scale + j, some, j == 0);
    }
}

PD_CLONES(void, widen, (double *restrict to, const float *restrict x), (to, x))
{
    /* Prefetches the next BLOCK elements, which reach the cache while dot products of these elements are computed. */
    for (int i = 0; i < BLOCK; i += LINE) {
        __builtin_prefetch(x + i + BLOCK, 0, 2);
        for (int j = i; j < i + LINE; j++) to[j] = (double)x[j];
    }
}

/* Computes the dot products of all pairs of vectors that group g merges, over one range of elements. */
static void take_dots(const pd_adasum *a, int g, int64_t range, double *dots)
{
    pd_gram gram = { 0 };
    alignas(64) double wide[MANY][BLOCK];
    float tile[BLOCK];
    const double *x[MANY];
    int member[MANY], k = members(a, g, member);
    block b = first_block(a, range);

    for (int j = 0; j < k; j++) x[j] = wide[j];
    do {
        for (int j = 0; j < k; j++) widen(wide[j], load(a, member[j], b.run, b.first, b.n, BLOCK, tile));
        pd_gram_add(&gram, x, k);
    } while (next_block(a, range, &b));
    pd_gram_fold(&gram, dots);
}

/* Adds the dot product of a vector g with the sum s to dots[0], and the dot product of g with itself to dots[1]. */
PD_CLONES(void, dots_with_sum, (double *dots, const float *g, const double *s), (dots, g, s))
{
    pd_lanes gs = { 0 }, gg = { 0 };

    for (int i = 0; i < BLOCK; i += 8) {
        pd_lanes x = pd_lanes_of(g + i);
        pd_lanes_add_product(&gs, x, (pd_lanes){ PD_DOUBLES(s + i), PD_DOUBLES(s + i + 4) });
        pd_lanes_add_product(&gg, x, x);
    }
    dots[0] += pd_lanes_sum(gs);
    dots[1] += pd_lanes_sum(gg);
}

/* Computes the dot products that the vdot form of Adasum needs over a range of elements: each vector with the sum of
 * all vectors, and with itself. The factors in a->scale are still 1 here, so sum_vectors computes the plain sum. */
static void take_vdots(const pd_adasum *a, int64_t range, double *dots)
{
    float tile[BLOCK];
    double sum[BLOCK];
    block b = first_block(a, range);

    do {
        sum_vectors(a, &b, a->in.k, NULL, a->scale, sum);
        for (int r = 0; r < a->in.k; r++)
            dots_with_sum(dots + 2 * r, load(a, r, b.run, b.first, b.n, BLOCK, tile), sum);
    } while (next_block(a, range, &b));
}

PD_CLONES(double, sum_squares, (const double *x), (x))
{
    pd_lanes sum = { 0 };

    for (int i = 0; i < BLOCK; i += 8) {
        pd_lanes some = { PD_DOUBLES(x + i), PD_DOUBLES(x + i + 4) };
        pd_lanes_add_product(&sum, some, some);
    }
    return pd_lanes_sum(sum);
}

/* Computes what the radial mean needs over a range of elements: the squared norm of each vector; or, when their factors
 * are known, the squared norm of the sum of the weighted directions. */
static void take_norms(const pd_adasum *a, int64_t range, double *dots)
{
    float tile[BLOCK];
    double sum[BLOCK];
    block b = first_block(a, range);

    do {
        if (a->directed) {
            sum_vectors(a, &b, a->in.k, NULL, a->scale, sum);
            dots[0] += sum_squares(sum);
        }
        for (int r = 0; r < a->in.k && !a->directed; r++)
            dots[r] += pd_sum_squares(load(a, r, b.run, b.first, b.n, BLOCK, tile), BLOCK);
    } while (next_block(a, range, &b));
}

/* The vectors of a group while they are merged in pairs. Node m stands for a merged vector, the sum over i of
 * scale[m][i] times vector i. dot[a][b] is the dot product of nodes a and b. */
typedef struct merging {
    int k;
    double scale[MANY][MANY];
    double dot[MANY][MANY];
} merging;

/* Updates the dot products after node a was replaced by the merged vector, f times node a plus g times node b. */
static void merge_dots(merging *m, int a, int b, double f, double g)
{
    double aa = f * f * m->dot[a][a], bb = g * g * m->dot[b][b], norm = aa + 2 * f * g * m->dot[a][b] + bb;
    bool cancelled = norm < CANCELLED * (aa + bb);

    for (int i = 0; i < m->k; i++) m->dot[a][i] = m->dot[i][a] = cancelled ? 0 : f * m->dot[a][i] + g * m->dot[b][i];
    m->dot[a][a] = cancelled ? 0 : norm;
}

/* Replaces the merged vector of node a by merge(a, b), the Adasum of nodes a and b. */
static void merge(merging *m, int a, int b)
{
    double ab = m->dot[a][b], f = 1 - ab / (2 * m->dot[a][a] + EPSILON), g = 1 - ab / (2 * m->dot[b][b] + EPSILON);

    for (int i = 0; i < m->k; i++) m->scale[a][i] = f * m->scale[a][i] + g * m->scale[b][i];
    merge_dots(m, a, b, f, g);
}

/* Computes the factors with which the vectors of group g enter its merged vector, from their dot products. */
static void tree_scales(const pd_adasum *a, int g, const double *dots, double *scale)
{
    int member[MANY], leaves = a->stage.leaves;
    merging m = { .k = members(a, g, member) };

    for (int j = 0; j < m.k; j++) {
        m.scale[j][j] = 1;
        for (int i = 0; i <= j; i++) m.dot[i][j] = m.dot[j][i] = dots[PD_GRAM_AT(i, j)];
    }
    for (int j = leaves; j < m.k; j++) merge(&m, j - leaves, j);
    for (int half = 1; half < leaves; half *= 2)
        for (int j = 0; j + half < leaves; j += 2 * half) merge(&m, j, j + half);
    memcpy(scale, m.scale[0], sizeof m.scale[0]);
}

static void vdot_scales(int k, const double *dots, double *scale)
{
    for (int r = 0; r < k; r++) {
        double gs = dots[2 * r], gg = dots[2 * r + 1];
        scale[r] = 1 - (gs - gg) / (k * gg);
    }
}

/* Computes the mean of the norms, and the factors that turn the vectors into their weighted directions, from the
 * squared norms. A vector of zeros has no direction. */
static void direct(pd_adasum *a, const double *dots)
{
    double total = 0;

    a->norm = a->squares = 0;
    for (int r = 0; r < a->in.k; r++) {
        const pd_vector_weight *w = &a->weight[r];
        double norm = sqrt(dots[r]), weight = w->weight * w->damping;
        total += weight;
        a->norm += norm * (w->presummed ? w->damping : weight);
        a->squares += norm == 0 ? 0 : weight * weight;
        a->scale[r] = norm == 0 ? 0 : weight / norm;
    }
    a->norm /= total;
}

/* Computes the factors of the vectors in the radial mean, from the squared norm of the sum of the directions. */
static void radial_scales(pd_adasum *a, double squared)
{
    double factor = squared <= CANCELLED * a->squares ? 0 : a->norm / sqrt(squared);

    for (int r = 0; r < a->in.k; r++) a->scale[r] *= factor;
}

/* Adds up the dot products of group g over all ranges of elements, in order. Stores the sums in place of the dot
 * products of the first range, and returns them. */
static double *fold_ranges(const pd_adasum *a, int g)
{
    double *sum = a->dots + (size_t)g * (size_t)a->ranges * (size_t)a->n_dots;

    for (int64_t range = 1; range < a->ranges; range++)
        for (int i = 0; i < a->n_dots; i++) sum[i] += sum[range * a->n_dots + i];
    return sum;
}

/* Rounds n sums to float32 and writes them to `to`. Returns the largest magnitude of a result (pd_largest). */
PD_CLONES(float, store, (float *restrict to, const double *restrict sum, int64_t n), (to, sum, n))
{
    int32_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        to[i] = (float)sum[i];
        bits = (int32_t)(pd_f32_bits(to[i]) & 0x7fffffffu);
        most = bits > most ? bits : most;
    }
    return pd_f32_from_bits((uint32_t)most);
}

static float combine(const pd_adasum *a, int k, const int *member, const double *scale, float *to, int64_t range)
{
    double sum[BLOCK];
    block b = first_block(a, range);
    float largest = 0;

    do {
        sum_vectors(a, &b, k, member, scale, sum);
        largest = pd_larger(largest, store(to + b.first, sum, b.n));
    } while (next_block(a, range, &b));
    return largest;
}

static void clear_dots(pd_adasum *a)
{
    memset(a->dots, 0, (size_t)a->stage.groups * (size_t)a->ranges * (size_t)a->n_dots * sizeof *a->dots);
}

static void plan_stage(pd_adasum *a)
{
    bool tree = a->form == PD_ADASUM_TREE;

    if (a->first)
        a->stage =
            tree ? (stage){ first_leaves(a->in.k), a->width / first_leaves(a->in.k), 1 } : (stage){ a->in.k, 1, 1 };
    else
        a->stage = (stage){ a->stage.groups < MANY ? a->stage.groups : MANY, 0, a->stage.stride * a->stage.leaves };
    if (!a->first) a->stage.groups = a->width / a->stage.stride / a->stage.leaves;
    a->combines = a->form != PD_ADASUM_VDOT && a->in.k == 1;
    clear_dots(a);
}

/* Returns the number of elements of a range. If a unit reads more than MANY vectors, its range is shorter, so that all
 * units read about the same amount of memory. */
static int64_t range_of(pd_adasum_form form, int k)
{
    int64_t range = form != PD_ADASUM_TREE && k > MANY ? (int64_t)RANGE * MANY / k / BLOCK * BLOCK : RANGE;

    return range > LEAST_RANGE ? range : LEAST_RANGE;
}

int pd_adasum_begin(pd_adasum **out, pd_adasum_form form, const pd_vectors *v, int64_t n, float *to,
                    float *const *scratch)
{
    bool tree = form == PD_ADASUM_TREE, radial = form == PD_RADIAL_MEAN_FORM;
    int n_dots = tree ? PD_GRAM_DOTS : radial ? v->k : 2 * v->k;
    int64_t range = range_of(form, v->k);
    size_t spare = (size_t)pd_adasum_scratch_vectors(form, v->k), ranges = (size_t)((n + range - 1) / range);
    size_t scales = tree ? (spare + 1) * MANY : (size_t)v->k, dots = (spare + 1) * ranges * (size_t)n_dots,
           weights = radial ? (size_t)v->k : 0;
    pd_adasum *a = calloc(1, sizeof *a + spare * sizeof *a->scratch);

    assert(v->k >= 1 && n >= 0 && (n == 0 || v->ends[v->n_runs - 1] == n));
    if (a == NULL) return PD_NO_MEMORY;
    *a = (pd_adasum){ .form = form,
                      .in = *v,
                      .n = n,
                      .range = range,
                      .ranges = (int64_t)ranges,
                      .to = to,
                      .first = true,
                      .width = tree ? largest_power(v->k) : 1,
                      .n_dots = n_dots };
    if ((a->dots = malloc((dots + scales) * sizeof *a->dots + weights * sizeof *a->weight +
                          (ranges + 1) * sizeof *a->largest)) == NULL) {
        pd_adasum_end(a);
        return PD_NO_MEMORY;
    }
    a->scale = a->dots + dots;
    a->weight = (pd_vector_weight *)(a->scale + scales);
    a->largest = (float *)(a->weight + weights);
    for (size_t i = 0; i < spare; i++) a->scratch[i] = scratch[i];
    for (size_t i = 0; i < scales; i++) a->scale[i] = 1;
    for (size_t i = 0; i < weights; i++) a->weight[i] = (pd_vector_weight){ 1, 1, false };
    plan_stage(a);
    *out = a;
    return PD_OK;
}

void pd_adasum_weigh(pd_adasum *a, int r, pd_vector_weight weight)
{
    assert(a->form == PD_RADIAL_MEAN_FORM && r < a->in.k && weight.weight > 0 && weight.damping > 0);
    a->weight[r] = weight;
    if (a->in.k == 1) a->scale[0] = (double)(float)weight.damping / (weight.presummed ? weight.weight : 1);
}

void pd_adasum_end(pd_adasum *a)
{
    if (a == NULL) return;
    free(a->dots);
    free(a);
}

int64_t pd_adasum_units(const pd_adasum *a)
{
    return a->stage.groups * a->ranges;
}

static int group_size(const pd_adasum *a)
{
    int member[MANY];

    return a->form != PD_ADASUM_TREE ? a->in.k : members(a, 0, member);
}

double pd_adasum_unit_ns(const pd_adasum *a)
{
    double k = group_size(a), n = (double)(a->n < a->range ? a->n : a->range),
           pairs = a->form != PD_ADASUM_TREE ? a->n_dots : k * (k + 1) / 2;

    return n * (NS_PER_TERM * k + (a->combines ? 0 : NS_PER_DOT * pairs));
}

void pd_adasum_unit(pd_adasum *a, int64_t i)
{
    int64_t range = i / a->stage.groups;
    int g = (int)(i % a->stage.groups), member[MANY], k = a->form == PD_ADASUM_TREE ? members(a, g, member) : a->in.k;
    double *dots = a->dots + ((size_t)g * (size_t)a->ranges + (size_t)range) * (size_t)a->n_dots;

    if (a->combines) {
        const int *which = a->form == PD_ADASUM_TREE ? member : NULL;
        float largest =
            combine(a, k, which, a->scale + (size_t)g * MANY, result(a, g * a->stage.leaves * a->stage.stride), range);
        if (a->stage.groups == 1) a->largest[range] = largest;
    } else if (a->form == PD_ADASUM_TREE) {
        take_dots(a, g, range, dots);
    } else if (a->form == PD_RADIAL_MEAN_FORM) {
        take_norms(a, range, dots);
    } else {
        take_vdots(a, range, dots);
    }
}

/* Moves the radial mean from the norms of the vectors to the norm of their directions' sum, and then to the result. */
static void turn_radial(pd_adasum *a)
{
    if (a->directed) {
        radial_scales(a, fold_ranges(a, 0)[0]);
        a->combines = true;
    } else {
        direct(a, fold_ranges(a, 0));
        clear_dots(a);
        a->directed = true;
    }
}

void pd_adasum_turn(pd_adasum *a)
{
    if (!a->combines && a->form == PD_RADIAL_MEAN_FORM) {
        turn_radial(a);
    } else if (!a->combines) {
        for (int g = 0; g < a->stage.groups; g++) {
            if (a->form == PD_ADASUM_TREE)
                tree_scales(a, g, fold_ranges(a, g), a->scale + (size_t)g * MANY);
            else
                vdot_scales(a->in.k, fold_ranges(a, g), a->scale);
        }
        a->combines = true;
    } else if (a->stage.groups > 1) {
        a->first = false;
        plan_stage(a);
    } else {
        a->stage.groups = 0;
    }
}

float pd_adasum_largest(const pd_adasum *a)
{
    float largest = 0;

    for (int64_t range = 0; range < a->ranges; range++) largest = pd_larger(largest, a->largest[range]);
    return largest;
}
