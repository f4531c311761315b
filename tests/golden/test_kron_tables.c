/* Tests kron against upstream's own tables in distributed_kron: which factors are diagonal, how dimensions are merged,
 * how blocks are cut and padded, the results of its einsum expressions, and on which machines its state lies. */
#include <jansson.h>

#include "test.h"
#include "golden.h"
#include "kron_plan.h"
#include "kron_factor.h"
#include "optimizer.h"

static json_t *types, *cuts, *products, *places; /* tables that upstream's own functions computed */

static int64_t number(const json_t *entry, const char *key)
{
    return json_integer_value(json_object_get(entry, key));
}

static pd_shape shape_of(const json_t *list)
{
    pd_shape shape = { .rank = (int)json_array_size(list) };

    for (int d = 0; d < shape.rank; d++) shape.dim[d] = json_integer_value(json_array_get(list, (size_t)d));
    return shape;
}

static void assert_flags(const bool *ours, const json_t *list)
{
    json_t *flag;
    size_t i;

    json_array_foreach(list, i, flag) assert_int_equal(ours[i], json_is_true(flag));
}

static int mode_of(const json_t *entry)
{
    const char *mode = json_string_value(json_object_get(entry, "memory_save_mode"));

    return mode == NULL ? KRON_SAVE_NONE : strcmp(mode, "one_diag") == 0 ? KRON_SAVE_ONE_DIAG : KRON_SAVE_ALL_DIAG;
}

TEST(factors_are_diagonal_and_dimensions_merged_as_upstream_does)
{
    json_t *entry;
    size_t i;

    json_array_foreach(types, i, entry)
    {
        pd_shape shape = shape_of(json_object_get(entry, "shape")),
                 expected = shape_of(json_object_get(entry, "merged_shape"));
        bool diagonal[PD_MAX_RANK] = { false };
        pd_kron_shape merged;
        pd_kron_types(&shape, number(entry, "max_size_triangular"), number(entry, "min_ndim_triangular"),
                      mode_of(entry), diagonal);
        assert_flags(diagonal, json_object_get(entry, "dim_diag"));
        merged = pd_kron_merged(&shape, diagonal, number(entry, "target_merged_dim_size"));
        if (expected.rank == 0) expected = (pd_shape){ 1, { 1 } }; /* a scalar counts as one dimension */
        assert_true(pd_shape_equal(&merged.shape, &expected));
        assert_flags(merged.diagonal, json_object_get(entry, "merged_diag"));
    }
    assert_true(i > 100);
}

static pd_kron_shape given_shape(const json_t *entry)
{
    pd_kron_shape given = { .shape = shape_of(json_object_get(entry, "shape")) };

    for (int d = 0; d < given.shape.rank; d++)
        given.diagonal[d] = json_is_true(json_array_get(json_object_get(entry, "diag"), (size_t)d));
    return given;
}

static void assert_block(const pd_kron_shape *given, const pd_kron_cut *cut, const json_t *entry, size_t b)
{
    pd_block block = pd_kron_block_at(given, cut, (int64_t)b);
    pd_shape expected = shape_of(json_array_get(json_object_get(entry, "block_shapes"), b));
    int64_t flat = 0;

    for (int d = 0; d < given->shape.rank; d++) {
        assert_int_equal(block.size[d], expected.dim[d]);
        flat = flat * given->shape.dim[d] + block.start[d];
    }
    assert_int_equal(flat, json_integer_value(json_array_get(json_object_get(entry, "first_element_flat_index"), b)));
}

TEST(blocks_are_cut_and_padded_as_upstream_does)
{
    json_t *entry;
    size_t i;

    json_array_foreach(cuts, i, entry)
    {
        pd_kron_shape given = given_shape(entry);
        pd_kron_cut cut = pd_kron_cut_of(&given, number(entry, "block_size"), true);
        pd_shape stacked = shape_of(json_object_get(entry, "padded_stacked_shape"));
        assert_int_equal(cut.n_blocks, stacked.dim[0]);
        for (int d = 0; d < given.shape.rank; d++) {
            const json_t *split = json_array_get(json_object_get(entry, "split_sizes"), (size_t)d);
            assert_int_equal(cut.cuts[d], json_array_size(split));
            assert_int_equal(cut.side[d], stacked.dim[d + 1]);
        }
        for (size_t b = 0; b < (size_t)cut.n_blocks; b++) assert_block(&given, &cut, entry, b);
    }
    assert_true(i > 100);
}

enum { MOST_OPERANDS = 2 * PD_MAX_RANK + 1, MOST_ELEMENTS = 4096 };

typedef struct operand {
    const double *at;
    const char *letters;
    int n;
} operand;

typedef struct einsum {
    operand in[MOST_OPERANDS], out;
    int n_in;
    char letters[32];
    int64_t size[128], value[128]; /* index: the letter */
} einsum;

static void note_letters(einsum *e, const operand *o, const int64_t *sizes)
{
    for (int k = 0; k < o->n; k++) {
        char letter[2] = { o->letters[k], '\0' };
        if (strstr(e->letters, letter) == NULL) strcat(e->letters, letter);
        e->size[(int)letter[0]] = sizes[k];
    }
}

static int64_t place_of(const einsum *e, const operand *o)
{
    int64_t at = 0;

    for (int k = 0; k < o->n; k++) at = at * e->size[(int)o->letters[k]] + e->value[(int)o->letters[k]];
    return at;
}

/* Adds to `out` the products of the operands, summed over all values of the letters in `letters`. Takes the first
 * letter here and the others by recursion. */
static void sum_over(einsum *e, const char *letters, double *out)
{
    double product = 1;

    if (*letters != '\0') {
        for (int64_t i = 0; i < e->size[(int)*letters]; i++) {
            e->value[(int)*letters] = i;
            sum_over(e, letters + 1, out);
        }
        return;
    }
    for (int k = 0; k < e->n_in; k++) product *= e->in[k].at[place_of(e, &e->in[k])];
    out[place_of(e, &e->out)] += product;
}

/* Computes an expression such as "an,bo,no->ab" of tensors with these sizes, stored row by row. */
static void compute(const char *expression, const double *const *at, const int64_t (*sizes)[PD_MAX_RANK], double *out)
{
    einsum e = { .n_in = 0 };
    const char *p = expression;

    for (; *p != '-'; p += *p == ',') {
        operand *o = &e.in[e.n_in];
        *o = (operand){ at[e.n_in], p, (int)strcspn(p, ",-") };
        note_letters(&e, o, sizes[e.n_in++]);
        p += o->n;
    }
    e.out = (operand){ NULL, p + 2, (int)strlen(p + 2) };
    sum_over(&e, e.letters, out);
}

typedef struct factored {
    pd_kron_block block;
    int64_t n, sizes[MOST_OPERANDS][PD_MAX_RANK];
    float G[MOST_ELEMENTS], Q[PD_MAX_RANK][64];
    double wide_G[MOST_ELEMENTS], wide_Q[PD_MAX_RANK][64];
} factored;

static float varied(int64_t i, int salt)
{
    return sinf((float)(i * 13 + salt * 7 + 3));
}

/* Fills the factor of dimension d: a vector if it is diagonal, otherwise an upper triangle. */
static void fill_factor(factored *f, int d)
{
    int64_t n = f->block.size[d], cells = f->block.diagonal[d] ? n : n * n;

    for (int64_t i = 0; i < cells; i++) f->Q[d][i] = f->block.diagonal[d] || i / n <= i % n ? varied(i, d) : 0;
    for (int64_t i = 0; i < cells; i++) f->wide_Q[d][i] = (double)f->Q[d][i];
}

static void fill(factored *f, const json_t *entry)
{
    pd_kron_shape given = given_shape(entry);

    memset(f, 0, sizeof *f);
    f->block.rank = given.shape.rank;
    assert_int_equal(pd_shape_elements(&given.shape, &f->n), PD_OK);
    assert_true(f->n <= MOST_ELEMENTS);
    for (int d = 0; d < f->block.rank; d++) {
        assert_in_range(given.shape.dim[d], 1, 8);
        f->block.size[d] = f->block.full[d] = f->block.side[d] = given.shape.dim[d];
        f->block.diagonal[d] = given.diagonal[d];
        fill_factor(f, d);
    }
    for (int64_t i = 0; i < f->n; i++) f->wide_G[i] = (double)(f->G[i] = varied(i, 99));
}

static pd_block_view view_of(const factored *f, float *at)
{
    pd_block_view view = { .at = at, .rank = f->block.rank, .stride = f->block.rank == 2 ? f->block.size[1] : 0 };

    memcpy(view.size, f->block.size, sizeof view.size);
    return view;
}

static void assert_close(const float *ours, const double *theirs, int64_t n)
{
    double apart = 0, size = 0;

    for (int64_t i = 0; i < n; i++) apart += pow((double)ours[i] - theirs[i], 2), size += theirs[i] * theirs[i];
    assert_true(sqrt(apart) <= 2e-6 * sqrt(size));
}

/* Adds the Kronecker factors to a list of einsum operands, from index `first` on. Returns the new number of
 * operands. */
static int factors_in(const factored *f, const double **at, int64_t (*sizes)[PD_MAX_RANK], int first)
{
    for (int d = 0; d < f->block.rank; d++) {
        at[first + d] = f->wide_Q[d];
        sizes[first + d][0] = sizes[first + d][1] = f->block.size[d];
    }
    return first + f->block.rank;
}

static const char *text_of(const json_t *entry, const char *key)
{
    return json_string_value(json_object_get(entry, key));
}

/* Calls `judge` for each recorded product, with the product's factors in *f. Checks that there are many products. */
static void each_product(void (*judge)(factored *f, const json_t *entry))
{
    static factored f;
    json_t *entry;
    size_t i;

    json_array_foreach(products, i, entry)
    {
        fill(&f, entry);
        judge(&f, entry);
    }
    assert_true(i > 50);
}

static void judge_expressions(factored *f, const json_t *entry)
{
    const double *at[MOST_OPERANDS];
    int64_t sizes[MOST_OPERANDS][PD_MAX_RANK];
    static double A[MOST_ELEMENTS], P[MOST_ELEMENTS];
    static float x[MOST_ELEMENTS];
    float *Q[PD_MAX_RANK];
    pd_block_view view;
    int n;

    memset(A, 0, sizeof A), memset(P, 0, sizeof P);
    for (int d = 0; d < f->block.rank; d++) Q[d] = f->Q[d];
    n = factors_in(f, at, sizes, 0);
    at[n] = f->wide_G;
    memcpy(sizes[n], f->block.size, sizeof sizes[n]);
    compute(text_of(entry, "exprA"), at, sizes, A);
    memcpy(x, f->G, sizeof x);
    view = view_of(f, x);
    for (int d = 0; d < f->block.rank; d++)
        pd_kron_along(&view, d, Q[d], f->block.diagonal[d], f->block.side[d], PD_KRON_APPLY);
    assert_close(x, A, f->n);

    n = factors_in(f, at, sizes, n);
    at[n] = f->wide_G;
    memcpy(sizes[n], f->block.size, sizeof sizes[n]);
    compute(text_of(entry, "exprP"), at, sizes, P);
    memcpy(x, f->G, sizeof x);
    pd_kron_precondition(&f->block, &view, Q, NULL);
    assert_close(x, P, f->n);
}

HOLDS(the_products_are_those_of_the_expressions, each_product(judge_expressions));

static void judge_contractions(factored *f, const json_t *entry)
{
    for (int d = 0; d < f->block.rank; d++) {
        const double *at[2] = { f->wide_G, f->wide_G };
        int64_t sizes[2][PD_MAX_RANK], n = f->block.size[d];
        double T[64] = { 0 };
        float S[64];
        pd_block_view view = view_of(f, f->G);
        memcpy(sizes[0], f->block.size, sizeof sizes[0]);
        memcpy(sizes[1], f->block.size, sizeof sizes[1]);
        compute(json_string_value(json_array_get(json_object_get(entry, "exprGs"), (size_t)d)), at, sizes, T);
        pd_block_gram(pd_mat_dense(S, n, n), 0, 1, &view, d);
        pd_mirror(pd_mat_dense(S, n, n));
        for (int64_t k = 0; f->block.diagonal[d] && k < n; k++) S[k] = S[k * n + k];
        assert_close(S, T, f->block.diagonal[d] ? n : n * n);
    }
}

HOLDS(a_block_is_contracted_as_the_expressions_say, each_product(judge_contractions));

static void set(pd_hypers *hypers, const char *name, const char *value)
{
    assert_int_equal(pd_hypers_set(hypers, name, value, NULL), PD_OK);
}

static void set_flag(pd_hypers *hypers, const json_t *options, const char *name)
{
    if (json_object_get(options, name) != NULL)
        set(hypers, name, json_is_true(json_object_get(options, name)) ? "yes" : "no");
}

/* Sets the memory_save_mode under which each dimension's factor is diagonal or triangular as the table entry says.
 * Returns false if there is no such mode. */
static bool choose_types(pd_hypers *hypers, const pd_kron_shape *given)
{
    static const char *const modes[] = { "none", "one_diag", "all_diag" };

    for (int mode = KRON_SAVE_NONE; mode <= KRON_SAVE_ALL_DIAG; mode++) {
        bool diagonal[PD_MAX_RANK] = { false };
        pd_kron_types(&given->shape, 8192, 1, mode, diagonal);
        if (memcmp(diagonal, given->diagonal, (size_t)given->shape.rank * sizeof *diagonal) != 0) continue;
        set(hypers, "memory_save_mode", modes[mode]);
        return true;
    }
    return false;
}

static void assert_factors(const json_t *entry, const pd_plan *plan)
{
    json_t *factors = json_object_get(entry, "Q_shapes"), *factor;
    size_t d;

    json_array_foreach(factors, d, factor)
    {
        const pd_slot_spec *Q = &plan->slots[((const pd_kron_own *)plan->own)->q + (int64_t)d];
        pd_shape expected = shape_of(factor);
        assert_int_equal(Q->shape.rank, 1 + expected.rank);
        for (int k = 0; k < expected.rank; k++) assert_int_equal(Q->shape.dim[1 + k], expected.dim[k]);
        assert_int_equal(Q->identity, expected.rank == 2);
        assert_true(fabs((double)Q->fill - json_real_value(json_object_get(entry, "Q_init"))) < 2e-7);
    }
}

TEST(factors_begin_with_the_shapes_and_scale_of_upstreams)
{
    json_t *entry;
    size_t i, planned = 0;

    json_array_foreach(products, i, entry)
    {
        pd_kron_shape given = given_shape(entry);
        pd_declaration declaration = { .name = "w", .shape = given.shape };
        char scale[40];
        pd_plan plan;
        pd_hypers_init(&declaration.hypers, pd_optim_find("kron"));
        if (!choose_types(&declaration.hypers, &given)) continue;
        snprintf(scale, sizeof scale, "%.17g", json_number_value(json_object_get(entry, "preconditioner_init_scale")));
        set(&declaration.hypers, "preconditioner_init_scale", scale);
        set(&declaration.hypers, "min_ndim_triangular", "1");
        set(&declaration.hypers, "merge_small_dims", "no");
        set(&declaration.hypers, "partition_grads_into_blocks", "no");
        assert_int_equal(pd_plan_make(&plan, &declaration, (double[PD_MAX_MODEL_STATS]){ 0 }, NULL), PD_OK);
        assert_factors(entry, &plan);
        pd_plan_free(&plan);
        planned++;
    }
    assert_true(planned >= 10);
}

/* Returns the mesh axis over whose machines dimension d of the parameter is split, or NULL if it is not split. */
static const json_t *axis_of(const json_t *entry, int d)
{
    const json_t *axis = d < 0 ? NULL : json_array_get(json_object_get(entry, "params_partition_spec"), (size_t)d);

    return json_is_null(axis) ? NULL : axis;
}

static void assert_axis(const json_t *derived, const json_t *recorded)
{
    if (derived == NULL)
        assert_true(recorded == NULL || json_is_null(recorded));
    else
        assert_true(json_equal(derived, recorded));
}

/* Checks over which machines a factor is split: its rows like the parameter's dimension that the factor follows, its
 * columns not at all. Upstream keeps a whole copy of diagonal factors on each machine. */
static void assert_place(const json_t *entry, const pd_slot_spec *Q, const json_t *recorded, bool stacked)
{
    assert_true(Q->follows_known);
    assert_int_equal(json_array_size(recorded), Q->shape.rank - !stacked);
    for (int k = !stacked; k < Q->shape.rank; k++)
        assert_axis(Q->shape.rank == 2 && k == 1 ? NULL : axis_of(entry, Q->follows[k]),
                    json_array_get(recorded, (size_t)(k - !stacked)));
}

/* Returns why the placement of an entry's factors cannot be derived from the placement of its parameter, or NULL if
 * it can. */
static const char *excuse(const json_t *entry)
{
    if (!json_is_null(json_object_get(entry, "preconditioner_partition_spec")))
        return "factors lie where preconditioner_partition_spec says, a choice of the user's";
    if (json_object_size(json_object_get(entry, "options")) == 0)
        return "a merged dimension is split over the machines of all that it is made of";
    return NULL;
}

static void assert_places(const json_t *entry, const pd_plan *plan)
{
    const json_t *specs = json_object_get(entry, "Q_specs"), *spec;
    bool scanned = json_is_true(json_object_get(entry, "scanned"));
    size_t d;

    json_array_foreach(specs, d, spec)
        assert_place(entry, &plan->slots[((const pd_kron_own *)plan->own)->q + (int64_t)d], spec, scanned);
}

TEST(state_lies_where_what_it_follows_does)
{
    json_t *entry;
    size_t i, compared = 0;

    json_array_foreach(places, i, entry)
    {
        pd_declaration declaration = { .name = "w", .shape = shape_of(json_object_get(entry, "shape")) };
        const json_t *options = json_object_get(entry, "options");
        const pd_slot_spec *mu;
        pd_plan plan;
        if (json_is_true(json_object_get(entry, "scanned"))) declaration.axes = "layers,,";
        pd_hypers_init(&declaration.hypers, pd_optim_find("kron"));
        set_flag(&declaration.hypers, options, "merge_small_dims");
        set_flag(&declaration.hypers, options, "partition_grads_into_blocks");
        assert_int_equal(pd_plan_make(&plan, &declaration, (double[PD_MAX_MODEL_STATS]){ 0 }, NULL), PD_OK);
        mu = &plan.slots[((const pd_kron_own *)plan.own)->mu];
        assert_true(mu->follows_known && pd_shape_equal(&mu->shape, &declaration.shape));
        for (int d = 0; d < declaration.shape.rank; d++)
            assert_axis(axis_of(entry, mu->follows[d]), json_array_get(json_object_get(entry, "mu_spec"), (size_t)d));
        if (excuse(entry) != NULL) {
            print_message("factors of entry %zu left out: %s\n", i, excuse(entry));
        } else {
            assert_places(entry, &plan);
            compared++;
        }
        pd_plan_free(&plan);
    }
    assert_true(compared >= 4);
}

static int open_tables(void **state)
{
    (void)state;
    types = golden_table("distributed_kron/table_types_and_merging.json");
    cuts = golden_table("distributed_kron/table_block_partitioner.json");
    products = golden_table("distributed_kron/table_einsum_structure.json");
    places = golden_table("distributed_kron/table_sharding_specs.json");
    return 0;
}

static int close_tables(void **state)
{
    (void)state;
    json_decref(types);
    json_decref(cuts);
    json_decref(products);
    json_decref(places);
    return 0;
}

GROUP(open_tables, close_tables);
