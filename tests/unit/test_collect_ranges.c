/* Tests Adasum and other collecting aggregates with weights in shards. The number of contributors of an element is
 * known when the last rank has declared its range. The tests check which ranks are refused then, and which bytes are
 * counted. */
#include "test.h"
#include "rig.h"
#include "store_inside.h"

enum { CONN = 10, CHUNK = 64, N = 300 };
static const char *const name[] = { "w" };

static int declare_pulling(rig *r, uint32_t rank, int64_t n, int64_t start, int64_t end, pd_dtype pull)
{
    pd_shape shape = { 1, { n } };
    rig_range range = { start, end };
    int rc;

    r->ranges = &range;
    rc = rig_declare(r, r->job, rank, CONN + rank, name, &shape, NULL, 1, pull);
    r->ranges = NULL;
    return rc;
}

static int declare(rig *r, uint32_t rank, int64_t n, int64_t start, int64_t end)
{
    return declare_pulling(r, rank, n, start, end, PD_F32);
}

static void join(rig *r, uint32_t world, const char *options, const char *rules)
{
    for (uint32_t rank = 0; rank < world; rank++)
        assert_int_equal(rig_hello(r, "job", rank, world, CONN + rank, CONN + rank, options, rules), PD_OK);
}

static void begin(rig *r, uint32_t world, const char *options)
{
    pd_store_config config = rig_config();

    rig_new(r, &config);
    join(r, world, options, "* sgd lr=1");
}

TEST(a_whole_parameter_needs_a_power_of_two_of_ranks)
{
    static const struct {
        uint32_t world;
        const char *options;
        int rc;
        const char *word;
    } cases[] = {
        { 3, "aggregate=adasum", PD_INVALID_ARGUMENT, "adasum_fold = yes" },
        { 12, "aggregate=adasum", PD_INVALID_ARGUMENT, "adasum_vdot" },
        { 1, "aggregate=adasum", PD_OK, NULL },
        { 8, "aggregate=adasum", PD_OK, NULL },
        { 3, "aggregate=adasum adasum_fold=yes", PD_OK, NULL },
        { 3, "aggregate=adasum_vdot", PD_OK, NULL },
        { 3, "adasum_fold=no", PD_OK, NULL },
    };
    rig r;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(&r, cases[i].world, cases[i].options);
        assert_int_equal(declare(&r, 0, N, -1, 0), cases[i].rc);
        if (cases[i].word != NULL && strstr(r.error.text, cases[i].word) == NULL)
            fail_msg("case %zu: %s", i, r.error.text);
        rig_free(&r);
    }
}

TEST(a_set_that_was_refused_leaves_nothing_behind)
{
    rig r;

    begin(&r, 3, "aggregate=adasum");
    assert_int_equal(declare(&r, 0, N, -1, 0), PD_INVALID_ARGUMENT);
    assert_int_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->jobs[0].params, 0);
    assert_int_equal(r.store->budget.used, 0);
    /* each element belongs to one rank, so Adasum has nothing to merge and accepts three ranks */
    assert_int_equal(declare(&r, 0, N, 0, 100), PD_OK);
    assert_int_equal(declare(&r, 1, N, 100, 200), PD_OK);
    assert_int_equal(declare(&r, 2, N, 200, N), PD_OK);
    rig_free(&r);
}

TEST(values_are_averaged_over_any_number_of_ranks)
{
    pd_store_config config = rig_config();
    rig r;

    rig_new(&r, &config);
    join(&r, 3, "aggregate=adasum", "* model_state");
    assert_int_equal(declare(&r, 0, N, -1, 0), PD_OK);
    rig_free(&r);
}

/* The parameter is cut into three thirds, and two ranks contribute to each third: ranks r and r + 3 to third r. In
 * the first third the two gradients are orthogonal, so Adasum gives their sum. In the second third they are equal,
 * so Adasum gives one of them. In the last third they are opposite, so Adasum gives 0. */
TEST(six_ranks_with_weights_in_three_shards_merge_in_pairs)
{
    enum { THIRD = N / 3 };
    static const float expected[3] = { 2, 2, 0 };
    float x[N];
    rig r;

    begin(&r, 6, "aggregate=adasum");
    for (uint32_t rank = 0; rank < 6; rank++)
        assert_int_equal(declare(&r, rank, N, rank % 3 * THIRD, (rank % 3 + 1) * THIRD), PD_OK);
    for (int step = 0; step <= 1; step++) {
        for (uint32_t rank = 0; rank < 6; rank++) {
            int64_t start = rank % 3 * THIRD, end = start + THIRD;
            for (int64_t i = 0; i < N; i++) {
                bool mine = rank % 3 != 0 || i % 2 == (rank == 0);
                x[i] = step == 0 ? 0 : rank == 5 ? -2.0f : mine ? 2.0f : 0;
            }
            for (int64_t first = start, n; first < end; first += n) {
                rig_frame *frame =
                    rig_frame_new(&r, step == 0 ? PD_REQ_INIT : PD_REQ_PUSH, r.job, rank, CONN + rank, (uint64_t)step);
                n = pd_range_piece(start, end, CHUNK, (uint64_t)first);
                rig_piece(frame, 0, PD_F32, first, n, x + first);
                assert_int_equal(rig_send(&r, frame), PD_OK);
            }
        }
        rig_work(&r);
    }
    assert_int_equal(r.versions[r.job][0].step, 1);
    for (int64_t i = 0; i < N; i++) assert_true(rig_weights(&r, r.job, 0)[i] == -expected[i / THIRD]);
    rig_free(&r);
}

TEST(the_log_says_that_the_last_rank_was_refused)
{
    rig r;

    for (int gap = 0; gap < 2; gap++) {
        begin(&r, 3, "aggregate=adasum");
        assert_int_equal(declare(&r, 0, N, 0, 100), PD_OK);
        assert_int_equal(declare(&r, 2, N, 100, 200), PD_OK);
        assert_int_equal(r.warnings, 0);
        assert_int_equal(declare(&r, 1, N, gap ? 200 : 100, gap ? 299 : 300), gap ? PD_FAILED_PRECONDITION : PD_OK);
        assert_int_equal(r.warnings, gap);
        if (gap) assert_non_null(strstr(r.warning, "declares: parameter w: no rank has"));
        assert_string_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->jobs[0].state, gap ? "gathering" : "running");
        rig_free(&r);
    }
    begin(&r, 3, "aggregate=adasum");
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(declare(&r, rank, N, 0, N), PD_OK);
    assert_int_equal(declare(&r, 2, N, 10, 20), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r.warning, "declares: parameter w: 3 ranks contribute elements 10 to 20"));
    rig_free(&r);
}

/* Two ranks contribute to the first elements, and twenty ranks to the others. Each thread has its own sort buffer
 * for the median, large enough for twenty ranks. */
TEST(threads_do_not_share_sort_buffers)
{
    enum { RANKS = 20, LARGE = 400000 };
    static float x[LARGE], expected[LARGE];

    for (int threads = 1; threads <= 4; threads += 3) {
        pd_store_config config = rig_config();
        rig r;
        config.chunk_elements = 1 << 19;
        config.threads = threads;
        rig_new(&r, &config);
        join(&r, RANKS, "aggregate=median", "* sgd lr=1");
        for (uint32_t rank = 0; rank < RANKS; rank++)
            assert_int_equal(declare(&r, rank, LARGE, rank < 2 ? 0 : CHUNK, LARGE), PD_OK);
        for (int step = 0; step <= 1; step++)
            for (uint32_t rank = 0; rank < RANKS; rank++) {
                rig_frame *frame =
                    rig_frame_new(&r, step == 0 ? PD_REQ_INIT : PD_REQ_PUSH, r.job, rank, CONN + rank, (uint64_t)step);
                int64_t first = rank < 2 ? 0 : CHUNK;
                for (int64_t i = 0; i < LARGE; i++) x[i] = step == 0 ? 0 : (float)((i * 7 + rank * 13) % 101);
                rig_piece(frame, 0, PD_F32, first, LARGE - first, x + first);
                assert_int_equal(rig_send(&r, frame), PD_OK);
                if (step == 0) rig_work(&r);
            }
        rig_work(&r);
        assert_int_equal(r.versions[r.job][0].step, 1);
        if (threads == 1)
            memcpy(expected, rig_weights(&r, r.job, 0), sizeof expected);
        else
            assert_memory_equal(rig_weights(&r, r.job, 0), expected, sizeof expected);
        rig_free(&r);
    }
}

static uint64_t collect_bytes(rig *r)
{
    return rig_ask(r, PD_INFO_PARAMS, "job")->params[0].collect_bytes;
}

/* Each chunk that a range touches counts as a chunk of memory. Ranks that have not declared yet, and empty ranges,
 * count nothing. */
TEST(params_report_the_memory_that_ranges_may_hold)
{
    static const char *const options[] = { "aggregate=adasum", "aggregate=adasum_vdot", "aggregate=median" };
    static const uint64_t chunk = CHUNK * sizeof(float);
    rig r;

    for (int i = 0; i < 3; i++) {
        uint64_t source = i < 2 ? sizeof(pd_vector_run) : 0;
        begin(&r, 4, options[i]);
        assert_int_equal(declare(&r, 3, N, 0, CHUNK), PD_OK);
        assert_int_equal(collect_bytes(&r), chunk + source);
        assert_int_equal(declare(&r, 0, N, 1, CHUNK + 1), PD_OK);
        assert_int_equal(collect_bytes(&r), 3 * (chunk + source));
        assert_int_equal(declare(&r, 1, N, 7, 7), PD_OK);
        assert_int_equal(collect_bytes(&r), 3 * (chunk + source));
        rig_free(&r);
    }
}

/* Adasum's tree needs memory of its own only if more than eight ranks contribute to the same elements. */
TEST(a_tree_of_shards_is_as_large_as_the_ranks_that_share_one)
{
    uint64_t chunks = (N + CHUNK - 1) / CHUNK;
    rig r;

    for (int apart = 0; apart < 2; apart++) {
        uint64_t slots;
        begin(&r, 16, "aggregate=adasum");
        for (uint32_t rank = 0; rank < 16; rank++)
            assert_int_equal(
                declare(&r, rank, N, apart && rank >= 8 ? 2 * CHUNK : 0, apart && rank < 8 ? 2 * CHUNK : N), PD_OK);
        slots = apart ? 8 * chunks : 16 * chunks;
        assert_int_equal(collect_bytes(&r),
                         slots * (CHUNK * sizeof(float) + sizeof(pd_vector_run)) + (apart ? 0 : N * sizeof(float)));
        rig_free(&r);
    }
}

/* The memory limit admits eight ranks that contribute one shard each, but not eight ranks that contribute the whole
 * parameter. It does not admit seven shards and one whole contribution either. */
TEST(shards_are_counted_with_their_own_size)
{
    enum { LARGE = 100 * CHUNK, SHARD = LARGE / 8 };
    pd_store_config config = rig_config();
    uint64_t before, seven;
    pd_request *request;
    rig r;

    config.max_total_bytes = LARGE * sizeof(float) * 8;
    rig_new(&r, &config);
    join(&r, 8, "aggregate=median", "* sgd lr=1");
    before = r.store->budget.used;
    for (uint32_t rank = 0; rank < 7; rank++)
        assert_int_equal(declare(&r, rank, LARGE, rank * SHARD, (rank + 1) * SHARD), PD_OK);
    seven = r.store->budget.used;
    r.store->budget.limit = seven + LARGE * sizeof(float) / 2;
    assert_int_equal(declare(&r, 7, LARGE, 0, LARGE), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "contributions collected"));
    assert_int_equal(r.store->budget.used, seven);
    assert_int_equal(declare_pulling(&r, 7, LARGE, 7 * SHARD, LARGE, PD_BF16),
                     PD_RESOURCE_EXHAUSTED); /* memory suffices for the shard, but not also for a copy of the weights
                                              * in another type */
    assert_int_equal(r.store->budget.used, seven);
    assert_int_equal(declare(&r, 7, LARGE, 7 * SHARD, LARGE), PD_OK);
    assert_true(r.store->budget.used > seven);
    seven = r.store->budget.used;
    assert_int_equal(declare(&r, 7, LARGE, 7 * SHARD, LARGE), PD_OK); /* a repeated declaration counts no more bytes */
    assert_int_equal(r.store->budget.used, seven);
    request = pd_request_new(PD_REQ_DROP, rig_ticket(&r, 99));
    request->u.info.job_name = strdup("job");
    assert_int_equal(rig_apply(&r, request), PD_OK);
    rig_absorb(&r);
    assert_int_equal(r.store->budget.used, before);
    rig_free(&r);
}

/* A refused first set of parameters gives back all bytes that were counted for it. The next set is counted from the
 * start. */
TEST(a_first_set_that_was_refused_is_not_counted)
{
    enum { LARGE = 100 * CHUNK };
    uint64_t committed;
    rig r;

    begin(&r, 2, "aggregate=median");
    assert_int_equal(declare(&r, 0, LARGE, 0, LARGE / 2), PD_OK);
    committed = r.store->budget.used;
    rig_free(&r);
    begin(&r, 2, "aggregate=median");
    r.store->budget.limit = committed;
    assert_int_equal(declare_pulling(&r, 0, LARGE, 0, LARGE / 2, PD_BF16), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(r.store->budget.used, 0);
    assert_int_equal(declare(&r, 0, LARGE, 0, LARGE / 2), PD_OK);
    assert_int_equal(r.store->budget.used, committed);
    rig_free(&r);
}
