/* Tests that workers and operators get the weights to evaluate with: the same bits as the library computes, on one
 * daemon and on several, whole and in ranges, in two element types. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "test.h"
#include "convert.h"
#include "daemon_process.h"
#include "paramd/client.h"
#include "paramd/optim.h"
#include "safetensors.h"
#include "team.h"

enum { DAEMONS = 3, WORLD = 2, PARAMS = 3, MOST = 40000, STEPS = 4 };

static const int64_t elements[PARAMS] = { MOST, 12, 600 };
static const char *const names[PARAMS] = { "embedding", "bias", "kernel" };
static const char *const rules[] = { "bias gpa lr=0.01 eval_interp_coeff=0.8", "* schedule_free lr=0.01 warmup_steps=3",
                                     NULL };

/* Several daemons count the steps of a group together only where the job steps as a whole. */
static const char *const options[] = { "nonfinite_scope=job", NULL };

/* The weights after each step, as the library computes them. */
static struct {
    float trained[STEPS + 1][PARAMS][MOST], evaluated[STEPS + 1][PARAMS][MOST];
} expected;

static struct {
    char folder[64], local[80], listen[128], urls[300], file[128];
    test_daemon *daemon[DAEMONS];
} servers;

static pd_error err;

static void must(int rc, const char *what)
{
    if (rc != PD_OK) fail_msg("%s: %s", what, err.text);
}

static void compute(void)
{
    pd_declaration params[PARAMS];
    pd_model *twin;
    static float gradient[PARAMS][MOST];

    for (size_t p = 0; p < PARAMS; p++) {
        params[p] = (pd_declaration){ .name = names[p], .shape = { 1, { elements[p] } }, .group = p == 1 };
        pd_hypers_init(&params[p].hypers, pd_optim_find(p == 1 ? "gpa" : "schedule_free"));
        must(pd_hypers_set(&params[p].hypers, "lr", "0.01", &err), "lr");
        must(
            pd_hypers_set(&params[p].hypers, p == 1 ? "eval_interp_coeff" : "warmup_steps", p == 1 ? "0.8" : "3", &err),
            "hyper");
        /* Initial weights that bfloat16 holds, too. */
        fill_gradient(expected.trained[0][p], elements[p], 5, 9, p);
        pd_convert(gradient[p], PD_BF16, expected.trained[0][p], PD_F32, elements[p]);
        pd_convert(expected.trained[0][p], PD_F32, gradient[p], PD_BF16, elements[p]);
    }
    must(pd_model_new(&twin, params, PARAMS, 1, &err), "model");
    for (int s = 1; s <= STEPS; s++) {
        pd_step_io io[PARAMS];
        for (size_t p = 0; p < PARAMS; p++) {
            fill_gradient(gradient[p], elements[p], 0, (uint64_t)s, p);
            io[p] = (pd_step_io){ .gradient = gradient[p],
                                  .before = expected.trained[s - 1][p],
                                  .after = expected.trained[s][p] };
        }
        must(pd_model_step(twin, io, &err), "step");
        for (size_t p = 0; p < PARAMS; p++)
            pd_model_read_out(twin, p, expected.trained[s][p], expected.evaluated[s][p]);
    }
    pd_model_free(twin);
}

static int start(void **state)
{
    (void)state;
    strcpy(servers.folder, "/tmp/paramd-evaluation-XXXXXX");
    assert_non_null(mkdtemp(servers.folder));
    snprintf(servers.file, sizeof servers.file, "%s/weights.safetensors", servers.folder);
    snprintf(servers.local, sizeof servers.local, "unix://%s/socket", servers.folder);
    snprintf(servers.listen, sizeof servers.listen, "--listen=127.0.0.1:0,%s", servers.local);
    for (size_t i = 0; i < DAEMONS; i++)
        servers.daemon[i] = daemon_start(
            (const char *const[]){ "--chunk-bytes=64KiB", "--step-threads=2", i == 0 ? servers.listen : NULL, NULL });
    compute();
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(servers.file);
    return daemons_stop(servers.daemon, DAEMONS, servers.folder);
}

GROUP(start, end);

/* A worker of a job. It has elements [first[p], first[p] + n[p]) of each parameter. */
typedef struct worker_of {
    pd_client *client;
    int64_t first[PARAMS], n[PARAMS];
    float gradient[PARAMS][MOST];
    float weights[PARAMS][MOST]; /* in the element type that the worker pulls */
    pd_item items[PARAMS];
    pd_ticket_id ticket;
    pd_error err;
} worker_of;

static worker_of *workers[WORLD];

/* Sends a worker's initial weights, and waits for all. Returns NULL, or the worker if it has failed. */
static void *init(void *arg)
{
    worker_of *w = arg;
    void *weights[PARAMS];

    for (size_t p = 0; p < PARAMS; p++) weights[p] = w->weights[p];
    return pd_client_init(w->client, weights, &w->err) == PD_OK ? NULL : w;
}

/* Lets two workers join a job. With `ranged` each has its half of each parameter. */
static void begin(const char *job, const char *urls, bool ranged, pd_dtype pull)
{
    pthread_t threads[WORLD];

    for (int r = 0; r < WORLD; r++) {
        worker_of *w = workers[r] = calloc(1, sizeof *w);
        pd_client_param params[PARAMS] = { 0 };
        must(pd_client_open(&w->client,
                            &(pd_client_options){ .urls = urls,
                                                  .job = job,
                                                  .rank = r,
                                                  .world_size = WORLD,
                                                  .rules = rules,
                                                  .options = options,
                                                  .deadline = patient(20),
                                                  .quiet = true },
                            &err),
             "open");
        for (size_t p = 0; p < PARAMS; p++) {
            w->first[p] = ranged ? elements[p] / 2 * r : 0;
            w->n[p] = ranged ? elements[p] / 2 : elements[p];
            params[p] = (pd_client_param){ .name = names[p],
                                           .shape = { 1, { elements[p] } },
                                           .pull_dtype = pull,
                                           .ranged = ranged,
                                           .start = w->first[p],
                                           .end = ranged ? w->first[p] + w->n[p] : 0 };
            pd_convert(w->weights[p], pull, expected.trained[0][p] + w->first[p], PD_F32, w->n[p]);
            w->items[p] = (pd_item){ .param = p, .gradient = w->gradient[p], .weights = w->weights[p] };
        }
        must(pd_client_declare(w->client, params, PARAMS, &err), "declare");
    }
    for (int r = 0; r < WORLD; r++) assert_int_equal(pthread_create(&threads[r], NULL, init, workers[r]), 0);
    for (int r = 0; r < WORLD; r++) {
        void *failed;
        pthread_join(threads[r], &failed);
        if (failed != NULL) fail_msg("init: %s", workers[r]->err.text);
    }
}

static void finish(void)
{
    for (int r = 0; r < WORLD; r++) must(pd_client_leave(workers[r]->client, &err), "leave");
    for (int r = 0; r < WORLD; r++) {
        pd_client_close(workers[r]->client);
        free(workers[r]);
    }
}

static void wait_all(void)
{
    for (int r = 0; r < WORLD; r++) must(pd_client_wait(workers[r]->client, workers[r]->ticket, 0, &err), "wait");
}

/* Takes a step: both ranks push the same gradient, whose mean it is. The answer has weights of this form. */
static void step(uint64_t number, pd_weights_form form)
{
    static float whole[MOST];

    for (int r = 0; r < WORLD; r++) {
        worker_of *w = workers[r];
        for (size_t p = 0; p < PARAMS; p++) {
            fill_gradient(whole, elements[p], 0, number, p);
            memcpy(w->gradient[p], whole + w->first[p], (size_t)w->n[p] * sizeof(float));
        }
        must(pd_client_push_pull(w->client, w->items, PARAMS, &(pd_push_options){ .form = form }, &w->ticket, &err),
             "push");
    }
    wait_all();
}

static void pull(uint64_t number, pd_weights_form form)
{
    for (int r = 0; r < WORLD; r++)
        must(
            pd_client_pull_form(workers[r]->client, workers[r]->items, PARAMS, number, form, &workers[r]->ticket, &err),
            "pull");
    wait_all();
}

/* Checks that all workers have the weights of a step. */
static void assert_have(float from[STEPS + 1][PARAMS][MOST], int number, pd_dtype type)
{
    static float rounded[MOST];

    for (int r = 0; r < WORLD; r++)
        for (size_t p = 0; p < PARAMS; p++) {
            const worker_of *w = workers[r];
            pd_convert(rounded, type, from[number][p] + w->first[p], PD_F32, w->n[p]);
            assert_memory_equal(w->weights[p], rounded, (size_t)w->n[p] * pd_dtype_size(type));
            assert_int_equal(w->items[p].version, number);
        }
}

static void train(pd_dtype type)
{
    for (int s = 1; s <= STEPS; s++) {
        step((uint64_t)s, s == STEPS ? PD_FORM_EVAL : PD_FORM_TRAIN);
        assert_have(s == STEPS ? expected.evaluated : expected.trained, s, type);
        pull((uint64_t)s, PD_FORM_EVAL);
        assert_have(expected.evaluated, s, type);
        pull(0, PD_FORM_TRAIN);
        assert_have(expected.trained, s, type);
    }
}

TEST(workers_of_one_daemon_get_them)
{
    begin("one", servers.daemon[0]->url, false, PD_F32);
    train(PD_F32);
    finish();
}

TEST(workers_get_them_in_the_type_that_they_pull)
{
    begin("half", servers.daemon[0]->url, false, PD_BF16);
    train(PD_BF16);
    finish();
}

TEST(workers_with_ranges_get_theirs)
{
    begin("ranged", servers.daemon[0]->url, true, PD_F32);
    train(PD_F32);
    finish();
}

TEST(workers_that_share_memory_get_them)
{
    begin("local", servers.local, false, PD_F32);
    train(PD_F32);
    for (int r = 0; r < WORLD; r++) { assert_true(pd_client_count(workers[r]->client).shared_in > 0); }
    finish();
}

TEST(several_daemons_give_the_same)
{
    snprintf(servers.urls, sizeof servers.urls, "%s %s", servers.daemon[1]->url, servers.daemon[2]->url);
    begin("several", servers.urls, false, PD_F32);
    train(PD_F32);
    finish();
}

TEST(an_unknown_form_is_refused)
{
    begin("form", servers.daemon[0]->url, false, PD_F32);
    assert_int_equal(pd_client_pull_form(workers[0]->client, workers[0]->items, PARAMS, 0, (pd_weights_form)2,
                                         &workers[0]->ticket, &err),
                     PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "expected 0 (train) or 1 (eval)"));
    finish();
}

/* Checks that the exported file has the weights of the last step. */
static void assert_exported(float from[STEPS + 1][PARAMS][MOST])
{
    pd_safetensors *file;
    size_t n;
    FILE *in = fopen(servers.file, "rb");
    static uint8_t bytes[4 * PARAMS * MOST + 65536];
    size_t size = fread(bytes, 1, sizeof bytes, in);

    fclose(in);
    must(pd_safetensors_read(&file, bytes, size, &err), "read");
    (void)pd_safetensors_tensors(file, &n);
    assert_int_equal(n, PARAMS);
    for (size_t p = 0; p < PARAMS; p++)
        assert_memory_equal(pd_safetensors_data(file, pd_safetensors_find(file, names[p])), from[STEPS][p],
                            (size_t)elements[p] * sizeof(float));
    pd_safetensors_free(file);
}

static void export(const char *job, const char *form, float from[STEPS + 1][PARAMS][MOST])
{
    if (paramctl("export %s %s --force %s", job, servers.file, form) != 0) fail_msg("%s", paramctl_output);
    assert_exported(from);
}

TEST(operators_export_them)
{
    begin("exported", servers.urls, false, PD_F32);
    for (int s = 1; s <= STEPS; s++) step((uint64_t)s, PD_FORM_TRAIN);
    paramctl_ask(servers.urls);
    export("exported", "", expected.evaluated);
    export("exported", "--form=eval", expected.evaluated);
    export("exported", "--form=train", expected.trained);
    assert_int_not_equal(paramctl("export exported %s --force --state --form=eval", servers.file), 0);
    assert_non_null(strstr(paramctl_output, "the state belongs to the weights that are trained"));
    step(STEPS + 1, PD_FORM_TRAIN); /* the job goes on */
    finish();
}
