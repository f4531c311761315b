/* Tests one handle over several servers whose shards come back, lose the job, go back, or answer a call at different
 * times. */
#include "test.h"
#include "daemon_process.h"
#include "sharded.h"
#include "shards.h"

WITH_THREADS();

FIXTURE(sharded, sharded_set_up, sharded_tear_down);

TEST(a_shard_that_comes_back_gets_its_requests_again, sharded *w)
{
    for (uint64_t s = 1; s <= 6; s++) {
        shard_server *server = &w->servers->at[s % SHARDS];
        sharded_cut(server);
        sharded_take_step(w, s);
        sharded_expect_weights(w);
    }
}

/* Makes a server lose the job, and ends its connection. */
static void lose(shard_server *server)
{
    atomic_store(&server->initialised, false);
    sharded_cut(server);
}

static void expect_lost(int rc, const pd_error *err)
{
    if (rc != PD_DATA_LOSS || strstr(err->text, "the server no longer has job") == NULL)
        fail_msg("%s: %s", pd_code_name(rc), err->text);
}

TEST(a_shard_that_has_lost_the_job_ends_calls_that_wait_for_others, sharded *w)
{
    pd_ticket_id ticket;
    pd_error err = { 0 };

    atomic_store(&w->servers->at[0].ignores, PD_PUSH_PULL);
    sharded_prepare(w, 1);
    assert_int_equal(pd_client_push_pull(w->client, &w->items[KERNEL], 1, NULL, &ticket, &err), PD_OK);
    lose(&w->servers->at[2]);
    expect_lost(pd_client_wait(w->client, ticket, 0, &err), &err);
}

TEST(a_shard_that_has_lost_the_job_ends_a_barrier, sharded *w)
{
    pd_error err = { 0 };

    atomic_store(&w->servers->at[0].ignores, PD_BARRIER);
    lose(&w->servers->at[1]);
    expect_lost(pd_client_barrier(w->client, &err), &err);
}

static void await_count(const atomic_int *count, int n)
{
    double end = pd_clock_seconds() + patient(10);

    while (atomic_load(count) < n && pd_clock_seconds() < end) usleep(1000);
    assert_int_equal(atomic_load(count), n);
}

TEST(a_shard_that_was_loaded_again_gets_requests_when_all_shards_are_there, sharded *w)
{
    enum { FRAMES = (700 + SHARD_CHUNK - 1) / SHARD_CHUNK };
    shard_server *at = w->servers->at;
    pd_ticket_id ticket;
    pd_error err = { 0 };

    atomic_store(&at[0].ignores, PD_PUSH_PULL);
    sharded_prepare(w, 1);
    assert_int_equal(pd_client_push_pull(w->client, &w->items[KERNEL], 1, NULL, &ticket, &err), PD_OK);
    await_count(&at[0].came[PD_PUSH_PULL], FRAMES);
    atomic_store(&at[1].down, true);
    while (atomic_load(&at[1].serves)) usleep(1000);
    at[0].life++;
    atomic_store(&at[0].ignores, PD_METHODS);
    sharded_cut(&at[0]);
    await_count(&at[0].came[PD_DECLARE], 2);
    usleep(200000);
    assert_int_equal(atomic_load(&at[0].came[PD_PUSH_PULL]), FRAMES);
    atomic_store(&at[1].down, false);
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    assert_int_equal(atomic_load(&at[0].came[PD_PUSH_PULL]), 2 * FRAMES);
}

/* Gives the job of a server another life, in which no step is durable yet. */
static void go_back(shard_server *server)
{
    server->life++;
    sharded_cut(server);
}

static void await_no_durable(const pd_client *client)
{
    double end = pd_clock_seconds() + patient(10);

    while (pd_client_durable(client) > 0 && pd_clock_seconds() < end) usleep(1000);
    assert_int_equal(pd_client_durable(client), 0);
}

/* A shard goes back while another one has yet to write the step. */
TEST(a_step_that_a_shard_has_lost_meanwhile_is_asked_for_again, sharded *w)
{
    shard_server *at = w->servers->at;
    pd_error err = { 0 };

    for (size_t s = 0; s < SHARDS; s++) at[s].durable = 6;
    sharded_take_step(w, 1);
    assert_int_equal(pd_client_durable(w->client), 6);
    atomic_store(&at[0].ignores, PD_CHECKPOINT);
    w->client->slice = 0.05;
    while (atomic_load(&at[1].came[PD_CHECKPOINT]) == 0 || atomic_load(&at[2].came[PD_CHECKPOINT]) == 0)
        assert_int_equal(pd_client_sync(w->client, 7, &err), PD_DEADLINE_EXCEEDED);
    go_back(&at[1]);
    await_count(&at[1].came[PD_DECLARE], 2);
    await_no_durable(w->client);
    atomic_store(&at[0].ignores, PD_METHODS);
    sharded_cut(&at[0]);
    w->client->slice = patient(20);
    assert_int_equal(pd_client_sync(w->client, 7, &err), PD_OK);
    assert_int_equal(atomic_load(&at[1].came[PD_CHECKPOINT]), 3);
}

/* A shard goes back after it has answered, and before the last one has. The worker learns that with the next answer. */
TEST(a_durable_step_counts_once_all_shards_have_confirmed_it, sharded *w)
{
    shard_server *at = w->servers->at;
    pd_error err = { 0 };

    sharded_take_step(w, 1);
    atomic_store(&at[0].ignores, PD_CHECKPOINT);
    w->client->slice = 0.05;
    while (atomic_load(&at[1].came[PD_CHECKPOINT]) == 0 || atomic_load(&at[2].came[PD_CHECKPOINT]) == 0)
        assert_int_equal(pd_client_sync(w->client, 7, &err), PD_DEADLINE_EXCEEDED);
    atomic_store(&at[1].ignores, PD_CHECKPOINT);
    atomic_store(&at[0].ignores, PD_METHODS);
    sharded_cut(&at[0]);
    while (atomic_load(&at[1].came[PD_CHECKPOINT]) == 1)
        assert_int_equal(pd_client_sync(w->client, 7, &err), PD_DEADLINE_EXCEEDED);
    go_back(&at[1]);
    atomic_store(&at[1].ignores, PD_METHODS);
    w->client->slice = patient(20);
    assert_int_equal(pd_client_sync(w->client, 7, &err), PD_OK);
    for (size_t s = 0; s < SHARDS; s++) assert_in_range(atomic_load(&at[s].came[PD_CHECKPOINT]), 4, 6);
}

/* Shard 1 has no checkpoint of step 7, since it has taken step 8 before it was asked. */
TEST(a_step_that_a_shard_has_passed_is_durable_with_a_later_one_on_all, sharded *w)
{
    shard_server *at = w->servers->at;
    pd_error err = { 0 };

    for (size_t s = 0; s < SHARDS; s++) at[s].durable = 6;
    sharded_take_step(w, 1);
    at[1].ahead = 8;
    assert_int_equal(pd_client_sync(w->client, 7, &err), PD_OK);
    assert_int_equal(pd_client_durable(w->client), 8);
    for (size_t s = 0; s < SHARDS; s++) assert_int_equal(atomic_load(&at[s].came[PD_CHECKPOINT]), 4);
}

/* Shard 0 takes step 8 later. The others are not asked again. */
TEST(short_calls_continue_to_wait_for_the_later_step, sharded *w)
{
    shard_server *at = w->servers->at;
    pd_error err = { 0 };

    sharded_take_step(w, 1);
    at[1].ahead = 8;
    atomic_store(&at[0].most, 7);
    w->client->slice = 0.05;
    while (atomic_load(&at[0].came[PD_CHECKPOINT]) < 3 || atomic_load(&at[1].came[PD_CHECKPOINT]) < 3)
        assert_int_equal(pd_client_sync(w->client, 7, &err), PD_DEADLINE_EXCEEDED);
    for (int i = 0; i < 3; i++) assert_int_equal(pd_client_sync(w->client, 7, &err), PD_DEADLINE_EXCEEDED);
    atomic_store(&at[0].most, 0);
    sharded_cut(&at[0]);
    w->client->slice = patient(20);
    assert_int_equal(pd_client_sync(w->client, 7, &err), PD_OK);
    assert_int_equal(pd_client_durable(w->client), 8);
    assert_int_equal(atomic_load(&at[1].came[PD_CHECKPOINT]), 4);
}

/* The WAL of shard 1 has ended at step 6, and its checkpoint is of step 8: it cannot go to step 7. */
TEST(a_step_in_a_gap_of_a_log_is_not_durable, sharded *w)
{
    for (size_t s = 0; s < SHARDS; s++) {
        pd_core *core = w->client->shards->at[s]->core;
        core->replays = true;
        core->n_kept = 0;
        core->progress.durable = s == 1 ? 8 : 7;
        core->progress.unbroken = s == 1 ? 8 : 4;
    }
    assert_int_equal(pd_client_durable(w->client), 0);
    for (size_t s = 0; s < SHARDS; s++) w->client->shards->at[s]->core->progress.durable = 9;
    assert_int_equal(pd_client_durable(w->client), 9);
}

/* Lets a shard have checkpoints of steps 4, 8 and 12, and a mirror up to a step; UINT64_MAX: no mirror. */
static void have_mirror(const sharded *w, size_t shard, bool replays, uint64_t step)
{
    pd_core *core = w->client->shards->at[shard]->core;

    core->replays = replays;
    core->n_kept = 3;
    for (size_t i = 0; i < core->n_kept; i++) core->kept[i] = 12 - 4 * i;
    core->progress.durable = 14;
    core->progress.unbroken = 4;
    core->progress.mirrored = step + 1;
}

/* Returns the step that the next pushes tell. */
static uint64_t common(const sharded *w)
{
    const uint64_t *told = &w->client->shards->at[0]->core->progress.common;

    pd_shards_share_durable(w->client->shards);
    for (size_t s = 1; s < SHARDS; s++) assert_int_equal(w->client->shards->at[s]->core->progress.common, *told);
    return *told;
}

TEST(a_step_that_a_mirror_lacks_is_durable_but_not_common, sharded *w)
{
    for (size_t s = 0; s < SHARDS; s++) have_mirror(w, s, false, s == 1 ? 9 : 13);
    assert_int_equal(common(w), 8);
    assert_int_equal(pd_client_durable(w->client), 14);
    have_mirror(w, 1, false, 12);
    assert_int_equal(common(w), 12);
    have_mirror(w, 1, false, 0);
    assert_int_equal(common(w), 0);
}

TEST(a_shard_whose_mirror_does_not_count_goes_back_to_what_is_durable, sharded *w)
{
    for (size_t s = 0; s < SHARDS; s++) have_mirror(w, s, false, UINT64_MAX);
    assert_int_equal(common(w), 14);
    have_mirror(w, 2, false, 8);
    assert_int_equal(common(w), 8);
    w->client->shards->at[2]->core->progress.mirrored = UINT64_MAX; /* the mirror lacks too many checkpoints */
    assert_int_equal(common(w), 14);
}

TEST(mirrors_with_logs_have_each_step_up_to_the_least_one_that_they_tell, sharded *w)
{
    for (size_t s = 0; s < SHARDS; s++) have_mirror(w, s, true, 10 + s);
    assert_int_equal(common(w), 10);
    assert_int_equal(pd_client_durable(w->client), 14);
    w->client->shards->at[1]->core->progress.unbroken = 11;
    assert_int_equal(common(w), 8);
}

TEST(a_worker_leaves_shards_that_answer_at_different_times, sharded *w)
{
    shard_server *at = w->servers->at;
    pd_error err = { 0 };

    atomic_store(&at[0].ignores, PD_LEAVE);
    w->client->slice = 0.05;
    while (atomic_load(&at[1].came[PD_LEAVE]) == 0 || atomic_load(&at[2].came[PD_LEAVE]) == 0)
        assert_int_equal(pd_client_leave(w->client, &err), PD_DEADLINE_EXCEEDED);
    assert_int_equal(pd_client_leave(w->client, &err), PD_DEADLINE_EXCEEDED);
    atomic_store(&at[0].ignores, PD_METHODS);
    sharded_cut(&at[0]);
    w->client->slice = patient(20);
    assert_int_equal(pd_client_leave(w->client, &err), PD_OK);
    assert_int_equal(atomic_load(&at[1].came[PD_LEAVE]), 1);
    assert_int_equal(sharded_step(w, 1, NULL, &err), PD_FAILED_PRECONDITION);
}

/* A shard goes back while the parameters are declared to another one. The program has seen no weights. */
TEST_WITH(NULL, NULL, a_program_that_declares_follows_a_shard_that_goes_back, void **unused)
{
    sharded w = { .servers = shard_servers_start(SHARDS, sharded_places, N) };
    pd_client_options options = sharded_options(&w);
    shard_server *at = w.servers->at;
    pd_error err = { 0 };
    int rc;

    (void)unused;
    for (size_t s = 0; s < SHARDS; s++) atomic_store(&at[s].initialised, true);
    for (size_t i = 0; i < SHARD_HANDLES; i++) at[1].step[i] = 1;
    atomic_store(&at[2].ignores, PD_DECLARE);
    options.slice = 0.1;
    options.window = 4;
    if (pd_client_open(&w.client, &options, &err) != PD_OK) fail_msg("%s", err.text);
    rc = pd_client_declare(w.client, sharded_params, N, &err);
    await_count(&at[1].came[PD_DECLARE], 1);
    usleep(100000); /* until it is answered */
    for (size_t i = 0; i < SHARD_HANDLES; i++) at[1].step[i] = 0;
    sharded_cut(&at[1]);
    await_count(&at[1].came[PD_DECLARE], 2);
    usleep(100000);
    pd_shards_go_back_together(w.client->shards); /* as a call that waits does */
    atomic_store(&at[2].ignores, PD_METHODS);
    sharded_cut(&at[2]);
    while (rc == PD_DEADLINE_EXCEEDED) rc = pd_client_declare(w.client, sharded_params, N, &err);
    if (rc != PD_OK) fail_msg("%s: %s", pd_code_name(rc), err.text);
    for (size_t p = 0; p < N; p++) assert_int_equal(pd_client_step(w.client, p), 0);
    pd_client_close(w.client);
    shard_servers_end(w.servers);
}
