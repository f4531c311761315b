/* replay_kron.c - computes recorded cases of distributed_kron's functions: the lower bound of a norm, one update of a
 * block's factors, the steps in which factors are updated, and the numbers of JAX's random generator, in both of its
 * layouts. */
#include "replay_case.h"

#include <stdio.h>
#include <string.h>

#include "kron_factor.h"
#include "random.h"
#include "schedule.h"

int pd_judge_kron_norm(pd_case *c)
{
    float bound, *scratch = NULL;
    pd_mat S;
    int rc = pd_case_mat(c, "in/****", &S);

    if (rc == PD_OK && (S.rows != S.cols || S.rows == 0)) rc = pd_case_refuse(c, "in/****", "expected a square matrix");
    if (rc == PD_OK) rc = pd_case_floats(c, &scratch, 3 * S.rows);
    if (rc != PD_OK) return rc;
    bound = pd_kron_norm_bound(S, scratch);
    return pd_case_judge(c, "out/****", &bound, 1);
}

/* A recorded update of a block's factors, and memory to compute it again. */
typedef struct update {
    pd_kron_block block;
    pd_shape shape;
    int64_t n;
    float *G, *V, *A, *B;                   /* G: gradient; V: random probe; A, B: copies of them to work with */
    float *Q[PD_MAX_RANK], *M[PD_MAX_RANK]; /* for each dimension: the factor, and the matrix to multiply it by */
} update;

/* Writes the name of a recorded tensor that belongs to one dimension of a parameter. Returns `text`. */
static const char *of_dim(const char *field, int dim, char text[32])
{
    snprintf(text, 32, "****/%s/%d", field, dim);
    return text;
}

static int take_shape(pd_case *c, update *u)
{
    const json_t *shape = json_object_get(c->entry, "shape"), *diagonal = json_object_get(c->entry, "diag");
    size_t rank = json_array_size(shape);

    if (rank < 1 || rank > PD_MAX_RANK || json_array_size(diagonal) != rank)
        return pd_case_refuse(c, "****/G", "expected a shape of 1 to 8 dimensions, and diag");
    u->shape.rank = u->block.rank = (int)rank;
    for (size_t d = 0; d < rank; d++) {
        int64_t size = json_integer_value(json_array_get(shape, d));
        if (size < 1) return pd_case_refuse(c, "****/G", "expected dimensions from 1 on");
        u->shape.dim[d] = u->block.size[d] = u->block.full[d] = u->block.side[d] = size;
        u->block.diagonal[d] = json_is_true(json_array_get(diagonal, d));
    }
    return pd_shape_elements(&u->shape, &u->n) == PD_OK ? PD_OK : pd_case_refuse(c, "****/G", "too large");
}

static int take_factor(pd_case *c, update *u, int d)
{
    int64_t n = u->block.size[d];
    char field[32];
    pd_case_tensor p;
    int rc = pd_case_take(c, of_dim("Q", d, field), &p);

    if (rc != PD_OK) return rc;
    if (p.n != (u->block.diagonal[d] ? n : n * n)) return pd_case_refuse(c, field, "not of the size of that dimension");
    u->Q[d] = p.at;
    return pd_case_floats(c, &u->M[d], p.n);
}

static int take_update(pd_case *c, update *u)
{
    int rc = take_shape(c, u);

    if (rc == PD_OK) rc = pd_case_vector(c, "****/G", u->n, &u->G);
    if (rc == PD_OK) rc = pd_case_vector(c, "****/V", u->n, &u->V);
    if (rc == PD_OK) rc = pd_case_floats(c, &u->A, u->n);
    if (rc == PD_OK) rc = pd_case_floats(c, &u->B, u->n);
    for (int d = 0; rc == PD_OK && d < u->shape.rank; d++) rc = take_factor(c, u, d);
    return rc;
}

static pd_block_view view_of(const update *u, float *at)
{
    pd_block_view view = { .at = at, .rank = u->shape.rank, .stride = u->shape.rank == 2 ? u->shape.dim[1] : 0 };

    memcpy(view.size, u->block.size, sizeof view.size);
    return view;
}

/* Multiplies the tensor `at` by the factor matrices of all its dimensions, or by the inverses of their transposes, as
 * `operation` says. Compares the result with the recorded tensor `field`. `at` is overwritten. */
static int judge_products(pd_case *c, const update *u, const char *field, float *at, pd_kron_operation operation)
{
    pd_block_view view = view_of(u, at);

    for (int d = 0; d < u->shape.rank; d++)
        pd_kron_along(&view, d, u->Q[d], u->block.diagonal[d], u->block.side[d], operation);
    return pd_case_judge(c, field, at, u->n);
}

/* Computes the Gram matrix of the block `at` for dimension d: the sums of products of its elements over all other
 * dimensions. Compares it with the recorded tensor `term` of this dimension. If the factor of dimension d is diagonal,
 * computes only the diagonal of the matrix. */
static int judge_term(pd_case *c, const update *u, const char *term, float *at, int d)
{
    int64_t n = u->block.size[d], inner = 1, cells = u->block.diagonal[d] ? n : n * n;
    pd_block_view view = view_of(u, at);
    char field[32];
    float *T = NULL;
    int rc = pd_case_floats(c, &T, cells);

    if (rc != PD_OK) return rc;
    for (int i = d + 1; i < u->shape.rank; i++) inner *= u->block.size[i];
    for (int64_t i = 0; u->block.diagonal[d] && i < u->n; i++) T[i / inner % n] += at[i] * at[i];
    if (!u->block.diagonal[d]) {
        pd_block_gram(pd_mat_dense(T, n, n), 0, 1, &view, d);
        pd_mirror(pd_mat_dense(T, n, n));
    }
    return pd_case_judge(c, of_dim(term, d, field), T, cells);
}

static int judge_terms(pd_case *c, const update *u)
{
    int rc = PD_OK;

    for (int d = 0; rc == PD_OK && d < u->shape.rank; d++) {
        rc = judge_term(c, u, "term1", u->A, d);
        if (rc == PD_OK) rc = judge_term(c, u, "term2", u->B, d);
    }
    return rc;
}

/* Preconditions the gradient with the factors as they were before their update, and compares the result with the
 * recorded one. */
static int judge_precondition(pd_case *c, const update *u)
{
    pd_block_view view = view_of(u, u->A);

    memcpy(u->A, u->G, (size_t)u->n * sizeof(float));
    pd_kron_precondition(&u->block, &view, u->Q, NULL);
    return pd_case_judge(c, "****/precond_grad", u->A, u->n);
}

static int judge_factors(pd_case *c, const update *u)
{
    float rate = (float)json_number_value(json_object_get(c->config, "preconditioner_lr")), *scratch = NULL;
    char field[32];
    int rc = pd_case_floats(c, &scratch, pd_kron_update_scratch(&u->block));

    if (rc != PD_OK) return rc;
    pd_kron_multipliers(&u->block, u->G, u->V, u->Q, rate, u->M, scratch);
    pd_kron_multiply(&u->block, u->Q, u->M, false);
    for (int d = 0; rc == PD_OK && d < u->shape.rank; d++)
        rc = pd_case_judge(c, of_dim("newQ", d, field), u->Q[d],
                           u->block.diagonal[d] ? u->block.size[d] : u->block.size[d] * u->block.size[d]);
    return rc;
}

int pd_judge_kron_update(pd_case *c)
{
    update u = { 0 };
    int rc = take_update(c, &u);

    if (rc != PD_OK) return rc;
    memcpy(u.A, u.G, (size_t)u.n * sizeof(float));
    memcpy(u.B, u.V, (size_t)u.n * sizeof(float));
    rc = judge_products(c, &u, "****/A", u.A, PD_KRON_APPLY);
    if (rc == PD_OK) rc = judge_products(c, &u, "****/conjB", u.B, PD_KRON_SOLVE_TRANSPOSED);
    if (rc == PD_OK) rc = judge_terms(c, &u);
    if (rc == PD_OK) rc = judge_precondition(c, &u);
    return rc == PD_OK ? judge_factors(c, &u) : rc;
}

/* Reads the probability with which factors are updated. A JSON object such as {"min_prob": 0.05} is a schedule. For a
 * constant number *schedule is NULL. */
static int read_probability(pd_case *c, pd_schedule **schedule)
{
    char text[256] = "precond_update_prob_schedule(";
    const char *key;
    json_t *value;

    *schedule = NULL;
    if (json_is_number(c->entry)) return PD_OK;
    json_object_foreach((json_t *)c->entry, key, value)
    {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%.32s=%.17g", text[used - 1] == '(' ? "" : ",", key,
                 json_number_value(value));
    }
    strncat(text, ")", sizeof text - strlen(text) - 1);
    return pd_schedule_read(schedule, text, c->err);
}

static double probability_at(const pd_case *c, const pd_schedule *schedule, int64_t step)
{
    return schedule != NULL ? pd_schedule_at(schedule, step - 1) : json_number_value(c->entry);
}

/* Computes for all recorded steps the probability with which factors are updated, and compares it with the recorded
 * one. Sets *steps to the last of these steps. */
static int judge_probabilities(pd_case *c, const pd_schedule *schedule, int64_t *steps)
{
    pd_case_tensor recorded;
    float *ours = NULL;
    int rc = pd_case_take(c, "probability/*", &recorded);

    if (rc == PD_OK) rc = pd_case_floats(c, &ours, recorded.n);
    for (int64_t t = 0; rc == PD_OK && t < recorded.n; t++) ours[t] = (float)probability_at(c, schedule, t);
    if (rc == PD_OK) *steps = recorded.n - 1;
    return rc == PD_OK ? pd_case_judge(c, "probability/*", ours, recorded.n) : rc;
}

/* Computes in which steps factors are updated, and compares these steps with the recorded ones. Begins at step 1, and
 * ends at step `steps`, the last one with a recorded probability, or at the last recorded update if that is later. */
static int judge_updated_steps(pd_case *c, const pd_schedule *schedule, int64_t steps)
{
    double *recorded = NULL;
    pd_shape shape;
    int64_t n, found = 0;
    float counter = 0;
    bool same = true;
    int rc = pd_case_doubles(c, "updated_steps/*", &recorded, &shape, &n);

    if (rc != PD_OK) return rc;
    if (n > 0 && !(recorded[n - 1] >= 1 && recorded[n - 1] < 1e7))
        return pd_case_refuse(c, "updated_steps/*", "expected steps from 1 up to 1e7");
    if (n > 0 && recorded[n - 1] > (double)steps) steps = (int64_t)recorded[n - 1];
    for (int64_t t = 1; same && t <= steps; t++)
        if (pd_kron_counts(&counter, probability_at(c, schedule, t)))
            same = found < n && recorded[found++] == (double)t;
    pd_case_expect(c, same && found == n);
    return PD_OK;
}

int pd_judge_kron_probability(pd_case *c)
{
    pd_schedule *schedule;
    int64_t steps = 0;
    int rc = read_probability(c, &schedule);

    if (rc == PD_OK && pd_case_has(c, "probability/*")) rc = judge_probabilities(c, schedule, &steps);
    if (rc == PD_OK) rc = judge_updated_steps(c, schedule, steps);
    pd_schedule_free(schedule);
    return rc;
}

static pd_random pair_of(pd_random key, uint32_t x, uint32_t y)
{
    pd_random out;

    pd_threefry(key.key, (const uint32_t[2]){ x, y }, out.key);
    return out;
}

static pd_random fold_in(pd_random key, uint32_t data)
{
    return pair_of(key, 0, data);
}

/* Returns word i of the n random words that JAX before 0.5 makes from a key. That JAX enciphers the numbers 0 … n - 1
 * in pairs: one number from the first half, and one from the second. If n is odd, the last pair gets a 0. Newer JAX
 * enciphers each number alone. */
static uint32_t old_word(pd_random key, int64_t i, int64_t n)
{
    int64_t half = (n + 1) / 2, low = i % half, high = low + half;

    return pair_of(key, (uint32_t)low, high < n ? (uint32_t)high : 0).key[i / half];
}

static uint32_t jax_bits(bool now, pd_random key, int64_t i, int64_t n)
{
    pd_random pair = pair_of(key, 0, (uint32_t)i);

    return now ? pair.key[0] ^ pair.key[1] : old_word(key, i, n);
}

/* Returns key number i of the n keys into which JAX's random generator splits a key. `now`: true: as JAX 0.5 and later
 * do; false: as earlier ones do. */
static pd_random split(bool now, pd_random key, int64_t i, int64_t n)
{
    if (now) return pair_of(key, 0, (uint32_t)i);
    return (pd_random){ { old_word(key, 2 * i, 2 * n), old_word(key, 2 * i + 1, 2 * n) } };
}

static float jax_uniform(uint32_t bits)
{
    return (float)(bits >> 9) * 0x1p-23f;
}

/* Makes a uniform random number between -1 and 1 from 32 random bits, as JAX does. The smallest number is -(1 -
 * 2^-24). */
static float jax_signed(uint32_t bits)
{
    return jax_uniform(bits) * 2.0f - (1 - 0x1p-24f);
}

static const pd_random upstreams_key = { { 0, 42 } };

/* Compares the keys that `key_of` returns with the recorded keys of JAX's random generator, whose uint32 words are
 * stored as int32 with the same bits. */
static int judge_keys(pd_case *c, const char *field, pd_random (*key_of)(bool now, int64_t i, int64_t n))
{
    double *recorded = NULL;
    pd_shape shape;
    int64_t n;
    bool same = true;
    int rc = pd_case_doubles(c, field, &recorded, &shape, &n);

    for (int64_t i = 0; rc == PD_OK && i < n; i++) {
        pd_random key = key_of(c->index == 1, i / 2, n / 2);
        same = same && recorded[i] == (double)(int32_t)key.key[i % 2];
    }
    if (rc == PD_OK) pd_case_expect(c, same);
    return rc;
}

static pd_random key_split(bool now, int64_t i, int64_t n)
{
    return split(now, upstreams_key, i, n);
}

static pd_random key_folded(bool now, int64_t i, int64_t n)
{
    (void)now, (void)n;
    return fold_in(upstreams_key, (uint32_t)i);
}

/* Returns the random number by which distributed_kron decides in a step whether it balances its factor matrices. This
 * holds for a run that updates them in every step. */
static float balancing(bool now, int64_t step)
{
    pd_random key = split(now, split(now, fold_in(upstreams_key, (uint32_t)(step - 1)), 1, 2), 1, 2);

    return jax_uniform(jax_bits(now, key, 0, 1));
}

static int judge_balancing(pd_case *c)
{
    double *balanced = NULL;
    pd_case_tensor uniform;
    pd_shape shape;
    int64_t n, found = 0;
    bool same = true;
    int rc = pd_case_take(c, "uniform/*", &uniform);

    if (rc == PD_OK) rc = pd_case_doubles(c, "balanced_steps/*", &balanced, &shape, &n);
    for (int64_t t = 1; rc == PD_OK && t <= uniform.n; t++) {
        float u = balancing(c->index == 1, t);
        if (u <= 0.01f) same = same && found < n && balanced[found++] == (double)t;
        uniform.at[t - 1] = u;
    }
    if (rc == PD_OK) pd_case_expect(c, same && found == n);
    return rc == PD_OK ? pd_case_judge_equal(c, "uniform/*", uniform.at, uniform.n) : rc;
}

static int judge_normals(pd_case *c, const char *field)
{
    float *u = NULL, *z = NULL;
    pd_case_tensor recorded;
    int rc = pd_case_take(c, field, &recorded);

    if (rc == PD_OK) rc = pd_case_floats(c, &u, recorded.n);
    if (rc == PD_OK) rc = pd_case_floats(c, &z, recorded.n);
    if (rc != PD_OK) return rc;
    for (int64_t i = 0; i < recorded.n; i++) u[i] = jax_signed(jax_bits(c->index == 1, upstreams_key, i, recorded.n));
    pd_random_normal_of(u, z, recorded.n);
    return pd_case_judge(c, field, z, recorded.n);
}

/* Computes normal random numbers and compares them with all tensors normal/CASE/N of the recorded case, each of
 * which has N numbers. */
static int judge_all_normals(pd_case *c)
{
    char of_case[32];
    const char *name;
    int rc = PD_OK;

    snprintf(of_case, sizeof of_case, "normal/%d/", c->index);
    for (size_t i = 0; rc == PD_OK && (name = pd_trace_tensor_name(c->trace, i)) != NULL; i++) {
        char field[32];
        if (strncmp(name, of_case, strlen(of_case)) != 0) continue;
        snprintf(field, sizeof field, "normal/*/%.16s", name + strlen(of_case));
        rc = judge_normals(c, field);
    }
    return rc;
}

int pd_judge_jax_threefry(pd_case *c)
{
    int rc = judge_keys(c, "fold_in/*", key_folded);

    if (rc == PD_OK) rc = judge_keys(c, "split/*", key_split);
    if (rc == PD_OK) rc = judge_balancing(c);
    return rc == PD_OK ? judge_all_normals(c) : rc;
}
