/* Replays every recorded run of DiLoCo (folder diloco), which a NumPy program wrote (diloco.py), with pd_diloco and a
 * real daemon. Each worker's inner steps are set to the recorded weights; the weights after every sync and the global
 * weights must equal the recorded ones, bit for bit. */
#include <jansson.h>

#include "test.h"
#include "daemon_process.h"
#include "golden.h"
#include "paramd/diloco.h"

enum { PARAMS = 4, ELEMENTS = 12 + 3 + 6 + 2, MOST_WORKERS = 3 };
static const pd_client_param shapes[PARAMS] = { { .name = "hidden.weight", .shape = { 2, { 3, 4 } } },
                                                { .name = "hidden.bias", .shape = { 1, { 3 } } },
                                                { .name = "out.weight", .shape = { 2, { 2, 3 } } },
                                                { .name = "out.bias", .shape = { 1, { 2 } } } };
static const size_t begins[PARAMS + 1] = { 0, 12, 15, 21, 23 };

/* A recorded run. Rows of `inner` and `after` are weights before and after the syncs of an inner step, one row for each
 * worker; rows of `tokens` have a number for each worker, and rows of `served` the server's weights after the step. */
typedef struct recorded {
    golden_file file;
    float *first, *inner, *after, *tokens, *served;
    size_t steps, workers, fragments;
} recorded;

typedef struct worker {
    pd_client *client;
    pd_diloco *outer;
    float all[ELEMENTS], *weights[PARAMS];
} worker;

static test_daemon *daemon_of_all;
static pd_error err;

static void must(int rc)
{
    if (rc != PD_OK) fail_msg("%s", err.text);
}

static int64_t whole(const recorded *run, const char *key)
{
    return json_integer_value(json_object_get(run->file.config, key));
}

static const char *words(const recorded *run, const char *key)
{
    return json_string_value(json_object_get(run->file.config, key));
}

static recorded load(const char *path)
{
    recorded run;
    size_t n;

    run.file.bytes = golden_read(path, &n);
    must(pd_safetensors_read(&run.file.tensors, run.file.bytes, n, &err));
    run.file.config = json_loads(pd_safetensors_meta(run.file.tensors, "config"), 0, NULL);
    run.first = golden_floats(&run.file, golden_find(&run.file, "first"));
    run.inner = golden_floats(&run.file, golden_find(&run.file, "inner"));
    run.after = golden_floats(&run.file, golden_find(&run.file, "after"));
    run.tokens = golden_floats(&run.file, golden_find(&run.file, "tokens"));
    run.served = golden_floats(&run.file, golden_find(&run.file, "served"));
    run.steps = (size_t)golden_find(&run.file, "inner")->shape.dim[0];
    run.workers = (size_t)whole(&run, "workers");
    run.fragments = (size_t)whole(&run, "fragments");
    assert_true(run.steps > 0 && run.workers <= MOST_WORKERS);
    return run;
}

static void unload(recorded *run)
{
    free(run->first);
    free(run->inner);
    free(run->after);
    free(run->tokens);
    free(run->served);
    golden_close(&run->file);
}

static void open_worker(const recorded *run, const char *job, worker *w, int rank)
{
    pd_client_param params[PARAMS];
    char rule[128];
    bool tokens = json_is_true(json_object_get(run->file.config, "tokens"));
    const pd_client_options how = { .urls = daemon_of_all->url,
                                    .job = job,
                                    .rank = rank,
                                    .world_size = (int)run->workers,
                                    .options = (const char *[]){ tokens ? "aggregate=weighted_mean" : NULL, NULL },
                                    .rules = (const char *[]){ rule, NULL },
                                    .deadline = patient(20) };

    snprintf(rule, sizeof rule, "* %s", words(run, "outer"));
    memcpy(params, shapes, sizeof params);
    for (size_t p = 0; p < PARAMS; p++) {
        params[p].fragment = run->fragments > 1 ? (uint32_t)p : 0;
        w->weights[p] = w->all + begins[p];
    }
    memcpy(w->all, run->first, sizeof w->all);
    must(pd_client_open(&w->client, &how, &err));
    must(pd_client_declare(w->client, params, PARAMS, &err));
}

static void begin(const recorded *run, worker *w)
{
    const pd_diloco_options how = {
        .sync_every = (uint64_t)whole(run, "sync_every"),
        .fragment_sync_delay = (uint64_t)whole(run, "delay"),
        .fragment_update_alpha = json_number_value(json_object_get(run->file.config, "alpha")),
        .weigh_tokens = json_is_true(json_object_get(run->file.config, "tokens")),
    };

    must(pd_client_init(w->client, (void *const *)w->weights, &err));
    must(pd_diloco_make(&w->outer, w->client, w->weights, &how, &err));
}

static const float *row(const recorded *run, const float *table, size_t t, size_t rank)
{
    return table + (t * run->workers + rank) * ELEMENTS;
}

/* Checks the global weights of a fragment, or of all (-1), against what the server had after inner step t. */
static void check_global(const recorded *run, const worker *w, size_t t, int64_t fragment)
{
    for (size_t p = 0; p < PARAMS; p++)
        if (fragment < 0 || run->fragments == 1 || p == (size_t)fragment)
            assert_memory_equal(pd_diloco_global(w->outer, p), run->served + t * ELEMENTS + begins[p],
                                (begins[p + 1] - begins[p]) * sizeof(float));
}

/* Takes an inner step with all workers, and the syncs that are due after it. Returns the number of fragments taken. */
static int step(const recorded *run, worker *workers, size_t t)
{
    pd_diloco_due due = { -1, -1 };

    for (size_t r = 0; r < run->workers; r++) {
        memcpy(workers[r].all, row(run, run->inner, t, r), sizeof workers[r].all);
        due = pd_diloco_inner_step(workers[r].outer, run->tokens[t * run->workers + r]);
        if (due.send >= 0) must(pd_diloco_send(workers[r].outer, due.send, workers[r].weights, &err));
    }
    for (size_t r = 0; r < run->workers; r++) {
        if (due.take >= 0) {
            must(pd_diloco_take(workers[r].outer, due.take, workers[r].weights, &err));
            check_global(run, &workers[r], t, due.take);
        }
        assert_memory_equal(workers[r].all, row(run, run->after, t, r), sizeof workers[r].all);
    }
    return due.take >= 0;
}

/* Checks that LocalSGD has averaged the workers' weights, within 2 units in the last place of the larger of a global
 * and a worker's weight. The global weights before the step are those after the last sync, which all workers have. */
static void check_mean(const recorded *run, size_t t, const float *before)
{
    for (size_t i = 0; i < ELEMENTS; i++) {
        double sum = 0, largest = fabsf(before[i]);

        for (size_t r = 0; r < run->workers; r++) {
            double mine = row(run, run->inner, t, r)[i];
            sum += mine;
            largest = fmax(largest, fabs(mine));
        }
        assert_true(fabs(row(run, run->after, t, 0)[i] - sum / (double)run->workers) <=
                    2 * (nextafterf((float)largest, INFINITY) - (float)largest));
    }
}

static void judge(void **state)
{
    recorded run = load(*state);
    worker workers[MOST_WORKERS] = { 0 };
    const char *name = strrchr(*state, '/') + 1;
    bool averages = strstr(words(&run, "outer"), "lr=1 ") != NULL;
    const float *last = run.first;
    int taken = 0;

    for (size_t r = 0; r < run.workers; r++) open_worker(&run, name, &workers[r], (int)r);
    for (size_t r = 0; r < run.workers; r++) begin(&run, &workers[r]);
    for (size_t t = 0; t < run.steps; t++) {
        int now = step(&run, workers, t);
        if (now > 0 && averages) check_mean(&run, t, last);
        if (now > 0) last = row(&run, run.after, t, 0);
        taken += now;
    }
    assert_int_equal(taken, run.steps * run.fragments / (size_t)whole(&run, "sync_every"));
    for (size_t r = 0; r < run.workers; r++) {
        must(pd_diloco_finish(workers[r].outer, workers[r].weights, &err));
        check_global(&run, &workers[r], run.steps - 1, -1);
        pd_diloco_free(workers[r].outer);
        pd_client_close(workers[r].client);
    }
    unload(&run);
}

static int start_server(void **state)
{
    (void)state;
    daemon_of_all = daemon_start(NULL);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    daemon_end(daemon_of_all);
    return 0;
}

TEST_PROGRAM(runs_have_the_bits_of_the_numpy_program)
{
    return golden_folder("diloco", judge, start_server, stop_server);
}
