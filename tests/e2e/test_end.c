/* Tests how a daemon ends by itself: without workers, or with the process that has started it. */
#define _GNU_SOURCE /* pipe2 */
#include <fcntl.h>

#include "test.h"
#include "daemon_process.h"
#include "team.h"

static const char *const rules[] = { "* sgd lr=1", NULL };
static const int64_t sizes[] = { 3000, 10 };

static bool has_ended(void *arg)
{
    return !daemon_lives(arg);
}

TEST(a_daemon_to_which_no_worker_comes_ends)
{
    static const char *const flags[] = { "--idle-exit=300ms", NULL };
    test_daemon *daemon = daemon_start(flags);

    assert_true(await(has_ended, daemon, patient(10)));
    assert_true(daemon_says(daemon, "no worker was connected for 0.3 s (server.idle_exit)", 0.1));
    assert_true(daemon_says(daemon, "stopped\n", 0.1));
    daemon_kill(daemon);
}

/* One of two ranks has pushed when both are lost. Nobody can finish the round, so the drain does not wait for it. */
TEST(a_daemon_whose_workers_are_lost_ends_without_waiting_for_their_round)
{
    static const char *const flags[] = { "--idle-exit=1s", "--drain-timeout=1h", NULL };
    test_daemon *daemon = daemon_start(flags);
    model *m = model_new(sizes, 2);
    team t = { .url = daemon->url, .job = "lost", .world = 2, .rules = rules, .model = m, .zero = true };
    worker w[2];
    pd_ticket_id ticket;
    pd_error err;

    for (int r = 0; r < 2; r++)
        if (!worker_open(&w[r], &t, r)) fail_msg("%s", w[r].failure);
    for (int r = 0; r < 2; r++)
        if (!worker_declare(&w[r])) fail_msg("%s", w[r].failure);
    if (pd_client_push_pull(w[0].client, w[0].items, 2, NULL, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
    daemon_await_contributions(daemon, "lost", 1);
    assert_true(daemon_lives(daemon));
    for (int r = 0; r < 2; r++) worker_free(&w[r]); /* closes the connection without a leave */
    assert_true(await(has_ended, daemon, patient(15)));
    daemon_kill(daemon);
    model_free(m);
}

/* Starts a daemon whose standard input is the read end of a pipe. Returns the daemon and the write end. */
static test_daemon *start_with_input(int *write_end)
{
    static const char *const flags[] = { "--input-exit", NULL };
    int ends[2], before = dup(STDIN_FILENO);
    test_daemon *daemon;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    dup2(ends[0], STDIN_FILENO);
    daemon = daemon_start(flags);
    dup2(before, STDIN_FILENO);
    close(before);
    close(ends[0]);
    *write_end = ends[1];
    return daemon;
}

TEST(a_daemon_ends_when_its_standard_input_ends)
{
    int write_end;
    test_daemon *daemon = start_with_input(&write_end);

    assert_int_equal(write(write_end, "bytes mean nothing\n", 19), 19);
    assert_true(daemon_lives(daemon));
    close(write_end);
    assert_true(await(has_ended, daemon, patient(10)));
    assert_true(daemon_says(daemon, "the standard input has ended (server.input_exit)", 0.1));
    assert_true(daemon_says(daemon, "stopped\n", 0.1));
    daemon_kill(daemon);
}

TEST(a_standard_input_that_cannot_end_is_refused)
{
    static const char *const flags[] = { "--input-exit", NULL };
    int before = dup(STDIN_FILENO), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char text[2000];

    dup2(null, STDIN_FILENO);
    assert_int_equal(daemon_refuses(flags, text, sizeof text), 1);
    dup2(before, STDIN_FILENO);
    close(before);
    close(null);
    assert_non_null(strstr(text, "server.input_exit: expected a pipe or a socket as standard input"));
}
