/* Tests one handle over servers that have a table of shards: a shard moves to another server while a worker trains. */
#include "test.h"
#include "daemon_process.h"
#include "handle.h"
#include "shard_servers.h"
#include "shard_table.h"
#include "shards.h"

/* Three shards and a spare. "bias" lies on shard 2, "kernel" on shard 0, "table" on shard 1. */
enum { BIAS, KERNEL, TABLE, N, SHARDS = 3, SPARE = 3, MOST = 300 };
static const int64_t sizes[N] = { 5, 70, MOST };
static const pd_client_param params[N] = {
    { .name = "bias", .shape = { 1, { 5 } } },
    { .name = "kernel", .shape = { 1, { 70 } } },
    { .name = "table", .shape = { 1, { MOST } } },
};
static const shard_place places[N] = { { .shard = 2 }, { .shard = 0 }, { .shard = 1 } };

typedef struct worker {
    shard_servers *servers;
    pd_client *client;
    float weights[N][MOST], gradients[N][MOST], expected[N][MOST];
    uint64_t steps;
} worker;

static pd_client_options options_of(const char *urls)
{
    static const char *const rules[] = { "* sgd", NULL };

    return (pd_client_options){
        .urls = urls, .job = "job", .world_size = 1, .rules = rules, .quiet = true, .deadline = patient(20)
    };
}

static void begin(worker *w, const pd_client_options *options)
{
    void *weights[N];
    pd_error err = { 0 };
    int rc = pd_client_open(&w->client, options, &err);

    if (rc != PD_OK) fail_msg("%s", err.text);
    while (options->join_later && (rc = pd_client_join(w->client, &err)) == PD_DEADLINE_EXCEEDED) continue;
    if (rc != PD_OK) fail_msg("%s", err.text);
    while ((rc = pd_client_declare(w->client, params, N, &err)) == PD_DEADLINE_EXCEEDED) continue;
    if (rc != PD_OK) fail_msg("%s", err.text);
    for (size_t p = 0; p < N; p++) {
        weights[p] = w->weights[p];
        for (int64_t i = 0; i < sizes[p]; i++) w->weights[p][i] = w->expected[p][i] = (float)(1000 * p + (size_t)i);
    }
    while ((rc = pd_client_init(w->client, weights, &err)) == PD_DEADLINE_EXCEEDED) continue;
    if (rc != PD_OK) fail_msg("%s", err.text);
}

static void set_up(worker *w)
{
    w->servers = shard_servers_start_followed(SHARDS, 1, places, N);
}

static void tear_down(worker *w)
{
    pd_client_close(w->client);
    shard_servers_end(w->servers);
}

WITH_THREADS();

FIXTURE(worker, set_up, tear_down);

static void begin_with_all(worker *w)
{
    pd_client_options options = options_of(w->servers->urls);

    begin(w, &options);
}

static void take_steps(worker *w, int n)
{
    pd_item items[N];
    pd_ticket_id ticket;
    pd_error err = { 0 };

    for (int k = 0; k < n; k++) {
        uint64_t step = ++w->steps;
        for (size_t p = 0; p < N; p++) {
            for (int64_t i = 0; i < sizes[p]; i++) {
                w->gradients[p][i] = (float)((step * 31 + p * 7 + (size_t)i) % 17);
                w->expected[p][i] -= w->gradients[p][i];
            }
            items[p] = (pd_item){ .param = p, .gradient = w->gradients[p], .weights = w->weights[p] };
        }
        if (pd_client_push_pull(w->client, items, N, NULL, &ticket, &err) != PD_OK ||
            pd_client_wait(w->client, ticket, 0, &err) != PD_OK)
            fail_msg("step %d: %s", (int)step, err.text);
        for (size_t p = 0; p < N; p++)
            assert_memory_equal(w->weights[p], w->expected[p], (size_t)sizes[p] * sizeof(float));
    }
}

/* Returns how many requests of a method have come to all servers. */
static int count(const worker *w, unsigned method)
{
    int n = 0;

    for (size_t i = 0; i < SHARDS + 1; i++) n += atomic_load(&w->servers->at[i].came[method]);
    return n;
}

static void stop(shard_server *server)
{
    atomic_store(&server->down, true);
    while (atomic_load(&server->serves)) usleep(1000);
}

TEST(a_shard_whose_server_is_gone_is_found_at_its_new_place, worker *w)
{
    begin_with_all(w);
    take_steps(w, 3);
    stop(&w->servers->at[1]);
    shard_servers_move(w->servers, 1, SPARE, false);
    take_steps(w, 3);
    assert_true(atomic_load(&w->servers->at[SPARE].came[PD_PUSH_PULL]) >= 3);
    assert_int_equal(w->servers->at[SPARE].shards, SHARDS);
}

static bool serves(void *server)
{
    return atomic_load(&((shard_server *)server)->serves);
}

TEST(workers_leave_an_earlier_owner_that_still_answers, worker *w)
{
    int before;

    begin_with_all(w);
    take_steps(w, 3);
    shard_servers_move(w->servers, 1, SPARE, true);
    assert_true(await(serves, &w->servers->at[SPARE], patient(20))); /* heartbeats bring the notice */
    before = atomic_load(&w->servers->at[1].came[PD_PUSH_PULL]);
    take_steps(w, 3);
    assert_int_equal(atomic_load(&w->servers->at[1].came[PD_PUSH_PULL]), before);
}

TEST(workers_leave_an_earlier_owner_also_if_only_one_server_has_heard_of_the_new_one, worker *w)
{
    begin_with_all(w);
    take_steps(w, 3);
    atomic_store(&w->servers->at[1].behind, true); /* the earlier owner itself */
    atomic_store(&w->servers->at[2].behind, true);
    shard_servers_move(w->servers, 1, SPARE, true);
    assert_true(await(serves, &w->servers->at[SPARE], patient(10)));
    take_steps(w, 3);
}

TEST(a_shard_moves_there_and_back, worker *w)
{
    begin_with_all(w);
    for (int i = 0; i < 4; i++) {
        size_t from = i % 2 == 0 ? 2 : SPARE, to = i % 2 == 0 ? SPARE : 2;
        take_steps(w, 2);
        stop(&w->servers->at[from]);
        shard_servers_move(w->servers, 2, to, i % 3 == 0);
        take_steps(w, 2);
    }
}

TEST(shard_0_moves_like_any_other, worker *w)
{
    begin_with_all(w);
    take_steps(w, 2);
    stop(&w->servers->at[0]);
    shard_servers_move(w->servers, 0, SPARE, false);
    take_steps(w, 2);
}

static bool knows_the_spare(void *arg)
{
    char *spares = pd_shard_table_spares(((worker *)arg)->client->table);
    bool knows = spares != NULL;

    free(spares);
    return knows;
}

TEST(all_shards_may_be_gone_at_once_if_one_is_found_at_a_spare, worker *w)
{
    begin_with_all(w);
    take_steps(w, 2);
    assert_true(await(knows_the_spare, w, patient(10)));
    for (size_t i = 0; i < SHARDS; i++) stop(&w->servers->at[i]);
    shard_servers_move(w->servers, 1, SPARE, false);
    assert_true(await(serves, &w->servers->at[SPARE], patient(20)));
    atomic_store(&w->servers->at[0].down, false);
    atomic_store(&w->servers->at[2].down, false);
    take_steps(w, 2);
}

TEST(one_address_opens_all_shards_of_a_cluster_with_a_table, worker *w)
{
    char url[32];
    pd_client_options options = options_of(url);

    snprintf(url, sizeof url, "127.0.0.1:%d", w->servers->at[1].port);
    begin(w, &options);
    assert_non_null(w->client->shards);
    assert_int_equal(w->client->shards->n, SHARDS);
    take_steps(w, 2);
    stop(&w->servers->at[2]);
    shard_servers_move(w->servers, 2, SPARE, false);
    take_steps(w, 2);
}

TEST(one_address_opens_all_shards_in_slices_of_time, worker *w)
{
    char url[32];
    pd_client_options options = options_of(url);

    snprintf(url, sizeof url, "127.0.0.1:%d", w->servers->at[0].port);
    options.join_later = true;
    options.slice = 0.001;
    begin(w, &options);
    take_steps(w, 2);
}

TEST(one_address_whose_cluster_is_not_there_yet_is_an_error_in_time, worker *w)
{
    char url[32];
    pd_client_options options = options_of(url);
    pd_error err = { 0 };

    snprintf(url, sizeof url, "127.0.0.1:%d", w->servers->at[0].port);
    options.deadline = 0.5;
    stop(&w->servers->at[2]);
    assert_int_equal(pd_client_open(&w->client, &options, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "shard 2 (tcp://127.0.0.1:"));
}

TEST(servers_that_are_away_are_asked_for_once_a_second_at_most, worker *w)
{
    double begun;
    int before, asks;

    begin_with_all(w);
    take_steps(w, 1);
    sleep(2); /* what the welcomes of the shards have caused is over */
    before = count(w, PD_SHARDS);
    begun = pd_clock_seconds();
    stop(&w->servers->at[1]);
    stop(&w->servers->at[2]);
    while (count(w, PD_SHARDS) < before + 3) usleep(1000);
    asks = count(w, PD_SHARDS) - before;
    assert_true(pd_clock_seconds() - begun > asks - 1.1);
    shard_servers_move(w->servers, 1, SPARE, false);
    atomic_store(&w->servers->at[2].down, false);
    take_steps(w, 2);
}

TEST(servers_without_a_table_are_never_asked, worker *w)
{
    for (size_t i = 0; i < SHARDS; i++) atomic_store(&w->servers->at[i].tenure, 0);
    begin_with_all(w);
    take_steps(w, 2);
    stop(&w->servers->at[1]);
    usleep(300000);
    atomic_store(&w->servers->at[1].down, false);
    take_steps(w, 2);
    assert_int_equal(count(w, PD_SHARDS), 0);
}
