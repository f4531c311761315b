/* replayed.c - replays small recorded runs that a test has written, and whole folders of recorded runs. */
#include "replayed.h"

#include "daemon_process.h"
#include "golden.h"
#include "test.h"

pd_replay_result replayed_by(const tracefile *file, const pd_replay_options *options)
{
    pd_replay_result result;
    char path[64];

    tracefile_write(file, path);
    pd_replay_file(&result, path, options);
    unlink(path);
    return result;
}

pd_replay_result replayed(const tracefile *file)
{
    return replayed_by(file, &(pd_replay_options){ .local = true, .state = true });
}

pd_replay_result replayed_with(const tracefile *file, const char *key, const char *value)
{
    tracefile changed = *file;

    tracefile_meta(&changed, key, value);
    return replayed(&changed);
}

static void assert_result(pd_replay_result r, pd_replay_outcome outcome, const char *part_of_why)
{
    if (r.outcome != outcome)
        fail_msg("outcome %d, error %g, of state %g: \"%s\"", r.outcome, r.verdict.error, r.state.error, r.why.text);
    if (strstr(r.why.text, part_of_why) == NULL) fail_msg("\"%s\" does not say \"%s\"", r.why.text, part_of_why);
    assert_true(outcome != PD_REPLAY_OK || r.verdict.compared > 0);
    pd_replay_result_free(&r);
}

void assert_outcome(const tracefile *file, pd_replay_outcome outcome, const char *part_of_why)
{
    assert_result(replayed(file), outcome, part_of_why);
}

void assert_outcome_with(const tracefile *file, const char *key, const char *value, pd_replay_outcome outcome,
                         const char *part_of_why)
{
    assert_result(replayed_with(file, key, value), outcome, part_of_why);
}

void assert_fails_without_memory(const tracefile *file)
{
    bool failed = true;
    char path[64];
    int64_t n;

    tracefile_write(file, path);
    for (n = 0; failed; n++) {
        pd_replay_result r;
        oom_arm(n);
        pd_replay_file(&r, path, &(pd_replay_options){ .local = true, .state = true });
        failed = oom_disarm();
        assert_int_equal(r.outcome, failed ? PD_REPLAY_FAILED : PD_REPLAY_OK);
        pd_replay_result_free(&r);
    }
    unlink(path);
    assert_true(n > 10);
}

static test_daemon *server;
static replayed_state state_wanted;
static bool bits_wanted; /* no number may differ from the recorded one */

/* Replays a recorded file with the optimizer library and checks the result. Returns true if the file is a training
 * run, which a daemon can replay, too. Returns false if it has cases of a single routine. */
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
        fail_msg("%s: error %.3g of %s after step %d, tolerance %.3g; state: error %.3g of %s, tolerance %.3g. %s",
                 result.name, result.verdict.error, result.n > 0 ? result.params[result.verdict.param] : "?",
                 (int)result.verdict.step, result.tolerance, result.state.error, result.state.worst,
                 result.state.tolerance, result.why.text);
    if (bits_wanted && (result.verdict.error > 0 || result.state.error > 0))
        fail_msg("%s: weights differ by %.3g after step %d, state by %.3g in %s", result.name, result.verdict.error,
                 (int)result.verdict.step, result.state.error, result.state.worst);
    assert_true(result.verdict.compared > 0 &&
                (result.cases || result.state.compared > 0 || !options->state || state_wanted != REPLAYED_STATE));
    print_message("%d comparisons, largest error %.2e, tolerance %.2e; %d of state, %.2e, tolerance %.2e\n",
                  (int)result.verdict.compared, result.verdict.error, result.tolerance, (int)result.state.compared,
                  result.state.error, result.state.tolerance);
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

int replayed_folder_exactly(const char *system)
{
    bits_wanted = true;
    return replayed_folder(system, REPLAYED_STATE);
}
