/* Tests jobs whose steps take some of their workers, with a daemon that is killed again and again while they train: the
 * final weights are exactly the sets of ranks that the workers' answers name.
 *
 * Push number n of a rank has the gradient 1 in one element that belongs to this push alone, and 0 elsewhere. A step of
 * sgd with lr=1 takes the mean over the ranks of its set away from weights that begin as 0. So the element shows how
 * often the push has counted, and among how many. */
#include <pthread.h>
#include <stdatomic.h>

#include "test.h"
#include "daemon_process.h"
#include "rank_check.h"
#include "paramd/client.h"

enum { WORLD = 4, SLOW = 3, MOST = 1500, N = WORLD * MOST, PARAMS = 2, KILLS = 6, STEPPED = 1, LATE = 5 };

/* What a worker was told of one of its pushes. */
typedef struct told {
    int outcome;
    uint64_t counted_in; /* the step in which it has counted */
    uint64_t step;       /* step of the answer, and the number of ranks that it says have counted then */
    uint32_t counted;
} told;

typedef struct run {
    const char *const *options; /* of the job */
    int lag;                    /* a push is late that comes after so many of rank 0 */
    bool separate;              /* a push of parameter 1, the end of the step, and a pull are calls of their own */
    char root[64], url[64];
    test_daemon *daemon;
    pthread_t threads[WORLD];
    _Atomic bool durable, late; /* late: a push of rank SLOW was */
    _Atomic bool done;          /* no kill follows, and all workers end */
    _Atomic int begun, left;    /* number of workers that have the initial weights, and that have left */
    struct rank {
        struct run *run;
        int rank;
        _Atomic int pushes;
        pd_client *client;
        told told[MOST];
        pd_client_stats stats;
        float weights[PARAMS][N], gradients[PARAMS][N];
        char failure[600];
    } ranks[WORLD];
} run;

static bool check(struct rank *r, const char *what, int rc, const pd_error *err)
{
    return rank_check(r->failure, sizeof r->failure, r->rank, what, rc, err);
}

/* ---- workers ---- */

static bool begin(struct rank *r)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    static const pd_client_param params[PARAMS] = { { .name = "a", .shape = { 1, { N } } },
                                                    { .name = "b", .shape = { 1, { N } } } };
    void *const weights[PARAMS] = { r->weights[0], r->weights[1] };
    pd_client_options options = { .urls = r->run->url,
                                  .job = "j",
                                  .rank = r->rank,
                                  .world_size = WORLD,
                                  .rules = rules,
                                  .options = r->run->options,
                                  .deadline = patient(60),
                                  .window = MOST,
                                  .quiet = true };
    pd_error err;

    return check(r, "open", pd_client_open(&r->client, &options, &err), &err) &&
           check(r, "declare", pd_client_declare(r->client, params, PARAMS, &err), &err) &&
           check(r, "init", pd_client_init(r->client, weights, &err), &err);
}

/* Pushes the parameters and pulls their weights. With separate calls, parameter 0 has no gradient in odd pushes, which
 * only the end of the step says. */
static int push(struct rank *r, pd_item *items, pd_item_count *counts, uint64_t step, pd_error *err)
{
    pd_push_options options = { .counts = counts };
    pd_ticket_id ticket, ends = 0;
    int rc;

    if (!r->run->separate) {
        rc = pd_client_push_pull(r->client, items, PARAMS, &options, &ticket, err);
        return rc == PD_OK ? pd_client_wait(r->client, ticket, 0, err) : rc;
    }
    rc = pd_client_push(r->client, &items[1], 1, &options, &ticket, err);
    if (rc == PD_OK) rc = pd_client_close_step(r->client, step, &ends, err);
    if (rc == PD_OK) rc = pd_client_wait(r->client, ticket, 0, err);
    if (ends != 0 && rc == PD_OK) rc = pd_client_wait(r->client, ends, 0, err);
    counts[1] = counts[0];
    if (rc == PD_OK) rc = pd_client_pull(r->client, items, 1, items[1].step, &ticket, err);
    if (rc == PD_OK) rc = pd_client_wait(r->client, ticket, 0, err);
    items[0].outcome = items[1].outcome;
    return rc;
}

/* Checks that the weights have each earlier push of this rank as it was told of it. */
static bool has_what_was_told(struct rank *r, size_t param)
{
    for (int n = 0; n < r->pushes; n++) {
        float at = r->weights[param][r->rank * MOST + n];
        if ((r->told[n].outcome == STEPPED) == (at != 0)) continue;
        snprintf(r->failure, sizeof r->failure,
                 "rank %d: the weights of step %d have %g of push %d, whose outcome was %d", r->rank,
                 (int)pd_client_step(r->client, 0), at, n, r->told[n].outcome);
        return false;
    }
    return true;
}

/* Makes push number r->pushes, and notes what the answer tells of it. */
static bool take_step(struct rank *r)
{
    uint64_t step = pd_client_step(r->client, 0) + 1;
    size_t at = (size_t)(r->rank * MOST + r->pushes);
    pd_item_count counts[PARAMS];
    pd_item items[PARAMS];
    pd_error err;
    int rc;

    for (size_t i = 0; i < PARAMS; i++) {
        r->gradients[i][at] = 1;
        items[i] = (pd_item){ .param = i, .gradient = r->gradients[i], .weights = r->weights[i] };
    }
    rc = push(r, items, counts, step, &err);
    for (size_t i = 0; i < PARAMS; i++) r->gradients[i][at] = 0;
    if (!check(r, "step", rc, &err)) return false;
    if (r->rank == SLOW && items[1].outcome == LATE) r->run->late = true;
    r->told[r->pushes++] = (told){ items[1].outcome, step + counts[1].age, items[1].step, counts[1].counted };
    if (items[0].outcome != items[1].outcome || counts[0].age != counts[1].age) {
        snprintf(r->failure, sizeof r->failure, "rank %d: the outcomes of step %d are %d and %d, the ages %d and %d",
                 r->rank, (int)step, items[0].outcome, items[1].outcome, (int)counts[0].age, (int)counts[1].age);
        return false;
    }
    return r->run->separate || (has_what_was_told(r, 0) && has_what_was_told(r, 1));
}

/* Pulls the final weights, once all other workers have left. */
static void pull_the_rest(struct rank *r)
{
    pd_item items[PARAMS];
    pd_ticket_id ticket;
    pd_error err;

    for (size_t i = 0; i < PARAMS; i++) items[i] = (pd_item){ .param = i, .weights = r->weights[i] };
    if (check(r, "pull", pd_client_pull(r->client, items, PARAMS, 0, &ticket, &err), &err))
        check(r, "pull", pd_client_wait(r->client, ticket, 0, &err), &err);
}

/* Returns whether the worker ends: rank 0 pushes until the others have left, as they might wait for it. */
static bool ends(const struct rank *r)
{
    if (r->failure[0] != '\0' || r->pushes == MOST) return true;
    return r->run->done && (r->rank > 0 || r->run->left == WORLD - 1);
}

typedef struct catch_up {
    const run *run;
    int pushes;
} catch_up;

static bool rank_0_is_ahead(void *arg)
{
    const catch_up *c = arg;

    return c->run->done || c->run->left > 0 || c->run->ranks[0].pushes >= c->pushes;
}

/* Lets time pass before the next push. That of rank SLOW comes now and then after so many of the others that it must be
 * late. */
static void compute(struct rank *r, unsigned *seed)
{
    catch_up c = { r->run, r->run->ranks[0].pushes + r->run->lag };

    if (r->rank != SLOW)
        sleep_for(4e-3);
    else if (r->pushes % 3 == 2)
        await(rank_0_is_ahead, &c, patient(60));
    else
        sleep_for(rand_r(seed) % 60 * 1e-3);
}

/* Returns whether all workers have begun. One that began after step 1 could not send that step again, and would get
 * PD_REWIND. */
static bool all_have_begun(void *arg)
{
    const run *r = arg;

    return r->begun == WORLD;
}

static void *work(void *arg)
{
    struct rank *r = arg;
    unsigned seed = (unsigned)r->rank;
    pd_error err;

    if (begin(r)) {
        r->run->begun++;
        await(all_have_begun, r->run, patient(60));
        while (!ends(r) && take_step(r)) {
            if (r->rank == 0 && r->pushes == 1)
                r->run->durable = check(r, "sync", pd_client_sync(r->client, 0, &err), &err);
            compute(r, &seed);
        }
        if (r->rank == 0) pull_the_rest(r);
        r->stats = pd_client_count(r->client);
        if (r->failure[0] == '\0') check(r, "leave", pd_client_leave(r->client, &err), &err);
    }
    r->run->left++;
    pd_client_close(r->client);
    return NULL;
}

/* ---- the daemon ---- */

static void start_daemon(run *r)
{
    char listen[64], state[100];
    const char *const flags[] = { listen, state, "--chunk-bytes=8KiB", NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", r->daemon != NULL ? r->daemon->port : 0);
    snprintf(state, sizeof state, "--state-dir=%s/state", r->root);
    if (r->daemon != NULL) daemon_kill(r->daemon);
    r->daemon = daemon_start(flags);
    snprintf(r->url, sizeof r->url, "%s", r->daemon->url);
}

static bool has_failed(const run *r)
{
    bool failed = false;

    for (int i = 0; i < WORLD; i++) failed = failed || r->ranks[i].failure[0] != '\0';
    return failed;
}

static bool may_be_killed(void *arg)
{
    const run *r = arg;

    return has_failed(r) || r->durable;
}

/* Waits until all workers are connected, so that each of them notices that the daemon is killed. */
static void await_all(const run *r)
{
    if (!has_failed(r) && !daemon_says(r->daemon, "(4 of 4 connected)", patient(60)) && !has_failed(r))
        fail_msg("not all workers have come");
}

static bool may_end(void *arg)
{
    const run *r = arg;

    return has_failed(r) || r->late;
}

static void run_with_kills(run *r, const char *const *options, int staleness, bool separate)
{
    char command[120];
    unsigned seed = 7;

    memset(r, 0, sizeof *r);
    r->options = options;
    r->lag = staleness + 3;
    r->separate = separate;
    strcpy(r->root, "/tmp/paramd-sets.XXXXXX");
    assert_non_null(mkdtemp(r->root));
    start_daemon(r);
    for (int i = 0; i < WORLD; i++) {
        r->ranks[i].run = r;
        r->ranks[i].rank = i;
        assert_int_equal(pthread_create(&r->threads[i], NULL, work, &r->ranks[i]), 0);
    }
    assert_true(await(may_be_killed, r, patient(60)));
    for (int i = 0; i < KILLS; i++) {
        sleep_for(0.1 + rand_r(&seed) % 400 * 1e-3);
        await_all(r);
        start_daemon(r);
    }
    sleep_for(0.2);
    await_all(r);
    assert_true(await(may_end, r, patient(60)));
    r->done = true;
    for (int i = 0; i < WORLD; i++) pthread_join(r->threads[i], NULL);
    for (int i = 0; i < WORLD; i++)
        if (r->ranks[i].failure[0] != '\0') fail_msg("%s", r->ranks[i].failure);
    daemon_stop(r->daemon, patient(20));
    snprintf(command, sizeof command, "rm -rf %s", r->root);
    assert_int_equal(system(command), 0);
}

/* ---- what must be true afterwards ---- */

/* Returns how many ranks were told that a push has counted in this step. */
static int size_of_set(const run *r, uint64_t step)
{
    int n = 0;

    for (int i = 0; i < WORLD; i++)
        for (int k = 0; k < r->ranks[i].pushes; k++)
            n += r->ranks[i].told[k].outcome == STEPPED && r->ranks[i].told[k].counted_in == step;
    return n;
}

/* Checks one push, and the number of ranks that its answer says have counted. */
static void check_push(const run *r, int rank, int n)
{
    const told *t = &r->ranks[rank].told[n];
    int size = t->outcome == STEPPED ? size_of_set(r, t->counted_in) : 0;
    float expected = size > 0 ? -1 / (float)size : 0;

    assert_true(t->outcome == STEPPED || t->outcome == LATE);
    for (int p = 0; p < PARAMS; p++) {
        float at = r->ranks[0].weights[p][rank * MOST + n];
        if (p == 0 && r->separate) continue;
        if (at != expected)
            fail_msg("rank %d, push %d: the weight is %g, and %d ranks were told that they have counted in step %d",
                     rank, n, at, size, (int)t->counted_in);
    }
    if (t->outcome == STEPPED && t->counted_in == t->step)
        assert_int_equal(t->counted != 0 ? (int)t->counted : WORLD, size);
}

/* Also checks that the runs were not too easy: each worker has noticed each kill. */
static void the_weights_are_the_sets_that_answers_name(const run *r)
{
    for (int i = 0; i < WORLD; i++) {
        for (int n = 0; n < r->ranks[i].pushes; n++) check_push(r, i, n);
        for (int n = r->ranks[i].pushes; n < MOST; n++) assert_float_equal(r->ranks[0].weights[1][i * MOST + n], 0, 0);
        assert_true(r->ranks[i].stats.connects > KILLS);
    }
}

static run r; /* too large for the stack */

enum { QUORUM_STALENESS = 2, ASYNC_STALENESS = 20 };
#define QUORUM "rounds=quorum", "quorum=3", "grace=5ms", "staleness=2"
#define ASYNC "rounds=async", "staleness=20", "damping=none"
#define MEMBERS "on_lost_worker=shrink", "reconnect_grace=60s", "checkpoint_every=40"

TEST(a_quorum_with_checkpoints_counts_each_push_as_it_was_told)
{
    static const char *const options[] = { QUORUM, MEMBERS, "durability=checkpoint", NULL };

    run_with_kills(&r, options, QUORUM_STALENESS, false);
    the_weights_are_the_sets_that_answers_name(&r);
}

TEST(a_quorum_with_a_log_counts_each_push_as_it_was_told)
{
    static const char *const options[] = { QUORUM, MEMBERS, "durability=log", NULL };

    run_with_kills(&r, options, QUORUM_STALENESS, false);
    the_weights_are_the_sets_that_answers_name(&r);
}

TEST(async_steps_with_checkpoints_count_each_push_as_it_was_told)
{
    static const char *const options[] = { ASYNC, MEMBERS, "durability=checkpoint", NULL };

    run_with_kills(&r, options, ASYNC_STALENESS, false);
    the_weights_are_the_sets_that_answers_name(&r);
}

TEST(async_steps_with_a_log_count_each_push_as_it_was_told)
{
    static const char *const options[] = { ASYNC, MEMBERS, "durability=log", NULL };

    run_with_kills(&r, options, ASYNC_STALENESS, false);
    the_weights_are_the_sets_that_answers_name(&r);
}

TEST(steps_that_are_ended_count_each_push_as_it_was_told)
{
    static const char *const options[] = { QUORUM, MEMBERS, "durability=checkpoint", NULL };

    run_with_kills(&r, options, QUORUM_STALENESS, true);
    the_weights_are_the_sets_that_answers_name(&r);
}
