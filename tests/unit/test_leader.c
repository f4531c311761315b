/* Tests who leads a job whose ranks come and go, and that this rank replaces weights that were changed by hand. */
#include "test.h"
#include "elastic_job.h"
#include "oom.h"

enum { NUMBER = 77 };
static const char shrinks[] = "min_workers=1 max_workers=6 reconnect_grace=5s";
static const char waits[] = "rounds=quorum quorum=1 reconnect_grace=5s";

static void leave(rig *r, uint32_t rank)
{
    assert_int_equal(rig_ask_as(r, PD_REQ_LEAVE, rank, ELASTIC_CONN + rank, 0), PD_OK);
    rig_work(r);
}

/* Begins a job of three ranks, which have taken step 1. */
static void begin(rig *r, const char *options)
{
    elastic_begin(r, 3, options);
    for (uint32_t rank = 0; rank < 3; rank++) elastic_push(r, rank, ELASTIC_CONN + rank, 1);
    assert_int_equal(elastic_step(r), 1);
}

TEST(the_lowest_member_that_is_connected_leads)
{
    rig r;

    begin(&r, shrinks);
    assert_int_equal(r.leader, 0);
    elastic_lose(&r, 0, ELASTIC_CONN);
    assert_int_equal(r.leader, 1);
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    assert_int_equal(r.leader, 2);
    elastic_join(&r, 0, 3, ELASTIC_CONN);
    assert_int_equal(r.leader, 0);
    leave(&r, 0);
    assert_int_equal(r.leader, 2);
    elastic_lose(&r, 2, ELASTIC_CONN + 2);
    assert_int_equal(r.leader, PD_MAX_WORLD);
    rig_free(&r);
}

TEST(a_rank_that_has_left_for_good_does_not_lead_a_job_that_waits_for_it)
{
    rig r;

    begin(&r, waits);
    leave(&r, 0);
    assert_int_equal(r.members, 7);
    assert_int_equal(r.leader, 1);
    rig_free(&r);
}

TEST(a_rank_that_is_no_member_yet_does_not_lead)
{
    rig r;

    elastic_any_rank(&r, shrinks);
    assert_int_equal(elastic_hello(&r, 0, 0, ELASTIC_CONN), PD_OK);
    elastic_join(&r, 0, 0, ELASTIC_CONN + 1);
    assert_int_equal(r.leader, 1);
    assert_int_equal(elastic_declare(&r, 0, ELASTIC_CONN), PD_OK);
    assert_int_equal(r.leader, 0);
    rig_free(&r);
}

static bool lose_short_of_memory(int64_t n)
{
    pd_request *request;
    bool failed;
    rig r;

    begin(&r, shrinks);
    request = pd_request_new(PD_REQ_LOST, rig_ticket(&r, ELASTIC_CONN));
    request->job = r.job;
    oom_arm(n);
    pd_store_apply(r.store, request, r.now);
    failed = oom_disarm();
    rig_absorb(&r);
    rig_sleep(&r, 2);
    assert_int_equal(r.leader, 1);
    rig_free(&r);
    return failed;
}

TEST(a_leader_is_told_later_if_memory_is_short)
{
    int64_t n = 0;

    while (lose_short_of_memory(n)) n++;
    assert_true(n > 1);
}

/* ---- changed weights ---- */

/* Sends elements from `first` on of weights that are all `value`. Returns the code of the answer. */
static int send_part(rig *r, uint32_t rank, uint64_t step, float value, int64_t first, int64_t end)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, ELASTIC_CONN + rank, step);
    float weights[ELASTIC_N];

    elastic_fill(weights, (double)value);
    rig_replaces(frame, NUMBER, 1);
    for (int64_t at = first; at < end; at += r->chunk)
        rig_piece(frame, 0, PD_F32, at, end - at < r->chunk ? end - at : r->chunk, weights + at);
    r->error.code = PD_OK;
    (void)rig_send(r, frame);
    rig_work(r);
    return r->error.code;
}

static int send_weights(rig *r, uint32_t rank, uint64_t step, float value)
{
    return send_part(r, rank, step, value, 0, ELASTIC_N);
}

/* Pushes the gradient 2^rank, and says which change its weights have. Returns the answer's code. */
static int push_changed(rig *r, uint32_t rank, uint64_t step, uint64_t number)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, ELASTIC_CONN + rank, step);
    float gradient[ELASTIC_N];

    elastic_fill(gradient, (double)(1 << rank));
    rig_replaces(frame, number, 0);
    for (int64_t at = 0; at < ELASTIC_N; at += r->chunk)
        rig_piece(frame, 0, PD_F32, at, ELASTIC_N - at < r->chunk ? ELASTIC_N - at : r->chunk, gradient + at);
    r->error.code = PD_OK;
    (void)rig_send(r, frame);
    rig_work(r);
    return r->error.code;
}

static void expect_another_leader(const char *options)
{
    rig r;

    begin(&r, options);
    assert_int_equal(send_weights(&r, 1, 1, 5), PD_FAILED_PRECONDITION);
    elastic_expect(&r, PD_FAILED_PRECONDITION, "rank 1 sends weights that were changed by hand: rank 0 sends them");
    leave(&r, 0);
    assert_int_equal(send_weights(&r, 2, 1, 5), PD_FAILED_PRECONDITION);
    elastic_expect(&r, PD_FAILED_PRECONDITION, "rank 1 sends them");
    assert_int_equal(send_weights(&r, 1, 1, 5), PD_OK);
    assert_true(elastic_weight(&r) == 5);
    for (uint32_t rank = 1; rank < 3; rank++) assert_int_equal(push_changed(&r, rank, 2, NUMBER), PD_OK);
    assert_int_equal(elastic_step(&r), 2);
    assert_true(elastic_weight(&r) < 5);
    rig_free(&r);
}

HOLDS(after_rank_0_has_left_another_rank_replaces_weights, expect_another_leader(shrinks));
HOLDS(after_rank_0_has_left_another_rank_replaces_weights_of_a_job_that_waits_for_it, expect_another_leader(waits));

TEST(while_rank_0_is_lost_another_rank_replaces_weights)
{
    rig r;

    begin(&r, shrinks);
    elastic_lose(&r, 0, ELASTIC_CONN);
    assert_int_equal(send_weights(&r, 1, 1, 5), PD_OK);
    elastic_join(&r, 0, 3, ELASTIC_CONN);
    assert_int_equal(send_weights(&r, 1, 1, 6), PD_FAILED_PRECONDITION);
    assert_true(elastic_weight(&r) == 5);
    rig_free(&r);
}

TEST(weights_of_a_job_whose_workers_take_any_rank_are_replaced_by_its_lowest_member)
{
    rig r;

    elastic_any_rank(&r, shrinks);
    for (uint32_t rank = 0; rank < 2; rank++) elastic_join(&r, 0, 0, ELASTIC_CONN + rank);
    elastic_init(&r);
    leave(&r, 0);
    assert_int_equal(send_weights(&r, 1, 0, 5), PD_OK);
    assert_true(elastic_weight(&r) == 5);
    rig_free(&r);
}

TEST(what_a_leader_that_has_gone_has_sent_in_part_does_not_count)
{
    rig r;

    begin(&r, shrinks);
    assert_int_equal(send_part(&r, 0, 1, 9, 0, r.chunk), PD_OK);
    elastic_lose(&r, 0, ELASTIC_CONN);
    assert_int_equal(send_part(&r, 1, 1, 5, r.chunk, ELASTIC_N), PD_OK);
    assert_true(elastic_weight(&r) != 5);
    assert_int_equal(send_part(&r, 1, 1, 5, 0, r.chunk), PD_OK);
    assert_true(elastic_weight(&r) == 5);
    assert_true(rig_weights(&r, r.job, 0)[0] == 5);
    rig_free(&r);
}

TEST(a_part_of_new_weights_stays_when_a_rank_pushes_that_does_not_send_them)
{
    rig r;

    begin(&r, shrinks);
    leave(&r, 0);
    assert_int_equal(send_part(&r, 1, 1, 5, 0, r.chunk), PD_OK);
    assert_int_equal(push_changed(&r, 2, 2, NUMBER), PD_OK);
    assert_int_equal(send_part(&r, 1, 1, 5, r.chunk, ELASTIC_N), PD_OK);
    assert_true(elastic_weight(&r) == 5);
    rig_free(&r);
}

TEST(a_leader_cannot_push_with_weights_that_it_has_not_sent)
{
    rig r;

    begin(&r, shrinks);
    leave(&r, 0);
    assert_int_equal(push_changed(&r, 1, 2, NUMBER), PD_FAILED_PRECONDITION);
    elastic_expect(&r, PD_FAILED_PRECONDITION,
                   "rank 1 pushes p for step 2 with weights that were changed by hand, and "
                   "has not sent them");
    assert_int_equal(push_changed(&r, 2, 2, NUMBER), PD_OK); /* of weights that its next answer replaces */
    rig_free(&r);
}

TEST(an_old_push_of_a_leader_is_of_weights_from_before_a_change)
{
    rig r;

    elastic_begin(&r, 3, "rounds=async staleness=none on_lost_worker=shrink min_workers=1 reconnect_grace=5s");
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    assert_int_equal(elastic_step(&r), 1);
    assert_int_equal(send_weights(&r, 0, 1, 5), PD_OK);
    leave(&r, 0);
    assert_int_equal(r.leader, 1);
    assert_int_equal(push_changed(&r, 1, 1, 0), PD_OK);
    assert_int_equal(elastic_step(&r), 2);
    rig_free(&r);
}
