/* Tests daemons of a cluster with real etcd: they register, start again in place, wait as spares and take over;
 * training goes on when etcd, a member or a daemon fails, or
 * hangs. */
#define _GNU_SOURCE /* mkdtemp */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "test.h"
#include "daemon_process.h"
#include "etcd_process.h"
#include "http_ask.h"
#include "rank_check.h"

enum { TTL = 2, OUTAGE = 15, ELEMENTS = 1000, MOST = 4 };
enum { SECURE = 0, WITH_USERS = -1 }; /* kinds of etcd besides a number of members */

/* A place where a daemon runs: its ports, and its state directory. */
typedef struct place {
    test_daemon *daemon;
    int port, http;
    char listen[40], http_listen[48], state[96];
} place;

/* One worker, which trains on a thread of its own: it adds ones, so that its weights count the steps. */
typedef struct training {
    char urls[128], failure[600];
    pthread_t thread;
    atomic_int steps, rewinds;
    atomic_ullong durable; /* pd_client_durable after the last step */
    atomic_bool stop;
} training;

typedef struct fixture {
    test_etcd *etcd;
    char folder[64], engine[240];
    char mirror[96]; /* flag; "": there is none */
    place at[MOST];
    training training;
    unsigned long long durable; /* a step that was durable at some time */
} fixture;

static void place_init(fixture *f, int i, const char *state)
{
    place *p = &f->at[i];

    p->port = reserve_port();
    p->http = reserve_port();
    snprintf(p->listen, sizeof p->listen, "--listen=127.0.0.1:%d", p->port);
    snprintf(p->http_listen, sizeof p->http_listen, "--http-listen=127.0.0.1:%d", p->http);
    snprintf(p->state, sizeof p->state, "--state-dir=%s/%s", f->folder, state);
}

static fixture *begin(int members)
{
    fixture *f;

    if (!etcd_is_there()) return NULL;
    f = calloc(1, sizeof *f);
    assert_non_null(f);
    if (members == WITH_USERS)
        f->etcd = etcd_start_with_users();
    else
        f->etcd = members == SECURE ? etcd_start_secure() : etcd_start(members);
    snprintf(f->engine, sizeof f->engine, "--cluster-engine=%s", f->etcd->engine);
    strcpy(f->folder, "/tmp/paramd-spare-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    for (int i = 0; i < MOST; i++) place_init(f, i, i == MOST - 1 ? "other" : "shared");
    return f;
}

static void finish(fixture *f)
{
    test_daemon *daemons[MOST];
    size_t n = 0;

    for (int i = 0; i < MOST; i++)
        if (f->at[i].daemon != NULL) daemons[n++] = f->at[i].daemon;
    assert_int_equal(daemons_stop(daemons, n, f->folder), 0);
    etcd_end(f->etcd);
    free(f);
}

/* Starts a daemon at a place, with one more flag (or NULL), and waits until its log has `text`. */
static void start(fixture *f, int i, const char *flag, const char *text)
{
    place *p = &f->at[i];
    const char *const flags[] = { p->listen,
                                  p->http_listen,
                                  p->state,
                                  f->engine,
                                  "--cluster-ttl=2s",
                                  flag,
                                  f->mirror[0] != '\0' ? f->mirror : NULL,
                                  NULL };

    p->daemon = daemon_start_until(flags, text);
}

static void stop(fixture *f, int i)
{
    daemon_end(f->at[i].daemon);
    f->at[i].daemon = NULL;
}

static void destroy(fixture *f, int i)
{
    daemon_kill(f->at[i].daemon);
    f->at[i].daemon = NULL;
}

/* Returns the cluster as a daemon tells it over HTTP; the caller frees it. */
static json_t *cluster_of(const fixture *f, int i)
{
    const char *body = strstr(http_answer(f->at[i].http, "GET /jobs.json HTTP/1.0\r\n\r\n"), "\r\n\r\n");
    json_error_t where;
    json_t *document, *cluster;

    assert_non_null(body);
    /* Numbers of jobs are larger than jansson's integers. */
    if ((document = json_loads(body + 4, JSON_DECODE_INT_AS_REAL, &where)) == NULL)
        fail_msg("%s: %s", where.text, body);
    cluster = json_incref(json_object_get(json_object_get(document, "server"), "cluster"));
    assert_non_null(cluster);
    json_decref(document);
    return cluster;
}

/* Returns the number of the copy of the state that shard 0 has, as a text that the next call overwrites. */
/* Returns the number of the state that the daemon's table has, as soon as etcd has told the daemon of its own key. */
static const char *life_of(const fixture *f, int i)
{
    double end = seconds_now() + patient(TTL);
    static char life[32];
    bool known;

    do {
        json_t *cluster = cluster_of(f, i), *shard = json_array_get(json_object_get(cluster, "shards"), 0);
        snprintf(life, sizeof life, "%s", json_string_value(json_object_get(shard, "life")));
        json_decref(cluster);
        known = strspn(life, "0") < strlen(life);
        if (!known) usleep(10000);
    } while (!known && seconds_now() < end);
    return life;
}

static json_int_t tenure_of(const fixture *f, int i)
{
    json_t *cluster = cluster_of(f, i);
    json_int_t tenure = (json_int_t)json_number_value(json_object_get(cluster, "tenure"));

    json_decref(cluster);
    return tenure;
}

static double lease_of(const fixture *f, int i)
{
    json_t *cluster = cluster_of(f, i);
    double lease = json_number_value(json_object_get(cluster, "lease_seconds"));

    json_decref(cluster);
    return lease;
}

/* Returns whether daemon 0 of the test holds a key lease. */
static bool has_lease(void *arg)
{
    return lease_of(arg, 0) > 0;
}

static bool engine_is_up(const fixture *f, int i)
{
    json_t *cluster = cluster_of(f, i);
    bool up = json_is_true(json_object_get(cluster, "engine_up"));

    json_decref(cluster);
    return up;
}

static int push(pd_client *client, float *gradient, float *weights, pd_error *err)
{
    pd_item item = { .param = 0, .gradient = gradient, .weights = weights };
    pd_ticket_id ticket;
    int rc = pd_client_push_pull(client, &item, 1, NULL, &ticket, err);

    return rc == PD_OK ? pd_client_wait(client, ticket, 0, err) : rc;
}

/* Takes a step. The weights must be those after as many steps as the job has. */
static bool train_step(pd_client *client, float *gradient, float *weights, training *t)
{
    float *buffers[] = { weights };
    pd_error err = { 0 };
    int rc = push(client, gradient, weights, &err);

    if (rc == PD_REWIND) {
        atomic_fetch_add(&t->rewinds, 1);
        rc = pd_client_rewind(client, (void *const *)buffers, &err);
    }
    if (!rank_check(t->failure, sizeof t->failure, 0, "step", rc, &err)) return false;
    if (weights[0] == -(float)pd_client_step(client, 0)) return true;
    snprintf(t->failure, sizeof t->failure, "after %d steps the weight is %g", (int)pd_client_step(client, 0),
             (double)weights[0]);
    return false;
}

static void *train(void *arg)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    static const char *const options[] = { "checkpoint_every=20", NULL };
    training *t = arg;
    const pd_client_options open = { .urls = t->urls,
                                     .job = "j",
                                     .world_size = 1,
                                     .rules = rules,
                                     .options = options,
                                     .deadline = patient(60),
                                     .window = 200,
                                     .quiet = true };
    const pd_client_param param = { .name = "p", .shape = { 1, { ELEMENTS } } };
    float gradient[ELEMENTS], weights[ELEMENTS] = { 0 }, *buffers[] = { weights };
    pd_error err = { 0 };
    pd_client *client = rank_begin(t->failure, sizeof t->failure, &open, &param, 1, buffers, &err);

    for (size_t i = 0; i < ELEMENTS; i++) gradient[i] = 1;
    while (client != NULL && !atomic_load(&t->stop) && train_step(client, gradient, weights, t)) {
        atomic_fetch_add(&t->steps, 1);
        atomic_store(&t->durable, pd_client_durable(client));
        sleep_for(0.005);
    }
    if (client == NULL) return NULL;
    (void)rank_check(t->failure, sizeof t->failure, 0, "leave", pd_client_leave(client, &err), &err);
    pd_client_close(client);
    return NULL;
}

/* Returns whether a step after f->durable is durable. */
static bool more_is_durable(void *arg)
{
    const fixture *f = arg;

    if (f->training.failure[0] != '\0') fail_msg("%s", f->training.failure);
    return atomic_load(&f->training.durable) > f->durable;
}

/* Begins to train. The worker has the addresses of the daemons a and b, and goes to the one that answers. Waits until
 * the job has a durable step. */
static void begin_training(fixture *f, int a, int b)
{
    snprintf(f->training.urls, sizeof f->training.urls, "tcp://127.0.0.1:%d,tcp://127.0.0.1:%d", f->at[a].port,
             f->at[b].port);
    assert_int_equal(pthread_create(&f->training.thread, NULL, train, &f->training), 0);
    assert_true(await(more_is_durable, f, patient(60)));
}

typedef struct more_steps {
    training *training;
    int wanted;
} more_steps;

static bool has_steps(void *arg)
{
    more_steps *more = arg;

    return more->training->failure[0] != '\0' || atomic_load(&more->training->steps) >= more->wanted;
}

/* Waits until the worker has taken so many more steps. Returns the seconds that it took. */
static double await_steps(fixture *f, int n)
{
    more_steps more = { &f->training, atomic_load(&f->training.steps) + n };
    double begun = seconds_now();

    if (!await(has_steps, &more, patient(60))) fail_msg("no steps any more");
    if (f->training.failure[0] != '\0') fail_msg("%s", f->training.failure);
    return seconds_now() - begun;
}

/* Trains for OUTAGE seconds. No 20 steps may take two thirds of that: training does not wait for the outage's end. */
static void train_through(fixture *f)
{
    for (double until = seconds_now() + OUTAGE; seconds_now() < until;)
        assert_true(await_steps(f, 20) < 2.0 / 3 * OUTAGE);
}

/* Ends the worker. It has gone back to an earlier step at most `most` times. */
static void end_training(fixture *f, int most)
{
    atomic_store(&f->training.stop, true);
    pthread_join(f->training.thread, NULL);
    if (f->training.failure[0] != '\0') fail_msg("%s", f->training.failure);
    assert_true(atomic_load(&f->training.rewinds) <= most);
}

/* Begins a test with so many members, or one of the kind SECURE or WITH_USERS, or skips it. */
#define BEGIN(f, members)                                                                                              \
    fixture *f = begin(members);                                                                                       \
    if (f == NULL) skip()

TEST(a_daemon_registers_and_starts_again_in_place_with_its_life_and_a_higher_tenure)
{
    json_int_t before;
    json_t *cluster;
    double begun, fastest = INFINITY;
    char life[32];
    BEGIN(f, 1);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    before = tenure_of(f, 0);
    strcpy(life, life_of(f, 0));
    assert_true(before > 0);
    assert_true(lease_of(f, 0) > 0);
    assert_true(http_answers(f->at[0].http, "GET /metrics HTTP/1.0\r\n\r\n", "paramd_cluster_engine_up 1"));
    for (int i = 0; i < 5 && fastest >= patient(TTL); i++) { /* a busy machine makes some starts slow, and none fast */
        destroy(f, 0);
        begun = seconds_now();
        start(f, 0, NULL, "this daemon owns shard 0 of 1");
        fastest = fmin(fastest, seconds_now() - begun);
    }
    assert_true(fastest < patient(TTL)); /* it does not wait for the lease of its earlier process */
    assert_true(tenure_of(f, 0) > before);
    assert_string_equal(life_of(f, 0), life);
    cluster = cluster_of(f, 0);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(cluster, "shards"), 0), "url")) +
            strlen("tcp://127.0.0.1:"),
        f->at[0].listen + strlen("--listen=127.0.0.1:"));
    json_decref(cluster);
    finish(f);
}

TEST(a_second_daemon_with_the_same_shard_is_a_spare_and_its_health_says_so)
{
    BEGIN(f, 1);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    start(f, 1, NULL, "this daemon is a spare");
    assert_true(http_answers(f->at[1].http, "GET /readyz HTTP/1.0\r\n\r\n", "503 Service Unavailable"));
    assert_true(http_answers(f->at[1].http, "GET /readyz HTTP/1.0\r\n\r\n", "spare"));
    assert_true(http_answers(f->at[1].http, "GET /healthz HTTP/1.0\r\n\r\n", "200 OK"));
    assert_int_equal(tenure_of(f, 1), 0);
    stop(f, 1);
    finish(f);
}

TEST(a_spare_takes_over_from_an_owner_that_was_killed_and_no_step_is_lost)
{
    double took;
    BEGIN(f, 1);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    start(f, 1, "--cluster-spare", "this daemon is a spare");
    begin_training(f, 0, 1);
    await_steps(f, 50);
    destroy(f, 0);
    took = await_steps(f, 20);
    print_message("steps went on after %.1f s, with leases of %d s\n", took, TTL);
    /* the lease, the question whether the owner answers, the start; the rest for a busy machine */
    assert_true(took < patient(TTL + 2 + 1 + 1) + 10);
    assert_true(daemon_says(f->at[1].daemon, "this daemon owns shard 0 of 1", patient(10)));
    end_training(f, 0);
    finish(f);
}

TEST(a_daemon_without_a_lease_tells_no_new_durable_step_until_it_has_one_again)
{
    BEGIN(f, 1);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    begin_training(f, 0, 0);
    etcd_kill(f->etcd, 0);
    assert_true(daemon_says(f->at[0].daemon, "the lease of shard 0 has ended: this daemon takes steps", patient(10)));
    await_steps(f, 2); /* the answer to a step may have been under way */
    f->durable = atomic_load(&f->training.durable);
    await_steps(f, 100); /* with five checkpoints */
    assert_false(more_is_durable(f));
    etcd_restart(f->etcd, 0);
    assert_true(await(more_is_durable, f, patient(20)));
    end_training(f, 0);
    finish(f);
}

TEST(training_goes_on_while_etcd_is_away_and_keys_are_there_again_afterwards)
{
    BEGIN(f, 1);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    begin_training(f, 0, 0);
    await_steps(f, 20);
    etcd_kill(f->etcd, 0);
    assert_true(daemon_says(f->at[0].daemon, "the engine does not answer", patient(10)));
    train_through(f);
    assert_false(engine_is_up(f, 0));
    assert_true(lease_of(f, 0) == 0);
    etcd_restart(f->etcd, 0);
    assert_true(daemon_says(f->at[0].daemon, "the engine answers again", patient(20)));
    assert_true(await(has_lease, f, patient(10)));
    await_steps(f, 20);
    end_training(f, 0);
    finish(f);
}

static bool is_down(void *arg)
{
    return !engine_is_up(arg, 0);
}

TEST(training_goes_on_while_etcd_hangs_as_with_a_disk_that_does_not_answer)
{
    int lines;
    BEGIN(f, 1);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    begin_training(f, 0, 0);
    await_steps(f, 20);
    lines = daemon_count(f->at[0].daemon, "the engine does not answer"); /* not 0 if the machine is very busy */
    etcd_freeze(f->etcd, 0);
    assert_true(await(is_down, f, patient(10)));
    assert_true(daemon_says(f->at[0].daemon, "the engine does not answer", patient(3)));
    assert_true(http_answers(f->at[0].http, "GET /metrics HTTP/1.0\r\n\r\n", "paramd_cluster_engine_up 0"));
    train_through(f);
    assert_true(daemon_count(f->at[0].daemon, "the engine does not answer") <= lines + 1);
    etcd_thaw(f->etcd, 0);
    assert_true(daemon_says(f->at[0].daemon, "the engine answers again", patient(20)));
    assert_true(await(has_lease, f, patient(10)));
    await_steps(f, 20);
    end_training(f, 0);
    finish(f);
}

TEST(a_leader_that_hangs_is_passed_over_and_leases_survive)
{
    int leader;
    BEGIN(f, 3);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    start(f, 1, "--cluster-spare", "this daemon is a spare");
    begin_training(f, 0, 1);
    await_steps(f, 20);
    leader = etcd_leader(f->etcd);
    assert_true(leader >= 0);
    etcd_freeze(f->etcd, leader);
    train_through(f);
    assert_true(await(has_lease, f, patient(10)));
    assert_int_equal(tenure_of(f, 1), 0);
    etcd_thaw(f->etcd, leader);
    await_steps(f, 20);
    end_training(f, 0);
    finish(f);
}

TEST(a_daemon_that_starts_while_etcd_is_away_waits_for_it_and_can_be_stopped_meanwhile)
{
    BEGIN(f, 1);

    etcd_kill(f->etcd, 0);
    start(f, 0, NULL, "this daemon waits for it");
    assert_true(http_answers(f->at[0].http, "GET /readyz HTTP/1.0\r\n\r\n", "joining"));
    stop(f, 0);
    start(f, 0, NULL, "this daemon waits for it");
    etcd_restart(f->etcd, 0);
    assert_true(daemon_says(f->at[0].daemon, "this daemon owns shard 0 of 1", patient(20)));
    finish(f);
}

TEST(an_owner_that_slept_while_another_took_its_shard_exits_with_status_75_when_it_wakes)
{
    char copy[256];
    BEGIN(f, 1);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    daemon_freeze(f->at[0].daemon);
    /* A copy of the state directory on another machine: the daemon there is not kept out by the lock. */
    snprintf(copy, sizeof copy, "cp -r %s/shared %s/other", f->folder, f->folder);
    assert_int_equal(system(copy), 0);
    start(f, MOST - 1, "--cluster-spare", "this daemon owns shard 0 of 1");
    daemon_thaw(f->at[0].daemon);
    assert_int_equal(daemon_await_end(f->at[0].daemon, patient(10)), 75);
    assert_true(daemon_says(f->at[0].daemon, "shard 0 has a newer owner: this daemon stops at once", patient(10)));
    destroy(f, 0);
    finish(f);
}

TEST(a_spare_does_not_take_a_shard_whose_owner_has_lost_its_lease_but_answers)
{
    json_int_t before;
    BEGIN(f, 1);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    before = tenure_of(f, 0);
    start(f, MOST - 1, "--cluster-spare", "this daemon is a spare");
    etcd_kill(f->etcd, 0);
    sleep_for(2 * TTL);
    etcd_restart(f->etcd, 0);
    assert_true(daemon_says(f->at[0].daemon, "the engine answers again", patient(20)));
    sleep_for(2 * TTL);
    assert_true(tenure_of(f, 0) >= before);
    assert_int_equal(tenure_of(f, MOST - 1), 0);
    finish(f);
}

TEST(a_spare_on_another_machine_fetches_the_state_from_the_mirror_and_the_old_owner_stays_out)
{
    char command[128];
    BEGIN(f, 1);

    snprintf(f->mirror, sizeof f->mirror, "--server-mirror=%s/mirror", f->folder);
    start(f, 0, "--no-cluster-spare", "this daemon owns shard 0 of 1");
    start(f, MOST - 1, "--cluster-spare", "this daemon is a spare");
    begin_training(f, 0, MOST - 1);
    await_steps(f, 100);
    daemon_freeze(f->at[0].daemon);
    await_steps(f, 20);
    assert_true(daemon_says(f->at[MOST - 1].daemon, "was fetched from", patient(10)));
    daemon_thaw(f->at[0].daemon);
    assert_int_equal(daemon_await_end(f->at[0].daemon, patient(10)), 75);
    destroy(f, 0);
    await_steps(f, 20);
    end_training(f, 1);
    /* The new owner ends. The old one's state directory has an older copy of the state, and does not count. */
    destroy(f, MOST - 1);
    snprintf(command, sizeof command, "rm -rf %s/mirror", f->folder);
    assert_int_equal(system(command), 0);
    f->mirror[0] = '\0';
    start(f, 0, NULL, "has not the state that its last owner");
    assert_int_equal(daemon_await_end(f->at[0].daemon, patient(10)), 1);
    destroy(f, 0);
    finish(f);
}

TEST(a_spare_without_the_shards_state_says_why_it_does_not_take_it)
{
    BEGIN(f, 1);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    start(f, MOST - 1, "--cluster-spare", "this daemon is a spare");
    destroy(f, 0);
    assert_true(daemon_says(f->at[MOST - 1].daemon, "has not the state that its last owner", patient(15)));
    assert_int_equal(tenure_of(f, MOST - 1), 0);
    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    finish(f);
}

TEST(leases_survive_when_the_leader_of_three_members_is_killed)
{
    json_int_t before;
    int leader;
    BEGIN(f, 3);

    start(f, 0, NULL, "this daemon owns shard 0 of 1");
    start(f, 1, "--cluster-spare", "this daemon is a spare");
    begin_training(f, 0, 1);
    await_steps(f, 20);
    before = tenure_of(f, 0);
    leader = etcd_leader(f->etcd);
    assert_true(leader >= 0);
    etcd_kill(f->etcd, leader);
    train_through(f);
    assert_true(engine_is_up(f, 0));
    assert_true(lease_of(f, 0) > 0);
    /* The election may take longer than this short lease; then the owner has registered again. */
    assert_true(tenure_of(f, 0) >= before);
    assert_int_equal(tenure_of(f, 1), 0);
    destroy(f, 0);
    await_steps(f, 20);
    assert_true(tenure_of(f, 1) > before);
    end_training(f, 0);
    finish(f);
}

TEST(an_etcd_that_speaks_tls_and_wants_a_certificate_is_an_engine_too)
{
    char ca[120], cert[120], key[120];
    BEGIN(f, SECURE);

    snprintf(ca, sizeof ca, "--cluster-ca=%s/ca.pem", f->etcd->folder);
    snprintf(cert, sizeof cert, "--cluster-cert=%s/client.pem", f->etcd->folder);
    snprintf(key, sizeof key, "--cluster-key=%s/client.key", f->etcd->folder);
    {
        const char *const with[] = { f->at[0].listen, f->at[0].http_listen, f->engine, ca, cert, key, NULL };
        const char *const without[] = { f->at[1].listen, f->at[1].http_listen, f->engine, ca, NULL };
        f->at[0].daemon = daemon_start_until(with, "this daemon owns shard 0 of 1");
        f->at[1].daemon = daemon_start_until(without, "the engine does not answer");
    }
    assert_true(lease_of(f, 0) > 0);
    stop(f, 1);
    finish(f);
}

/* Starts a daemon that has a password of etcd, in a file of the folder, and waits until its log has `text`. */
static void start_with_password(fixture *f, int i, const char *folder, const char *file, const char *text)
{
    place *p = &f->at[i];
    char password[160];

    snprintf(password, sizeof password, "--cluster-password-file=%s/%s", folder, file);
    {
        const char *const flags[] = { p->listen,
                                      p->http_listen,
                                      f->engine,
                                      "--cluster-ttl=2s",
                                      "--cluster-user=paramd",
                                      password,
                                      i > 0 ? "--cluster-spare" : NULL,
                                      NULL };
        p->daemon = daemon_start_until(flags, text);
    }
}

/* Returns whether daemon 0 sees a spare. */
static bool sees_spare(void *arg)
{
    json_t *cluster = cluster_of(arg, 0);
    bool sees = json_array_size(json_object_get(cluster, "spares")) == 1;

    json_decref(cluster);
    return sees;
}

TEST(an_etcd_with_users_and_passwords_is_an_engine_also_after_the_end_of_a_token)
{
    double until;
    BEGIN(f, WITH_USERS);

    start_with_password(f, 0, f->etcd->folder, "password", "this daemon owns shard 0 of 1");
    until = seconds_now() + ETCD_TOKEN + 1;
    etcd_kill(f->etcd, 0);
    assert_true(daemon_says(f->at[0].daemon, "the engine does not answer", patient(10)));
    if (until > seconds_now()) sleep_for(until - seconds_now()); /* now all tokens have ended */
    etcd_restart(f->etcd, 0);
    assert_true(daemon_says(f->at[0].daemon, "the engine answers again", patient(20)));
    assert_true(await(has_lease, f, patient(10)));
    start_with_password(f, 1, f->etcd->folder, "password", "this daemon is a spare");
    assert_true(await(sees_spare, f, patient(10)));
    stop(f, 1);
    finish(f);
}

TEST(a_wrong_password_of_etcd_or_none_is_told_and_never_logged)
{
    char path[96];
    FILE *file;
    BEGIN(f, WITH_USERS);

    snprintf(path, sizeof path, "%s/wrong", f->folder);
    file = fopen(path, "we");
    assert_non_null(file);
    fputs("open barley\n", file);
    fclose(file);
    assert_int_equal(chmod(path, 0600), 0);
    start_with_password(f, 0, f->folder, "wrong", "authentication failed, invalid user ID or password");
    assert_true(daemon_says(f->at[0].daemon, "cluster.user = paramd: ", patient(10)));
    assert_int_equal(daemon_count(f->at[0].daemon, "barley"), 0);
    start(f, 1, NULL, "user name is empty: cluster.user and cluster.password_file are not set");
    finish(f);
}
