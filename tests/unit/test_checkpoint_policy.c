/* Tests what operators and workers see of checkpoints: requests for one, drains, ends of jobs, notes, barriers, and the
 * memory that checkpoints take. */
#include "test.h"
#include "exporting.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

enum { OPERATOR = 99 };

static void set_up(rig *r)
{
    pd_store_config config = durable_config();

    durable_job_start(r, &config, "checkpoint_every=0");
}

/* Makes a new store from the disk of the rig, and lets the ranks join again. */
static void crash(rig *r, const uint64_t barriers[2])
{
    pd_store_config config = durable_config();
    rig next;

    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, r), PD_OK);
    rig_free(r);
    *r = next;
    for (uint32_t rank = 0; rank < 2; rank++) {
        r->barriers = barriers[rank];
        assert_int_equal(rig_hello(r, "job", rank, 2, DURABLE_CONN + rank, DURABLE_CONN + rank, NULL, "* adam"), PD_OK);
    }
}

static const uint64_t no_barriers[2];

FIXTURE(rig, set_up, rig_free);

TEST(who_asks_is_answered_when_the_present_step_is_durable, rig *r)
{
    durable_job_step(r, 1);
    r->lazy_disk = true;
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    assert_non_null(r->checkpointing);
    assert_int_not_equal(r->answer, PD_EFF_CHECKPOINT);
    rig_write_checkpoint(r);
    assert_int_equal(r->answer, PD_EFF_CHECKPOINT);
    assert_int_equal(r->checkpoint_step, 1);
    assert_true(r->checkpoint_bytes > 0);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 1, 30), PD_OK);
    assert_int_equal(r->answer, PD_EFF_CHECKPOINT);
    assert_int_equal(r->checkpoint_bytes, 0);
}

TEST(a_worker_asks_for_a_step_that_is_still_to_come, rig *r)
{
    assert_int_equal(rig_checkpoint(r, NULL, DURABLE_CONN, 3, 30), PD_OK);
    for (uint64_t step = 1; step <= 2; step++) durable_job_step(r, step);
    assert_int_equal(r->kept, 0);
    durable_job_step(r, 3);
    assert_int_equal(r->answer, PD_EFF_CHECKPOINT);
    assert_int_equal(r->checkpoint_step, 3);
}

TEST(who_asks_hears_of_a_failed_disk_and_of_a_step_that_does_not_come, rig *r)
{
    r->disk_error = "Input/output error";
    durable_job_step(r, 1);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 1, 30), PD_OK);
    rig_work(r);
    assert_int_equal(r->error.code, PD_UNAVAILABLE);
    assert_non_null(strstr(r->error.text, "Input/output error"));
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 9, 3), PD_OK);
    rig_sleep(r, 3);
    assert_int_equal(r->error.code, PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(r->error.text, "step 9"));
    assert_int_equal(rig_checkpoint(r, "other", OPERATOR, 0, 3), PD_NOT_FOUND);
}

TEST(who_asks_hears_which_parameter_and_rank_lag, rig *r)
{
    durable_job_step_one(r, 0, 1);
    durable_job_push(r, 0, 1, 1);
    rig_work(r);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 1, 5), PD_OK);
    rig_sleep(r, 5);
    assert_int_equal(r->error.code, PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(r->error.text, "p1"));
    assert_non_null(strstr(r->error.text, "rank 1"));
}

TEST(a_job_without_checkpoints_says_why)
{
    pd_store_config config = rig_config();
    rig r;

    durable_job_start(&r, &config, NULL);
    assert_int_equal(rig_checkpoint(&r, "job", OPERATOR, 0, 1), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r.error.text, "server.state_dir"));
    assert_int_equal(rig_hello(&r, "other", 0, 1, 5, 5, "durability=checkpoint", "* sgd"), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r.error.text, "server.state_dir"));
    rig_free(&r);
    config.keeps = true;
    durable_job_start(&r, &config, "durability=none checkpoint_every=1");
    durable_job_step(&r, 1);
    assert_int_equal(r.kept, 0);
    assert_int_equal(rig_checkpoint(&r, "job", OPERATOR, 0, 1), PD_FAILED_PRECONDITION);
    rig_free(&r);
}

TEST(an_export_waits_until_the_cut_of_a_checkpoint_has_ended, rig *r)
{
    uint64_t before;

    durable_job_step_one(r, 0, 1);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    before = r->answered;
    assert_int_equal(export_begin(r, "job", OPERATOR, true, 30), PD_OK);
    assert_int_equal(r->answered, before);
    durable_job_step_one(r, 1, 1);
    assert_int_equal(r->kept, 1);
    assert_int_equal(r->answered, before + 2);
    assert_int_equal(export_end(r, "job", OPERATOR), PD_OK);
}

TEST(an_export_that_waits_for_a_cut_ends_with_its_connection, rig *r)
{
    uint64_t before;

    durable_job_step_one(r, 0, 1);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR - 1, 0, 30), PD_OK);
    assert_int_equal(export_begin(r, "job", OPERATOR, true, 30), PD_OK);
    export_lost(r, OPERATOR);
    before = r->answered;
    durable_job_step_one(r, 1, 1);
    assert_int_equal(r->kept, 1);
    assert_int_equal(r->answered, before + 1);
    assert_null(inside_job(r->store, r->job)->export);
}

TEST(an_import_waits_until_a_checkpoint_is_copied, rig *r)
{
    pd_request *request[2];
    uint64_t answered;

    durable_job_step_one(r, 0, 1);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR - 1, 0, 30), PD_OK);
    for (int i = 0; i < 2; i++) {
        request[i] = pd_request_new(PD_REQ_IMPORT, rig_ticket(r, OPERATOR));
        request[i]->u.import.act = i == 0 ? PD_IMPORT_BEGIN : PD_IMPORT_COMMIT;
        request[i]->u.import.job_name = strdup("job");
        request[i]->u.import.partial = true;
    }
    assert_int_equal(rig_apply(r, request[0]), PD_OK);
    answered = r->answered;
    rig_apply(r, request[1]);
    rig_sleep(r, 0.1);
    assert_int_equal(r->answered, answered);
    durable_job_step_one(r, 1, 1);
    assert_int_equal(r->kept, 1);
    rig_sleep(r, 0.1);
    rig_work(r);
    assert_int_equal(r->answered, answered + 2); /* the request for a checkpoint, and the import */
    assert_int_equal(r->error.code, PD_OK);
    assert_int_equal(r->kept, 2);
    assert_int_equal(r->disk->step, 1);
}

TEST(a_checkpoint_waits_until_an_export_has_ended, rig *r)
{
    durable_job_step(r, 1);
    assert_int_equal(export_begin(r, "job", OPERATOR, true, 30), PD_OK);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR - 1, 0, 30), PD_OK);
    rig_work(r);
    assert_int_equal(r->kept, 0);
    assert_int_equal(export_end(r, "job", OPERATOR), PD_OK);
    rig_work(r);
    assert_int_equal(r->kept, 1);
    assert_int_equal(r->checkpoint_step, 1);
}

TEST(a_drain_is_answered_when_the_last_checkpoint_is_on_disk, rig *r)
{
    durable_job_step(r, 1);
    r->lazy_disk = true;
    assert_false(rig_drain(r, OPERATOR, 30));
    assert_int_equal(r->checkpointing->step, 1);
    rig_write_checkpoint(r);
    assert_int_equal(r->answer, PD_EFF_OK);
    assert_int_equal(r->durable, 1);
    assert_true(rig_drain(r, OPERATOR, 30));
    assert_int_equal(r->kept, 1);
}

TEST(a_drain_takes_the_steps_as_they_are_when_its_deadline_has_passed, rig *r)
{
    durable_job_step(r, 1);
    durable_job_step_one(r, 0, 2);
    durable_job_push(r, 0, 1, 2);
    rig_work(r);
    assert_false(rig_drain(r, OPERATOR, 3));
    assert_int_equal(r->kept, 0);
    rig_sleep(r, 3);
    rig_work(r);
    assert_int_equal(r->kept, 1);
    assert_int_equal(r->disk->params[0].step, 2);
    assert_int_equal(r->disk->params[1].step, 1);
    assert_int_equal(r->error.code, PD_DEADLINE_EXCEEDED);
}

TEST(a_drain_looks_first_at_the_job_that_it_waited_for, rig *r)
{
    static const int64_t size = 4;
    uint32_t job = r->job, other;

    durable_job_step(r, 1);
    other = rig_start(r, "other", 1, DURABLE_CONN + 10, &size, 1, NULL, "* adam");
    r->job = job;
    durable_job_push(r, 0, 0, 2);
    rig_work(r);
    r->lazy_disk = true;
    assert_false(rig_drain(r, OPERATOR, 30));
    assert_int_equal(r->store->drain.open, job);
    r->store->drain.open = other; /* a job whose rounds have ended: the search goes on */
    rig_work(r);
    durable_job_push(r, 1, 0, 2);
    for (uint32_t rank = 0; rank < 2; rank++) durable_job_push(r, rank, 1, 2);
    rig_work(r);
    while (r->checkpointing != NULL) rig_write_checkpoint(r);
    assert_int_equal(r->answer, PD_EFF_OK);
    assert_int_equal(pd_store_count_losing(r->store), 0);
}

TEST(a_drain_is_answered_when_the_last_checkpoint_has_failed, rig *r)
{
    durable_job_step(r, 1);
    r->disk_error = "Read-only file system";
    assert_true(rig_drain(r, OPERATOR, 30));
    assert_int_equal(r->errors, 1);
    assert_string_equal(
        r->fault, "job job: the last checkpoint before the server stops has failed, and steps 1 to 1 will be lost, "
                  "since it has no checkpoint: Read-only file system. Repair the disk or free space, and call "
                  "`paramctl checkpoint job` before the server stops; else workers send or compute these steps again");
    assert_int_equal(r->answer, PD_EFF_ERROR);
    assert_int_equal(r->error.code, PD_ABORTED);
    assert_string_equal(
        r->error.text,
        "drained, but the last checkpoint of job job has failed: Read-only file system. Steps after step 0 are lost "
        "when the server stops: free space or repair the disk, and call `paramctl checkpoint` or drain again before");
}

TEST(a_job_loses_steps_until_its_last_checkpoint_is_on_disk, rig *r)
{
    assert_int_equal(pd_store_count_losing(r->store), 0);
    durable_job_step(r, 1);
    assert_int_equal(pd_store_count_losing(r->store), 1);
    r->disk_error = "No space left on device";
    assert_true(rig_drain(r, OPERATOR, 30));
    assert_int_equal(pd_store_count_losing(r->store), 1);
    r->disk_error = NULL;
    assert_true(rig_drain(r, OPERATOR, 30));
    assert_int_equal(r->answer, PD_EFF_OK);
    assert_int_equal(pd_store_count_losing(r->store), 0);
    durable_job_import_count(r);
    assert_int_equal(pd_store_count_losing(r->store), 0); /* the import has made a checkpoint */
}

TEST(a_drained_job_tries_its_last_checkpoint_again, rig *r)
{
    durable_job_step(r, 1);
    r->disk_error = "No space left on device";
    assert_true(rig_drain(r, OPERATOR, 30));
    r->disk_error = NULL;
    rig_sleep(r, 2);
    rig_work(r);
    assert_int_equal(r->durable, 1);
}

TEST(a_failed_last_checkpoint_names_the_steps_after_the_durable_one, rig *r)
{
    durable_job_step(r, 1);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 1, 30), PD_OK);
    rig_work(r);
    for (uint64_t step = 2; step <= 4; step++) durable_job_step(r, step);
    assert_int_equal(r->errors, 0);
    r->disk_error = "No space left on device";
    assert_true(rig_drain(r, OPERATOR, 30));
    assert_int_equal(r->errors, 1);
    assert_non_null(strstr(r->fault, "steps 2 to 4 will be lost, since its newest checkpoint is of step 1: No space"));
    assert_null(strstr(r->warning, "tried again"));
    r->disk_error = NULL; /* the operator has made room, and does what the log says */
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    assert_int_equal(r->checkpoint_step, 4);
    assert_int_equal(r->durable, 4);
}

TEST(a_drain_waits_for_a_newer_checkpoint_than_the_one_being_written, rig *r)
{
    durable_job_step(r, 1);
    r->lazy_disk = true;
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 1, 30), PD_OK);
    rig_work(r);
    durable_job_step(r, 2);
    assert_false(rig_drain(r, OPERATOR, 30));
    rig_write_checkpoint(r);
    rig_work(r);
    assert_int_equal(r->durable, 1);
    assert_int_equal(r->checkpointing->step, 2);
    rig_write_checkpoint(r);
    assert_int_equal(r->answer, PD_EFF_OK);
    assert_int_equal(r->durable, 2);
}

TEST(a_drain_waits_no_longer_for_the_disk_than_it_says, rig *r)
{
    uint64_t before;

    durable_job_step(r, 1);
    r->lazy_disk = true;
    assert_false(rig_drain(r, OPERATOR, 30));
    assert_true(pd_store_next_tick(r->store) > r->now);
    before = r->answered;
    rig_sleep(r, 59);
    assert_int_equal(r->answered, before);
    rig_sleep(r, 2);
    assert_int_equal(r->answered, before + 1);
    assert_int_equal(r->error.code, PD_ABORTED);
    assert_non_null(strstr(r->error.text, "it is not on the disk yet. Steps after step 0 are lost"));
    assert_non_null(strstr(r->fault, "steps 1 to 1 will be lost"));
    assert_non_null(strstr(r->fault, "it was not on the disk within 60 s"));
}

static void drop(rig *r, const char *job)
{
    pd_request *request = pd_request_new(PD_REQ_DROP, rig_ticket(r, OPERATOR));

    request->u.info.job_name = job != NULL ? strdup(job) : NULL;
    assert_int_equal(rig_apply(r, request), PD_OK);
}

TEST(a_job_that_is_dropped_is_reported_as_ended, rig *r)
{
    durable_job_step(r, 1);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    drop(r, "job");
    assert_int_equal(r->ended, 1);
}

TEST(a_job_that_ends_with_the_server_or_never_had_a_checkpoint_is_not, rig *r)
{
    rig_start(r, "other", 1, 50, durable_job_sizes, 1, "checkpoint_every=0", NULL);
    drop(r, "other");
    assert_int_equal(r->ended, 0);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    assert_int_equal(r->kept, 1);
    drop(r, NULL);
    assert_int_equal(r->ended, 0);
}

static void leave(rig *r, uint32_t rank)
{
    pd_request *request = pd_request_new(PD_REQ_LEAVE, rig_ticket(r, DURABLE_CONN + rank));

    request->job = r->job;
    request->rank = rank;
    assert_int_equal(rig_apply(r, request), PD_OK);
}

TEST(a_job_that_all_have_left_lingers_anew_after_a_restart_and_then_ends, void *given)
{
    rig *r = given, next;
    pd_store_config config = durable_config();

    durable_job_step(r, 1);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    leave(r, 0);
    leave(r, 1);
    rig_sleep(r, 200);
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, r), PD_OK);
    rig_sleep(&next, 200);
    assert_string_equal(rig_ask(&next, PD_INFO_JOBS, NULL)->jobs->state, "lingering");
    rig_sleep(&next, 101);
    assert_null(inside_find(next.store, "job"));
    assert_int_equal(next.ended, 1);
    rig_free(&next);
}

TEST(a_job_may_end_while_its_checkpoint_is_being_written, rig *r)
{
    durable_job_step(r, 1);
    r->lazy_disk = true;
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    drop(r, "job");
    assert_int_equal(r->error.code, PD_OK);
    rig_write_checkpoint(r);
    assert_int_equal(pd_store_count_bytes(r->store).published_list, 0);
}

TEST(the_note_of_the_checkpoint_comes_back, rig *r)
{
    for (uint64_t step = 1; step <= 6; step++) {
        char text[16];
        snprintf(text, sizeof text, "step %llu", (unsigned long long)step);
        assert_int_equal(rig_note(r, 0, DURABLE_CONN, step, text), PD_OK);
        if (step == 3) assert_int_equal(rig_note(r, 1, DURABLE_CONN + 1, step, ""), PD_OK);
        durable_job_step(r, step);
    }
    assert_int_equal(rig_note(r, 0, DURABLE_CONN, 7, "step 7"), PD_OK);
    assert_int_equal(rig_recall(r, 0, DURABLE_CONN), PD_OK);
    assert_string_equal(r->note, "step 6");
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    crash(r, no_barriers);
    assert_int_equal(rig_recall(r, 0, DURABLE_CONN), PD_OK);
    assert_string_equal(r->note, "step 6");
    assert_int_equal(r->note_step, 6);
    assert_int_equal(rig_recall(r, 1, DURABLE_CONN + 1), PD_OK);
    assert_string_equal(r->note, "");
    assert_int_equal(r->note_step, 3);
}

TEST(a_rank_without_a_note_recalls_none, rig *r)
{
    assert_int_equal(rig_recall(r, 0, DURABLE_CONN), PD_OK);
    assert_int_equal(r->note_step, 0);
    assert_int_equal(rig_note(r, 0, DURABLE_CONN, 5, "too early"), PD_OK);
    assert_int_equal(rig_recall(r, 0, DURABLE_CONN), PD_OK);
    assert_int_equal(r->note_step, 0);
}

TEST(the_note_that_a_checkpoint_needs_is_not_dropped_for_newer_ones, rig *r)
{
    assert_int_equal(rig_note(r, 0, DURABLE_CONN, 1, "one"), PD_OK);
    durable_job_step_one(r, 0, 1);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    for (uint64_t step = 2; step <= 8; step++) assert_int_equal(rig_note(r, 0, DURABLE_CONN, step, "later"), PD_OK);
    durable_job_step_one(r, 1, 1);
    assert_int_equal(r->disk->n_worker_states, 1);
    assert_int_equal(r->disk->worker_states[0].step, 1);
    assert_memory_equal(r->disk->worker_states[0].at, "one", 3);
}

TEST(notes_count_against_the_memory_of_all_jobs, rig *r)
{
    uint64_t before = r->store->budget.used;
    pd_request *request = pd_request_new(PD_REQ_WORKER_STATE, rig_ticket(r, DURABLE_CONN));

    assert_int_equal(rig_note(r, 0, DURABLE_CONN, 1, "0123456789"), PD_OK);
    assert_int_equal(r->store->budget.used, before + 10);
    assert_int_equal(rig_note(r, 0, DURABLE_CONN, 1, "01234"), PD_OK);
    assert_int_equal(r->store->budget.used, before + 5);
    r->store->budget.limit = r->store->budget.used + 4;
    assert_int_equal(rig_note(r, 0, DURABLE_CONN, 2, "01234"), PD_RESOURCE_EXHAUSTED);
    r->store->budget.limit = UINT64_MAX;
    request->job = r->job;
    request->u.worker_state.bytes = PD_WORKER_STATE_MAX + 1;
    rig_payload(r, DURABLE_CONN, PD_WORKER_STATE_MAX + 1, &request->u.worker_state.buffer);
    assert_int_equal(rig_apply(r, request), PD_INVALID_ARGUMENT);
    assert_int_equal(r->buffers_out, 0);
}

static void barrier(rig *r, uint32_t rank, uint64_t sequence)
{
    pd_request *request = pd_request_new(PD_REQ_BARRIER, rig_ticket(r, DURABLE_CONN + rank));

    request->job = r->job;
    request->rank = rank;
    request->u.barrier.sequence = sequence;
    assert_int_equal(rig_apply(r, request), PD_OK);
}

TEST(nobody_waits_at_a_barrier_that_others_passed_before_the_restart, rig *r)
{
    static const uint64_t passed[2] = { 2, 1 }; /* rank 1 has missed the answer to its second barrier */
    uint64_t before;

    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    for (uint64_t sequence = 1; sequence <= 2; sequence++)
        for (uint32_t rank = 0; rank < 2; rank++) barrier(r, rank, sequence);
    crash(r, passed);
    before = r->answered;
    barrier(r, 1, 2);
    assert_int_equal(r->answered, before + 1);
    barrier(r, 1, 3);
    assert_int_equal(r->answered, before + 1);
    barrier(r, 0, 3);
    assert_int_equal(r->answered, before + 3);
}

TEST(a_rank_that_waits_is_answered_when_another_reports_the_barrier, rig *r)
{
    static const uint64_t none[2];
    uint64_t before;

    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    crash(r, none);
    barrier(r, 1, 1);
    before = r->answered;
    r->barriers = 1;
    assert_int_equal(rig_hello(r, "job", 0, 2, DURABLE_CONN, DURABLE_CONN, NULL, "* adam"), PD_OK);
    assert_int_equal(r->answered, before + 2);
}

TEST(declare_counts_what_a_checkpoint_takes, void *given)
{
    rig *r = given, plain;
    pd_store_config config = rig_config();
    uint64_t more;

    durable_job_start(&plain, &config, NULL);
    more = r->store->budget.used - plain.store->budget.used;
    /* weights, and two slots of adam */
    assert_in_range(more, 3 * 300 * sizeof(float), 3 * 300 * sizeof(float) + 16384);
    rig_free(&plain);
}
