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
    static const char site[] = "site", other[] = "other";
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
