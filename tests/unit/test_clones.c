/* Tests that paramd's own loops give the same bits with every instruction set of this CPU. OpenBLAS keeps its
 * instruction set during these tests, so optimizers that multiply matrices can be compared too: with AVX2 and AVX-512,
 * whose small products are the same. */
#include "test.h"
#include "adasum.h"
#include "block_codec.h"
#include "convert.h"
#include "cpu.h"
#include "kernels.h"
#include "quantize.h"
#include "random.h"
#include "robust.h"
#include "shampoos.h"
#include "vectors.h"

/* N is a multiple neither of the elements in a SIMD register nor of the elements that a loop handles at a time. SHORT
 * is small, since optimizers decompose a matrix of that side. */
enum { N = 4099, MOST = 1 << 18, VECTORS = 11, ROWS = 37, COLS = 29, SHORT = 131, STEPS = 6 };

/* The bytes that a case has computed. */
typedef struct output {
    size_t n;
    unsigned char bytes[MOST];
} output;

/* The input of every case. x[0] has zeros of both signs, denormal numbers and numbers near the largest. */
static float x[VECTORS][N];

static void put(output *out, const void *at, size_t bytes)
{
    assert_true(out->n + bytes <= MOST);
    memcpy(out->bytes + out->n, at, bytes);
    out->n += bytes;
}

static int make_input(void **state)
{
    static const float special[] = { 0.0F, -0.0F, 1e-41F, -3e-39F, 3e38F, -1e30F, 65519.0F, 65520.0F, 6e-8F };

    (void)state;
    for (int r = 0; r < VECTORS; r++) vectors_fill(x[r], N, r);
    for (size_t i = 0; i < N; i += 3) x[0][i] = special[i / 3 % (sizeof special / sizeof special[0])];
    return 0;
}

/* Runs a case with each instruction set from `first` on, and compares its bytes with those of the first one. */
static void sets_give(pd_cpu first, void (*compute)(output *out, int which), int which, const char *what)
{
    static output plain, other;
    pd_cpu chosen = pd_cpu_in_use;

    if (pd_cpu_newest() <= first) skip(); /* there is nothing to compare */
    for (pd_cpu set = first; set <= pd_cpu_newest(); set++) {
        output *out = set == first ? &plain : &other;
        out->n = 0;
        assert_int_equal(pd_cpu_use(pd_cpu_names[set], NULL), PD_OK);
        compute(out, which);
        assert_true(out->n > 0);
        if (out->n != plain.n || memcmp(out->bytes, plain.bytes, plain.n) != 0)
            fail_msg("%s: %s gives other bits than %s", what, pd_cpu_names[set], pd_cpu_names[first]);
    }
    pd_cpu_use(pd_cpu_names[chosen], NULL);
}

static void every_set_gives(void (*compute)(output *out, int which), int which, const char *what)
{
    sets_give(PD_CPU_GENERIC, compute, which, what);
}

/* Sums `which` addends. Every third addend has numbers of two bytes. */
static void sum(output *out, int which)
{
    static uint16_t narrow[2][N];
    float acc[N] = { 0 };
    pd_addend addends[VECTORS];
    bool finite;

    pd_convert(narrow[0], PD_F16, x[1], PD_F32, N);
    pd_convert(narrow[1], PD_BF16, x[2], PD_F32, N);
    for (int k = 0; k < which; k++) addends[k] = (pd_addend){ { .at = x[k], .dtype = PD_F32 }, 0.1F + (float)k };
    for (int k = 2; k < which; k += 3) {
        addends[k].run.at = narrow[k % 2];
        addends[k].run.dtype = k % 2 == 0 ? PD_F16 : PD_BF16;
    }
    finite = pd_accumulate(acc, N, false, addends, which, 3);
    put(out, &finite, sizeof finite);
    put(out, acc, sizeof acc);
}

TEST(sums_have_the_same_bits)
{
    for (int k = 1; k <= VECTORS; k++) every_set_gives(sum, k, "pd_accumulate");
}

static void dot(output *out, int which)
{
    double numbers[3] = { pd_dot(x[1], x[2], which), pd_sum_squares(x[3], which), pd_sum_squares(x[0], which) };
    float scaled[N];
    bool finite = pd_all_finite(x[0], PD_F32, which);

    pd_scale(scaled, x[0], 0.3F, which);
    put(out, numbers, sizeof numbers);
    put(out, &finite, sizeof finite);
    put(out, scaled, (size_t)which * sizeof *scaled);
}

TEST(dot_products_have_the_same_bits)
{
    for (int n = 1; n < 40; n++) every_set_gives(dot, n, "pd_dot");
    every_set_gives(dot, N, "pd_dot");
}

static void adasum(output *out, int which)
{
    const int64_t ends[] = { 1000, N };
    float to[N], *scratch[4 * VECTORS];
    int forms[] = { PD_ADASUM_TREE, PD_ADASUM_VDOT, PD_RADIAL_MEAN_FORM };
    pd_vector_run at[2 * VECTORS];
    pd_vectors v = { which, 2, ends, at };

    for (int p = 0; p < 2; p++)
        for (int r = 0; r < which; r++)
            at[p * which + r] = (pd_vector_run){ .at = x[r + 1] + (p > 0 ? ends[0] : 0), .dtype = PD_F32 };
    for (int i = 0; i < 4 * VECTORS; i++) assert_non_null(scratch[i] = calloc(N, sizeof(float)));
    for (int f = 0; f < 3; f++) {
        pd_adasum *a;
        assert_int_equal(pd_adasum_begin(&a, (pd_adasum_form)forms[f], &v, N, to, scratch), PD_OK);
        for (; pd_adasum_units(a) > 0; pd_adasum_turn(a))
            for (int64_t i = 0; i < pd_adasum_units(a); i++) pd_adasum_unit(a, i);
        pd_adasum_end(a);
        put(out, to, sizeof to);
    }
    for (int i = 0; i < 4 * VECTORS; i++) free(scratch[i]);
}

TEST(adasum_has_the_same_bits)
{
    for (int k = 1; k < VECTORS; k++) every_set_gives(adasum, k, "pd_adasum");
}

static void trim(output *out, int which)
{
    pd_vector_run at[VECTORS];
    void *scratch = malloc(pd_trimmed_mean_scratch(VECTORS));
    float to[N];

    assert_non_null(scratch);
    for (int r = 0; r < VECTORS; r++) at[r] = (pd_vector_run){ .at = x[r], .dtype = PD_F32 };
    pd_trimmed_mean(to, N, at, VECTORS, which, scratch);
    put(out, to, sizeof to);
    free(scratch);
}

TEST(trimmed_means_have_the_same_bits)
{
    for (int t = 0; t <= pd_median_trim(VECTORS); t++) every_set_gives(trim, t, "pd_trimmed_mean");
}

static void convert(output *out, int which)
{
    static uint16_t codes[65536], again[65536];
    static float wide[65536];
    const pd_dtype type = which == 0 ? PD_F16 : PD_BF16;

    for (int i = 0; i < 65536; i++) codes[i] = (uint16_t)i;
    pd_convert(wide, PD_F32, codes, type, 65536);
    pd_convert(again, type, wide, PD_F32, 65536);
    put(out, again, sizeof again);
    pd_convert(again, type, x[0], PD_F32, N);
    put(out, again, N * sizeof *again);
}

/* Narrows numbers whose bits lie a prime apart: numbers of all sizes, and NaN with payloads. */
static void narrow(output *out, int which)
{
    static uint16_t codes[65536];
    static float wide[65536];

    for (uint32_t i = 0; i < 65536; i++) wide[i] = pd_f32_from_bits(i * 65537u + 32771u * (uint32_t)which);
    pd_convert(codes, PD_F16, wide, PD_F32, 65536);
    put(out, codes, sizeof codes);
    pd_convert(codes, PD_F16, wide, PD_F32, which);
    put(out, codes, (size_t)which * sizeof *codes);
}

TEST(conversions_have_the_same_bits)
{
    for (int which = 0; which < 40; which++) every_set_gives(narrow, which, "pd_convert to float16");
    every_set_gives(convert, 0, "pd_convert (float16)");
    every_set_gives(convert, 1, "pd_convert (bfloat16)");
}

static void quantize(output *out, int which)
{
    static const pd_storage forms[] = { PD_STORE_INT8, PD_STORE_INT16, PD_STORE_BF16, PD_STORE_F16 };
    size_t room = (size_t)pd_quantized_room(forms[which], which < 2, COLS, COLS);
    void *memory = aligned_alloc(64, (room + 63) / 64 * 64);
    float back[COLS * COLS];
    pd_quantized q;

    assert_non_null(memory);
    memset(memory, 0, room);
    q = pd_quantized_at(memory, forms[which], which < 2, COLS, COLS);
    pd_quantize(&q, x[1]);
    pd_dequantize(back, &q);
    put(out, memory, room);
    put(out, back, sizeof back);
    free(memory);
}

TEST(quantized_tensors_have_the_same_bits)
{
    for (int form = 0; form < 4; form++) every_set_gives(quantize, form, "pd_quantize");
}

/* Encodes a vector as int8 or int4, and reads the bytes again as a whole and as a sum from an odd element on. */
static void code_blocks(output *out, int which)
{
    const pd_dtype type = which < 2 ? PD_INT8 : PD_INT4;
    static float piece[2 * N], back[N];
    const int first = 77;

    pd_blocks_encode(piece, type, x[which % 2], N);
    put(out, piece, pd_dtype_bytes(type, N));
    pd_blocks_decode(back, type, piece, N, 0, N);
    put(out, back, sizeof back);
    memcpy(back, x[2], sizeof back);
    pd_blocks_add(back, type, piece, N, first, N - first, 0.3F, false);
    put(out, back, sizeof back);
    pd_blocks_rest(back, x[which % 2], type, piece, N);
    put(out, back, sizeof back);
}

TEST(quantized_pushes_have_the_same_bits)
{
    for (int which = 0; which < 4; which++) every_set_gives(code_blocks, which, "pd_blocks");
}

static void draw(output *out, int which)
{
    pd_random stream = pd_random_stream(17, "layer");
    float numbers[N];

    pd_random_uniform(stream, 3, (uint64_t)which, numbers, N);
    put(out, numbers, sizeof numbers);
    pd_random_normal(stream, 3, (uint64_t)which, numbers, N);
    put(out, numbers, sizeof numbers);
}

TEST(random_numbers_have_the_same_bits)
{
    for (int first = 0; first < 4; first++) every_set_gives(draw, first, "pd_random");
}

/* Trains a matrix and a vector for a few steps with an optimizer. */
static void train(output *out, const char *optimizer, const char *hypers)
{
    static float matrix[ROWS * COLS], vector[SHORT];
    pd_declaration params[2] = { { .name = "matrix", .shape = { 2, { ROWS, COLS } } },
                                 { .name = "vector", .shape = { 1, { SHORT } } } };
    pd_model *model;
    pd_error err;

    for (int p = 0; p < 2; p++) {
        shampoo_take(&params[p].hypers, optimizer, hypers);
        if (vectors_has(optimizer, "learning_rate"))
            assert_int_equal(pd_hypers_set(&params[p].hypers, "learning_rate", "0.01", NULL), PD_OK);
    }
    vectors_fill(matrix, ROWS * COLS, 90);
    vectors_fill(vector, SHORT, 91);
    if (pd_model_new(&model, params, 2, 1, &err) != PD_OK) fail_msg("%s", err.text);
    for (int step = 1; step <= STEPS; step++) {
        pd_step_io io[2] = { { .gradient = x[step], .before = matrix, .after = matrix },
                             { .gradient = x[step + 1], .before = vector, .after = vector } };
        if (pd_model_step(model, io, &err) != PD_OK) fail_msg("%s", err.text);
    }
    pd_model_free(model);
    put(out, matrix, sizeof matrix);
    put(out, vector, sizeof vector);
}

/* Trains with optimizer number `which` of the optimizer table. */
static void optimize(output *out, int which)
{
    train(out, pd_optimizer_name(pd_optim_at((size_t)which)), "");
}

/* Options whose loops no default has. multiplies: they have products of matrices, too. */
static const struct {
    const char *optimizer, *text;
    bool multiplies;
} options[] = {
    { "adamw", "hyperball=yes", false },
    { "mars", "mars_type=mars-lion last_grad_dtype=bfloat16", false },
    { "schedule_free", "inner_momentum=0.9 warmup_steps=3", false },
    { "gpa", "iterate_averaging_type=schedule_free use_wd_on_y=yes weight_decay=0.1", false },
    { "muon", "normuon=yes polynomial=polar_express", true },
    { "muon", "form=keller compute=bfloat16 hyperball=yes", true },
    { "soap", "orthogonalize=yes exp_avg_dtype=bfloat16 precondition_frequency=2", true },
    { "kl_shampoo", "using_klsoap=yes precondition_frequency=2", true },
    { "kron", "dQ=QUAD4P merge_small_dims=no", true },
    { "kron", "dQ=PRO4P merge_small_dims=no preconditioner_init_scale=auto", true },
    { "kron", "dQ=QEP merge_small_dims=no", true },
    { "kron", "dQ=QEQ merge_small_dims=no precond_dtype=bfloat16", true },
    { "kron", "dQ=EQ_psgd merge_small_dims=no", true },
    { "shampoo", "semantics=2026 preconditioner_config=EigenvalueCorrectedShampoo", true },
    { "shampoo", "semantics=2026 preconditioner_config=SignDescent", false },
};

static void optimize_with_options(output *out, int which)
{
    train(out, options[which].optimizer, options[which].text);
}

static int place_of(const char *name)
{
    int i = 0;

    while (strcmp(pd_optimizer_name(pd_optim_at((size_t)i)), name) != 0) i++;
    return i;
}

TEST(every_element_wise_optimizer_has_the_same_bits)
{
    every_set_gives(optimize, place_of("sgd"), "sgd");
    every_set_gives(optimize, place_of("adafactor"), "adafactor");
    for (int i = 0; i < VECTORS_ROWS; i++) every_set_gives(optimize, place_of(vectors_rows[i]), vectors_rows[i]);
}

TEST(every_optimizer_has_the_same_bits_with_fused_products)
{
    for (size_t i = 0; pd_optim_at(i) != NULL; i++)
        sets_give(PD_CPU_AVX2, optimize, (int)i, pd_optimizer_name(pd_optim_at(i)));
}

TEST(so_have_options_with_loops_of_their_own)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        sets_give(options[i].multiplies ? PD_CPU_AVX2 : PD_CPU_GENERIC, optimize_with_options, (int)i, options[i].text);
}

TEST(an_unknown_set_is_refused_and_changes_nothing)
{
    pd_cpu before = pd_cpu_in_use;
    pd_error err;

    assert_int_equal(pd_cpu_use("avx3", &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "auto|generic|avx2|avx512"));
    assert_int_equal(pd_cpu_in_use, before);
}

TEST(a_set_that_the_cpu_lacks_is_refused)
{
    pd_error err;

    if (pd_cpu_newest() == PD_CPU_AVX512) skip();
    assert_int_equal(pd_cpu_use("avx512", &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, pd_cpu_names[pd_cpu_newest()]));
}

GROUP(make_input, NULL);
