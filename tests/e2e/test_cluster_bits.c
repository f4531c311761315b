/* Tests jobs that several daemons share: the weights of all parameters after 60 steps have the bits of one daemon's,
 * for any number of shards and workers, optimizer and transport, with clipped, missing and infinite gradients.
 *
 * Without more it takes a part of the matrix, in about 30 s. CLUSTER_MATRIX=all takes all of it, and
 * CLUSTER_MATRIX=plain (clip, nan, absent) all with these gradients. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "test.h"
#include "daemon_process.h"
#include "pki.h"
#include "team.h"

/* Sanitizers make a step several times slower. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { STEPS = 12 };
#else
enum { STEPS = 60 };
#endif
enum { DAEMONS = 4, WORKERS = 3, PARAMS = 7, LARGE = 512 };

/* Ways to reach a daemon. SHM: as UNIX, with shared memory. */
typedef enum transport { TCP, TLS, UNIX, SHM, TRANSPORTS } transport;
static const char *const transport_names[TRANSPORTS] = { "tcp", "tls", "unix", "shm" };

/* What is special about the gradients, or what is done with them. */
typedef enum trouble { PLAIN, CLIPPED, NOT_A_NUMBER, ABSENT, TROUBLES } trouble;
static const char *const trouble_names[TROUBLES] = { "plain", "clip", "nan", "absent" };

/* An optimizer and a model. */
typedef struct training {
    const char *name, *rules[3];
    bool ranged;   /* each rank has a range of every parameter */
    bool averaged; /* one parameter is model state */
    int64_t large; /* rows and columns of the largest parameter; that of LARGE rows is cut */
} training;

static const training recipes[] = {
    { .name = "adamw", .rules = { "*bias adamw lr=0.01 weight_decay=0", "* adamw lr=0.01" }, .large = LARGE },
    { .name = "shampoo",
      .rules = { "* shampoo lr=0.01 max_preconditioner_dim=64 precondition_frequency=10 root_delay=5 "
                 "start_preconditioning_step=10" },
      .large = LARGE },
    { .name = "kron", .rules = { "* kron learning_rate=0.01 preconditioner_update_probability=0.5" }, .large = 48 },
    { .name = "adafactor",
      .rules = { "conv adafactor learning_rate=0.01 factored=no", "* adafactor learning_rate=0.01" },
      .large = 64 },
    { .name = "state", .rules = { "* sgd lr=0.01 momentum=0.9" }, .averaged = true, .large = LARGE },
    { .name = "ranges", .rules = { "* adam lr=0.01" }, .ranged = true, .large = LARGE },
};

typedef struct variant {
    const training *recipe;
    trouble trouble;
    int world;
    size_t shards;
    transport transport;
} variant;

static struct {
    char folder[64], ca[96], certificate[96], key[96], tokens[96], token[96], line[PD_TOKEN_LINE];
    pki_authority *authority;
    test_daemon *daemon[DAEMONS];
    int tls_port[DAEMONS];
    unsigned jobs; /* number of jobs so far */
} cluster;

static void name_file(char to[96], const char *file)
{
    snprintf(to, 96, "%s/%s", cluster.folder, file);
}

static void start_daemon(size_t i)
{
    char listen[256];
    const char *flags[] = { listen,
                            "--tls-certificate",
                            cluster.certificate,
                            "--tls-key",
                            cluster.key,
                            "--tls-tokens",
                            cluster.tokens,
                            "--shared-memory=yes",
                            "--step-threads=2",
                            "--pool-threads=1",
                            "--chunk-bytes=64KiB",
                            "--split-bytes=64KiB",
                            "--step-timeout=20s",
                            NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:0,tls://127.0.0.1:0,unix://%s/%zu", cluster.folder, i);
    cluster.daemon[i] = daemon_start(flags);
    assert_true(daemon_says(cluster.daemon[i], "listening on tls://", patient(10)));
    cluster.tls_port[i] = daemon_port_of(cluster.daemon[i], "listening on tls://127.0.0.1:");
}

static int start(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    strcpy(cluster.folder, "/tmp/paramd-cluster-XXXXXX");
    assert_non_null(mkdtemp(cluster.folder));
    name_file(cluster.ca, "ca.pem");
    name_file(cluster.certificate, "server.pem");
    name_file(cluster.key, "server.key");
    name_file(cluster.tokens, "tokens");
    name_file(cluster.token, "token");
    cluster.authority = pki_new("authority of a test", cluster.ca);
    pki_issue(cluster.authority, "IP:127.0.0.1", 2, cluster.certificate, cluster.key);
    assert_int_equal(pd_token_new(cluster.line, "alice", NULL), PD_OK);
    pki_write_tokens(cluster.tokens, cluster.line, NULL);
    pki_write_tokens(cluster.token, cluster.line, NULL);
    for (size_t i = 0; i < DAEMONS; i++) start_daemon(i);
    return 0;
}

static int end(void **state)
{
    (void)state;
    pki_free(cluster.authority);
    return daemons_stop(cluster.daemon, DAEMONS, cluster.folder);
}

GROUP(start, end);

/* Writes the list of shards that a worker gets. */
static void list_shards(const variant *v, char *text)
{
    for (size_t i = 0; i < v->shards; i++) {
        if (i > 0) *text++ = ' ';
        if (v->transport == TCP)
            text += sprintf(text, "%s", cluster.daemon[i]->url);
        else if (v->transport == TLS)
            text += sprintf(text, "tls://127.0.0.1:%d", cluster.tls_port[i]);
        else
            text += sprintf(text, "unix://%s/%zu", cluster.folder, i);
    }
}

static pd_shape shape_of(const training *recipe, size_t param)
{
    const pd_shape shapes[PARAMS] = { { 2, { recipe->large, recipe->large } },
                                      { 2, { 60, 50 } },
                                      { 1, { 50 } },
                                      { 3, { 3, 7, 11 } },
                                      { 0, { 0 } },
                                      { 1, { 40 } },
                                      { 1, { 2000 } } };
    return shapes[param];
}

static const char *const names[PARAMS] = { "embed", "dense", "dense.bias", "conv", "scale", "mean", "long" };
enum { MEAN = 5, DENSE = 1 };

/* One worker of a run. */
typedef struct rank {
    const variant *v;
    const char *urls, *job;
    int number;
    pthread_t thread;
    pd_client *client;
    pd_client_param params[PARAMS];
    int64_t elements[PARAMS];
    float *weights[PARAMS], *gradients[PARAMS], *whole;
    char failure[700];
} rank;

static bool failed(rank *r, const char *what, const pd_error *err)
{
    snprintf(r->failure, sizeof r->failure, "%s, rank %d: %s: %s", r->job, r->number, what, err->text);
    return false;
}

static void make_params(rank *r)
{
    const training *recipe = r->v->recipe;

    for (size_t p = 0; p < PARAMS; p++) {
        int64_t n, part;

        r->params[p] = (pd_client_param){ .name = names[p], .shape = shape_of(recipe, p) };
        r->params[p].model_state = recipe->averaged && p == MEAN;
        pd_shape_elements(&r->params[p].shape, &n);
        part = (n + r->v->world - 1) / r->v->world;
        r->elements[p] = n;
        if (!recipe->ranged) continue;
        r->params[p].ranged = true;
        r->params[p].start = part * r->number < n ? part * r->number : n;
        r->params[p].end = part * (r->number + 1) < n ? part * (r->number + 1) : n;
        r->elements[p] = r->params[p].end - r->params[p].start;
    }
}

/* Fills a rank's gradient, or its initial weights (step 0), which are equal on all ranks. */
static void fill(rank *r, size_t p, uint64_t step, float *to)
{
    int64_t n;

    pd_shape_elements(&r->params[p].shape, &n);
    fill_gradient(r->whole, n, step > 0 ? r->number : 0, step, p);
    memcpy(to, r->whole + r->params[p].start, (size_t)r->elements[p] * sizeof(float));
    if (r->v->trouble == NOT_A_NUMBER && p == DENSE && step % 16 == 7 && r->number == r->v->world - 1 &&
        r->elements[p] > 0)
        to[0] = NAN;
}

static bool is_absent(const rank *r, size_t p, uint64_t step)
{
    return r->v->trouble == ABSENT && (step + p + (uint64_t)r->number) % 4 == 0;
}

static bool begin(rank *r)
{
    static const char *const options[TROUBLES][4] = {
        [PLAIN] = { "split_bytes=64KiB" },
        [CLIPPED] = { "split_bytes=64KiB", "clip_global_norm=0.5" },
        [NOT_A_NUMBER] = { "split_bytes=64KiB", "nonfinite=skip", "nonfinite_scope=job" },
        [ABSENT] = { "split_bytes=64KiB", "nonfinite_scope=job" },
    };
    const bool coupled[TROUBLES] = { false, true, true, true };
    const char *own[5] = { "split_bytes=64KiB", "nonfinite_scope=job" };
    /* shampoo counts the steps of a group: on several shards such a job must step as a whole */
    bool needs = strcmp(r->v->recipe->name, "shampoo") == 0 && !coupled[r->v->trouble];
    pd_client_options open = { .urls = r->urls,
                               .job = r->job,
                               .rank = r->number,
                               .world_size = r->v->world,
                               .options = needs ? own : options[r->v->trouble],
                               .rules = r->v->recipe->rules,
                               .no_shared_memory = r->v->transport == UNIX,
                               .deadline = patient(60),
                               .ca_file = r->v->transport == TLS ? cluster.ca : NULL,
                               .token_file = r->v->transport == TLS ? cluster.token : NULL };
    void *weights[PARAMS];
    pd_error err = { 0 };

    make_params(r);
    if (pd_client_open(&r->client, &open, &err) != PD_OK) return failed(r, "open", &err);
    if (pd_client_declare(r->client, r->params, PARAMS, &err) != PD_OK) return failed(r, "declare", &err);
    r->whole = calloc(LARGE * LARGE, sizeof *r->whole);
    for (size_t p = 0; p < PARAMS; p++) {
        r->weights[p] = calloc((size_t)r->elements[p] + 1, sizeof(float));
        r->gradients[p] =
            r->v->transport == SHM ? pd_client_buffer(r->client, p) : calloc((size_t)r->elements[p] + 1, sizeof(float));
        fill(r, p, 0, weights[p] = r->weights[p]);
    }
    return pd_client_init(r->client, weights, &err) == PD_OK || failed(r, "init", &err);
}

static bool take_step(rank *r, uint64_t step)
{
    pd_item items[PARAMS];
    pd_ticket_id ticket;
    pd_error err = { 0 };

    for (size_t p = 0; p < PARAMS; p++) {
        fill(r, p, step, r->gradients[p]);
        items[p] = (pd_item){ .param = p, .gradient = r->gradients[p], .weights = r->weights[p] };
        if (is_absent(r, p, step)) items[p].gradient = NULL;
    }
    if (pd_client_push_pull(r->client, items, PARAMS, NULL, &ticket, &err) != PD_OK ||
        pd_client_wait(r->client, ticket, 0, &err) != PD_OK)
        return failed(r, "push_pull", &err);
    for (size_t p = 0; p < PARAMS; p++) {
        bool skipped = r->v->trouble == NOT_A_NUMBER && step % 16 == 7;
        if (r->elements[p] == 0 || (items[p].step == step && (!skipped || items[p].outcome == 2))) continue;
        snprintf(err.text, sizeof err.text, "%s in step %d: outcome %d, step %d", names[p], (int)step, items[p].outcome,
                 (int)items[p].step);
        return failed(r, "result", &err);
    }
    return true;
}

static void *run_rank(void *arg)
{
    rank *r = arg;
    pd_error err = { 0 };
    bool well = begin(r);

    for (uint64_t step = 1; well && step <= STEPS; step++) well = take_step(r, step);
    if (well && pd_client_leave(r->client, &err) != PD_OK) failed(r, "leave", &err);
    return NULL;
}

static void free_rank(rank *r)
{
    pd_client_close(r->client);
    for (size_t p = 0; p < PARAMS; p++) {
        free(r->weights[p]);
        if (r->v->transport != SHM) free(r->gradients[p]);
    }
    free(r->whole);
}

/* Returns the offset of a parameter in the weights of the whole model. */
static size_t offset_of(const training *recipe, size_t param)
{
    size_t at = 0;

    for (size_t p = 0; p < param; p++) {
        pd_shape shape = shape_of(recipe, p);
        int64_t n;
        pd_shape_elements(&shape, &n);
        at += (size_t)n;
    }
    return at;
}

/* Trains, and returns the weights of the whole model, which the caller frees. */
static float *train(const variant *v)
{
    rank *ranks = calloc((size_t)v->world, sizeof *ranks);
    float *all = calloc(offset_of(v->recipe, PARAMS), sizeof *all);
    char urls[1024], job[64];
    bool ends_well = true;

    list_shards(v, urls);
    snprintf(job, sizeof job, "%s-%s-%zux%d-%s-%u", v->recipe->name, trouble_names[v->trouble], v->shards, v->world,
             transport_names[v->transport], cluster.jobs++);
    for (int i = 0; i < v->world; i++) {
        ranks[i] = (rank){ .v = v, .urls = urls, .job = job, .number = i };
        pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
    }
    for (int i = 0; i < v->world; i++) pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < v->world; i++) {
        if (ranks[i].failure[0] != '\0') print_message("%s\n", ranks[i].failure);
        ends_well = ends_well && ranks[i].failure[0] == '\0';
    }
    assert_true(ends_well);
    for (int i = 0; i < v->world; i++)
        for (size_t p = 0; p < PARAMS; p++)
            memcpy(all + offset_of(v->recipe, p) + ranks[i].params[p].start, ranks[i].weights[p],
                   (size_t)ranks[i].elements[p] * sizeof(float));
    for (int i = 0; i < v->world; i++) free_rank(&ranks[i]);
    free(ranks);
    return all;
}

static void compare(const variant *v, const float *one, const float *many)
{
    for (size_t p = 0; p < PARAMS; p++) {
        size_t from = offset_of(v->recipe, p), to = offset_of(v->recipe, p + 1);
        for (size_t i = from; i < to; i++)
            if (memcmp(&one[i], &many[i], sizeof *one) != 0)
                fail_msg("%s, %s, %d workers, %zu shards, %s: %s[%zu] is %a, with one daemon %a", v->recipe->name,
                         trouble_names[v->trouble], v->world, v->shards, transport_names[v->transport], names[p],
                         i - from, many[i], one[i]);
    }
}

/* Returns whether a variant belongs to the part of the matrix that is always taken. */
static bool is_chosen(const variant *v)
{
    const char *given = getenv("CLUSTER_MATRIX");

    if (given != NULL && given[0] != '\0')
        return strcmp(given, "all") == 0 || strcmp(given, trouble_names[v->trouble]) == 0;
    if (v->transport != TCP) return v->shards == 2 && v->world == 1 && v->trouble == CLIPPED;
    return v->world == WORKERS && v->shards == (v->trouble % 2 == 0 ? 2 : 4);
}

static void expect_the_bits_of_one_daemon(const training *recipe)
{
    static const size_t counts[] = { 2, 4 };
    static const int worlds[] = { 1, WORKERS };

    for (trouble t = 0; t < TROUBLES; t++) {
        for (size_t w = 0; w < 2; w++) {
            float *one = NULL;
            for (size_t c = 0; c < 2; c++) {
                for (transport how = 0; how < TRANSPORTS; how++) {
                    const variant v = { recipe, t, worlds[w], counts[c], how }, lone = { recipe, t, worlds[w], 1, TCP };
                    float *many;

                    if (!is_chosen(&v)) continue;
                    if (one == NULL) one = train(&lone);
                    many = train(&v);
                    compare(&v, one, many);
                    free(many);
                }
            }
            free(one);
        }
    }
}

HOLDS(adamw_on_several_shards_has_the_bits_of_one, expect_the_bits_of_one_daemon(&recipes[0]));
HOLDS(shampoo_on_several_shards_has_the_bits_of_one, expect_the_bits_of_one_daemon(&recipes[1]));
HOLDS(kron_on_several_shards_has_the_bits_of_one, expect_the_bits_of_one_daemon(&recipes[2]));
HOLDS(adafactor_on_several_shards_has_the_bits_of_one, expect_the_bits_of_one_daemon(&recipes[3]));
HOLDS(model_state_on_several_shards_has_the_bits_of_one, expect_the_bits_of_one_daemon(&recipes[4]));
HOLDS(ranges_of_ranks_on_several_shards_have_the_bits_of_one, expect_the_bits_of_one_daemon(&recipes[5]));
