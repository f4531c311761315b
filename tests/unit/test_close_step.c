/* Tests a rank that closes its step: parameters that it pushed nothing for get no gradient from it. */
#include <time.h>

#include "test.h"
#include "rig.h"

enum { WORLD = 3, PARAMS = 3, CHUNK = 64, LONG = 2 * CHUNK + 5 };

static const int64_t sizes[PARAMS] = { LONG, 7, 9 }; /* the first parameter has three chunks */

static uint32_t start(rig *r, uint32_t world, const char *options)
{
    return rig_start(r, "job", world, 10, sizes, PARAMS, options, NULL);
}

static int push(rig *r, uint32_t job, uint32_t rank, uint64_t step, uint32_t param)
{
    float values[LONG];

    rig_noise(100 * rank + 10 * step + param, values, LONG);
    return rig_push(r, job, rank, 10 + rank, step, param, values, sizes[param]);
}

static rig_frame *last_frame(rig *r, uint32_t job, uint32_t rank, uint64_t step)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, rank, 10 + rank, step);

    rig_last(frame);
    return frame;
}

static int end_step(rig *r, uint32_t job, uint32_t rank, uint64_t step)
{
    return rig_send(r, last_frame(r, job, rank, step));
}

static void assert_closed(rig *r, uint32_t job, uint32_t param, uint64_t step, pd_outcome outcome)
{
    rig_work(r);
    assert_int_equal(rig_versions(r, job, param)->step, step);
    assert_int_equal(rig_versions(r, job, param)->outcome, outcome);
}

FIXTURE(rig, rig_make, rig_free);

TEST(what_a_rank_has_sent_nothing_of_is_absent_when_it_ends_its_step, rig *r)
{
    uint32_t job = start(r, 1, NULL);

    assert_int_equal(push(r, job, 0, 1, 1), PD_OK);
    assert_closed(r, job, 1, 1, PD_STEPPED);
    assert_int_equal(end_step(r, job, 0, 1), PD_OK);
    assert_closed(r, job, 0, 1, PD_NO_GRADIENT);
    assert_closed(r, job, 2, 1, PD_NO_GRADIENT);
    assert_closed(r, job, 1, 1, PD_STEPPED);
}

TEST(what_the_same_frame_brings_is_there, rig *r)
{
    uint32_t job = start(r, 1, NULL);
    rig_frame *frame = last_frame(r, job, 0, 1);
    float values[9] = { 1 };

    rig_piece(frame, 2, PD_F32, 0, 9, values);
    assert_int_equal(rig_send(r, frame), PD_OK);
    assert_closed(r, job, 2, 1, PD_STEPPED);
    assert_closed(r, job, 1, 1, PD_NO_GRADIENT);
}

TEST(a_tensor_that_was_begun_may_be_finished_afterwards, rig *r)
{
    uint32_t job = start(r, 1, NULL);
    float values[CHUNK] = { 1 };

    for (int64_t chunk = 0; chunk < 3; chunk++) {
        rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, 0, 10, 1);
        rig_piece(frame, 0, PD_F32, chunk * CHUNK, chunk < 2 ? CHUNK : 5, values);
        assert_int_equal(rig_send(r, frame), PD_OK);
        if (chunk == 0) assert_int_equal(end_step(r, job, 0, 1), PD_OK);
    }
    assert_closed(r, job, 0, 1, PD_STEPPED);
}

TEST(a_step_ended_again_changes_nothing, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    for (int i = 0; i < 3; i++) assert_int_equal(end_step(r, job, 0, 1), PD_OK);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(push(r, job, 1, 1, p), PD_OK);
    for (uint32_t p = 0; p < PARAMS; p++) assert_closed(r, job, p, 1, PD_STEPPED);
    assert_int_equal(end_step(r, job, 0, 1), PD_OK);
    for (uint32_t p = 0; p < PARAMS; p++) assert_closed(r, job, p, 1, PD_STEPPED);
}

TEST(after_its_end_a_step_takes_no_gradient_of_what_was_left_out, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    assert_int_equal(end_step(r, job, 0, 1), PD_OK);
    assert_int_equal(push(r, job, 0, 1, 1), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "has reported no gradient for step 1"));
}

TEST(a_step_cannot_be_ended_before_the_one_before_it_is_closed, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    assert_int_equal(end_step(r, job, 0, 2), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "p0: this push is for step 2, expected step 1"));
    for (uint32_t p = 0; p < PARAMS; p++) {
        assert_int_equal(push(r, job, 0, 1, p), PD_OK);
        assert_int_equal(push(r, job, 1, 1, p), PD_OK);
        assert_closed(r, job, p, 1, PD_STEPPED);
    }
}

TEST(a_step_cannot_be_ended_before_the_one_before_it_whatever_it_has_got, rig *r)
{
    uint32_t job = start(r, 2, NULL);

    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(push(r, job, 0, 1, p), PD_OK);
    assert_int_equal(end_step(r, job, 0, 2), PD_FAILED_PRECONDITION);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(push(r, job, 1, 1, p), PD_OK);
    rig_work(r);
    assert_int_equal(end_step(r, job, 0, 2), PD_OK);
    assert_int_equal(end_step(r, job, 1, 2), PD_OK);
    assert_closed(r, job, 0, 2, PD_NO_GRADIENT);
}

/* The first end looks at each of MANY parameters. Another look at each would cost about the same. */
enum { MANY = 4000, AGAIN = 1000, CHEAPER = 6 };

static uint64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Ends a step of rank 0 `times` times, each with this answer. Returns the least time that the store took for one end:
 * what else the machine does makes single ends longer, never shorter. */
static uint64_t cost_of_an_end(rig *r, uint32_t job, uint64_t step, int times, int rc)
{
    uint64_t least = UINT64_MAX, before, ns;

    for (int i = 0; i < times; i++) {
        pd_request *request = rig_request(last_frame(r, job, 0, step));
        before = cpu_ns();
        pd_store_apply(r->store, request, r->now);
        ns = cpu_ns() - before;
        if (ns < least) least = ns;
        rig_absorb(r);
        assert_int_equal(r->error.code, rc);
    }
    return least;
}

static uint32_t start_many(rig *r)
{
    static char text[MANY][16];
    static const char *names[MANY];
    static pd_shape shapes[MANY];
    const float one[] = { 1 };

    for (int p = 0; p < MANY; p++) {
        snprintf(text[p], sizeof text[p], "p%d", p);
        names[p] = text[p];
        shapes[p] = (pd_shape){ 1, { 1 } };
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig_hello(r, "many", rank, 2, 10 + rank, 10 + rank, NULL, "* sgd lr=1"), PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, names, shapes, NULL, MANY, PD_F32), PD_OK);
    }
    for (uint32_t p = 0; p < MANY; p++) assert_int_equal(rig_init(r, r->job, 10, p, one, 1), PD_OK);
    rig_work(r);
    return r->job;
}

TEST(a_step_ended_again_does_not_cost_a_look_at_each_parameter, rig *r)
{
    uint32_t job = start_many(r);
    uint64_t first = cost_of_an_end(r, job, 1, 1, PD_OK);

    assert_true(cost_of_an_end(r, job, 1, AGAIN, PD_OK) < first / CHEAPER);
}

TEST(a_step_that_has_closed_is_ended_without_a_look_at_each_parameter, rig *r)
{
    uint32_t job = start_many(r);
    uint64_t first;

    for (uint64_t step = 1; step <= 3; step++) {
        (void)cost_of_an_end(r, job, step, 1, PD_OK);
        assert_int_equal(end_step(r, job, 1, step), PD_OK);
        rig_work(r);
    }
    first = cost_of_an_end(r, job, 4, 1, PD_OK);
    for (uint64_t step = 1; step <= 3; step++) {
        assert_true(cost_of_an_end(r, job, step, AGAIN, PD_OK) < first / CHEAPER);
    }
}

TEST(an_end_refused_again_does_not_cost_a_look_at_each_parameter, rig *r)
{
    uint32_t job = start_many(r);
    const float one[] = { 1 };
    uint64_t first;

    for (uint32_t p = 0; p < MANY; p++) {
        assert_int_equal(rig_push(r, job, 0, 10, 1, p, one, 1), PD_OK);
        if (p < MANY - 1) assert_int_equal(rig_push(r, job, 1, 11, 1, p, one, 1), PD_OK);
    }
    rig_work(r);
    first = cost_of_an_end(r, job, 2, 1, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "p3999: this push is for step 2"));
    assert_true(cost_of_an_end(r, job, 2, AGAIN, PD_FAILED_PRECONDITION) < first / CHEAPER);
}

TEST(a_step_cannot_be_ended_before_there_are_weights, rig *r)
{
    static const char *const names[] = { "w" };
    static const pd_shape shape = { 1, { 4 } };

    assert_int_equal(rig_hello(r, "job", 0, 1, 10, 10, NULL, "* sgd"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, 10, names, &shape, NULL, 1, PD_F32), PD_OK);
    assert_int_equal(end_step(r, r->job, 0, 1), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "w has no weights yet"));
}

static void push_spoiled(rig *r, uint32_t job, uint32_t rank, uint32_t param)
{
    float values[LONG] = { 1, NAN };

    assert_int_equal(rig_push(r, job, rank, 10 + rank, 1, param, values, sizes[param]), PD_OK);
}

/* A refused push does not count as "no gradient". Otherwise a worker would lose a gradient without notice: it sends
 * the frame that closes the step before it learns that a push was refused. */
TEST(a_refused_push_is_no_silence, rig *r)
{
    uint32_t job = start(r, 1, "nonfinite=reject");

    push_spoiled(r, job, 0, 1);
    assert_int_equal(end_step(r, job, 0, 1), PD_OK);
    rig_work(r);
    assert_int_equal(r->error.code, PD_FAILED_PRECONDITION);
    assert_non_null(
        strstr(r->error.text, "p1: rank 0 cannot end step 1: its push of this parameter was refused; push it again"));
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(rig_versions(r, job, p)->step, 0);
    assert_int_equal(push(r, job, 0, 1, 1), PD_OK);
    assert_int_equal(end_step(r, job, 0, 1), PD_OK);
    assert_closed(r, job, 1, 1, PD_STEPPED);
    assert_closed(r, job, 2, 1, PD_NO_GRADIENT);
}

TEST(a_push_that_came_too_early_is_no_silence, rig *r)
{
    uint32_t job = start(r, 1, NULL);

    assert_int_equal(push(r, job, 0, 2, 1), PD_FAILED_PRECONDITION);
    assert_int_equal(end_step(r, job, 0, 1), PD_OK);
    assert_closed(r, job, 1, 1, PD_NO_GRADIENT);
    assert_int_equal(end_step(r, job, 0, 2), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "p1: rank 0 cannot end step 2: its push of this parameter was refused"));
    assert_int_equal(push(r, job, 0, 2, 1), PD_OK);
    assert_int_equal(end_step(r, job, 0, 2), PD_OK);
    assert_closed(r, job, 1, 2, PD_STEPPED);
    assert_closed(r, job, 2, 2, PD_NO_GRADIENT);
}

TEST(a_push_refused_at_the_door_is_no_silence, rig *r)
{
    uint32_t job = start(r, 1, NULL);
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, 0, 10, 1);
    float values[7] = { 1 };

    rig_piece(frame, 1, PD_F32, 0, 7, values);
    rig_hyper(frame, "colour", "red");
    assert_int_equal(rig_send(r, frame), PD_INVALID_ARGUMENT);
    assert_int_equal(end_step(r, job, 0, 1), PD_FAILED_PRECONDITION);
}

TEST(the_end_of_a_step_does_not_overtake_pushes_that_wait_to_be_looked_at, rig *r)
{
    uint32_t job = start(r, 1, "nonfinite=reject");

    for (uint32_t p = 0; p < 2; p++) assert_int_equal(push(r, job, 0, 1, p), PD_OK);
    assert_int_equal(end_step(r, job, 0, 1), PD_OK);
    assert_closed(r, job, 0, 1, PD_STEPPED);
    assert_closed(r, job, 1, 1, PD_STEPPED);
    assert_closed(r, job, 2, 1, PD_NO_GRADIENT);
}

TEST(a_server_that_drains_lets_no_later_step_end, rig *r)
{
    uint32_t job = start(r, 2, NULL);
    pd_request *drain = pd_request_new(PD_REQ_DRAIN, rig_ticket(r, 1));

    assert_int_equal(end_step(r, job, 0, 1), PD_OK);
    drain->u.drain.deadline_ns = 1000000000000;
    rig_apply(r, drain);
    assert_int_equal(end_step(r, job, 1, 1), PD_OK);
    for (uint32_t p = 0; p < PARAMS; p++) assert_closed(r, job, p, 1, PD_NO_GRADIENT);
    assert_int_equal(end_step(r, job, 0, 2), PD_UNAVAILABLE);
}

/* Closing a step gives the same weights as reporting each absent gradient. */

enum { STEPS = 4 };

/* Plays one step of all ranks in a random order drawn from *seed. The bits of `given` say which rank pushes which
 * parameter. With `ends`, each rank then closes its step; otherwise it reports each parameter without a gradient as
 * absent. */
static void step(rig *r, uint32_t job, uint64_t number, uint64_t given, uint64_t *seed, bool ends)
{
    uint32_t at[WORLD] = { 0 };

    for (int left = WORLD * (PARAMS + 1); left > 0;) {
        uint32_t rank = (uint32_t)(rig_random(seed) % WORLD), param = at[rank];
        if (param > PARAMS) continue;
        at[rank]++;
        left--;
        if (param == PARAMS) {
            if (ends) assert_int_equal(end_step(r, job, rank, number), PD_OK);
        } else if ((given >> (rank * PARAMS + param) & 1) != 0) {
            assert_int_equal(push(r, job, rank, number, param), PD_OK);
        } else if (!ends) {
            rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, rank, 10 + rank, number);
            rig_absent(frame, param);
            assert_int_equal(rig_send(r, frame), PD_OK);
        }
        if (rig_random(seed) % 2 == 0) rig_work(r);
    }
    rig_work(r);
}

static void train(float weights[PARAMS][LONG], uint64_t given, uint64_t order, bool ends)
{
    pd_store_config config = rig_config();
    uint32_t job;
    rig r;

    rig_new(&r, &config);
    job = start(&r, WORLD, NULL);
    for (uint64_t number = 1; number <= STEPS; number++) step(&r, job, number, rig_random(&given), &order, ends);
    for (uint32_t p = 0; p < PARAMS; p++) {
        assert_int_equal(rig_versions(&r, job, p)->step, STEPS);
        memcpy(weights[p], rig_weights(&r, job, p), (size_t)sizes[p] * sizeof(float));
    }
    rig_free(&r);
}

TEST(ending_a_step_is_the_same_as_naming_what_is_absent)
{
    static float named[PARAMS][LONG], ended[PARAMS][LONG];

    for (uint64_t given = 1; given <= 20; given++) {
        train(named, given, 99, false);
        train(ended, given, given, true);
        for (uint32_t p = 0; p < PARAMS; p++) assert_memory_equal(named[p], ended[p], (size_t)sizes[p] * sizeof(float));
    }
}
