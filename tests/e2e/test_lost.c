/* Tests worker processes that die, freeze and are replaced. */
#include <signal.h>
#include <sys/wait.h>

#include "test.h"
#include "daemon_process.h"
#include "team.h"

static const char *const flags[] = { "--chunk-bytes=4KiB", "--heartbeat-interval=200ms", "--heartbeat-timeout=2s",
                                     NULL };
static const char *const rules[] = { "* sgd lr=0.5 momentum=0.9", NULL };
static const char *const options[] = { "step_timeout=1", NULL };
static const int64_t sizes[] = { 3000, 10 };
enum { STEPS = 5, LOST_IN = 3, FENCED = 42 };

static bool push_first_parameter_only(worker *w)
{
    pd_ticket_id ticket;
    pd_error err;

    fill_gradient(w->gradients[0], sizes[0], 2, LOST_IN, 0);
    if (pd_client_push_pull(w->client, &w->items[0], 1, NULL, &ticket, &err) != PD_OK) return false;
    /* this round of the first parameter may close, because the other ranks push too; or it fails */
    return pd_client_wait(w->client, ticket, 0, &err) == PD_OK;
}

/* Runs rank 2: it takes two steps and half of the third, then raises the signal `ends` on itself. */
static void play_rank_2(const team *t, int ends)
{
    worker w;
    pd_error err;
    pd_ticket_id ticket;
    int rc;

    if (!worker_open(&w, t, 2) || !worker_declare(&w)) _exit(1);
    for (int step = 1; step < LOST_IN; step++)
        if (!worker_step(&w, NULL, NULL)) _exit(2);
    push_first_parameter_only(&w);
    raise(ends);
    /* the process was frozen and goes on: meanwhile another process has taken its rank */
    fill_gradient(w.gradients[1], sizes[1], 2, LOST_IN, 1);
    rc = pd_client_push(w.client, &w.items[1], 1, NULL, &ticket, &err);
    if (rc == PD_OK) rc = pd_client_wait(w.client, ticket, patient(10), &err);
    if (rc == PD_ABORTED) rc = pd_client_barrier(w.client, &err); /* every later call fails with the same error */
    _exit(rc == PD_ABORTED ? FENCED : 3);
}

static pid_t fork_rank_2(const team *t, int ends)
{
    pid_t pid;

    fflush(NULL);
    if ((pid = fork()) == 0) play_rank_2(t, ends);
    return pid;
}

/* Checks that the daemon reports the loss of a worker whose process is `pid`, and why. */
static void expect_report(const test_daemon *daemon, const char *job, int rank, pid_t pid, const char *why)
{
    char host[128] = "", text[400];

    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "job %s: rank %d: %s:%ld is lost: %s", job, rank, host, (long)pid, why);
    if (!daemon_says(daemon, text, patient(4))) fail_msg("the log does not say \"%s\"", text);
}

/* Pushes the parameters whose round of this step is still open. After a failed step, the round of the first
 * parameter may be closed. */
static void begin_step(worker *w, uint64_t step, pd_ticket_id *ticket)
{
    size_t first = pd_client_step(w->client, 0) >= step ? 1 : 0;
    pd_error err;

    for (size_t p = first; p < 2; p++) fill_gradient(w->gradients[p], sizes[p], w->rank, step, p);
    if (pd_client_push_pull(w->client, w->items + first, 2 - first, NULL, ticket, &err) != PD_OK)
        fail_msg("rank %d: %s", w->rank, err.text);
}

static int end_step(worker *w, pd_ticket_id ticket, pd_error *err)
{
    return pd_client_wait(w->client, ticket, 0, err);
}

static void step_together(worker *w, int n, uint64_t step)
{
    pd_ticket_id tickets[3];
    pd_error err;

    for (int r = 0; r < n; r++) begin_step(&w[r], step, &tickets[r]);
    for (int r = 0; r < n; r++)
        if (end_step(&w[r], tickets[r], &err) != PD_OK) fail_msg("rank %d: %s", r, err.text);
}

static void join(worker *w, const team *t, int rank)
{
    if (!worker_open(w, t, rank)) fail_msg("%s", w->failure);
}

/* Runs ranks 0 and 1 here, and rank 2 in a child process that kills or freezes itself in step 3. Returns the child's
 * id. */
static pid_t lose_rank_2(const team *t, worker *w, int ends)
{
    pid_t pid = fork_rank_2(t, ends);
    pd_ticket_id tickets[2];
    pd_error err;
    double begun;

    for (int r = 0; r < 2; r++) join(&w[r], t, r);
    for (int r = 0; r < 2; r++)
        if (!worker_declare(&w[r])) fail_msg("%s", w[r].failure);
    for (uint64_t step = 1; step < LOST_IN; step++) step_together(w, 2, step);
    for (int r = 0; r < 2; r++) begin_step(&w[r], LOST_IN, &tickets[r]);
    begun = seconds_now();
    for (int r = 0; r < 2; r++) {
        assert_int_equal(end_step(&w[r], tickets[r], &err), PD_DEADLINE_EXCEEDED);
        assert_non_null(strstr(err.text, "rank 2"));
    }
    assert_true(seconds_now() - begun < patient(9)); /* less than the deadline of the call */
    return pid;
}

/* Opens a new worker as rank 2 at step 3. Then all ranks go on to the last step. */
static void replace_rank_2(const team *t, worker *w)
{
    join(&w[2], t, 2);
    if (!worker_declare(&w[2])) fail_msg("%s", w[2].failure);
    assert_false(pd_client_must_init(w[2].client));
    assert_int_equal(pd_client_step(w[2].client, 1), LOST_IN - 1);
    for (uint64_t step = LOST_IN; step <= STEPS; step++) step_together(w, 3, step);
}

static bool five_steps(worker *w)
{
    for (int i = 0; i < STEPS; i++)
        if (!worker_step(w, NULL, NULL)) return false;
    return true;
}

static void expect_same_as_undisturbed(const test_daemon *daemon, const model *m, const char *job, worker *w)
{
    team t = { .url = daemon->url, .job = job, .world = 3, .rules = rules, .model = m, .work = five_steps };
    worker undisturbed[TEAM_MOST];

    team_run(&t, undisturbed);
    for (int r = 0; r < 3; r++) assert_true(model_same(m, w[r].weights, undisturbed[0].weights));
    team_free(&t, undisturbed);
}

static void leave(worker *w, int n)
{
    for (int r = 0; r < n; r++) {
        if (!worker_leave(&w[r])) fail_msg("%s", w[r].failure);
        worker_free(&w[r]);
    }
}

TEST(a_worker_that_is_killed_is_named_and_a_new_process_takes_its_place, test_daemon *daemon)
{
    model *m = model_new(sizes, 2);
    team t = { .url = daemon->url, .job = "killed", .world = 3, .rules = rules, .options = options, .model = m };
    worker w[3];
    int status;
    pid_t pid = lose_rank_2(&t, w, SIGKILL);

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    expect_report(daemon, "killed", 2, pid, "");
    replace_rank_2(&t, w);
    expect_same_as_undisturbed(daemon, m, "killed-not", w);
    leave(w, 3);
    model_free(m);
}

TEST(a_worker_that_is_frozen_is_named_and_refused_when_it_thaws, test_daemon *daemon)
{
    model *m = model_new(sizes, 2);
    team t = { .url = daemon->url, .job = "frozen", .world = 3, .rules = rules, .options = options, .model = m };
    worker w[3];
    int status;
    pid_t pid = lose_rank_2(&t, w, SIGSTOP);

    replace_rank_2(&t, w);
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), FENCED);
    step_together(w, 3, STEPS + 1); /* the step closes normally: the pushes of the thawed process were refused */
    leave(w, 3);
    model_free(m);
}

/* The process freezes without a disconnect: its heartbeats stop, and the daemon reports the lost worker. */
TEST(a_frozen_worker_is_lost_when_its_heartbeats_stop, test_daemon *daemon)
{
    model *m = model_new(sizes, 2);
    team t = { .url = daemon->url, .job = "silent", .world = 1, .rules = rules, .model = m };
    pid_t pid;
    int status;

    fflush(NULL);
    if ((pid = fork()) == 0) {
        worker w;
        if (!worker_open(&w, &t, 0)) _exit(1);
        raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    expect_report(daemon, "silent", 0, pid, "no data from the peer within 2.0 s");
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    model_free(m);
}

/* The worker sends no request for longer than the daemon's silence timeout. Its heartbeats keep it in the job. */
TEST(a_worker_that_computes_for_long_is_not_lost, test_daemon *daemon)
{
    model *m = model_new(sizes, 2);
    team t = { .url = daemon->url, .job = "long", .world = 1, .rules = rules, .model = m };
    worker w;

    join(&w, &t, 0);
    if (!worker_declare(&w)) fail_msg("%s", w.failure);
    sleep_for(2.6); /* no condition to wait for: nothing must happen in this time */
    if (!worker_step(&w, NULL, NULL)) fail_msg("%s", w.failure);
    assert_int_equal(pd_client_count(w.client).connects, 1);
    leave(&w, 1);
    model_free(m);
}

GROUP_OBJECT(daemon_start(flags), daemon_end);
