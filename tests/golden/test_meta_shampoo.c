/* Plays every recorded run of Meta's PyTorch Distributed Shampoo in $PARAMD_GOLDEN/meta_shampoo, with the optimizer library and through a daemon: one test
 * a trace. Each parameter's weights may differ from the recorded ones by 3 times the trace's own noise_bc32 and 1e-6, relative to their norm; recorded state by
 * what replay_state.h says. What records a defect of upstream's, or no run, is skipped, and why is printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon.h"
#include "golden.h"
#include "replay.h"

static test_daemon *server;

/* True: it was a run, which a daemon can play. */
static bool play(const char *path, const pd_replay_options *options)
{
    pd_replay_result result;
    bool is_run = false;

    pd_replay_file(&result, path, options);
    if (result.outcome == PD_REPLAY_SKIPPED && result.excused) {
        print_message("skipped: %s\n", result.why.text);
    } else if (result.outcome != PD_REPLAY_OK) {
        fail_msg("%s: error %.3g of %s after step %d, tolerance %.3g; state: error %.3g of %s, tolerance %.3g. %s", result.name, result.verdict.error,
                 result.n > 0 ? result.params[result.verdict.param] : "?", (int)result.verdict.step, result.tolerance, result.state.error,
                 result.state.worst, result.state.tolerance, result.why.text);
    } else {
        assert_true(result.verdict.compared > 0);
        print_message("%d comparisons, largest error %.2e, tolerance %.2e; %d of state, %.2e, tolerance %.2e\n", (int)result.verdict.compared,
                      result.verdict.error, result.tolerance, (int)result.state.compared, result.state.error, result.state.tolerance);
        is_run = !result.cases;
    }
    pd_replay_result_free(&result);
    return is_run;
}

static void agrees_with_upstream(void **state)
{
    if (play(*state, &(pd_replay_options){ .local = true, .state = true }))
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

int main(void)
{
    return golden_folder("meta_shampoo", agrees_with_upstream, NULL, start_server, stop_server);
}
