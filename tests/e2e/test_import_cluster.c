/* Tests that an import into a job of several daemons can be completed after one of them was killed, and that what was
 * answered survives. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"
#include "connection.h"

enum { SHARDS = 3, PARAMS = 6, ROWS = 40, STEPS = 4, MOST = 2 * STEPS };

typedef struct fixture {
    test_daemon *daemons[SHARDS];
    pd_client *worker;
    char list[200], root[64];
} fixture;

/* Starts daemon i on its directory, and on its port if it had one. */
static void start_daemon(fixture *f, int i, int port)
{
    char listen[64], state[128];
    const char *const flags[] = { listen, state, "--log-level=info", NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", port);
    snprintf(state, sizeof state, "--state-dir=%s/state%d", f->root, i);
    f->daemons[i] = daemon_start(flags);
}

static void kill_daemon(fixture *f, int i)
{
    daemon_kill(f->daemons[i]);
    f->daemons[i] = NULL;
}

static void step(fixture *f, int number)
{
    static float gradients[PARAMS][ROWS];
    pd_item items[PARAMS];
    pd_push_options options = { 0 };
    pd_ticket_id ticket;
    pd_error err = { 0 };

    for (uint32_t p = 0; p < PARAMS; p++) {
        for (int i = 0; i < ROWS; i++) gradients[p][i] = (float)((i * 7 + (int)p * 5 + number * 11) % 23 - 11) / 16;
        items[p] = (pd_item){ .param = p, .gradient = gradients[p] };
    }
    if (pd_client_push(f->worker, items, PARAMS, &options, &ticket, &err) != PD_OK ||
        pd_client_wait(f->worker, ticket, patient(30), &err) != PD_OK)
        fail_msg("step %d: %s", number, err.text);
}

static void join(fixture *f)
{
    static const char *const names[PARAMS] = { "a", "b", "c", "d", "e", "f" };
    static float weights[PARAMS][ROWS];
    void *at[PARAMS];
    pd_client_param params[PARAMS];
    pd_client_options options = { .urls = f->list,
                                  .job = "j",
                                  .world_size = 1,
                                  .rules = (const char *const[]){ "* adam lr=0.01", NULL },
                                  .options = (const char *const[]){ "nonfinite_scope=job", "durability=log",
                                                                    "checkpoint_every=3", NULL },
                                  .window = MOST,
                                  .deadline = patient(30) };
    pd_error err = { 0 };

    for (int p = 0; p < PARAMS; p++) {
        params[p] = (pd_client_param){ .name = names[p], .shape = { 1, { ROWS } } };
        at[p] = weights[p];
    }
    if (pd_client_open(&f->worker, &options, &err) != PD_OK ||
        pd_client_declare(f->worker, params, PARAMS, &err) != PD_OK || pd_client_init(f->worker, at, &err) != PD_OK)
        fail_msg("%s", err.text);
}

/* Runs `paramctl COMMAND FILE MORE` with all daemons, FILE in the test's folder. Returns its exit status. */
static int ask(const fixture *f, const char *command, const char *file, const char *more)
{
    return paramctl_shell("$paramctl -s '%s' %s %s/%s %s", f->list, command, f->root, file, more);
}

static int import(const fixture *f)
{
    return ask(f, "import-state j", "before", "");
}

/* Starts the daemons, trains a job on them, exports it, and resets its optimizer state. */
static void set_up(fixture *f)
{
    snprintf(f->root, sizeof f->root, "/tmp/paramd-import-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    for (int i = 0; i < SHARDS; i++) start_daemon(f, i, 0);
    snprintf(f->list, sizeof f->list, "%s %s %s", f->daemons[0]->url, f->daemons[1]->url, f->daemons[2]->url);
    join(f);
    for (int number = 1; number <= STEPS; number++) step(f, number);
    assert_int_equal(ask(f, "export j", "before", "--state"), 0);
    assert_int_equal(paramctl_shell("$paramctl -s '%s' reset-state j '*'", f->list), 0);
}

static void tear_down(fixture *f)
{
    char command[128];

    pd_client_leave(f->worker, NULL);
    pd_client_close(f->worker);
    for (int i = 0; i < SHARDS; i++) daemon_end(f->daemons[i]);
    snprintf(command, sizeof command, "rm -rf %s", f->root);
    assert_int_equal(system(command), 0);
}

FIXTURE(fixture, set_up, tear_down);

/* Checks that the job has the state of the first export on all daemons, and that it trains on. */
static void expect_imported(fixture *f)
{
    assert_int_equal(ask(f, "export j", "after", "--state --force"), 0);
    assert_int_equal(paramctl_shell("cmp %s/before %s/after", f->root, f->root), 0);
    for (int number = STEPS + 1; number <= MOST; number++) step(f, number);
}

/* An operator of one daemon whose export with state lets a commit wait there. */
static pd_client *hold_export(const test_daemon *daemon)
{
    Paramd__ExportRequest request = PARAMD__EXPORT_REQUEST__INIT;
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    pd_client *client;
    pd_error err = { 0 };

    request.job = "j";
    request.act = 1;
    request.state = true;
    if (pd_client_open(&client, &(pd_client_options){ .urls = daemon->url, .job = "", .impatient = true }, &err) !=
            PD_OK ||
        pd_client_call(client, PD_EXPORT, &request.base, arena, NULL, &err) != PD_OK)
        fail_msg("%s", err.text);
    pd_arena_free(arena);
    return client;
}

TEST(an_import_that_a_killed_daemon_has_missed_is_completed_by_the_next_one, fixture *f)
{
    int port = f->daemons[2]->port;
    pd_client *holder = hold_export(f->daemons[2]);

    assert_int_equal(paramctl_shell("( $paramctl -s '%s' import-state j %s/before > %s/said 2>&1; "
                                    "echo status $? >> %s/said ) &",
                                    f->list, f->root, f->root, f->root),
                     0);
    for (int i = 0; i < 2; i++) assert_true(daemon_says(f->daemons[i], "tensors of optimizer state and", patient(20)));
    kill_daemon(f, 2);
    pd_client_close(holder);
    assert_int_equal(
        paramctl_shell("for i in $(seq 600); do grep -q ^status %s/said && exit 0; sleep 0.1; done; exit 1", f->root),
        0);
    assert_int_equal(paramctl_shell("grep -q 'status [13]' %s/said", f->root), 0);
    assert_int_equal(
        paramctl_shell("grep -q 'other daemons may have imported their part: import again' %s/said", f->root), 0);
    assert_int_not_equal(import(f), 0);
    start_daemon(f, 2, port);
    assert_int_equal(import(f), 0);
    expect_imported(f);
}

TEST(an_import_that_was_answered_survives_whichever_daemon_is_killed, fixture *f)
{
    assert_int_equal(import(f), 0);
    for (int i = 0; i < SHARDS; i++) {
        int port = f->daemons[i]->port;
        kill_daemon(f, i);
        start_daemon(f, i, port);
    }
    expect_imported(f);
}

TEST(an_import_that_finds_a_daemon_missing_changes_nothing, fixture *f)
{
    int port = f->daemons[1]->port;

    kill_daemon(f, 1);
    assert_int_not_equal(import(f), 0);
    for (int i = 0; i < SHARDS; i += 2)
        assert_int_equal(daemon_count(f->daemons[i], "tensors of optimizer state and"), 0);
    start_daemon(f, 1, port);
    assert_int_equal(import(f), 0);
    expect_imported(f);
}
