/* Tests four workers that each have a shard of every parameter, as FSDP cuts them: they train the same weights as one
 * worker with whole gradients, bit for bit, also when connections break and processes die within a step. Some shards
 * are empty: those of a scalar, and of a bias of five elements. */
#include <pthread.h>

#include "test.h"
#include "daemon_process.h"
#include "proxy.h"
#include "team.h"

enum { WORLD = 4, N = 5, STEPS = 12, MOST = 2500 };
enum { STEP_BYTES = 6000 }; /* bytes that suffice for Hello, Declare, and one worker's shards or their answers */

static const char *const flags[] = { "--chunk-bytes=4KiB", "--max-payload=16KiB", NULL };
static const char *const rules[] = { "* adam lr=0.01", NULL };
static const pd_shape shapes[N] = { { 2, { 50, 50 } }, { 1, { 5 } }, { 0, { 0 } }, { 1, { 600 } }, { 1, { 1 } } };
static const char *const names[N] = { "kernel", "bias", "scale", "embedding", "temperature" };

typedef struct shard {
    const char *url, *job;
    int rank, world; /* world: number of ranks; 1: the rank has whole parameters, without ranges */
    int dies_in;     /* step in which another process replaces this one; 0: none */
    proxy *between;  /* proxy that cuts its connections in every step; NULL: none */
    pd_client *client;
    int64_t start[N], end[N];
    float weights[N][MOST], gradients[N][MOST];
    char failure[600];
} shard;

static bool failed(shard *s, const char *what, const pd_error *err)
{
    snprintf(s->failure, sizeof s->failure, "%s, rank %d: %s: %s", s->job, s->rank, what, err != NULL ? err->text : "");
    return false;
}

static void fill(shard *s, float out[N][MOST], uint64_t step)
{
    static _Thread_local float whole[MOST];

    for (size_t p = 0; p < N; p++) {
        int64_t n;
        pd_shape_elements(&shapes[p], &n);
        fill_gradient(whole, n, 0, step, p);
        memcpy(out[p], whole + s->start[p], (size_t)(s->end[p] - s->start[p]) * sizeof(float));
    }
}

/* Opens a client for this rank and declares its shards. The client has a nonce of its own, so the daemon takes it
 * for a new process. */
static bool begin(shard *s)
{
    pd_client_options options = {
        .urls = s->url, .job = s->job, .rank = s->rank, .world_size = s->world, .rules = rules, .deadline = patient(20)
    };
    pd_client_param params[N];
    void *weights[N];
    pd_error err = { 0 };

    for (size_t p = 0; p < N; p++) {
        int64_t n, part;
        pd_shape_elements(&shapes[p], &n);
        part = (n + s->world - 1) / s->world;
        s->start[p] = part * s->rank < n ? part * s->rank : n;
        s->end[p] = part * (s->rank + 1) < n ? part * (s->rank + 1) : n;
        params[p] = (pd_client_param){ .name = names[p], .shape = shapes[p], .ranged = s->world > 1 };
        if (s->world > 1) params[p].start = s->start[p], params[p].end = s->end[p];
        weights[p] = s->weights[p];
    }
    if (pd_client_open(&s->client, &options, &err) != PD_OK) return failed(s, "open", &err);
    if (pd_client_declare(s->client, params, N, &err) != PD_OK) return failed(s, "declare", &err);
    fill(s, s->weights, 0);
    return pd_client_init(s->client, weights, &err) == PD_OK || failed(s, "init", &err);
}

/* Lists the parameters whose round of this step is not known to be closed, and always the parameters with an empty
 * shard. An item without elements may have a NULL address. */
static size_t items_of(shard *s, uint64_t step, pd_item items[N])
{
    size_t n = 0;

    fill(s, s->gradients, step);
    for (size_t p = 0; p < N; p++) {
        bool empty = s->start[p] == s->end[p];
        if (!empty && pd_client_step(s->client, p) >= step) continue;
        items[n++] = (pd_item){ .param = p,
                                .gradient = empty && step % 2 == 0 ? NULL : s->gradients[p],
                                .weights = empty ? NULL : s->weights[p] };
    }
    return n;
}

static bool step(shard *s, uint64_t number)
{
    pd_item items[N];
    pd_ticket_id ticket;
    pd_error err = { 0 };
    size_t n = items_of(s, number, items);

    if (s->between != NULL)
        proxy_cut_after(s->between, STEP_BYTES + (size_t)number * 1237 % STEP_BYTES, number % 3 == 0 ? STEP_BYTES : 0);
    /* in this step the process ends: the frames that it has sent count, and nobody waits for their answers */
    if ((int)number == s->dies_in) {
        if (pd_client_push(s->client, items, n, NULL, &ticket, &err) != PD_OK) return failed(s, "push", &err);
        sleep_for(0.02);
        pd_client_close(s->client);
        s->client = NULL;
        if (!begin(s)) return false;
        n = items_of(s, number, items);
        if (n == 0) return true;
    }
    if (pd_client_push_pull(s->client, items, n, NULL, &ticket, &err) != PD_OK) return failed(s, "push_pull", &err);
    if (pd_client_wait(s->client, ticket, 0, &err) != PD_OK) return failed(s, "wait", &err);
    for (size_t i = 0; i < n; i++)
        if (items[i].outcome != (s->start[items[i].param] == s->end[items[i].param] ? 0 : 1))
            return failed(s, "an outcome is wrong", NULL);
    return true;
}

static void *live(void *arg)
{
    shard *s = arg;
    bool ok = begin(s);

    for (uint64_t number = 1; ok && number <= STEPS; number++) ok = step(s, number);
    if (s->between != NULL) proxy_cut_after(s->between, 0, 0);
    if (ok) pd_client_leave(s->client, NULL);
    pd_client_close(s->client);
    return NULL;
}

/* Runs one job whose ranks are the first `world` shards. Fails if one of them fails. */
static void train(shard *shards, int world)
{
    pthread_t threads[WORLD];

    for (int rank = 0; rank < world; rank++) {
        shards[rank].rank = rank;
        shards[rank].world = world;
        assert_int_equal(pthread_create(&threads[rank], NULL, live, &shards[rank]), 0);
    }
    for (int rank = 0; rank < world; rank++) pthread_join(threads[rank], NULL);
    for (int rank = 0; rank < world; rank++)
        if (shards[rank].failure[0] != '\0') fail_msg("%s", shards[rank].failure);
}

static void assert_trained_like_one(const test_daemon *daemon, const char *job, shard *shards)
{
    static shard whole;

    whole = (shard){ .url = daemon->url, .job = job };
    train(&whole, 1);
    for (int rank = 0; rank < WORLD; rank++)
        for (size_t p = 0; p < N; p++)
            assert_memory_equal(shards[rank].weights[p], whole.weights[p] + shards[rank].start[p],
                                (size_t)(shards[rank].end[p] - shards[rank].start[p]) * sizeof(float));
}

OBJECT(daemon_start(flags), daemon_end);

TEST(shards_of_four_workers_train_like_the_whole_of_one, const test_daemon *daemon)
{
    static shard shards[WORLD];

    for (int rank = 0; rank < WORLD; rank++) shards[rank] = (shard){ .url = daemon->url, .job = "shards" };
    train(shards, WORLD);
    assert_trained_like_one(daemon, "shards-whole", shards);
}

TEST(a_shard_whose_connection_breaks_in_every_step_counts_once, const test_daemon *daemon)
{
    static shard shards[WORLD];
    proxy *between = proxy_start(daemon->port);
    char through[64];

    snprintf(through, sizeof through, "tcp://127.0.0.1:%d", proxy_port(between));
    for (int rank = 0; rank < WORLD; rank++)
        shards[rank] =
            (shard){ .url = rank == 1 ? through : daemon->url, .job = "cuts", .between = rank == 1 ? between : NULL };
    train(shards, WORLD);
    assert_true(proxy_connections(between) > 3);
    proxy_stop(between);
    assert_trained_like_one(daemon, "cuts-whole", shards);
}

TEST(another_process_takes_a_shard_over_within_a_step, const test_daemon *daemon)
{
    static shard shards[WORLD];

    for (int rank = 0; rank < WORLD; rank++)
        shards[rank] = (shard){ .url = daemon->url, .job = "deaths", .dies_in = 2 + 3 * rank };
    train(shards, WORLD);
    assert_trained_like_one(daemon, "deaths-whole", shards);
}
