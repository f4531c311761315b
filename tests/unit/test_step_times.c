/* Tests how steps of a job are measured: the phases of a step, and which rank was last by how much. The clock moves by
 * hand. */
#include "test.h"
#include "rig.h"
#include "steps.h"

enum { WORLD = 3, CONN = 10, MS = 1000000 };

static const int64_t sizes[] = { 7, 200 };

TEST(a_value_is_in_the_bucket_whose_bound_it_does_not_exceed)
{
    pd_histogram h = { 0 };

    pd_histogram_add(&h, 0);
    pd_histogram_add(&h, 100000);
    pd_histogram_add(&h, 100001);
    pd_histogram_add(&h, UINT64_C(3600) * 1000 * MS);
    assert_int_equal(h.count[0], 2);
    assert_int_equal(h.count[1], 1);
    assert_int_equal(h.count[PD_BUCKETS - 1], 1);
    assert_int_equal(pd_histogram_count(&h), 4);
    assert_true(pd_bucket_bound(0) == 1e-4 && pd_bucket_bound(1) == 4e-4 && isinf(pd_bucket_bound(PD_BUCKETS - 1)));
}

static pd_step_times *times_of(uint32_t ranks)
{
    static pd_step_times times;

    times = (pd_step_times){ 0 };
    assert_int_equal(pd_step_times_make(&times, ranks), PD_OK);
    return &times;
}

TEST(the_last_rank_is_late_by_the_time_after_the_one_before_it)
{
    pd_step_times *t = times_of(3);

    pd_step_times_arrived(t, 1, 2, 10 * MS);
    pd_step_times_arrived(t, 1, 0, 20 * MS);
    pd_step_times_arrived(t, 1, 1, 50 * MS);
    pd_step_times_closed(t, 1, 1);
    assert_int_equal(t->total.rank[1].last, 1);
    assert_int_equal(t->total.rank[1].late_ns, 30 * MS);
    assert_int_equal(t->total.rank[0].last + t->total.rank[2].last, 0);
    assert_int_equal(t->total.phase[PD_PHASE_WAIT].sum_ns, 40 * MS);
    pd_step_times_free(t);
}

TEST(a_step_is_over_when_all_parameters_have_closed_it)
{
    pd_step_times *t = times_of(2);

    for (uint32_t rank = 0; rank < 2; rank++) pd_step_times_arrived(t, 1, rank, (1 + rank) * MS);
    pd_step_times_closed(t, 1, 2);
    assert_int_equal(pd_histogram_count(&t->total.phase[PD_PHASE_WAIT]), 0);
    pd_step_times_arrived(t, 2, 0, 5 * MS); /* the next step of the first parameter */
    pd_step_times_arrived(t, 1, 1, 9 * MS); /* this step of the second one */
    pd_step_times_closed(t, 1, 2);
    assert_int_equal(pd_histogram_count(&t->total.phase[PD_PHASE_WAIT]), 1);
    assert_int_equal(t->total.phase[PD_PHASE_WAIT].sum_ns, 8 * MS);
    assert_int_equal(t->total.rank[1].late_ns, 8 * MS);
    pd_step_times_free(t);
}

TEST(a_single_rank_is_late_for_nobody)
{
    pd_step_times *t = times_of(1);

    pd_step_times_arrived(t, 1, 0, MS);
    pd_step_times_closed(t, 1, 1);
    assert_int_equal(t->total.rank[0].last, 0);
    assert_int_equal(pd_histogram_count(&t->total.phase[PD_PHASE_WAIT]), 1);
    pd_step_times_free(t);
}

TEST(a_step_that_many_later_ones_overtake_is_not_measured)
{
    pd_step_times *t = times_of(2);

    pd_step_times_arrived(t, 1, 0, MS);
    for (uint64_t step = 2; step <= 1 + PD_OPEN_STEPS; step++) pd_step_times_arrived(t, step, 0, step * MS);
    pd_step_times_arrived(t, 1, 1, 100 * MS);
    pd_step_times_closed(t, 1, 1);
    assert_int_equal(pd_histogram_count(&t->total.phase[PD_PHASE_WAIT]), 0);
    pd_step_times_free(t);
}

TEST(steps_of_one_batch_share_its_time)
{
    pd_step_times *t = times_of(1);

    for (uint64_t step = 1; step <= 2; step++) {
        pd_step_times_arrived(t, step, 0, step * MS);
        pd_step_times_closed(t, step, 1);
    }
    t->mark_ns = 100 * MS;
    pd_step_times_spend(t, PD_PHASE_SUM, 104 * MS);
    pd_step_times_end(t);
    assert_int_equal(pd_histogram_count(&t->total.phase[PD_PHASE_SUM]), 2);
    assert_int_equal(pd_histogram_count(&t->total.phase[PD_PHASE_PUBLISH]), 2);
    assert_int_equal(t->total.phase[PD_PHASE_SUM].sum_ns, 4 * MS);
    pd_step_times_free(t);
}

/* A clock that goes on by a millisecond each time it is read. */
static uint64_t clock_ns;

static uint64_t read_clock(void *arg)
{
    (void)arg;
    return clock_ns += MS;
}

static int set_up(void **state)
{
    pd_store_config config = rig_config();

    clock_ns = 0;
    config.clock_ns = read_clock;
    return rig_set_up_with(state, &config);
}

FIXTURE(set_up, rig_tear_down);

static void push(rig *r, uint32_t job, uint32_t rank, uint64_t step)
{
    static float values[200];

    for (uint32_t p = 0; p < 2; p++) {
        rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, rank, CONN + rank, step);
        for (int64_t at = 0; at < sizes[p]; at += r->chunk)
            rig_piece(frame, p, PD_F32, at, sizes[p] - at < r->chunk ? sizes[p] - at : r->chunk, values);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
}

/* Takes a step to which rank 1 contributes last, 300 ms after the others. */
static void step(rig *r, uint32_t job, uint64_t number)
{
    push(r, job, 0, number);
    push(r, job, 2, number);
    rig_work(r);
    r->now += 300 * MS;
    push(r, job, 1, number);
    rig_work(r);
}

TEST(every_phase_of_every_step_is_measured, rig *r)
{
    uint32_t job = rig_start(r, "job", WORLD, CONN, sizes, 2, NULL, NULL);
    const pd_job_info *info;

    for (uint64_t s = 1; s <= 4; s++) step(r, job, s);
    info = &rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0];
    assert_int_equal(info->timed_steps, 4);
    assert_true(fabs(info->waiting_seconds - 1.2) < 1e-9);
    assert_true(info->summing_seconds >= 0.004 && info->summing_seconds < 0.1);
    assert_true(info->stepping_seconds >= 0.004 && info->stepping_seconds < 0.1);
    assert_true(info->publishing_seconds >= 0.004 && info->publishing_seconds < 0.1);
}

TEST(the_list_of_workers_tells_who_was_last_and_by_how_much, rig *r)
{
    uint32_t job = rig_start(r, "job", WORLD, CONN, sizes, 2, NULL, NULL);
    const pd_worker_info *workers;

    for (uint64_t s = 1; s <= 4; s++) step(r, job, s);
    workers = rig_ask(r, PD_INFO_WORKERS, "job")->workers;
    assert_int_equal(workers[0].times_last + workers[2].times_last, 0);
    assert_int_equal(workers[1].times_last, 4);
    assert_int_equal(workers[1].timed_steps, 4);
    assert_true(fabs(workers[1].late_seconds - 1.2) < 1e-9);
}

TEST_WITH(rig_set_up, rig_tear_down, a_store_without_a_clock_measures_only_waiting, rig *r)
{
    uint32_t job = rig_start(r, "job", WORLD, CONN, sizes, 2, NULL, NULL);
    const pd_job_info *info;

    step(r, job, 1);
    info = &rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0];
    assert_true(info->waiting_seconds > 0.29);
    assert_true(info->summing_seconds + info->stepping_seconds + info->publishing_seconds == 0);
}
