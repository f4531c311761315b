/* Tests who is a member of a job: ranks join, are lost, leave, are removed by operators, and come back. */
#include "test.h"
#include "elastic_job.h"
#include "fragment.h"

enum { SLOTS = 6 };
static const char elastic[] = "min_workers=1 max_workers=6 reconnect_grace=5s";

TEST(four_ranks_shrink_to_two_and_grow_to_five_of_six)
{
    double before;
    rig r;

    elastic_begin(&r, 4, elastic);
    assert_int_equal(r.slots, SLOTS);
    assert_int_equal(r.members, 0xf);
    for (uint32_t rank = 0; rank < 4; rank++) elastic_push(&r, rank, ELASTIC_CONN + rank, 1);
    assert_int_equal(elastic_step(&r), 1);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    elastic_lose(&r, 2, ELASTIC_CONN + 2);
    rig_sleep(&r, 6);
    assert_int_equal(r.members, 0x9);
    before = elastic_weight(&r);
    elastic_push(&r, 0, ELASTIC_CONN, 2);
    elastic_push(&r, 3, ELASTIC_CONN + 3, 2);
    assert_int_equal(elastic_step(&r), 2);
    assert_true(elastic_moved(&r, before) == (1 + 8) / 2.0);
    elastic_join(&r, 1, 6, ELASTIC_NEW + 1);
    elastic_join(&r, 2, 6, ELASTIC_NEW + 2);
    elastic_join(&r, 5, 6, ELASTIC_NEW + 5);
    assert_int_equal(r.members, 0x2f);
    assert_int_equal(r.epoch, elastic_job(&r)->steps.epoch);
    assert_int_equal(r.epoch, 2 + 3);
    before = elastic_weight(&r);
    for (uint32_t rank = 0; rank < SLOTS; rank++)
        if (rank != 4) elastic_push(&r, rank, (rank == 0 || rank == 3 ? ELASTIC_CONN : ELASTIC_NEW) + rank, 3);
    assert_int_equal(elastic_step(&r), 3);
    assert_true(fabs(elastic_moved(&r, before) - (1 + 2 + 4 + 8 + 32) / 5.0) < 1e-5);
    rig_free(&r);
}

TEST(a_rank_that_is_lost_in_the_middle_of_a_push_is_left_out)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    elastic_push_half(&r, 1, ELASTIC_CONN + 1, 1);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    assert_int_equal(elastic_step(&r), 0);
    rig_sleep(&r, 6);
    rig_work(&r);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -1);
    assert_int_equal(r.buffers_out, 0);
    rig_free(&r);
}

TEST(a_whole_rank_that_is_lost_still_counts)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 6);
    assert_int_equal(r.members, 1);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -1.5);
    rig_free(&r);
}

TEST(a_rank_that_comes_back_in_time_stays_a_member)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 4);
    elastic_join(&r, 1, 2, ELASTIC_CONN + 1);
    rig_sleep(&r, 4);
    assert_int_equal(r.epoch, 0);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    assert_int_equal(elastic_step(&r), 0);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    assert_int_equal(elastic_step(&r), 1);
    rig_free(&r);
}

TEST(a_process_that_comes_back_late_joins_anew)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    elastic_push_half(&r, 1, ELASTIC_CONN + 1, 1);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 6);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    assert_int_equal(elastic_step(&r), 1);
    elastic_join(&r, 1, 2, ELASTIC_CONN + 1);
    assert_int_equal(r.members, 3);
    assert_int_equal(r.epoch, 2);
    assert_int_equal(elastic_push(&r, 1, ELASTIC_CONN + 1, 1), PD_OK);
    assert_int_equal(r.filed, PD_FILED_LATE);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 2);
    assert_int_equal(elastic_step(&r), 1);
    elastic_push(&r, 0, ELASTIC_CONN, 2);
    assert_int_equal(elastic_step(&r), 2);
    rig_free(&r);
}

/* Ends a rank's step without a gradient. Returns the code of the answer, if there is one yet. */
static int end_step(rig *r, uint32_t rank, uint64_t conn, uint64_t step)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, conn, step);
    int rc;

    rig_last(frame);
    rc = rig_send(r, frame);
    rig_work(r);
    return rc;
}

TEST(a_process_that_joins_anew_ends_its_step_again)
{
    rig r;

    elastic_begin(&r, 3, "min_workers=2 max_workers=6 reconnect_grace=1s on_lost_worker=shrink");
    elastic_push_half(&r, 2, ELASTIC_CONN + 2, 1);
    end_step(&r, 2, ELASTIC_CONN + 2, 1);
    elastic_lose(&r, 2, ELASTIC_CONN + 2);
    rig_sleep(&r, 2);
    rig_work(&r); /* the rank is removed, and what it had given is released */
    elastic_join(&r, 2, 3, ELASTIC_CONN + 2);
    end_step(&r, 2, ELASTIC_CONN + 2, 1);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    assert_int_equal(elastic_step(&r), 1);
    assert_int_equal(elastic_job(&r)->steps.fragments[0].ranks[2].saved.counted, 1);
    rig_free(&r);
}

TEST(a_joiner_counts_in_the_open_step_and_is_waited_for_in_the_next)
{
    double before;
    rig r;

    elastic_begin(&r, 2, elastic);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    elastic_join(&r, 2, 3, ELASTIC_CONN + 2);
    elastic_push(&r, 2, ELASTIC_CONN + 2, 1);
    assert_int_equal(elastic_step(&r), 0);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(fabs(elastic_weight(&r) + 7 / 3.0) < 1e-6);
    before = elastic_weight(&r);
    elastic_push(&r, 0, ELASTIC_CONN, 2);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 2);
    assert_int_equal(elastic_step(&r), 1);
    elastic_push(&r, 2, ELASTIC_CONN + 2, 2);
    assert_true(fabs(elastic_moved(&r, before) - 7 / 3.0) < 1e-6);
    rig_free(&r);
}

TEST(a_step_of_which_nothing_is_left_waits_for_all_who_are_members_when_it_begins_again)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    elastic_push_half(&r, 0, ELASTIC_CONN, 1);
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(rig_kick(&r, "job", rank), PD_OK);
    assert_int_equal(r.members, 0);
    for (uint32_t rank = 2; rank < 4; rank++) elastic_join(&r, rank, 4, ELASTIC_CONN + rank);
    elastic_push(&r, 2, ELASTIC_CONN + 2, 1);
    assert_int_equal(elastic_step(&r), 0);
    elastic_push(&r, 3, ELASTIC_CONN + 3, 1);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -(4 + 8) / 2.0);
    rig_free(&r);
}

/* All ranks were lost that the step had waited for, and one of them was whole. */
TEST(a_step_that_waits_for_nobody_does_not_begin_to_wait_when_a_joiner_is_removed)
{
    rig r;

    elastic_begin(&r, 2, "on_lost_worker=shrink min_workers=3 max_workers=6");
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(rig_kick(&r, "job", rank), PD_OK);
    for (uint32_t rank = 2; rank < 4; rank++) elastic_join(&r, rank, SLOTS, ELASTIC_CONN + rank);
    assert_int_equal(rig_kick(&r, "job", 3), PD_OK);
    for (uint32_t rank = 4; rank < 6; rank++) elastic_join(&r, rank, SLOTS, ELASTIC_CONN + rank);
    rig_work(&r);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -1);
    rig_free(&r);
}

TEST(no_time_runs_while_all_ranks_are_lost)
{
    rig r;

    elastic_begin(&r, 3, "on_lost_worker=shrink reconnect_grace=5s job_linger=100s");
    for (uint32_t rank = 0; rank < 3; rank++) elastic_lose(&r, rank, ELASTIC_CONN + rank);
    rig_sleep(&r, 60);
    assert_int_equal(elastic_job(&r)->steps.members.n, 3);
    elastic_join(&r, 0, 3, ELASTIC_CONN);
    rig_sleep(&r, 4);
    assert_int_equal(r.members, 7);
    rig_sleep(&r, 2);
    assert_int_equal(r.members, 1);
    rig_free(&r);
}

TEST(a_rank_that_has_left_is_not_waited_for)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    assert_int_equal(rig_ask_as(&r, PD_REQ_LEAVE, 1, ELASTIC_CONN + 1, 0), PD_OK);
    assert_int_equal(r.members, 1);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    assert_int_equal(elastic_step(&r), 1);
    rig_sleep(&r, 2);
    assert_int_equal(r.timed_out, 0);
    rig_free(&r);
}

TEST(a_job_that_waits_still_says_that_a_rank_has_left)
{
    rig r;

    elastic_begin(&r, 3, "rounds=quorum quorum=3");
    assert_int_equal(rig_ask_as(&r, PD_REQ_LEAVE, 1, ELASTIC_CONN + 1, 0), PD_OK);
    assert_int_equal(r.members, 7);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    rig_sleep(&r, 0.001);
    assert_int_equal(r.timed_out, 1);
    assert_int_equal(r.timeout.code, PD_FAILED_PRECONDITION);
    rig_free(&r);
}

TEST(no_step_is_taken_below_min_workers)
{
    rig r;

    elastic_begin(&r, 3, "min_workers=2 max_workers=3 reconnect_grace=1s");
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    elastic_lose(&r, 2, ELASTIC_CONN + 2);
    rig_sleep(&r, 2);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    assert_int_equal(elastic_step(&r), 0);
    elastic_join(&r, 2, 3, ELASTIC_NEW);
    elastic_push(&r, 2, ELASTIC_NEW, 1);
    assert_int_equal(elastic_step(&r), 1);
    rig_free(&r);
}

static int barrier(rig *r, uint32_t rank, uint64_t conn, uint64_t sequence)
{
    uint64_t answered = r->answered;

    (void)rig_ask_as(r, PD_REQ_BARRIER, rank, conn, sequence);
    return r->answered > answered ? r->error.code : -1;
}

TEST(a_removed_rank_releases_a_barrier)
{
    uint64_t answered;
    rig r;

    elastic_begin(&r, 3, elastic);
    assert_int_equal(barrier(&r, 0, ELASTIC_CONN, 1), -1);
    assert_int_equal(barrier(&r, 1, ELASTIC_CONN + 1, 1), -1);
    elastic_lose(&r, 2, ELASTIC_CONN + 2);
    answered = r.answered;
    rig_sleep(&r, 6);
    assert_int_equal(r.answered, answered + 2);
    elastic_join(&r, 2, 3, ELASTIC_NEW);
    assert_int_equal(barrier(&r, 0, ELASTIC_CONN, 2), -1);
    assert_int_equal(barrier(&r, 1, ELASTIC_CONN + 1, 2), -1);
    assert_int_equal(barrier(&r, 2, ELASTIC_NEW, 1), PD_OK);
    rig_free(&r);
}

TEST(a_removed_process_that_comes_back_meets_the_others_at_their_next_barrier)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 6);
    assert_int_equal(barrier(&r, 0, ELASTIC_CONN, 1), PD_OK);
    elastic_join(&r, 1, 2, ELASTIC_CONN + 1);
    assert_int_equal(barrier(&r, 1, ELASTIC_CONN + 1, 1), -1);
    assert_int_equal(barrier(&r, 0, ELASTIC_CONN, 2), PD_OK);
    rig_free(&r);
}

TEST(a_job_that_fails_says_who_was_lost_and_keeps_its_files)
{
    rig r;

    elastic_begin(&r, 2, "on_lost_worker=fail reconnect_grace=5s checkpoint_every=1");
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    assert_true(r.kept > 0);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 4);
    assert_int_equal(r.gone, 0);
    rig_sleep(&r, 2);
    assert_int_equal(r.gone, 1);
    assert_int_equal(r.ended, 0);
    assert_int_equal(r.goodbye.code, PD_ABORTED);
    assert_string_equal(r.goodbye.text,
                        "job job has ended (on_lost_worker = fail): rank 1 (host:11) was lost for 6.0 s: the "
                        "connection has ended. Its checkpoints stay, and are restored when the server starts again");
    rig_free(&r);
}

TEST(a_job_that_fails_does_not_fail_because_a_rank_leaves)
{
    rig r;

    elastic_begin(&r, 2, "on_lost_worker=fail reconnect_grace=1s");
    assert_int_equal(rig_ask_as(&r, PD_REQ_LEAVE, 1, ELASTIC_CONN + 1, 0), PD_OK);
    rig_sleep(&r, 2);
    assert_int_equal(r.gone, 0);
    rig_free(&r);
}

TEST(a_job_is_over_when_its_last_member_has_left)
{
    rig r;

    elastic_begin(&r, 3, elastic);
    elastic_lose(&r, 2, ELASTIC_CONN + 2);
    rig_sleep(&r, 6);
    rig_ask_as(&r, PD_REQ_LEAVE, 0, ELASTIC_CONN, 0);
    assert_false(pd_job_is_over(elastic_job(&r)));
    rig_ask_as(&r, PD_REQ_LEAVE, 1, ELASTIC_CONN + 1, 0);
    assert_true(pd_job_is_over(elastic_job(&r)));
    rig_free(&r);
}

TEST(a_job_whose_last_member_is_lost_is_not_over)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    rig_ask_as(&r, PD_REQ_LEAVE, 0, ELASTIC_CONN, 0);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 6);
    assert_false(pd_job_is_over(elastic_job(&r)));
    elastic_join(&r, 1, 2, ELASTIC_NEW);
    assert_false(r.created);
    rig_free(&r);
}

TEST(worker_states_stay_until_another_process_gets_the_slot)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    assert_int_equal(rig_note(&r, 1, ELASTIC_CONN + 1, 1, "of rank 1"), PD_OK);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 6);
    elastic_join(&r, 1, 2, ELASTIC_CONN + 1);
    assert_int_equal(rig_recall(&r, 1, ELASTIC_CONN + 1), PD_OK);
    assert_string_equal(r.note, "of rank 1");
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 6);
    elastic_join(&r, 1, 2, ELASTIC_NEW);
    assert_int_equal(rig_recall(&r, 1, ELASTIC_NEW), PD_OK);
    assert_int_equal(r.note_step, 0);
    rig_free(&r);
}

TEST(a_rank_above_the_slots_is_told_what_to_do)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    assert_int_equal(elastic_hello(&r, 6, 7, ELASTIC_NEW), PD_FAILED_PRECONDITION);
    elastic_expect(&r, PD_FAILED_PRECONDITION,
                   "has room for the ranks 0 to 5 (max_workers = 6), this worker comes as rank 6");
    rig_free(&r);
}

/* ---- kick ---- */

TEST(a_kicked_rank_is_removed_at_once_and_its_process_stays_out)
{
    rig r;

    elastic_begin(&r, 2, elastic);
    assert_int_equal(rig_kick(&r, "job", 1), PD_OK);
    assert_int_equal(r.fenced_conn, ELASTIC_CONN + 1);
    assert_int_equal(r.fenced.code, PD_ABORTED);
    assert_int_equal(r.members, 1);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    assert_int_equal(elastic_step(&r), 1);
    assert_int_equal(elastic_hello(&r, 1, 2, ELASTIC_CONN + 1), PD_ABORTED);
    r.any_rank = true;
    assert_int_equal(elastic_hello(&r, 0, 0, ELASTIC_CONN + 1), PD_ABORTED);
    r.any_rank = false;
    elastic_join(&r, 1, 2, ELASTIC_NEW);
    assert_int_equal(r.members, 3);
    assert_int_equal(elastic_hello(&r, 1, 2, ELASTIC_CONN + 1), PD_ABORTED);
    rig_free(&r);
}

TEST(a_kick_in_a_job_that_waits_frees_the_rank_for_a_new_process)
{
    rig r;

    elastic_begin(&r, 2, NULL);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    assert_int_equal(rig_kick(&r, "job", 1), PD_OK);
    assert_int_equal(r.fenced_conn, ELASTIC_CONN + 1);
    rig_sleep(&r, 20);
    assert_int_equal(elastic_step(&r), 0);
    assert_int_equal(elastic_hello(&r, 1, 2, ELASTIC_CONN + 1), PD_ABORTED);
    elastic_join(&r, 1, 2, ELASTIC_NEW);
    elastic_push(&r, 1, ELASTIC_NEW, 1);
    assert_int_equal(elastic_step(&r), 1);
    rig_free(&r);
}

TEST(a_kick_ends_a_job_that_fails)
{
    rig r;

    elastic_begin(&r, 2, "on_lost_worker=fail");
    assert_int_equal(rig_kick(&r, "job", 0), PD_OK);
    assert_int_equal(r.gone, 1);
    assert_non_null(strstr(r.goodbye.text, "rank 0 (host:10) was removed by operator:7"));
    rig_free(&r);
}

TEST(a_rank_that_never_came_can_be_kicked_from_a_job_that_shrinks)
{
    rig r;

    elastic_new(&r, "on_lost_worker=shrink step_timeout=10s");
    elastic_join(&r, 0, 2, ELASTIC_CONN);
    elastic_init(&r);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    rig_sleep(&r, 60);
    assert_int_equal(elastic_step(&r), 0);
    assert_non_null(strstr(r.timeout.text, "rank 1 (never came)"));
    assert_non_null(strstr(r.timeout.text, "or remove the rank (paramctl kick)"));
    assert_int_equal(rig_kick(&r, "job", 1), PD_OK);
    rig_work(&r);
    assert_int_equal(elastic_step(&r), 1);
    assert_int_equal(rig_kick(&r, "job", 1), PD_FAILED_PRECONDITION);
    assert_int_equal(rig_kick(&r, "job", 2), PD_NOT_FOUND);
    assert_int_equal(rig_kick(&r, "other", 0), PD_NOT_FOUND);
    rig_free(&r);
}

/* ---- any rank ---- */

TEST(a_worker_gets_the_lowest_free_rank)
{
    rig r;

    elastic_any_rank(&r, "min_workers=1 max_workers=3");
    elastic_join(&r, 0, 0, ELASTIC_CONN);
    assert_true(r.must_init);
    elastic_init(&r);
    for (uint32_t rank = 1; rank < 3; rank++) {
        elastic_join(&r, 0, 0, ELASTIC_CONN + rank);
        assert_int_equal(r.rank, rank);
        assert_false(r.must_init);
    }
    assert_int_equal(elastic_hello(&r, 0, 0, ELASTIC_NEW), PD_UNAVAILABLE);
    elastic_expect(&r, PD_UNAVAILABLE, "has a worker at each of its 3 ranks");
    rig_ask_as(&r, PD_REQ_LEAVE, 2, ELASTIC_CONN + 2, 0);
    elastic_lose(&r, 0, ELASTIC_CONN);
    elastic_join(&r, 0, 0, ELASTIC_NEW);
    assert_int_equal(r.rank, 2);
    rig_sleep(&r, 6);
    elastic_join(&r, 0, 0, ELASTIC_NEW + 1);
    assert_int_equal(r.rank, 0);
    assert_int_equal(r.members, 7);
    rig_free(&r);
}

/* It waited for a rank for ever, and the job for a worker at the one that it had lost. */
TEST(a_process_whose_rank_was_taken_over_ends_if_no_other_is_free)
{
    rig r;

    elastic_any_rank(&r, "max_workers=2 reconnect_grace=5s");
    elastic_join(&r, 0, 0, ELASTIC_CONN);
    elastic_init(&r);
    elastic_join(&r, 0, 0, ELASTIC_CONN + 1);
    elastic_lose(&r, 0, ELASTIC_CONN);
    rig_sleep(&r, 6);
    elastic_join(&r, 0, 0, ELASTIC_NEW);
    assert_int_equal(elastic_hello(&r, 0, 0, ELASTIC_CONN), PD_UNAVAILABLE);
    elastic_lose(&r, 0, ELASTIC_NEW);
    assert_int_equal(elastic_hello(&r, 0, 0, ELASTIC_CONN), PD_UNAVAILABLE);
    rig_sleep(&r, 6);
    assert_int_equal(elastic_hello(&r, 0, 0, ELASTIC_CONN), PD_ABORTED);
    elastic_expect(&r, PD_ABORTED, "rank 0 of job job was taken over by another process");
    elastic_join(&r, 0, 0, ELASTIC_NEW + 1);
    assert_int_equal(r.rank, 0);
    rig_free(&r);
}

TEST(a_process_that_reconnects_gets_its_rank_again)
{
    rig r;

    elastic_any_rank(&r, elastic);
    for (uint32_t rank = 0; rank < 3; rank++) elastic_join(&r, 0, 0, ELASTIC_CONN + rank);
    elastic_lose(&r, 0, ELASTIC_CONN);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    elastic_join(&r, 0, 0, ELASTIC_CONN + 1);
    assert_int_equal(r.rank, 1);
    assert_int_equal(r.epoch, 3);
    rig_free(&r);
}

TEST(a_lost_rank_of_a_job_that_waits_is_given_to_another_worker_after_a_while)
{
    rig r;

    elastic_any_rank(&r, "max_workers=2 min_workers=2 rounds=quorum quorum=1");
    for (uint32_t rank = 0; rank < 2; rank++) elastic_join(&r, 0, 2, ELASTIC_CONN + rank);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    assert_int_equal(elastic_hello(&r, 0, 2, ELASTIC_NEW), PD_UNAVAILABLE);
    rig_sleep(&r, 6);
    elastic_join(&r, 0, 2, ELASTIC_NEW);
    assert_int_equal(r.rank, 1);
    rig_free(&r);
}

TEST(nobody_is_a_member_before_the_first_declares)
{
    rig r;

    elastic_any_rank(&r, "min_workers=2 max_workers=4");
    assert_int_equal(elastic_hello(&r, 0, 0, ELASTIC_CONN), PD_OK);
    assert_int_equal(r.members, 0);
    assert_int_equal(elastic_declare(&r, 0, ELASTIC_CONN), PD_OK);
    assert_int_equal(r.members, 1);
    assert_int_equal(r.epoch, 1);
    rig_free(&r);
}

/* Sends initial weights of the first elements of parameter 0. Returns the number of elements. */
static int64_t init_part(rig *r, uint32_t rank, uint64_t conn, int64_t first, const float *values)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, conn, 0);
    int64_t n = ELASTIC_N - first < r->chunk ? ELASTIC_N - first : r->chunk;

    rig_piece(frame, 0, PD_F32, first, n, values);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
    return n;
}

static void init_as(rig *r, uint32_t rank, uint64_t conn, const float *values)
{
    for (int64_t first = 0; first < ELASTIC_N;) first += init_part(r, rank, conn, first, values);
}

/* Begins a job whose rank 0 sends a part of the initial weights, and is removed. Rank 1 is told to come again. */
static void begin_without_giver(rig *r)
{
    float ones[ELASTIC_N];

    elastic_fill(ones, 1);
    elastic_any_rank(r, elastic);
    elastic_join(r, 0, 0, ELASTIC_CONN);
    elastic_join(r, 0, 0, ELASTIC_CONN + 1);
    assert_false(r->must_init);
    init_part(r, 0, ELASTIC_CONN, 0, ones);
    elastic_lose(r, 0, ELASTIC_CONN);
    rig_sleep(r, 6);
}

TEST(a_member_comes_again_to_send_the_initial_weights_of_a_rank_that_was_removed)
{
    static const float zeros[ELASTIC_N];
    rig r;

    begin_without_giver(&r);
    assert_int_equal(r.fenced_conn, ELASTIC_CONN + 1);
    assert_int_equal(r.fenced.code, PD_UNAVAILABLE);
    elastic_join(&r, 0, 0, ELASTIC_CONN + 1);
    assert_true(r.must_init);
    init_as(&r, 1, ELASTIC_CONN + 1, zeros);
    assert_float_equal(rig_weights(&r, r.job, 0)[0], 0, 0);
    assert_float_equal(rig_weights(&r, r.job, 0)[ELASTIC_N - 1], 0, 0);
    rig_free(&r);
}

/* Sends one chunk of the initial weights, all of which are `value`. */
static void init_chunk(rig *r, uint32_t rank, uint64_t conn, int64_t first, int64_t n, float value)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, conn, 0);
    float weights[ELASTIC_N];

    for (int64_t i = 0; i < n; i++) weights[i] = value;
    rig_piece(frame, 0, PD_F32, first, n, weights);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
}

/* The first chunk was answered, so the process does not send it again. */
TEST(a_process_that_was_removed_while_it_sent_the_initial_weights_sends_only_the_rest_of_them)
{
    rig r;

    elastic_any_rank(&r, "min_workers=1 max_workers=3 reconnect_grace=5s");
    for (uint32_t rank = 0; rank < 2; rank++) elastic_join(&r, 0, 0, ELASTIC_CONN + rank);
    init_chunk(&r, 0, ELASTIC_CONN, 0, 64, 1);
    elastic_lose(&r, 0, ELASTIC_CONN);
    rig_sleep(&r, 6);
    elastic_join(&r, 0, 0, ELASTIC_CONN);
    assert_int_equal(r.rank, 0);
    assert_true(r.must_init);
    init_chunk(&r, 0, ELASTIC_CONN, 64, ELASTIC_N - 64, 2);
    assert_float_equal(rig_weights(&r, r.job, 0)[0], 1, 0);
    assert_float_equal(rig_weights(&r, r.job, 0)[ELASTIC_N - 1], 2, 0);
    rig_free(&r);
}

TEST(a_push_before_the_initial_weights_names_the_rank_that_is_to_send_them)
{
    rig r;

    begin_without_giver(&r);
    elastic_join(&r, 0, 0, ELASTIC_CONN + 1);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    elastic_expect(&r, PD_FAILED_PRECONDITION, "has no weights yet: rank 1 sends them with Init");
    rig_free(&r);
}

TEST(a_push_before_the_initial_weights_says_so_if_no_rank_is_to_send_them)
{
    rig r;

    elastic_any_rank(&r, elastic);
    elastic_join(&r, 0, 0, ELASTIC_CONN);
    elastic_job(&r)->membership.giver = PD_MAX_WORLD;
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    elastic_expect(&r, PD_FAILED_PRECONDITION, "the next rank that declares sends them with Init");
    rig_free(&r);
}

TEST(a_report_of_missing_initial_weights_says_so_if_no_rank_is_to_send_them)
{
    rig r;

    elastic_any_rank(&r, "min_workers=1 max_workers=6 reconnect_grace=1h step_timeout=2s");
    for (uint32_t rank = 0; rank < 3; rank++) elastic_join(&r, 0, 0, ELASTIC_CONN + rank);
    rig_kick(&r, "job", 0);
    assert_int_equal(r.fenced_conn, ELASTIC_CONN + 1); /* it has not come again */
    rig_sleep(&r, 3);
    assert_non_null(strstr(r.timeout.text,
                           "no worker is there that is to send them, the next one that declares will: no "
                           "initial weights received of p"));
    rig_free(&r);
}

TEST(another_member_is_asked_if_the_one_that_was_told_to_come_again_is_removed)
{
    rig r;

    elastic_any_rank(&r, elastic);
    for (uint32_t rank = 0; rank < 3; rank++) elastic_join(&r, 0, 0, ELASTIC_CONN + rank);
    elastic_lose(&r, 0, ELASTIC_CONN);
    rig_sleep(&r, 6);
    assert_int_equal(r.fenced_conn, ELASTIC_CONN + 1);
    rig_sleep(&r, 6);
    assert_int_equal(r.fenced_conn, ELASTIC_CONN + 2);
    rig_free(&r);
}

TEST(initial_weights_for_which_the_server_does_not_ask_any_more_are_answered_and_not_used)
{
    float ones[ELASTIC_N];
    rig r;

    elastic_fill(ones, 1);
    begin_without_giver(&r);
    elastic_join(&r, 0, 0, ELASTIC_CONN + 1);
    elastic_join(&r, 0, 0, ELASTIC_CONN);
    assert_false(r.must_init);
    init_as(&r, 0, ELASTIC_CONN, ones);
    assert_null(elastic_job(&r)->steps.params[0].current);
    rig_free(&r);
}

TEST(the_first_that_declares_sends_the_initial_weights)
{
    static const float zeros[ELASTIC_N];
    rig r;

    elastic_any_rank(&r, elastic);
    assert_int_equal(elastic_hello(&r, 0, 0, ELASTIC_CONN), PD_OK);
    elastic_join(&r, 0, 0, ELASTIC_CONN + 1);
    assert_int_equal(r.rank, 1);
    assert_true(r.must_init);
    assert_int_equal(elastic_declare(&r, 0, ELASTIC_CONN), PD_OK);
    assert_false(r.must_init);
    init_as(&r, 1, ELASTIC_CONN + 1, zeros);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    assert_int_equal(elastic_step(&r), 1);
    rig_free(&r);
}

TEST(a_worker_that_takes_any_rank_needs_a_number_of_slots)
{
    rig r;

    elastic_any_rank(&r, NULL);
    assert_int_equal(elastic_hello(&r, 0, 0, ELASTIC_CONN), PD_INVALID_ARGUMENT);
    elastic_expect(&r, PD_INVALID_ARGUMENT, "gives world_size, or the job key max_workers");
    rig_free(&r);
}

/* ---- generations ---- */

TEST(a_later_launch_collects_an_open_step_anew)
{
    rig r;

    elastic_begin(&r, 2, "on_lost_worker=shrink rounds=quorum quorum=2");
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    r.generation = 2;
    elastic_join(&r, 0, 2, ELASTIC_NEW);
    elastic_push(&r, 0, ELASTIC_NEW, 1);
    assert_int_equal(elastic_step(&r), 0);
    elastic_join(&r, 1, 2, ELASTIC_NEW + 1);
    elastic_push(&r, 1, ELASTIC_NEW + 1, 1);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -1.5);
    rig_free(&r);
}

/* ---- images and memory ---- */

TEST(an_image_has_the_members_of_the_job)
{
    rig r;

    elastic_begin(&r, 4, elastic);
    elastic_check_image(&r);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 6);
    elastic_check_image(&r);
    elastic_join(&r, 5, 6, ELASTIC_NEW);
    elastic_check_image(&r);
    rig_kick(&r, "job", 0);
    elastic_check_image(&r);
    for (uint32_t rank = 2; rank < 4; rank++) rig_ask_as(&r, PD_REQ_LEAVE, rank, ELASTIC_CONN + rank, 0);
    rig_ask_as(&r, PD_REQ_LEAVE, 5, ELASTIC_NEW, 0);
    assert_true(pd_job_is_over(elastic_job(&r)));
    elastic_check_image(&r);
    rig_free(&r);
}

/* Lets the n-th allocation fail while a lost rank is removed. Returns whether there was one. */
static bool remove_short_of_memory(int64_t n)
{
    bool failed;
    rig r;

    elastic_begin(&r, 2, elastic);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    r.now += 6000000000ull;
    oom_arm(n);
    pd_store_tick(r.store, r.now);
    failed = oom_disarm();
    rig_absorb(&r);
    rig_work(&r);
    rig_sleep(&r, 2);
    assert_int_equal(r.members, 1);
    assert_int_equal(r.epoch, 1);
    assert_int_equal(elastic_step(&r), 1);
    rig_free(&r);
    return failed;
}

TEST(members_are_told_later_if_memory_is_short)
{
    int64_t n = 0;

    while (remove_short_of_memory(n)) n++;
    assert_true(n > 1);
}

static bool kick_short_of_memory(int64_t n)
{
    pd_request *request;
    bool failed;
    rig r;

    elastic_begin(&r, 2, elastic);
    request = pd_request_new(PD_REQ_KICK, rig_ticket(&r, 1));
    request->u.kick.job_name = strdup("job");
    request->u.kick.rank = 1;
    oom_arm(n);
    pd_store_apply(r.store, request, r.now);
    failed = oom_disarm();
    rig_absorb(&r);
    rig_sleep(&r, 2);
    assert_int_equal(r.members, 1);
    assert_int_equal(elastic_hello(&r, 1, 2, ELASTIC_CONN + 1), PD_ABORTED);
    assert_int_equal(elastic_push(&r, 1, ELASTIC_CONN + 1, 1), PD_ABORTED);
    rig_free(&r);
    return failed;
}

TEST(a_kick_works_if_memory_is_short)
{
    int64_t n = 0;

    while (kick_short_of_memory(n)) n++;
    assert_true(n > 1);
}
