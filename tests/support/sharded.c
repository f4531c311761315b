/* sharded.c - opens a handle over three small servers, and takes steps with it. */
#include "sharded.h"

#include <stdlib.h>
#include <unistd.h>

#include "test.h"
#include "daemon_process.h"

const int64_t sharded_sizes[N] = { 5, 700, MOST };
const pd_client_param sharded_params[N] = {
    { .name = "bias", .shape = { 1, { 5 } } },
    { .name = "kernel", .shape = { 2, { 70, 10 } } },
    { .name = "table", .shape = { 2, { 500, 2 } } },
};
const shard_place sharded_places[N] = {
    { .shard = 2 },
    { .shard = 0 },
    { .n_portions = 3, .portions = { { 0, 300, 1 }, { 300, 500, 0 }, { 800, 200, 1 } } },
};

pd_client_options sharded_options(const sharded *w)
{
    static const char *const rules[] = { "* sgd", NULL };

    return (pd_client_options){
        .urls = w->servers->urls, .job = "job", .world_size = 1, .rules = rules, .quiet = true, .deadline = patient(20)
    };
}

void sharded_open(sharded *w)
{
    pd_client_options options = sharded_options(w);
    pd_error err = { 0 };

    if (pd_client_open(&w->client, &options, &err) != PD_OK) fail_msg("%s", err.text);
}

void sharded_declare(sharded *w, const pd_client_param *list)
{
    pd_error err = { 0 };

    if (pd_client_declare(w->client, list, N, &err) != PD_OK) fail_msg("%s", err.text);
}

void sharded_init(sharded *w)
{
    void *weights[N];
    pd_error err = { 0 };

    for (size_t p = 0; p < N; p++) {
        weights[p] = w->weights[p];
        for (int64_t i = 0; i < sharded_sizes[p]; i++)
            w->weights[p][i] = w->expected[p][i] = (float)(1000 * p + (size_t)i);
    }
    if (pd_client_init(w->client, weights, &err) != PD_OK) fail_msg("%s", err.text);
}

void sharded_set_up_with(sharded *w, const pd_client_param *list)
{
    w->servers = shard_servers_start(SHARDS, sharded_places, N);
    sharded_open(w);
    sharded_declare(w, list);
    sharded_init(w);
}

void sharded_set_up(sharded *w)
{
    sharded_set_up_with(w, sharded_params);
}

void sharded_tear_down(sharded *w)
{
    pd_client_close(w->client);
    shard_servers_end(w->servers);
}

void sharded_prepare(sharded *w, uint64_t step)
{
    for (size_t p = 0; p < N; p++) {
        for (int64_t i = 0; i < sharded_sizes[p]; i++)
            w->gradients[p][i] = (float)((step * 31 + p * 7 + (size_t)i) % 17);
        w->items[p] = (pd_item){ .param = p, .gradient = w->gradients[p], .weights = w->weights[p] };
    }
}

void sharded_expect_weights(const sharded *w)
{
    for (size_t p = 0; p < N; p++)
        for (int64_t i = 0; i < sharded_sizes[p]; i++)
            if (w->weights[p][i] != w->expected[p][i])
                fail_msg("%s[%d]: %g, expected %g", sharded_params[p].name, (int)i, w->weights[p][i],
                         w->expected[p][i]);
}

int sharded_step(sharded *w, uint64_t number, const pd_push_options *options, pd_error *err)
{
    pd_ticket_id ticket;
    int rc;

    sharded_prepare(w, number);
    rc = pd_client_push_pull(w->client, w->items, N, options, &ticket, err);
    return rc == PD_OK ? pd_client_wait(w->client, ticket, 0, err) : rc;
}

void sharded_take_step(sharded *w, uint64_t number)
{
    pd_error err = { 0 };

    if (sharded_step(w, number, NULL, &err) != PD_OK) fail_msg("step %d: %s", (int)number, err.text);
    for (size_t p = 0; p < N; p++) {
        assert_int_equal(w->items[p].outcome, 1);
        assert_int_equal(w->items[p].step, number);
        assert_int_equal(w->items[p].version, number);
        for (int64_t i = 0; i < sharded_sizes[p]; i++) w->expected[p][i] -= w->gradients[p][i];
    }
}

void sharded_cut(shard_server *server)
{
    atomic_store(&server->down, true);
    while (atomic_load(&server->serves)) usleep(1000);
    atomic_store(&server->down, false);
}
