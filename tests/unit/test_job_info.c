/* Tests the figures about a job that operators get: its optimizers, speed, loss, and the ranks that it waits for. */
#include "test.h"
#include "rig.h"
#include "store_inside.h"

enum { WORLD = 3, CONN = 10 };

static const int64_t sizes[] = { 7, 200 };

static const pd_job_info *info(rig *r)
{
    return &rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0];
}

static void push(rig *r, uint32_t job, uint32_t rank, uint64_t step, const char *scalar, double value)
{
    for (uint32_t p = 0; p < 2; p++) {
        rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, rank, CONN + rank, step);
        static float values[200];
        for (int64_t at = 0; at < sizes[p]; at += r->chunk)
            rig_piece(frame, p, PD_F32, at, sizes[p] - at < r->chunk ? sizes[p] - at : r->chunk, values);
        if (p == 0 && scalar != NULL) rig_scalar(frame, scalar, value);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
}

/* Takes one step with all ranks. Each rank contributes rank + 1 as the scalar `scalar`. */
static void step(rig *r, uint32_t job, uint64_t number, const char *scalar)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) push(r, job, rank, number, scalar, rank + 1);
    rig_work(r);
}

FIXTURE(rig, rig_make, rig_free);

TEST(optimizers_are_named_the_largest_first, rig *r)
{
    rig_start(r, "job", WORLD, CONN, sizes, 2, NULL, "p0 sgd lr=1;* adam");
    assert_string_equal(info(r)->optimizer, "adam,sgd");
}

static void mirrored(rig *r, const char *name, uint64_t creator, uint64_t step)
{
    pd_request *request = pd_request_new(PD_REQ_MIRRORED, (pd_ticket){ 0, 0 });

    request->u.mirrored.job_name = strdup(name);
    request->u.mirrored.creator = creator;
    request->u.mirrored.step = step;
    pd_store_apply(r->store, request, r->now);
}

TEST(the_step_that_the_mirror_has_is_that_of_the_job_with_the_same_creator, rig *r)
{
    uint64_t creator;

    rig_start(r, "job", WORLD, CONN, sizes, 2, NULL, NULL);
    creator = inside_find(r->store, "job")->saved.creator;
    mirrored(r, "job", creator, 40);
    assert_int_equal(info(r)->mirrored_step, 40);
    mirrored(r, "job", creator + 1, 50);
    mirrored(r, "gone", creator, 60);
    assert_int_equal(info(r)->mirrored_step, 40);
    mirrored(r, "job", creator, 20); /* the job has gone back */
    assert_int_equal(info(r)->mirrored_step, 20);
}

TEST(rules_of_one_optimizer_are_one_name, rig *r)
{
    rig_start(r, "job", WORLD, CONN, sizes, 2, NULL, "p0 sgd lr=1;* sgd lr=2");
    assert_string_equal(info(r)->optimizer, "sgd");
}

TEST(the_speed_is_that_of_the_clock_the_store_is_given, rig *r)
{
    uint32_t job = rig_start(r, "job", WORLD, CONN, sizes, 2, NULL, NULL);

    assert_true(info(r)->steps_per_second == 0);
    for (uint64_t s = 1; s <= 40; s++) {
        step(r, job, s, NULL);
        rig_sleep(r, 0.5);
    }
    assert_true(info(r)->steps_per_second > 1.9 && info(r)->steps_per_second < 2.1);
    rig_sleep(r, 100);
    assert_true(info(r)->steps_per_second < 0.3);
}

TEST(the_loss_is_the_mean_of_the_last_round_that_had_one, rig *r)
{
    uint32_t job = rig_start(r, "job", WORLD, CONN, sizes, 2, NULL, NULL);

    assert_int_equal(info(r)->loss_step, 0);
    step(r, job, 1, "accuracy");
    assert_int_equal(info(r)->loss_step, 0);
    step(r, job, 2, "loss");
    assert_true(info(r)->loss == 2.0);
    assert_int_equal(info(r)->loss_step, 2);
    step(r, job, 3, NULL);
    assert_true(info(r)->loss == 2.0);
    assert_int_equal(info(r)->loss_step, 2);
}

TEST(ranks_that_have_not_declared_are_waited_for, rig *r)
{
    static const char *const names[] = { "w" };
    pd_shape shape = { .rank = 1, .dim = { 7 } };

    assert_int_equal(rig_hello(r, "job", 1, WORLD, CONN + 1, CONN + 1, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 1, CONN + 1, names, &shape, NULL, 1, PD_F32), PD_OK);
    assert_string_equal(info(r)->state, "gathering");
    assert_string_equal(info(r)->waits_for, "0,2");
}

TEST(ranks_that_an_open_round_misses_are_waited_for, rig *r)
{
    uint32_t job = rig_start(r, "job", WORLD, CONN, sizes, 2, NULL, NULL);

    assert_string_equal(info(r)->waits_for, "");
    push(r, job, 1, 1, NULL, 0);
    rig_work(r);
    rig_sleep(r, 3);
    assert_string_equal(info(r)->waits_for, "0,2");
    assert_in_range(info(r)->waits_ms, 2900, 3100);
    push(r, job, 0, 1, NULL, 0);
    rig_work(r);
    assert_string_equal(info(r)->waits_for, "2");
    push(r, job, 2, 1, NULL, 0);
    rig_work(r);
    assert_string_equal(info(r)->waits_for, "");
    assert_int_equal(info(r)->waits_ms, 0);
}

TEST(initial_weights_are_waited_for, rig *r)
{
    static const char *const names[] = { "w" };
    pd_shape shape = { .rank = 1, .dim = { 7 } };

    assert_int_equal(rig_hello(r, "job", 0, 1, CONN, CONN, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, CONN, names, &shape, NULL, 1, PD_F32), PD_OK);
    assert_string_equal(info(r)->waits_for, "initial weights");
}
