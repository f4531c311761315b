/* Tests scalable_shampoo against a second, simple implementation in float64, on random shapes and hyperparameters. */
#include "test.h"
#include "root.h"
#include "root_types.h"
#include "scalable_shampoo.h"
#include "shampoos.h"
#include "partition.h"

enum { MOST = 600, MOST_STATISTICS = 96, MOST_SIDE = 16, STEPS = 7 };

typedef struct twin {
    double h[PD_MAX_HYPERS];
    pd_shape shape, merged;
    int64_t n, block_size;
    bool preconditioned;
    int statistics;
    double W[MOST], m[MOST], md[MOST], V[MOST];
    int64_t side[MOST_STATISTICS];
    double S[MOST_STATISTICS][MOST_SIDE * MOST_SIDE], X[MOST_STATISTICS][MOST_SIDE * MOST_SIDE];
    double waiting[STEPS + 1][MOST_STATISTICS]
                  [MOST_SIDE * MOST_SIDE]; /* roots not used yet, indexed by the step of their statistics; first
                                            * element NAN: refused or not due */
} twin;

/* Returns the block in which an element lies. `within` gets the element's index in the block along each dimension. */
static int64_t locate(const twin *t, int64_t element, int64_t *within)
{
    int64_t block = 0, index[PD_MAX_RANK], cuts[PD_MAX_RANK];

    for (int d = t->merged.rank - 1; d >= 0; d--) {
        int64_t size = t->block_size > 0 ? t->block_size : t->merged.dim[d];
        index[d] = element % t->merged.dim[d];
        element /= t->merged.dim[d];
        cuts[d] = (t->merged.dim[d] + size - 1) / size;
        within[d] = index[d] % size;
        index[d] /= size;
    }
    for (int d = 0; d < t->merged.rank; d++) block = block * cuts[d] + index[d];
    return block;
}

static void twin_init(twin *t, const pd_hypers *hypers, const pd_shape *shape, const float *weights)
{
    memset(t, 0, sizeof *t);
    memcpy(t->h, hypers->value, sizeof t->h);
    t->shape = *shape;
    t->block_size = (int64_t)t->h[BLOCK_SIZE];
    assert_int_equal(pd_shape_elements(shape, &t->n), PD_OK);
    t->merged = t->h[INTERPRET_SHAPES] != 0 ? pd_shape_merged(shape, t->block_size) : *shape;
    t->preconditioned = shape->rank > 0 && t->n > 0;
    for (int d = 0; d < shape->rank; d++) t->preconditioned &= shape->dim[d] <= (int64_t)t->h[SKIP_SIZE];
    for (int64_t i = 0; i < t->n; i++) t->W[i] = (double)weights[i];
    for (int64_t i = 0; t->preconditioned && i < t->n; i++) {
        int64_t within[PD_MAX_RANK], block = locate(t, i, within);
        for (int d = 0; d < t->merged.rank; d++) {
            int k = (int)block * t->merged.rank + d;
            assert_true(k < MOST_STATISTICS && within[d] < MOST_SIDE);
            if (within[d] + 1 > t->side[k]) t->side[k] = within[d] + 1;
            if (k + 1 > t->statistics) t->statistics = k + 1;
        }
    }
    for (int k = 0; k < t->statistics; k++)
        for (int64_t i = 0; i < t->side[k]; i++) {
            t->S[k][i * t->side[k] + i] = (double)(float)t->h[MATRIX_EPSILON];
            t->X[k][i * t->side[k] + i] = 1;
        }
}

/* Returns the distance in elements between neighbours along a dimension. */
static int64_t stride_of(const twin *t, int dim)
{
    int64_t stride = 1;

    for (int d = dim + 1; d < t->merged.rank; d++) stride *= t->merged.dim[d];
    return stride;
}

static void twin_statistics(twin *t, const float *G)
{
    double w1 = t->h[BETA2], w2 = t->h[BETA2] == 1 ? 1 : 1 - t->h[BETA2];
    static double added[MOST_STATISTICS][MOST_SIDE * MOST_SIDE];

    memset(added, 0, sizeof added);
    for (int64_t i = 0; i < t->n; i++) {
        int64_t within[PD_MAX_RANK], block = locate(t, i, within);
        for (int d = 0; d < t->merged.rank; d++) {
            int k = (int)block * t->merged.rank + d;
            for (int64_t a = 0; a < t->side[k]; a++)
                added[k][within[d] * t->side[k] + a] += (double)G[i] * (double)G[i + (a - within[d]) * stride_of(t, d)];
        }
    }
    for (int k = 0; k < t->statistics; k++)
        for (int64_t i = 0; i < t->side[k] * t->side[k]; i++) t->S[k][i] = w1 * t->S[k][i] + w2 * added[k][i];
}

static void twin_roots(twin *t, int step)
{
    int64_t largest = 0;

    for (int k = 0; k < t->statistics; k++)
        if (t->side[k] > largest) largest = t->side[k];
    for (int k = 0; k < t->statistics; k++) {
        float A[MOST_SIDE * MOST_SIDE], X[MOST_SIDE * MOST_SIDE];
        int64_t n = t->side[k];
        pd_root_want want = { .method = PD_ROOT_NEWTON,
                              .p = t->h[EXPONENT_OVERRIDE] > 0 ? (int)t->h[EXPONENT_OVERRIDE] : 2 * t->merged.rank,
                              .epsilon = t->h[MATRIX_EPSILON],
                              .padded_side = t->h[PADDING_COUPLING] != 0 ? largest : 0,
                              .padding = 1 };
        pd_root_report report;
        int rc;
        for (int64_t i = 0; i < n * n; i++) A[i] = (float)t->S[k][i];
        rc = pd_root_newton(pd_mat_dense(X, n, n), pd_mat_dense(A, n, n), &want, &report);
        for (int64_t i = 0; i < n * n; i++) t->waiting[step][k][i] = (double)X[i];
        if (rc != PD_OK || !(report.error < t->h[FAILURE_THRESHOLD])) t->waiting[step][k][0] = NAN;
    }
}

static void twin_adopt(twin *t, int step)
{
    for (int k = 0; k < t->statistics; k++)
        if (!isnan(t->waiting[step][k][0])) memcpy(t->X[k], t->waiting[step][k], sizeof t->X[k]);
}

static void twin_direction(const twin *t, const float *G, double *P)
{
    double next[MOST];

    for (int64_t i = 0; i < t->n; i++) P[i] = (double)G[i];
    for (int d = 0; d < t->merged.rank; d++) {
        for (int64_t i = 0; i < t->n; i++) {
            int64_t within[PD_MAX_RANK], k = locate(t, i, within) * t->merged.rank + d;
            next[i] = 0;
            for (int64_t a = 0; a < t->side[k]; a++)
                next[i] += P[i + (a - within[d]) * stride_of(t, d)] * t->X[k][a * t->side[k] + within[d]];
        }
        memcpy(P, next, (size_t)t->n * sizeof *P);
    }
}

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static void twin_graft(twin *t, const float *G, double *D)
{
    int type = (int)t->h[GRAFT_TYPE];
    bool sums = type == GRAFT_ADAGRAD || type == GRAFT_ADAGRAD_NORMALIZED || t->h[BETA2] == 1;
    bool rms = type == GRAFT_RMSPROP || type == GRAFT_RMSPROP_NORMALIZED;
    double divisor = 1, excess;

    for (int64_t i = 0; i < t->n; i++) D[i] = (double)G[i];
    if (type == GRAFT_RMSPROP_NORMALIZED || type == GRAFT_ADAGRAD_NORMALIZED) divisor = norm_of(D, t->n) + 1e-16;
    for (int64_t i = 0; i < t->n; i++) {
        double g = D[i] / divisor;
        if (type == GRAFT_SQRT_N) D[i] = (g > 0) - (g < 0);
        if (type == GRAFT_SGD || type == GRAFT_SQRT_N) continue;
        t->V[i] = (sums ? 1 : t->h[BETA2]) * t->V[i] + (sums ? 1 : 1 - t->h[BETA2]) * g * g;
        D[i] = g / (sqrt(t->V[i]) + t->h[DIAGONAL_EPSILON]);
    }
    if (!rms || t->h[CLIP] <= 0) return;
    excess = norm_of(D, t->n) / sqrt((double)t->n) / t->h[CLIP];
    for (int64_t i = 0; excess > 1 && i < t->n; i++) D[i] /= excess;
}

static void twin_move(twin *t, const double *P, const double *D, int step)
{
    double length = norm_of(D, t->n) / (norm_of(P, t->n) + 1e-16), beta1 = t->h[BETA1],
           w = t->h[MOVING_AVERAGE] != 0 ? 1 - beta1 : 1;
    bool run = step - 1 >= t->h[START_STEP], shared = t->h[GRAFT_TYPE] == GRAFT_SQRT_N;

    for (int64_t i = 0; i < t->n; i++) {
        double u = P[i] * length + t->h[WEIGHT_DECAY] * t->W[i], d = D[i] + t->h[WEIGHT_DECAY] * t->W[i];
        double mu = beta1 * t->m[i] + w * u, md = beta1 * (shared ? t->m[i] : t->md[i]) + w * d;
        double m = run ? mu : md;
        t->m[i] = shared ? m : mu;
        t->md[i] = md;
        t->W[i] -= t->h[LEARNING_RATE] * (t->h[NESTEROV] != 0 ? w * (run ? u : d) + beta1 * m : m);
    }
}

static void twin_step(twin *t, const float *G, int step)
{
    double P[MOST], D[MOST];
    int delay = t->h[SHARDED] != 0 && t->h[ROOT_DELAY] == 0 ? 1 : (int)t->h[ROOT_DELAY];

    if ((step - 1) % (int)t->h[STATISTICS_INTERVAL] == 0) twin_statistics(t, G);
    for (int k = 0; k < t->statistics; k++) t->waiting[step][k][0] = NAN;
    if ((step - 1) % (int)t->h[ROOT_INTERVAL] == 0) twin_roots(t, step);
    if (step - delay >= 1) twin_adopt(t, step - delay);
    twin_graft(t, G, D);
    if (t->preconditioned)
        twin_direction(t, G, P);
    else
        memcpy(P, D, sizeof P);
    twin_move(t, P, D, step);
}

/* Returns a random shape of rank 0 to 4. Block sizes of 2 to 6 cut and merge its dimensions in every way. */
static pd_shape random_shape(void)
{
    static const int64_t most[] = { 1, 16, 14, 7, 4 };
    pd_shape shape = { .rank = (int)shampoo_below(5) };

    for (int d = 0; d < shape.rank; d++) shape.dim[d] = 1 + shampoo_below(most[shape.rank]);
    return shape;
}

static void set(pd_hypers *hypers, int which, double value)
{
    hypers->value[which] = value;
}

static pd_hypers random_hypers(int trial)
{
    static const double decays[] = { 1, 0.9, 0.99 };
    pd_hypers h;

    pd_hypers_init(&h, pd_optim_find("scalable_shampoo"));
    set(&h, GRAFT_TYPE, trial % 6);
    set(&h, BLOCK_SIZE, 3 + shampoo_below(5));
    set(&h, BETA1, (double)shampoo_below(3) * 0.45);
    set(&h, BETA2, decays[shampoo_below(3)]);
    set(&h, DIAGONAL_EPSILON, 1e-3);
    set(&h, MATRIX_EPSILON, 1e-2);
    set(&h, WEIGHT_DECAY, shampoo_below(2) * 0.1);
    set(&h, START_STEP, shampoo_below(4));
    set(&h, ROOT_INTERVAL, 1 + shampoo_below(3));
    set(&h, STATISTICS_INTERVAL, 1 + shampoo_below(2));
    set(&h, INTERPRET_SHAPES, shampoo_below(2));
    set(&h, NESTEROV, shampoo_below(2));
    set(&h, EXPONENT_OVERRIDE, shampoo_below(3) == 0 ? 1 + shampoo_below(4) : 0);
    set(&h, MOVING_AVERAGE, shampoo_below(2));
    set(&h, SKIP_SIZE, shampoo_below(4) == 0 ? 5 : 4096);
    set(&h, CLIP, shampoo_below(2) * 0.7);
    set(&h, SHARDED, shampoo_below(4) == 0);
    set(&h, ROOT_DELAY, shampoo_below((int64_t)h.value[ROOT_INTERVAL] + 1));
    set(&h, PADDING_COUPLING, shampoo_below(2));
    assert_int_equal(pd_hypers_check(&h, NULL), PD_OK);
    return h;
}

static void compare_with_twin(int trial)
{
    static twin t;
    float weights[MOST], gradient[MOST];
    pd_declaration param = { .name = "w", .shape = random_shape(), .hypers = random_hypers(trial) };
    pd_model *model = shampoo_model(&param, 1, 1);
    char shape[64];

    shampoo_fill(weights, MOST, 1);
    twin_init(&t, &param.hypers, &param.shape, weights);
    for (int step = 1; step <= STEPS; step++) {
        shampoo_fill(gradient, t.n, 1);
        shampoo_step_one(model, gradient, weights);
        twin_step(&t, gradient, step);
        if (!(shampoo_difference(weights, t.W, t.n) < 2e-5))
            fail_msg("trial %d, shape %s, graft %g, step %d: off by %g", trial,
                     pd_shape_text(&param.shape, shape, sizeof shape), param.hypers.value[GRAFT_TYPE], step,
                     shampoo_difference(weights, t.W, t.n));
    }
    pd_model_free(model);
}

TEST(agrees_with_a_naive_twin_in_float64)
{
    shampoo_seed(4);
    for (int trial = 0; trial < 300; trial++) compare_with_twin(trial);
}
