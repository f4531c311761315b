/* Tests what `paramctl top` says of one job below the table. */
#include "test.h"
#include "top_sample.h"

static pd_top_job job_of(void)
{
    return (pd_top_job){ .name = "lin",
                         .optimizer = "adam",
                         .state = "running",
                         .connected = 2,
                         .world_size = 3,
                         .step = 41,
                         .speed = 12.5,
                         .has_loss = true,
                         .loss = 0.25,
                         .norm = 3.5,
                         .clipped = 2,
                         .waits_for = "1",
                         .waits_ms = 4200,
                         .memory = 4096,
                         .weights = 1024,
                         .state_bytes = 2048,
                         .total = { 40, { 4, 0, 2, 0 } },
                         .phase = { 0.1, 0.0005, 0.05, 1.5 } };
}

static const pd_top_detail *describe(const pd_top_job *job, const pd_top_late *late, size_t n)
{
    static pd_top_detail detail;

    pd_top_describe(&detail, job, late, n);
    assert_in_range(detail.n, 1, PD_TOP_LINES);
    return &detail;
}

/* Returns the line that begins with this word; NULL: there is none. */
static const char *line(const pd_top_detail *detail, const char *word)
{
    for (size_t i = 0; i < detail->n; i++)
        if (strncmp(detail->line[i], word, strlen(word)) == 0) return detail->line[i];
    return NULL;
}

static bool alarms(const pd_top_detail *detail)
{
    for (size_t i = 0; i < detail->n; i++)
        if (detail->alarm[i]) return true;
    return false;
}

TEST(a_job_is_described_in_lines_of_one_subject)
{
    static const pd_top_late late[] = { { 1, 0.82, 0.0123 }, { 0, 0.18, 0.001 } };
    pd_top_job job = job_of();
    const pd_top_detail *d = describe(&job, late, 2);

    assert_string_equal(d->line[0], "job lin: adam, running, 2 of 3 workers, step 41");
    assert_string_equal(line(d, "progress"), "progress    12.5 steps/s, loss 0.25, gradient norm 3.5, 2 steps clipped");
    assert_string_equal(line(d, "a step"), "a step      wait 100 ms, sum 0.50 ms, step 50.0 ms, publish 1.50 s");
    assert_string_equal(line(d, "waits"), "waits for   1, 4.2 s after the first contribution");
    assert_string_equal(line(d, "last"), "last        rank 1 82 % by 12.3 ms, rank 0 18 % by 1.00 ms");
    assert_string_equal(line(d, "memory"), "memory      4.0 KiB: weights 1.0 KiB, state 2.0 KiB, in flight 0 B");
    assert_string_equal(line(d, "traffic"), "traffic     0 B/s in, 0 B/s out");
    assert_string_equal(line(d, "checkpoint"), "checkpoint  none");
    assert_false(alarms(d));
}

TEST(a_job_that_has_just_begun_has_no_lines_of_what_is_unknown)
{
    pd_top_job job = { .name = "new", .state = "gathering", .world_size = 1 };
    const pd_top_detail *d = describe(&job, NULL, 0);

    assert_null(line(d, "a step"));
    assert_null(line(d, "last"));
    assert_null(line(d, "roots"));
    assert_string_equal(line(d, "progress"),
                        "progress    0.00 steps/s, loss none, gradient norm unknown, 0 steps clipped");
}

TEST(failing_roots_and_checkpoints_alarm)
{
    pd_top_job job = job_of();
    const pd_top_detail *d;

    job.has_roots = true;
    job.roots_due = 9;
    job.roots_failing = 1;
    d = describe(&job, NULL, 0);
    assert_true(alarms(d));
    assert_string_equal(line(d, "roots"), "roots       0 at work, oldest 0 steps, 1 failing, 0 of 9 failed, 0 waits");
    job.roots_failing = 0;
    job.checkpoint_failing = true;
    strcpy(job.checkpoint_error, "No space left on device");
    d = describe(&job, NULL, 0);
    assert_true(alarms(d));
    assert_string_equal(line(d, "checkpoint"), "checkpoint  failing: No space left on device");
}

TEST(a_loss_that_is_not_a_number_alarms)
{
    pd_top_job job = job_of();

    job.loss = NAN;
    assert_true(alarms(describe(&job, NULL, 0)));
}

TEST(names_of_peers_do_not_reach_the_terminal_as_they_are)
{
    pd_top_job job = job_of();

    strcpy(job.name, "a\033[31m");
    assert_non_null(strstr(describe(&job, NULL, 0)->line[0], "job a?[31m: "));
}
