/* Tests a model in four fragments, which two workers push one after the other, with daemons that are killed again and
 * again while they train: in each fragment the final weights are exactly what the workers' answers tell. One daemon has
 * the job, or two share it: each of them has two fragments, and goes back alone.
 *
 * Push number n of a rank to a fragment has the gradient 1 in one element that belongs to this push alone, and 0
 * elsewhere. A step of sgd with lr=1 takes the mean over the ranks of its set away from weights that begin as 0. */
#include <pthread.h>
#include <stdatomic.h>

#include "test.h"
#include "daemon_process.h"
#include "rank_check.h"
#include "paramd/client.h"

enum { DAEMONS = 2, WORLD = 2, FRAGMENTS = 4, MOST = 600, N = WORLD * MOST, KILLS = 4, STEPPED = 1, LATE = 5 };

/* What a worker was told of one of its pushes. */
typedef struct told {
    int outcome;
    uint64_t counted_in; /* the step of the fragment in which it has counted */
} told;

typedef struct run {
    const char *const *options; /* of the job */
    int cycles;                 /* number of pushes of each fragment; 0: as many as there is time for */
    char root[64], urls[128];
    int daemons;
    test_daemon *daemon[DAEMONS];
    pthread_t threads[WORLD];
    _Atomic bool durable, done; /* done: no kill follows, and all workers end */
    _Atomic int begun, left;    /* number of workers that have the initial weights, and that have left */
    struct rank {
        struct run *run;
        int rank, pushes[FRAGMENTS];
        pd_client *client;
        told told[FRAGMENTS][MOST];
        pd_client_stats stats;
        float weights[FRAGMENTS][N], gradient[N];
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
    pd_client_param params[FRAGMENTS];
    void *weights[FRAGMENTS];
    char names[FRAGMENTS][8];
    pd_client_options options = { .urls = r->run->urls,
                                  .job = "j",
                                  .rank = r->rank,
                                  .world_size = WORLD,
                                  .rules = rules,
                                  .options = r->run->options,
                                  .deadline = patient(60),
                                  .window = MOST,
                                  .quiet = true };
    pd_error err;

    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        snprintf(names[f], sizeof names[f], "p%d", (int)f);
        params[f] = (pd_client_param){ .name = names[f], .shape = { 1, { N } }, .fragment = f };
        weights[f] = r->weights[f];
    }
    return check(r, "open", pd_client_open(&r->client, &options, &err), &err) &&
           check(r, "declare", pd_client_declare(r->client, params, FRAGMENTS, &err), &err) &&
           check(r, "init", pd_client_init(r->client, weights, &err), &err);
}

/* Checks that the fragment's weights have each earlier push of this rank as it was told of it. */
static bool has_what_was_told(struct rank *r, int f)
{
    for (int n = 0; n < r->pushes[f]; n++) {
        float at = r->weights[f][r->rank * MOST + n];
        if ((r->told[f][n].outcome == STEPPED) == (at != 0)) continue;
        snprintf(r->failure, sizeof r->failure, "rank %d: the weights of fragment %d have %g of push %d, outcome %d",
                 r->rank, f, at, n, r->told[f][n].outcome);
        return false;
    }
    return true;
}

/* Pushes a fragment, and notes what the answer tells of it. */
static bool take_step(struct rank *r, int f)
{
    uint64_t step = pd_client_step(r->client, (size_t)f) + 1;
    size_t at = (size_t)(r->rank * MOST + r->pushes[f]);
    pd_item item = { .param = (size_t)f, .gradient = r->gradient, .weights = r->weights[f] };
    pd_item_count count = { 0 };
    pd_push_options options = { .counts = &count };
    pd_ticket_id ticket;
    pd_error err;
    int rc;

    r->gradient[at] = 1;
    rc = pd_client_push_pull(r->client, &item, 1, &options, &ticket, &err);
    if (rc == PD_OK) rc = pd_client_wait(r->client, ticket, 0, &err);
    r->gradient[at] = 0;
    if (!check(r, "step", rc, &err)) return false;
    r->told[f][r->pushes[f]++] = (told){ item.outcome, step + count.age };
    return has_what_was_told(r, f);
}

/* Pulls the final weights, once the other worker has left. */
static void pull_the_rest(struct rank *r)
{
    pd_item items[FRAGMENTS];
    pd_ticket_id ticket;
    pd_error err;

    for (size_t f = 0; f < FRAGMENTS; f++) items[f] = (pd_item){ .param = f, .weights = r->weights[f] };
    if (check(r, "pull", pd_client_pull(r->client, items, FRAGMENTS, 0, &ticket, &err), &err))
        check(r, "pull", pd_client_wait(r->client, ticket, 0, &err), &err);
}

/* Returns whether the worker ends. Each makes more pushes than there are kills. Rank 0 pushes until the other one has
 * left. */
static bool ends(const struct rank *r)
{
    if (r->failure[0] != '\0' || r->pushes[FRAGMENTS - 1] == (r->run->cycles > 0 ? r->run->cycles : MOST)) return true;
    if (r->run->cycles > 0 || !r->run->done || r->pushes[FRAGMENTS - 1] <= KILLS) return false;
    return r->rank > 0 || r->run->left == WORLD - 1;
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
    pd_error err;

    if (begin(r)) {
        r->run->begun++;
        await(all_have_begun, r->run, patient(60));
        for (int f = 0; !ends(r) && take_step(r, f); f = (f + 1) % FRAGMENTS) {
            if (r->rank == 0 && f == 1 && r->pushes[f] == 1)
                r->run->durable = check(r, "sync", pd_client_sync(r->client, 0, &err), &err);
            sleep_for(r->rank > 0 ? 7e-3 : 3e-3);
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

static void start_daemon(run *r, int i)
{
    char listen[64], state[100];
    const char *const flags[] = { listen, state, "--step-threads=1", "--pool-threads=1", NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", r->daemon[i] != NULL ? r->daemon[i]->port : 0);
    snprintf(state, sizeof state, "--state-dir=%s/%d", r->root, i);
    if (r->daemon[i] != NULL) daemon_kill(r->daemon[i]);
    r->daemon[i] = daemon_start(flags);
}

static void start_daemons(run *r)
{
    for (int i = 0; i < r->daemons; i++) start_daemon(r, i);
    snprintf(r->urls, sizeof r->urls, "%s%s%s", r->daemon[0]->url, r->daemons > 1 ? " " : "",
             r->daemons > 1 ? r->daemon[1]->url : "");
}

static bool may_be_killed(void *arg)
{
    const run *r = arg;

    return r->ranks[0].failure[0] != '\0' || r->ranks[1].failure[0] != '\0' || r->durable;
}

static void run_with_kills(run *r, int daemons, const char *const *options, int cycles)
{
    char command[120];
    unsigned seed = 7;

    memset(r, 0, sizeof *r);
    r->daemons = daemons;
    r->options = options;
    r->cycles = cycles;
    strcpy(r->root, "/tmp/paramd-fragments.XXXXXX");
    assert_non_null(mkdtemp(r->root));
    start_daemons(r);
    for (int i = 0; i < WORLD; i++) {
        r->ranks[i].run = r;
        r->ranks[i].rank = i;
        assert_int_equal(pthread_create(&r->threads[i], NULL, work, &r->ranks[i]), 0);
    }
    assert_true(await(may_be_killed, r, patient(60)));
    for (int i = 0; i < KILLS; i++) {
        sleep_for(0.1 + rand_r(&seed) % 400 * 1e-3);
        start_daemon(r, i % daemons);
    }
    sleep_for(0.2);
    r->done = true;
    for (int i = 0; i < WORLD; i++) pthread_join(r->threads[i], NULL);
    for (int i = 0; i < WORLD; i++)
        if (r->ranks[i].failure[0] != '\0') fail_msg("%s", r->ranks[i].failure);
    for (int i = 0; i < daemons; i++) daemon_stop(r->daemon[i], patient(20));
    snprintf(command, sizeof command, "rm -rf %s", r->root);
    assert_int_equal(system(command), 0);
}

/* ---- what must be true afterwards ---- */

/* Returns how many ranks were told that a push has counted in this step of the fragment. */
static int size_of_set(const run *r, int f, uint64_t step)
{
    int n = 0;

    for (int i = 0; i < WORLD; i++)
        for (int k = 0; k < r->ranks[i].pushes[f]; k++)
            n += r->ranks[i].told[f][k].outcome == STEPPED && r->ranks[i].told[f][k].counted_in == step;
    return n;
}

static void check_push(const run *r, int rank, int f, int n)
{
    const told *t = &r->ranks[rank].told[f][n];
    int size = t->outcome == STEPPED ? size_of_set(r, f, t->counted_in) : 0;
    float at = r->ranks[0].weights[f][rank * MOST + n];

    assert_true(t->outcome == STEPPED || t->outcome == LATE);
    if (at != (size > 0 ? -1 / (float)size : 0))
        fail_msg("rank %d, push %d of fragment %d: the weight is %g, and %d ranks were told that they have counted in "
                 "step %d",
                 rank, n, f, at, size, (int)t->counted_in);
}

static void the_weights_are_what_answers_tell(const run *r)
{
    for (int i = 0; i < WORLD; i++) {
        for (int f = 0; f < FRAGMENTS; f++)
            for (int n = 0; n < r->ranks[i].pushes[f]; n++) check_push(r, i, f, n);
        assert_true(r->ranks[i].stats.connects > KILLS);
        assert_true(r->ranks[i].pushes[FRAGMENTS - 1] > KILLS);
    }
}

static run r; /* too large for the stack */

#define MEMBERS "on_lost_worker=shrink", "reconnect_grace=60s", "checkpoint_every=10"

TEST(fragments_of_a_quorum_with_checkpoints_count_each_push_as_it_was_told)
{
    static const char *const options[] = { "rounds=quorum",         "quorum=1", "grace=10ms", MEMBERS,
                                           "durability=checkpoint", NULL };

    run_with_kills(&r, 1, options, 0);
    the_weights_are_what_answers_tell(&r);
}

TEST(fragments_of_a_quorum_with_a_log_count_each_push_as_it_was_told)
{
    static const char *const options[] = { "rounds=quorum", "quorum=1", "grace=10ms", MEMBERS, "durability=log", NULL };

    run_with_kills(&r, 1, options, 0);
    the_weights_are_what_answers_tell(&r);
}

TEST(fragments_whose_ranks_all_count_lose_no_push)
{
    static const char *const options[] = { "checkpoint_every=10", "durability=log", NULL };

    run_with_kills(&r, 1, options, 120);
    the_weights_are_what_answers_tell(&r);
}

TEST(fragments_on_two_shards_count_each_push_as_it_was_told)
{
    static const char *const options[] = { "rounds=quorum",         "quorum=1", "grace=10ms", MEMBERS,
                                           "durability=checkpoint", NULL };

    run_with_kills(&r, 2, options, 0);
    the_weights_are_what_answers_tell(&r);
}

TEST(fragments_on_two_shards_with_logs_count_each_push_as_it_was_told)
{
    static const char *const options[] = { "rounds=quorum", "quorum=1", "grace=10ms", MEMBERS, "durability=log", NULL };

    run_with_kills(&r, 2, options, 0);
    the_weights_are_what_answers_tell(&r);
}

TEST(fragments_on_two_shards_whose_ranks_all_count_lose_no_push)
{
    static const char *const options[] = { "checkpoint_every=10", "durability=log", NULL };

    run_with_kills(&r, 2, options, 120);
    the_weights_are_what_answers_tell(&r);
}
