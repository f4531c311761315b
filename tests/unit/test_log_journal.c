/* Tests that entries of the log reach the systemd journal as fields. A socket of the test plays the journal. */
#define _GNU_SOURCE /* pipe2 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "test.h"
#include "logring.h"
#include "log.h"

WITH_THREADS();

/* The journal: its socket, and the pipe that is the standard error of the log meanwhile. */
typedef struct scene {
    char dir[32], path[64];
    int journal, pipes[2], saved;
} scene;

static void name_stderr(const scene *s)
{
    struct stat found;
    char text[64];

    assert_int_equal(fstat(s->pipes[1], &found), 0);
    snprintf(text, sizeof text, "%llu:%llu", (unsigned long long)found.st_dev, (unsigned long long)found.st_ino);
    setenv("JOURNAL_STREAM", text, 1);
}

static void listen_at(scene *s)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    strcpy(s->dir, "/tmp/journal.XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->path, sizeof s->path, "%s/socket", s->dir);
    strcpy(address.sun_path, s->path);
    s->journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(s->journal, (struct sockaddr *)&address, sizeof address), 0);
}

static void set_up(scene *s)
{
    listen_at(s);
    assert_int_equal(pipe2(s->pipes, O_NONBLOCK), 0);
    s->saved = dup(STDERR_FILENO);
    dup2(s->pipes[1], STDERR_FILENO);
    name_stderr(s);
    pd_log_open(LOG_NOTICE, PD_LOG_TEXT);
    pd_log_to_journal(s->path);
}

static void tear_down(scene *s)
{
    dup2(s->saved, STDERR_FILENO);
    unsetenv("JOURNAL_STREAM");
    pd_log_open(LOG_NOTICE, PD_LOG_TEXT);
    unlink(s->path);
    rmdir(s->dir);
    close(s->journal);
    close(s->pipes[0]);
    close(s->pipes[1]);
    close(s->saved);
}

static const char *received(int fd)
{
    static char text[4096];
    ssize_t n = read(fd, text, sizeof text - 1);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void put(pd_log_facts facts, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(pd_log_facts facts, const char *format, ...)
{
    pd_log_entry entry;
    va_list args;

    va_start(args, format);
    pd_log_entry_make(&entry, LOG_WARNING, facts, format, args);
    va_end(args);
    pd_log_put(&entry);
}

FIXTURE(scene, set_up, tear_down);

TEST(an_entry_is_a_datagram_of_fields, const scene *s)
{
    uint32_t rank = 3;
    uint64_t step = 41;

    put((pd_log_facts){ .job = "lin", .rank = &rank, .step = &step, .code = PD_DEADLINE_EXCEEDED, .author = "ann" },
        "is late");
    assert_string_equal(received(s->journal), "PRIORITY=4\nMESSAGE=job lin: rank 3: is late, by ann\n"
                                              "SYSLOG_IDENTIFIER=paramd\nJOB=lin\nRANK=3\nSTEP=41\n"
                                              "CODE_NAME=DEADLINE_EXCEEDED\nAUTHOR=ann\n");
    assert_string_equal(received(s->pipes[0]), "");
}

TEST(the_thread_that_writes_the_log_sends_fields_too, const scene *s)
{
    pd_error err;

    assert_int_equal(pd_log_start(&err), PD_OK);
    pd_log(LOG_NOTICE, "listening");
    pd_log_stop();
    assert_string_equal(received(s->journal), "PRIORITY=5\nMESSAGE=listening\nSYSLOG_IDENTIFIER=paramd\n");
}

TEST(no_text_of_a_peer_adds_a_field, const scene *s)
{
    put((pd_log_facts){ .job = "a\nRANK=9" }, "b%cSTEP=1", PD_LOG_JOURNAL_NEXT);
    assert_string_equal(received(s->journal),
                        "PRIORITY=4\nMESSAGE=job a?RANK=9: b?STEP=1\nSYSLOG_IDENTIFIER=paramd\nJOB=a?RANK=9\n");
}

TEST(the_longest_entry_is_one_whole_datagram, const scene *s)
{
    char name[257], author[129];
    const char *got;

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    memset(author, 'a', sizeof author - 1);
    author[sizeof author - 1] = '\0';
    put((pd_log_facts){ .job = name, .code = PD_DEADLINE_EXCEEDED, .author = author }, "%0900d", 1);
    got = received(s->journal);
    assert_non_null(strstr(got, "\nCODE_NAME=DEADLINE_EXCEEDED\n"));
    assert_int_equal(got[strlen(got) - 1], '\n');
}

TEST(a_journal_that_is_gone_is_told_by_the_standard_error, scene *s)
{
    close(s->journal);
    s->journal = open("/dev/null", O_RDONLY);
    put((pd_log_facts){ .job = "lin" }, "is late");
    assert_string_equal(received(s->pipes[0]), "<4>job lin: is late\n");
}

TEST(without_a_socket_lines_have_priorities, scene *s)
{
    pd_log_open(LOG_NOTICE, PD_LOG_TEXT);
    pd_log_to_journal("/nowhere/socket");
    pd_log(LOG_NOTICE, "listening");
    assert_string_equal(received(s->pipes[0]), "<5>listening\n");
}

TEST(a_standard_error_that_is_not_the_journal_gets_lines, scene *s)
{
    setenv("JOURNAL_STREAM", "1:1", 1);
    pd_log_open(LOG_NOTICE, PD_LOG_TEXT);
    pd_log_to_journal(s->path);
    pd_log(LOG_NOTICE, "listening");
    assert_non_null(strstr(received(s->pipes[0]), "Z listening\n"));
    assert_string_equal(received(s->journal), "");
}
