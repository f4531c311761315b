/* Tests that quantized contributions count as the values that they stand for, in every aggregate, with ranges, and when
 * they are summed early or spilled; and where the store refuses them. */
#include "test.h"
#include "block_codec.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

enum { CHUNK = 192, N = 3 * CHUNK + 37, WORLD = 3, CONN = 10 };
static const int64_t sizes[] = { N };
static const pd_dtype types[] = { PD_INT8, PD_INT4 };

/* The elements that a rank contributes. */
typedef struct slice {
    int64_t start, end;
} slice;
static const slice whole = { 0, N };

static float gradient[WORLD][N], values[N];

static int make_gradients(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < WORLD; rank++) rig_noise(50 + rank, gradient[rank], N);
    return 0;
}

/* Sends one piece of a rank's gradient as `dtype`; or, with `decoded`, the values that it stands for as float32.
 * Returns the answer's code. */
static int push_piece(rig *r, uint32_t rank, pd_dtype dtype, bool decoded, int64_t first, int64_t n)
{
    float piece[2 * CHUNK];
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, 1);

    pd_blocks_encode(piece, dtype, gradient[rank] + first, n);
    pd_blocks_decode(values, dtype, piece, n, 0, n);
    rig_piece(frame, 0, decoded ? PD_F32 : dtype, first, n, decoded ? values : gradient[rank] + first);
    rig_weight(frame, 0.7 + rank, false);
    return rig_send(r, frame);
}

static void push(rig *r, uint32_t rank, pd_dtype dtype, bool decoded, slice own)
{
    for (int64_t first = own.start, n; first < own.end; first += n) {
        n = pd_range_piece(own.start, own.end, CHUNK, (uint64_t)first);
        assert_int_equal(push_piece(r, rank, dtype, decoded, first, n), PD_OK);
    }
}

/* Tells the store that the rank's connection waits for memory, so that its contributions are summed or spilled. */
static void stall(rig *r, uint32_t rank)
{
    pd_request *request = pd_request_new(PD_REQ_STALLED, (pd_ticket){ CONN + rank, 0 });

    assert_non_null(request);
    request->job = r->job;
    request->rank = rank;
    assert_int_equal(rig_apply(r, request), PD_OK);
    rig_work(r);
}

static void start(rig *r, const char *options, pd_dtype promised)
{
    pd_store_config config = rig_config();

    config.chunk_elements = CHUNK;
    rig_new(r, &config);
    r->push_dtype = promised;
    r->job = rig_start(r, "job", WORLD, CONN, sizes, 1, options, NULL);
}

/* Takes a step of whole contributions, and writes the weights after it. `stalls`: no contribution stays in the memory
 * of its frame. */
static void take(const char *options, pd_dtype dtype, bool decoded, bool stalls, pd_dtype promised, float *out)
{
    rig r;

    start(&r, options, promised);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        push(&r, rank, dtype, decoded, whole);
        if (stalls) stall(&r, rank);
        if (stalls) assert_int_equal(r.buffers_out, 0);
    }
    rig_work(&r);
    assert_int_equal(rig_versions(&r, r.job, 0)->step, 1);
    assert_int_equal(r.buffers_out, 0);
    memcpy(out, rig_weights(&r, r.job, 0), N * sizeof *out);
    rig_free(&r);
}

static const char *const aggregates[] = { "aggregate=mean",
                                          "aggregate=sum",
                                          "aggregate=weighted_mean",
                                          "aggregate=median",
                                          "aggregate=trimmed_mean trim=1",
                                          "aggregate=adasum adasum_fold=yes",
                                          "aggregate=adasum_vdot",
                                          "aggregate=radial_mean",
                                          "aggregate=radial_mean quorum=3 damping=root staleness=1",
                                          "aggregate=mean quorum=3",
                                          "aggregate=weighted_mean quorum=3 damping=root staleness=1" };
enum { AGGREGATES = sizeof aggregates / sizeof *aggregates };

static void count_as_their_values(bool stalls, bool promised)
{
    float coded[N], decoded[N];

    for (int t = 0; t < 2; t++)
        for (int i = 0; i < AGGREGATES; i++) {
            take(aggregates[i], types[t], false, stalls, promised ? types[t] : 0, coded);
            take(aggregates[i], types[t], true, false, 0, decoded);
            if (memcmp(coded, decoded, sizeof coded) != 0) fail_msg("%s: other bits", aggregates[i]);
        }
}

HOLDS(contributions_count_as_their_values, count_as_their_values(false, false));
HOLDS(contributions_that_are_summed_early_or_spilled_count_as_their_values, count_as_their_values(true, false));
HOLDS(contributions_in_memory_counted_by_their_type_count_as_their_values, count_as_their_values(true, true));

TEST(types_may_differ_between_ranks)
{
    float mixed[N], expected[N];
    rig r;

    for (int pass = 0; pass < 2; pass++) {
        start(&r, NULL, 0);
        push(&r, 0, PD_INT8, pass == 1, whole);
        push(&r, 1, PD_INT4, pass == 1, whole);
        assert_int_equal(rig_push(&r, r.job, 2, CONN + 2, 1, 0, gradient[2], N), PD_OK);
        rig_work(&r);
        memcpy(pass == 0 ? mixed : expected, rig_weights(&r, r.job, 0), sizeof mixed);
        rig_free(&r);
    }
    assert_memory_equal(mixed, expected, sizeof mixed);
}

/* Ranges that overlap, and that begin and end within blocks of others: sums begin within pieces. */
static const slice slices[WORLD] = { { 0, 301 }, { 129, N }, { 65, 66 } };

static void start_ranged(rig *r, const char *options)
{
    static const pd_shape shape = { 1, { N } };
    pd_store_config config = rig_config();

    config.chunk_elements = CHUNK;
    rig_new(r, &config);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        assert_int_equal(rig_hello(r, "job", rank, WORLD, CONN + rank, CONN + rank, options, NULL), PD_OK);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        assert_int_equal(
            rig_declare_range(r, rank, CONN + rank, "p", &shape, (rig_range){ slices[rank].start, slices[rank].end }),
            PD_OK);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (int64_t first = slices[rank].start, n; first < slices[rank].end; first += n) {
            rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, CONN + rank, 0);
            n = pd_range_piece(slices[rank].start, slices[rank].end, CHUNK, (uint64_t)first);
            rig_piece(frame, 0, PD_F32, first, n, gradient[0] + first);
            assert_int_equal(rig_send(r, frame), PD_OK);
        }
    rig_work(r);
}

static void ranged_contributions_count(const char *options, bool stalls)
{
    float coded[N], decoded[N];
    rig r;

    for (int t = 0; t < 2; t++) {
        for (int pass = 0; pass < 2; pass++) {
            start_ranged(&r, options);
            for (uint32_t rank = 0; rank < WORLD; rank++) {
                push(&r, rank, types[t], pass == 1, slices[rank]);
                if (stalls) stall(&r, rank);
            }
            rig_work(&r);
            assert_int_equal(rig_versions(&r, r.job, 0)->step, 1);
            memcpy(pass == 0 ? coded : decoded, rig_weights(&r, r.job, 0), sizeof coded);
            rig_free(&r);
        }
        assert_memory_equal(coded, decoded, sizeof coded);
    }
}

HOLDS(ranged_contributions_count_as_their_values, ranged_contributions_count("aggregate=mean", false));
HOLDS(ranged_contributions_summed_early_count_as_their_values, ranged_contributions_count("aggregate=mean", true));
HOLDS(ranged_contributions_have_a_median, ranged_contributions_count("aggregate=median", false));
HOLDS(ranged_contributions_that_are_spilled_have_a_median, ranged_contributions_count("aggregate=median", true));
HOLDS(ranged_contributions_have_an_adasum, ranged_contributions_count("aggregate=adasum_vdot", false));

TEST(a_scale_that_is_not_finite_skips_the_step)
{
    float before = gradient[1][70];
    rig r;

    gradient[1][70] = INFINITY;
    start(&r, NULL, 0);
    for (uint32_t rank = 0; rank < WORLD; rank++) push(&r, rank, PD_INT4, false, whole);
    rig_work(&r);
    assert_int_equal(rig_versions(&r, r.job, 0)->outcome, PD_SKIPPED);
    rig_free(&r);
    gradient[1][70] = before;
}

TEST(a_scale_that_is_not_finite_is_rejected_where_that_is_asked_for)
{
    float before = gradient[0][70];
    rig r;

    gradient[0][70] = NAN;
    start(&r, "nonfinite=reject", 0);
    push_piece(&r, 0, PD_INT8, false, 0, CHUNK);
    rig_work(&r);
    assert_int_equal(r.error.code, PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "Encountered nan or inf"));
    rig_free(&r);
    gradient[0][70] = before;
}

TEST(initial_weights_are_not_quantized)
{
    static const char *const names[] = { "p0" };
    static const pd_shape shape = { 1, { CHUNK } };
    rig_frame *frame;
    rig r;

    rig_make(&r);
    assert_int_equal(rig_hello(&r, "job", 0, 1, 1, CONN, NULL, NULL), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 0, CONN, names, &shape, NULL, 1, PD_F32), PD_OK);
    frame = rig_frame_new(&r, PD_REQ_INIT, r.job, 0, CONN, 0);
    rig_piece(frame, 0, PD_INT8, 0, 64, gradient[0]);
    rig_send(&r, frame);
    rig_work(&r);
    assert_int_equal(r.error.code, PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "weights are float32, float16 or bfloat16, got int8"));
    rig_free(&r);
}

TEST(model_state_is_not_quantized)
{
    static const bool states[] = { true };
    rig r;

    rig_make(&r);
    r.states = states;
    r.job = rig_start(&r, "job", 1, CONN, (const int64_t[]){ 64 }, 1, NULL, NULL);
    assert_int_equal(push_piece(&r, 0, PD_INT4, false, 0, 64), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "values of model state are float32, float16 or bfloat16, got int4"));
    rig_free(&r);
}

TEST(what_a_rule_makes_model_state_is_not_quantized)
{
    rig r;

    rig_make(&r);
    r.job = rig_start(&r, "job", 1, CONN, (const int64_t[]){ 64 }, 1, NULL, "* model_state");
    assert_int_equal(push_piece(&r, 0, PD_INT4, false, 0, 64), PD_INVALID_ARGUMENT);
    rig_free(&r);
}

TEST(a_push_of_another_type_than_was_promised_is_refused_where_contributions_are_collected)
{
    rig r;

    start(&r, "aggregate=median", PD_INT4);
    assert_int_equal(push_piece(&r, 0, PD_INT8, false, 0, CHUNK), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "pushed as int8, but every rank has declared to push int4"));
    assert_int_equal(push_piece(&r, 0, PD_INT4, false, 0, CHUNK), PD_OK);
    rig_free(&r);
}

TEST(a_promise_binds_nobody_where_contributions_are_summed)
{
    rig r;

    start(&r, NULL, PD_INT4);
    assert_int_equal(push_piece(&r, 0, PD_INT8, false, 0, CHUNK), PD_OK);
    rig_free(&r);
}

TEST(ranks_promise_the_same_type_where_contributions_are_collected)
{
    static const char *const names[] = { "p0" };
    static const pd_shape shape = { 1, { 64 } };
    rig r;

    rig_make(&r);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(rig_hello(&r, "job", rank, 2, 1 + rank, CONN + rank, "aggregate=median", NULL), PD_OK);
    r.push_dtype = PD_INT4;
    assert_int_equal(rig_declare(&r, r.job, 0, CONN, names, &shape, NULL, 1, PD_F32), PD_OK);
    r.push_dtype = PD_INT8;
    assert_int_equal(rig_declare(&r, r.job, 1, CONN + 1, names, &shape, NULL, 1, PD_F32), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r.error.text, "every rank pushes it as int4, this rank declares int8"));
    rig_free(&r);
}

TEST(contributions_that_are_collected_count_with_the_bytes_of_their_type)
{
    uint64_t plain, coded;
    rig r;

    start(&r, "aggregate=median", 0);
    plain = inside_job(r.store, r.job)->steps.account.used;
    rig_free(&r);
    start(&r, "aggregate=median", PD_INT4);
    coded = inside_job(r.store, r.job)->steps.account.used;
    assert_int_equal(plain - coded, WORLD * 4 * (pd_dtype_bytes(PD_F32, CHUNK) - pd_dtype_bytes(PD_INT4, CHUNK)));
    rig_free(&r);
}

TEST(a_restart_keeps_the_type_that_ranks_have_promised)
{
    pd_store_config config = durable_config();
    uint64_t before;
    rig r, again;

    config.chunk_elements = CHUNK;
    rig_new(&r, &config);
    r.push_dtype = PD_INT4;
    r.job = rig_start(&r, "job", WORLD, CONN, sizes, 1, "aggregate=median", NULL);
    for (uint32_t rank = 0; rank < WORLD; rank++) push(&r, rank, PD_INT4, false, whole);
    rig_work(&r);
    assert_int_equal(rig_checkpoint(&r, NULL, CONN, 1, 10), PD_OK);
    rig_work(&r);
    before = inside_job(r.store, r.job)->steps.account.used;
    rig_new(&again, &config);
    assert_int_equal(rig_restore(&again, &r), PD_OK);
    assert_int_equal(inside_job(again.store, r.job)->steps.params[0].push_dtype, PD_INT4);
    assert_int_equal(inside_job(again.store, r.job)->steps.account.used, before);
    rig_free(&again);
    rig_free(&r);
}

GROUP(make_gradients, NULL);
