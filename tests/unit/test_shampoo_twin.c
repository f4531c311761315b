/* Tests the optimizer shampoo against a second, simple implementation in float64, on random shapes and
 * hyperparameters. The second implementation computes roots by an eigendecomposition of its own. */
#include "test.h"
#include "shampoo_step.h"
#include "shampoos.h"
#include "partition.h"

enum { MOST = 600, MOST_FACTORS = 96, MOST_SIDE = 16, STEPS = 8 };

typedef double square[MOST_SIDE * MOST_SIDE];

typedef struct twin {
    double h[PD_MAX_HYPERS];
    pd_shape merged;
    int64_t n, limit;
    int factors, blocks;
    double W[MOST], F[MOST], M[MOST], V[MOST];
    int64_t side[MOST_FACTORS];
    square L[MOST_FACTORS], R[MOST_FACTORS], waiting[STEPS + 1][MOST_FACTORS];
    bool due[STEPS + 1], has_roots;
} twin;

/* Returns the block in which an element lies. `within` gets the element's index in the block along each dimension. */
static int64_t locate(const twin *t, int64_t element, int64_t *within)
{
    int64_t block = 0, index[PD_MAX_RANK], cuts[PD_MAX_RANK];

    for (int d = t->merged.rank - 1; d >= 0; d--) {
        index[d] = element % t->merged.dim[d];
        element /= t->merged.dim[d];
        cuts[d] = (t->merged.dim[d] + t->limit - 1) / t->limit;
        within[d] = index[d] % t->limit;
        index[d] /= t->limit;
    }
    for (int d = 0; d < t->merged.rank; d++) block = block * cuts[d] + index[d];
    return block;
}

static void twin_init(twin *t, const pd_declaration *param, const float *weights)
{
    memset(t, 0, sizeof *t);
    memcpy(t->h, param->hypers.value, sizeof t->h);
    t->limit = (int64_t)t->h[MAX_DIM];
    assert_int_equal(pd_shape_elements(&param->shape, &t->n), PD_OK);
    t->merged = t->h[MERGE_DIMS] != 0 ? pd_shape_merged(&param->shape, t->limit) : param->shape;
    if (t->merged.rank == 0) t->merged = (pd_shape){ 1, { 1 } };
    for (int64_t i = 0; i < t->n; i++) {
        int64_t within[PD_MAX_RANK], block = locate(t, i, within);
        t->W[i] = (double)weights[i];
        if (block + 1 > t->blocks) t->blocks = (int)block + 1;
        for (int d = 0; d < t->merged.rank; d++) {
            int k = (int)block * t->merged.rank + d;
            assert_true(k < MOST_FACTORS && within[d] < MOST_SIDE);
            if (within[d] + 1 > t->side[k]) t->side[k] = within[d] + 1;
            if (k + 1 > t->factors) t->factors = k + 1;
        }
    }
}

static int64_t stride_of(const twin *t, int dim)
{
    int64_t stride = 1;

    for (int d = dim + 1; d < t->merged.rank; d++) stride *= t->merged.dim[d];
    return stride;
}

static void twin_factors(twin *t, const double *G)
{
    double w1 = t->h[BETA2], w2 = t->h[BETA2] == 1 ? 1 : 1 - t->h[BETA2];

    for (int k = 0; k < t->factors; k++)
        for (int64_t i = 0; i < t->side[k] * t->side[k]; i++) t->L[k][i] *= w1;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t within[PD_MAX_RANK], block = locate(t, i, within);
        for (int d = 0; d < t->merged.rank; d++) {
            int k = (int)block * t->merged.rank + d;
            for (int64_t a = 0; a < t->side[k]; a++)
                t->L[k][within[d] * t->side[k] + a] += w2 * G[i] * G[i + (a - within[d]) * stride_of(t, d)];
        }
    }
}

static double correction(double beta, int step)
{
    return (double)(1.0f - powf((float)beta, (float)step));
}

/* Does one sweep of Jacobi rotations. A becomes more diagonal, and the rows of Q approach its eigenvectors. */
static void sweep(double *A, double *Q, int64_t n)
{
    for (int64_t p = 0; p < n; p++)
        for (int64_t q = p + 1; q < n; q++) {
            double angle = 0.5 * atan2(2 * A[p * n + q], A[q * n + q] - A[p * n + p]), c = cos(angle), s = sin(angle);
            for (int64_t i = 0; i < n; i++) {
                double x = A[p * n + i], y = A[q * n + i], u = Q[p * n + i], v = Q[q * n + i];
                A[p * n + i] = c * x - s * y, A[q * n + i] = s * x + c * y;
                Q[p * n + i] = c * u - s * v, Q[q * n + i] = s * u + c * v;
            }
            for (int64_t i = 0; i < n; i++) {
                double x = A[i * n + p], y = A[i * n + q];
                A[i * n + p] = c * x - s * y, A[i * n + q] = s * x + c * y;
            }
        }
}

static void power_of(double *X, const double *L, int64_t n, double divisor, double epsilon, double exponent)
{
    square A, Q = { 0 };

    for (int64_t i = 0; i < n * n; i++) A[i] = L[i] / divisor;
    for (int64_t i = 0; i < n; i++) Q[i * n + i] = 1;
    for (int i = 0; i < 30; i++) sweep(A, Q, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            X[i * n + j] = 0;
            for (int64_t k = 0; k < n; k++)
                X[i * n + j] += Q[k * n + i] * pow(fmax(A[k * n + k], 0) + epsilon, exponent) * Q[k * n + j];
        }
}

static void twin_roots(twin *t, int step)
{
    const double *h = t->h;
    double override = h[ROOT_OVERRIDE + t->merged.rank], r = override > 0 ? override : 2 * t->merged.rank;
    double divisor = h[BIAS_CORRECTION] != 0 && h[BETA2] < 1 ? correction(h[BETA2], step) : 1;

    for (int k = 0; k < t->factors; k++)
        power_of(t->waiting[step][k], t->L[k], t->side[k], divisor, h[EPSILON], -h[EXPONENT_MULTIPLIER] / r);
    t->due[step] = true;
}

static void twin_moment(twin *t, const double *G)
{
    double beta2 = t->h[GRAFTING] == GRAFT_ADAGRAD ? 1 : t->h[GRAFTING_BETA2];

    for (int64_t i = 0; i < t->n; i++) t->V[i] = beta2 * t->V[i] + (beta2 == 1 ? 1 : 1 - beta2) * G[i] * G[i];
}

static void twin_graft(const twin *t, const double *D, double *graft, int step)
{
    bool corrects = t->h[GRAFTING] == GRAFT_ADAM && t->h[GRAFTING_BETA2] < 1;

    for (int64_t i = 0; i < t->n; i++) {
        double v = t->V[i] / (corrects ? correction(t->h[GRAFTING_BETA2], step) : 1);
        graft[i] = t->h[GRAFTING] == GRAFT_SGD    ? D[i]
                   : t->h[GRAFTING] == GRAFT_NONE ? 0
                                                  : D[i] / (sqrt(v) + t->h[GRAFTING_EPSILON]);
    }
}

static void twin_filter(twin *t, const double *G, double *D, int step)
{
    const double *h = t->h;
    double beta3 = h[BETA3] < 0 ? h[BETA1] : h[BETA3], divisor = 1;

    if (h[BIAS_CORRECTION] != 0)
        divisor =
            h[BETA3] < 0 ? correction(h[BETA1], step) : 1 - beta3 * (double)powf((float)h[BETA1], (float)(step - 1));
    for (int64_t i = 0; i < t->n; i++) {
        D[i] = (beta3 * t->F[i] + (1 - beta3) * G[i]) / divisor;
        t->F[i] = h[BETA1] * t->F[i] + (1 - h[BETA1]) * G[i];
        if (h[BETA1] == 0) D[i] = G[i];
    }
}

static void twin_precondition(const twin *t, double *P)
{
    double next[MOST];

    for (int d = 0; d < t->merged.rank; d++) {
        for (int64_t i = 0; i < t->n; i++) {
            int64_t within[PD_MAX_RANK], k = locate(t, i, within) * t->merged.rank + d;
            next[i] = 0;
            for (int64_t a = 0; a < t->side[k]; a++)
                next[i] += P[i + (a - within[d]) * stride_of(t, d)] * t->R[k][a * t->side[k] + within[d]];
        }
        memcpy(P, next, (size_t)t->n * sizeof *P);
    }
}

/* Scales each block of P to the length of the same block in the graft's step. */
static void twin_lengths(const twin *t, double *P, const double *graft)
{
    double of_P[MOST] = { 0 }, of_graft[MOST] = { 0 };
    int64_t within[PD_MAX_RANK];

    for (int64_t i = 0; i < t->n; i++) {
        of_P[locate(t, i, within)] += P[i] * P[i];
        of_graft[locate(t, i, within)] += graft[i] * graft[i];
    }
    for (int64_t i = 0; i < t->n; i++)
        P[i] *= sqrt(of_graft[locate(t, i, within)]) / (sqrt(of_P[locate(t, i, within)]) + 1e-16);
}

static void twin_move(twin *t, double *P)
{
    const double *h = t->h;

    for (int64_t i = 0; i < t->n; i++) {
        double gain = 1 - h[DAMPENING];
        if (h[DECOUPLED_DECAY] != 0) P[i] += h[WEIGHT_DECAY] * t->W[i];
        if (h[MOMENTUM] != 0) {
            t->M[i] = h[MOMENTUM] * t->M[i] + gain * P[i];
            P[i] = h[NESTEROV] != 0 ? gain * P[i] + h[MOMENTUM] * t->M[i] : t->M[i];
        }
        t->W[i] -= h[LR] * P[i];
    }
}

static void twin_step(twin *t, const float *gradient, int step)
{
    const double *h = t->h;
    double G[MOST], P[MOST], graft[MOST];
    int frequency = (int)h[FREQUENCY], start = h[START_STEP] < 0 ? frequency : (int)h[START_STEP],
        delay = (int)h[ROOT_DELAY];

    for (int64_t i = 0; i < t->n; i++)
        G[i] = (double)gradient[i] + (h[DECOUPLED_DECAY] == 0 ? h[WEIGHT_DECAY] * t->W[i] : 0);
    twin_factors(t, G);
    twin_moment(t, G);
    if (step == start || (step > start && step % frequency == 0)) twin_roots(t, step);
    if (step > delay && t->due[step - delay]) {
        memcpy(t->R, t->waiting[step - delay], sizeof t->R);
        t->has_roots = true;
    }
    twin_filter(t, G, P, step);
    twin_graft(t, P, graft, step);
    if (step >= start && t->has_roots) {
        twin_precondition(t, P);
        if (h[GRAFTING] != GRAFT_NONE) twin_lengths(t, P, graft);
    } else {
        memcpy(P, graft, sizeof P);
    }
    twin_move(t, P);
}

/* Returns a random shape of rank 0 to 4. Block sizes of 3 to 7 cut and merge its dimensions in every way. */
static pd_shape random_shape(void)
{
    static const int64_t most[] = { 1, 16, 14, 7, 4 };
    pd_shape shape = { .rank = (int)shampoo_below(5) };

    for (int d = 0; d < shape.rank; d++) shape.dim[d] = 1 + shampoo_below(most[shape.rank]);
    return shape;
}

static pd_declaration random_param(int trial)
{
    static const double decays[] = { 1, 0.9, 0.99 }, filters[] = { 0, 0.9, 0.5 };
    pd_declaration param = { .name = "w", .shape = random_shape() };
    double *h = param.hypers.value;

    pd_hypers_init(&param.hypers, pd_optim_find("shampoo"));
    h[GRAFTING] = trial % 5;
    h[GRAFTING_BETA2] = decays[shampoo_below(3)];
    h[GRAFTING_EPSILON] = 1e-3;
    h[MAX_DIM] = 3 + (double)shampoo_below(5);
    h[BETA1] = filters[shampoo_below(3)];
    h[BETA2] = decays[shampoo_below(3)];
    h[BETA3] = shampoo_below(3) == 0 ? 0.7 : -1;
    h[EPSILON] = 1e-2;
    h[MOMENTUM] = (double)shampoo_below(3) * 0.45;
    h[DAMPENING] = (double)shampoo_below(2) * 0.3;
    h[WEIGHT_DECAY] = (double)shampoo_below(2) * 0.1;
    h[FREQUENCY] = 1 + (double)shampoo_below(3);
    h[START_STEP] = shampoo_below(2) == 0 ? -1 : h[FREQUENCY] + (double)shampoo_below(4);
    for (int i = 0; i < ROOT_ORDERS; i++) h[ROOT_OVERRIDE + i] = (double)(shampoo_below(2) * (2 + shampoo_below(3)));
    h[EXPONENT_MULTIPLIER] = shampoo_below(3) == 0 ? 1.82 : 1;
    h[NESTEROV] = (double)shampoo_below(2);
    h[BIAS_CORRECTION] = (double)shampoo_below(2);
    h[DECOUPLED_DECAY] = (double)shampoo_below(2);
    h[MERGE_DIMS] = param.shape.rank == 0 ? 1 : (double)shampoo_below(2);
    h[PRECONDITIONER_DTYPE] = shampoo_below(4) == 0 ? OLD_FLOAT64 : OLD_NONE;
    h[ROOT_METHOD] = shampoo_below(4) == 0 ? ROOT_TRACKED : ROOT_EIGEN;
    h[ROOT_DELAY] = (double)shampoo_below((int64_t)h[FREQUENCY] + 1);
    assert_int_equal(pd_hypers_check(&param.hypers, NULL), PD_OK);
    return param;
}

static void compare_with_twin(int trial)
{
    static twin t;
    float weights[MOST], gradient[MOST];
    pd_declaration param = random_param(trial);
    pd_model *model = shampoo_model(&param, 1, 1);
    char shape[64];

    shampoo_fill(weights, MOST, 1);
    twin_init(&t, &param, weights);
    for (int step = 1; step <= STEPS; step++) {
        shampoo_fill(gradient, t.n, 1);
        shampoo_step_one(model, gradient, weights);
        twin_step(&t, gradient, step);
        if (!(shampoo_difference(weights, t.W, t.n) < 1e-5))
            fail_msg("trial %d, shape %s, graft %g, method %g, step %d: off by %g", trial,
                     pd_shape_text(&param.shape, shape, sizeof shape), param.hypers.value[GRAFTING],
                     param.hypers.value[ROOT_METHOD], step, shampoo_difference(weights, t.W, t.n));
    }
    pd_model_free(model);
}

TEST(agrees_with_a_naive_twin_in_float64)
{
    shampoo_seed(4);
    for (int trial = 0; trial < 300; trial++) compare_with_twin(trial);
}
