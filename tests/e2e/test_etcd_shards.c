/* Tests workers of a cluster of three shards with a real etcd: one address opens all shards, and a shard whose owner is
 * gone, or sleeps, is found at the spare that has taken it. Two ranks add ones, so their weights count the steps. */
#define _GNU_SOURCE /* mkdtemp */
#include <pthread.h>
#include <stdatomic.h>

#include "test.h"
#include "daemon_process.h"
#include "etcd_process.h"
#include "handle.h"
#include "rank_check.h"
#include "shard_table.h"

enum { TTL = 2, SHARDS = 3, SPARE = SHARDS, PLACES = SHARDS + 1, WORLD = 2, TENSORS = 7 };
static const int64_t sizes[TENSORS] = { 900, 800, 700, 600, 500, 400, 300 };

typedef struct fixture fixture;

/* A rank, which trains on a thread of its own. */
typedef struct rank {
    fixture *f;
    int number;
    char url[64], failure[600];
    pthread_t thread;
    atomic_int steps;
    atomic_bool knows_spare; /* its client has the address of a spare */
    atomic_bool is_durable;  /* a step is durable: the job is not lost with a daemon */
    char shards[SHARDS][64]; /* where the shards were after the last step */
    uint64_t tenures[SHARDS];
    float *weights[TENSORS], *ones;
} rank;

struct fixture {
    int n; /* number of shards */
    test_etcd *etcd;
    char folder[64], engine[240];
    int ports[PLACES];
    test_daemon *daemons[PLACES];
    rank ranks[WORLD];
    atomic_int last; /* step after which all ranks end */
};

/* Starts the daemon of a place, whose state directories are FOLDER/`states`SHARD, and waits until its log has `text`.
 * shard -1: it is a spare. */
static void start_at(fixture *f, int place, int shard, const char *states, const char *text)
{
    char listen[48], state[160], which[40], shards[40];

    snprintf(shards, sizeof shards, "--cluster-shards=%d", f->n);
    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", f->ports[place]);
    snprintf(state, sizeof state, "--state-dir=%s/%s{shard}", f->folder, states);
    snprintf(which, sizeof which, shard < 0 ? "--cluster-spare" : "--cluster-shard=%d", shard);
    f->daemons[place] = daemon_start_until(
        (const char *const[]){ listen, state, which, f->engine, shards, "--cluster-ttl=2s", NULL }, text);
}

/* Starts the spare. */
static void start_spare(fixture *f, const char *states, const char *text)
{
    start_at(f, SPARE, -1, states, text);
}

static fixture *begin(int n)
{
    fixture *f;
    char text[64];

    if (!etcd_is_there()) return NULL;
    f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->n = n;
    f->etcd = etcd_start(1);
    snprintf(f->engine, sizeof f->engine, "--cluster-engine=%s", f->etcd->engine);
    strcpy(f->folder, "/tmp/paramd-moves-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    for (int i = 0; i < PLACES; i++) f->ports[i] = reserve_port();
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "this daemon owns shard %d of %d", i, n);
        start_at(f, i, i, "", text);
    }
    for (int i = 0; i < WORLD; i++) {
        f->ranks[i] = (rank){ .f = f, .number = i };
        snprintf(f->ranks[i].url, sizeof f->ranks[i].url, "tcp://127.0.0.1:%d", f->ports[i < n ? i : 0]);
    }
    return f;
}

static void destroy(fixture *f, int place)
{
    daemon_kill(f->daemons[place]);
    f->daemons[place] = NULL;
}

static void finish(fixture *f)
{
    test_daemon *left[PLACES];
    size_t n = 0;

    for (int i = 0; i < PLACES; i++)
        if (f->daemons[i] != NULL) left[n++] = f->daemons[i];
    assert_int_equal(daemons_stop(left, n, f->folder), 0);
    etcd_end(f->etcd);
    for (int i = 0; i < WORLD; i++) {
        for (int p = 0; p < TENSORS; p++) free(f->ranks[i].weights[p]);
        free(f->ranks[i].ones);
    }
    free(f);
}

/* Begins a test with so many shards, or skips it. */
#define BEGIN(f, n)                                                                                                    \
    fixture *f = begin(n);                                                                                             \
    if (f == NULL) skip()

/* Notes where the shards are: no tenure may fall. */
static bool look_at_shards(rank *r, const pd_client *client)
{
    for (size_t i = 0; i < (size_t)r->f->n; i++) {
        uint64_t tenure;
        size_t n = pd_client_shards(client, i, r->shards[i], sizeof r->shards[i], &tenure);
        if (n != (size_t)r->f->n || tenure < r->tenures[i] || tenure == 0) {
            snprintf(r->failure, sizeof r->failure, "rank %d: shard %d of %d: tenure %d after %d", r->number, (int)i,
                     (int)n, (int)tenure, (int)r->tenures[i]);
            return false;
        }
        r->tenures[i] = tenure;
    }
    return true;
}

/* Checks that every weight counts the steps. */
static bool count(rank *r, int steps)
{
    for (int p = 0; p < TENSORS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            if (r->weights[p][i] == (float)-steps) continue;
            snprintf(r->failure, sizeof r->failure, "rank %d: after %d steps p%d[%d] is %g", r->number, steps, p,
                     (int)i, (double)r->weights[p][i]);
            return false;
        }
    return true;
}

static void look_at_client(rank *r, const pd_client *client)
{
    char *spares = pd_shard_table_spares(client->table);

    atomic_store(&r->knows_spare, spares != NULL);
    atomic_store(&r->is_durable, pd_client_durable(client) > 0);
    free(spares);
}

static bool take_step(rank *r, pd_client *client)
{
    pd_item items[TENSORS];
    pd_ticket_id ticket;
    pd_error err = { 0 };

    for (size_t p = 0; p < TENSORS; p++)
        items[p] = (pd_item){ .param = p, .gradient = r->ones, .weights = r->weights[p] };
    if (!rank_check(r->failure, sizeof r->failure, r->number, "push",
                    pd_client_push_pull(client, items, TENSORS, NULL, &ticket, &err), &err) ||
        !rank_check(r->failure, sizeof r->failure, r->number, "wait", pd_client_wait(client, ticket, 0, &err), &err))
        return false;
    look_at_client(r, client);
    return count(r, atomic_load(&r->steps) + 1) && look_at_shards(r, client);
}

static pd_client *open_rank(rank *r)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    static const char *const options[] = { "checkpoint_every=20", NULL };
    const pd_client_options how = { .urls = r->url,
                                    .job = "j",
                                    .rank = r->number,
                                    .world_size = WORLD,
                                    .rules = rules,
                                    .options = options,
                                    .deadline = patient(60),
                                    .window = 1000,
                                    .quiet = true };
    pd_client_param params[TENSORS];
    char names[TENSORS][16];
    pd_error err = { 0 };

    for (int p = 0; p < TENSORS; p++) {
        snprintf(names[p], sizeof names[p], "p%d", p);
        params[p] = (pd_client_param){ .name = names[p], .shape = { 1, { sizes[p] } } };
        r->weights[p] = calloc((size_t)sizes[p], sizeof(float));
    }
    r->ones = calloc((size_t)sizes[0], sizeof(float));
    for (int64_t i = 0; i < sizes[0]; i++) r->ones[i] = 1;
    return rank_begin(r->failure, sizeof r->failure, &how, params, TENSORS, r->weights, &err);
}

static void *train(void *arg)
{
    rank *r = arg;
    pd_client *client = open_rank(r);
    bool goes_on = client != NULL;
    pd_error err = { 0 };

    while (goes_on && atomic_load(&r->steps) < atomic_load(&r->f->last)) {
        if ((goes_on = take_step(r, client))) atomic_fetch_add(&r->steps, 1);
        sleep_for(0.005);
    }
    if (goes_on)
        (void)rank_check(r->failure, sizeof r->failure, r->number, "leave", pd_client_leave(client, &err), &err);
    pd_client_close(client);
    return NULL;
}

static void check_ranks(const fixture *f)
{
    for (int i = 0; i < WORLD; i++)
        if (f->ranks[i].failure[0] != '\0') fail_msg("%s", f->ranks[i].failure);
}

static bool job_is_durable(void *arg)
{
    const fixture *f = arg;
    bool is = true;

    check_ranks(f);
    for (int i = 0; i < WORLD; i++) is = is && atomic_load(&f->ranks[i].is_durable);
    return is;
}

/* Begins to train, and waits until the job survives the end of its daemons. */
static void begin_training(fixture *f)
{
    atomic_store(&f->last, INT32_MAX);
    for (int i = 0; i < WORLD; i++) assert_int_equal(pthread_create(&f->ranks[i].thread, NULL, train, &f->ranks[i]), 0);
    assert_true(await(job_is_durable, f, patient(60)));
}

typedef struct more_steps {
    fixture *f;
    int wanted;
} more_steps;

static bool has_steps(void *arg)
{
    const more_steps *more = arg;
    bool has = true;

    for (int i = 0; i < WORLD; i++)
        has = has && (more->f->ranks[i].failure[0] != '\0' || atomic_load(&more->f->ranks[i].steps) >= more->wanted);
    return has;
}

/* Waits until all ranks have taken so many more steps. Returns the seconds that it took. */
static double await_steps(fixture *f, int n)
{
    more_steps more = { f, atomic_load(&f->ranks[0].steps) + n };
    double begun = seconds_now();

    if (!await(has_steps, &more, patient(60))) fail_msg("no steps any more");
    check_ranks(f);
    return seconds_now() - begun;
}

static void end_training(fixture *f)
{
    atomic_store(&f->last, atomic_load(&f->ranks[0].steps) + 20); /* no rank is more than a step ahead of another */
    for (int i = 0; i < WORLD; i++) pthread_join(f->ranks[i].thread, NULL);
    check_ranks(f);
}

/* Checks that all ranks have shard `shard` at the spare. */
static void expect_at_spare(const fixture *f, int shard)
{
    char url[64];

    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", f->ports[SPARE]);
    for (int i = 0; i < WORLD; i++) assert_string_equal(f->ranks[i].shards[shard], url);
}

TEST(one_address_opens_all_shards_and_a_shard_is_followed_to_the_spare)
{
    uint64_t before;
    double took;
    BEGIN(f, SHARDS);

    start_spare(f, "", "this daemon is a spare");
    begin_training(f);
    await_steps(f, 50);
    before = f->ranks[0].tenures[2];
    destroy(f, 2);
    took = await_steps(f, 20);
    print_message("steps went on after %.1f s, with leases of %d s\n", took, TTL);
    /* the lease, the question whether the owner answers, start, retry; the rest for a busy machine */
    assert_true(took < patient(TTL + 2 + 1 + 1) + 10);
    end_training(f);
    expect_at_spare(f, 2);
    for (int i = 0; i < WORLD; i++) assert_true(f->ranks[i].tenures[2] > before);
    finish(f);
}

static bool owner_knows_spare(void *arg)
{
    const fixture *f = arg;

    paramctl_ask(f->ranks[0].url);
    return paramctl("shards") == 0 && strstr(paramctl_output, "\nspare ") != NULL;
}

static bool ranks_know_spare(void *arg)
{
    const fixture *f = arg;
    bool know = true;

    for (int i = 0; i < WORLD; i++) know = know && atomic_load(&f->ranks[i].knows_spare);
    return know;
}

TEST(the_only_shard_of_a_cluster_is_found_at_the_spare_by_workers_that_have_named_its_owner)
{
    BEGIN(f, 1);

    start_spare(f, "", "this daemon is a spare");
    assert_true(await(owner_knows_spare, f, patient(20)));
    begin_training(f);
    assert_true(await(ranks_know_spare, f, patient(60)));
    destroy(f, 0);
    await_steps(f, 20);
    end_training(f);
    expect_at_spare(f, 0);
    finish(f);
}

TEST(the_shard_whose_address_a_worker_has_named_may_move_too)
{
    BEGIN(f, SHARDS);

    start_spare(f, "", "this daemon is a spare");
    begin_training(f);
    await_steps(f, 30);
    destroy(f, 0);
    await_steps(f, 20);
    end_training(f);
    expect_at_spare(f, 0);
    finish(f);
}

TEST(workers_leave_an_owner_that_sleeps_and_do_not_go_back_when_it_wakes)
{
    char copy[300];
    BEGIN(f, SHARDS);

    begin_training(f);
    await_steps(f, 50);
    daemon_freeze(f->daemons[1]);
    /* The spare is on another machine: the owner's lock on its state directory does not keep it out. */
    snprintf(copy, sizeof copy, "cp -r %s/1 %s/copy1", f->folder, f->folder);
    assert_int_equal(system(copy), 0);
    start_spare(f, "copy", "this daemon owns shard 1 of 3");
    await_steps(f, 20);
    daemon_thaw(f->daemons[1]);
    assert_int_equal(daemon_await_end(f->daemons[1], patient(10)), 75);
    destroy(f, 1);
    await_steps(f, 20);
    end_training(f);
    expect_at_spare(f, 1);
    finish(f);
}

TEST(shards_that_move_again_and_again_lose_no_step_and_repeat_none)
{
    int owner[SHARDS] = { 0, 1, 2 }, spare = SPARE;
    char text[64];
    BEGIN(f, SHARDS);

    start_spare(f, "", "this daemon is a spare");
    begin_training(f);
    for (int i = 0; i < 5; i++) {
        int shard = i * 2 % SHARDS, killed = owner[shard];
        await_steps(f, 25);
        destroy(f, killed);
        await_steps(f, 25);
        snprintf(text, sizeof text, "this daemon owns shard %d of 3", shard);
        assert_true(daemon_says(f->daemons[spare], text, patient(10)));
        owner[shard] = spare;
        spare = killed;
        start_at(f, spare, -1, "", "this daemon is a spare");
    }
    end_training(f);
    for (int i = 0; i < SHARDS; i++) {
        snprintf(text, sizeof text, "tcp://127.0.0.1:%d", f->ports[owner[i]]);
        assert_string_equal(f->ranks[0].shards[i], text);
    }
    finish(f);
}

/* Asks for the shards of job j, and keeps the answer. Returns whether all owners have leases now. */
static bool owners_have_leases(void *arg)
{
    json_t **answer = arg, *shards, *shard;
    bool have = paramctl("shards j --json") == 0;
    size_t i;

    json_decref(*answer);
    *answer = parsed();
    shards = json_object_get(json_object_get(*answer, "table"), "shards");
    json_array_foreach(shards, i, shard) have = have && json_integer_value(json_object_get(shard, "lease_ms")) > 0;
    return have;
}

TEST(paramctl_asks_all_shards_by_the_address_of_one_and_tells_who_owns_them)
{
    json_t *answer = NULL, *table;
    BEGIN(f, SHARDS);

    start_spare(f, "", "this daemon is a spare");
    begin_training(f);
    await_steps(f, 5);
    paramctl_ask(f->ranks[1].url);
    assert_int_equal(paramctl("shards j"), 0);
    assert_says("TENURE");
    assert_says("spare ");
    assert_int_equal(paramctl("params j"), 0);
    for (int p = 0; p < TENSORS; p++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", p);
        assert_says(name); /* whatever shard it lies on */
    }
    assert_true(await(owners_have_leases, &answer, patient(20)));
    table = json_object_get(answer, "table");
    assert_int_equal(json_array_size(json_object_get(answer, "shards")), SHARDS);
    assert_int_equal(json_array_size(json_object_get(table, "shards")), SHARDS);
    assert_int_equal(json_array_size(json_object_get(table, "spares")), 1);
    for (int i = 0; i < SHARDS; i++) {
        const json_t *shard = json_array_get(json_object_get(table, "shards"), (size_t)i);
        assert_true(json_is_true(json_object_get(shard, "alive")));
        assert_true(json_integer_value(json_object_get(shard, "tenure")) > 0);
        assert_in_range(json_integer_value(json_object_get(shard, "lease_ms")), 1, TTL * 1000);
    }
    json_decref(answer);
    end_training(f);
    finish(f);
}

TEST(paramctl_and_the_doctor_warn_of_a_shard_without_owner)
{
    BEGIN(f, SHARDS);

    paramctl_ask(f->ranks[0].url);
    destroy(f, 2);
    for (double until = seconds_now() + patient(10); seconds_now() < until; sleep_for(0.1))
        if (paramctl("shards --json") == 1 && strstr(paramctl_output, "shard 2 has no owner") != NULL) break;
    assert_says("shard 2 has no owner");
    (void)paramctl("doctor");
    assert_says("shard 2 of cluster paramd has no owner");
    assert_says("a spare (paramd --spare)");
    finish(f);
}
