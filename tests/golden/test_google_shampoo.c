/* Plays every recorded run of Google's Distributed Shampoo in $PARAMD_GOLDEN/google_shampoo, with the optimizer library and through a
 * daemon: one test a trace. Each parameter's weights may differ from the recorded ones by 10 times the trace's own noise and 1e-6, relative to their norm; recorded state by what
 * replay_state.h says. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon.h"
#include "replay.h"

enum { MOST_TRACES = 128 };

static test_daemon *server;

/* True: it was a run, which a daemon can play, and not cases of a routine. */
static bool play(const char *path, const pd_replay_options *options)
{
    pd_replay_result result;
    bool is_run;

    pd_replay_file(&result, path, options);
    if (result.outcome != PD_REPLAY_OK)
        fail_msg("%s: error %.3g of %s after step %d, tolerance %.3g; state: error %.3g of %s, tolerance %.3g. %s", result.name, result.verdict.error,
                 result.n > 0 ? result.params[result.verdict.param] : "?", (int)result.verdict.step, result.tolerance,
                 result.state.error, result.state.worst, result.state.tolerance, result.why.text);
    assert_true(result.verdict.compared > 0 && (result.cases || result.state.compared > 0 || !options->state));
    print_message("%d comparisons, largest error %.2e, tolerance %.2e; %d of state, %.2e, tolerance %.2e\n", (int)result.verdict.compared,
                  result.verdict.error, result.tolerance, (int)result.state.compared, result.state.error, result.state.tolerance);
    is_run = !result.cases;
    pd_replay_result_free(&result);
    return is_run;
}

static void agrees_with_upstream(void **state)
{
    if (!play(*state, &(pd_replay_options){ .local = true, .state = true })) return;
    play(*state, &(pd_replay_options){ .server = server->url, .timeout = patient(10) });
}

static int safetensors_only(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 12 && strcmp(entry->d_name + length - 12, ".safetensors") == 0;
}

int main(void)
{
    static char paths[MOST_TRACES][1024];
    struct CMUnitTest tests[MOST_TRACES];
    const char *golden = getenv("PARAMD_GOLDEN");
    char folder[512];
    struct dirent **entries;
    int found, n = 0, failed;

    snprintf(folder, sizeof folder, "%s/google_shampoo", golden != NULL ? golden : "");
    if (golden == NULL || (found = scandir(folder, &entries, safetensors_only, alphasort)) < 0) {
        printf("skipped: no traces in %s (PARAMD_GOLDEN)\n", folder);
        return 77;
    }
    for (int i = 0; i < found; i++) {
        if (n < MOST_TRACES) {
            snprintf(paths[n], sizeof paths[n], "%s/%s", folder, entries[i]->d_name);
            tests[n] = (struct CMUnitTest){ .name = paths[n], .test_func = agrees_with_upstream, .initial_state = paths[n] };
            n++;
        }
        free(entries[i]);
    }
    free(entries);
    if (n == 0) {
        printf("failed: there is no trace in %s\n", folder);
        return 1;
    }
    server = daemon_start(NULL);
    failed = _cmocka_run_group_tests("scalable_shampoo", tests, (size_t)n, NULL, NULL);
    return daemon_stop(server, patient(10)) == 0 ? failed : 1;
}
