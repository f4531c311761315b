/* Tests the minimal worker of client/example: two ranks fit a line, and a second run begins anew. */
#include "test.h"
#include "daemon_process.h"

enum { OUTPUT_BYTES = 8192 };

/* Runs two ranks. `text` receives their output. */
static void run_two(const test_daemon *daemon, char *text)
{
    char command[1024];
    FILE *output;
    size_t n;

    snprintf(command, sizeof command,
             "for rank in 0 1; do PARAMD_URL=%s RANK=$rank WORLD_SIZE=2 '%s/minimal' 2>&1 & pids=\"$pids $!\"; done; "
             "for pid in $pids; do wait $pid || exit 1; done",
             daemon->url, getenv("PARAMD_BIN"));
    output = popen(command, "r");
    assert_non_null(output);
    n = fread(text, 1, OUTPUT_BYTES - 1, output);
    text[n] = '\0';
    if (pclose(output) != 0) fail_msg("%s", text);
}

static int count(const char *text, const char *words)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, words)) != NULL; at += strlen(words)) n++;
    return n;
}

TEST(two_ranks_fit_the_line)
{
    test_daemon *daemon = daemon_start(NULL);
    char text[OUTPUT_BYTES];
    int ended = 0;

    run_two(daemon, text);
    assert_int_equal(count(text, "created 1, starts at step 0"), 1);
    assert_int_equal(count(text, "created 0, starts at step 0"), 1);
    assert_int_equal(count(text, ": y = 3.000 x + 2.000"), 2);
    for (const char *at = text; (at = strstr(at, "\nloss ")) != NULL; at++, ended++)
        assert_true(strtod(at + 6, NULL) < 1e-6);
    assert_int_equal(ended, 2);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(a_second_run_begins_anew)
{
    test_daemon *daemon = daemon_start(NULL);
    char text[OUTPUT_BYTES];

    run_two(daemon, text);
    run_two(daemon, text);
    assert_int_equal(count(text, "created 1, starts at step 0"), 1);
    assert_int_equal(count(text, "created 0, starts at step 0"), 1);
    assert_int_equal(count(text, ": y = 3.000 x + 2.000"), 2);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}
