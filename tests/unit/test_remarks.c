/* Tests which log entries become remarks about a job, and which of them a worker gets that joins later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <syslog.h>

#include <cmocka.h>

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

static void warnings_and_errors_about_a_job_are_remarks(void **state)
{
    const uint32_t rank = 3;
    const pd_remark *remark = say(*state, LOG_WARNING, (pd_log_facts){ .job = "a", .rank = &rank }, "it is %s", "lost");

    assert_string_equal(remark->job, "a");
    assert_string_equal(remark->text, "rank 3: it is lost");
    assert_int_equal(remark->rank, 3);
    assert_int_equal(say(*state, LOG_ERR, (pd_log_facts){ .job = "a" }, "disk")->rank, -1);
    assert_null(say(*state, LOG_INFO, (pd_log_facts){ .job = "a" }, "created"));
    assert_null(say(*state, LOG_WARNING, (pd_log_facts){ 0 }, "of the daemon"));
    assert_null(
        say(*state, LOG_WARNING, (pd_log_facts){ .job = "a", .code = PD_DEADLINE_EXCEEDED }, "the call says so"));
    assert_int_equal(count(*state, "a"), 2);
    assert_int_equal(count(*state, "b"), 0);
}

static void texts_that_differ_in_numbers_alone_are_one_remark_of_a_job(void **state)
{
    assert_non_null(warn(*state, "a", "step 9 of w is skipped (1 so far)"));
    assert_null(warn(*state, "a", "step 10 of w is skipped (2.5 so far)"));
    assert_non_null(warn(*state, "a", "step 10 of v is skipped (2 so far)"));
    assert_non_null(warn(*state, "b", "step 10 of w is skipped (2 so far)"));
}

static void the_last_of_many_remarks_says_that_there_are_more(void **state)
{
    const pd_remark *last = NULL;
    char text[2] = "a";

    for (int i = 0; i < PD_REMARKS_OF_JOB; i++, text[0]++) assert_non_null(last = warn(*state, "j", text));
    assert_string_equal(last->text, "there are more warnings about this job in the daemon's log");
    assert_null(warn(*state, "j", "another"));
    assert_int_equal(count(*state, "j"), PD_REMARKS_OF_JOB);
}

static void old_remarks_go_when_there_are_too_many_of_all_jobs(void **state)
{
    char job[16];

    for (int i = 0; i < PD_REMARKS + 5; i++) {
        snprintf(job, sizeof job, "j%d", i);
        assert_non_null(warn(*state, job, "text"));
    }
    assert_int_equal(count(*state, "j4"), 0);
    assert_int_equal(count(*state, "j5"), 1);
    assert_int_equal(count(*state, job), 1);
}

static void a_new_job_of_the_name_begins_without_remarks(void **state)
{
    warn(*state, "a", "x");
    warn(*state, "b", "x");
    pd_remarks_begin(*state, "a");
    assert_int_equal(count(*state, "a"), 0);
    assert_int_equal(count(*state, "b"), 1);
    assert_non_null(warn(*state, "a", "x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(warnings_and_errors_about_a_job_are_remarks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(texts_that_differ_in_numbers_alone_are_one_remark_of_a_job, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_of_many_remarks_says_that_there_are_more, set_up, tear_down),
        cmocka_unit_test_setup_teardown(old_remarks_go_when_there_are_too_many_of_all_jobs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_job_of_the_name_begins_without_remarks, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
