/* Tests that the store leases shares to ranks as they join, count and are removed, that workers learn of leases when
 * the disk has them, and that a crash of the server changes none. */
#include "test.h"
#include "elastic_job.h"
#include "durable_job.h"
#include "leases.h"
#include "oom.h"
#include "shares.h"
#include "wal.h"

static const char shrinks[] = "min_workers=1 max_workers=4 reconnect_grace=5s checkpoint_every=8";
static const char logs[] = "min_workers=1 max_workers=4 reconnect_grace=5s checkpoint_every=8 durability=log";

/* Begins a job of `world` workers that want one share for each step, with a durable checkpoint of step 0. */
static void begin(rig *r, uint32_t world, const char *options)
{
    elastic_new(r, options);
    r->wants = 1;
    for (uint32_t rank = 0; rank < world; rank++) elastic_join(r, rank, world, ELASTIC_CONN + rank);
    elastic_init(r);
    assert_non_null(r->disk);
}

/* Lets a rank push, and say of which share. */
static void push(rig *r, uint32_t rank, uint64_t conn, uint64_t step, uint64_t share)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, conn, step);
    float g[ELASTIC_N];

    elastic_fill(g, 1);
    for (int64_t at = 0; at < ELASTIC_N; at += r->chunk)
        rig_piece(frame, 0, PD_F32, at, ELASTIC_N - at < r->chunk ? ELASTIC_N - at : r->chunk, g + at);
    rig_share(frame, share);
    if (rig_send(r, frame) != PD_OK) fail_msg("rank %u: %s", rank, r->error.text);
    rig_work(r);
}

/* Returns the first share that is leased to the rank; UINT64_MAX: none is. */
static uint64_t leased(const rig *r, uint32_t rank)
{
    uint32_t n = 0;
    const pd_lease *leases =
        elastic_job(r)->steps.shares != NULL ? pd_shares_of(elastic_job(r)->steps.shares, rank, &n) : NULL;

    return n > 0 ? leases[0].ranges[0].first : UINT64_MAX;
}

/* Lets the ranks below `world` take a step with the shares that they have. */
static void take_step(rig *r, uint32_t world, uint64_t conn, uint64_t step)
{
    for (uint32_t rank = 0; rank < world; rank++) push(r, rank, conn + rank, step, leased(r, rank));
}

static void remove_rank(rig *r, uint32_t rank, uint64_t conn)
{
    elastic_lose(r, rank, conn);
    rig_sleep(r, 6);
    rig_work(r);
    assert_true((r->members >> rank & 1) == 0);
}

static void crash(rig *r)
{
    pd_store_config config = durable_config();

    rig_crash(r, &config);
    r->job = inside_find(r->store, "job")->steps.number;
    r->wants = 1;
}

/* Lets a process of before the crash come back, which has seen steps up to `seen`. */
static void come_back(rig *r, uint32_t rank, uint64_t nonce, uint64_t seen)
{
    r->seen = seen;
    r->window = 100;
    elastic_join(r, rank, 4, nonce);
}

/* ---- who has which share ---- */

TEST(ranks_that_all_count_take_the_shares_in_turn)
{
    rig r;

    begin(&r, 3, shrinks);
    for (uint64_t step = 1; step <= 3; step++) {
        for (uint32_t rank = 0; rank < 3; rank++) assert_int_equal(leased(&r, rank), (step - 1) * 3 + rank);
        take_step(&r, 3, ELASTIC_CONN, step);
    }
    rig_free(&r);
}

TEST(a_removed_rank_leaves_its_share_to_the_next_one_that_gets_a_lease)
{
    rig r;

    begin(&r, 3, shrinks);
    remove_rank(&r, 1, ELASTIC_CONN + 1);
    push(&r, 0, ELASTIC_CONN, 1, 0);
    push(&r, 2, ELASTIC_CONN + 2, 1, 2);
    assert_int_equal(leased(&r, 0), 1);
    assert_int_equal(leased(&r, 2), 3);
    rig_free(&r);
}

/* ---- pushes of shares that are not leased ---- */

TEST(a_push_of_a_share_that_is_not_leased_to_the_rank_is_late_at_once)
{
    rig r;

    begin(&r, 2, shrinks);
    push(&r, 0, ELASTIC_CONN, 1, 1);
    assert_int_equal(r.filed, PD_FILED_LATE);
    rig_free(&r);
}

TEST(nothing_of_a_push_counts_whose_share_is_not_leased)
{
    rig r;

    begin(&r, 2, shrinks);
    push(&r, 0, ELASTIC_CONN, 1, 7);
    push(&r, 1, ELASTIC_CONN + 1, 1, 1);
    assert_int_equal(elastic_step(&r), 0);
    rig_free(&r);
}

TEST(the_rank_may_push_its_own_share_for_the_same_step_afterwards)
{
    rig r;

    begin(&r, 2, shrinks);
    push(&r, 0, ELASTIC_CONN, 1, 7);
    push(&r, 0, ELASTIC_CONN, 1, 0);
    assert_int_equal(r.filed, PD_FILED_FOR);
    push(&r, 1, ELASTIC_CONN + 1, 1, 1);
    assert_int_equal(elastic_step(&r), 1);
    rig_free(&r);
}

TEST(a_push_that_names_no_share_counts)
{
    rig r;

    begin(&r, 2, shrinks);
    elastic_push(&r, 0, ELASTIC_CONN, 1);
    elastic_push(&r, 1, ELASTIC_CONN + 1, 1);
    assert_int_equal(elastic_step(&r), 1);
    rig_free(&r);
}

TEST(a_push_that_has_counted_is_answered_as_such_when_it_comes_again)
{
    rig r;

    begin(&r, 2, shrinks);
    take_step(&r, 2, ELASTIC_CONN, 1);
    push(&r, 0, ELASTIC_CONN, 1, 0);
    assert_int_equal(r.filed, PD_FILED_COUNTED);
    rig_free(&r);
}

/* ---- what waits for the disk ---- */

TEST(the_answer_to_a_declare_waits_for_the_record_of_its_lease)
{
    uint64_t answered;
    rig r;

    begin(&r, 2, shrinks);
    r.lazy_wal = true;
    elastic_hello(&r, 2, 4, ELASTIC_NEW);
    answered = r.answered;
    elastic_declare(&r, 2, ELASTIC_NEW);
    assert_int_equal(r.answered, answered);
    rig_write_record(&r);
    assert_int_equal(r.answered, answered + 1);
    assert_int_equal(r.leases.ranges[0].first, 2);
    rig_free(&r);
}

/* The push of a process that connects again counts while the answer to its Declare waits: the frame's buffer must not
 * return to a connection that is not charged for it yet (the rig checks that). */
TEST(a_buffer_of_an_earlier_connection_that_is_free_before_the_answer_is_charged_to_none)
{
    rig r;

    begin(&r, 2, shrinks);
    push(&r, 1, ELASTIC_CONN + 1, 1, leased(&r, 1));
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    r.lazy_wal = true;
    elastic_join(&r, 2, 4, ELASTIC_NEW); /* a lease that the disk does not have yet */
    assert_int_equal(rig_hello(&r, "job", 1, 4, ELASTIC_CONN + 1, ELASTIC_NEW + 1, shrinks, "* sgd lr=1"), PD_OK);
    elastic_declare(&r, 1, ELASTIC_NEW + 1);
    assert_true(r.bytes_out[ELASTIC_CONN + 1] > 0);
    push(&r, 0, ELASTIC_CONN, 1, leased(&r, 0));
    assert_int_equal(r.bytes_out[ELASTIC_CONN + 1], 0);
    rig_write_record(&r);
    assert_int_equal(r.bytes_out[ELASTIC_NEW + 1], 0);
    rig_free(&r);
}

TEST(the_answer_to_a_declare_waits_for_the_record_with_a_log_too)
{
    uint64_t answered;
    rig r;

    begin(&r, 2, logs);
    r.lazy_wal = true;
    elastic_hello(&r, 2, 4, ELASTIC_NEW);
    answered = r.answered;
    elastic_declare(&r, 2, ELASTIC_NEW);
    assert_int_equal(r.answered, answered);
    rig_write_record(&r);
    assert_int_equal(r.answered, answered + 1);
    rig_free(&r);
}

TEST(a_rank_that_keeps_its_leases_is_answered_at_once)
{
    rig r;

    begin(&r, 2, shrinks);
    r.lazy_wal = true;
    elastic_lose(&r, 1, ELASTIC_CONN + 1);
    elastic_join(&r, 1, 2, ELASTIC_CONN + 1);
    assert_int_equal(r.answer, PD_EFF_DECLARED);
    assert_int_equal(r.leases.ranges[0].first, 1);
    rig_free(&r);
}

/* The set of the step has all ranks, and so needs no record of its own. */
TEST(the_report_of_a_full_step_waits_for_the_record_of_a_lease_before_it)
{
    rig r;

    begin(&r, 4, shrinks);
    r.lazy_wal = true;
    remove_rank(&r, 3, ELASTIC_CONN + 3);
    elastic_hello(&r, 3, 4, ELASTIC_NEW);
    elastic_declare(&r, 3, ELASTIC_NEW);
    take_step(&r, 3, ELASTIC_CONN, 1);
    push(&r, 3, ELASTIC_NEW, 1, leased(&r, 3));
    assert_int_equal(elastic_job(&r)->steps.params[0].saved.step, 1);
    assert_int_equal(elastic_step(&r), 0);
    while (r.n_logging > 0) rig_write_record(&r);
    assert_int_equal(elastic_step(&r), 1);
    rig_free(&r);
}

TEST(a_disk_that_fails_does_not_keep_a_declare_waiting_if_the_job_goes_on)
{
    rig r;

    begin(&r, 2, shrinks);
    r.wal_error = r.disk_error = "the disk is full";
    elastic_join(&r, 2, 4, ELASTIC_NEW);
    rig_work(&r);
    assert_int_equal(r.answer, PD_EFF_DECLARED);
    assert_int_equal(r.leases.ranges[0].first, 2);
    rig_free(&r);
}

/* The record of the lease fails while nobody waits for it. The checkpoint that then must have the lease fails, too. */
TEST(a_checkpoint_that_fails_does_not_keep_a_declare_waiting_if_the_job_goes_on)
{
    rig r;

    begin(&r, 3, logs);
    r.wal_error = r.disk_error = "the disk is full";
    remove_rank(&r, 1, ELASTIC_CONN + 1);
    elastic_join(&r, 3, 4, ELASTIC_NEW);
    rig_work(&r);
    assert_int_equal(r.answer, PD_EFF_DECLARED);
    assert_int_equal(r.leases.ranges[0].first, 1);
    rig_free(&r);
}

/* Lets a rank declare while the disk fails, and the disk recover. */
static void check_paused(const char *options)
{
    uint64_t answered;
    rig r;

    begin(&r, 2, options);
    r.wal_error = r.disk_error = "the disk is full";
    elastic_hello(&r, 2, 4, ELASTIC_NEW);
    answered = r.answered;
    elastic_declare(&r, 2, ELASTIC_NEW);
    rig_sleep(&r, 10);
    rig_work(&r);
    assert_int_equal(r.answered, answered);
    r.wal_error = r.disk_error = NULL;
    for (int i = 0; i < 100 && r.answered == answered; i++) {
        rig_sleep(&r, 1);
        rig_work(&r);
    }
    assert_int_equal(r.answer, PD_EFF_DECLARED);
    assert_int_equal(r.leases.ranges[0].first, 2);
    rig_free(&r);
}

TEST(a_paused_job_answers_a_declare_when_a_checkpoint_has_its_lease)
{
    check_paused("min_workers=1 max_workers=4 checkpoint_every=8 on_disk_error=pause");
    check_paused("min_workers=1 max_workers=4 checkpoint_every=8 on_disk_error=pause durability=log");
}

/* ---- crashes ---- */

static void check_joiner(const char *options)
{
    rig r;

    begin(&r, 2, options);
    take_step(&r, 2, ELASTIC_CONN, 1);
    elastic_join(&r, 2, 4, ELASTIC_NEW);
    elastic_join(&r, 3, 4, ELASTIC_NEW + 1);
    crash(&r);
    come_back(&r, 3, ELASTIC_NEW + 1, 1);
    come_back(&r, 2, ELASTIC_NEW, 1);
    come_back(&r, 0, ELASTIC_CONN, 1);
    come_back(&r, 1, ELASTIC_CONN + 1, 1);
    if (elastic_job(&r)->steps.params[0].saved.step == 0) {
        push(&r, 0, ELASTIC_CONN, 1, 0);
        push(&r, 1, ELASTIC_CONN + 1, 1, 1);
    }
    assert_int_equal(leased(&r, 2), 4);
    assert_int_equal(leased(&r, 3), 5);
    assert_int_equal(elastic_job(&r)->saved.course, 0);
    rig_free(&r);
}

TEST(ranks_that_have_joined_since_the_checkpoint_have_their_leases_after_a_crash)
{
    check_joiner(shrinks);
}

TEST(ranks_that_have_joined_since_the_last_record_of_a_step_have_their_leases_after_a_crash)
{
    check_joiner(logs);
}

TEST(shares_of_a_removed_rank_are_leased_after_a_crash_as_before)
{
    uint64_t before[3];
    rig r;

    begin(&r, 4, shrinks);
    take_step(&r, 4, ELASTIC_CONN, 1);
    remove_rank(&r, 3, ELASTIC_CONN + 3);
    take_step(&r, 3, ELASTIC_CONN, 2);
    take_step(&r, 3, ELASTIC_CONN, 3);
    for (uint32_t rank = 0; rank < 3; rank++) before[rank] = leased(&r, rank);
    crash(&r);
    for (uint32_t rank = 0; rank < 4; rank++) come_back(&r, rank, ELASTIC_CONN + rank, rank < 3 ? 3 : 1);
    take_step(&r, 4, ELASTIC_CONN, 1);
    take_step(&r, 3, ELASTIC_CONN, 2);
    take_step(&r, 3, ELASTIC_CONN, 3);
    assert_int_equal(elastic_step(&r), 3);
    for (uint32_t rank = 0; rank < 3; rank++) assert_int_equal(leased(&r, rank), before[rank]);
    rig_free(&r);
}

/* Takes two steps with a short set, crashes, and lets ranks 0 and 1 come back. */
static void begin_repeating(rig *r)
{
    begin(r, 2, shrinks);
    take_step(r, 2, ELASTIC_CONN, 1);
    take_step(r, 2, ELASTIC_CONN, 2);
    crash(r);
    for (uint32_t rank = 0; rank < 2; rank++) come_back(r, rank, ELASTIC_CONN + rank, 2);
    r->seen = 0;
}

TEST(a_process_that_begins_while_steps_are_repeated_gets_a_lease_and_an_answer_when_they_are)
{
    uint64_t answered;
    rig r;

    begin_repeating(&r);
    elastic_hello(&r, 2, 4, ELASTIC_NEW);
    answered = r.answered;
    elastic_declare(&r, 2, ELASTIC_NEW);
    take_step(&r, 2, ELASTIC_CONN, 1);
    assert_int_equal(leased(&r, 2), UINT64_MAX);
    take_step(&r, 2, ELASTIC_CONN, 2);
    rig_sleep(&r, 6); /* no further rank comes back from before the crash */
    rig_work(&r);
    assert_int_equal(leased(&r, 2), 6);
    assert_int_equal(r.answered, answered + 1);
    assert_int_equal(r.answer, PD_EFF_DECLARED);
    assert_int_equal(r.steps[0], 2);
    rig_free(&r);
}

TEST(a_process_that_has_seen_steps_is_answered_at_once_while_they_are_repeated)
{
    rig r;

    begin_repeating(&r);
    r.seen = 2;
    elastic_join(&r, 2, 4, ELASTIC_NEW);
    assert_int_equal(r.answer, PD_EFF_DECLARED);
    assert_int_equal(r.leases.n, 0);
    rig_free(&r);
}

TEST(a_rank_that_is_removed_while_steps_are_repeated_keeps_its_leases_until_they_are)
{
    rig r;

    begin(&r, 3, shrinks);
    take_step(&r, 3, ELASTIC_CONN, 1);
    push(&r, 0, ELASTIC_CONN, 2, 3);
    push(&r, 1, ELASTIC_CONN + 1, 2, 4);
    remove_rank(&r, 2, ELASTIC_CONN + 2); /* step 2 has the set {0, 1}, and then nothing of share 5 is left */
    assert_int_equal(elastic_step(&r), 2);
    crash(&r);
    for (uint32_t rank = 0; rank < 3; rank++) come_back(&r, rank, ELASTIC_CONN + rank, rank < 2 ? 2 : 1);
    elastic_lose(&r, 2, ELASTIC_CONN + 2);
    rig_sleep(&r, 1);
    for (uint64_t step = 1; step <= 1; step++)
        for (uint32_t rank = 0; rank < 2; rank++) push(&r, rank, ELASTIC_CONN + rank, step, leased(&r, rank));
    assert_int_equal(leased(&r, 2), 2);
    rig_free(&r);
}

TEST(an_image_has_the_number_of_changes)
{
    rig r;

    begin(&r, 3, shrinks);
    assert_int_equal(pd_shares_changes(elastic_job(&r)->steps.shares), 3);
    elastic_check_image(&r);
    remove_rank(&r, 1, ELASTIC_CONN + 1);
    assert_int_equal(pd_shares_changes(elastic_job(&r)->steps.shares), 4);
    elastic_check_image(&r);
    rig_free(&r);
}

/* The record of the change is still on the disk. */
TEST(a_change_that_a_checkpoint_has_is_not_made_again)
{
    rig r;

    begin(&r, 2, shrinks);
    take_step(&r, 2, ELASTIC_CONN, 1);
    elastic_join(&r, 2, 4, ELASTIC_NEW);
    assert_int_equal(rig_checkpoint(&r, "job", 1, 0, 10), PD_OK);
    rig_work(&r);
    assert_int_equal(r.disk->step, 1);
    crash(&r);
    assert_int_equal(leased(&r, 2), 4);
    assert_int_equal(pd_shares_counts(elastic_job(&r)->steps.shares).next, 5);
    rig_free(&r);
}

/* ---- memory ---- */

TEST(a_declare_without_memory_leaves_the_leases_as_they_are)
{
    pd_steps *steps;
    int64_t n = 0;
    int rc;
    rig r;

    elastic_begin(&r, 2, shrinks);
    steps = &elastic_job(&r)->steps;
    for (;; n++) {
        oom_arm(n);
        rc = pd_leases_declared(steps, 1, 1);
        assert_true(oom_disarm());
        if (rc == PD_OK) break; /* only the record lacks memory: a checkpoint will have the change */
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_null(steps->shares);
    }
    assert_true(n > 0);
    assert_int_equal(leased(&r, 1), 1);
    rig_free(&r);
}

TEST(a_change_that_could_not_be_recorded_is_answered_after_a_checkpoint)
{
    pd_wal *wal;
    uint64_t kept;
    rig r;

    begin(&r, 2, "min_workers=1 max_workers=4 checkpoint_every=8 on_disk_error=pause");
    wal = elastic_job(&r)->steps.wal;
    kept = r.kept;
    wal->decisions.most = 0; /* as if there were no room for a decision */
    elastic_join(&r, 2, 4, ELASTIC_NEW);
    rig_sleep(&r, 2);
    rig_work(&r);
    assert_int_equal(r.kept, kept + 1);
    assert_int_equal(r.answer, PD_EFF_DECLARED);
    assert_int_equal(r.leases.ranges[0].first, 2);
    rig_free(&r);
}
