/* Tests the example diloco of client/example: two ranks train by themselves, and their global weights know the images
 * though they were exchanged seldom. */
#include <unistd.h>

#include "test.h"
#include "daemon_process.h"

enum { OUTPUT_BYTES = 8192 };

/* Runs two ranks for one pass over the images. `text` receives their output. */
static void run_two(const test_daemon *daemon, char *text)
{
    char command[1024];
    FILE *output;
    size_t n;

    snprintf(command, sizeof command,
             "for rank in 0 1; do PARAMD_URL=%s PARAMD_JOB=example RANK=$rank WORLD_SIZE=2 '%s/diloco' 1 2>&1 & "
             "pids=\"$pids $!\"; done; for pid in $pids; do wait $pid || exit 1; done",
             daemon->url, getenv("PARAMD_BIN"));
    output = popen(command, "r");
    assert_non_null(output);
    n = fread(text, 1, OUTPUT_BYTES - 1, output);
    text[n] = '\0';
    if (pclose(output) != 0) fail_msg("%s", text);
}

/* Returns the number that follows some words of a text. */
static double after(const char *text, const char *words)
{
    const char *at = strstr(text, words);

    if (at == NULL) fail_msg("expected \"%s\" in: %s", words, text);
    return strtod(at + strlen(words), NULL);
}

TEST(two_ranks_learn_the_images_with_a_fiftieth_of_the_bytes)
{
    test_daemon *daemon;
    char text[OUTPUT_BYTES];

    if (access("/usr/share/datasets/fashion-mnist", R_OK) != 0) skip();
    daemon = daemon_start(NULL);
    run_two(daemon, text);
    assert_true(after(text, "test accuracy ") > 80);
    assert_true(50 * after(text, "that counted: ") < after(text, "of each step: "));
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}
