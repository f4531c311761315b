/* Tests lines of the log, and that logging goes on when nobody reads the log. */
#define _GNU_SOURCE /* pipe2 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test.h"
#include "log.h"

WITH_THREADS();

#define NOON 1795176000123u /* 2026-11-20T12:00:00.123Z */

/* Returns a log entry whose text is an unchanged copy of `message`. */
static const pd_log_entry *entry_of(int level, const char *message)
{
    static pd_log_entry entry;

    entry = (pd_log_entry){ .level = level };
    snprintf(entry.text, sizeof entry.text, "%s", message);
    return &entry;
}

static const char *print(pd_log_style style, const pd_log_entry *entry)
{
    static char text[320];
    size_t n = pd_log_line(text, sizeof text, style, NOON, entry);

    assert_true(n < sizeof text);
    assert_int_equal(text[n - 1], '\n');
    assert_int_equal(strlen(text), n);
    return text;
}

static const char *line(pd_log_style style, int level, const char *message)
{
    return print(style, entry_of(level, message));
}

static void make_entry(pd_log_entry *entry, pd_log_facts facts, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void make_entry(pd_log_entry *entry, pd_log_facts facts, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    pd_log_entry_make(entry, LOG_INFO, facts, format, args);
    va_end(args);
}

TEST(text_tells_time_and_what_is_urgent)
{
    pd_log_style style = { .format = PD_LOG_TEXT, .time = true };

    assert_string_equal(line(style, LOG_INFO, "hello"), "2026-11-20T12:00:00.123Z hello\n");
    assert_string_equal(line(style, LOG_ERR, "oh no"), "2026-11-20T12:00:00.123Z error: oh no\n");
}

TEST(the_journal_gets_priorities_and_no_time)
{
    pd_log_style style = { .format = PD_LOG_TEXT, .prefix = true };
    assert_string_equal(line(style, LOG_NOTICE, "listening"), "<5>listening\n");
}

TEST(logfmt_quotes)
{
    pd_log_style style = { .format = PD_LOG_LOGFMT, .time = true };
    assert_string_equal(line(style, LOG_WARNING, "job \"a\" is lost"),
                        "time=2026-11-20T12:00:00.123Z level=warning msg=\"job \\\"a\\\" is lost\"\n");
}

TEST(facts_are_fields_for_programs_and_prose_for_people)
{
    pd_log_style text = { .format = PD_LOG_TEXT }, json = { .format = PD_LOG_JSON }, fmt = { .format = PD_LOG_LOGFMT };
    uint32_t rank = 0;
    uint64_t step = 41;
    pd_log_entry entry;

    make_entry(&entry, (pd_log_facts){ .job = "a \"b\"", .rank = &rank, .step = &step, .code = PD_DEADLINE_EXCEEDED },
               "%s is late", "host:7");
    assert_string_equal(print(text, &entry), "job a \"b\": rank 0: host:7 is late\n");
    assert_string_equal(print(json, &entry), "{\"level\":\"info\",\"job\":\"a \\\"b\\\"\",\"rank\":0,\"step\":41,"
                                             "\"code\":\"DEADLINE_EXCEEDED\",\"message\":\"host:7 is late\"}\n");
    assert_string_equal(
        print(fmt, &entry),
        "level=info job=\"a \\\"b\\\"\" rank=0 step=41 code=\"DEADLINE_EXCEEDED\" msg=\"host:7 is late\"\n");
}

TEST(the_author_of_a_command_is_a_field_for_programs)
{
    pd_log_style text = { .format = PD_LOG_TEXT }, json = { .format = PD_LOG_JSON }, fmt = { .format = PD_LOG_LOGFMT };
    pd_log_entry entry;

    make_entry(&entry, (pd_log_facts){ .job = "lin", .author = "ann@host:7 (::1)" }, "drop");
    assert_string_equal(print(text, &entry), "job lin: drop, by ann@host:7 (::1)\n");
    assert_string_equal(print(json, &entry), "{\"level\":\"info\",\"job\":\"lin\",\"author\":\"ann@host:7 (::1)\","
                                             "\"message\":\"drop\"}\n");
    assert_string_equal(print(fmt, &entry), "level=info job=\"lin\" author=\"ann@host:7 (::1)\" msg=\"drop\"\n");
}

TEST(a_text_that_fills_its_entry_has_no_author)
{
    pd_log_style text = { .format = PD_LOG_TEXT };
    static char message[2 * sizeof((pd_log_entry *)0)->text];
    pd_log_entry entry;

    for (size_t n = sizeof entry.text - 10; n < sizeof entry.text + 10; n++) {
        memset(message, 'm', n);
        make_entry(&entry, (pd_log_facts){ .author = "ann" }, "%s", message);
        assert_true(strlen(entry.text) < sizeof entry.text);
        if (entry.author > 0)
            assert_int_equal(strncmp(entry.text + entry.author, "ann", strlen(entry.text + entry.author)), 0);
        assert_non_null(print(text, &entry));
    }
}

TEST(a_line_has_only_the_fields_that_it_is_about)
{
    pd_log_style json = { .format = PD_LOG_JSON };
    uint32_t rank = 3;
    pd_log_entry entry;

    make_entry(&entry, (pd_log_facts){ .rank = &rank }, "connection closed");
    assert_string_equal(print(json, &entry), "{\"level\":\"info\",\"rank\":3,\"message\":\"connection closed\"}\n");
    make_entry(&entry, (pd_log_facts){ 0 }, "stopped");
    assert_string_equal(print(json, &entry), "{\"level\":\"info\",\"message\":\"stopped\"}\n");
}

TEST(the_longest_job_name_leaves_room_for_a_message)
{
    pd_log_style json = { .format = PD_LOG_JSON };
    char name[257], text[1024], expected[300];
    pd_log_entry entry;

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    make_entry(&entry, (pd_log_facts){ .job = name }, "created for %d workers", 8);
    text[pd_log_line(text, sizeof text - 1, json, NOON, &entry)] = '\0';
    snprintf(expected, sizeof expected, "\"job\":\"%s\"", name);
    assert_non_null(strstr(text, expected));
    assert_non_null(strstr(text, "\"message\":\"created for 8 workers\"}\n"));
}

TEST(json_escapes)
{
    pd_log_style style = { .format = PD_LOG_JSON, .time = true };
    assert_string_equal(
        line(style, LOG_INFO, "tab\there \\ \"q\""),
        "{\"time\":\"2026-11-20T12:00:00.123Z\",\"level\":\"info\",\"message\":\"tab\\u0009here \\\\ \\\"q\\\"\"}\n");
}

TEST(one_message_is_one_line_whatever_it_holds)
{
    pd_log_style style = { .format = PD_LOG_TEXT };
    assert_string_equal(line(style, LOG_INFO, "a\nforged\rline\033[31m"), "a?forged?line?[31m\n");
}

TEST(directions_c1_controls_and_broken_bytes_do_not_reach_the_log)
{
    static const char message[] = "r\u00e9\xe2\x80\xae"
                                  "b\xc2\x9b"
                                  "c\xff\xf3\xa0\x81\x81";
    pd_log_style plain = { .format = PD_LOG_TEXT }, json = { .format = PD_LOG_JSON }, fmt = { .format = PD_LOG_LOGFMT };

    assert_string_equal(line(plain, LOG_INFO, message), "r\u00e9?b?c??\n");
    assert_string_equal(line(json, LOG_INFO, message),
                        "{\"level\":\"info\",\"message\":\"r\u00e9\\u202eb\\u009bc?\\udb40\\udc41\"}\n");
    assert_string_equal(line(fmt, LOG_INFO, message), "level=info msg=\"r\u00e9\\u202eb\\u009bc?\\udb40\\udc41\"\n");
}

TEST(a_line_is_cut_between_two_characters_and_between_two_escapes)
{
    pd_log_style plain = { .format = PD_LOG_TEXT }, json = { .format = PD_LOG_JSON };
    char message[200] = "", text[128];

    for (size_t size = 40; size < 52; size++) {
        size_t n;
        memset(message, 0, sizeof message);
        for (int i = 0; i < 60; i++) strcat(message, "\u20ac");
        n = pd_log_line(text, size, plain, NOON, entry_of(LOG_INFO, message));
        assert_int_equal((n - 1) % 3, 0);
        memset(message, '\033', 60);
        message[60] = '\0';
        n = pd_log_line(text, size, json, NOON, entry_of(LOG_INFO, message));
        assert_memory_equal(text + n - 9, "\\u001b\"}\n", 9);
    }
}

TEST(a_long_line_is_cut_and_stays_well_formed)
{
    char message[600], text[64];
    pd_log_style json = { .format = PD_LOG_JSON }, plain = { .format = PD_LOG_TEXT };
    size_t n;

    memset(message, '"', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    n = pd_log_line(text, sizeof text, json, NOON, entry_of(LOG_INFO, message));
    assert_true(n < sizeof text);
    assert_memory_equal(text + n - 3, "\"}\n", 3);
    assert_int_not_equal(text[n - 4], '\\');
    n = pd_log_line(text, sizeof text, plain, NOON, entry_of(LOG_INFO, message));
    assert_true(n < sizeof text);
    assert_int_equal(text[n - 1], '\n');
}

/* Sets JOURNAL_STREAM to the device and inode of this file. `more` is added to the inode: a value other than 0 names
 * another file. */
static void name_journal(int fd, unsigned more)
{
    struct stat found;
    char text[64];

    assert_int_equal(fstat(fd, &found), 0);
    snprintf(text, sizeof text, "%llu:%llu", (unsigned long long)found.st_dev, (unsigned long long)found.st_ino + more);
    setenv("JOURNAL_STREAM", text, 1);
}

/* Logs one line while standard error is the pipe. JOURNAL_STREAM stays as the caller has set it. Writes the bytes
 * that arrive in the pipe to `got`. */
static void log_to(int pipes[2], char *got, size_t size)
{
    int saved = dup(STDERR_FILENO);
    ssize_t n;

    dup2(pipes[1], STDERR_FILENO);
    pd_log_open(LOG_NOTICE, PD_LOG_TEXT);
    pd_log(LOG_NOTICE, "listening");
    dup2(saved, STDERR_FILENO);
    n = read(pipes[0], got, size - 1);
    assert_true(n > 0);
    got[n] = '\0';
    close(saved);
}

TEST(priorities_are_for_the_journal_alone)
{
    int pipes[2];
    char got[128];

    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    name_journal(pipes[1], 0);
    log_to(pipes, got, sizeof got);
    assert_string_equal(got, "<5>listening\n");
    name_journal(pipes[1], 1); /* the variable is inherited from a parent process, whose standard error is the
                                * journal; ours is a pipe */
    log_to(pipes, got, sizeof got);
    assert_string_equal(got + strlen(got) - 12, "Z listening\n");
    assert_int_equal(got[0], '2');
    unsetenv("JOURNAL_STREAM");
    log_to(pipes, got, sizeof got);
    assert_int_equal(got[0], '2');
    close(pipes[0]);
    close(pipes[1]);
}

TEST(the_level_changes_while_it_runs)
{
    int pipes[2], saved = dup(STDERR_FILENO);
    char got[128] = "";

    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    dup2(pipes[1], STDERR_FILENO);
    name_journal(pipes[1], 0);
    pd_log_open(LOG_WARNING, PD_LOG_TEXT);
    pd_log(LOG_INFO, "not this");
    pd_log_set_level(LOG_DEBUG);
    pd_log(LOG_DEBUG, "but this");
    dup2(saved, STDERR_FILENO);
    assert_true(read(pipes[0], got, sizeof got - 1) > 0);
    assert_string_equal(got, "<7>but this\n");
    close(pipes[0]);
    close(pipes[1]);
    close(saved);
}

TEST(writes_lines_as_urgent_as_was_asked_for)
{
    int pipes[2], saved = dup(STDERR_FILENO);
    char got[256] = "";

    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    dup2(pipes[1], STDERR_FILENO);
    name_journal(pipes[1], 0);
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

/* Replaces the standard error by a pipe that nobody reads yet. */
typedef struct dam {
    int pipes[2], saved;
} dam;

static void set_up(dam *d)
{
    assert_int_equal(pipe2(d->pipes, 0), 0);
    d->saved = dup(STDERR_FILENO);
    dup2(d->pipes[1], STDERR_FILENO);
    name_journal(d->pipes[1], 0);
    pd_log_open(LOG_NOTICE, PD_LOG_TEXT);
}

static void tear_down(dam *d)
{
    close(d->pipes[0]);
    close(d->pipes[1]);
    close(d->saved);
}

FIXTURE(dam, set_up, tear_down);

static void start(void)
{
    pd_error err;
    if (pd_log_start(&err) != PD_OK) fail_msg("%s", err.text);
}

/* Stops the log's writer thread and restores the standard error. */
static void stop(dam *d)
{
    pd_log_stop();
    dup2(d->saved, STDERR_FILENO);
    close(d->pipes[1]);
    d->pipes[1] = -1;
}

/* Logs a line as if it came from call site number `site`. */
static void log_at(uint64_t site, const char *text)
{
    pd_log_entry entry = *entry_of(LOG_NOTICE, text);

    entry.site = site;
    pd_log_put(&entry);
}

/* Enough lines to fill the pipe and the log's ring, and to lose some. Each line has another call site. */
enum { FLOOD = 4000, LINE = 100 };

static void flood(void)
{
    char text[LINE];

    for (uint64_t i = 0; i < FLOOD; i++) {
        snprintf(text, sizeof text, "line %llu %070d", (unsigned long long)i, 0);
        log_at(i, text);
    }
}

/* Reads the pipe until its other end is closed. Returns the text, which the caller frees. */
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

TEST(a_pipe_that_nobody_reads_stops_nobody_who_logs, dam *d)
{
    pthread_t reader;
    void *got;

    start();
    flood(); /* must return, although nobody reads the pipe */
    assert_int_equal(pthread_create(&reader, NULL, read_all, d), 0);
    stop(d);
    pthread_join(reader, &got);
    free(got);
}

/* Returns the number of lost lines, summed over all reports of lost lines in the text. */
static uint64_t count_lost(const char *text)
{
    uint64_t lost = 0;

    for (const char *at = text; (at = strstr(at, " lines of the log: the standard error")) != NULL; at++) {
        const char *number = at;
        while (number[-1] != ' ') number--;
        lost += strtoull(number, NULL, 10);
    }
    return lost;
}

TEST(lost_lines_are_counted_and_told, dam *d)
{
    pthread_t reader;
    void *got;

    start();
    flood();
    assert_int_equal(pthread_create(&reader, NULL, read_all, d), 0);
    stop(d);
    pthread_join(reader, &got);
    assert_true(count_lost(got) > 0);
    assert_int_equal(count_lines(got, "<5>line ") + count_lost(got), FLOOD);
    free(got);
}

TEST(lines_come_in_order_and_whole, dam *d)
{
    pthread_t reader;
    char expected[16];
    const char *at;
    void *got;

    start();
    assert_int_equal(pthread_create(&reader, NULL, read_all, d), 0);
    for (uint64_t i = 0; i < 1000; i++) {
        snprintf(expected, sizeof expected, "%llu", (unsigned long long)i);
        log_at(i, expected);
    }
    stop(d);
    pthread_join(reader, &got);
    at = got;
    for (int i = 0; i < 1000; i++) {
        int n = snprintf(expected, sizeof expected, "<5>%d\n", i);
        assert_memory_equal(at, expected, (size_t)n);
        at += n;
    }
    free(got);
}

TEST(stopping_does_not_wait_long_for_a_pipe_that_nobody_reads, dam *d)
{
    pid_t child = fork();
    int status;

    if (child == 0) { /* a process of its own: the log's writer thread is stuck for ever, and ends with the process */
        start();
        flood();
        pd_log_stop();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    dup2(d->saved, STDERR_FILENO);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(lines_that_wait_are_written_before_an_abort, dam *d)
{
    pid_t child = fork();
    int status;
    char *got;

    if (child == 0) {
        start();
        for (uint64_t i = 0; i < 100; i++) log_at(i, "it happened because");
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
