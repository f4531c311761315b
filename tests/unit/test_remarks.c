/* Tests which log entries become remarks about a job, and which of them a worker gets that joins later. */
#include <syslog.h>

#include "test.h"
#include "paramd/error.h"
#include "loop.h"

static const pd_remark *say(pd_remarks *remarks, int level, pd_log_facts facts, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static const pd_remark *say(pd_remarks *remarks, int level, pd_log_facts facts, const char *format, ...)
{
    pd_log_entry entry;
    va_list args;

    va_start(args, format);
    pd_log_entry_make(&entry, level, facts, format, args);
    va_end(args);
    return pd_remarks_add(remarks, &entry);
}

static const pd_remark *warn(pd_remarks *remarks, const char *job, const char *text)
{
    return say(remarks, LOG_WARNING, (pd_log_facts){ .job = job }, "%s", text);
}

static int count(const pd_remarks *remarks, const char *job)
{
    uint64_t at = 0;
    int n = 0;

    while (pd_remarks_next(remarks, job, &at) != NULL) n++;
    return n;
}

static int set_up(void **state)
{
    *state = calloc(1, sizeof(pd_remarks));
    return *state == NULL;
}

static int tear_down(void **state)
{
    pd_remarks_free(*state);
    free(*state);
    return 0;
}

EACH_TEST(set_up, tear_down);

TEST(warnings_and_errors_about_a_job_are_remarks, void *given)
{
    const uint32_t rank = 3;
    const pd_remark *remark = say(given, LOG_WARNING, (pd_log_facts){ .job = "a", .rank = &rank }, "it is %s", "lost");

    assert_string_equal(remark->job, "a");
    assert_string_equal(remark->text, "rank 3: it is lost");
    assert_int_equal(remark->rank, 3);
    assert_int_equal(say(given, LOG_ERR, (pd_log_facts){ .job = "a" }, "disk")->rank, -1);
    assert_null(say(given, LOG_INFO, (pd_log_facts){ .job = "a" }, "created"));
    assert_null(say(given, LOG_WARNING, (pd_log_facts){ 0 }, "of the daemon"));
    assert_null(
        say(given, LOG_WARNING, (pd_log_facts){ .job = "a", .code = PD_DEADLINE_EXCEEDED }, "the call says so"));
    assert_int_equal(count(given, "a"), 2);
    assert_int_equal(count(given, "b"), 0);
}

TEST(texts_that_differ_in_numbers_alone_are_one_remark_of_a_job, void *given)
{
    assert_non_null(warn(given, "a", "step 9 of w is skipped (1 so far)"));
    assert_null(warn(given, "a", "step 10 of w is skipped (2.5 so far)"));
    assert_non_null(warn(given, "a", "step 10 of v is skipped (2 so far)"));
    assert_non_null(warn(given, "b", "step 10 of w is skipped (2 so far)"));
}

TEST(the_last_of_many_remarks_says_that_there_are_more, void *given)
{
    const pd_remark *last = NULL;
    char text[2] = "a";

    for (int i = 0; i < PD_REMARKS_OF_JOB; i++, text[0]++) assert_non_null(last = warn(given, "j", text));
    assert_string_equal(last->text, "there are more warnings about this job in the daemon's log");
    assert_null(warn(given, "j", "another"));
    assert_int_equal(count(given, "j"), PD_REMARKS_OF_JOB);
}

TEST(old_remarks_go_when_there_are_too_many_of_all_jobs, void *given)
{
    char job[16];

    for (int i = 0; i < PD_REMARKS + 5; i++) {
        snprintf(job, sizeof job, "j%d", i);
        assert_non_null(warn(given, job, "text"));
    }
    assert_int_equal(count(given, "j4"), 0);
    assert_int_equal(count(given, "j5"), 1);
    assert_int_equal(count(given, job), 1);
}

TEST(a_new_job_of_the_name_begins_without_remarks, void *given)
{
    warn(given, "a", "x");
    warn(given, "b", "x");
    pd_remarks_begin(given, "a");
    assert_int_equal(count(given, "a"), 0);
    assert_int_equal(count(given, "b"), 1);
    assert_non_null(warn(given, "a", "x"));
}
