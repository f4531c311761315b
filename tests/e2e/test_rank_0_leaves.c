/* Tests a job whose rank 0 leaves for good, with a real daemon: another rank gets the server's warnings, and sends
 * weights that the workers have changed by hand. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

enum { WORLD = 3, N = 5, NUMBER = 77 };

typedef struct worker {
    pd_client *client;
    float weights[N], gradient[N];
    int told;        /* number of warnings of the server */
    char last[1024]; /* the last of them */
} worker;

static void must(int rc, const pd_error *err)
{
    if (rc != PD_OK) fail_msg("%s", err->text);
}

static void keep(void *arg, const char *text)
{
    worker *w = arg;

    if (strstr(text, "warning of the server") == NULL) return;
    w->told++;
    snprintf(w->last, sizeof w->last, "%s", text);
}

static void open_worker(const test_daemon *daemon, worker *w, int rank)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    static const char *const options[] = { "min_workers=1", "max_workers=3", "reconnect_grace=0.2", NULL };
    static const pd_client_param param = { .name = "w", .shape = { 1, { N } } };
    pd_client_options how = { .urls = daemon->url,
                              .job = "elastic",
                              .rank = rank,
                              .world_size = rank == PD_ANY_RANK ? 0 : WORLD,
                              .options = options,
                              .rules = rules,
                              .deadline = patient(20) };
    pd_error err;

    how.notice = keep;
    how.notice_arg = w;
    *w = (worker){ 0 };
    must(pd_client_open(&w->client, &how, &err), &err);
    must(pd_client_declare(w->client, &param, 1, &err), &err);
    must(pd_client_init(w->client, (void *const[]){ w->weights }, &err), &err);
}

/* Lets the workers from `first` on take a step, with gradients of ones. */
static void step(worker *workers, int first, uint64_t replaces)
{
    pd_push_options options = { .replaces = replaces };
    pd_ticket_id tickets[WORLD];
    pd_item items[WORLD];
    pd_error err;

    for (int r = first; r < WORLD; r++) {
        worker *w = &workers[r];
        for (int i = 0; i < N; i++) w->gradient[i] = 1;
        items[r] = (pd_item){ .gradient = w->gradient, .weights = w->weights };
        must(pd_client_push_pull(w->client, &items[r], 1, &options, &tickets[r], &err), &err);
    }
    for (int r = first; r < WORLD; r++) must(pd_client_wait(workers[r].client, tickets[r], 0, &err), &err);
}

static void expect_leader(const worker *workers, int first, int leader)
{
    for (int r = first; r < WORLD; r++) assert_true(pd_client_leads(workers[r].client) == (r == leader));
}

/* Lets every worker from `first` on change its weights to `value`, and the leader send them. */
static void change(worker *workers, int first, float value)
{
    pd_error err;

    for (int r = first; r < WORLD; r++) {
        worker *w = &workers[r];
        for (int i = 0; i < N; i++) w->weights[i] = value;
        if (!pd_client_leads(w->client)) continue;
        must(pd_client_replace(w->client, &(pd_item){ .weights = w->weights }, 1, NUMBER, &err), &err);
    }
}

static void check_course(bool any_rank)
{
    test_daemon *daemon = daemon_start(NULL);
    worker workers[WORLD];
    pd_error err;

    for (int r = 0; r < WORLD; r++) open_worker(daemon, &workers[r], any_rank ? PD_ANY_RANK : r);
    step(workers, 0, 0);
    expect_leader(workers, 0, 0);
    must(pd_client_leave(workers[0].client, &err), &err);
    step(workers, 1, 0);
    expect_leader(workers, 1, 1);
    change(workers, 1, 5);
    step(workers, 1, NUMBER);
    assert_true(workers[1].weights[0] == 4 && workers[2].weights[0] == 4);
    for (int r = 0; r < WORLD; r++) pd_client_close(workers[r].client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

HOLDS(after_rank_0_has_left_the_next_rank_sends_changed_weights, check_course(false));
HOLDS(workers_of_any_rank_have_a_leader_that_sends_changed_weights, check_course(true));

/* Returns whether the server has warned a worker, which takes steps alone meanwhile. */
static bool is_warned(void *arg)
{
    worker *workers = arg;

    step(workers, WORLD - 1, 0);
    return workers[WORLD - 1].told > 0;
}

TEST(after_rank_0_has_left_the_next_rank_gets_the_warnings_about_the_job)
{
    test_daemon *daemon = daemon_start(NULL);
    worker workers[WORLD];
    pd_error err;

    for (int r = 0; r < WORLD; r++) open_worker(daemon, &workers[r], r);
    step(workers, 0, 0);
    must(pd_client_leave(workers[0].client, &err), &err);
    step(workers, 1, 0);
    pd_client_close(workers[1].client); /* without leaving */
    assert_true(await(is_warned, workers, patient(20)));
    if (strstr(workers[2].last, "rank 1: ") == NULL) fail_msg("%s", workers[2].last);
    pd_client_close(workers[0].client);
    pd_client_close(workers[2].client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}
