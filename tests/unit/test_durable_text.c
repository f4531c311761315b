/* Tests the words in which paramctl says which step of a job survives a restart of the daemon. */
#include "test.h"
#include "commands.h"

static Paramd__JobInfo job_of(const char *durability, uint64_t step, uint64_t age_ms, const char *error)
{
    Paramd__JobInfo job = PARAMD__JOB_INFO__INIT;

    job.durability = (char *)durability;
    job.durable_step = step;
    job.checkpoint_age_ms = age_ms;
    job.checkpoint_error = (char *)error;
    return job;
}

static void assert_text(Paramd__JobInfo job, bool failing, const char *expected)
{
    char text[PD_DURABLE_TEXT];

    assert_int_equal(pd_durable_text(text, &job), failing);
    assert_string_equal(text, expected);
}

HOLDS(a_checkpoint_is_told_with_its_step_and_age,
      assert_text(job_of("checkpoint", 40, 12000, ""), false, "40 (12.0 s)"));

TEST(a_failed_attempt_is_told_beside_the_last_good_checkpoint)
{
    assert_text(job_of("checkpoint", 40, 12000, "the disk is full"), true, "40 (12.0 s, failing)");
    assert_text(job_of("checkpoint", 0, 0, "the disk is full"), true, "none (failing)");
}

TEST(the_step_that_the_mirror_has_is_told)
{
    Paramd__JobInfo job = job_of("log", 40, 12000, "");

    job.mirrored_step = 38;
    assert_text(job, false, "40 (12.0 s, mirror 38)");
}

TEST(a_job_that_has_no_checkpoint_yet_differs_from_one_that_makes_none)
{
    assert_text(job_of("checkpoint", 0, 0, ""), false, "none");
    assert_text(job_of("none", 0, 0, ""), false, "-");
    assert_text(job_of("", 0, 0, ""), false, "-"); /* a daemon that is older than checkpoints */
}
