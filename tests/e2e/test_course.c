/* Tests a job whose steps take two of three workers, after a worker that has counted is gone for good with the daemon:
 * the steps since the checkpoint cannot be repeated, and the others are told so.
 *
 * Each push has the gradient 1 in an element of its own, so the weights show which pushes have counted, and among how
 * many ranks. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

enum { WORLD = 3, N = 16, GONE = 1, STEPPED = 1 };

typedef struct worker {
    pd_client *client;
    pd_item item;
    float gradient[N], weights[N];
} worker;

typedef struct scene {
    char root[64];
    test_daemon *daemon;
    worker workers[WORLD];
} scene;

static void must(int rc, const pd_error *err)
{
    if (rc != PD_OK) fail_msg("%s", err->text);
}

static void start_daemon(scene *s)
{
    char listen[64], state[100];
    const char *const flags[] = { listen, state, NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", s->daemon != NULL ? s->daemon->port : 0);
    snprintf(state, sizeof state, "--state-dir=%s/state", s->root);
    if (s->daemon != NULL) daemon_kill(s->daemon);
    s->daemon = daemon_start(flags);
}

static void open_worker(const scene *s, worker *w, int rank)
{
    static const char *const rules[] = { "* sgd lr=1", NULL }, *const options[] = {
        "rounds=quorum",         "quorum=2", "on_lost_worker=shrink", "reconnect_grace=1s", "durability=checkpoint",
        "checkpoint_every=1000", NULL
    };
    static const pd_client_param params[1] = { { .name = "a", .shape = { 1, { N } } } };
    pd_client_options how = { .urls = s->daemon->url,
                              .job = "j",
                              .rank = rank,
                              .world_size = WORLD,
                              .options = options,
                              .rules = rules,
                              .deadline = patient(20),
                              .window = 50,
                              .quiet = true };
    pd_error err;

    w->item = (pd_item){ .gradient = w->gradient, .weights = w->weights };
    must(pd_client_open(&w->client, &how, &err), &err);
    must(pd_client_declare(w->client, params, 1, &err), &err);
}

static pd_ticket_id push(worker *w, int element)
{
    pd_ticket_id ticket;
    pd_error err;

    memset(w->gradient, 0, sizeof w->gradient);
    w->gradient[element] = 1;
    must(pd_client_push_pull(w->client, &w->item, 1, NULL, &ticket, &err), &err);
    return ticket;
}

static void finish(worker *w, pd_ticket_id ticket)
{
    pd_error err;

    must(pd_client_wait(w->client, ticket, patient(20), &err), &err);
    assert_int_equal(w->item.outcome, STEPPED);
}

/* Takes step 1 with all workers, which becomes durable, and steps 2 and 3 with workers 0 and GONE. */
static void begin(scene *s)
{
    pd_ticket_id tickets[WORLD];
    pd_error err;

    memset(s, 0, sizeof *s);
    strcpy(s->root, "/tmp/paramd-course.XXXXXX");
    assert_non_null(mkdtemp(s->root));
    start_daemon(s);
    for (int r = 0; r < WORLD; r++) open_worker(s, &s->workers[r], r);
    for (int r = 0; r < WORLD; r++)
        must(pd_client_init(s->workers[r].client, (void *const[]){ s->workers[r].weights }, &err), &err);
    for (int r = 0; r < 2; r++) tickets[r] = push(&s->workers[r], r);
    for (int r = 0; r < 2; r++) finish(&s->workers[r], tickets[r]);
    must(pd_client_sync(s->workers[0].client, 1, &err), &err);
    for (int step = 2; step <= 3; step++) {
        for (int r = 0; r < 2; r++) tickets[r] = push(&s->workers[r], 2 * step + r);
        for (int r = 0; r < 2; r++) finish(&s->workers[r], tickets[r]);
    }
}

static void end(scene *s)
{
    char command[120];

    for (int r = 0; r < WORLD; r++) pd_client_close(s->workers[r].client);
    daemon_stop(s->daemon, patient(20));
    snprintf(command, sizeof command, "rm -rf %s", s->root);
    assert_int_equal(system(command), 0);
}

/* Kills the daemon together with worker GONE, and lets worker 0 take the next step. It must be told to rewind. */
static void lose_a_worker(scene *s)
{
    worker *w = &s->workers[0];
    pd_ticket_id ticket;
    pd_error err;

    pd_client_close(s->workers[GONE].client);
    s->workers[GONE].client = NULL;
    start_daemon(s);
    ticket = push(w, 10);
    assert_int_equal(pd_client_wait(w->client, ticket, patient(20), &err), PD_REWIND);
    assert_non_null(strstr(err.text, "other steps"));
}

/* Rewinds worker 0, which must get the weights of step 1. */
static void rewind_worker(worker *w)
{
    pd_error err;

    must(pd_client_rewind(w->client, (void *const[]){ w->weights }, &err), &err);
    assert_int_equal(pd_client_step(w->client, 0), 1);
    for (int i = 0; i < N; i++) assert_float_equal(w->weights[i], i < 2 ? -0.5 : 0, 0);
}

/* Worker 2 had seen no step that was lost: it need not rewind. */
TEST(workers_that_have_seen_lost_steps_rewind_and_all_go_on)
{
    pd_ticket_id first, second;
    scene s;

    begin(&s);
    lose_a_worker(&s);
    rewind_worker(&s.workers[0]);
    for (int step = 2; step <= 3; step++) {
        first = push(&s.workers[0], 8 + step);
        second = push(&s.workers[2], 12 + step);
        finish(&s.workers[0], first);
        finish(&s.workers[2], second);
        assert_int_equal(s.workers[0].item.step, step);
        assert_int_equal(s.workers[2].item.step, step);
    }
    for (int i = 0; i < N; i++)
        assert_float_equal(s.workers[2].weights[i], i < 2 || i == 10 || i == 11 || i >= 14 ? -0.5 : 0, 0);
    end(&s);
}

/* The daemon has what worker 0 had sent again for step 2, and worker 2 completes this step before worker 0 has pushed
 * for it once more. */
TEST(what_a_worker_has_sent_again_does_not_count_after_it_has_rewound)
{
    pd_ticket_id first, second;
    scene s;

    begin(&s);
    lose_a_worker(&s);
    rewind_worker(&s.workers[0]);
    second = push(&s.workers[2], 12);
    daemon_await_contributions(s.daemon, "j", 4);
    first = push(&s.workers[0], 10);
    finish(&s.workers[0], first);
    finish(&s.workers[2], second);
    assert_int_equal(s.workers[0].item.step, 2);
    for (int i = 0; i < N; i++) assert_float_equal(s.workers[0].weights[i], i < 2 || i == 10 || i == 12 ? -0.5 : 0, 0);
    end(&s);
}
