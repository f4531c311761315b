/* Tests how a handle over several servers opens: which servers it refuses, what it says of them, and how it waits. */
#include "test.h"
#include "daemon_process.h"
#include "handle.h"
#include "shard_servers.h"

WITH_THREADS();

/* Each shard has one parameter. */
enum { N = 3, SHARDS = 3 };
static const pd_client_param params[N] = {
    { .name = "a", .shape = { 1, { 5 } } },
    { .name = "b", .shape = { 1, { 6 } } },
    { .name = "c", .shape = { 1, { 7 } } },
};
static const shard_place places[N] = { { .shard = 2 }, { .shard = 0 }, { .shard = 1 } };

static pd_client_options options_of(const shard_servers *servers)
{
    static const char *const rules[] = { "* sgd", NULL };

    return (pd_client_options){
        .urls = servers->urls, .job = "job", .world_size = 1, .rules = rules, .quiet = true, .deadline = patient(20)
    };
}

/* Opens a client for servers that differ in one thing, and declares. Returns the error. */
static int try_with(shard_servers *servers, pd_error *err)
{
    pd_client_options options = options_of(servers);
    pd_client *client;
    int rc;

    options.deadline = patient(3);
    rc = pd_client_open(&client, &options, err);
    if (rc != PD_OK) return rc;
    rc = pd_client_declare(client, params, N, err);
    pd_client_close(client);
    return rc;
}

TEST(shards_that_do_not_fit_together_are_refused_and_named)
{
    shard_servers *servers = shard_servers_start(SHARDS, places, N);
    char name[64];
    pd_error err;

    sprintf(name, "shard 2 (tcp://127.0.0.1:%d): ", servers->at[2].port);
    servers->at[2].seed = 6;
    assert_int_equal(try_with(servers, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(strncmp(err.text, name, strlen(name)), 0);
    assert_non_null(strstr(err.text, "seed 6, that of shard 0 has 5"));
    servers->at[2].seed = 5;
    servers->at[2].map = 98;
    assert_int_equal(try_with(servers, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(strncmp(err.text, name, strlen(name)), 0);
    assert_non_null(strstr(err.text, "makes another map"));
    servers->at[2].map = 99;
    atomic_store(&servers->at[2].refuses, PD_HELLO);
    atomic_store(&servers->at[2].code, PD_FAILED_PRECONDITION);
    atomic_store(&servers->at[2].refusals, 1);
    assert_int_equal(try_with(servers, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(strncmp(err.text, name, strlen(name)), 0);
    assert_int_equal(try_with(servers, &err), PD_OK);
    shard_servers_end(servers);
}

TEST(a_shard_that_is_not_there_is_named)
{
    shard_servers *servers = shard_servers_start(SHARDS, places, N);
    pd_error err;

    atomic_store(&servers->at[1].down, true);
    assert_int_equal(try_with(servers, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "no server within"));
    assert_non_null(strstr(err.text, "shard 1 (tcp://127.0.0.1:"));
    shard_servers_end(servers);
}

static void keep_notice(void *arg, const char *text)
{
    char *kept = arg;

    strncat(kept, text, 400);
}

TEST(other_kernels_on_a_shard_are_told_to_the_user)
{
    shard_servers *servers = shard_servers_start(SHARDS, places, N);
    pd_client_options options = options_of(servers);
    pd_client *client;
    char notices[2000] = "";
    pd_error err;

    servers->at[1].kernels = "Haswell";
    options.quiet = false;
    options.notice = keep_notice;
    options.notice_arg = notices;
    assert_int_equal(pd_client_open(&client, &options, &err), PD_OK);
    assert_non_null(strstr(notices, "shard 1 has other kernels (Haswell) than shard 0 (core)"));
    pd_client_close(client);
    shard_servers_end(servers);
}

TEST(a_handle_that_joins_later_waits_for_all_shards)
{
    shard_servers *servers = shard_servers_start(SHARDS, places, N);
    pd_client_options options = options_of(servers);
    pd_client *client;
    pd_error err;
    int rc;

    atomic_store(&servers->at[2].down, true);
    options.join_later = true;
    options.slice = 0.05;
    assert_int_equal(pd_client_open(&client, &options, &err), PD_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(pd_client_join(client, &err), PD_DEADLINE_EXCEEDED);
        assert_int_equal(strncmp(err.text, "waited ", 7), 0);
    }
    atomic_store(&servers->at[2].down, false);
    while ((rc = pd_client_join(client, &err)) == PD_DEADLINE_EXCEEDED) continue;
    assert_int_equal(rc, PD_OK);
    assert_int_equal(pd_client_welcome(client)->chunk_elements, SHARD_CHUNK);
    pd_client_close(client);
    shard_servers_end(servers);
}
