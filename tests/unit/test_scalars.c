/* Tests scalars that ranks push with their gradients, and how a round combines them. */
#include "test.h"
#include "rig.h"
#include "store_inside.h"

enum { WORLD = 4, PARAMS = 2, CHUNK = 64, LONG = 2 * CHUNK + 5 };

static const int64_t sizes[PARAMS] = { LONG, 7 }; /* the first parameter has three chunks */

static uint32_t start(rig *r, uint32_t world, const char *options)
{
    return rig_start(r, "job", world, 10, sizes, PARAMS, options, NULL);
}

/* Makes a push of the short parameter, which has no scalars yet. */
static rig_frame *short_frame(rig *r, uint32_t job, uint32_t rank, uint64_t step)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, rank, 10 + rank, step);
    float values[7] = { 1 };

    rig_piece(frame, 1, PD_F32, 0, 7, values);
    return frame;
}

static rig_frame *frame_with(rig *r, uint32_t job, uint32_t rank, uint64_t step, const char *name, double value,
                             double weight)
{
    rig_frame *frame = short_frame(r, job, rank, step);

    rig_weight(frame, weight, false);
    rig_scalar(frame, name, value);
    return frame;
}

/* Pushes the short parameter with one scalar. The push must be accepted. */
static void give(rig *r, uint32_t job, uint32_t rank, uint64_t step, const char *name, double value, double weight)
{
    assert_int_equal(rig_send(r, frame_with(r, job, rank, step, name, value, weight)), PD_OK);
}

static void give_none(rig *r, uint32_t job, uint32_t rank, uint64_t step)
{
    assert_int_equal(rig_send(r, short_frame(r, job, rank, step)), PD_OK);
}

static const pd_scalar_mean *returned(rig *r, uint32_t job, uint32_t param, const char *name)
{
    const pd_scalar_means *means;

    rig_work(r);
    means = rig_versions(r, job, param)->scalars;
    for (size_t i = 0; means != NULL && i < means->n; i++)
        if (strcmp(means->at[i].name, name) == 0) return &means->at[i];
    return NULL;
}

static void assert_mean(rig *r, uint32_t job, uint32_t param, const char *name, double mean, double weight)
{
    const pd_scalar_mean *got = returned(r, job, param, name);

    assert_non_null(got);
    assert_true(got->mean == mean || (isnan(mean) && isnan(got->mean)));
    assert_true(got->weight == weight);
}

FIXTURE(rig, rig_make, rig_free);

TEST(a_round_returns_the_mean_weighted_as_the_pushes_and_the_weights_sum, rig *r)
{
    uint32_t job = start(r, 3, NULL);

    give(r, job, 0, 1, "loss", 1.5, 2);
    give(r, job, 1, 1, "loss", 4, 1);
    give(r, job, 2, 1, "loss", -0.5, 5);
    assert_mean(r, job, 1, "loss", (2 * 1.5 + 4 - 5 * 0.5) / 8, 8);
}

TEST(scalars_come_in_the_order_of_their_names, rig *r)
{
    uint32_t job = start(r, 1, NULL);
    rig_frame *frame = short_frame(r, job, 0, 1);

    rig_scalar(frame, "tokens", 3);
    rig_scalar(frame, "accuracy", 1);
    rig_scalar(frame, "loss", 2);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
    assert_int_equal(rig_versions(r, job, 1)->scalars->n, 3);
    assert_string_equal(rig_versions(r, job, 1)->scalars->at[0].name, "accuracy");
    assert_string_equal(rig_versions(r, job, 1)->scalars->at[1].name, "loss");
    assert_string_equal(rig_versions(r, job, 1)->scalars->at[2].name, "tokens");
    assert_mean(r, job, 1, "tokens", 3, 1);
}

TEST(a_name_is_the_mean_over_the_ranks_that_gave_it_alone, rig *r)
{
    uint32_t job = start(r, 3, NULL);

    give(r, job, 0, 1, "loss", 1, 2);
    give_none(r, job, 1, 1);
    give(r, job, 2, 1, "tokens", 7, 3);
    assert_mean(r, job, 1, "loss", 1, 2);
    assert_mean(r, job, 1, "tokens", 7, 3);
}

TEST(what_weighs_nothing_does_not_count, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    give(r, job, 0, 1, "loss", 5, 0);
    give(r, job, 1, 1, "loss", 0.1, 3);
    assert_mean(r, job, 1, "loss", 0.1, 3);
}

TEST(where_nothing_weighs_anything_the_mean_is_nan, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    for (uint32_t rank = 0; rank < 2; rank++) give(r, job, rank, 1, "loss", 5, 0);
    assert_mean(r, job, 1, "loss", NAN, 0);
}

TEST(what_one_rank_alone_gives_comes_out_as_it_went_in, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    give(r, job, 0, 1, "loss", 0.1, 3); /* the mean must be exactly 0.1, and 3 x 0.1 / 3 is not */
    give_none(r, job, 1, 1);
    assert_true(3 * 0.1 / 3 != 0.1 && 1e300 * 9e15 > 1e308);
    assert_mean(r, job, 1, "loss", 0.1, 3);
    give(r, job, 0, 2, "loss", 1e300, 9e15);
    give_none(r, job, 1, 2);
    assert_mean(r, job, 1, "loss", 1e300, 9e15);
}

TEST(a_round_in_which_nobody_gives_any_returns_none, rig *r)
{
    uint32_t job = start(r, 1, NULL);

    give(r, job, 0, 1, "loss", 1, 1);
    assert_mean(r, job, 1, "loss", 1, 1);
    give_none(r, job, 0, 2);
    rig_work(r);
    assert_int_equal(rig_versions(r, job, 1)->step, 2);
    assert_null(rig_versions(r, job, 1)->scalars);
}

TEST(operators_see_what_the_last_round_returned, rig *r)
{
    uint32_t job = start(r, 1, NULL);
    const pd_param_info *info;

    assert_int_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[1].n_scalars, 0);
    give(r, job, 0, 1, "loss", 3, 2);
    assert_int_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[1].n_scalars, 0);
    rig_work(r);
    info = &rig_ask(r, PD_INFO_PARAMS, "job")->params[1];
    assert_int_equal(info->n_scalars, 1);
    assert_string_equal(info->scalars[0].name, "loss");
    assert_true(info->scalars[0].mean == 3 && info->scalars[0].weight == 2);
    give_none(r, job, 0, 2);
    rig_work(r);
    assert_int_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[1].n_scalars, 0);
}

TEST(a_round_begins_with_nothing_of_the_one_before, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    for (uint32_t rank = 0; rank < 2; rank++) give(r, job, rank, 1, "loss", 1, 1);
    rig_work(r);
    give(r, job, 1, 2, "tokens", 9, 1);
    give(r, job, 0, 2, "loss", 4, 1);
    assert_mean(r, job, 1, "loss", 4, 1);
    assert_mean(r, job, 1, "tokens", 9, 1);
}

TEST(they_belong_to_the_parameter_of_the_first_piece, rig *r)
{
    uint32_t job = start(r, 1, NULL);
    rig_frame *frame = short_frame(r, job, 0, 1);

    rig_absent(frame, 0);
    rig_scalar(frame, "loss", 3);
    assert_int_equal(rig_send(r, frame), PD_OK);
    assert_mean(r, job, 1, "loss", 3, 1);
    assert_int_equal(rig_versions(r, job, 0)->step, 1);
    assert_null(rig_versions(r, job, 0)->scalars);
}

TEST(bits_do_not_depend_on_the_order_of_arrival, rig *r)
{
    static const double values[WORLD] = { 1e16, 3.14159, -1e16, 0.1 }, weights[WORLD] = { 1, 3, 1, 0.7 };
    static const uint32_t orders[][WORLD] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 2, 0, 3, 1 } };
    uint32_t job = start(r, WORLD, NULL);
    double sum = 0, weight = 0;

    for (int rank = 0; rank < WORLD; rank++) {
        sum += weights[rank] * values[rank];
        weight += weights[rank];
    }
    for (uint64_t step = 1; step <= 3; step++) {
        for (int i = 0; i < WORLD; i++) {
            uint32_t rank = orders[step - 1][i];
            give(r, job, rank, step, "loss", values[rank], weights[rank]);
        }
        assert_mean(r, job, 1, "loss", sum / weight, weight);
    }
}

TEST(a_push_that_is_sent_again_counts_once, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    for (int i = 0; i < 3; i++) give(r, job, 0, 1, "loss", 2, 3);
    give(r, job, 1, 1, "loss", 4, 1);
    assert_mean(r, job, 1, "loss", (3 * 2 + 4) / 4.0, 4);
    give(r, job, 0, 1, "loss", 2, 3); /* the round is closed: the scalar must not count in the next round */
    for (uint32_t rank = 0; rank < 2; rank++) give_none(r, job, rank, 2);
    rig_work(r);
    assert_null(rig_versions(r, job, 1)->scalars);
}

/* Makes a push of one chunk of the long parameter. */
static rig_frame *chunk_frame(rig *r, uint32_t job, uint32_t rank, uint64_t step, int64_t chunk)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, rank, 10 + rank, step);
    float values[CHUNK] = { 1 };

    rig_piece(frame, 0, PD_F32, chunk * CHUNK, chunk < 2 ? CHUNK : 5, values);
    return frame;
}

TEST(what_several_frames_of_a_rank_bring_is_taken_together, rig *r)
{
    static const char *const names[] = { "a", "b", "c" };
    uint32_t job = start(r, 2, NULL);

    for (int64_t chunk = 2; chunk >= 0; chunk--) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            rig_frame *frame = chunk_frame(r, job, rank, 1, chunk);
            rig_weight(frame, 1 + 10 * rank, false);
            rig_scalar(frame, names[chunk], 1 + rank);
            rig_scalar(frame, "all", 1 + rank);
            assert_int_equal(rig_send(r, frame), PD_OK);
        }
    }
    for (int chunk = 0; chunk < 3; chunk++) assert_mean(r, job, 0, names[chunk], (1.0 * 1 + 2.0 * 11) / 12, 12);
    assert_mean(r, job, 0, "all", (1.0 * 1 + 2.0 * 11) / 12, 12); /* counts once per rank, not once per frame */
}

TEST(another_value_of_a_name_is_refused_and_changes_nothing, rig *r)
{
    uint32_t job = start(r, 2, NULL);
    rig_frame *frame;

    assert_int_equal(rig_send(r, (frame = chunk_frame(r, job, 1, 1, 0), rig_scalar(frame, "loss", 0.25), frame)),
                     PD_OK);
    frame = chunk_frame(r, job, 1, 1, 1);
    rig_scalar(frame, "tokens", 7);
    rig_scalar(frame, "loss", 0.5);
    assert_int_equal(rig_send(r, frame), PD_INVALID_ARGUMENT);
    assert_string_equal(r->error.text, "p0: rank 1 has already given loss = 0.25 for step 1, and now gives 0.5: a rank "
                                       "gives each scalar once in a step");
    for (uint32_t rank = 0; rank < 2; rank++)
        for (int64_t chunk = 0; chunk < 3; chunk++)
            assert_int_equal(rig_send(r, chunk_frame(r, job, rank, 1, chunk)), PD_OK);
    assert_mean(r, job, 0, "loss", 0.25, 1);
    assert_null(returned(r, job, 0, "tokens"));
}

TEST(ranks_may_give_different_values_of_a_name, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    give(r, job, 1, 1, "loss", 1, 1);
    give(r, job, 0, 1, "loss", 2, 1);
    assert_mean(r, job, 1, "loss", 1.5, 2);
}

/* Makes a push with n scalars, whose names begin with `letter`. */
static rig_frame *many(rig *r, uint32_t job, uint32_t rank, char letter, int n)
{
    rig_frame *frame = short_frame(r, job, rank, 1);
    char name[16];

    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%c%d", letter, i);
        rig_scalar(frame, name, i);
    }
    return frame;
}

TEST(all_ranks_together_have_at_most_sixteen_names, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    assert_int_equal(rig_send(r, many(r, job, 0, 'a', 9)), PD_OK);
    assert_int_equal(rig_send(r, many(r, job, 1, 'b', 8)), PD_INVALID_ARGUMENT);
    assert_string_equal(r->error.text, "p1: with this push of rank 1 there would be scalars of 17 names for step 1, at "
                                       "most 16 are allowed: use fewer names, the same on all ranks");
    assert_int_equal(rig_send(r, many(r, job, 1, 'b', 7)), PD_OK);
    rig_work(r);
    assert_int_equal(rig_versions(r, job, 1)->scalars->n, 16);
    assert_mean(r, job, 1, "a8", 8, 1);
    assert_mean(r, job, 1, "b6", 6, 1);
}

TEST(sixteen_names_of_the_longest_are_taken_from_every_rank, rig *r)
{
    uint32_t job = start(r, WORLD, NULL);
    char name[PD_SCALAR_NAME_MAX + 1];

    for (uint32_t rank = 0; rank < WORLD; rank++) {
        rig_frame *frame = short_frame(r, job, rank, 1);
        for (int i = 0; i < PD_MAX_SCALARS; i++) {
            memset(name, 'x', sizeof name - 1);
            name[sizeof name - 1] = '\0';
            name[PD_SCALAR_NAME_MAX - 1] = (char)('a' + i);
            rig_scalar(frame, name, rank + i);
        }
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
    assert_mean(r, job, 1, name, 15 + 1.5, WORLD);
    assert_int_equal(rig_versions(r, job, 1)->scalars->n, PD_MAX_SCALARS);
}

TEST(an_absent_parameter_may_bring_them, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    for (uint32_t rank = 0; rank < 2; rank++) {
        rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, rank, 10 + rank, 1);
        rig_absent(frame, 1);
        rig_weight(frame, 1 + rank, false);
        rig_scalar(frame, "loss", 3 * rank);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
    assert_mean(r, job, 1, "loss", 2, 3);
    assert_int_equal(rig_versions(r, job, 1)->outcome, PD_NO_GRADIENT);
}

TEST(a_round_that_is_skipped_returns_them, rig *r)
{
    uint32_t job = start(r, 1, NULL);
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, 0, 10, 1);

    rig_piece(frame, 1, PD_F32, 0, 7, (float[7]){ INFINITY });
    rig_scalar(frame, "loss", 3);
    assert_int_equal(rig_send(r, frame), PD_OK);
    assert_mean(r, job, 1, "loss", 3, 1);
    assert_int_equal(rig_versions(r, job, 1)->outcome, PD_SKIPPED);
}

TEST(a_push_with_nan_that_is_rejected_brings_none, rig *r)
{
    uint32_t job = start(r, 1, "nonfinite=reject");
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, 0, 10, 1);

    rig_piece(frame, 1, PD_F32, 0, 7, (float[7]){ NAN });
    rig_scalar(frame, "loss", 3);
    rig_send(r, frame);
    rig_work(r);
    assert_int_equal(r->error.code, PD_INVALID_ARGUMENT);
    give(r, job, 0, 1, "loss", 4, 1);
    assert_mean(r, job, 1, "loss", 4, 1);
}

static void take_over(rig *r, uint32_t job, uint32_t rank, uint32_t world)
{
    static const char *const names[] = { "p0", "p1" };
    const pd_shape shapes[] = { { 1, { LONG } }, { 1, { 7 } } };

    assert_int_equal(rig_hello(r, "job", rank, world, 77, 77, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, job, rank, 77, names, shapes, NULL, 2, PD_F32), PD_OK);
}

TEST(what_a_process_gave_stands_when_another_takes_its_rank_over, rig *r)
{
    uint32_t job = start(r, 2, NULL);
    rig_frame *frame;

    give(r, job, 0, 1, "loss", 2, 3);
    take_over(r, job, 0, 2);
    for (int again = 0; again < 2; again++) {
        frame = rig_frame_new(r, PD_REQ_PUSH, job, 0, 77, 1);
        rig_piece(frame, 1, PD_F32, 0, 7, (float[7]){ 1 });
        rig_scalar(frame, "loss", 5);
        rig_scalar(frame, "tokens", 5);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
    give(r, job, 1, 1, "loss", 6, 1);
    assert_mean(r, job, 1, "loss", (3 * 2 + 6) / 4.0, 4);
    assert_null(returned(r, job, 1, "tokens"));
}

TEST(where_the_process_before_gave_none_its_successor_may, rig *r)
{
    uint32_t job = start(r, 2, NULL);
    rig_frame *frame = chunk_frame(r, job, 0, 1, 0);

    assert_int_equal(rig_send(r, frame), PD_OK);
    take_over(r, job, 0, 2);
    for (int64_t chunk = 0; chunk < 3; chunk++) {
        float values[CHUNK] = { 1 };
        frame = rig_frame_new(r, PD_REQ_PUSH, job, 0, 77, 1);
        rig_piece(frame, 0, PD_F32, chunk * CHUNK, chunk < 2 ? CHUNK : 5, values);
        if (chunk == 0) rig_scalar(frame, "loss", 5);
        assert_int_equal(rig_send(r, frame), PD_OK);
        assert_int_equal(rig_send(r, chunk_frame(r, job, 1, 1, chunk)), PD_OK);
    }
    assert_mean(r, job, 0, "loss", 5, 1);
}

TEST(ranks_with_ranges_give_them_like_others, rig *r)
{
    const rig_range halves[2][1] = { { { 0, 10 } }, { { 10, 40 } } };
    const pd_shape shape = { 1, { 40 } };
    const char *name = "p";
    float values[40] = { 1 };
    uint32_t job = 0;

    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig_hello(r, "ranged", rank, 2, 10 + rank, 10 + rank, NULL, "* sgd lr=1"), PD_OK);
        job = r->job;
        r->ranges = halves[rank];
        assert_int_equal(rig_declare(r, job, rank, 10 + rank, &name, &shape, NULL, 1, PD_F32), PD_OK);
    }
    for (int round = 0; round < 2; round++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            rig_frame *frame =
                rig_frame_new(r, round == 0 ? PD_REQ_INIT : PD_REQ_PUSH, job, rank, 10 + rank, (uint64_t)round);
            rig_piece(frame, 0, PD_F32, rank * 10, rank == 0 ? 10 : 30, values);
            rig_weight(frame, rank == 0 ? 3 : 1, false);
            if (round == 1) rig_scalar(frame, "loss", 4 * rank);
            rig_send(r, frame);
            rig_work(r);
            assert_int_equal(r->error.code, PD_OK);
        }
    }
    assert_mean(r, job, 0, "loss", 1, 4);
}

TEST(without_memory_the_push_is_refused_whole, rig *r)
{
    uint32_t job = start(r, 1, NULL);
    bool failed = true;
    int refused = 0;

    for (int64_t n = 0; failed; n++) {
        r->error.code = PD_OK;
        pd_request *request = rig_request(frame_with(r, job, 0, 1, "loss", 2, 1));
        oom_arm(n);
        pd_store_apply(r->store, request, r->now);
        failed = oom_disarm();
        rig_absorb(r);
        if (!failed) break;
        refused++;
        assert_int_equal(r->error.code, PD_NO_MEMORY);
        assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].contributions, 0);
    }
    assert_int_equal(refused, 2);
    assert_mean(r, job, 1, "loss", 2, 1);
}

TEST(closing_their_round_takes_no_memory, rig *r)
{
    uint32_t job = start(r, 1, NULL);
    int64_t with, without;

    give_none(r, job, 0, 1);
    rig_work(r);
    give_none(r, job, 0, 2);
    without = oom_allocations();
    rig_work(r);
    without = oom_allocations() - without;
    give(r, job, 0, 3, "loss", 2, 1);
    with = oom_allocations();
    rig_work(r);
    assert_int_equal(oom_allocations() - with, without);
    assert_mean(r, job, 1, "loss", 2, 1);
}

TEST(their_memory_counts_against_the_servers_and_goes_back_with_the_job)
{
    pd_store_config config = rig_config();
    uint64_t before;
    rig r;

    for (int short_by = 1; short_by >= 0; short_by--) {
        rig_new(&r, &config);
        uint32_t job = start(&r, 1, NULL);
        before = r.store->budget.used;
        if (config.max_total_bytes == rig_config().max_total_bytes) {
            give(&r, job, 0, 1, "loss", 1, 1);
            assert_true(r.store->budget.used > before);
            config.max_total_bytes = r.store->budget.used - 1;
        } else {
            assert_int_equal(rig_send(&r, frame_with(&r, job, 0, 1, "loss", 1, 1)), PD_RESOURCE_EXHAUSTED);
            assert_non_null(strstr(r.error.text, "limits.max_total_bytes"));
            give_none(&r, job, 0, 1);
            assert_int_equal(r.store->budget.used, before);
        }
        rig_free(&r);
    }
}
