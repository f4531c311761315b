/* Tests when a job writes records of its WAL, whom they hold back, and what becomes of them when the disk is slow or
 * fails. */
#include "test.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"
#include "wal.h"

#define OPTIONS "durability=log checkpoint_every=100"

static void start(rig *r)
{
    pd_store_config config = durable_config();

    durable_job_start(r, &config, OPTIONS);
}

static const pd_job *job_of(const rig *r)
{
    return inside_job(r->store, r->job);
}

static void push_both(rig *r, uint32_t param, uint64_t step)
{
    durable_job_step_one(r, param, step);
}

TEST(the_initial_weights_are_kept_and_each_step_is_an_entry)
{
    rig r;

    start(&r);
    assert_int_equal(r.kept, 1);
    assert_int_equal(r.disk->step, 0);
    for (uint64_t step = 1; step <= 5; step++) {
        durable_job_step(&r, step);
        assert_int_equal(r.durable, step);
    }
    assert_int_equal(r.kept, 1);
    assert_int_equal(r.n_records, 5);
    assert_int_equal(r.records[4]->parts[0].elements, durable_job_sizes[0]);
    assert_string_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->jobs->durability, "log");
    assert_int_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->jobs->durable_step, 5);
    rig_free(&r);
}

TEST(without_a_directory_a_log_is_refused)
{
    pd_store_config config = rig_config();
    rig r;

    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, "job", 0, 1, 1, 1, "durability=log", "* sgd"), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r.error.text, "durability = log"));
    rig_free(&r);
}

TEST(a_checkpoint_makes_entries_superfluous_and_they_go_on)
{
    pd_store_config config = durable_config();
    rig r;

    durable_job_start(&r, &config, "durability=log checkpoint_every=3");
    for (uint64_t step = 1; step <= 5; step++) durable_job_step(&r, step);
    assert_int_equal(r.kept, 2);
    assert_int_equal(r.disk->step, 3);
    assert_int_equal(r.n_records, 2);
    assert_int_equal(r.records[0]->step, 4);
    assert_int_equal(r.records[0]->base, 3);
    assert_int_equal(r.durable, 5);
    rig_free(&r);
}

TEST(entries_wait_until_their_checkpoint_is_durable)
{
    pd_store_config config = durable_config();
    rig r;

    rig_new(&r, &config);
    r.lazy_disk = true;
    rig_start(&r, "job", 2, DURABLE_CONN, durable_job_sizes, 2, OPTIONS, "* adam");
    assert_non_null(r.checkpointing);
    for (uint64_t step = 1; step <= PD_WAL_MOST; step++) durable_job_step(&r, step);
    assert_int_equal(r.recorded, 0);
    assert_int_equal(r.durable, 0);
    durable_job_step(&r, PD_WAL_MOST + 1);
    assert_int_equal(durable_job_step_of(&r, 0), PD_WAL_MOST);
    rig_write_checkpoint(&r);
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 0), PD_WAL_MOST + 1);
    assert_int_equal(r.durable, PD_WAL_MOST + 1);
    rig_free(&r);
}

TEST(a_parameter_waits_until_all_have_closed_the_step_before)
{
    rig r;

    start(&r);
    durable_job_step(&r, 1);
    push_both(&r, 0, 2);
    push_both(&r, 0, 3);
    assert_int_equal(durable_job_step_of(&r, 0), 2);
    assert_int_equal(job_of(&r)->steps.params[0].stage, PD_STOPPED);
    assert_int_equal(r.durable, 1);
    push_both(&r, 1, 2);
    assert_int_equal(durable_job_step_of(&r, 0), 3);
    assert_int_equal(r.durable, 2);
    push_both(&r, 1, 3);
    assert_int_equal(r.durable, 3);
    rig_free(&r);
}

TEST(a_parameter_waits_for_a_cut_and_then_for_the_log)
{
    pd_store_config config = durable_config();
    rig r;

    durable_job_start(&r, &config, "durability=log checkpoint_every=2");
    r.lazy_wal = true;
    durable_job_step(&r, 1);
    push_both(&r, 0, 2);
    push_both(&r, 0, 3);
    assert_int_equal(job_of(&r)->steps.params[0].stage, PD_STOPPED);
    push_both(&r, 1, 2);
    assert_int_equal(r.disk->step, 2);
    assert_int_equal(durable_job_step_of(&r, 0), 3);
    rig_free(&r);
}

TEST(the_job_goes_at_the_speed_of_the_disk)
{
    uint64_t warnings;
    rig r;

    start(&r);
    warnings = r.warnings;
    r.lazy_wal = true;
    for (uint64_t step = 1; step <= PD_WAL_MOST + 1; step++) durable_job_step(&r, step);
    assert_int_equal(durable_job_step_of(&r, 0), PD_WAL_MOST);
    assert_int_equal(r.n_logging, PD_WAL_MOST);
    for (uint64_t step = PD_WAL_MOST + 2; step <= 12; step++) {
        rig_write_record(&r);
        rig_work(&r);
        assert_int_equal(durable_job_step_of(&r, 0), step - 1);
        durable_job_step(&r, step);
        assert_int_equal(durable_job_step_of(&r, 0), step - 1);
    }
    assert_int_equal(r.warnings, warnings + 1);
    assert_non_null(strstr(r.warning, "job waits for the disk"));
    rig_free(&r);
}

TEST(a_job_may_end_with_entries_under_way)
{
    rig r;

    start(&r);
    r.lazy_wal = true;
    for (uint64_t step = 1; step <= 3; step++) durable_job_step(&r, step);
    push_both(&r, 0, 4);
    push_both(&r, 0, 5);
    rig_free(&r);
}

TEST(entries_begin_anew_after_a_checkpoint_when_the_log_has_failed)
{
    rig r;

    start(&r);
    for (uint64_t step = 1; step <= 3; step++) durable_job_step(&r, step);
    r.wal_error = "Input/output error";
    durable_job_step(&r, 4);
    assert_non_null(strstr(r.warning, "record of step 4 not written: Input/output error"));
    assert_int_equal(r.durable, 4);
    assert_int_equal(r.disk->step, 4);
    assert_string_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->jobs->checkpoint_error, "");
    r.wal_error = NULL;
    for (uint64_t step = 5; step <= 7; step++) durable_job_step(&r, step);
    assert_int_equal(r.durable, 7);
    assert_int_equal(r.n_records, 3);
    assert_int_equal(r.records[0]->base, 4);
    assert_int_equal(r.kept, 2);
    rig_free(&r);
}

TEST(the_job_trains_on_when_log_and_checkpoints_fail)
{
    uint64_t warnings;
    rig r;

    start(&r);
    durable_job_step(&r, 1);
    warnings = r.warnings;
    r.disk_error = r.wal_error = "No space left on device";
    for (uint64_t step = 2; step <= 40; step++) durable_job_step(&r, step);
    assert_int_equal(durable_job_step_of(&r, 1), 40);
    assert_int_equal(r.durable, 1);
    assert_true(r.warnings - warnings < 10);
    r.disk_error = r.wal_error = NULL;
    for (uint64_t step = 41; step <= 80; step++) durable_job_step(&r, step);
    assert_int_equal(r.durable, 80);
    rig_free(&r);
}

TEST(entries_that_wait_go_when_their_checkpoint_fails)
{
    rig r;

    start(&r);
    r.wal_error = "Input/output error";
    r.lazy_disk = true;
    durable_job_step(&r, 1);
    r.wal_error = NULL;
    durable_job_step(&r, 2);
    durable_job_step(&r, 3);
    assert_true(job_of(&r)->steps.wal->inputs.on);
    r.disk_error = "Input/output error";
    rig_write_checkpoint(&r);
    assert_false(job_of(&r)->steps.wal->inputs.on);
    assert_int_equal(r.recorded, 0);
    r.disk_error = NULL;
    for (uint64_t step = 4; step <= 6; step++) {
        durable_job_step(&r, step);
        if (r.checkpointing != NULL) rig_write_checkpoint(&r);
    }
    rig_work(&r);
    assert_int_equal(r.durable, 6);
    rig_free(&r);
}

static bool step_without_memory(rig *r, uint64_t step, int64_t n)
{
    bool failed;

    for (uint32_t i = 0; i < 4; i++) durable_job_push(r, i % 2, i / 2, step);
    oom_arm(n);
    (void)pd_store_work(r->store, r->now);
    failed = oom_disarm();
    rig_absorb(r);
    while (job_of(r)->steps.shortage.retry_ns > 0 || durable_job_step_of(r, 0) < step ||
           durable_job_step_of(r, 1) < step) {
        rig_sleep(r, 1);
        rig_work(r);
    }
    rig_work(r);
    return failed;
}

TEST(steps_are_durable_again_after_memory_was_out)
{
    uint64_t step = 0;
    bool failed = true;
    rig r;

    start(&r);
    for (int64_t n = 0; failed; n++) {
        failed = step_without_memory(&r, ++step, n);
        durable_job_step(&r, ++step);
        durable_job_step(&r, ++step);
        assert_int_equal(r.durable, step);
    }
    assert_true(step > 30);
    rig_free(&r);
}

static void import(rig *r, pd_import_act act)
{
    pd_request *request = pd_request_new(PD_REQ_IMPORT, rig_ticket(r, 40));

    request->u.import.act = act;
    request->u.import.job_name = strdup("job");
    request->u.import.partial = true;
    if (act == PD_IMPORT_COUNT) {
        request->u.import.param = strdup("p0");
        request->u.import.value = 1000;
    }
    rig_apply(r, request);
    rig_work(r);
    assert_int_equal(r->error.code, PD_OK);
}

TEST(an_import_stops_the_entries_until_the_next_checkpoint)
{
    pd_store_config config = durable_config();
    rig r, next;

    start(&r);
    for (uint64_t step = 1; step <= 3; step++) durable_job_step(&r, step);
    import(&r, PD_IMPORT_BEGIN);
    import(&r, PD_IMPORT_COUNT);
    import(&r, PD_IMPORT_COMMIT);
    durable_job_step(&r, 4);
    durable_job_step(&r, 5);
    assert_int_equal(r.durable, 5);
    assert_true(r.disk->step >= 3 && r.n_records <= 2);
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, &r), PD_OK);
    assert_int_equal(rig_replay(&next, &r), PD_OK);
    assert_int_equal(pd_optim_count(inside_find(next.store, "job")->steps.params[0].optim), 1002);
    rig_free(&next);
    rig_free(&r);
}

TEST(a_change_of_the_world_stops_the_entries_until_the_next_checkpoint)
{
    static const char *const names[] = { "p0", "p1" };
    const pd_shape shapes[] = { { 1, { durable_job_sizes[0] } }, { 1, { durable_job_sizes[1] } } };
    pd_store_config config = durable_config();
    float values[256] = { 1 };
    rig r, next;

    start(&r);
    for (uint64_t step = 1; step <= 3; step++) durable_job_step(&r, step);
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, &r), PD_OK);
    assert_int_equal(rig_replay(&next, &r), PD_OK);
    assert_int_equal(rig_hello(&next, "job", 0, 1, 70, 70, OPTIONS, "* adam"), PD_OK);
    assert_int_equal(rig_declare(&next, next.job, 0, 70, names, shapes, NULL, 2, PD_F32), PD_OK);
    for (uint64_t step = 4; step <= 6; step++) {
        for (uint32_t p = 0; p < 2; p++)
            assert_int_equal(rig_push(&next, next.job, 0, 70, step, p, values, durable_job_sizes[p]), PD_OK);
        rig_work(&next);
        assert_int_equal(next.durable, step);
    }
    assert_int_equal(next.kept, 1);
    assert_int_equal(next.disk->step, 4);
    assert_int_equal(next.n_records, 2);
    rig_free(&next);
    rig_free(&r);
}

TEST(a_worker_waits_for_the_log_and_an_operator_for_a_checkpoint)
{
    uint64_t answered;
    rig r;

    start(&r);
    r.lazy_wal = true;
    durable_job_step(&r, 1);
    answered = r.answered;
    assert_int_equal(rig_checkpoint(&r, NULL, DURABLE_CONN, 1, 10), PD_OK);
    assert_int_equal(r.answered, answered);
    assert_int_equal(r.kept, 1);
    rig_write_record(&r);
    assert_int_equal(r.answered, answered + 1);
    assert_int_equal(r.checkpoint_step, 1);
    assert_int_equal(r.kept, 1);
    assert_int_equal(rig_checkpoint(&r, "job", 50, 0, 10), PD_OK);
    rig_work(&r);
    assert_int_equal(r.answered, answered + 2);
    assert_int_equal(r.kept, 2);
    assert_int_equal(r.disk->step, 1);
    rig_free(&r);
}

TEST(a_drain_makes_a_last_checkpoint_although_the_log_has_all_steps)
{
    rig r;

    start(&r);
    for (uint64_t step = 1; step <= 3; step++) durable_job_step(&r, step);
    assert_true(rig_drain(&r, 50, 10));
    assert_int_equal(r.error.code, PD_OK);
    assert_int_equal(r.disk->step, 3);
    rig_free(&r);
}

TEST(an_entry_that_is_damaged_is_refused)
{
    pd_store_config config = durable_config();
    pd_error err;
    rig r;

    start(&r);
    assert_int_equal(rig_note(&r, 0, DURABLE_CONN, 1, "my place"), PD_OK);
    durable_job_step(&r, 1);
    for (size_t i = 0; i <= r.records[0]->head_bytes; i++) {
        bool cut = i % 2 == 0, unchanged = true;
        pd_wal_record *entry = record_copy(r.records[0]);
        rig next;
        rig_new(&next, &config);
        assert_int_equal(rig_restore(&next, &r), PD_OK);
        if (i < entry->head_bytes && cut) entry->head_bytes = i;
        if (i < entry->head_bytes && !cut) entry->head[i] ^= 0xff;
        int rc = pd_store_replay(next.store, entry, next.now, &unchanged, &err);
        if (cut && i < r.records[0]->head_bytes) assert_int_not_equal(rc, PD_OK);
        if (i == r.records[0]->head_bytes) assert_int_equal(rc, PD_OK);
        assert_int_equal(next.store->jobs.n, rc == PD_OK || unchanged ? 1 : 0);
        if (rc != PD_OK && unchanged) assert_int_equal(inside_find(next.store, "job")->steps.params[0].saved.step, 0);
        pd_wal_record_free(entry);
        rig_free(&next);
    }
    rig_free(&r);
}

static void expect(const rig *from, const pd_wal_record *entry, int code, const char *text)
{
    pd_store_config config = durable_config();
    bool unchanged;
    pd_error err;
    rig next;

    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, from), PD_OK);
    assert_int_equal(pd_store_replay(next.store, entry, next.now, &unchanged, &err), code);
    assert_true(unchanged);
    if (strstr(err.text, text) == NULL) fail_msg("expected \"%s\", got \"%s\"", text, err.text);
    rig_free(&next);
}

TEST(an_entry_of_another_step_or_job_is_refused)
{
    pd_wal_record *entry;
    rig r;

    start(&r);
    durable_job_step(&r, 1);
    durable_job_step(&r, 2);
    expect(&r, r.records[1], PD_DATA_LOSS, "is at step 0, but the record is of step 2");
    entry = record_copy(r.records[0]);
    entry->step = 2;
    expect(&r, entry, PD_DATA_LOSS, "the record is of step 2, but its header of 1");
    entry->step = 1;
    entry->creator++;
    expect(&r, entry, PD_DATA_LOSS, "creator");
    entry->creator--;
    entry->parts[1].elements--;
    expect(&r, entry, PD_DATA_LOSS, "p1 has 100 elements, but the record of step 1 has an aggregate of 99");
    entry->parts[1].elements++;
    entry->job[0] = 'J';
    expect(&r, entry, PD_NOT_FOUND, "no job Job");
    pd_wal_record_free(entry);
    rig_free(&r);
}
