/* Tests that all pushes of one rank for one parameter in one step have the same weight. */
#include "test.h"
#include "rig.h"

enum { CHUNK = 64, LONG = 2 * CHUNK };

static const int64_t sizes[] = { LONG, 7 }; /* the first parameter has two chunks */

static uint32_t start(rig *r, uint32_t world, const char *options)
{
    return rig_start(r, "job", world, 10, sizes, 2, options, NULL);
}

static rig_frame *chunk_of(rig *r, uint32_t rank, uint64_t conn, uint64_t step, int64_t chunk, float value,
                           double weight, bool presummed)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, conn, step);
    float values[CHUNK];

    for (int i = 0; i < CHUNK; i++) values[i] = value;
    rig_piece(frame, 0, PD_F32, chunk * CHUNK, CHUNK, values);
    rig_weight(frame, weight, presummed);
    return frame;
}

static int push(rig *r, uint32_t rank, uint64_t step, int64_t chunk, float value, double weight, bool presummed)
{
    return rig_send(r, chunk_of(r, rank, 10 + rank, step, chunk, value, weight, presummed));
}

static void assert_moved(rig *r, const float *before, int64_t chunk, float by)
{
    for (int i = 0; i < CHUNK; i++)
        assert_true(rig_weights(r, r->job, 0)[chunk * CHUNK + i] == before[chunk * CHUNK + i] - by);
}

static void remember(rig *r, float *before)
{
    memcpy(before, rig_weights(r, r->job, 0), LONG * sizeof *before);
}

EACH_TEST(rig_set_up, rig_tear_down);

TEST(a_chunk_of_another_weight_is_refused_and_both_weights_are_named, rig *r)
{
    start(r, 2, "aggregate=weighted_mean");
    assert_int_equal(push(r, 0, 1, 0, 1, 3, false), PD_OK);
    assert_int_equal(push(r, 0, 1, 1, 1, 5, false), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(
        r->error.text,
        "p0: rank 0 has given step 1 with weight 3, as a mean over its examples, and now gives it with weight 5"));
    assert_int_equal(push(r, 0, 1, 1, 1, 3, true), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r->error.text, "now gives it with weight 3, as a sum over its examples"));
}

TEST(what_was_refused_has_changed_nothing, rig *r)
{
    float before[LONG];

    start(r, 2, "aggregate=weighted_mean");
    remember(r, before);
    push(r, 0, 1, 0, 4, 3, false);
    push(r, 0, 1, 1, 100, 5, false);
    assert_int_equal(push(r, 0, 1, 1, 4, 3, false), PD_OK);
    for (int64_t chunk = 0; chunk < 2; chunk++) push(r, 1, 1, chunk, 8, 1, false);
    rig_work(r);
    for (int64_t chunk = 0; chunk < 2; chunk++) assert_moved(r, before, chunk, (3 * 4 + 8) / 4.0f);
    assert_int_equal(r->buffers_out, 0);
}

TEST_STATE(a_chunk_that_is_summed_still_tells_the_weight_of_the_others)
{
    static const char *const options[] = { "aggregate=mean", "aggregate=median", "aggregate=adasum_vdot",
                                           "aggregate=radial_mean" };

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        rig *r;
        if (i > 0) rig_tear_down(state), rig_set_up(state);
        r = *state;
        start(r, 2, options[i]);
        push(r, 0, 1, 0, 1, 3, false);
        push(r, 1, 1, 0, 1, 2, false);
        rig_work(r);
        assert_int_equal(push(r, 0, 1, 1, 1, 2, false), PD_INVALID_ARGUMENT);
        assert_int_equal(push(r, 0, 1, 1, 1, 3, false), PD_OK);
    }
}

TEST(a_duplicate_of_another_weight_is_refused, rig *r)
{
    rig_frame *again;

    start(r, 2, "aggregate=weighted_mean");
    push(r, 0, 1, 0, 1, 3, false);
    assert_int_equal(push(r, 0, 1, 0, 1, 3, false), PD_OK); /* sent again, as if the answer was lost */
    again = chunk_of(r, 0, 10, 1, 0, 1, 4, false);
    rig_scalar(again, "loss", 2);
    assert_int_equal(rig_send(r, again), PD_INVALID_ARGUMENT);
    push(r, 0, 1, 1, 1, 3, false);
    for (int64_t chunk = 0; chunk < 2; chunk++) push(r, 1, 1, chunk, 1, 1, false);
    rig_work(r);
    assert_null(rig_versions(r, r->job, 0)->scalars);
}

TEST(another_step_and_another_parameter_may_have_another_weight, rig *r)
{
    rig_frame *other;

    start(r, 1, "aggregate=weighted_mean");
    for (int64_t chunk = 0; chunk < 2; chunk++) assert_int_equal(push(r, 0, 1, chunk, 1, 3, false), PD_OK);
    other = rig_frame_new(r, PD_REQ_PUSH, r->job, 0, 10, 1);
    rig_piece(other, 1, PD_F32, 0, 7, (float[7]){ 1 });
    rig_weight(other, 9, true);
    assert_int_equal(rig_send(r, other), PD_OK);
    rig_work(r);
    for (int64_t chunk = 0; chunk < 2; chunk++) assert_int_equal(push(r, 0, 2, chunk, 1, 4, false), PD_OK);
    assert_int_equal(push(r, 0, 1, 0, 1, 7, false), PD_OK); /* the round is closed: another weight is not refused */
}

TEST(a_process_that_takes_over_weighs_the_chunks_that_were_missing_by_itself, rig *r)
{
    float before[LONG];
    pd_shape shapes[] = { { 1, { LONG } }, { 1, { 7 } } };
    static const char *const names[] = { "p0", "p1" };

    start(r, 2, "aggregate=weighted_mean");
    remember(r, before);
    push(r, 0, 1, 0, 4, 3, false);
    for (int64_t chunk = 0; chunk < 2; chunk++) push(r, 1, 1, chunk, 8, 1, false);
    assert_int_equal(rig_hello(r, "job", 0, 2, 99, 20, "aggregate=weighted_mean", "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, 20, names, shapes, NULL, 2, PD_F32), PD_OK);
    assert_int_equal(rig_send(r, chunk_of(r, 0, 20, 1, 0, 100, 7, false)), PD_OK); /* this chunk counted already */
    assert_int_equal(rig_send(r, chunk_of(r, 0, 20, 1, 1, 4, 7, false)), PD_OK);
    rig_work(r);
    assert_moved(r, before, 0, (3 * 4 + 8) / 4.0f);
    assert_moved(r, before, 1, (7 * 4 + 8) / 8.0f);
}

TEST(a_weight_that_could_overflow_a_sum_is_refused, rig *r)
{
    const double wrong[] = { 1e300, 9007199254740994.0, -1, INFINITY, NAN };
    float before[LONG];

    start(r, 2, "aggregate=weighted_mean");
    remember(r, before);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(push(r, 0, 1, 0, 1, wrong[i], false), PD_INVALID_ARGUMENT);
        assert_non_null(strstr(r->error.text, "a weight is a number of examples, 0 to 9007199254740992, not "));
    }
    for (int64_t chunk = 0; chunk < 2; chunk++) {
        assert_int_equal(push(r, 0, 1, chunk, 1e20f, 9007199254740992.0, false), PD_OK);
        assert_int_equal(push(r, 1, 1, chunk, 1e20f, 9007199254740992.0, false), PD_OK);
    }
    rig_work(r);
    assert_int_equal(rig_versions(r, r->job, 0)->outcome, PD_STEPPED);
    assert_moved(r, before, 0, 1e20f);
}
