/* Tests groups of ranks: they count together, join together, and are removed together. */
#include "test.h"
#include "elastic_job.h"
#include "fragment.h"

static void join_group(rig *r, uint32_t rank, uint64_t nonce, uint32_t group)
{
    r->group = 1 + group;
    elastic_join(r, rank, 4, nonce);
    r->group = 0;
}

/* Begins a job of two groups of two ranks. */
static void begin_groups(rig *r, const char *with)
{
    elastic_new(r, with);
    for (uint32_t rank = 0; rank < 4; rank++) join_group(r, rank, ELASTIC_CONN + rank, rank / 2);
    elastic_init(r);
}

TEST(ranks_of_a_group_never_count_alone)
{
    rig r;

    begin_groups(&r, "rounds=quorum quorum=1");
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    elastic_push(&r, 2, ELASTIC_CONN + 2, 1);
    assert_int_equal(elastic_step(&r), 0);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -1.5);
    rig_free(&r);
}

TEST(no_step_is_taken_until_all_members_have_named_their_group)
{
    rig r;

    elastic_new(&r, "rounds=quorum quorum=1");
    for (uint32_t rank = 0; rank < 3; rank++) join_group(&r, rank, ELASTIC_CONN + rank, rank / 2);
    elastic_init(&r);
    elastic_push(&r, 2, ELASTIC_CONN + 2, 1);
    assert_int_equal(elastic_step(&r), 0);
    join_group(&r, 3, ELASTIC_CONN + 3, 1);
    rig_work(&r);
    assert_int_equal(elastic_step(&r), 0);
    elastic_push(&r, 3, ELASTIC_CONN + 3, 1);
    assert_int_equal(elastic_step(&r), 1);
    rig_free(&r);
}

TEST(a_rank_that_was_lost_before_it_declared_holds_up_no_other_group)
{
    rig r;

    elastic_new(&r, "rounds=quorum quorum=1");
    for (uint32_t rank = 0; rank < 3; rank++) join_group(&r, rank, ELASTIC_CONN + rank, rank / 2);
    elastic_init(&r);
    r.group = 1 + 1;
    assert_int_equal(elastic_hello(&r, 3, 4, ELASTIC_CONN + 3), PD_OK);
    elastic_lose(&r, 3, ELASTIC_CONN + 3);
    elastic_push(&r, 2, ELASTIC_CONN + 2, 1);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    assert_int_equal(elastic_step(&r), 0);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -1.5);
    rig_free(&r);
}

/* Rank 2 joins the group of rank 1 after the step was opened, and is lost. */
TEST(a_report_names_a_rank_that_has_joined_an_expected_group)
{
    rig r;

    elastic_any_rank(&r, "rounds=quorum quorum=2 min_workers=1 max_workers=4 on_lost_worker=wait step_timeout=10s");
    for (uint32_t rank = 0; rank < 2; rank++) {
        r.group = 1 + rank;
        elastic_join(&r, 0, 0, ELASTIC_CONN + rank);
    }
    elastic_init(&r);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    r.group = 2;
    elastic_join(&r, 0, 0, ELASTIC_CONN + 2);
    assert_int_equal(r.rank, 2);
    elastic_lose(&r, 2, ELASTIC_CONN + 2);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    assert_int_equal(elastic_step(&r), 0);
    rig_sleep(&r, 11);
    assert_non_null(strstr(r.timeout.text, "for 1 more of 2 workers: rank 2 (host:12, lost"));
    rig_free(&r);
}

TEST(a_group_is_removed_and_joins_as_a_whole)
{
    rig r;

    begin_groups(&r, "on_lost_worker=shrink reconnect_grace=5s");
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    elastic_push(&r, 2, ELASTIC_CONN + 2, 1);
    elastic_push(&r, 3, ELASTIC_CONN + 3, 1);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 6);
    rig_work(&r);
    assert_int_equal(r.members, 0xc);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -6); /* the mean of ranks 2 and 3 */
    assert_int_equal(r.fenced_conn, ELASTIC_CONN);
    assert_int_equal(r.fenced.code, PD_UNAVAILABLE);
    join_group(&r, 0, ELASTIC_CONN, 0);
    assert_int_equal(r.members, 0xc);
    elastic_push(&r, 0, ELASTIC_CONN, 2);
    elastic_push(&r, 2, ELASTIC_CONN + 2, 2);
    elastic_push(&r, 3, ELASTIC_CONN + 3, 2);
    assert_int_equal(elastic_step(&r), 2);
    join_group(&r, 1, ELASTIC_NEW + 1, 0);
    assert_int_equal(r.members, 0xf);
    assert_int_equal(r.epoch, 2);
    rig_free(&r);
}

TEST(a_rank_comes_again_when_another_of_its_group_leaves)
{
    rig r;

    begin_groups(&r, "on_lost_worker=shrink rounds=quorum quorum=2");
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    (void)rig_ask_as(&r, PD_REQ_LEAVE, 1, ELASTIC_CONN + 1, 0);
    rig_work(&r);
    assert_int_equal(r.members, 0xc);
    assert_int_equal(r.fenced_conn, ELASTIC_CONN);
    assert_int_equal(r.fenced.code, PD_UNAVAILABLE);
    rig_free(&r);
}

/* The group was whole when rank 1 left, so both ranks stay in the step. */
TEST(a_removed_group_does_not_count_in_part_when_another_process_takes_one_of_its_ranks)
{
    rig r;

    begin_groups(&r, "on_lost_worker=shrink rounds=quorum quorum=2");
    for (uint32_t rank = 0; rank < 2; rank++) elastic_push(&r, rank, ELASTIC_CONN + rank, 1);
    (void)rig_ask_as(&r, PD_REQ_LEAVE, 1, ELASTIC_CONN + 1, 0);
    rig_work(&r);
    assert_int_equal(r.members, 0xc);
    r.group = 1;
    assert_int_equal(elastic_hello(&r, 1, 4, ELASTIC_NEW), PD_OK);
    for (uint32_t rank = 2; rank < 4; rank++) elastic_push(&r, rank, ELASTIC_CONN + rank, 1);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -(4 + 8) / 2.0);
    rig_free(&r);
}

TEST(a_group_needs_as_many_ranks_as_it_had_processes_though_one_was_replaced_at_another_rank)
{
    rig r;

    elastic_any_rank(&r, "max_workers=4 min_workers=1 reconnect_grace=5s");
    join_group(&r, 0, ELASTIC_CONN, 0);
    elastic_init(&r);
    join_group(&r, 0, ELASTIC_CONN + 1, 0);
    assert_int_equal(r.members, 3);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    join_group(&r, 0, ELASTIC_NEW, 0);
    assert_int_equal(r.members, 7);
    rig_sleep(&r, 6);
    assert_int_equal(r.members, 0);
    join_group(&r, 0, ELASTIC_CONN, 0);
    assert_int_equal(r.members, 0);
    join_group(&r, 0, ELASTIC_NEW, 0);
    assert_int_equal(r.members, 5);
    rig_free(&r);
}

TEST(a_group_that_had_a_process_and_its_successor_is_complete_without_the_first_when_no_slot_is_left)
{
    rig r;

    elastic_any_rank(&r, "max_workers=4 min_workers=1 reconnect_grace=5s");
    join_group(&r, 0, ELASTIC_CONN, 0);
    elastic_init(&r);
    join_group(&r, 0, ELASTIC_CONN + 1, 1);
    join_group(&r, 0, ELASTIC_NEW + 1, 1); /* the successor of the process at rank 1, which is leaving */
    assert_int_equal(r.members, 7);
    (void)rig_ask_as(&r, PD_REQ_LEAVE, 1, ELASTIC_CONN + 1, 0);
    rig_work(&r);
    assert_int_equal(r.members, 1);
    join_group(&r, 0, ELASTIC_NEW + 1, 1);
    join_group(&r, 0, ELASTIC_NEW, 0);
    assert_int_equal(r.members, 3); /* another process of its group may take rank 3 */
    join_group(&r, 0, ELASTIC_NEW + 2, 0);
    assert_int_equal(r.members, 0xf);
    rig_free(&r);
}

TEST(a_rank_whose_group_is_gone_waits_at_a_barrier_only_for_those_that_are_there)
{
    uint64_t answered;
    rig r;

    begin_groups(&r, "on_lost_worker=shrink rounds=quorum quorum=2");
    (void)rig_ask_as(&r, PD_REQ_LEAVE, 1, ELASTIC_CONN + 1, 0);
    (void)rig_ask_as(&r, PD_REQ_LEAVE, 3, ELASTIC_CONN + 3, 0);
    rig_work(&r);
    join_group(&r, 0, ELASTIC_CONN, 0);
    join_group(&r, 2, ELASTIC_CONN + 2, 1);
    assert_int_equal(r.members, 0);
    answered = r.answered;
    (void)rig_ask_as(&r, PD_REQ_BARRIER, 2, ELASTIC_CONN + 2, 1);
    assert_int_equal(r.answered, answered);
    (void)rig_ask_as(&r, PD_REQ_LEAVE, 0, ELASTIC_CONN, 0);
    assert_int_equal(r.answered, answered + 2);
    rig_free(&r);
}

TEST(a_rank_of_a_later_launch_does_not_count_before_the_others_have_named_their_groups)
{
    rig r;

    begin_groups(&r, "on_lost_worker=shrink rounds=quorum quorum=1");
    r.generation = 2;
    join_group(&r, 0, ELASTIC_NEW, 0);
    elastic_push(&r, 0, ELASTIC_NEW, 1);
    assert_int_equal(elastic_step(&r), 0);
    for (uint32_t rank = 1; rank < 4; rank++) join_group(&r, rank, ELASTIC_NEW + rank, rank / 2);
    elastic_push(&r, 1, ELASTIC_NEW + 1, 1);
    assert_int_equal(elastic_step(&r), 1);
    rig_free(&r);
}

TEST(a_range_that_a_rank_has_alone_is_refused_where_steps_may_lack_ranks)
{
    rig r;

    elastic_new(&r, "rounds=quorum quorum=1");
    assert_int_equal(elastic_hello(&r, 0, 2, ELASTIC_CONN), PD_OK);
    assert_int_equal(rig_declare_range(&r, 0, ELASTIC_CONN, "p", &elastic_shape, (rig_range){ 0, 50 }),
                     PD_FAILED_PRECONDITION);
    elastic_expect(
        &r, PD_FAILED_PRECONDITION,
        "rank 0 lacks elements 50 to 100 of 100. In job job a step may be taken without some ranks: give the ranks "
        "that share a parameter the same group");
    rig_free(&r);
}

static void join_with_range(rig *r, uint32_t rank, uint64_t nonce, uint32_t group, rig_range range)
{
    r->group = 1 + group;
    assert_int_equal(elastic_hello(r, rank, 4, nonce), PD_OK);
    r->group = 0;
    if (rig_declare_range(r, r->rank, nonce, "p", &elastic_shape, range) != PD_OK) fail_msg("%s", r->error.text);
}

static const rig_range lower = { 0, 50 }, upper = { 50, ELASTIC_N };

static void send_range(rig *r, pd_request_kind kind, uint32_t rank, uint64_t conn, uint64_t step, rig_range range,
                       double value)
{
    float g[ELASTIC_N];

    elastic_fill(g, value);
    for (int64_t first = range.start, stop; first < range.end; first = stop) {
        rig_frame *frame = rig_frame_new(r, kind, r->job, rank, conn, step);
        stop = (first / r->chunk + 1) * r->chunk < range.end ? (first / r->chunk + 1) * r->chunk : range.end;
        rig_piece(frame, 0, PD_F32, first, stop - first, g);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
    rig_work(r);
}

TEST(the_ranges_of_one_group_are_enough_to_begin)
{
    rig r;

    elastic_any_rank(&r, "min_workers=1 max_workers=4");
    join_with_range(&r, 0, ELASTIC_CONN, 0, lower);
    assert_int_equal(r.members, 0);
    send_range(&r, PD_REQ_INIT, 0, ELASTIC_CONN, 0, lower, 0);
    join_with_range(&r, 0, ELASTIC_CONN + 1, 0, upper);
    assert_int_equal(r.members, 3);
    assert_null(elastic_job(&r)->steps.params[0].current);
    send_range(&r, PD_REQ_INIT, 1, ELASTIC_CONN + 1, 0, upper, 0);
    assert_non_null(elastic_job(&r)->steps.params[0].current);
    send_range(&r, PD_REQ_PUSH, 0, ELASTIC_CONN, 1, lower, 3);
    assert_int_equal(elastic_step(&r), 0);
    send_range(&r, PD_REQ_PUSH, 1, ELASTIC_CONN + 1, 1, upper, 3);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -3);
    rig_free(&r);
}

TEST(a_slot_may_get_other_ranges_when_it_is_given_again)
{
    rig r;

    elastic_any_rank(&r, "min_workers=1 max_workers=4 reconnect_grace=1s");
    join_with_range(&r, 0, ELASTIC_CONN, 0, lower);
    join_with_range(&r, 0, ELASTIC_CONN + 1, 0, upper);
    send_range(&r, PD_REQ_INIT, 0, ELASTIC_CONN, 0, lower, 0);
    send_range(&r, PD_REQ_INIT, 1, ELASTIC_CONN + 1, 0, upper, 0);
    join_with_range(&r, 0, ELASTIC_CONN + 2, 1, lower);
    join_with_range(&r, 0, ELASTIC_CONN + 3, 1, upper);
    elastic_lose(&r, 2, ELASTIC_CONN + 2);
    elastic_lose(&r, 3, ELASTIC_CONN + 3);
    rig_sleep(&r, 2);
    assert_int_equal(r.members, 3);
    join_with_range(&r, 0, ELASTIC_NEW, 1, upper);
    assert_int_equal(r.rank, 2);
    join_with_range(&r, 0, ELASTIC_NEW + 1, 1, lower);
    assert_int_equal(r.members, 0xf);
    send_range(&r, PD_REQ_PUSH, 0, ELASTIC_CONN, 1, lower, 1);
    send_range(&r, PD_REQ_PUSH, 1, ELASTIC_CONN + 1, 1, upper, 1);
    send_range(&r, PD_REQ_PUSH, 2, ELASTIC_NEW, 1, upper, 5);
    assert_int_equal(elastic_step(&r), 0);
    send_range(&r, PD_REQ_PUSH, 3, ELASTIC_NEW + 1, 1, lower, 5);
    assert_int_equal(elastic_step(&r), 1);
    assert_true(elastic_weight(&r) == -3);
    rig_free(&r);
}

TEST(an_image_has_the_groups_of_the_job)
{
    rig r;

    begin_groups(&r, "on_lost_worker=shrink reconnect_grace=5s");
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    rig_sleep(&r, 6);
    elastic_check_image(&r);
    rig_free(&r);
}
