/* Tests which ranks count in a step: quorum, grace, late contributions, and kept ones. */
#include "test.h"
#include "fragment.h"
#include "rig.h"
#include "store_inside.h"

#include <math.h>

enum { WORLD = 3, CONN = 10, N = 100 };

static void start(rig *r, const char *options)
{
    static const int64_t sizes[] = { N };
    pd_store_config config = rig_config();

    rig_new(r, &config);
    r->job = rig_start(r, "job", WORLD, CONN, sizes, 1, options, "* sgd lr=1");
    rig_work(r);
}

static int push(rig *r, uint32_t rank, uint64_t step)
{
    float g[N];

    for (int i = 0; i < N; i++) g[i] = (float)(rank + 1);
    return rig_push(r, r->job, rank, CONN + rank, step, 0, g, N);
}

static double weight(rig *r)
{
    return (double)rig_weights(r, r->job, 0)[0];
}

static uint64_t step_of(rig *r)
{
    return rig_versions(r, r->job, 0)->step;
}

static void check_moved(rig *r, double before, double by)
{
    double moved = before - weight(r);

    if (moved < by - 1e-3 || moved > by + 1e-3) fail_msg("the weights move by %g, not %g", moved, by);
}

static void check_that_two_are_enough(const char *options, double expected)
{
    double before;
    rig r;

    start(&r, options);
    before = weight(&r);
    assert_int_equal(push(&r, 0, 1), PD_OK);
    assert_int_equal(push(&r, 2, 1), PD_OK);
    rig_work(&r);
    assert_int_equal(step_of(&r), 0); /* two contributions are there, but the grace is not over */
    rig_sleep(&r, 2);
    rig_work(&r);
    assert_int_equal(step_of(&r), 1);
    assert_int_equal(r.timed_out, 0);
    check_moved(&r, before, expected);
    rig_free(&r);
}

TEST(a_quorum_takes_the_step_when_its_grace_is_over)
{
    check_that_two_are_enough("rounds=quorum quorum=2 grace=1s", 2); /* the mean of ranks 0 and 2 */
    check_that_two_are_enough("rounds=quorum quorum=2 grace=1s aggregate=median", 2);
    check_that_two_are_enough("rounds=quorum quorum=2 grace=1s aggregate=adasum_vdot adasum_fold=yes", 2);
}

static void push_patiently(rig *r, uint32_t rank, uint64_t step, uint64_t ms)
{
    float g[N] = { 0 };

    for (int64_t at = 0; at < N; at += r->chunk) {
        rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
        rig_piece(frame, 0, PD_F32, at, N - at < r->chunk ? N - at : r->chunk, g);
        rig_patience(frame, ms);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
    rig_work(r);
}

TEST(with_grace_auto_a_quorum_waits_as_long_as_its_least_patient_rank_can)
{
    rig r;

    start(&r, "rounds=quorum quorum=1 grace=auto");
    push_patiently(&r, 0, 1, 20000);
    assert_int_equal(step_of(&r), 0);
    rig_sleep(&r, 17);
    rig_work(&r);
    assert_int_equal(step_of(&r), 0);
    rig_sleep(&r, 2);
    rig_work(&r); /* nine tenths of 20 s are over */
    assert_int_equal(step_of(&r), 1);
    rig_free(&r);
}

TEST(with_grace_auto_a_less_patient_rank_that_comes_later_shortens_the_grace)
{
    rig r;

    start(&r, "rounds=quorum quorum=1 grace=auto");
    push_patiently(&r, 0, 1, 20000);
    rig_sleep(&r, 2);
    rig_work(&r);
    push_patiently(&r, 1, 1, 3000);
    assert_int_equal(step_of(&r), 0);
    rig_sleep(&r, 3);
    rig_work(&r);
    assert_int_equal(step_of(&r), 1);
    push_patiently(&r, 0, 2, 20000);
    push_patiently(&r, 1, 2, 0); /* waits for the answer */
    assert_int_equal(step_of(&r), 2);
    rig_free(&r);
}

TEST(without_a_grace_a_quorum_takes_the_step_at_once)
{
    rig r;

    start(&r, "rounds=quorum quorum=2");
    push(&r, 1, 1);
    rig_work(&r);
    assert_int_equal(step_of(&r), 0);
    push(&r, 2, 1);
    rig_work(&r);
    assert_int_equal(step_of(&r), 1);
    rig_free(&r);
}

TEST(less_than_a_quorum_is_reported_as_ever)
{
    rig r;

    start(&r, "rounds=quorum quorum=2 step_timeout=1s");
    assert_int_equal(push(&r, 1, 1), PD_OK);
    rig_sleep(&r, 2);
    assert_int_equal(r.timed_out, 1);
    assert_int_equal(step_of(&r), 0);
    rig_free(&r);
}

TEST(a_late_push_changes_nothing)
{
    double before;
    rig r;

    start(&r, "rounds=quorum quorum=2");
    push(&r, 0, 1);
    push(&r, 2, 1);
    rig_work(&r);
    before = weight(&r);
    assert_int_equal(push(&r, 1, 1), PD_OK);
    rig_work(&r);
    assert_int_equal(step_of(&r), 1);
    check_moved(&r, before, 0);
    assert_int_equal(push(&r, 1, 2), PD_OK);
    assert_int_equal(push(&r, 0, 2), PD_OK);
    rig_work(&r);
    check_moved(&r, before, 1.5);
    rig_free(&r);
}

TEST(a_late_push_counts_in_a_later_step_if_it_is_not_too_old)
{
    double before;
    rig r;

    start(&r, "rounds=quorum quorum=2 staleness=1");
    push(&r, 0, 1);
    push(&r, 2, 1);
    rig_work(&r);
    before = weight(&r);
    assert_int_equal(push(&r, 1, 1), PD_OK);
    rig_work(&r);
    assert_int_equal(step_of(&r), 1);
    push(&r, 0, 2);
    rig_work(&r);
    assert_int_equal(step_of(&r), 2);
    check_moved(&r, before, 1.5); /* ranks 0 and 1 */
    assert_int_equal(inside_job(r.store, r.job)->steps.fragments[0].ranks[1].counts.ages, 1);
    rig_free(&r);
}

TEST(what_is_too_old_even_for_the_next_step_does_not_count)
{
    double before;
    rig r;

    start(&r, "rounds=quorum quorum=2 staleness=1");
    for (uint64_t step = 1; step <= 2; step++) {
        push(&r, 0, step);
        push(&r, 2, step);
        rig_work(&r);
    }
    before = weight(&r);
    assert_int_equal(push(&r, 1, 1), PD_OK);
    push(&r, 0, 3);
    rig_work(&r);
    assert_int_equal(step_of(&r), 2);
    push(&r, 2, 3);
    rig_work(&r);
    check_moved(&r, before, 2); /* ranks 0 and 2 */
    rig_free(&r);
}

static void push_first_chunk(rig *r, uint32_t rank, uint64_t step)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
    float g[N] = { 0 };

    rig_piece(frame, 0, PD_F32, 0, r->chunk, g);
    assert_int_equal(rig_send(r, frame), PD_OK);
}

/* Lets another process take the rank. */
static void take_over(rig *r, uint32_t rank, uint64_t conn, const char *options)
{
    static const char *const names[] = { "p0" };
    static const pd_shape shapes[] = { { 1, { N } } };

    assert_int_equal(rig_hello(r, "job", rank, WORLD, conn, conn, options, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, rank, conn, names, shapes, NULL, 1, PD_F32), PD_OK);
}

TEST(what_a_process_has_given_in_part_does_not_stop_the_next_one)
{
    float g[N] = { 0 };
    rig r;

    start(&r, "rounds=async damping=none");
    push_first_chunk(&r, 1, 1);
    push(&r, 0, 1);
    rig_work(&r);
    assert_int_equal(step_of(&r), 1);
    take_over(&r, 1, CONN + 7, "rounds=async damping=none");
    assert_int_equal(rig_push(&r, r.job, 1, CONN + 7, 2, 0, g, N), PD_OK);
    rig_work(&r);
    assert_int_equal(step_of(&r), 2);
    rig_free(&r);
}

/* Begins a job at step 1, in which rank 1 has not counted. Its push for step 1 is whole, and kept for step 2. */
static void start_with_a_kept_push(rig *r, const char *options)
{
    start(r, options);
    push(r, 0, 1);
    push(r, 2, 1);
    rig_work(r);
    assert_int_equal(push(r, 1, 1), PD_OK);
    rig_work(r);
    assert_int_equal(step_of(r), 1);
}

/* Its call has ended with DEADLINE_EXCEEDED, and it has learned of step 1 when it connected again. */
TEST(a_push_takes_the_place_of_the_one_before_which_has_not_counted)
{
    const pd_fragment_rank *rank;
    float twos[N], before;
    rig r;

    start_with_a_kept_push(&r, "rounds=quorum quorum=2 staleness=1");
    before = rig_weights(&r, r.job, 0)[0];
    for (int i = 0; i < N; i++) twos[i] = 7;
    assert_int_equal(rig_push(&r, r.job, 1, CONN + 1, 2, 0, twos, N), PD_OK);
    assert_int_equal(r.filed, PD_FILED_FOR);
    push(&r, 0, 2);
    rig_work(&r);
    assert_int_equal(step_of(&r), 2);
    check_moved(&r, (double)before, 4); /* the mean of 1 and 7: once, and without age */
    rank = &inside_job(r.store, r.job)->steps.fragments[0].ranks[1];
    assert_int_equal(rank->saved.last, 2);
    assert_int_equal(rank->counts.ages, 0);
    rig_free(&r);
}

TEST(a_push_that_was_overtaken_is_late_when_it_comes_again)
{
    rig r;

    start_with_a_kept_push(&r, "rounds=quorum quorum=2 staleness=1");
    assert_int_equal(push(&r, 1, 2), PD_OK);
    assert_int_equal(push(&r, 1, 1), PD_OK);
    assert_int_equal(r.filed, PD_FILED_LATE);
    assert_int_equal(inside_job(r.store, r.job)->steps.fragments[0].ranks[1].step, 2);
    rig_free(&r);
}

/* Pushes one parameter with a wrong number of elements, or with a NaN. */
static void push_wrong(rig *r, uint32_t rank, uint64_t step, bool finite)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
    float g[N] = { finite ? 1 : (float)NAN };

    rig_piece(frame, 0, PD_F32, 0, finite ? 3 : r->chunk, g);
    rig_send(r, frame);
    rig_work(r);
    assert_int_equal(r->error.code, PD_INVALID_ARGUMENT);
}

TEST(a_push_that_is_refused_takes_no_place)
{
    rig r;

    start_with_a_kept_push(&r, "rounds=quorum quorum=2 staleness=1 nonfinite=reject");
    push_wrong(&r, 1, 2, true);
    push_wrong(&r, 1, 2, false);
    push(&r, 0, 2);
    rig_work(&r);
    assert_int_equal(inside_job(r.store, r.job)->steps.fragments[0].ranks[1].saved.last, 1);
    rig_free(&r);
}

TEST(every_contribution_is_a_step_in_async_rounds)
{
    double before;
    rig r;

    start(&r, "rounds=async damping=none");
    before = weight(&r);
    push(&r, 0, 1);
    rig_work(&r);
    push(&r, 1, 1);
    rig_work(&r);
    push(&r, 0, 2);
    rig_work(&r);
    push(&r, 2, 1);
    rig_work(&r);
    assert_int_equal(step_of(&r), 4);
    check_moved(&r, before, 1 + 2 + 1 + 3);
    rig_free(&r);
}

/* Returns what is said of a job of three workers with these options; "": nothing. */
static const char *said_of(rig *r, const char *options)
{
    rig_hello(r, "job", 0, WORLD, CONN, CONN, options, "* sgd lr=1");
    return r->error.text;
}

static void check_refused(const char *options, const char *words)
{
    rig r;

    rig_make(&r);
    if (strstr(said_of(&r, options), words) == NULL) fail_msg("%s: \"%s\"", options, r.error.text);
    rig_free(&r);
}

static void check_taken(const char *options)
{
    rig r;

    rig_make(&r);
    assert_string_equal(said_of(&r, options), "");
    rig_free(&r);
}

TEST(aggregates_that_ignore_weights_are_not_damped)
{
    check_refused("quorum=1 damping=root aggregate=median", "which aggregate = median ignores");
    check_refused("rounds=async damping=inverse aggregate=adasum_vdot", "which aggregate = adasum_vdot ignores");
    check_taken("rounds=async aggregate=median");
    check_taken("rounds=async damping=inverse aggregate=radial_mean");
}

TEST(a_trimmed_mean_needs_a_quorum_that_it_does_not_drop)
{
    check_refused("quorum=2 aggregate=trimmed_mean trim=1", "drops all of 2 contributions, and quorum and min_workers");
    check_refused("on_lost_worker=shrink aggregate=trimmed_mean trim=1", "drops all of 1 contributions");
    check_taken("on_lost_worker=shrink min_workers=3 aggregate=trimmed_mean trim=1");
}

TEST(an_adasum_of_a_varying_number_of_ranks_needs_adasum_fold)
{
    check_refused("quorum=2 aggregate=adasum", "here 2 to 3 may count in a step: set adasum_fold = yes");
    check_taken("quorum=2 aggregate=adasum adasum_fold=yes");
}
