/* Tests when a command that sets values is answered: when the disk has its record, or a checkpoint with the values. */
#include "test.h"
#include "durable_job.h"
#include "rig.h"

/* Sends a command, and returns whether it was answered at once: 1 or 0. */
static uint64_t answers_of(rig *r, const char *options)
{
    uint64_t before = r->answered;

    (void)rig_apply(r, rig_set_request(r, "job", "*", options, 0));
    return r->answered - before;
}

TEST(a_command_is_answered_when_the_disk_has_its_record)
{
    pd_store_config config = durable_config();
    uint64_t kept, answered;
    rig r;

    durable_job_start(&r, &config, "checkpoint_every=100");
    durable_job_step(&r, 1);
    kept = r.kept;
    r.lazy_wal = true;
    assert_int_equal(answers_of(&r, "lr=0.1"), 0);
    assert_int_equal(r.n_logging, 1);
    durable_job_step(&r, 2); /* no step waits for the disk */
    assert_int_equal(durable_job_step_of(&r, 0), 2);
    assert_int_equal(answers_of(&r, "lr=0.2"), 0);
    assert_int_equal(r.n_logging, 1);
    answered = r.answered;
    rig_write_record(&r);
    assert_int_equal(r.answered, answered + 1);
    assert_int_equal(r.n_logging, 1); /* both records would have come in one entry, had the first one waited */
    rig_write_record(&r);
    assert_int_equal(r.answered, answered + 2);
    assert_int_equal(r.kept, kept); /* no checkpoint was needed */
    rig_free(&r);
}

TEST(a_command_whose_record_fails_is_answered_with_the_next_checkpoint)
{
    pd_store_config config = durable_config();
    rig r;

    durable_job_start(&r, &config, "checkpoint_every=100");
    durable_job_step(&r, 1);
    r.wal_error = "an error of the disk";
    assert_int_equal(answers_of(&r, "lr=0.1"), 0);
    assert_null(r.set);
    durable_job_step(&r, 2);
    assert_int_equal(r.disk->step, 2);
    assert_non_null(r.set);
    rig_free(&r);
}

/* Starts a job, and sends it a command whose record stays on its way to the disk. */
static void start_with_command(rig *r)
{
    pd_store_config config = durable_config();

    durable_job_start(r, &config, "checkpoint_every=100");
    durable_job_step(r, 1);
    r->lazy_wal = true;
    assert_int_equal(answers_of(r, "lr=0.1"), 0);
}

TEST(a_command_that_waits_too_long_is_told_so)
{
    rig r;

    start_with_command(&r);
    rig_sleep(&r, 11);
    assert_int_equal(r.error.code, PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(r.error.text, "the values hold from step 2 on, but were not written for 10 s"));
    rig_free(&r);
}

TEST(a_late_error_of_an_entry_does_not_concern_commands_after_it)
{
    uint64_t answered;
    rig r;

    start_with_command(&r);
    durable_job_import_count(&r); /* the checkpoint that follows has the first command; records begin anew */
    assert_int_equal(r.disk->step, 1);
    durable_job_step(&r, 2);
    assert_int_equal(answers_of(&r, "lr=0.2"), 0);
    r.wal_error = "an error of the disk";
    rig_write_record(&r); /* the entry from before the checkpoint */
    r.wal_error = NULL;
    assert_int_equal(r.n_logging, 1);
    answered = r.answered;
    rig_write_record(&r);
    assert_int_equal(r.answered, answered + 1);
    rig_free(&r);
}

TEST(a_checkpoint_that_fails_does_not_lose_records_that_are_on_their_way)
{
    uint64_t answered;
    rig r;

    start_with_command(&r);
    r.disk_error = "an error of the disk";
    durable_job_import_count(&r);
    durable_job_step(&r, 2);
    answered = r.answered;
    rig_write_record(&r);
    assert_int_equal(r.answered, answered + 1);
    r.disk_error = NULL;
    rig_free(&r);
}
