/* Tests the calls of the client library on a job that two daemons share, against the same program with one daemon:
 * steps that are closed, changed weights, checkpoints, worker states, shares, DiLoCo. */
#include <math.h>
#include <stdlib.h>

#include "test.h"
#include "daemon_process.h"
#include "paramd/diloco.h"
#include "team.h"

enum { DAEMONS = 3, PARAMS = 4, MOST = 256 * 512 };

/* The first one lies whole on a shard, or is cut if the job steps as a whole. */
static const pd_client_param params[PARAMS] = {
    { .name = "table", .shape = { 2, { 256, 512 } }, .fragment = 0 },
    { .name = "a", .shape = { 1, { 40 } }, .fragment = 1 },
    { .name = "b", .shape = { 2, { 7, 9 } }, .fragment = 0 },
    { .name = "c", .shape = { 0, { 0 } }, .fragment = 1 },
};
static const int64_t sizes[PARAMS] = { MOST, 40, 63, 1 };
static const char *const rules[] = { "* sgd lr=0.1 momentum=0.9", NULL };
static const char *const whole[] = { "nonfinite_scope=job", "split_bytes=64KiB", NULL };

static struct {
    char folder[64];
    test_daemon *daemon[DAEMONS]; /* the first one is alone, the others share their jobs */
    char urls[200];
    unsigned jobs;
} cluster;

static int start(void **state)
{
    (void)state;
    daemons_start(cluster.daemon, DAEMONS, cluster.folder);
    snprintf(cluster.urls, sizeof cluster.urls, "%s %s", cluster.daemon[1]->url, cluster.daemon[2]->url);
    return 0;
}

static int end(void **state)
{
    (void)state;
    return daemons_stop(cluster.daemon, DAEMONS, cluster.folder);
}

GROUP(start, end);

/* One worker, alone in its job. */
typedef struct solo {
    pd_client *client;
    float *weights[PARAMS], *gradients[PARAMS];
    pd_item items[PARAMS];
    pd_error err;
} solo;

static void expect_ok(const solo *s, int rc, const char *what)
{
    if (rc != PD_OK) fail_msg("%s: %s", what, s->err.text);
}

/* A job. */
typedef struct kind {
    const char *const *options;
    bool fragments;  /* the parameters keep their fragments */
    uint32_t shares; /* pd_client_options.shares */
    pd_dtype push;   /* the type of pushes; 0: float32 */
} kind;

/* Opens a job on one daemon or on two. */
static void begin(solo *s, bool alone, const kind *how)
{
    char job[32];
    pd_client_param own[PARAMS];
    void *weights[PARAMS];
    pd_client_options open = { .urls = alone ? cluster.daemon[0]->url : cluster.urls,
                               .job = job,
                               .world_size = 1,
                               .rules = rules,
                               .options = how->options,
                               .deadline = patient(30),
                               .shares = how->shares,
                               .quiet = true };

    *s = (solo){ .err.text = "" };
    snprintf(job, sizeof job, "job-%u", cluster.jobs++);
    expect_ok(s, pd_client_open(&s->client, &open, &s->err), "open");
    for (size_t p = 0; p < PARAMS; p++) {
        own[p] = params[p];
        own[p].push_dtype = how->push;
        if (!how->fragments) own[p].fragment = 0;
        s->weights[p] = calloc((size_t)sizes[p], sizeof(float));
        s->gradients[p] = calloc((size_t)sizes[p], sizeof(float));
        fill_gradient(weights[p] = s->weights[p], sizes[p], 0, 0, p);
        s->items[p] = (pd_item){ .param = p, .gradient = s->gradients[p], .weights = s->weights[p] };
    }
    expect_ok(s, pd_client_declare(s->client, own, PARAMS, &s->err), "declare");
    expect_ok(s, pd_client_init(s->client, weights, &s->err), "init");
}

static void finish(solo *s)
{
    expect_ok(s, pd_client_leave(s->client, &s->err), "leave");
    pd_client_close(s->client);
}

static void forget(solo *s)
{
    for (size_t p = 0; p < PARAMS; p++) {
        free(s->weights[p]);
        free(s->gradients[p]);
    }
}

static void wait_for(solo *s, int rc, pd_ticket_id ticket, const char *what)
{
    expect_ok(s, rc, what);
    expect_ok(s, pd_client_wait(s->client, ticket, 0, &s->err), what);
}

static void push_pull(solo *s, pd_item *items, size_t n, const pd_push_options *options)
{
    pd_ticket_id ticket;
    int rc = pd_client_push_pull(s->client, items, n, options, &ticket, &s->err);

    wait_for(s, rc, ticket, "push_pull");
}

static void pull(solo *s, uint64_t step)
{
    pd_ticket_id ticket;
    int rc = pd_client_pull(s->client, s->items, PARAMS, step, &ticket, &s->err);

    wait_for(s, rc, ticket, "pull");
}

static void take_step(solo *s, uint64_t step, const pd_push_options *options)
{
    for (size_t p = 0; p < PARAMS; p++) fill_gradient(s->gradients[p], sizes[p], 0, step, p);
    push_pull(s, s->items, PARAMS, options);
    for (size_t p = 0; p < PARAMS; p++) assert_int_equal(s->items[p].step, step);
}

static void expect_same(const solo *a, const solo *b)
{
    for (size_t p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            if (memcmp(&a->weights[p][i], &b->weights[p][i], sizeof(float)) != 0)
                fail_msg("%s[%d]: %a with one daemon, %a with two", params[p].name, (int)i, a->weights[p][i],
                         b->weights[p][i]);
}

/* Runs a program on one daemon and on two, and compares the weights. */
static void compare(void (*program)(solo *s), const kind *how)
{
    solo one, two;

    begin(&one, true, how);
    program(&one);
    finish(&one);
    begin(&two, false, how);
    assert_non_null(strchr(cluster.urls, ' '));
    program(&two);
    finish(&two);
    expect_same(&one, &two);
    forget(&one);
    forget(&two);
}

/* Pushes some parameters, closes the step, and pulls the others. */
static void close_steps(solo *s)
{
    pd_ticket_id pushed, closed;

    for (uint64_t step = 1; step <= 10; step++) {
        size_t n = 1 + step % (PARAMS - 1);
        int rc;
        for (size_t p = 0; p < n; p++) fill_gradient(s->gradients[p], sizes[p], 0, step, p);
        rc = pd_client_push(s->client, s->items, n, NULL, &pushed, &s->err);
        expect_ok(s, rc, "push");
        expect_ok(s, pd_client_close_step(s->client, step, &closed, &s->err), "close_step");
        expect_ok(s, pd_client_wait(s->client, pushed, 0, &s->err), "push");
        expect_ok(s, pd_client_wait(s->client, closed, 0, &s->err), "close_step");
        for (size_t p = 0; p < PARAMS; p++) assert_int_equal(pd_client_step(s->client, p), step);
        pull(s, step);
    }
}

HOLDS(steps_are_closed_as_on_one_daemon, compare(close_steps, &(kind){ 0 }));
HOLDS(whole_steps_are_closed_as_on_one_daemon, compare(close_steps, &(kind){ .options = whole }));

/* Changes weights by hand between two steps. */
static void change_weights(solo *s)
{
    for (uint64_t step = 1; step <= 8; step++) {
        pd_push_options options = { .replaces = step % 3 == 0 ? 1000 + step : 0 };
        if (options.replaces != 0) {
            for (size_t p = 0; p < PARAMS; p++)
                for (int64_t i = 0; i < sizes[p]; i++) s->weights[p][i] = fmaxf(s->weights[p][i], -0.1f);
            expect_ok(s, pd_client_replace(s->client, s->items, PARAMS, options.replaces, &s->err), "replace");
        }
        take_step(s, step, &options);
    }
}

HOLDS(changed_weights_come_into_force_as_on_one_daemon, compare(change_weights, &(kind){ .options = whole }));

/* Changes one parameter by hand before each step, another one each time. Most lie on one shard alone. */
static void change_one(solo *s)
{
    for (uint64_t step = 1; step <= 8; step++) {
        pd_push_options options = { .replaces = 1000 + step };
        pd_item *item = &s->items[step % PARAMS];

        s->weights[item->param][0] = (float)step;
        expect_ok(s, pd_client_replace(s->client, item, 1, options.replaces, &s->err), "replace");
        take_step(s, step, &options);
    }
    assert_int_equal(pd_client_replace(s->client, s->items, 0, 7, &s->err), PD_INVALID_ARGUMENT);
}

HOLDS(one_changed_parameter_comes_into_force_as_on_one_daemon, compare(change_one, &(kind){ 0 });
      compare(change_one, &(kind){ .options = whole }));

/* Makes checkpoints, and gets the worker state back. */
static void keep_state(solo *s)
{
    char state[16];
    size_t bytes;
    uint64_t step;

    for (uint64_t i = 1; i <= 6; i++) {
        char text[16];
        pd_push_options options = { .worker_state = text };
        options.worker_state_bytes = (size_t)snprintf(text, sizeof text, "place %d", (int)i);
        take_step(s, i, &options);
    }
    expect_ok(s, pd_client_worker_state(s->client, state, sizeof state, &bytes, &step, &s->err), "worker_state");
    assert_int_equal(step, 6);
    assert_int_equal(bytes, 7);
    assert_memory_equal(state, "place 6", 7);
    expect_ok(s, pd_client_sync(s->client, 0, &s->err), "sync");
    assert_int_equal(pd_client_durable(s->client), 6);
    expect_ok(s, pd_client_barrier(s->client, &s->err), "barrier");
}

HOLDS(checkpoints_and_worker_states_are_kept, compare(keep_state, &(kind){ .options = whole }));

/* Takes the three shares of a step, and expects that there are no more. */
static void take_three(solo *s, uint64_t step)
{
    uint64_t share;

    for (uint64_t k = 0; k < 3; k++) {
        expect_ok(s, pd_client_share(s->client, &share, &s->err), "share");
        assert_int_equal(share, 3 * (step - 1) + k);
    }
    assert_int_equal(pd_client_share(s->client, &share, &s->err), PD_UNAVAILABLE);
}

/* Takes shares of the data: step after step the next ones. */
static void take_shares(solo *s)
{
    for (uint64_t step = 1; step <= 4; step++) {
        take_three(s, step);
        take_step(s, step, NULL);
        assert_int_equal(pd_client_least_unused(s->client), 3 * step);
    }
}

HOLDS(shares_are_taken_in_order, compare(take_shares, &(kind){ .shares = 3 }));

/* Trains by itself, and syncs two fragments in turn. */
static void sync_fragments(solo *s)
{
    pd_diloco_options options = { .sync_every = 4, .fragment_sync_delay = 1, .fragment_update_alpha = 0.25 };
    pd_diloco *outer;
    pd_diloco_status status;

    expect_ok(s, pd_diloco_make(&outer, s->client, s->weights, &options, &s->err), "diloco_make");
    for (uint64_t step = 1; step <= 24; step++) {
        for (size_t p = 0; p < PARAMS; p++) {
            fill_gradient(s->gradients[p], sizes[p], 0, step, p);
            for (int64_t i = 0; i < sizes[p]; i++) s->weights[p][i] -= 0.01f * s->gradients[p][i];
        }
        expect_ok(s, pd_diloco_step(outer, s->weights, 1, &s->err), "diloco_step");
    }
    expect_ok(s, pd_diloco_finish(outer, s->weights, &s->err), "diloco_finish");
    status = pd_diloco_status_now(outer);
    assert_int_equal(status.step, 6);
    assert_int_equal(status.pushes, 12);
    assert_int_equal(status.counted, 12);
    pd_diloco_free(outer);
}

HOLDS(outer_steps_of_fragments_are_those_of_one_daemon, compare(sync_fragments, &(kind){ .fragments = true }));

HOLDS(quantized_outer_steps_are_those_of_one_daemon,
      compare(sync_fragments, &(kind){ .fragments = true, .push = PD_INT8 });
      compare(sync_fragments, &(kind){ .fragments = true, .push = PD_INT4 }));

/* ---- open sets ---- */

static const char *const open_sets[] = { "rounds=quorum", "quorum=1", "min_workers=1", "max_workers=2", NULL };

HOLDS(outer_steps_of_a_quorum_are_those_of_one_daemon,
      compare(sync_fragments, &(kind){ .options = open_sets, .fragments = true, .push = PD_INT8 }));

/* Pushes the fragments of some steps, and closes these in all fragments; gives a worker state with the last push of
 * each. */
static void close_steps_of_fragments(solo *s)
{
    const pd_item with[] = { s->items[0], s->items[1] };

    for (uint64_t step = 1; step <= 5; step++) {
        pd_push_options options = { .worker_state = &step, .worker_state_bytes = sizeof step };
        pd_ticket_id pushed[2], closed;
        pd_item items[2] = { with[0], with[1] };

        for (size_t f = 0; f < 2; f++) {
            fill_gradient(s->gradients[f], sizes[f], 0, step, f);
            expect_ok(s, pd_client_push(s->client, &items[f], 1, f > 0 ? &options : NULL, &pushed[f], &s->err), "push");
        }
        expect_ok(s, pd_client_close_step(s->client, step, &closed, &s->err), "close_step");
        for (size_t f = 0; f < 2; f++) wait_for(s, PD_OK, pushed[f], "push");
        wait_for(s, PD_OK, closed, "close_step");
        for (size_t p = 0; p < PARAMS; p++) assert_int_equal(pd_client_step(s->client, p), step);
        pull(s, step);
    }
}

HOLDS(steps_of_a_quorum_are_closed_in_all_fragments,
      compare(close_steps_of_fragments, &(kind){ .options = open_sets, .fragments = true }));

/* Takes steps of one fragment more often than of the other, changes weights of it, and makes checkpoints. */
static void take_steps_apart(solo *s)
{
    for (uint64_t step = 1; step <= 9; step++) {
        size_t f = step % 3 == 0;
        pd_item items[2] = { s->items[f], s->items[f + 2] };
        pd_push_options options = { .replaces = step == 5 ? 77 : 0 };

        for (size_t i = 0; i < 2; i++) fill_gradient(s->gradients[f + 2 * i], sizes[f + 2 * i], 0, step, f);
        if (options.replaces != 0) {
            s->weights[f][0] = 3;
            expect_ok(s, pd_client_replace(s->client, items, 1, options.replaces, &s->err), "replace");
        }
        push_pull(s, items, 2, &options);
    }
    assert_int_equal(pd_client_step(s->client, 0), 6);
    assert_int_equal(pd_client_step(s->client, 1), 3);
    assert_true(pd_client_leads(s->client));
    expect_ok(s, pd_client_sync(s->client, 0, &s->err), "sync");
    assert_true(pd_client_durable(s->client) >= 3);
    expect_ok(s, pd_client_barrier(s->client, &s->err), "barrier");
}

HOLDS(fragments_take_their_steps_apart, compare(take_steps_apart, &(kind){ .options = open_sets, .fragments = true }));

/* Takes leased shares: a step of fragment 0 uses them, whatever the other fragment does. */
static void take_leases(solo *s)
{
    for (uint64_t step = 1; step <= 4; step++) {
        take_three(s, step);
        for (size_t f = 2; f-- > 0;) {
            pd_item items[2] = { s->items[f], s->items[f + 2] };
            push_pull(s, items, 2, NULL);
            assert_int_equal(pd_client_least_unused(s->client), 3 * (step - (f > 0)));
        }
    }
}

HOLDS(leased_shares_come_from_shard_0,
      compare(take_leases, &(kind){ .options = open_sets, .fragments = true, .shares = 3 }));

/* Expects that two daemons refuse a job, with an error that has some words. */
static void expect_refused(const char *const *options, uint32_t fragments, const char *words)
{
    char job[32]; /* other than before, since a daemon may not know yet that the worker has gone */
    pd_client_param own[PARAMS];
    pd_client_options open = { .urls = cluster.urls,
                               .job = job,
                               .world_size = 2,
                               .rules = rules,
                               .options = options,
                               .deadline = patient(10),
                               .quiet = true };
    pd_client *client;
    pd_error err = { 0 };

    snprintf(job, sizeof job, "refused-%u", cluster.jobs++);
    for (size_t p = 0; p < PARAMS; p++) own[p] = params[p];
    for (size_t p = 0; p < PARAMS; p++) own[p].fragment %= fragments;
    if (pd_client_open(&client, &open, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_not_equal(pd_client_declare(client, own, PARAMS, &err), PD_OK);
    if (strstr(err.text, words) == NULL) fail_msg("%s", err.text);
    pd_client_close(client);
}

TEST(a_job_with_open_sets_needs_a_fragment_for_each_shard)
{
    static const char *const clipped[] = { "rounds=quorum", "quorum=1", "clip_global_norm=1", NULL };

    expect_refused(open_sets, 1, "declare at least as many fragments as servers");
    expect_refused(clipped, 2, "clip_global_norm ties the steps of all parameters");
    expect_refused(clipped, 1, "declare at least as many fragments as servers");
}

TEST(a_worker_with_another_order_of_shards_is_refused)
{
    char turned[200];
    pd_client_options open = {
        .urls = cluster.urls, .job = "turned", .world_size = 2, .rules = rules, .deadline = patient(10), .quiet = true
    };
    pd_client *first, *second;
    pd_error err;

    if (pd_client_open(&first, &open, &err) != PD_OK) fail_msg("%s", err.text);
    snprintf(turned, sizeof turned, "%s %s", cluster.daemon[2]->url, cluster.daemon[1]->url);
    open.urls = turned;
    open.rank = 1;
    if (pd_client_open(&second, &open, &err) != PD_FAILED_PRECONDITION) fail_msg("%s", err.text);
    assert_non_null(strstr(err.text, "in the same order"));
    pd_client_close(first);
}
