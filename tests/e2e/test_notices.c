/* Tests the notices that the client gives its user unasked: that it waits for a server, and that a job of this name
 * is left over from an earlier run. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

#define NOBODY "tcp://127.0.0.1:1" /* a port on which nobody listens */

typedef struct notices {
    int n;
    char last[1024];
} notices;

static void keep(void *arg, const char *text)
{
    notices *all = arg;

    all->n++;
    snprintf(all->last, sizeof all->last, "%s", text);
}

static void expect_words(const char *text, const char *words)
{
    if (strstr(text, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", text, words);
}

TEST(a_worker_without_a_server_says_once_which_address_why_and_until_when)
{
    notices all = { 0 };
    pd_client_options options = { .urls = NOBODY, .job = "j", .world_size = 1, .deadline = 5 };
    pd_client *client;

    options.notice = keep;
    options.notice_arg = &all;
    assert_int_equal(pd_client_open(&client, &options, NULL), PD_UNAVAILABLE);
    assert_int_equal(all.n, 1);
    expect_words(all.last, NOBODY ": Connection refused; trying again until ");
    expect_words(all.last, ", for another ");
}

TEST(a_worker_that_shall_be_quiet_says_nothing)
{
    notices all = { 0 };
    pd_client_options options = { .urls = NOBODY, .job = "j", .world_size = 1, .deadline = 2.5, .quiet = true };
    pd_client *client;

    options.notice = keep;
    options.notice_arg = &all;
    assert_int_equal(pd_client_open(&client, &options, NULL), PD_UNAVAILABLE);
    assert_int_equal(all.n, 0);
}

TEST(notices_go_to_standard_error_by_default)
{
    pd_client_options options = { .urls = NOBODY, .job = "j", .world_size = 1, .deadline = 2.5 };
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    char line[1024] = "";
    pd_client *client;

    assert_non_null(file);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    assert_int_equal(pd_client_open(&client, &options, NULL), PD_UNAVAILABLE);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_int_equal(strncmp(line, "paramd: no connection to the server: " NOBODY, 50), 0);
    assert_int_equal(line[strlen(line) - 1], '\n');
}

TEST(a_worker_whose_server_has_gone_says_so_while_it_waits)
{
    test_daemon *daemon = daemon_start(NULL);
    notices all = { 0 };
    pd_client_options options = { .urls = daemon->url, .job = "j", .world_size = 2, .deadline = patient(6) };
    pd_client *client;
    pd_error err;

    options.notice = keep;
    options.notice_arg = &all;
    assert_int_equal(pd_client_open(&client, &options, &err), PD_OK);
    daemon_kill(daemon);
    assert_int_equal(pd_client_barrier(client, &err), PD_DEADLINE_EXCEEDED);
    assert_int_equal(all.n, 1);
    expect_words(all.last, "Connection refused; trying again until ");
    pd_client_close(client);
}

static const char *const rules[] = { "* sgd lr=0.5", NULL };

static int open_job(const test_daemon *daemon, const char *job, const char *const *with, notices *all,
                    pd_client **client, pd_error *err)
{
    pd_client_options options = { .urls = daemon->url, .job = job, .world_size = 1, .deadline = patient(10) };

    options.run = "tonight";
    options.rules = with;
    options.notice = keep;
    options.notice_arg = all;
    return pd_client_open(client, &options, err);
}

/* Runs a job of one worker for the given number of steps. The worker dies before it leaves. */
static void run_job(const test_daemon *daemon, const char *job, int steps, notices *all)
{
    pd_client_param param = { .name = "w", .shape = { 1, { 4 } } };
    float weights[4] = { 0 }, gradient[4] = { 1, 1, 1, 1 };
    void *all_weights[] = { weights };
    pd_item item = { .gradient = gradient, .weights = weights };
    pd_ticket_id ticket;
    pd_client *client;
    pd_error err;

    if (open_job(daemon, job, rules, all, &client, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(pd_client_declare(client, &param, 1, &err), PD_OK);
    assert_int_equal(pd_client_init(client, all_weights, &err), PD_OK);
    for (int step = 0; step < steps; step++) {
        assert_int_equal(pd_client_push_pull(client, &item, 1, NULL, &ticket, &err), PD_OK);
        assert_int_equal(pd_client_wait(client, ticket, 0, &err), PD_OK);
    }
    pd_client_close(client);
}

TEST(who_continues_a_job_that_lingers_is_told_its_step_and_what_to_do)
{
    test_daemon *daemon = daemon_start(NULL);
    notices first = { 0 }, second = { 0 };
    char command[256];
    pd_client *client;

    run_job(daemon, "lin", 3, &first);
    assert_int_equal(first.n, 0);
    assert_int_equal(open_job(daemon, "lin", rules, &second, &client, NULL), PD_OK);
    assert_int_equal(second.n, 1);
    expect_words(second.last, "job lin is at step 3 and lingers for another ");
    snprintf(command, sizeof command, "`paramctl -s %s drop lin`, or choose another name", daemon->url);
    expect_words(second.last, command);
    assert_false(pd_client_welcome(client)->created);
    assert_int_equal(pd_client_welcome(client)->step, 3);
    assert_true(pd_client_welcome(client)->linger > 200 && pd_client_welcome(client)->linger <= 300);
    pd_client_close(client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(who_comes_with_another_rule_is_told_that_the_job_lingers)
{
    static const char *const other[] = { "* sgd lr=0.25", NULL };
    test_daemon *daemon = daemon_start(NULL);
    notices all = { 0 };
    char command[256];
    pd_client *client;
    pd_error err = { 0 };

    run_job(daemon, "lin", 3, &all);
    assert_int_equal(open_job(daemon, "lin", other, &all, &client, &err), PD_FAILED_PRECONDITION);
    expect_words(err.text, "\"* sgd lr=0.25\". Job lin is at step 3 and lingers for another ");
    snprintf(command, sizeof command, " s: `paramctl -s %s drop lin`, or choose another name", daemon->url);
    expect_words(err.text, command);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(a_worker_that_joins_others_is_not_told_of_a_job_left_over)
{
    test_daemon *daemon = daemon_start(NULL);
    notices all = { 0 };
    pd_client *first, *again;

    run_job(daemon, "lin", 3, &all);
    assert_int_equal(open_job(daemon, "lin", rules, &all, &first, NULL), PD_OK);
    all = (notices){ 0 };
    assert_int_equal(open_job(daemon, "lin", rules, &all, &again, NULL), PD_OK); /* this worker takes the rank over */
    assert_int_equal(all.n, 0);
    assert_true(pd_client_welcome(again)->linger == 0);
    pd_client_close(first);
    pd_client_close(again);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

static int open_stranger(pd_client **client, const char *url, notices *all, pd_error *err)
{
    pd_client_options options = { .urls = url, .job = "held", .world_size = 1, .rules = rules };

    options.join_later = true;
    options.slice = 0.05;
    options.notice = keep;
    options.notice_arg = all;
    return pd_client_open(client, &options, err);
}

TEST(over_a_network_a_worker_waits_for_a_rank_that_is_held_and_says_so_once)
{
    test_daemon *daemon = daemon_start(NULL);
    notices all = { 0 };
    pd_client *first, *second;
    pd_error err;
    int rc;

    assert_int_equal(open_job(daemon, "held", rules, &all, &first, &err), PD_OK);
    assert_int_equal(open_stranger(&second, daemon->url, &all, &err), PD_OK);
    for (double end = seconds_now() + patient(10); all.n == 0 && seconds_now() < end;)
        assert_int_equal(pd_client_join(second, &err), PD_DEADLINE_EXCEEDED);
    assert_int_equal(all.n, 1);
    expect_words(all.last, "the server does not admit this process to its job yet: job held is in training: rank 0 (");
    expect_words(all.last, ", for another 35 s");
    pd_client_close(first);
    while ((rc = pd_client_join(second, &err)) == PD_DEADLINE_EXCEEDED) assert_int_equal(all.n, 1);
    assert_int_equal(rc, PD_OK);
    pd_client_close(second);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(over_a_unix_socket_a_rank_that_is_held_is_an_error_at_once)
{
    char path[] = "/tmp/paramd-held-XXXXXX", listen[128], url[128];
    notices all = { 0 };
    pd_client *first, *second;
    test_daemon *daemon;
    pd_error err;
    double begin;
    int rc;

    assert_non_null(mkdtemp(path));
    snprintf(listen, sizeof listen, "--listen=127.0.0.1:0,unix://%s/socket", path);
    snprintf(url, sizeof url, "unix://%s/socket", path);
    daemon = daemon_start((const char *[]){ listen, NULL });
    assert_int_equal(open_job(daemon, "held", rules, &all, &first, &err), PD_OK);
    begin = seconds_now();
    assert_int_equal(open_stranger(&second, url, &all, &err), PD_OK);
    while ((rc = pd_client_join(second, &err)) == PD_DEADLINE_EXCEEDED) continue;
    assert_int_equal(rc, PD_ALREADY_EXISTS);
    assert_true(seconds_now() - begin < patient(10));
    expect_words(err.text, "Choose another name (job=, PARAMD_JOB), or take it over (resume, PARAMD_RESUME=1)");
    assert_int_equal(all.n, 0);
    pd_client_close(first);
    pd_client_close(second);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
    (void)rmdir(path);
}

static const char *const doubtful[] = { "* kron skip_zero_updates=yes", NULL };

static pd_client *join(const test_daemon *daemon, const char *job, int rank, int world_size, notices *all)
{
    pd_client_options options = { .urls = daemon->url, .job = job, .rank = rank, .world_size = world_size };
    pd_client *client;
    pd_error err;

    options.rules = doubtful;
    options.deadline = patient(10);
    options.notice = keep;
    options.notice_arg = all;
    if (pd_client_open(&client, &options, &err) != PD_OK) fail_msg("%s", err.text);
    return client;
}

static void declare(pd_client *client)
{
    const pd_client_param param = { .name = "w", .shape = { 1, { 4 } } };
    pd_error err;

    if (pd_client_declare(client, &param, 1, &err) != PD_OK) fail_msg("%s", err.text);
}

TEST(rank_0_gets_each_warning_about_the_job_once)
{
    test_daemon *daemon = daemon_start(NULL);
    notices all[2] = { { 0 }, { 0 } };
    pd_client *first = join(daemon, "doubtful", 1, 2, &all[1]), *second;

    declare(first); /* the rules are looked at now: rank 0 has not joined yet */
    second = join(daemon, "doubtful", 0, 2, &all[0]);
    declare(second);
    assert_int_equal(all[0].n, 1);
    expect_words(all[0].last, "warning of the server: job doubtful: rule \"* kron skip_zero_updates=yes\": skip_zero");
    assert_int_equal(all[1].n, 0);
    pd_client_close(first);
    pd_client_close(second);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

typedef struct waiting {
    pd_client *client;
    notices all;
} waiting;

/* Waits a moment for another rank, and returns whether a notice has come meanwhile. */
static bool is_told(void *arg)
{
    waiting *w = arg;

    assert_int_equal(pd_client_barrier(w->client, NULL), PD_DEADLINE_EXCEEDED);
    return w->all.n > 0;
}

TEST(a_call_that_waits_gives_the_warning_why)
{
    test_daemon *daemon = daemon_start(NULL);
    pd_client_options options = { .urls = daemon->url, .job = "lost", .world_size = 2, .slice = 0.05 };
    waiting w = { 0 };
    notices other = { 0 };
    pd_client *lost;

    options.rules = doubtful;
    options.notice = keep;
    options.notice_arg = &w.all;
    assert_int_equal(pd_client_open(&w.client, &options, NULL), PD_OK);
    lost = join(daemon, "lost", 1, 2, &other);
    pd_client_close(lost); /* without leaving */
    assert_true(await(is_told, &w, patient(10)));
    expect_words(w.all.last, "warning of the server: job lost: rank 1: ");
    expect_words(w.all.last, " is lost: ");
    pd_client_close(w.client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}
