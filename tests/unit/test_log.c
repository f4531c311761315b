#define _GNU_SOURCE         /* pipe2 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"

#define NOON 1795176000123u             /* 2026-11-20T12:00:00.123Z */

static const char *line(pd_log_style style, int level, const char *message)
{
    static char text[256];
    size_t n = pd_log_line(text, sizeof text, style, level, NOON, message);

    assert_true(n < sizeof text);
    assert_int_equal(text[n - 1], '\n');
    assert_int_equal(strlen(text), n);
    return text;
}

static void text_tells_time_and_what_is_urgent(void **state)
{
    pd_log_style style = { .format = PD_LOG_TEXT, .time = true };
    (void)state;

    assert_string_equal(line(style, LOG_INFO, "hello"), "2026-11-20T12:00:00.123Z hello\n");
    assert_string_equal(line(style, LOG_ERR, "oh no"), "2026-11-20T12:00:00.123Z error: oh no\n");
}

static void the_journal_gets_priorities_and_no_time(void **state)
{
    pd_log_style style = { .format = PD_LOG_TEXT, .prefix = true };
    (void)state;
    assert_string_equal(line(style, LOG_NOTICE, "listening"), "<5>listening\n");
}

static void logfmt_quotes(void **state)
{
    pd_log_style style = { .format = PD_LOG_LOGFMT, .time = true };
    (void)state;
    assert_string_equal(line(style, LOG_WARNING, "job \"a\" is lost"),
                        "time=2026-11-20T12:00:00.123Z level=warning msg=\"job \\\"a\\\" is lost\"\n");
}

static void json_escapes(void **state)
{
    pd_log_style style = { .format = PD_LOG_JSON, .time = true };
    (void)state;
    assert_string_equal(line(style, LOG_INFO, "tab\there \\ \"q\""),
                        "{\"time\":\"2026-11-20T12:00:00.123Z\",\"level\":\"info\",\"message\":\"tab\\u0009here \\\\ \\\"q\\\"\"}\n");
}

static void one_message_is_one_line_whatever_it_holds(void **state)
{
    pd_log_style style = { .format = PD_LOG_TEXT };
    (void)state;
    assert_string_equal(line(style, LOG_INFO, "a\nforged\rline\033[31m"), "a?forged?line?[31m\n");
}

static void directions_c1_controls_and_broken_bytes_do_not_reach_the_log(void **state)
{
    static const char message[] = "r\u00e9\xe2\x80\xae" "b\xc2\x9b" "c\xff\xf3\xa0\x81\x81";
    pd_log_style plain = { .format = PD_LOG_TEXT }, json = { .format = PD_LOG_JSON }, fmt = { .format = PD_LOG_LOGFMT };
    (void)state;

    assert_string_equal(line(plain, LOG_INFO, message), "r\u00e9?b?c??\n");
    assert_string_equal(line(json, LOG_INFO, message), "{\"level\":\"info\",\"message\":\"r\u00e9\\u202eb\\u009bc?\\udb40\\udc41\"}\n");
    assert_string_equal(line(fmt, LOG_INFO, message), "level=info msg=\"r\u00e9\\u202eb\\u009bc?\\udb40\\udc41\"\n");
}

static void a_line_is_cut_between_two_characters_and_between_two_escapes(void **state)
{
    pd_log_style plain = { .format = PD_LOG_TEXT }, json = { .format = PD_LOG_JSON };
    char message[200] = "", text[128];
    (void)state;

    for (size_t size = 40; size < 52; size++) {
        size_t n;
        memset(message, 0, sizeof message);
        for (int i = 0; i < 60; i++) strcat(message, "\u20ac");
        n = pd_log_line(text, size, plain, LOG_INFO, NOON, message);
        assert_int_equal((n - 1) % 3, 0);
        memset(message, '\033', 60);
        message[60] = '\0';
        n = pd_log_line(text, size, json, LOG_INFO, NOON, message);
        assert_memory_equal(text + n - 9, "\\u001b\"}\n", 9);
    }
}

static void a_long_line_is_cut_and_stays_well_formed(void **state)
{
    char message[600], text[64];
    pd_log_style json = { .format = PD_LOG_JSON }, plain = { .format = PD_LOG_TEXT };
    size_t n;
    (void)state;

    memset(message, '"', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    n = pd_log_line(text, sizeof text, json, LOG_INFO, NOON, message);
    assert_true(n < sizeof text);
    assert_memory_equal(text + n - 3, "\"}\n", 3);
    assert_int_not_equal(text[n - 4], '\\');
    n = pd_log_line(text, sizeof text, plain, LOG_INFO, NOON, message);
    assert_true(n < sizeof text);
    assert_int_equal(text[n - 1], '\n');
}

static void a_site_that_repeats_itself_is_silenced_and_counted(void **state)
{
    enum { site = 17, other = 18 };
    unsigned missed;
    int spoken = 0;
    (void)state;

    for (int i = 0; i < PD_LOG_BURST + 50; i++) spoken += pd_log_may_speak(site, 1000, &missed);
    assert_int_equal(spoken, PD_LOG_BURST);
    assert_true(pd_log_may_speak(other, 1000, &missed));
    assert_true(pd_log_may_speak(site, 1000 + PD_LOG_WINDOW_S, &missed));
    assert_int_equal(missed, 50);
    assert_true(pd_log_may_speak(site, 1000 + PD_LOG_WINDOW_S, &missed));
    assert_int_equal(missed, 0);
}

static void writes_lines_as_urgent_as_was_asked_for(void **state)
{
    int pipes[2], saved = dup(STDERR_FILENO);
    char got[256] = "";
    (void)state;

    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    dup2(pipes[1], STDERR_FILENO);
    setenv("JOURNAL_STREAM", "1:2", 1);
    pd_log_open(LOG_NOTICE, PD_LOG_TEXT);
    pd_log(LOG_INFO, "not this");
    pd_log(LOG_NOTICE, "but %d", 42);
    dup2(saved, STDERR_FILENO);
    assert_true(read(pipes[0], got, sizeof got - 1) > 0);
    assert_string_equal(got, "<5>but 42\n");
    close(pipes[0]);
    close(pipes[1]);
    close(saved);
}

/* ---- the thread that writes ---- */

/* The standard error becomes a pipe that nobody reads yet. */
typedef struct dam { int pipes[2], saved; } dam;

static int set_up(void **state)
{
    static dam d;

    assert_int_equal(pipe2(d.pipes, 0), 0);
    d.saved = dup(STDERR_FILENO);
    setenv("JOURNAL_STREAM", "1:2", 1);
    pd_log_open(LOG_NOTICE, PD_LOG_TEXT);
    dup2(d.pipes[1], STDERR_FILENO);
    *state = &d;
    return 0;
}

static int tear_down(void **state)
{
    dam *d = *state;

    close(d->pipes[0]);
    close(d->pipes[1]);
    close(d->saved);
    return 0;
}

static void start(void)
{
    pd_error err;
    if (pd_log_start(&err) != PD_OK) fail_msg("%s", err.text);
}

/* Ends the writer, and gives the standard error back. */
static void stop(dam *d)
{
    pd_log_stop();
    dup2(d->saved, STDERR_FILENO);
    close(d->pipes[1]);
    d->pipes[1] = -1;
}

/* Enough for the pipe, for the ring and for more; each line from a site of its own. */
enum { FLOOD = 4000, LINE = 100 };

static void flood(void)
{
    char text[LINE];

    for (uint64_t i = 0; i < FLOOD; i++) {
        snprintf(text, sizeof text, "line %llu %070d", (unsigned long long)i, 0);
        pd_log_text(LOG_NOTICE, i, text);
    }
}

/* Reads until the other end is closed. The caller frees. */
static void *read_all(void *arg)
{
    const dam *d = arg;
    size_t used = 0, size = 1 << 20;
    char *got = calloc(1, size);
    ssize_t n;

    assert_non_null(got);
    while (used + 1 < size && (n = read(d->pipes[0], got + used, size - used - 1)) > 0) used += (size_t)n;
    return got;
}

static size_t count_lines(const char *text, const char *begin)
{
    size_t n = 0;

    for (const char *at = text; (at = strstr(at, begin)) != NULL; at++) n++;
    return n;
}

static void a_pipe_that_nobody_reads_stops_nobody_who_logs(void **state)
{
    pthread_t reader;
    void *got;

    start();
    flood();                            /* would wait for ever */
    assert_int_equal(pthread_create(&reader, NULL, read_all, *state), 0);
    stop(*state);
    pthread_join(reader, &got);
    free(got);
}

/* Sums up what the reports of lost lines say. */
static uint64_t count_lost(const char *text)
{
    uint64_t lost = 0;

    for (const char *at = text; (at = strstr(at, " lines of the log were lost")) != NULL; at++) {
        const char *number = at;
        while (number[-1] != ' ') number--;
        lost += strtoull(number, NULL, 10);
    }
    return lost;
}

static void lost_lines_are_counted_and_told(void **state)
{
    pthread_t reader;
    void *got;

    start();
    flood();
    assert_int_equal(pthread_create(&reader, NULL, read_all, *state), 0);
    stop(*state);
    pthread_join(reader, &got);
    assert_true(count_lost(got) > 0);
    assert_int_equal(count_lines(got, "<5>line ") + count_lost(got), FLOOD);
    free(got);
}

static void lines_come_in_order_and_whole(void **state)
{
    pthread_t reader;
    char expected[16];
    const char *at;
    void *got;

    start();
    assert_int_equal(pthread_create(&reader, NULL, read_all, *state), 0);
    for (uint64_t i = 0; i < 1000; i++) {
        snprintf(expected, sizeof expected, "%llu", (unsigned long long)i);
        pd_log_text(LOG_NOTICE, i, expected);
    }
    stop(*state);
    pthread_join(reader, &got);
    at = got;
    for (int i = 0; i < 1000; i++) {
        int n = snprintf(expected, sizeof expected, "<5>%d\n", i);
        assert_memory_equal(at, expected, (size_t)n);
        at += n;
    }
    free(got);
}

static void stopping_does_not_wait_long_for_a_pipe_that_nobody_reads(void **state)
{
    dam *d = *state;
    pid_t child = fork();
    int status;

    if (child == 0) {                   /* its stuck writer ends with it */
        start();
        flood();
        pd_log_stop();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    dup2(d->saved, STDERR_FILENO);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void lines_that_wait_are_written_before_an_abort(void **state)
{
    dam *d = *state;
    pid_t child = fork();
    int status;
    char *got;

    if (child == 0) {
        start();
        for (uint64_t i = 0; i < 100; i++) pd_log_text(LOG_NOTICE, i, "it happened because");
        abort();
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    dup2(d->saved, STDERR_FILENO);
    close(d->pipes[1]);
    d->pipes[1] = -1;
    got = read_all(d);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_true(count_lines(got, "it happened because") >= 100);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_tells_time_and_what_is_urgent),
        cmocka_unit_test(the_journal_gets_priorities_and_no_time),
        cmocka_unit_test(logfmt_quotes),
        cmocka_unit_test(json_escapes),
        cmocka_unit_test(one_message_is_one_line_whatever_it_holds),
        cmocka_unit_test(directions_c1_controls_and_broken_bytes_do_not_reach_the_log),
        cmocka_unit_test(a_line_is_cut_between_two_characters_and_between_two_escapes),
        cmocka_unit_test(a_long_line_is_cut_and_stays_well_formed),
        cmocka_unit_test(a_site_that_repeats_itself_is_silenced_and_counted),
        cmocka_unit_test(writes_lines_as_urgent_as_was_asked_for),
        cmocka_unit_test_setup_teardown(a_pipe_that_nobody_reads_stops_nobody_who_logs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lost_lines_are_counted_and_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lines_come_in_order_and_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopping_does_not_wait_long_for_a_pipe_that_nobody_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lines_that_wait_are_written_before_an_abort, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
