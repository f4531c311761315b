/* trial.c - trains the example's model with one optimizer and one seed. */
#include "trial.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "figure.h"
#include "paramd/optim.h"

static const char folder[] = "/usr/share/datasets/fashion-mnist";

trial_data *trial_load(void)
{
    trial_data *data = figure_alloc(sizeof *data);
    pd_error err = { 0 };

    if (images_load(&data->train, folder, "train", &err) != PD_OK ||
        images_load(&data->test, folder, "t10k", &err) != PD_OK)
        figure_stop("%s", err.text);
    data->probe = data->train;
    data->probe.n = TRIAL_PROBE;
    return data;
}

/* Returns the index of the learning rate among the hyperparameters. */
static int rate_of(const pd_optimizer_ops *row)
{
    int lr = pd_hypers_find(row, "lr");
    return lr >= 0 ? lr : pd_hypers_find(row, "learning_rate");
}

static void read_rule(const char *rule, pd_hypers *hypers)
{
    char words[sizeof((trial *)0)->rule], *rest, *word, *value;
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

static pd_model *new_model(const pd_hypers *hypers, uint64_t seed)
{
    pd_declaration params[TENSORS];
    pd_model *model;
    pd_error err = { 0 };

    for (int t = 0; t < TENSORS; t++)
        params[t] = (pd_declaration){ .name = tensor_name[t],
                                      .shape = { 2 - t % 2, { width[t / 2 + 1], t % 2 == 0 ? width[t / 2] : 0 } },
                                      .hypers = *hypers,
                                      .seed = seed };
    if (pd_model_new(&model, params, TENSORS, 1, &err) != PD_OK) figure_stop("%s", err.text);
    return model;
}

/* The data and model of one thread. */
typedef struct bench {
    const trial_data *data;
    images train; /* the training images, in an order of this thread's own */
    mlp net;
} bench;

/* Returns the CPU time of this thread. Other processes on the machine do not count. */
static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Runs the optimizer on all parameters, with the learning rate of this step. */
static void step_model(bench *b, pd_model *model, const pd_hypers *hypers)
{
    uint64_t mask = 1ull << rate_of(hypers->row);
    pd_step_io io[TENSORS];
    pd_error err = { 0 };

    for (int t = 0; t < TENSORS; t++)
        io[t] = (pd_step_io){ .gradient = b->net.gradient + tensor_at[t],
                              .before = b->net.value + tensor_at[t],
                              .after = b->net.value + tensor_at[t],
                              .hypers = hypers->value,
                              .hypers_mask = mask };
    if (pd_model_step(model, io, &err) != PD_OK) figure_stop("%s", err.text);
}

/* Measures the losses after `step` steps and appends them to the trial. */
static void look(bench *b, trial *t, int step, double seconds)
{
    trial_look *now = &t->look[t->looks];
    int n = t->looks + 1 < TRIAL_SMOOTH ? t->looks + 1 : TRIAL_SMOOTH;
    double accuracy;

    *now = (trial_look){ .step = step, .cpu_seconds = seconds };
    now->train_loss = mlp_test(&b->net, &b->data->probe, &accuracy);
    if (t->tested) now->test_loss = mlp_test(&b->net, &b->data->test, &accuracy);
    t->diverged = !isfinite(now->train_loss);
    for (int i = 0; i < n; i++) now->smooth_loss += now[-i].train_loss / n;
    if (!t->diverged) t->looks++;
}

/* Returns the learning rate of a step. It falls from the declared rate to almost 0 along half a cosine. */
static double rate_at(double first, int step, int steps)
{
    return first * 0.5 * (1.0 + cos(M_PI * step / steps));
}

static void train(bench *b, trial *t)
{
    int per_epoch = b->train.n / TRIAL_BATCH, steps = per_epoch * TRIAL_EPOCHS, n;
    double rate, gradients = 0, optimizer = 0;
    pd_hypers hypers;
    pd_model *model;

    read_rule(t->rule, &hypers);
    rate = hypers.value[rate_of(hypers.row)];
    mlp_init(&b->net, (int)t->seed);
    model = new_model(&hypers, t->seed);
    for (int step = 0; step < steps && !t->diverged; step++) {
        int first = step % per_epoch * TRIAL_BATCH;
        double began = cpu_seconds(), between;
        if (first == 0) images_shuffle(&b->train, (int)t->seed, step / per_epoch);
        n = images_take(&b->train, first, first + TRIAL_BATCH, 1, b->net.out[0], b->net.label);
        mlp_differentiate(&b->net, n);
        hypers.value[rate_of(hypers.row)] = rate_at(rate, step, steps);
        between = cpu_seconds();
        step_model(b, model, &hypers);
        gradients += between - began;
        optimizer += cpu_seconds() - between;
        if ((step + 1) % TRIAL_EVERY == 0) look(b, t, step + 1, gradients + optimizer);
    }
    t->gradient_ms = 1e3 * gradients / steps;
    t->optimizer_ms = 1e3 * optimizer / steps;
    mlp_test(&b->net, &b->data->test, &t->accuracy);
    pd_model_free(model);
    pd_hypers_free(&hypers);
}

typedef struct work {
    const trial_data *data;
    trial *trials;
    size_t n;
    atomic_size_t next, done;
} work;

static void *worker(void *argument)
{
    work *w = argument;
    bench *b = figure_alloc(sizeof *b);
    size_t i;

    b->data = w->data;
    b->train = w->data->train;
    while ((i = atomic_fetch_add(&w->next, 1)) < w->n) {
        trial *t = &w->trials[i];
        train(b, t);
        fprintf(stderr, "%2zu/%zu  seed %llu  %s: loss %.4f  accuracy %.4f  %.2f + %.2f ms a step\n",
                atomic_fetch_add(&w->done, 1) + 1, w->n, (unsigned long long)t->seed, t->rule, trial_final(t),
                t->accuracy, t->gradient_ms, t->optimizer_ms);
    }
    free(b);
    return NULL;
}

void trial_run(trial *trials, size_t n, const trial_data *data, int threads)
{
    work w = { .data = data, .trials = trials, .n = n };
    pthread_t *thread = figure_alloc((size_t)threads * sizeof *thread);

    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, worker, &w) != 0) figure_stop("cannot start a thread");
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    free(thread);
}

double trial_reaches(const trial *t, double level)
{
    for (int i = TRIAL_SMOOTH - 1; i < t->looks; i++)
        if (t->look[i].smooth_loss <= level) return t->look[i].step;
    return INFINITY;
}

double trial_final(const trial *t)
{
    return t->diverged || t->looks == 0 ? INFINITY : t->look[t->looks - 1].smooth_loss;
}
