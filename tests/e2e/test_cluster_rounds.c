/* Tests jobs in whose steps not all workers count, on two daemons that share them: each daemon decides alone which
 * ranks count in the steps of its fragments, and which ranks are members. */
#include <stdlib.h>

#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"
#include "proxy.h"

enum { DAEMONS = 2, WORLD = 3, FRAGMENTS = 4, N = 5, LATE = 5 };

typedef struct worker {
    pd_client *client;
    float gradient[N], weights[FRAGMENTS][N];
    pd_item items[FRAGMENTS];
    pd_item_count counts[FRAGMENTS];
    pd_ticket_id tickets[FRAGMENTS];
} worker;

static struct {
    char folder[64], urls[200];
    test_daemon *daemon[DAEMONS];
    worker workers[WORLD + 1];
} cluster;

static pd_error err;

static int start(void **state)
{
    (void)state;
    daemons_start(cluster.daemon, DAEMONS, cluster.folder);
    snprintf(cluster.urls, sizeof cluster.urls, "%s %s", cluster.daemon[0]->url, cluster.daemon[1]->url);
    paramctl_ask(cluster.urls);
    return 0;
}

static int end(void **state)
{
    (void)state;
    return daemons_stop(cluster.daemon, DAEMONS, cluster.folder);
}

GROUP(start, end);

static void must(int rc, const char *what)
{
    if (rc != PD_OK) fail_msg("%s: %s", what, err.text);
}

/* Prepares a worker for steps as this rank. */
static worker *adopt(pd_client *client, int rank)
{
    worker *w = &cluster.workers[rank];

    w->client = client;
    for (int i = 0; i < N; i++) w->gradient[i] = (float)(1 << rank);
    for (size_t f = 0; f < FRAGMENTS; f++)
        w->items[f] = (pd_item){ .param = f, .gradient = w->gradient, .weights = w->weights[f] };
    return w;
}

/* Lets a worker join a job. Each element of its gradients is 2^rank. */
static worker *join(const char *job, int rank, const char *urls, const char *const *options)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    static const char *const names[FRAGMENTS] = { "a", "b", "c", "d" };
    const pd_client_options open = { .urls = urls,
                                     .job = job,
                                     .rank = rank,
                                     .world_size = rank != PD_ANY_RANK ? WORLD : 0,
                                     .rules = rules,
                                     .options = options,
                                     .deadline = patient(20),
                                     .quiet = true };
    pd_client_param params[FRAGMENTS];
    pd_client *client;
    worker *w;

    must(pd_client_open(&client, &open, &err), "open");
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        params[f] = (pd_client_param){ .name = names[f], .shape = { 1, { N } }, .fragment = f };
    w = adopt(client, pd_client_welcome(client)->rank);
    memset(w->weights, 0, sizeof w->weights);
    must(pd_client_declare(client, params, FRAGMENTS, &err), "declare");
    return w;
}

static void init(worker *w)
{
    void *weights[FRAGMENTS];

    for (size_t f = 0; f < FRAGMENTS; f++) weights[f] = w->weights[f];
    must(pd_client_init(w->client, weights, &err), "init");
}

static void begin(const char *job, const char *const *options)
{
    for (int r = 0; r < WORLD; r++) join(job, r, cluster.urls, options);
    for (int r = 0; r < WORLD; r++) init(&cluster.workers[r]);
}

static void push(int rank, size_t f)
{
    worker *w = &cluster.workers[rank];
    const pd_push_options options = { .counts = &w->counts[f] };

    must(pd_client_push_pull(w->client, &w->items[f], 1, &options, &w->tickets[f], &err), "push");
}

/* Waits for the answer to a push, and returns its outcome. */
static int finish(int rank, size_t f)
{
    worker *w = &cluster.workers[rank];

    must(pd_client_wait(w->client, w->tickets[f], 0, &err), "wait");
    return w->items[f].outcome;
}

/* Takes a step of a fragment with two ranks, of which the weights become `expected`, and then pushes a third one for
 * it, which is late. */
static void step_without(size_t f, int late, float expected)
{
    for (int r = 0; r < WORLD; r++)
        if (r != late) push(r, f);
    for (int r = 0; r < WORLD; r++)
        if (r != late) assert_int_equal(finish(r, f), 1);
    push(late, f);
    assert_int_equal(finish(late, f), LATE);
    for (int r = 0; r < WORLD; r++) {
        assert_int_equal(cluster.workers[r].items[f].step, 1);
        assert_float_equal(cluster.workers[r].weights[f][N - 1], expected, 0);
        assert_int_equal(cluster.workers[r].counts[f].counted, 2);
    }
}

/* Returns the entry of a list of paramctl whose number `key` has this value; the caller frees *answer. */
static json_t *entry_of(const char *command, const char *list, const char *key, int value, json_t **answer)
{
    size_t i;
    json_t *entry;

    assert_int_equal(paramctl("%s --json", command), 0);
    *answer = parsed();
    json_array_foreach(json_object_get(*answer, list), i, entry)
    {
        if (json_integer_value(json_object_get(entry, key)) == value) return entry;
    }
    fail_msg("%s: no entry with %s %d: %s", command, key, value, paramctl_output);
    return NULL;
}

static void expect_counted(int fragment, const char *counted)
{
    json_t *answer, *round = entry_of("rounds quorum", "rounds", "fragment", fragment, &answer);

    assert_string_equal(json_string_value(json_object_get(round, "counted")), counted);
    json_decref(answer);
}

static void close_all(void)
{
    for (int r = 0; r <= WORLD; r++) {
        pd_client_close(cluster.workers[r].client);
        cluster.workers[r].client = NULL;
    }
}

TEST(each_shard_counts_the_ranks_of_its_own_sets)
{
    static const char *const options[] = { "rounds=quorum", "quorum=2", NULL };

    begin("quorum", options);
    step_without(0, 2, -1.5f);
    step_without(1, 0, -3);
    step_without(2, 1, -2.5f);
    step_without(3, 2, -1.5f);
    expect_counted(0, "0,1");
    expect_counted(1, "1,2");
    expect_counted(2, "0,2");
    expect_counted(3, "0,1");
    for (int r = 0; r < WORLD; r++) must(pd_client_leave(cluster.workers[r].client, &err), "leave");
    close_all();
}

/* Takes a step of a fragment with these ranks, all of which must count. */
static void step_with(size_t f, unsigned ranks, uint32_t n)
{
    for (int r = 0; r <= WORLD; r++)
        if ((ranks >> r & 1) != 0) push(r, f);
    for (int r = 0; r <= WORLD; r++) {
        if ((ranks >> r & 1) == 0) continue;
        assert_int_equal(finish(r, f), 1);
        assert_int_equal(cluster.workers[r].counts[f].counted, n);
    }
}

TEST(a_rank_that_one_shard_has_removed_counts_on_the_other_and_joins_again)
{
    static const char *const options[] = { "min_workers=1", "max_workers=4", "reconnect_grace=300ms", NULL };
    proxy *link = proxy_start(cluster.daemon[1]->port);
    char urls[200];
    size_t here = 0, there = 1;

    snprintf(urls, sizeof urls, "%s tcp://127.0.0.1:%d", cluster.daemon[0]->url, proxy_port(link));
    for (int r = 0; r < WORLD; r++) join("cut", r, r == 2 ? urls : cluster.urls, options);
    for (int r = 0; r < WORLD; r++) init(&cluster.workers[r]);
    step_with(here, 7, 3);
    step_with(there, 7, 3);
    proxy_stall(link, true);
    proxy_cut_now(link);
    for (int r = 0; r < 2; r++) push(r, there);
    for (int r = 0; r < 2; r++) assert_int_equal(finish(r, there), 1);
    assert_int_equal(cluster.workers[0].counts[there].counted, 2);
    step_with(here, 7, 3);
    proxy_stall(link, false);
    push(2, there); /* for the step that was taken without it */
    assert_int_equal(finish(2, there), LATE);
    step_with(there, 7, 3);
    assert_float_equal(cluster.workers[2].weights[there][0], -7 / 3.0f - 1.5f - 7 / 3.0f, 1e-6);
    close_all();
    proxy_stop(link);
}

TEST(shard_0_gives_ranks_which_the_other_shard_takes)
{
    static const char *const options[] = { "min_workers=1", "max_workers=4", "reconnect_grace=300ms", NULL };
    json_t *answer;

    for (int r = 0; r < WORLD; r++) init(join("any", PD_ANY_RANK, cluster.urls, options));
    for (size_t f = 0; f < FRAGMENTS; f++) step_with(f, 7, 3);
    must(pd_client_leave(cluster.workers[1].client, &err), "leave");
    pd_client_close(cluster.workers[1].client);
    cluster.workers[1].client = NULL;
    for (size_t f = 0; f < FRAGMENTS; f++) step_with(f, 5, 2);
    init(join("any", PD_ANY_RANK, cluster.urls, options)); /* takes the rank that is free */
    assert_non_null(cluster.workers[1].client);
    for (size_t f = 0; f < FRAGMENTS; f++) step_with(f, 7, 3);
    pd_client_close(cluster.workers[2].client); /* it is lost, and removed after a while */
    cluster.workers[2].client = NULL;
    for (size_t f = 0; f < FRAGMENTS; f++) step_with(f, 3, 2);
    assert_int_equal(paramctl("kick any 1"), 0);
    for (size_t f = 0; f < FRAGMENTS; f++) step_with(f, 1, 1);
    assert_int_equal(json_integer_value(json_object_get(entry_of("jobs", "jobs", "shards", 2, &answer), "shards")), 2);
    json_decref(answer);
    close_all();
}

/* Returns whether a worker is told to call pd_client_rewind. */
static bool is_sent_back(void *client)
{
    pd_item item = { .param = 1, .weights = cluster.workers[2].weights[1] };
    pd_ticket_id ticket;
    int rc = pd_client_pull(client, &item, 1, 0, &ticket, &err);

    if (rc == PD_OK) rc = pd_client_wait(client, ticket, 0, &err);
    if (rc != PD_OK && rc != PD_REWIND) fail_msg("%d: %s", rc, err.text);
    return rc == PD_REWIND;
}

TEST(a_worker_whose_rank_was_given_away_goes_on_with_another_one)
{
    static const char *const options[] = { "min_workers=1", "max_workers=4", "reconnect_grace=300ms", NULL };
    proxy *links[DAEMONS];
    char urls[200];
    pd_client *moved;
    void *weights[FRAGMENTS];

    for (size_t i = 0; i < DAEMONS; i++) links[i] = proxy_start(cluster.daemon[i]->port);
    snprintf(urls, sizeof urls, "tcp://127.0.0.1:%d tcp://127.0.0.1:%d", proxy_port(links[0]), proxy_port(links[1]));
    for (int r = 0; r < 2; r++) init(join("moved", PD_ANY_RANK, r == 1 ? urls : cluster.urls, options));
    for (size_t f = 0; f < FRAGMENTS; f++) step_with(f, 3, 2);
    for (size_t i = 0; i < DAEMONS; i++) proxy_stall(links[i], true), proxy_cut_now(links[i]);
    for (size_t f = 0; f < FRAGMENTS; f++) step_with(f, 1, 1);
    moved = cluster.workers[1].client;
    init(join("moved", PD_ANY_RANK, cluster.urls, options));
    assert_ptr_not_equal(cluster.workers[1].client, moved);
    for (size_t i = 0; i < DAEMONS; i++) proxy_stall(links[i], false);
    assert_true(await(is_sent_back, moved, patient(20)));
    for (size_t f = 0; f < FRAGMENTS; f++) weights[f] = cluster.workers[2].weights[f];
    must(pd_client_rewind(moved, weights, &err), "rewind");
    assert_int_equal(pd_client_welcome(moved)->rank, 2);
    assert_memory_equal(weights[1], cluster.workers[0].weights[1], sizeof cluster.workers[0].weights[1]);
    adopt(moved, 2);
    for (size_t f = 0; f < FRAGMENTS; f++) step_with(f, 7, 3);
    close_all();
    for (size_t i = 0; i < DAEMONS; i++) proxy_stop(links[i]);
}

TEST(commands_need_no_step_that_both_shards_take)
{
    static const char *const options[] = { "min_workers=1", "max_workers=2", NULL };
    json_t *answer, *round;

    init(join("apart", PD_ANY_RANK, cluster.urls, options));
    for (size_t f = 0; f < FRAGMENTS; f++) step_with(f, 1, 1);
    for (int i = 0; i < 5; i++) step_with(0, 1, 1);
    step_with(1, 1, 1);
    assert_int_equal(paramctl("shards apart"), 0);
    assert_int_equal(paramctl("checkpoint apart"), 0);
    assert_says("apart: checkpoint of step 1, "); /* some fragment of each shard has taken one step */
    assert_int_equal(paramctl("set apart '*' lr=0.5"), 0);
    assert_says("from step 2 to 7 on");
    step_with(1, 1, 1);
    assert_float_equal(cluster.workers[0].weights[1][0], -2.5, 0);
    assert_int_equal(paramctl("export apart %s/apart --state", cluster.folder), 0);
    round = entry_of("rounds apart", "rounds", "fragment", 3, &answer);
    assert_int_equal(json_integer_value(json_object_get(round, "step")), 2);
    json_decref(answer);
    step_with(2, 1, 1);
    assert_int_equal(paramctl("checkpoint apart"), 0);
    assert_says("apart: checkpoint of steps 1 to 2, ");
    assert_int_equal(
        paramctl_shell("ls -d %s/*/apart-*/step-*02 %s/*/apart-*/step-*01", cluster.folder, cluster.folder), 0);
    close_all();
}
