/* Tests parameters that each rank holds only a range of, as with FSDP and HSDP: ranks declare, initialise and push
 * ranges, and the store steps the whole tensor. */
#include "test.h"
#include "rig.h"

enum { N = 150, CHUNK = 64, CONN = 10, STEPS = 5 };

static const char *const name[] = { "w" };
static const pd_shape shape = { 2, { 15, 10 } };
static const char *const rule = "* sgd lr=0.1 momentum=0.9 nesterov=true";

static void set_up(rig *r)
{
    pd_store_config config = rig_config();

    config.chunk_elements = CHUNK;
    rig_new(r, &config);
}

static int hello(rig *r, uint32_t rank, uint32_t world, const char *options)
{
    return rig_hello(r, "job", rank, world, CONN + rank, CONN + rank, options, rule);
}

static int declare(rig *r, uint32_t rank, int64_t start, int64_t end)
{
    return rig_declare_range(r, rank, CONN + rank, *name, &shape, (rig_range){ start, end });
}

/* Sends the elements [start, end) from a rank in pieces, each in a frame of its own. `values` points to the whole
 * parameter. Returns the error code. */
static int send_as(rig *r, pd_request_kind kind, uint32_t rank, uint64_t step, const float *values, int64_t start,
                   int64_t end, double weight)
{
    int rc = PD_OK;

    for (int64_t first = start, n; first < end && rc == PD_OK; first += n) {
        rig_frame *frame = rig_frame_new(r, kind, r->job, rank, CONN + rank, step);
        n = pd_range_piece(start, end, CHUNK, (uint64_t)first);
        rig_piece(frame, 0, PD_F32, first, n, values + first);
        rig_weight(frame, weight, false);
        rc = rig_send(r, frame);
    }
    if (kind == PD_REQ_INIT) rig_work(r);
    return rc != PD_OK ? rc : r->error.code;
}

static int init(rig *r, uint32_t rank, const float *values, int64_t start, int64_t end)
{
    return send_as(r, PD_REQ_INIT, rank, 0, values, start, end, 1);
}

static int push(rig *r, uint32_t rank, uint64_t step, const float *values, int64_t start, int64_t end)
{
    return send_as(r, PD_REQ_PUSH, rank, step, values, start, end, 1);
}

static int be_absent(rig *r, uint32_t rank, uint64_t step)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);

    rig_absent(frame, 0);
    return rig_send(r, frame);
}

/* Pushes an empty piece, as a rank with an empty range does. */
static int push_nothing(rig *r, uint32_t rank, uint64_t step, int64_t first)
{
    pd_request *request = pd_request_new(PD_REQ_PUSH, rig_ticket(r, CONN + rank));

    request->job = r->job;
    request->rank = rank;
    request->u.data.step = step;
    request->u.data.weight = 1;
    request->u.data.n = 1;
    request->u.data.pieces = calloc(1, sizeof *request->u.data.pieces);
    request->u.data.pieces[0] = (pd_piece){ .dtype = PD_F32, .first = first };
    return rig_apply(r, request);
}

/* Starts a job in which rank i declares ranges[i] and initialises it with the values of rig_noise(7). */
static void start(rig *r, uint32_t world, const rig_range *ranges, const char *options)
{
    float values[N];

    rig_noise(7, values, N);
    for (uint32_t rank = 0; rank < world; rank++) {
        assert_int_equal(hello(r, rank, world, options), PD_OK);
        assert_int_equal(declare(r, rank, ranges[rank].start, ranges[rank].end), PD_OK);
    }
    for (uint32_t rank = 0; rank < world; rank++)
        assert_int_equal(init(r, rank, values, ranges[rank].start, ranges[rank].end), PD_OK);
}

static const rig_range quarters[] = { { 0, 38 }, { 38, 76 }, { 76, 114 }, { 114, 150 } };

/* Returns the weights that a single worker gets after STEPS steps when it pushes whole gradients, rig_noise(100 +
 * step). */
static const float *whole_weights(void)
{
    static float weights[N];
    pd_store_config config = rig_config();
    rig one;

    config.chunk_elements = CHUNK;
    rig_new(&one, &config);
    assert_int_equal(hello(&one, 0, 1, NULL), PD_OK);
    assert_int_equal(declare(&one, 0, -1, 0), PD_OK);
    rig_noise(7, weights, N);
    assert_int_equal(init(&one, 0, weights, 0, N), PD_OK);
    for (uint64_t step = 1; step <= STEPS; step++) {
        float g[N];
        rig_noise(100 + step, g, N);
        assert_int_equal(push(&one, 0, step, g, 0, N), PD_OK);
        rig_work(&one);
    }
    memcpy(weights, rig_weights(&one, one.job, 0), sizeof weights);
    rig_free(&one);
    return weights;
}

FIXTURE(rig, set_up, rig_free);

TEST(slices_of_four_ranks_step_like_the_whole_of_one, rig *r)
{
    start(r, 4, quarters, NULL);
    for (uint64_t step = 1; step <= STEPS; step++) {
        float g[N];
        rig_noise(100 + step, g, N);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t rank = (i * 3 + (uint32_t)step) % 4;
            assert_int_equal(r->versions[r->job][0].step, step - 1);
            assert_int_equal(push(r, rank, step, g, quarters[rank].start, quarters[rank].end), PD_OK);
            rig_work(r);
        }
        assert_int_equal(r->versions[r->job][0].outcome, PD_STEPPED);
    }
    assert_memory_equal(rig_weights(r, r->job, 0), whole_weights(), N * sizeof(float));
}

TEST(replicas_of_a_shard_are_averaged_first, rig *r)
{
    static const rig_range ranges[] = { { 0, 75 }, { 0, 75 }, { 75, 150 }, { 75, 150 } };

    start(r, 4, ranges, NULL);
    for (uint64_t step = 1; step <= STEPS; step++) {
        float g[N], more[N], less[N];
        rig_noise(100 + step, g, N);
        for (int i = 0; i < N; i++) more[i] = 1.5f * g[i], less[i] = 0.5f * g[i];
        for (uint32_t rank = 0; rank < 4; rank++)
            assert_int_equal(push(r, rank, step, rank % 2 == 0 ? more : less, ranges[rank].start, ranges[rank].end),
                             PD_OK);
        rig_work(r);
    }
    assert_memory_equal(rig_weights(r, r->job, 0), whole_weights(), N * sizeof(float));
}

TEST(a_rank_with_an_empty_shard_is_not_waited_for, rig *r)
{
    static const rig_range ranges[] = { { 0, 0 }, { 0, 75 }, { 75, 75 }, { 75, 150 }, { 150, 150 } };

    start(r, 5, ranges, NULL);
    for (uint64_t step = 1; step <= STEPS; step++) {
        float g[N];
        rig_noise(100 + step, g, N);
        if (step == 2) assert_int_equal(push_nothing(r, 4, step, 150), PD_OK);
        if (step == 3) assert_int_equal(be_absent(r, 0, step), PD_OK);
        assert_int_equal(push(r, 1, step, g, 0, 75), PD_OK);
        if (step == 4) assert_int_equal(push_nothing(r, 2, step, 75), PD_OK);
        assert_string_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[0].missing, "3");
        assert_int_equal(push(r, 3, step, g, 75, 150), PD_OK);
        rig_work(r);
        assert_int_equal(r->versions[r->job][0].step, step);
        assert_int_equal(r->versions[r->job][0].outcome, PD_STEPPED);
    }
    assert_memory_equal(rig_weights(r, r->job, 0), whole_weights(), N * sizeof(float));
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, "job")->jobs[0].duplicates, 0);
}

TEST(an_empty_shard_has_one_piece_of_nothing, rig *r)
{
    static const rig_range ranges[] = { { 0, 150 }, { 75, 75 } };
    float g[N] = { 0 };

    start(r, 2, ranges, NULL);
    assert_int_equal(push_nothing(r, 1, 1, 0), PD_INVALID_ARGUMENT);
    assert_int_equal(push_nothing(r, 1, 1, 150), PD_INVALID_ARGUMENT);
    assert_int_equal(push(r, 1, 1, g, 64, 75), PD_INVALID_ARGUMENT);
    assert_int_equal(push_nothing(r, 0, 1, 0), PD_INVALID_ARGUMENT);
    assert_int_equal(push_nothing(r, 1, 2, 75), PD_FAILED_PRECONDITION); /* the range is right, but the step is one too
                                                                          * early */
    assert_int_equal(push_nothing(r, 1, 1, 75), PD_OK);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, "job")->jobs[0].contributions, 0);
}

TEST(a_range_lies_within_the_parameter, rig *r)
{
    static const rig_range wrong[] = {
        { 0, N + 1 }, { 5, 4 }, { N + 1, N + 1 }, { 10, INT64_MAX }, { INT64_MAX, INT64_MAX }
    };

    assert_int_equal(hello(r, 0, 2, NULL), PD_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(declare(r, 0, wrong[i].start, wrong[i].end), PD_INVALID_ARGUMENT);
        assert_non_null(strstr(r->error.text, "expected 0 <= start <= end <= 150"));
    }
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, "job")->jobs[0].params, 0);
    assert_int_equal(declare(r, 0, 0, 100), PD_OK);
    assert_int_equal(hello(r, 1, 2, NULL), PD_OK);
    assert_int_equal(declare(r, 1, 100, 151), PD_INVALID_ARGUMENT);
    assert_int_equal(declare(r, 1, 100, 150), PD_OK);
}

TEST(elements_that_no_rank_has_refuse_the_last_declare, rig *r)
{
    float values[N];

    rig_noise(7, values, N);
    for (uint32_t rank = 0; rank < 3; rank++) assert_int_equal(hello(r, rank, 3, NULL), PD_OK);
    assert_int_equal(declare(r, 0, 100, 140), PD_OK);
    assert_int_equal(declare(r, 2, 0, 50), PD_OK);
    assert_int_equal(declare(r, 1, 60, 100), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(
        r->error.text,
        "parameter w: no rank has elements 50 to 60 of 150; the ranks' ranges are 0: 100-140, 1: 60-100, 2: 0-50"));
    assert_int_equal(declare(r, 1, 50, 100), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "no rank has elements 140 to 150 of 150"));
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, "job")->jobs[0].state, "gathering");
    assert_int_equal(declare(r, 1, 20, 150), PD_OK);
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, "job")->jobs[0].state, "running");
    assert_int_equal(init(r, 0, values, 100, 140),
                     PD_OK); /* the job waits for the values of every accepted range; refused ranges have no effect */
    assert_int_equal(init(r, 1, values, 20, 150), PD_OK);
    assert_null(r->versions[r->job]);
    assert_int_equal(init(r, 2, values, 0, 50), PD_OK);
    assert_memory_equal(rig_weights(r, r->job, 0), values, sizeof values);
}

TEST(a_single_worker_declares_every_element, rig *r)
{
    assert_int_equal(hello(r, 0, 1, NULL), PD_OK);
    assert_int_equal(declare(r, 0, 1, 150), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "no rank has elements 0 to 1 of 150"));
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, "job")->jobs[0].params, 0);
    assert_int_equal(declare(r, 0, 0, 150), PD_OK);
}

TEST(a_parameter_is_ranged_on_every_rank_or_on_none, rig *r)
{
    assert_int_equal(hello(r, 0, 2, NULL), PD_OK);
    assert_int_equal(hello(r, 1, 2, NULL), PD_OK);
    assert_int_equal(declare(r, 1, 0, 150), PD_OK);
    assert_int_equal(declare(r, 0, -1, 0), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "has it in ranges, this rank declares it whole"));
    assert_non_null(strstr(r->error.text, "gives the range 0 to 150"));
    assert_int_equal(declare(r, 0, 0, 150), PD_OK);
}

TEST(the_range_of_a_rank_stays_the_same, rig *r)
{
    static const rig_range ranges[] = { { 0, 75 }, { 75, 150 } };

    start(r, 2, ranges, NULL);
    for (uint64_t nonce = CONN + 1; nonce <= CONN + 2; nonce++) { /* first the process that has declared, then a new
                                                                   * process of the same rank */
        assert_int_equal(rig_hello(r, "job", 1, 2, nonce, CONN + 1, NULL, rule), PD_OK);
        assert_int_equal(declare(r, 1, 70, 150), PD_FAILED_PRECONDITION);
        assert_non_null(
            strstr(r->error.text,
                   "parameter w: rank 1 of job job has declared elements 75 to 150 before, now it declares 70 to 150"));
        assert_int_equal(declare(r, 1, 75, 149), PD_FAILED_PRECONDITION);
        assert_int_equal(declare(r, 1, 75, 150), PD_OK);
        assert_true(r->initialised[0]);
    }
}

TEST(memory_is_reserved_for_what_a_rank_has)
{
    static const pd_shape large = { 1, { 100000 } };
    static const rig_range ranges[] = { { 0, 1 }, { 1, 65 }, { 65, 65 }, { 65, 6000 }, { 6000, 100000 } };
    static const uint64_t reserves[] = { 4096, 4096, 4096, 24576, 32768 };
    pd_store_config config = rig_config();
    rig r;

    config.frame_bytes = 32768;
    config.chunk_elements = CHUNK;
    config.ingest_bytes = 4096 * 3 + 24576 + 32768;
    rig_new(&r, &config);
    for (uint32_t rank = 0; rank < 5; rank++) {
        assert_int_equal(rig_hello(&r, "job", rank, 5, CONN + rank, CONN + rank, NULL, rule), PD_OK);
        r.ranges = &ranges[rank];
        assert_int_equal(rig_declare(&r, r.job, rank, CONN + rank, name, &large, NULL, 1, PD_F32), PD_OK);
        assert_int_equal(r.reserve, reserves[rank]);
    }
    rig_free(&r);
}

TEST(declare_refuses_a_range_that_the_ingest_budget_cannot_hold)
{
    static const rig_range small = { 0, 75 };
    static const pd_shape wide = { 1, { 2048 + 75 } };
    static const rig_range large = { 75, 2048 + 75 };
    pd_store_config config = rig_config();
    rig r;

    config.frame_bytes = 1 << 20;
    config.chunk_elements = CHUNK;
    config.ingest_bytes = 3 * 4096;
    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, "job", 0, 3, CONN, CONN, NULL, rule), PD_OK);
    assert_int_equal(rig_hello(&r, "job", 1, 3, CONN + 1, CONN + 1, NULL, rule), PD_OK);
    r.ranges = &small;
    assert_int_equal(rig_declare(&r, r.job, 0, CONN, name, &wide, NULL, 1, PD_F32), PD_OK);
    r.ranges = &large;
    assert_int_equal(rig_declare(&r, r.job, 1, CONN + 1, name, &wide, NULL, 1, PD_F32), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "with frames of up to 12288 bytes, need 8192 more bytes of ingest budget"));
    r.ranges = &small; /* the refused declaration reserves nothing */
    assert_int_equal(rig_declare(&r, r.job, 1, CONN + 1, name, &wide, NULL, 1, PD_F32), PD_OK);
    rig_free(&r);
}

TEST(every_rank_with_elements_is_asked_for_initial_weights, rig *r)
{
    static const rig_range ranges[] = { { 0, 0 }, { 0, 75 }, { 75, 150 } };
    float values[N];

    rig_noise(7, values, N);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(hello(r, rank, 3, NULL), PD_OK);
        assert_int_equal(declare(r, rank, ranges[rank].start, ranges[rank].end), PD_OK);
        assert_true(r->must_init == (rank > 0));
    }
    assert_int_equal(init(r, 1, values, 0, 75), PD_OK);
    assert_int_equal(declare(r, 1, 0, 75), PD_OK); /* rank 1 need not send weights again, though rank 2 must */
    assert_false(r->must_init);
    assert_true(r->initialised[0]);
    assert_int_equal(declare(r, 2, 75, 150), PD_OK);
    assert_true(r->must_init);
    assert_false(r->initialised[0]);
    assert_null(r->versions[r->job]);
    assert_int_equal(push(r, 1, 1, values, 0, 75), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "w has no weights yet: every rank sends those of its range with Init"));
    assert_int_equal(init(r, 2, values, 75, 150), PD_OK);
    assert_memory_equal(rig_weights(r, r->job, 0), values, sizeof values);
    assert_int_equal(init(r, 2, values, 75, 150), PD_OK); /* sent again, as if the first answer was lost */
    assert_int_equal(r->versions[r->job][0].closed, 1);
}

TEST(initial_weights_wait_for_the_ranks_that_have_not_declared, rig *r)
{
    float values[N];

    rig_noise(7, values, N);
    for (uint32_t rank = 0; rank < 3; rank++) assert_int_equal(hello(r, rank, 3, NULL), PD_OK);
    assert_int_equal(declare(r, 1, 0, 150), PD_OK);
    assert_int_equal(init(r, 1, values, 0, 150), PD_OK);
    assert_int_equal(declare(r, 2, 150, 150), PD_OK);
    assert_null(r->versions[r->job]); /* rank 0, not declared yet, may have some of the elements */
    assert_int_equal(declare(r, 0, 0, 0), PD_OK);
    assert_memory_equal(rig_weights(r, r->job, 0), values, sizeof values);
    assert_true(r->initialised[0]);
}

TEST(the_lowest_rank_decides_each_initial_value_in_any_order)
{
    enum { WORLD = 4 };
    uint64_t seed = 9;

    for (int turn = 0; turn < 60; turn++) {
        float values[WORLD][N], expected[N];
        uint32_t order[WORLD] = { 0, 1, 2, 3 };
        rig_range ranges[WORLD];
        rig r;
        pd_store_config config = rig_config();
        config.chunk_elements = CHUNK;
        rig_new(&r, &config);
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            int64_t a = (int64_t)(rig_random(&seed) % (N + 1)), b = (int64_t)(rig_random(&seed) % (N + 1));
            ranges[rank] = rank == WORLD - 1 ? (rig_range){ 0, N } : (rig_range){ a < b ? a : b, a < b ? b : a };
            rig_noise(10 * (uint64_t)turn + rank, values[rank], N);
        }
        for (uint32_t rank = WORLD; rank-- > 0;)
            memcpy(expected + ranges[rank].start, values[rank] + ranges[rank].start,
                   (size_t)(ranges[rank].end - ranges[rank].start) * sizeof(float));
        for (uint32_t i = WORLD; i > 1; i--) {
            uint32_t j = (uint32_t)(rig_random(&seed) % i), swap = order[i - 1];
            order[i - 1] = order[j];
            order[j] = swap;
        }
        for (uint32_t i = 0; i < WORLD; i++) {
            assert_int_equal(hello(&r, order[i], WORLD, NULL), PD_OK);
            assert_int_equal(declare(&r, order[i], ranges[order[i]].start, ranges[order[i]].end), PD_OK);
            if (turn % 2 == 0)
                assert_int_equal(init(&r, order[i], values[order[i]], ranges[order[i]].start, ranges[order[i]].end),
                                 PD_OK);
        }
        for (uint32_t i = 0; turn % 2 == 1 && i < WORLD; i++)
            assert_int_equal(init(&r, order[i], values[order[i]], ranges[order[i]].start, ranges[order[i]].end), PD_OK);
        assert_memory_equal(rig_weights(&r, r.job, 0), expected, sizeof expected);
        rig_free(&r);
    }
}

TEST(another_process_cannot_initialise_a_range_again, rig *r)
{
    static const rig_range ranges[] = { { 0, 75 }, { 75, 150 } };
    float values[N] = { 1 };

    start(r, 2, ranges, NULL);
    assert_int_equal(rig_hello(r, "job", 1, 2, 99, CONN + 1, NULL, rule), PD_OK);
    assert_int_equal(declare(r, 1, 75, 150), PD_OK);
    assert_int_equal(init(r, 1, values, 75, 150), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "has weights already"));
}

TEST(initial_weights_of_another_range_are_refused, rig *r)
{
    float values[N] = { 1 };

    assert_int_equal(hello(r, 0, 2, NULL), PD_OK);
    assert_int_equal(declare(r, 0, 10, 75), PD_OK);
    assert_int_equal(init(r, 0, values, 0, 64), PD_INVALID_ARGUMENT);
    assert_int_equal(init(r, 0, values, 10, 70), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r->error.text, "rank 0 has elements 10 to 75, cut at multiples of 64"));
    assert_int_equal(init(r, 0, values, 10, 75), PD_OK);
}

TEST(a_push_brings_exactly_the_pieces_of_its_range, rig *r)
{
    static const rig_range ranges[] = { { 0, 70 }, { 70, 150 } },
                           wrong[] = { { 0, 64 }, { 64, 150 }, { 71, 150 }, { 70, 127 }, { 128, 149 }, { 0, 150 } };
    float g[N] = { 0 };

    start(r, 2, ranges, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(push(r, 1, 1, g, wrong[i].start, wrong[i].end), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r->error.text, "are not one piece: rank 1 has elements 70 to 150, cut at multiples of 64"));
    assert_int_equal(push(r, 1, 1, g, 70, 150), PD_OK);
    assert_int_equal(rig_ask(r, PD_INFO_WORKERS, "job")->workers[1].contributions, 2);
    assert_int_equal(push(r, 1, 1, g, 70, 150), PD_OK);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, "job")->jobs[0].duplicates, 2);
}

TEST(pieces_of_one_range_stand_once_in_a_frame, rig *r)
{
    static const rig_range ranges[] = { { 0, 70 }, { 70, 150 } };
    float g[N] = { 0 };
    rig_frame *frame;

    start(r, 2, ranges, NULL);
    frame = rig_frame_new(r, PD_REQ_PUSH, r->job, 1, CONN + 1, 1);
    rig_piece(frame, 0, PD_F32, 70, 58, g);
    rig_piece(frame, 0, PD_F32, 128, 22, g);
    rig_piece(frame, 0, PD_F32, 70, 58, g);
    assert_int_equal(rig_send(r, frame), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r->error.text, "the piece at element 70 is in the frame twice"));
}

/* A parameter without any gradient takes no step. A parameter with a gradient for only some of its elements takes no
 * step either, and the log names the missing elements. */
TEST(a_step_needs_a_gradient_of_every_element, rig *r)
{
    static const rig_range ranges[] = { { 0, 75 }, { 75, 150 }, { 75, 100 } };
    float g[N], before[N];

    start(r, 3, ranges, NULL);
    memcpy(before, rig_weights(r, r->job, 0), sizeof before);
    rig_noise(1, g, N);
    for (uint32_t rank = 0; rank < 3; rank++) assert_int_equal(be_absent(r, rank, 1), PD_OK);
    rig_work(r);
    assert_int_equal(r->versions[r->job][0].outcome, PD_NO_GRADIENT);
    assert_int_equal(r->warnings, 0);

    assert_int_equal(push(r, 0, 2, g, 0, 75), PD_OK); /* elements 100 to 150 get no gradient */
    assert_int_equal(be_absent(r, 1, 2), PD_OK);
    assert_int_equal(push(r, 2, 2, g, 75, 100), PD_OK);
    rig_work(r);
    assert_int_equal(r->versions[r->job][0].step, 2);
    assert_int_equal(r->versions[r->job][0].outcome, PD_NO_GRADIENT);
    assert_int_equal(r->warnings, 1);
    assert_non_null(strstr(
        r->warning,
        "step 2 of w closes without a gradient: all ranks that have elements 100 to 150 were absent, others were not"));
    assert_memory_equal(rig_weights(r, r->job, 0), before, sizeof before);

    assert_int_equal(push(r, 0, 3, g, 0, 75), PD_OK); /* rank 2 is absent: rank 1 covers its elements */
    assert_int_equal(push(r, 1, 3, g, 75, 150), PD_OK);
    assert_int_equal(be_absent(r, 2, 3), PD_OK);
    rig_work(r);
    assert_int_equal(r->versions[r->job][0].outcome, PD_STEPPED);
    assert_int_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[0].count, 1);
}

TEST(elements_without_weight_skip_the_step, rig *r)
{
    static const rig_range ranges[] = { { 0, 75 }, { 75, 150 } };
    float g[N];

    start(r, 2, ranges, "aggregate=weighted_mean");
    rig_noise(1, g, N);
    assert_int_equal(send_as(r, PD_REQ_PUSH, 0, 1, g, 0, 75, 5), PD_OK);
    assert_int_equal(send_as(r, PD_REQ_PUSH, 1, 1, g, 75, 150, 0), PD_OK);
    rig_work(r);
    assert_int_equal(r->versions[r->job][0].outcome, PD_SKIPPED);
    assert_non_null(strstr(r->warning, "all weights of "));
}

TEST(what_a_rank_said_it_cannot_take_back, rig *r)
{
    static const rig_range ranges[] = { { 0, 10 }, { 10, 150 } };
    float g[N] = { 0 };

    start(r, 2, ranges, NULL);
    assert_int_equal(be_absent(r, 1, 1), PD_OK);
    assert_int_equal(push(r, 1, 1, g, 10, 150), PD_FAILED_PRECONDITION);
    assert_int_equal(push(r, 0, 1, g, 0, 10), PD_OK);
    assert_int_equal(be_absent(r, 0, 1), PD_FAILED_PRECONDITION);
}
