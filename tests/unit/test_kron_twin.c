/* Tests the whole step of kron against a second implementation in float64, on random shapes and
 * hyperparameters. The twin follows the equations element by element. Like the original, it keeps one padded array,
 * stacked by layers and blocks, and dense factors that include the zeros of a triangle. */
#include "test.h"
#include "kron_plan.h"
#include "shampoos.h"

enum { MOST = 4096, MOST_SIDE = 40, MOST_STACK = 64, STEPS = 6, CONFIGURATIONS = 150 };

typedef struct twin {
    double h[PD_MAX_HYPERS];
    int64_t n, layers, blocks, side[PD_MAX_RANK], block_elements;
    int rank;
    bool diagonal[PD_MAX_RANK];
    int64_t place[MOST]; /* place[i]: index of element i in the stacked, padded array */
    double W[MOST], mu[MOST], counter;
    double Q[PD_MAX_RANK][MOST_STACK][MOST_SIDE * MOST_SIDE];
} twin;

static int64_t product(const int64_t *size, int rank)
{
    int64_t n = 1;

    for (int d = 0; d < rank; d++) n *= size[d];
    return n;
}

/* Fills t->place: computes the index of every element from its coordinates in the merged shape. Returns false if the
 * shape is too large for the twin. */
static bool twin_init(twin *t, const pd_hypers *hypers, const pd_shape *shape, int scanned)
{
    const double *h = hypers->value;
    pd_shape own = { .rank = shape->rank - scanned };
    int64_t cuts[PD_MAX_RANK], step[PD_MAX_RANK];
    bool types[PD_MAX_RANK];
    pd_kron_shape merged;

    memset(t, 0, sizeof *t);
    memcpy(t->h, h, sizeof t->h);
    t->layers = product(shape->dim, scanned);
    for (int d = 0; d < own.rank; d++) own.dim[d] = shape->dim[scanned + d];
    pd_kron_types(&own, (int64_t)h[MAX_SIZE], (int64_t)h[MIN_NDIM], (int)h[SAVE_MODE], types);
    merged = pd_kron_merged(&own, types,
                            h[MERGE] != 0 ? (int64_t)h[MERGED_SIZE] : 0); /* the twin uses kron's own merged shape,
                                                                           * which test_kron_shape.c tests */
    t->rank = merged.shape.rank;
    t->n = t->layers * product(merged.shape.dim, t->rank);
    t->blocks = t->block_elements = 1;
    for (int d = 0; d < t->rank; d++) {
        int64_t dim = merged.shape.dim[d], size = h[PARTITION] != 0 ? (int64_t)h[BLOCK_SIZE] : dim;
        t->diagonal[d] = merged.diagonal[d];
        step[d] = t->diagonal[d] ? dim : size < dim ? size : dim;
        cuts[d] = (dim + step[d] - 1) / step[d];
        t->side[d] = (step[d] + size - 1) / size * size;
        t->blocks *= cuts[d];
        t->block_elements *= t->side[d];
    }
    if (t->layers * t->blocks * t->block_elements > MOST || t->layers * t->blocks > MOST_STACK) return false;
    for (int d = 0; d < t->rank; d++)
        if (t->side[d] > MOST_SIDE) return false;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t rest = i, block = 0, within = 0, index[PD_MAX_RANK];
        for (int d = t->rank - 1; d >= 0; rest /= merged.shape.dim[d--]) index[d] = rest % merged.shape.dim[d];
        for (int d = 0; d < t->rank; d++) {
            block = block * cuts[d] + index[d] / step[d];
            within = within * t->side[d] + index[d] % step[d];
        }
        t->place[i] = (rest * t->blocks + block) * t->block_elements + within;
    }
    for (int d = 0; d < t->rank; d++)
        for (int64_t b = 0; b < t->layers * t->blocks; b++)
            for (int64_t i = 0; i < t->side[d]; i++) t->Q[d][b][i * t->side[d] + i] = pow(h[INIT_SCALE], 1.0 / t->rank);
    return true;
}

/* Multiplies one block of x by the factor Q along dimension d, or by Q transposed: x[..b..] <- sum over a of Q[b,a]
 * x[..a..]. */
static void along(const twin *t, double *x, int64_t block, int d, bool transposed)
{
    int64_t n = t->side[d], inner = product(t->side + d + 1, t->rank - d - 1);
    const double *Q = t->Q[d][block];
    double next[MOST] = { 0 };

    for (int64_t i = 0; i < t->block_elements; i++)
        for (int64_t a = 0, b = i / inner % n; a < n; a++)
            next[i] += (transposed ? Q[a * n + b] : Q[b * n + a]) * x[i + (a - b) * inner];
    memcpy(x, next, (size_t)t->block_elements * sizeof *x);
}

/* Solves Q' y = x along a dimension, from the first index to the last, and writes y to x. */
static void solve(const twin *t, double *x, int64_t block, int d)
{
    int64_t n = t->side[d], inner = product(t->side + d + 1, t->rank - d - 1);
    const double *Q = t->Q[d][block];

    for (int64_t b = 0; b < n; b++)
        for (int64_t i = 0; i < t->block_elements; i++) {
            if (i / inner % n != b) continue;
            for (int64_t a = 0; a < b; a++) x[i] -= Q[a * n + b] * x[i + (a - b) * inner];
            x[i] /= Q[b * n + b];
        }
}

static void contract(const twin *t, double *T, const double *x, int d)
{
    int64_t n = t->side[d], inner = product(t->side + d + 1, t->rank - d - 1);

    for (int64_t i = 0; i < t->block_elements; i++)
        for (int64_t a = 0, b = i / inner % n; a < n; a++)
            if (!t->diagonal[d] || a == b) T[b * n + a] += x[i] * x[i + (a - b) * inner];
}

static double bound(const double *S, int64_t n, bool diagonal)
{
    double most = 0, heaviest = -1, length = 0, sum = 0, x[MOST_SIDE];
    int64_t j = 0;

    for (int64_t i = 0; i < n * n; i++) most = fmax(most, fabs(S[i]));
    if (diagonal || !(most > 0)) return most;
    for (int64_t c = 0; c < n; c++) {
        double squares = 0;
        for (int64_t i = 0; i < n; i++) squares += S[i * n + c] / most * (S[i * n + c] / most);
        if (squares > heaviest) heaviest = squares, j = c;
    }
    for (int64_t c = 0; c < n; c++) {
        x[c] = 0;
        for (int64_t i = 0; i < n; i++) x[c] += S[i * n + j] / most * (S[i * n + c] / most);
        length += x[c] * x[c];
    }
    for (int64_t r = 0; r < n; r++) {
        double dot = 0;
        for (int64_t c = 0; c < n; c++) dot += x[c] / sqrt(length) * S[r * n + c] / most;
        sum += dot * dot;
    }
    return most * sqrt(sum);
}

static void update_block(twin *t, int64_t block, const double *H, const double *V)
{
    static double A[MOST], B[MOST], T1[MOST_SIDE * MOST_SIDE], T2[MOST_SIDE * MOST_SIDE], S[MOST_SIDE * MOST_SIDE],
        next[PD_MAX_RANK][MOST_SIDE * MOST_SIDE];

    memcpy(A, H, (size_t)t->block_elements * sizeof *A);
    memcpy(B, V, (size_t)t->block_elements * sizeof *B);
    for (int d = 0; d < t->rank; d++) {
        along(t, A, block, d, false);
        solve(t, B, block, d);
    }
    for (int d = 0; d < t->rank; d++) {
        int64_t n = t->side[d];
        const double *Q = t->Q[d][block];
        double size;
        memset(T1, 0, sizeof T1);
        memset(T2, 0, sizeof T2);
        contract(t, T1, A, d);
        contract(t, T2, B, d);
        for (int64_t i = 0; i < n * n; i++) S[i] = T1[i] + T2[i];
        size = t->h[FACTOR_RATE] / (bound(S, n, t->diagonal[d]) + 0x1p-126);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                double change = 0;
                for (int64_t k = i; k < n; k++) change += (T1[i * n + k] - T2[i * n + k]) * Q[k * n + j];
                next[d][i * n + j] = Q[i * n + j] - size * change;
            }
    }
    for (int d = 0; d < t->rank; d++) memcpy(t->Q[d][block], next[d], sizeof next[d]);
}

static void balance_block(twin *t, int64_t block)
{
    double size[PD_MAX_RANK] = { 0 }, mean = 0;

    for (int d = 0; d < t->rank; d++) {
        for (int64_t i = 0; i < t->side[d] * t->side[d]; i++) size[d] = fmax(size[d], fabs(t->Q[d][block][i]));
        mean += log(size[d]) / t->rank;
    }
    for (int d = 0; d < t->rank; d++)
        for (int64_t i = 0; i < t->side[d] * t->side[d]; i++) t->Q[d][block][i] *= exp(mean) / size[d];
}

static void twin_step(twin *t, const float *G, int64_t count, const float *probe, bool balances)
{
    static double X[MOST], H[MOST], V[MOST];
    int64_t stack = t->layers * t->blocks, all = stack * t->block_elements;
    double mean = 0, squares = 0, clip;

    memset(X, 0, sizeof X);
    for (int64_t i = 0; i < t->n; i++) {
        t->mu[i] = (1 - t->h[B1]) * (double)G[i] + t->h[B1] * t->mu[i];
        X[t->place[i]] = t->mu[i] / (1 - pow(t->h[B1], (double)count));
    }
    for (int64_t i = 0; i < all; i++) mean += fabs(X[i]) / (double)all;
    if (++t->counter >= 1 / t->h[PROBABILITY]) {
        t->counter = 0;
        for (int64_t i = 0; i < all; i++) {
            V[i] = (double)probe[i];
            H[i] = X[i] + sqrt(0x1p-23) * mean * V[i];
        }
        for (int64_t b = 0; b < stack; b++) {
            if (balances) balance_block(t, b);
            update_block(t, b, H + b * t->block_elements, V + b * t->block_elements);
        }
    }
    for (int64_t b = 0; b < stack; b++)
        for (int d = 0; d < t->rank; d++) {
            along(t, X + b * t->block_elements, b, d, false);
            along(t, X + b * t->block_elements, b, d, true);
        }
    for (int64_t i = 0; i < t->n; i++) squares += X[t->place[i]] * X[t->place[i]];
    clip = fmax(1, sqrt(squares / (double)t->n) / 1.1);
    for (int64_t i = 0; i < t->n; i++)
        t->W[i] -= t->h[LEARNING_RATE] * (X[t->place[i]] / clip + t->h[WEIGHT_DECAY] * t->W[i]);
}

static const char *draw_options(char *text, size_t size)
{
    static const char *const modes[] = { "none", "one_diag", "all_diag" }, *const chances[] = { "1", "1", "0.5",
                                                                                                "0.4" };
    int block = 2 + (int)shampoo_below(6);

    snprintf(
        text, size,
        "learning_rate=0.1 preconditioner_lr=0.2 b1=0.%d weight_decay=%s merge_small_dims=%s target_merged_dim_size=%d "
        "partition_grads_into_blocks=%s block_size=%d memory_save_mode=%s max_size_triangular=%d "
        "min_ndim_triangular=%d preconditioner_init_scale=%s preconditioner_update_probability=%s",
        (int)shampoo_below(10), shampoo_below(2) == 0 ? "0" : "0.1", shampoo_below(2) == 0 ? "yes" : "no",
        1 + (int)shampoo_below(20), shampoo_below(3) > 0 ? "yes" : "no", block, modes[shampoo_below(5) % 3],
        shampoo_below(4) == 0 ? 5 : 30, (int)shampoo_below(4), shampoo_below(2) == 0 ? "1" : "0.3",
        chances[shampoo_below(4)]);
    return text;
}

/* Draws a shape with up to 2 scanned dimensions (layers) and up to 4 other dimensions. */
static pd_shape draw_shape(int *scanned, char *axes)
{
    static const int most[] = { 0, 13, 9, 5, 3 };
    int own = 1 + (int)shampoo_below(4);
    pd_shape shape = { .rank = 0 };

    *scanned = (int)shampoo_below(3);
    *axes = '\0';
    for (int d = 0; d < *scanned; d++) shape.dim[shape.rank++] = 1 + shampoo_below(2);
    for (int d = 0; d < own; d++) shape.dim[shape.rank++] = 1 + shampoo_below(most[own]);
    for (int d = 0; d < shape.rank; d++)
        strcat(axes, d == 0 ? (*scanned > 0 ? "layers" : "") : d == 1 && *scanned > 1 ? ",stack" : ",");
    return shape;
}

static void assert_near_twin(const float *got, const double *expected, int64_t n, const char *what, const char *options,
                             const char *axes)
{
    double far = 0, norm = 0;

    for (int64_t i = 0; i < n; i++) {
        far += ((double)got[i] - expected[i]) * ((double)got[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    if (!(sqrt(far) <= 2e-5 * sqrt(norm)))
        fail_msg("%s off by %g with %s on axes \"%s\"", what, sqrt(far / norm), options, axes);
}

static void assert_factors_near_twin(const shampoo_run *r, const twin *t, const char *options, const char *axes)
{
    static double flat[MOST_STACK * MOST_SIDE * MOST_SIDE];

    for (int d = 0; d < t->rank; d++) {
        int64_t side = t->side[d], n = 0;
        float *Q;
        for (int64_t b = 0; b < t->layers * t->blocks; b++)
            for (int64_t i = 0; i < side * side; i++)
                if (!t->diagonal[d] || i % (side + 1) == 0) flat[n++] = t->Q[d][b][i];
        Q = shampoo_slot(r, "Q", d, -1, n);
        assert_near_twin(Q, flat, n, "a factor", options, axes);
        free(Q);
    }
}

/* Runs the optimizer and the twin for STEPS steps. The random draw of step 4 is 0, which balances the factors if
 * this step updates them. */
static void run_both(shampoo_run *r, twin *t)
{
    static float probe[MOST];

    for (int64_t step = 1; step <= STEPS; step++) {
        pd_draws draws = { .normal = probe,
                           .uniform = step == 4 ? 0 : 0.9,
                           .n_normal = t->layers * t->blocks * t->block_elements };
        pd_error err;
        shampoo_run_draw(r);
        shampoo_fill(probe, draws.n_normal, 1.7f);
        if (pd_model_step(
                r->model,
                &(pd_step_io){
                    .gradient = r->gradient[0], .before = r->weights[0], .after = r->weights[0], .draws = &draws },
                &err) != PD_OK)
            fail_msg("%s", err.text);
        twin_step(t, r->gradient[0], step, probe, step == 4);
    }
}

TEST(steps_are_the_twin_s)
{
    static twin t;
    int ran = 0;

    for (int c = 0; ran < CONFIGURATIONS; c++) {
        char options[512], axes[64];
        int scanned;
        pd_shape shape;
        shampoo_run r;
        shampoo_seed((uint64_t)c + 11);
        for (int i = 0; i < 5; i++)
            (void)shampoo_below(2); /* skips the first draws, which are similar for neighbouring seeds */
        shape = draw_shape(&scanned, axes);
        r = shampoo_run_of("kron", &shape, draw_options(options, sizeof options), 0);
        r.param[0].axes = axes;
        r.seed = (uint64_t)c + 1;
        if (!twin_init(&t, &r.param[0].hypers, &shape, scanned)) continue;
        shampoo_run_begin(&r);
        for (int64_t i = 0; i < t.n; i++) t.W[i] = (double)r.weights[0][i];
        run_both(&r, &t);
        assert_near_twin(r.weights[0], t.W, t.n, "weights", options, axes);
        assert_factors_near_twin(&r, &t, options, axes);
        shampoo_run_end(&r);
        ran++;
    }
}
