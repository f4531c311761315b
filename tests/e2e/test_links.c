/* Tests jobs that go on although the link of one worker is cut or stalls, and that take the worker back when the link
 * is whole again: it is told that its push was late, with the step and the weights, and then it counts. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"
#include "proxy.h"

enum { WORLD = 3, FAR = 2, N = 5, STEPS = 20, STEPPED = 1, LATE = 5 };

static const pd_client_param params[] = { { .name = "p", .shape = { .rank = 1, .dim = { N } } } };

/* A worker of the job. Its gradient of each element is 1. */
typedef struct worker {
    pd_client *client;
    pd_item item;
    pd_item_count count;
    float gradient[N], weights[N];
} worker;

/* A job with a daemon of its own. The last worker's link is the proxy. */
typedef struct scene {
    test_daemon *daemon;
    proxy *link;
    const char *const *options;
    worker workers[WORLD];
} scene;

static void must(int rc, const pd_error *err)
{
    if (rc != PD_OK) fail_msg("%s", err->text);
}

static void open_worker(const scene *s, worker *w, int rank)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    char url[64];
    pd_client_options how = { .urls = url,
                              .job = "j",
                              .rank = rank,
                              .world_size = WORLD,
                              .options = s->options,
                              .rules = rules,
                              .deadline = patient(30),
                              .quiet = true };
    pd_error err;

    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", rank == FAR ? proxy_port(s->link) : s->daemon->port);
    for (int k = 0; k < N; k++) w->gradient[k] = 1;
    w->item = (pd_item){ .gradient = w->gradient, .weights = w->weights };
    must(pd_client_open(&w->client, &how, &err), &err);
    must(pd_client_declare(w->client, params, 1, &err), &err);
}

static void begin(scene *s, const char *const *options)
{
    static const char *const flags[] = { "--heartbeat-interval=100ms", "--heartbeat-timeout=1s", NULL };

    memset(s, 0, sizeof *s);
    s->options = options;
    s->daemon = daemon_start(flags);
    s->link = proxy_start(s->daemon->port);
    for (int r = 0; r < WORLD; r++) open_worker(s, &s->workers[r], r);
    for (int r = 0; r < WORLD; r++) {
        void *const weights[] = { s->workers[r].weights };
        pd_error err;
        must(pd_client_init(s->workers[r].client, weights, &err), &err);
    }
}

static void end(scene *s)
{
    for (int r = 0; r < WORLD; r++) pd_client_close(s->workers[r].client);
    proxy_stop(s->link);
    daemon_end(s->daemon);
}

static pd_ticket_id push(worker *w)
{
    const pd_push_options options = { .counts = &w->count };
    pd_ticket_id ticket;
    pd_error err;

    must(pd_client_push_pull(w->client, &w->item, 1, &options, &ticket, &err), &err);
    return ticket;
}

static void finish(worker *w, pd_ticket_id ticket)
{
    pd_error err;

    must(pd_client_wait(w->client, ticket, patient(30), &err), &err);
}

/* Takes steps with all workers but the far one. */
static void others_go_on(scene *s)
{
    for (int step = 0; step < STEPS; step++) {
        pd_ticket_id tickets[FAR];
        for (int r = 0; r < FAR; r++) tickets[r] = push(&s->workers[r]);
        for (int r = 0; r < FAR; r++) finish(&s->workers[r], tickets[r]);
        for (int r = 0; r < FAR; r++) assert_int_equal(s->workers[r].item.outcome, STEPPED);
    }
}

/* Checks that the far worker's push was late, and that its next one counts, with one of another worker at least. */
static void far_comes_back(scene *s, pd_ticket_id ticket)
{
    worker *far = &s->workers[FAR];
    pd_ticket_id tickets[FAR];

    finish(far, ticket);
    assert_int_equal(far->item.outcome, LATE);
    assert_int_equal(far->item.step, STEPS);
    assert_float_equal(far->weights[0], -STEPS, 0);
    ticket = push(far);
    daemon_await_contributions(s->daemon, "j", STEPS * FAR + 1);
    for (int r = 0; r < FAR; r++) tickets[r] = push(&s->workers[r]);
    finish(far, ticket);
    assert_int_equal(far->item.outcome, STEPPED);
    assert_int_equal(far->item.step, STEPS + 1);
    for (int r = 0; r < FAR; r++) finish(&s->workers[r], tickets[r]);
}

static const char *const quorum[] = { "rounds=quorum", "quorum=2", "grace=50ms", NULL };
static const char *const shrinks[] = { "min_workers=1", "on_lost_worker=shrink", "reconnect_grace=300ms", NULL };

static void check_cut(const char *const *options)
{
    pd_ticket_id ticket;
    scene s;

    begin(&s, options);
    proxy_cut_after(s.link, 1, 1); /* each connection, until the link is whole again */
    proxy_cut_now(s.link);
    ticket = push(&s.workers[FAR]);
    others_go_on(&s);
    proxy_cut_after(s.link, 0, 0);
    far_comes_back(&s, ticket);
    end(&s);
}

static void check_stall(const char *const *options)
{
    pd_ticket_id ticket;
    scene s;

    begin(&s, options);
    proxy_stall(s.link, true);
    ticket = push(&s.workers[FAR]);
    others_go_on(&s);
    proxy_stall(s.link, false);
    far_comes_back(&s, ticket);
    end(&s);
}

TEST(a_quorum_goes_on_without_a_worker_whose_link_is_cut_which_counts_again_later)
{
    check_cut(quorum);
}

TEST(a_quorum_goes_on_without_a_worker_whose_link_stalls_which_counts_again_later)
{
    check_stall(quorum);
}

TEST(a_job_that_shrinks_goes_on_without_a_worker_whose_link_is_cut_which_counts_again_later)
{
    check_cut(shrinks);
}

TEST(a_job_that_shrinks_goes_on_without_a_worker_whose_link_stalls_which_counts_again_later)
{
    check_stall(shrinks);
}
