/* Tests jobs that begin with the mean of all ranks' weights (initial_weights = mean). */
#include "test.h"
#include "mean_start.h"

/* Computes the expected mean of the three ranks' weights. */
static void mean_of(uint32_t param, float *out)
{
    float values[MEAN_WORLD][MEAN_SIZE];

    for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) mean_weights(rank, param, values[rank]);
    for (int64_t i = 0; i < mean_sizes[param]; i++) out[i] = ((values[0][i] + values[1][i]) + values[2][i]) / 3.0f;
}

static void assert_mean(rig *r)
{
    for (uint32_t p = 0; p < MEAN_PARAMS; p++) {
        float mean[MEAN_SIZE];
        mean_of(p, mean);
        assert_non_null(mean_published(r, p));
        assert_memory_equal(rig_weights(r, r->job, p), mean, (size_t)mean_sizes[p] * sizeof(float));
    }
}

EACH_TEST(rig_set_up, rig_tear_down);

TEST(the_mean_is_published_when_all_ranks_have_sent_theirs, rig *r)
{
    mean_join_all(r, "start_step=4");
    for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) {
        for (uint32_t p = 0; p < MEAN_PARAMS; p++) assert_null(mean_published(r, p));
        mean_send_all(r, rank, 0);
        rig_work(r);
    }
    assert_mean(r);
    assert_int_equal(mean_published(r, 0)->version, 4);
    assert_int_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[0].step, 4);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].contributions, 0);
    assert_int_equal(r->buffers_out, 0);
}

TEST_STATE(the_bits_are_the_same_in_any_order_of_arrival)
{
    uint64_t seed = 5;

    for (int trial = 0; trial < 40; trial++) {
        uint32_t piece[MEAN_WORLD * 5];
        rig *r;
        if (trial > 0) rig_tear_down(state), rig_set_up(state);
        r = *state;
        mean_join_all(r, NULL);
        for (uint32_t i = 0; i < MEAN_WORLD * 5; i++) piece[i] = i;
        for (uint32_t i = MEAN_WORLD * 5; i-- > 0;) {
            uint32_t k = (uint32_t)(rig_random(&seed) % (i + 1)), taken = piece[k];
            piece[k] = piece[i];
            assert_int_equal(mean_send_chunk(r, taken / 5, 0, taken % 5 == 4, taken % 5 == 4 ? 0 : taken % 5 * 64),
                             PD_OK);
            if (rig_random(&seed) % 2 == 0) rig_work(r);
        }
        rig_work(r);
        assert_mean(r);
    }
}

TEST_STATE(initial_weights_are_the_mean_with_every_aggregate)
{
    static const char *const options[] = { "aggregate=sum",
                                           "aggregate=weighted_mean",
                                           "nonfinite_scope=job",
                                           "clip_global_norm=1",
                                           "nonfinite=reject",
                                           "aggregate=median",
                                           "aggregate=trimmed_mean trim=1",
                                           "aggregate=adasum adasum_fold=yes",
                                           "aggregate=radial_mean" };

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        rig *r;
        if (i > 0) rig_tear_down(state), rig_set_up(state);
        r = *state;
        mean_join_all(r, options[i]);
        for (uint32_t rank = MEAN_WORLD; rank-- > 0;) mean_send_all(r, rank, 0);
        rig_work(r);
        assert_mean(r);
        rig_sleep(r, 100); /* no rank is waited for, so nothing times out */
        assert_int_equal(r->timed_out, 0);
        for (uint32_t rank = 0; rank < MEAN_WORLD; rank++)
            for (uint32_t p = 0; p < MEAN_PARAMS; p++)
                assert_int_equal(rig_push(r, r->job, rank, 10 + rank, 1, p, (float[MEAN_SIZE]){ 0 }, mean_sizes[p]),
                                 PD_OK);
        rig_work(r);
        assert_int_equal(mean_published(r, 0)->version, 1);
        assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].steps, 2);
        assert_int_equal(r->timed_out, 0);
        rig_sleep(r, 100);
        assert_int_equal(r->timed_out, 0);
    }
}

TEST(statistics_of_the_model_are_averaged_like_weights, rig *r)
{
    static const bool states[MEAN_PARAMS] = { false, true };

    r->states = states;
    mean_join_all(r, "aggregate=sum clip_global_norm=1");
    for (uint32_t rank = MEAN_WORLD; rank-- > 0;) mean_send_all(r, rank, 0);
    rig_work(r);
    assert_mean(r);
}

TEST(types_that_come_late_are_published_too, rig *r)
{
    mean_join(r, 0, 0, NULL, PD_F32);
    mean_join(r, 1, 0, NULL, PD_F32);
    mean_send_all(r, 0, 0);
    mean_send_all(r, 1, 0);
    rig_work(r);
    mean_join(r, 2, 0, NULL, PD_BF16);
    mean_send_all(r, 2, 0);
    rig_work(r);
    assert_mean(r);
    assert_non_null(mean_published(r, 0)->at[PD_BF16]);
}

TEST(every_rank_is_asked_for_the_parameters_that_it_has_not_sent, rig *r)
{
    for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) {
        mean_join(r, rank, 0, NULL, PD_F32);
        assert_true(r->must_init);
        assert_false(r->initialised[0]);
        mean_send_param(r, rank, 0, 0);
        assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, mean_names, mean_shapes, NULL, MEAN_PARAMS, PD_F32),
                         PD_OK);
        assert_true(r->must_init && r->initialised[0] && !r->initialised[1]);
        mean_send_param(r, rank, 0, 1);
        assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, mean_names, mean_shapes, NULL, MEAN_PARAMS, PD_F32),
                         PD_OK);
        assert_false(r->must_init);
    }
    rig_work(r);
    assert_mean(r);
}

TEST(a_gradient_before_there_are_weights_is_refused, rig *r)
{
    mean_join_all(r, NULL);
    mean_send_all(r, 0, 0);
    assert_int_equal(rig_push(r, r->job, 1, 11, 1, 1, (float[5]){ 0 }, 5), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "p1 has no weights yet: every rank sends them with Init"));
    rig_work(r);
}

TEST(by_default_rank_0_alone_is_asked, rig *r)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig_hello(r, "job", rank, 2, rank, 10 + rank, NULL, "* sgd"), PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, mean_names, mean_shapes, NULL, MEAN_PARAMS, PD_F32),
                         PD_OK);
        assert_int_equal(r->must_init, rank == 0);
    }
    /* The store accepts the frame at first, and refuses it when it processes the frame. */
    assert_int_equal(mean_send_chunk(r, 1, 0, 1, 0), PD_OK);
    rig_work(r);
    assert_int_equal(r->error.code, PD_FAILED_PRECONDITION);
}

TEST(weights_that_are_sent_again_count_once, rig *r)
{
    mean_join_all(r, NULL);
    for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) {
        mean_send_all(r, rank, 0);
        if (rank != 1) rig_work(r);
        mean_send_all(r, rank, 0);
    }
    rig_work(r);
    mean_send_all(r, 1, 0); /* the reply was lost, so rank 1 sends again */
    rig_work(r);
    assert_mean(r);
    assert_int_equal(r->buffers_out, 0);
}

TEST(published_weights_stay_when_another_process_sends_others, rig *r)
{
    mean_join_all(r, NULL);
    for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) mean_send_all(r, rank, 0);
    rig_work(r);
    mean_join(r, 1, 100, NULL, PD_F32);
    assert_false(r->must_init);
    assert_int_equal(mean_send_chunk(r, 1, 100, 0, 0), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "has weights already"));
    assert_int_equal(mean_send_chunk(r, 0, 0, 0, 0), PD_OK);
}

TEST(a_rank_that_leaves_before_it_has_sent_its_own_is_reported_at_once_and_can_be_replaced, rig *r)
{
    pd_request *leave;

    mean_join_all(r, "step_timeout=10s");
    mean_send_all(r, 0, 0);
    mean_send_all(r, 2, 0);
    rig_work(r);
    leave = pd_request_new(PD_REQ_LEAVE, rig_ticket(r, 11));
    leave->job = r->job;
    leave->rank = 1;
    assert_int_equal(rig_apply(r, leave), PD_OK);
    rig_sleep(r, 0);
    assert_int_equal(r->timed_out, 1);
    assert_int_equal(r->timeout.code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(
        r->timeout.text,
        "rank 1 (host:11) has left job job for good after step 0, and is still needed for the initial weights of p0"));
    assert_string_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[0].missing, "1");
    mean_join(r, 1, 0, "step_timeout=10s", PD_F32);
    mean_send_all(r, 1, 0);
    rig_work(r);
    assert_mean(r);
    rig_sleep(r, 30);
    assert_int_equal(r->timed_out, 1);
}

TEST(a_job_that_is_dropped_frees_its_initial_weights, rig *r)
{
    pd_request *drop = pd_request_new(PD_REQ_DROP, rig_ticket(r, 99));

    mean_join_all(r, NULL);
    mean_send_all(r, 2, 0);
    mean_send_all(r, 0, 0);
    assert_true(r->buffers_out > 0);
    drop->u.info.job_name = strdup("job");
    assert_int_equal(rig_apply(r, drop), PD_OK);
    assert_int_equal(r->buffers_out, 0);
}

TEST(an_invalid_init_is_refused_and_changes_nothing, rig *r)
{
    float values[MEAN_SIZE] = { 0 };
    rig_frame *frame;

    mean_join_all(r, NULL);
    frame = rig_frame_new(r, PD_REQ_INIT, r->job, 1, 11, 0);
    rig_piece(frame, 1, PD_F32, 0, 5, values);
    rig_piece(frame, 0, PD_F32, 1, 64, values);
    assert_int_equal(rig_send(r, frame), PD_INVALID_ARGUMENT);
    frame = rig_frame_new(r, PD_REQ_INIT, r->job, 1, 11, 0);
    rig_absent(frame, 0);
    assert_int_equal(rig_send(r, frame), PD_INVALID_ARGUMENT);
    frame = rig_frame_new(r, PD_REQ_INIT, r->job, 1, 11, 0);
    rig_piece(frame, 1, PD_F32, 0, 5, values);
    rig_piece(frame, 1, PD_F32, 0, 5, values);
    assert_int_equal(rig_send(r, frame), PD_INVALID_ARGUMENT);
    assert_int_equal(r->buffers_out, 0);
    for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) mean_send_all(r, rank, 0);
    rig_work(r);
    assert_mean(r);
}

/* Joins a rank that has a range of p0 and all of p1. The range of rank 2 is empty. */
static void join_ranged(rig *r, uint32_t rank)
{
    static const rig_range ranges[MEAN_WORLD][MEAN_PARAMS] = { { { 0, 150 }, { -1, 0 } },
                                                               { { 100, MEAN_SIZE }, { -1, 0 } },
                                                               { { 70, 70 }, { -1, 0 } } };

    assert_int_equal(rig_hello(r, "job", rank, MEAN_WORLD, 10 + rank, 10 + rank, "initial_weights=mean", "* sgd lr=1"),
                     PD_OK);
    r->ranges = ranges[rank];
    assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, mean_names, mean_shapes, NULL, MEAN_PARAMS, PD_F32),
                     PD_OK);
}

static void send_run(rig *r, uint32_t rank, int64_t first, int64_t end)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, 10 + rank, 0);
    float values[MEAN_SIZE];

    mean_weights(rank, 0, values);
    rig_piece(frame, 0, PD_F32, first, end - first, values + first);
    assert_int_equal(rig_send(r, frame), PD_OK);
}

static void send_range(rig *r, uint32_t rank)
{
    if (rank == 0) send_run(r, 0, 0, 64), send_run(r, 0, 64, 128), send_run(r, 0, 128, 150);
    if (rank == 1) send_run(r, 1, 100, 128), send_run(r, 1, 128, 192), send_run(r, 1, 192, MEAN_SIZE);
}

static void assert_ranged_mean(rig *r)
{
    float a[MEAN_SIZE], b[MEAN_SIZE];

    mean_weights(0, 0, a);
    mean_weights(1, 0, b);
    assert_non_null(mean_published(r, 0));
    for (int i = 0; i < MEAN_SIZE; i++) {
        float expected = i < 100 ? a[i] : i >= 150 ? b[i] : (a[i] + b[i]) / 2;
        assert_true(rig_weights(r, r->job, 0)[i] == expected);
    }
}

TEST(each_element_of_a_ranged_parameter_is_the_mean_of_the_ranks_that_have_it, rig *r)
{
    for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) join_ranged(r, rank);
    assert_true(r->must_init); /* rank 2 has no elements of p0, but must still initialize p1 */
    assert_true(r->initialised[0]);
    send_range(r, 1);
    rig_work(r);
    send_range(r, 0);
    rig_work(r);
    assert_ranged_mean(r);
}

/* Chunks of p0 may have to wait for a rank that has not declared yet. The rank may later declare a range without
 * elements of these chunks. */
TEST_STATE(a_rank_may_declare_its_range_when_others_have_sent_theirs)
{
    static const uint32_t orders[][MEAN_WORLD] = { { 0, 1, 2 }, { 1, 0, 2 }, { 2, 1, 0 }, { 0, 2, 1 } };

    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        rig *r;
        if (i > 0) rig_tear_down(state), rig_set_up(state);
        r = *state;
        for (uint32_t k = 0; k < MEAN_WORLD; k++) {
            assert_null(mean_published(r, 0));
            join_ranged(r, orders[i][k]);
            send_range(r, orders[i][k]);
            rig_work(r);
        }
        assert_ranged_mean(r);
        for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) mean_send_param(r, rank, 0, 1);
        rig_work(r);
        assert_int_equal(r->buffers_out, 0);
        rig_sleep(r, 100);
        assert_int_equal(r->timed_out, 0);
    }
}

TEST(a_declare_that_is_refused_while_others_wait_changes_nothing, rig *r)
{
    static const rig_range gap[MEAN_PARAMS] = { { 180, MEAN_SIZE }, { -1, 0 } };

    join_ranged(r, 0);
    join_ranged(r, 2);
    send_range(r, 0);
    rig_work(r);
    assert_int_equal(rig_hello(r, "job", 1, MEAN_WORLD, 11, 11, "initial_weights=mean", "* sgd lr=1"), PD_OK);
    for (int i = 0; i < 2; i++) {
        r->ranges = gap;
        assert_int_equal(rig_declare(r, r->job, 1, 11, mean_names, mean_shapes, NULL, MEAN_PARAMS, PD_F32),
                         PD_FAILED_PRECONDITION);
        rig_work(r);
        assert_null(mean_published(r, 0));
    }
    join_ranged(r, 1);
    send_range(r, 1);
    rig_work(r);
    assert_ranged_mean(r);
    rig_sleep(r, 100);
    assert_int_equal(r->timed_out, 0);
}

/* Starts another job with so many ranks that each rank's quota of the ingest budget becomes small. */
static void fill_the_budget(rig *r, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        assert_int_equal(rig_hello(r, "crowd", rank, ranks, 100 + rank, 100 + rank, NULL, "* sgd lr=1"), PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, 100 + rank, mean_names, mean_shapes, NULL, 1, PD_F32), PD_OK);
    }
}

/* Rank 2 has used up its quota, and its weights wait for rank 1. When rank 1 declares an empty range, the weights of
 * rank 2 are summed. Rank 3 never joins. */
TEST(weights_that_waited_for_a_rank_are_summed_once_it_declares_no_elements)
{
    static const rig_range ranges[3][MEAN_PARAMS] = { { { 0, 0 }, { 0, 5 } },
                                                      { { 0, 0 }, { 0, 0 } },
                                                      { { 0, MEAN_SIZE }, { 0, 0 } } };
    static const uint32_t order[] = { 2, 0, 1 };
    pd_store_config config = rig_config();
    rig r;

    config.ingest_bytes = (4 + 128) * 4096;
    rig_new(&r, &config);
    fill_the_budget(&r, 128);
    for (int i = 0; i < 3; i++) {
        uint32_t rank = order[i];
        assert_int_equal(rig_hello(&r, "job", rank, 4, 10 + rank, 10 + rank, "initial_weights=mean", "* sgd lr=1"),
                         PD_OK);
        r.ranges = ranges[rank];
        assert_int_equal(rig_declare(&r, r.job, rank, 10 + rank, mean_names, mean_shapes, NULL, MEAN_PARAMS, PD_F32),
                         PD_OK);
        if (rank != 1) mean_send_param(&r, rank, 0, rank == 0);
        rig_work(&r);
        assert_int_equal(r.bytes_out[10], 0);
        assert_int_equal(r.bytes_out[12] > 0, rank != 1);
    }
    rig_free(&r);
}

/* The ingest budget covers only the reserves of the three ranks, so every frame puts its rank over quota.
 * Contributions are then summed as soon as possible. */
TEST(a_rank_that_is_ahead_is_summed_when_its_share_is_used)
{
    pd_store_config config = rig_config();
    rig r;

    config.ingest_bytes = 3 * 4096;
    rig_new(&r, &config);
    mean_join_all(&r, NULL);
    mean_send_all(&r, 0, 0);
    mean_send_all(&r, 1, 0);
    rig_work(&r);
    assert_int_equal(r.bytes_out[10], 0);
    mean_send_all(&r, 2, 0);
    rig_work(&r);
    assert_mean(&r);
    rig_free(&r);
}

TEST(the_mean_is_retried_after_memory_ran_out)
{
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        pd_store_config config = rig_config();
        rig r;
        rig_new(&r, &config);
        mean_join_all(&r, NULL);
        for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) mean_send_all(&r, rank, 0);
        oom_arm(n);
        while (pd_store_work(r.store, r.now)) continue;
        failed = oom_disarm();
        rig_absorb(&r);
        for (int i = 0; i < 3 && mean_published(&r, 0) == NULL; i++) {
            assert_true(failed);
            assert_true(r.timed_out == 0 ||
                        strstr(r.timeout.text, "out of memory for the initial weights of p") != NULL);
            rig_sleep(&r, 1);
            rig_work(&r);
        }
        rig_sleep(&r, 1);
        rig_work(&r);
        assert_mean(&r);
        rig_free(&r);
    }
}

TEST(filing_initial_weights_needs_no_memory, rig *r)
{
    rig_frame *frame;
    pd_request *request;
    float values[5] = { 0 };
    int64_t before;

    mean_join_all(r, NULL);
    frame = rig_frame_new(r, PD_REQ_INIT, r->job, 1, 11, 0);
    rig_piece(frame, 1, PD_F32, 0, 5, values);
    request = rig_request(frame);
    before = oom_allocations();
    pd_store_apply(r->store, request, r->now);
    assert_int_equal(oom_allocations(), before);
    rig_absorb(r);
    assert_int_equal(r->answer, PD_EFF_OK);
}

TEST(while_draining_the_first_step_is_not_begun, rig *r)
{
    pd_request *drain = pd_request_new(PD_REQ_DRAIN, rig_ticket(r, 99));

    mean_join_all(r, NULL);
    mean_send_all(r, 0, 0);
    drain->u.drain.deadline_ns = 5000000000ull;
    rig_apply(r, drain);
    for (uint32_t rank = 1; rank < MEAN_WORLD; rank++) mean_send_all(r, rank, 0);
    rig_work(r);
    assert_mean(r);
    assert_int_equal(rig_push(r, r->job, 0, 10, 1, 1, (float[5]){ 0 }, 5), PD_UNAVAILABLE);
}
