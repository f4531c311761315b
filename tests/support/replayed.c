#include "replayed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon.h"
#include "golden.h"
#include "replay.h"

static test_daemon *server;
static replayed_state state_wanted;

/* True: it was a run, which a daemon can play, and not cases of a routine. */
static bool play(const char *path, const pd_replay_options *options)
{
    pd_replay_result result;
    bool is_run;

    pd_replay_file(&result, path, options);
    if (result.outcome == PD_REPLAY_SKIPPED && result.excused) {
        print_message("skipped: %s\n", result.why.text);
        pd_replay_result_free(&result);
        return false;
    }
    if (result.outcome != PD_REPLAY_OK)
        fail_msg("%s: error %.3g of %s after step %d, tolerance %.3g; state: error %.3g of %s, tolerance %.3g. %s", result.name, result.verdict.error,
                 result.n > 0 ? result.params[result.verdict.param] : "?", (int)result.verdict.step, result.tolerance,
                 result.state.error, result.state.worst, result.state.tolerance, result.why.text);
    assert_true(result.verdict.compared > 0 && (result.cases || result.state.compared > 0 || !options->state || state_wanted != REPLAYED_STATE));
    print_message("%d comparisons, largest error %.2e, tolerance %.2e; %d of state, %.2e, tolerance %.2e\n", (int)result.verdict.compared,
                  result.verdict.error, result.tolerance, (int)result.state.compared, result.state.error, result.state.tolerance);
    is_run = !result.cases;
    pd_replay_result_free(&result);
    return is_run;
}

static void agrees_with_upstream(void **state)
{
    if (!play(*state, &(pd_replay_options){ .local = true, .state = state_wanted != REPLAYED_NO_STATE })) return;
    play(*state, &(pd_replay_options){ .server = server->url, .timeout = patient(10) });
}

static int start_server(void **state)
{
    (void)state;
    server = daemon_start(NULL);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    return daemon_stop(server, patient(10));
}

int replayed_folder(const char *system, replayed_state state)
{
    state_wanted = state;
    return golden_folder(system, agrees_with_upstream, start_server, stop_server);
}
