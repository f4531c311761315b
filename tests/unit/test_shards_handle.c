/* Tests one handle over several servers, against small servers whose map of parameters is made by hand: where gradients
 * go and weights come from, how tickets, errors and deadlines of the shards are joined. */
#include <poll.h>

#include "test.h"
#include "daemon_process.h"
#include "handle.h"
#include "sharded.h"
#include "shards.h"

WITH_THREADS();

FIXTURE(sharded, sharded_set_up, sharded_tear_down);

TEST(the_shards_are_told_their_numbers_and_the_cluster_number_of_shard_0, sharded *w)
{
    for (size_t s = 0; s < SHARDS; s++) {
        assert_int_equal(w->servers->at[s].shards, SHARDS);
        assert_int_equal(w->servers->at[s].cluster, s == 0 ? 0 : 4711);
    }
    assert_non_null(w->client->shards);
}

TEST(initial_weights_arrive_where_their_elements_lie, sharded *w)
{
    const shard_server *at = w->servers->at;

    assert_true(at[2].weights[BIAS][4] == 4);
    assert_true(at[0].weights[KERNEL][699] == 1699);
    assert_true(at[1].weights[N][299] == 2299);
    assert_true(at[0].weights[N + 1][0] == 2300 && at[0].weights[N + 1][499] == 2799);
    assert_true(at[1].weights[N + 2][0] == 2800 && at[1].weights[N + 2][199] == 2999);
    sharded_expect_weights(w);
}

TEST(gradients_go_to_their_shards_and_weights_come_back_in_place, sharded *w)
{
    for (uint64_t s = 1; s <= 5; s++) {
        sharded_take_step(w, s);
        sharded_expect_weights(w);
        for (size_t p = 0; p < N; p++) assert_int_equal(pd_client_step(w->client, p), s);
    }
}

TEST(a_pull_gets_the_weights_of_all_portions, sharded *w)
{
    pd_ticket_id ticket;
    pd_error err;

    sharded_take_step(w, 1);
    memset(w->weights, 0, sizeof w->weights);
    assert_int_equal(pd_client_pull(w->client, w->items, N, 1, &ticket, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    sharded_expect_weights(w);
    assert_int_equal(w->items[TABLE].outcome, 0);
    assert_int_equal(w->items[TABLE].step, 1);
}

TEST(a_ticket_is_done_when_the_last_shard_has_answered, sharded *w)
{
    pd_ticket_id ticket;
    pd_error err;
    struct pollfd done = { .fd = pd_client_fd(w->client), .events = POLLIN };
    uint64_t count;

    assert_true(done.fd >= 0);
    assert_int_equal(pd_client_fd(w->client), done.fd);
    atomic_store(&w->servers->at[1].late_ms, 50);
    sharded_prepare(w, 1);
    assert_int_equal(pd_client_push_pull(w->client, w->items, N, NULL, &ticket, &err), PD_OK);
    assert_false(pd_client_ready(w->client, ticket));
    assert_int_equal(pd_client_wait(w->client, ticket, 0.001, &err), PD_DEADLINE_EXCEEDED);
    while (!pd_client_ready(w->client, ticket)) {
        assert_int_equal(poll(&done, 1, (int)(1000 * patient(10))), 1);
        assert_int_equal(read(done.fd, &count, sizeof count), sizeof count);
    }
    assert_int_equal(w->items[TABLE].outcome, 1); /* before anybody has waited */
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_NOT_FOUND);
    assert_true(pd_client_ready(w->client, ticket));
}

TEST(a_call_that_times_out_names_the_shard_and_can_be_continued, sharded *w)
{
    double end = pd_clock_seconds() + patient(10);
    char name[64];
    pd_ticket_id ticket;
    pd_error err;

    sprintf(name, "s: shard 2 (tcp://127.0.0.1:%d): still under way", w->servers->at[2].port);
    atomic_store(&w->servers->at[2].ignores, PD_PUSH_PULL);
    sharded_prepare(w, 1);
    assert_int_equal(pd_client_push_pull(w->client, w->items, N, NULL, &ticket, &err), PD_OK);
    do { /* until the other shards have answered */
        assert_int_equal(pd_client_wait(w->client, ticket, 0.3, &err), PD_DEADLINE_EXCEEDED);
        assert_int_equal(strncmp(err.text, "waited 0.3 s", 12), 0);
    } while (strstr(err.text, name) == NULL && pd_clock_seconds() < end);
    if (strstr(err.text, name) == NULL) fail_msg("%s", err.text);
    atomic_store(&w->servers->at[2].ignores, PD_METHODS);
    sharded_cut(&w->servers->at[2]); /* the push is sent again on the next connection */
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    assert_int_equal(w->items[BIAS].step, 1);
}

TEST(the_first_error_of_a_shard_ends_the_ticket_though_others_wait, sharded *w)
{
    char name[64];
    pd_error err;

    sprintf(name, "shard 1 (tcp://127.0.0.1:%d): refused by the test", w->servers->at[1].port);
    atomic_store(&w->servers->at[0].ignores, PD_PUSH_PULL);
    atomic_store(&w->servers->at[1].refuses, PD_PUSH_PULL);
    atomic_store(&w->servers->at[1].code, PD_DEADLINE_EXCEEDED);
    atomic_store(&w->servers->at[1].refusals, 100);
    assert_int_equal(sharded_step(w, 1, NULL, &err), PD_DEADLINE_EXCEEDED);
    assert_string_equal(err.text, name);
    assert_int_equal(w->items[BIAS].outcome, 1);
    assert_int_equal(w->items[KERNEL].outcome, PD_DEADLINE_EXCEEDED);
    assert_int_equal(w->items[TABLE].outcome, PD_DEADLINE_EXCEEDED);
}

TEST(a_cut_parameter_that_was_refused_on_one_shard_is_pushed_again_only_there, sharded *w)
{
    pd_ticket_id ticket;
    pd_error err;

    atomic_store(&w->servers->at[1].refuses, PD_PUSH_PULL);
    atomic_store(&w->servers->at[1].code, PD_DEADLINE_EXCEEDED);
    atomic_store(&w->servers->at[1].refusals, 100);
    assert_int_equal(sharded_step(w, 1, NULL, &err), PD_DEADLINE_EXCEEDED);
    assert_int_equal(w->items[BIAS].outcome, 1);
    assert_int_equal(w->items[KERNEL].outcome, 1);
    assert_int_equal(w->items[TABLE].outcome, PD_DEADLINE_EXCEEDED);
    assert_int_equal(pd_client_step(w->client, TABLE), 0);
    atomic_store(&w->servers->at[1].refusals, 0);
    assert_int_equal(pd_client_push_pull(w->client, &w->items[TABLE], 1, NULL, &ticket, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    assert_int_equal(w->items[TABLE].outcome, 1);
    assert_int_equal(w->items[TABLE].step, 1);
    for (size_t p = 0; p < N; p++)
        for (int64_t i = 0; i < sharded_sizes[p]; i++) w->expected[p][i] -= w->gradients[p][i];
    sharded_expect_weights(w);
    sharded_take_step(w, 2);
    sharded_expect_weights(w);
}

TEST(a_refused_argument_begins_nothing_on_any_shard, sharded *w)
{
    pd_item twice[3];
    pd_ticket_id ticket;
    pd_error err;

    sharded_prepare(w, 1);
    twice[0] = w->items[KERNEL];
    twice[1] = w->items[BIAS];
    twice[2] = w->items[BIAS];
    assert_int_equal(pd_client_push_pull(w->client, twice, 3, NULL, &ticket, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "parameter bias has a push under way"));
    twice[1].param = N;
    assert_int_equal(pd_client_push(w->client, twice, 2, NULL, &ticket, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "parameter 3, but 3 are declared"));
    assert_int_equal(pd_client_push(w->client, twice, 0, NULL, &ticket, &err), PD_INVALID_ARGUMENT);
    twice[0].weights = NULL;
    assert_int_equal(pd_client_pull(w->client, twice, 1, 0, &ticket, &err), PD_INVALID_ARGUMENT);
    sharded_take_step(w, 1);
    sharded_expect_weights(w);
}

TEST(an_absent_gradient_is_absent_on_all_shards_and_its_weights_are_pulled, sharded *w)
{
    pd_ticket_id ticket;
    pd_error err;

    sharded_prepare(w, 1);
    w->items[TABLE].gradient = NULL;
    memset(w->weights[TABLE], 0, sizeof w->weights[TABLE]);
    assert_int_equal(pd_client_push_pull(w->client, w->items, N, NULL, &ticket, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    assert_int_equal(w->items[TABLE].outcome, 3);
    assert_int_equal(w->items[KERNEL].outcome, 1);
    for (int64_t i = 0; i < sharded_sizes[TABLE]; i++) assert_true(w->weights[TABLE][i] == (float)(2000 + i));
}

TEST(a_step_is_closed_on_all_shards, sharded *w)
{
    pd_ticket_id pushed, closed;
    pd_error err;

    sharded_prepare(w, 1);
    assert_int_equal(pd_client_push(w->client, &w->items[BIAS], 1, NULL, &pushed, &err), PD_OK);
    assert_int_equal(pd_client_close_step(w->client, 1, &closed, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, pushed, 0, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, closed, 0, &err), PD_OK);
    for (size_t p = 0; p < N; p++) assert_int_equal(pd_client_step(w->client, p), 1);
    /* shard 2 has only the parameter that was pushed, and may have taken the step before it could be closed */
    for (size_t s = 0; s < 2; s++) assert_int_equal(w->servers->at[s].step[N], 1);
    assert_int_equal(pd_client_close_step(w->client, 0, &closed, &err), PD_INVALID_ARGUMENT);
}

TEST(scalars_ride_with_the_first_parameter_by_name_that_is_not_cut, sharded *w)
{
    pd_scalar loss = { .name = "loss", .value = 2 };
    pd_push_options options = { .scalars = &loss, .n_scalars = 1 };
    pd_ticket_id ticket;
    pd_error err;

    assert_int_equal(sharded_step(w, 1, &options, &err), PD_OK);
    for (size_t s = 0; s < SHARDS; s++) assert_int_equal(w->servers->at[s].scalars, s == 2);
    sharded_prepare(w, 2);
    assert_int_equal(pd_client_push(w->client, &w->items[KERNEL], 2, &options, &ticket, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    assert_int_equal(w->servers->at[0].scalars, 1);
    sharded_prepare(w, 3);
    assert_int_equal(pd_client_push(w->client, &w->items[TABLE], 1, &options, &ticket, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    assert_int_equal(w->servers->at[1].scalars, 1);
}

TEST(shard_0_keeps_the_worker_state_also_of_a_push_that_goes_elsewhere, sharded *w)
{
    pd_push_options options = { .worker_state = "place", .worker_state_bytes = 5 };
    char state[8];
    size_t bytes;
    uint64_t at;
    pd_ticket_id ticket;
    pd_error err;

    assert_int_equal(sharded_step(w, 1, &options, &err), PD_OK);
    assert_int_equal(w->servers->at[0].note_step, 1);
    sharded_take_step(w, 2);
    sharded_prepare(w, 3);
    assert_int_equal(pd_client_push(w->client, &w->items[BIAS], 1, &options, &ticket, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    assert_int_equal(w->servers->at[0].note_step, 3);
    for (size_t s = 1; s < SHARDS; s++) assert_int_equal(w->servers->at[s].came[PD_NOTE], 0);
    assert_int_equal(pd_client_worker_state(w->client, state, sizeof state, &bytes, &at, &err), PD_OK);
    assert_int_equal(at, 3);
}

/* Steps wait for verdicts: so the shard that gets a gradient of the step has the state in its checkpoint. */
TEST(a_worker_state_goes_with_a_gradient_where_shards_wait_for_each_other, sharded *w)
{
    pd_push_options options = { .worker_state = "place", .worker_state_bytes = 5 };
    size_t home = sharded_places[BIAS].shard, bytes;
    char state[8];
    uint64_t at;
    pd_ticket_id ticket;
    pd_error err;

    w->client->shards->at[0]->core->settles = true;
    sharded_take_step(w, 1);
    sharded_prepare(w, 2);
    assert_int_equal(pd_client_push(w->client, &w->items[BIAS], 1, &options, &ticket, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    assert_int_equal(w->servers->at[home].note_step, 2);
    assert_int_equal(w->servers->at[0].came[PD_NOTE], 0);
    assert_int_equal(pd_client_worker_state(w->client, state, sizeof state, &bytes, &at, &err), PD_OK);
    assert_int_equal(at, 2);
    for (size_t p = 0; p < N; p++) {
        if (p == BIAS) continue;
        assert_int_equal(pd_client_push(w->client, &w->items[p], 1, &options, &ticket, &err), PD_OK);
        assert_int_equal(pd_client_wait(w->client, ticket, 0, &err), PD_OK);
    }
    /* Each push of the step has sent the worker state again, and the shard keeps the last one. */
    assert_int_equal(w->servers->at[home].came[PD_NOTE], N);
    w->client->shards->at[0]->core->settles = false;
}

/* Pushes all parameters of step 1 with a worker state. Returns its step, as the worker gets it back. */
static uint64_t give_state(sharded *w)
{
    pd_push_options options = { .worker_state = "place", .worker_state_bytes = 5 };
    size_t bytes;
    uint64_t at;
    char state[8];
    pd_error err;

    w->client->shards->at[0]->core->settles = true;
    assert_int_equal(sharded_step(w, 1, &options, &err), PD_OK);
    assert_int_equal(pd_client_worker_state(w->client, state, sizeof state, &bytes, &at, &err), PD_OK);
    w->client->shards->at[0]->core->settles = false;
    return at;
}

/* Opens a client whose parameters are model state, except the first `others`. */
static void set_up_model_state(sharded *w, size_t others)
{
    pd_client_param list[N];

    memcpy(list, sharded_params, sizeof list);
    for (size_t p = others; p < N; p++) list[p].model_state = true;
    sharded_set_up_with(w, list);
}

TEST(a_shard_of_model_state_alone_has_no_worker_states)
{
    static sharded w;
    size_t home = sharded_places[BIAS].shard;

    set_up_model_state(&w, BIAS + 1);
    assert_int_equal(give_state(&w), 1);
    for (size_t s = 0; s < SHARDS; s++) {
        assert_int_equal(w.servers->at[s].came[PD_NOTE], s == home);
        assert_int_equal(w.servers->at[s].came[PD_RECALL], s == home);
    }
    sharded_tear_down(&w);
}

/* Each shard goes on and back alone, so the worker state of another one would be of other steps. */
TEST(where_all_is_model_state_shard_0_has_the_worker_states)
{
    static sharded w;

    set_up_model_state(&w, 0);
    assert_int_equal(give_state(&w), 1);
    for (size_t s = 0; s < SHARDS; s++) {
        assert_int_equal(w.servers->at[s].came[PD_NOTE], s == 0);
        assert_int_equal(w.servers->at[s].came[PD_RECALL], s == 0);
    }
    sharded_tear_down(&w);
}

TEST(one_shard_has_the_barrier_and_all_have_checkpoints_and_farewells, sharded *w)
{
    static const int expected[SHARDS] = { 1, 0, 0 };
    pd_error err;

    sharded_take_step(w, 1);
    assert_int_equal(pd_client_durable(w->client), 0); /* each has another one: 3, 4 and 5 */
    for (size_t s = 0; s < SHARDS; s++) w->servers->at[s].durable = 6;
    sharded_take_step(w, 2);
    assert_int_equal(pd_client_durable(w->client), 6);
    assert_int_equal(pd_client_barrier(w->client, &err), PD_OK);
    assert_int_equal(pd_client_sync(w->client, 7, &err), PD_OK);
    assert_int_equal(pd_client_durable(w->client), 7);
    assert_int_equal(pd_client_leave(w->client, &err), PD_OK);
    for (size_t s = 0; s < SHARDS; s++) {
        assert_int_equal(w->servers->at[s].came[PD_BARRIER], expected[s]);
        assert_int_equal(w->servers->at[s].came[PD_CHECKPOINT], 2); /* the second one confirms the first */
        assert_int_equal(w->servers->at[s].came[PD_LEAVE], 1);
    }
    assert_int_equal(sharded_step(w, 3, NULL, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "this worker has left the job"));
}

TEST(replaced_weights_go_to_all_shards, sharded *w)
{
    pd_error err;

    sharded_take_step(w, 1);
    for (size_t p = 0; p < N; p++)
        for (int64_t i = 0; i < sharded_sizes[p]; i++) w->weights[p][i] = w->expected[p][i] = (float)i;
    assert_int_equal(pd_client_replace(w->client, w->items, N, 77, &err), PD_OK);
    sharded_take_step(w, 2);
    sharded_expect_weights(w);
    for (size_t s = 0; s < SHARDS; s++) assert_int_equal(w->servers->at[s].replaces, 77);
}

TEST(all_shards_learn_of_a_change_on_one, sharded *w)
{
    int before[SHARDS];
    pd_error err;

    sharded_take_step(w, 1);
    for (size_t s = 0; s < SHARDS; s++) before[s] = w->servers->at[s].came[PD_INIT];
    w->weights[BIAS][0] = w->expected[BIAS][0] = 5;
    assert_int_equal(pd_client_replace(w->client, &w->items[BIAS], 1, 78, &err), PD_OK);
    for (size_t s = 0; s < SHARDS; s++) assert_int_equal(w->servers->at[s].came[PD_INIT], before[s] + 1);
    sharded_take_step(w, 2);
    sharded_expect_weights(w);
    for (size_t s = 0; s < SHARDS; s++) assert_int_equal(w->servers->at[s].replaces, 78);
    assert_int_equal(pd_client_replace(w->client, w->items, 0, 79, &err), PD_INVALID_ARGUMENT);
}

TEST(notes_buffers_counts_and_random_numbers_are_those_of_one_handle, sharded *w)
{
    pd_client_stats stats = pd_client_count(w->client);
    float *bias = pd_client_buffer(w->client, BIAS), *table = pd_client_buffer(w->client, TABLE), numbers[4];
    int members, index;

    assert_string_equal(pd_client_note(w->client, KERNEL), "note of shard 1");
    assert_string_equal(pd_client_note(w->client, BIAS), "");
    assert_int_equal(stats.connects, SHARDS);
    assert_non_null(bias);
    assert_non_null(table);
    for (size_t i = 0; i < MOST; i++) assert_true(table[i] == 0);
    assert_int_equal((uintptr_t)table % 64, 0);
    assert_ptr_equal(pd_client_buffer(w->client, TABLE), table);
    assert_null(pd_client_buffer(w->client, N));
    pd_client_members(w->client, &members, &index, NULL);
    assert_int_equal(members, 1);
    assert_int_equal(index, 0);
    pd_client_uniform(w->client, PD_STREAM_SHARED, 1, 0, numbers, 4);
    assert_int_equal(pd_client_welcome(w->client)->seed, 5);
    stats = pd_client_count(w->client);
    assert_int_equal(stats.payload_in, sizeof(float) * (5 + 700 + MOST));
}

/* ---- without a handle that is open ---- */

/* A shard closes a step while the first weights come. */
TEST_WITH(NULL, NULL, the_first_weights_are_of_one_step, void **unused)
{
    sharded w = { .servers = shard_servers_start(SHARDS, sharded_places, N) };
    pd_client_options options = sharded_options(&w);
    void *weights[N] = { w.weights[0], w.weights[1], w.weights[2] };
    pd_error err = { 0 };

    (void)unused;
    for (size_t s = 0; s < SHARDS; s++) {
        w.servers->at[s].settles = true;
        atomic_store(&w.servers->at[s].initialised, true);
        atomic_store(&w.servers->at[s].ignores, PD_SETTLE);
    }
    options.slice = 0.1;
    if (pd_client_open(&w.client, &options, &err) != PD_OK) fail_msg("%s", err.text);
    while (pd_client_declare(w.client, sharded_params, N, &err) == PD_DEADLINE_EXCEEDED) continue;
    for (size_t i = 0; i < SHARD_HANDLES; i++) w.servers->at[0].step[i] = 1;
    assert_int_equal(pd_client_init(w.client, weights, &err), PD_DEADLINE_EXCEEDED);
    for (size_t s = 1; s < SHARDS; s++)
        for (size_t i = 0; i < SHARD_HANDLES; i++) w.servers->at[s].step[i] = 1;
    while (pd_client_init(w.client, weights, &err) == PD_DEADLINE_EXCEEDED) continue;
    for (size_t p = 0; p < N; p++) assert_int_equal(pd_client_step(w.client, p), 1);
    pd_client_close(w.client);
    shard_servers_end(w.servers);
}

/* One shard refuses to give weights, another one would give them later. */
TEST_WITH(NULL, NULL, a_call_that_fails_writes_no_weights_later, void **unused)
{
    sharded w = { .servers = shard_servers_start(SHARDS, sharded_places, N) };
    void *weights[N] = { w.weights[0], w.weights[1], w.weights[2] };
    pd_error err = { 0 };

    (void)unused;
    for (size_t s = 0; s < SHARDS; s++) atomic_store(&w.servers->at[s].initialised, true);
    sharded_open(&w);
    sharded_declare(&w, sharded_params);
    atomic_store(&w.servers->at[0].late_ms, 100);
    atomic_store(&w.servers->at[2].refuses, PD_PULL);
    atomic_store(&w.servers->at[2].code, PD_DEADLINE_EXCEEDED);
    atomic_store(&w.servers->at[2].refusals, 1);
    assert_int_equal(pd_client_init(w.client, weights, &err), PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.text, "refused by the test"));
    for (size_t i = 0; i < MOST; i++) w.weights[KERNEL][i] = 7;
    usleep(300000);
    for (size_t i = 0; i < MOST; i++) assert_true(w.weights[KERNEL][i] == 7);
    atomic_store(&w.servers->at[0].late_ms, 0);
    assert_int_equal(pd_client_init(w.client, weights, &err), PD_OK);
    assert_true(w.weights[KERNEL][0] == 0);
    pd_client_close(w.client);
    shard_servers_end(w.servers);
}

/* The shards are two steps apart, and none has a checkpoint. A call of the program is shorter than each look. */
TEST_WITH(NULL, NULL, short_calls_find_that_shards_have_no_step_in_common, void **unused)
{
    sharded w = { .servers = shard_servers_start(SHARDS, sharded_places, N) };
    pd_client_options options = sharded_options(&w);
    double end = pd_clock_seconds() + patient(20);
    pd_error err = { 0 };
    bool waited = false;
    int rc;

    (void)unused;
    for (size_t s = 0; s < SHARDS; s++) atomic_store(&w.servers->at[s].initialised, true);
    for (size_t i = 0; i < SHARD_HANDLES; i++) w.servers->at[0].step[i] = 2;
    options.slice = 0.02;
    if (pd_client_open(&w.client, &options, &err) != PD_OK) fail_msg("%s", err.text);
    do {
        rc = pd_client_declare(w.client, sharded_params, N, &err);
        waited = waited || (atomic_load(&w.servers->at[1].came[PD_DECLARE]) == 1 &&
                            strstr(err.text, "the shards have not come to one step") != NULL);
    } while (rc == PD_DEADLINE_EXCEEDED && pd_clock_seconds() < end);
    assert_true(waited); /* also the time before the first look is spent in short calls */
    if (rc != PD_DATA_LOSS || strstr(err.text, "no step is left") == NULL)
        fail_msg("%s: %s", pd_code_name(rc), err.text);
    pd_client_close(w.client);
    shard_servers_end(w.servers);
}

TEST_WITH(NULL, NULL, a_rank_pushes_its_range_of_a_cut_parameter, void **unused)
{
    /* elements 250 to 850: 50 of the first portion, all of the second, 50 of the third */
    enum { START = 250, END = 850 };
    pd_client_param ranged[N];
    sharded w = { .servers = shard_servers_start(SHARDS, sharded_places, N) };
    const shard_server *at = w.servers->at;
    pd_ticket_id ticket;
    pd_error err;

    (void)unused;
    memcpy(ranged, sharded_params, sizeof ranged);
    ranged[TABLE].ranged = true;
    ranged[TABLE].start = START;
    ranged[TABLE].end = END;
    sharded_open(&w);
    sharded_declare(&w, ranged);
    sharded_init(&w);
    assert_true(at[1].weights[N][249] == 0 && at[1].weights[N][250] == 2000);
    assert_true(at[0].weights[N + 1][0] == 2050);
    assert_true(at[1].weights[N + 2][49] == 2599 && at[1].weights[N + 2][50] == 0);
    sharded_prepare(&w, 1);
    assert_int_equal(pd_client_push_pull(w.client, w.items, N, NULL, &ticket, &err), PD_OK);
    assert_int_equal(pd_client_wait(w.client, ticket, 0, &err), PD_OK);
    for (int64_t i = 0; i < END - START; i++)
        assert_true(w.weights[TABLE][i] == (float)(2000 + i) - w.gradients[TABLE][i]);
    pd_client_close(w.client);
    shard_servers_end(w.servers);
}

/* Opens a client for servers that differ in one thing, and declares. Returns the error. */
static int try_with(shard_servers *servers, pd_error *err)
{
    sharded w = { .servers = servers };
    pd_client_options options = sharded_options(&w);
    int rc;

    options.deadline = patient(3);
    rc = pd_client_open(&w.client, &options, err);
    if (rc != PD_OK) return rc;
    rc = pd_client_declare(w.client, sharded_params, N, err);
    pd_client_close(w.client);
    return rc;
}

TEST_WITH(NULL, NULL, shards_that_do_not_fit_together_are_refused_and_named, void **unused)
{
    shard_servers *servers = shard_servers_start(SHARDS, sharded_places, N);
    char name[64];
    pd_error err;

    (void)unused;
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

TEST_WITH(NULL, NULL, a_shard_that_is_not_there_is_named, void **unused)
{
    shard_servers *servers = shard_servers_start(SHARDS, sharded_places, N);
    pd_error err;

    (void)unused;
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

TEST_WITH(NULL, NULL, other_kernels_on_a_shard_are_told_to_the_user, void **unused)
{
    sharded w = { .servers = shard_servers_start(SHARDS, sharded_places, N) };
    pd_client_options options = sharded_options(&w);
    char notices[2000] = "";
    pd_error err;

    (void)unused;
    w.servers->at[1].kernels = "Haswell";
    options.quiet = false;
    options.notice = keep_notice;
    options.notice_arg = notices;
    assert_int_equal(pd_client_open(&w.client, &options, &err), PD_OK);
    assert_non_null(strstr(notices, "shard 1 has other kernels (Haswell) than shard 0 (core)"));
    pd_client_close(w.client);
    shard_servers_end(w.servers);
}

TEST_WITH(NULL, NULL, a_declaration_that_one_shard_refuses_can_be_corrected, void **unused)
{
    sharded w = { .servers = shard_servers_start(SHARDS, sharded_places, N) };
    pd_error err;

    (void)unused;
    sharded_open(&w);
    atomic_store(&w.servers->at[1].refuses, PD_DECLARE);
    atomic_store(&w.servers->at[1].code, PD_RESOURCE_EXHAUSTED);
    atomic_store(&w.servers->at[1].refusals, 1);
    assert_int_equal(pd_client_declare(w.client, sharded_params, N, &err), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "shard 1 (tcp://"));
    sharded_declare(&w, sharded_params);
    sharded_init(&w);
    sharded_take_step(&w, 1);
    sharded_expect_weights(&w);
    pd_client_close(w.client);
    shard_servers_end(w.servers);
}

TEST_WITH(NULL, NULL, a_handle_that_joins_later_waits_for_all_shards, void **unused)
{
    sharded w = { .servers = shard_servers_start(SHARDS, sharded_places, N) };
    pd_client_options options = sharded_options(&w);
    pd_error err;
    int rc;

    (void)unused;
    atomic_store(&w.servers->at[2].down, true);
    options.join_later = true;
    options.slice = 0.05;
    assert_int_equal(pd_client_open(&w.client, &options, &err), PD_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(pd_client_join(w.client, &err), PD_DEADLINE_EXCEEDED);
        assert_int_equal(strncmp(err.text, "waited ", 7), 0);
    }
    atomic_store(&w.servers->at[2].down, false);
    while ((rc = pd_client_join(w.client, &err)) == PD_DEADLINE_EXCEEDED) continue;
    assert_int_equal(rc, PD_OK);
    assert_int_equal(pd_client_welcome(w.client)->chunk_elements, SHARD_CHUNK);
    pd_client_close(w.client);
    shard_servers_end(w.servers);
}

/* A thread that pushes one parameter step by step, while others push other parameters of the same handle. */
typedef struct pusher {
    sharded *w;
    size_t param;
    pthread_t thread;
    char failure[600];
} pusher;

static void *push_alone(void *arg)
{
    pusher *p = arg;
    pd_error err = { 0 };
    int rc = PD_OK;

    for (uint64_t s = 1; rc == PD_OK && s <= 30; s++) {
        pd_item item = { .param = p->param, .gradient = p->w->gradients[p->param], .weights = p->w->weights[p->param] };
        pd_ticket_id ticket;
        rc = pd_client_push_pull(p->w->client, &item, 1, NULL, &ticket, &err);
        if (rc == PD_OK) rc = pd_client_wait(p->w->client, ticket, 0, &err);
    }
    snprintf(p->failure, sizeof p->failure, "%s", rc == PD_OK ? "" : err.text);
    return NULL;
}

TEST(several_threads_push_over_one_handle, sharded *w)
{
    pusher pushers[N];

    sharded_prepare(w, 1);
    for (size_t p = 0; p < N; p++) {
        pushers[p] = (pusher){ .w = w, .param = p };
        pthread_create(&pushers[p].thread, NULL, push_alone, &pushers[p]);
    }
    for (size_t p = 0; p < N; p++) pthread_join(pushers[p].thread, NULL);
    for (size_t p = 0; p < N; p++) assert_string_equal(pushers[p].failure, "");
    for (size_t p = 0; p < N; p++)
        for (int64_t i = 0; i < sharded_sizes[p]; i++) w->expected[p][i] -= 30 * w->gradients[p][i];
    sharded_expect_weights(w);
}
