/* Tests what a job does while its disk does not answer or fails: it goes on, or pauses, and operators see it. */
#include "test.h"
#include "exporting.h"
#include "global_clip.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"
#include "wal.h"

enum { OPERATOR = 99 };

static void start(rig *r, const char *options)
{
    pd_store_config config = durable_config();

    durable_job_start(r, &config, options);
}

/* Takes a step that closes, or does not. */
static void expect_step(rig *r, uint64_t step, bool closes)
{
    durable_job_step(r, step);
    assert_int_equal(durable_job_step_of(r, 0), closes ? step : step - 1);
    assert_int_equal(durable_job_step_of(r, 1), closes ? step : step - 1);
}

static const pd_job_info *listed(rig *r)
{
    return rig_ask(r, PD_INFO_JOBS, NULL)->jobs;
}

static void assert_trouble(rig *r, const char *text)
{
    if (strstr(listed(r)->checkpoint_error, text) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", text, listed(r)->checkpoint_error);
}

TEST(a_checkpoint_that_does_not_come_back_is_told_and_the_job_goes_on)
{
    uint64_t warnings;
    rig r;

    start(&r, "checkpoint_every=2");
    r.lazy_disk = true;
    for (uint64_t step = 1; step <= 3; step++) expect_step(&r, step, true);
    warnings = r.warnings;
    rig_sleep(&r, 29);
    assert_int_equal(r.warnings, warnings);
    rig_sleep(&r, 2);
    assert_int_equal(r.warnings, warnings + 1);
    assert_non_null(strstr(r.warning, "the disk has not answered for 31 s: it has the checkpoint of step 2;"));
    assert_non_null(strstr(r.warning, "steps up to 0 are durable"));
    assert_trouble(&r, "the disk has not answered for 31 s: it has the checkpoint of step 2");
    rig_sleep(&r, 9);
    assert_trouble(&r, "for 40 s");
    expect_step(&r, 4, true);
    expect_step(&r, 5, true);
    rig_write_checkpoint(&r);
    rig_work(&r);
    assert_int_equal(r.durable, 2);
    assert_string_equal(listed(&r)->checkpoint_error, "");
    rig_free(&r);
}

TEST(a_disk_that_does_not_answer_is_told_again_after_twice_as_long)
{
    uint64_t warnings;
    rig r;

    start(&r, "checkpoint_every=2");
    r.lazy_disk = true;
    for (uint64_t step = 1; step <= 2; step++) expect_step(&r, step, true);
    warnings = r.warnings;
    for (int second = 1; second <= 250; second++) rig_sleep(&r, 1);
    assert_int_equal(r.warnings, warnings + 4); /* after 30, 60, 120 and 240 s */
    rig_free(&r);
}

TEST(a_job_that_pauses_waits_for_a_disk_that_does_not_answer)
{
    rig r;

    start(&r, "checkpoint_every=2 on_disk_error=pause disk_timeout=5s");
    r.lazy_disk = true;
    for (uint64_t step = 1; step <= 3; step++) expect_step(&r, step, true);
    rig_sleep(&r, 6);
    assert_non_null(strstr(r.warning, "paused after step 3 until a checkpoint is durable"));
    expect_step(&r, 4, false);
    assert_string_equal(listed(&r)->waits_for, "a checkpoint");
    assert_null(inside_job(r.store, r.job)->steps.wal->inputs.at); /* no budget counts it for this job */
    rig_write_checkpoint(&r);
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 0), 4);
    expect_step(&r, 5, true);
    rig_free(&r);
}

TEST(a_parameter_behind_the_others_reaches_the_step_at_which_the_job_pauses)
{
    rig r;

    start(&r, "checkpoint_every=2 on_disk_error=pause disk_timeout=5s");
    r.lazy_disk = true;
    for (uint64_t step = 1; step <= 2; step++) expect_step(&r, step, true);
    durable_job_step_one(&r, 0, 3);
    rig_sleep(&r, 6);
    durable_job_step_one(&r, 0, 4);
    assert_int_equal(durable_job_step_of(&r, 0), 3);
    durable_job_step_one(&r, 1, 3);
    durable_job_step_one(&r, 1, 4);
    assert_int_equal(durable_job_step_of(&r, 1), 3);
    rig_write_checkpoint(&r);
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 0), 4);
    assert_int_equal(durable_job_step_of(&r, 1), 4);
    rig_free(&r);
}

TEST(a_job_that_pauses_tries_checkpoints_until_one_is_written)
{
    uint64_t failed, tried;
    rig r;

    start(&r, "checkpoint_every=2 on_disk_error=pause");
    r.disk_error = "Input/output error";
    for (uint64_t step = 1; step <= 2; step++) expect_step(&r, step, true);
    expect_step(&r, 3, false);
    assert_trouble(&r, "Input/output error");
    failed = inside_job(r.store, r.job)->checkpointing.counts.failed;
    for (int second = 1; second <= 300; second++) {
        rig_sleep(&r, 1);
        rig_work(&r);
    }
    tried = inside_job(r.store, r.job)->checkpointing.counts.failed - failed;
    if (tried < 8 || tried > 12) fail_msg("%d checkpoints were tried in 300 s", (int)tried);
    assert_int_equal(durable_job_step_of(&r, 0), 2);
    r.disk_error = NULL;
    rig_sleep(&r, 61);
    rig_work(&r);
    assert_int_equal(r.durable, 2);
    assert_int_equal(durable_job_step_of(&r, 0), 3);
    assert_string_equal(listed(&r)->checkpoint_error, "");
    expect_step(&r, 4, true);
    rig_free(&r);
}

/* Breaks the connections of both workers, or lets them leave for good. */
static void end_workers(rig *r, pd_request_kind how)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        pd_request *request = pd_request_new(how, rig_ticket(r, DURABLE_CONN + rank));
        request->job = r->job;
        request->rank = rank;
        rig_apply(r, request);
    }
    rig_work(r);
}

/* Lets the disk fail at the last multiple, ends the workers, and checks that the checkpoint is tried until it is
 * written, again and again but not often. */
static void expect_retries(pd_request_kind how)
{
    uint64_t tried;
    rig r;

    start(&r, "checkpoint_every=2 job_linger=1h");
    durable_job_step(&r, 1);
    r.disk_error = "No space left on device";
    durable_job_step(&r, 2);
    end_workers(&r, how);
    tried = inside_job(r.store, r.job)->checkpointing.counts.failed;
    for (int second = 1; second <= 300; second++) {
        rig_sleep(&r, 1);
        rig_work(&r);
    }
    tried = inside_job(r.store, r.job)->checkpointing.counts.failed - tried;
    if (tried < 7 || tried > 12) fail_msg("%d checkpoints were tried in 300 s", (int)tried);
    assert_int_equal(r.durable, 0);
    r.disk_error = NULL;
    rig_sleep(&r, 61);
    rig_work(&r);
    assert_int_equal(r.durable, 2);
    assert_string_equal(listed(&r)->checkpoint_error, "");
    tried = r.kept;
    rig_sleep(&r, 300);
    rig_work(&r);
    assert_int_equal(r.kept, tried);
    rig_free(&r);
}

HOLDS(a_job_that_lingers_after_a_full_disk_tries_its_checkpoint_again, expect_retries(PD_REQ_LOST));

HOLDS(a_job_that_is_over_after_a_full_disk_tries_its_checkpoint_again, expect_retries(PD_REQ_LEAVE));

TEST(failures_in_training_do_not_delay_the_first_attempt_without_workers)
{
    rig r;

    start(&r, "checkpoint_every=1 job_linger=1h");
    r.disk_error = "No space left on device";
    for (uint64_t step = 1; step <= 10; step++) durable_job_step(&r, step);
    end_workers(&r, PD_REQ_LOST);
    r.disk_error = NULL;
    rig_sleep(&r, 1.1);
    rig_work(&r);
    assert_int_equal(r.durable, 10);
    rig_free(&r);
}

TEST(a_job_that_trains_tries_its_checkpoint_at_the_next_multiple_alone)
{
    uint64_t failed;
    rig r;

    start(&r, "checkpoint_every=2");
    r.disk_error = "No space left on device";
    for (uint64_t step = 1; step <= 3; step++) durable_job_step(&r, step);
    failed = inside_job(r.store, r.job)->checkpointing.counts.failed;
    rig_sleep(&r, 300);
    rig_work(&r);
    assert_int_equal(inside_job(r.store, r.job)->checkpointing.counts.failed, failed);
    rig_free(&r);
}

TEST(a_job_that_is_clipping_gradients_pauses_after_their_step)
{
    pd_store_config config = durable_config();
    const pd_steps *steps;
    rig r;

    config.batch_ns = 1;
    durable_job_start(&r, &config, "checkpoint_every=2 on_disk_error=pause clip_global_norm=0.1");
    steps = &inside_job(r.store, r.job)->steps;
    r.lazy_disk = true;
    for (uint64_t step = 1; step <= 2; step++) expect_step(&r, step, true);
    for (uint32_t i = 0; i < 4; i++) durable_job_push(&r, i / 2, i % 2, 3);
    while (!pd_global_clip_runs(steps)) assert_true(pd_store_work(r.store, r.now));
    r.disk_error = "Input/output error";
    rig_write_checkpoint(&r);
    assert_true(pd_steps_are_paused(steps));
    r.disk_error = NULL;
    r.lazy_disk = false;
    rig_work(&r);
    assert_int_equal(r.durable, 3); /* the next checkpoint waits for nothing */
    expect_step(&r, 4, true);
    rig_free(&r);
}

TEST(a_paused_job_that_is_exported_sleeps_until_the_export_has_ended)
{
    rig r;

    start(&r, "checkpoint_every=2 on_disk_error=pause");
    r.disk_error = "Input/output error";
    for (uint64_t step = 1; step <= 2; step++) expect_step(&r, step, true);
    r.disk_error = NULL;
    assert_int_equal(export_begin(&r, "job", OPERATOR, true, 30), PD_OK);
    rig_sleep(&r, 5);
    rig_work(&r);
    assert_true(pd_store_next_tick(r.store) > r.now); /* the step thread would not sleep otherwise */
    assert_int_equal(r.durable, 0);
    assert_int_equal(export_end(&r, "job", OPERATOR), PD_OK);
    rig_work(&r);
    assert_int_equal(r.durable, 2);
    expect_step(&r, 3, true);
    rig_free(&r);
}

TEST(a_paused_job_does_not_keep_a_drain_waiting)
{
    rig r;

    start(&r, "checkpoint_every=2 on_disk_error=pause");
    r.disk_error = "Input/output error";
    for (uint64_t step = 1; step <= 2; step++) expect_step(&r, step, true);
    expect_step(&r, 3, false);
    assert_true(rig_drain(&r, OPERATOR, 30));
    rig_free(&r);
}

#define LOG "durability=log checkpoint_every=100"

TEST(a_job_whose_log_does_not_answer_goes_on_and_logs_again_later)
{
    uint64_t step = 1;
    rig r;

    start(&r, LOG);
    r.lazy_wal = true;
    for (; step <= PD_WAL_MOST; step++) expect_step(&r, step, true);
    expect_step(&r, step, false);
    rig_sleep(&r, 31);
    assert_non_null(strstr(r.warning, "the disk has not answered for 31 s: it has 4 WAL records"));
    assert_trouble(&r, "the disk has not answered for 31 s: it has WAL records");
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 0), step); /* it goes on */
    for (step++; step <= 10; step++) expect_step(&r, step, true);
    assert_true(r.durable >= 5); /* by a checkpoint */
    assert_int_equal(r.n_logging, PD_WAL_MOST);
    r.lazy_wal = false; /* the disk answers */
    while (r.n_logging > 0) rig_write_record(&r);
    for (; step <= 14; step++) expect_step(&r, step, true);
    assert_int_equal(r.durable, 14);
    assert_true(pd_wal_records_steps(&inside_job(r.store, r.job)->steps));
    assert_string_equal(listed(&r)->checkpoint_error, "");
    rig_free(&r);
}

TEST(a_job_whose_log_does_not_answer_waits_if_it_is_to_pause)
{
    rig r;

    start(&r, LOG " on_disk_error=pause disk_timeout=1s");
    r.lazy_wal = true;
    for (uint64_t step = 1; step <= PD_WAL_MOST; step++) expect_step(&r, step, true);
    rig_sleep(&r, 2);
    assert_non_null(strstr(r.warning, "the job waits for the disk (on_disk_error)"));
    expect_step(&r, PD_WAL_MOST + 1, false);
    rig_sleep(&r, 1000);
    assert_int_equal(durable_job_step_of(&r, 0), PD_WAL_MOST);
    r.lazy_wal = false;
    while (r.n_logging > 0) rig_write_record(&r);
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 0), PD_WAL_MOST + 1);
    assert_int_equal(r.durable, PD_WAL_MOST + 1);
    rig_free(&r);
}

TEST(a_job_that_goes_on_does_not_wait_for_the_checkpoint_before_its_log)
{
    uint64_t step = 2;
    rig r;

    start(&r, LOG);
    r.wal_error = "Input/output error";
    r.lazy_disk = true;
    expect_step(&r, 1, true); /* its entry fails, and the next checkpoint does not come back */
    r.wal_error = NULL;
    while (r.checkpointing == NULL) expect_step(&r, step++, true);
    for (int i = 0; i < PD_WAL_MOST; i++) expect_step(&r, step++, true);
    expect_step(&r, step, false);
    rig_sleep(&r, 31);
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 0), step);
    for (step++; step <= 20; step++) expect_step(&r, step, true);
    r.lazy_disk = false; /* the disk answers */
    rig_write_checkpoint(&r);
    for (; step <= 24; step++) expect_step(&r, step, true);
    assert_int_equal(r.durable, 24);
    assert_true(pd_wal_records_steps(&inside_job(r.store, r.job)->steps));
    rig_free(&r);
}

TEST(a_job_whose_log_fails_pauses_until_the_next_checkpoint)
{
    rig r;

    start(&r, LOG " on_disk_error=pause");
    expect_step(&r, 1, true);
    r.wal_error = r.disk_error = "Input/output error";
    expect_step(&r, 2, true);
    expect_step(&r, 3, false);
    assert_int_equal(r.durable, 1);
    r.wal_error = r.disk_error = NULL;
    rig_sleep(&r, 61);
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 0), 3);
    assert_int_equal(r.durable, 3);
    rig_free(&r);
}
