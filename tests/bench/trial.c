#include "trial.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "figure.h"
#include "paramd/optim.h"

static const char folder[] = "/usr/share/datasets/fashion-mnist";

void trial_load(trial_data *data)
{
    pd_error err = { 0 };

    if (dataset_load(&data->train, folder, "train", 0, 1, &err) != PD_OK || dataset_load(&data->test, folder, "t10k", 0, 1, &err) != PD_OK ||
        dataset_load_first(&data->probe, folder, "train", COURSE_PROBE, &err) != PD_OK)
        figure_stop("%s", err.text);
}

void trial_unload(trial_data *data)
{
    dataset_free(&data->train);
    dataset_free(&data->probe);
    dataset_free(&data->test);
}

/* ---- the optimizer, from its rule ---- */

/* Index of what the row calls the learning rate. */
static int rate_of(const pd_row *row)
{
    int lr = pd_hypers_find(row, "lr");
    return lr >= 0 ? lr : pd_hypers_find(row, "learning_rate");
}

static void read_rule(const char *rule, pd_hypers *hypers)
{
    char     words[sizeof((trial *)0)->rule], *rest, *word, *value;
    pd_error err = { 0 };

    strcpy(words, rule);
    word = strtok_r(words, " ", &rest);
    if (pd_optim_find(word) == NULL) figure_stop("%s: this build has no such optimizer", word);
    pd_hypers_init(hypers, pd_optim_find(word));
    while ((word = strtok_r(NULL, " ", &rest)) != NULL) {
        if ((value = strchr(word, '=')) == NULL) figure_stop("%s: expected name=value", word);
        *value++ = '\0';
        if (pd_hypers_set(hypers, word, value, &err) != PD_OK) figure_stop("%s: %s", rule, err.text);
    }
    if (pd_hypers_check(hypers, &err) != PD_OK) figure_stop("%s: %s", rule, err.text);
}

static pd_model *new_model(const mlp *net, const pd_hypers *hypers, uint64_t seed)
{
    pd_declaration params[MLP_TENSORS];
    pd_model *model;
    pd_error  err = { 0 };

    for (int t = 0; t < MLP_TENSORS; t++) params[t] = (pd_declaration){ .name = mlp_name(t), .shape = mlp_shape(net, t), .hypers = *hypers, .seed = seed };
    if (pd_model_new(&model, params, MLP_TENSORS, 1, &err) != PD_OK) figure_stop("%s", err.text);
    return model;
}

/* ---- one trial ---- */

/* What one thread trains with. */
typedef struct bench {
    const trial_data *data;
    dataset    train;                   /* shares the images, has an order of its own */
    mlp        net;
    float     *x;
    uint8_t   *label;
} bench;

static void open_bench(bench *b, const trial_data *data)
{
    *b = (bench){ .data = data, .train = data->train };
    b->train.order = figure_alloc((size_t)data->train.n * sizeof *b->train.order);
    b->x = figure_alloc((size_t)COURSE_CHUNK * DATASET_PIXELS * sizeof *b->x);
    b->label = figure_alloc(COURSE_CHUNK);
    if (mlp_new(&b->net, course_widths, COURSE_CHUNK) != PD_OK) figure_stop("no memory for the model");
}

static void close_bench(bench *b)
{
    free(b->train.order);
    free(b->x);
    free(b->label);
    mlp_free(&b->net);
}

static double cpu_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* With this step's learning rate, as the worker sends it. */
static void step_model(bench *b, pd_model *model, const pd_hypers *hypers)
{
    uint64_t   mask = 1ull << rate_of(hypers->row);
    pd_step_io io[MLP_TENSORS];
    pd_error   err = { 0 };

    for (int t = 0; t < MLP_TENSORS; t++)
        io[t] = (pd_step_io){ .gradient = b->net.gradient[t], .before = b->net.tensor[t], .after = b->net.tensor[t], .hypers = hypers->value, .hypers_mask = mask };
    if (pd_model_step(model, io, &err) != PD_OK) figure_stop("%s", err.text);
}

/* The mean of the last losses, as far as there are enough of them. False: the loss is no number any more. */
static bool look(bench *b, trial *t, int step, double recent[TRIAL_SMOOTH])
{
    double accuracy, sum = 0.0;
    int    count = step / TRIAL_EVERY;

    recent[count % TRIAL_SMOOTH] = course_evaluate(&b->net, &b->data->probe, b->x, b->label, &accuracy);
    if (!isfinite(recent[count % TRIAL_SMOOTH])) return false;
    for (int i = 0; i < TRIAL_SMOOTH; i++) sum += recent[i];
    if (count >= TRIAL_SMOOTH && plot_add(&t->loss, step, sum / TRIAL_SMOOTH) != PD_OK) figure_stop("out of memory");
    return true;
}

static void train(bench *b, trial *t)
{
    double     recent[TRIAL_SMOOTH] = { 0 }, rate;
    int        per_epoch = b->train.total / TRIAL_BATCH, steps = per_epoch * TRIAL_EPOCHS;
    pd_hypers  hypers;
    pd_model  *model;

    read_rule(t->rule, &hypers);
    rate = hypers.value[rate_of(hypers.row)];
    mlp_init(&b->net, t->seed);
    model = new_model(&b->net, &hypers, t->seed);
    for (int step = 0; step < steps && !t->diverged; step++) {
        double began = cpu_ms(), between;
        if (step % per_epoch == 0) dataset_shuffle(&b->train, t->seed, (uint64_t)(step / per_epoch));
        mlp_differentiate(&b->net, b->x, b->label, dataset_take(&b->train, step % per_epoch * TRIAL_BATCH, TRIAL_BATCH, b->x, b->label));
        hypers.value[rate_of(hypers.row)] = course_rate(rate, (uint64_t)step, (uint64_t)steps);
        between = cpu_ms();
        step_model(b, model, &hypers);
        t->optimizer_ms += (cpu_ms() - between) / steps;
        t->gradient_ms += (between - began) / steps;
        if ((step + 1) % TRIAL_EVERY == 0) t->diverged = !look(b, t, step + 1, recent);
    }
    course_evaluate(&b->net, &b->data->test, b->x, b->label, &t->accuracy);
    pd_model_free(model);
    pd_hypers_free(&hypers);
}

/* ---- all of them ---- */

typedef struct work {
    const trial_data *data;
    trial        *trials;
    size_t        n;
    atomic_size_t next, done;
} work;

static void *worker(void *argument)
{
    work  *w = argument;
    bench  b;
    size_t i;

    open_bench(&b, w->data);
    while ((i = atomic_fetch_add(&w->next, 1)) < w->n) {
        trial *t = &w->trials[i];
        train(&b, t);
        fprintf(stderr, "%2zu/%zu  seed %llu  %s: loss %.4f  accuracy %.4f  %.2f + %.2f ms a step\n", atomic_fetch_add(&w->done, 1) + 1, w->n,
                (unsigned long long)t->seed, t->rule, trial_final(t), t->accuracy, t->gradient_ms, t->optimizer_ms);
    }
    close_bench(&b);
    return NULL;
}

void trial_run(trial *trials, size_t n, const trial_data *data, int threads)
{
    work       w = { .data = data, .trials = trials, .n = n };
    pthread_t *thread = figure_alloc((size_t)threads * sizeof *thread);

    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, worker, &w) != 0) figure_stop("cannot start a thread");
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    free(thread);
}

void trial_free(trial *t) { plot_free(&t->loss); }

double trial_reaches(const trial *t, double level)
{
    for (size_t i = 0; i < t->loss.n; i++)
        if (t->loss.value[i] <= level) return t->loss.step[i];
    return INFINITY;
}

double trial_final(const trial *t) { return t->diverged || t->loss.n == 0 ? INFINITY : t->loss.value[t->loss.n - 1]; }
