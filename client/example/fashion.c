/* fashion.c - one worker of a training job, in C: the example to begin with.
 *
 * Each worker holds its share of Fashion-MNIST and computes gradients; paramd averages them over the workers, runs the optimizer and hands
 * out the new weights. Read main() downwards: join, declare, train (take_step is the heart), leave. All that speaks to paramd is in this file;
 * mlp.c has the model, dataset.c the images, report.c what rank 0 tells of it.
 *
 *     paramd &
 *     for rank in 0 1 2 3; do fashion --rank $rank --world-size 4 & done; wait */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>

#include "paramd/client.h"
#include "report.h"
#include "settings.h"
#include "course.h"
#include "weights.h"

typedef struct worker {
    settings   set;
    pd_client *client;
    int        rank, world;
    mlp        net;
    dataset    train, test, probe;      /* test and probe (training images whose loss is told on the way): rank 0 only */
    float     *x;                       /* one batch of images … */
    uint8_t   *label;                   /* … and their classes */
    report     report;                  /* rank 0 only */
} worker;

/* Says hello. Without --rank and --job, where this worker belongs comes from the environment (RANK, WORLD_SIZE, PARAMD_JOB). */
static int join(worker *w, pd_error *err)
{
    char rule[544], seed[32];
    pd_client_options options = {
        .urls = w->set.url, .job = w->set.job, .rank = w->set.rank, .world_size = w->set.world_size,
        .options = (const char *[]){ "aggregate=weighted_mean", seed, NULL },       /* shares of a batch may differ by one image */
        .rules = (const char *[]){ rule, NULL },                                    /* all parameters get the same optimizer */
    };
    int rc;

    snprintf(rule, sizeof rule, "* %s", w->set.optimizer);
    snprintf(seed, sizeof seed, "seed=%llu", (unsigned long long)w->set.seed);      /* a worker with another one is refused */
    if ((rc = pd_client_open(&w->client, &options, err)) != PD_OK) return rc;
    w->rank = pd_client_welcome(w->client)->rank;
    w->world = pd_client_welcome(w->client)->world_size;
    if (w->set.batch < w->world) return pd_fail(err, PD_INVALID_ARGUMENT, "a batch of %d images is too small for %d workers", w->set.batch, w->world);
    return PD_OK;
}

static void list_weights(const worker *w, void *weights[MLP_TENSORS])
{
    for (int t = 0; t < MLP_TENSORS; t++) weights[t] = w->net.tensor[t];
}

/* Tells the model's parameters and gets the weights to begin with: rank 0's, or where the job stands if it is under way. */
static int declare(worker *w, pd_error *err)
{
    pd_client_param params[MLP_TENSORS] = { 0 };
    void *weights[MLP_TENSORS];
    int   rc;

    mlp_init(&w->net, w->set.seed);
    for (int t = 0; t < MLP_TENSORS; t++) {
        params[t].name = mlp_name(t);
        params[t].shape = mlp_shape(&w->net, t);
    }
    list_weights(w, weights);
    if ((rc = pd_client_declare(w->client, params, MLP_TENSORS, err)) != PD_OK) return rc;
    return pd_client_init(w->client, weights, err);
}

/* The first step to take, from 0. For a worker that takes over from one that died parameters may be a step apart: the lowest counts. */
static uint64_t next_step(const worker *w)
{
    uint64_t least = pd_client_step(w->client, 0);

    for (size_t t = 1; t < MLP_TENSORS; t++)
        if (pd_client_step(w->client, t) < least) least = pd_client_step(w->client, t);
    return least;
}

/* Gradients out, new weights in: all parameters at once, but those that have taken this step already. rate 0 leaves the learning rate to
 * the job's configuration. */
static int exchange(worker *w, uint64_t step, int examples, double rate, pd_error *err)
{
    pd_item items[MLP_TENSORS] = { 0 };
    size_t  n = 0;
    char    lr[40];
    pd_push_options push = { .weight = examples, .hypers = rate > 0.0 ? (const char *[]){ lr, NULL } : NULL };
    pd_ticket_id ticket;
    int     rc;

    snprintf(lr, sizeof lr, "%s=%.9g", w->set.rate_name, rate);
    for (size_t t = 0; t < MLP_TENSORS; t++)
        if (pd_client_step(w->client, t) == step)
            items[n++] = (pd_item){ .param = t, .gradient = w->net.gradient[t], .weights = w->net.tensor[t] };
    if ((rc = pd_client_push_pull(w->client, items, n, &push, &ticket, err)) != PD_OK) return rc;
    return pd_client_wait(w->client, ticket, 0, err);   /* a program with more to do does it before it waits */
}

/* step counts from 0. */
static int take_step(worker *w, uint64_t step, uint64_t steps, uint64_t per_epoch, pd_error *err)
{
    int    batch = w->set.batch, first = (int)(step % per_epoch) * batch;
    int    examples = dataset_take(&w->train, first, batch, w->x, w->label);
    double loss = mlp_differentiate(&w->net, w->x, w->label, examples);
    double rate = w->set.constant ? w->set.rate : course_rate(w->set.rate, step, steps);
    int    rc = exchange(w, step, examples, rate, err);

    return rc == PD_OK && w->rank == 0 ? report_step(&w->report, step + 1, loss, rate, err) : rc;
}

static int test(worker *w, uint64_t step, pd_error *err)
{
    double accuracy, loss = course_evaluate(&w->net, &w->test, w->x, w->label, &accuracy);

    return report_epoch(&w->report, step, loss, accuracy, err);
}

static int probe(worker *w, uint64_t step, pd_error *err)
{
    double accuracy, loss = course_evaluate(&w->net, &w->probe, w->x, w->label, &accuracy);

    return report_train_loss(&w->report, step, loss, err);
}

/* What rank 0 tells after a step; steps count from 1 here. */
static int tell(worker *w, uint64_t step, uint64_t per_epoch, pd_error *err)
{
    int rc = PD_OK;

    if (w->set.probe > 0 && step % (uint64_t)w->set.probe == 0) rc = probe(w, step, err);
    if (rc == PD_OK && step % per_epoch == 0) rc = test(w, step, err);
    return rc;
}

/* The server has lost the job: it starts anew from rank 0's weights, and every rank gets these. */
static int restart(worker *w, pd_error *err)
{
    void *weights[MLP_TENSORS];

    fprintf(stderr, "fashion: rank %d: %s\n", w->rank, err->text);
    list_weights(w, weights);
    return pd_client_restart(w->client, weights, err);
}

static int train(worker *w, pd_error *err)
{
    uint64_t per_epoch = (uint64_t)(w->train.total / w->set.batch), steps = per_epoch * (uint64_t)w->set.epochs;
    uint64_t begin = next_step(w), step = begin;        /* not 0 for a worker that comes back */
    int      rc = w->rank == 0 ? report_open(&w->report, w->set.out, begin, steps, per_epoch, w->set.batch, err) : PD_OK;

    while (step < steps && rc == PD_OK) {
        if (step == begin || step % per_epoch == 0) dataset_shuffle(&w->train, w->set.seed, step / per_epoch);
        rc = take_step(w, step, steps, per_epoch, err);
        if (rc == PD_DATA_LOSS) {
            rc = restart(w, err);
            step = begin = next_step(w);
            continue;
        }
        if (rc == PD_OK && w->rank == 0) rc = tell(w, step + 1, per_epoch, err);
        step++;
    }
    return rc;
}

/* Rank 0 keeps what was learnt. */
static int keep(worker *w, pd_error *err)
{
    char path[512], subtitle[700];
    int  rc;

    snprintf(path, sizeof path, "%s.safetensors", w->set.out);
    snprintf(subtitle, sizeof subtitle, "%s, %d worker%s, %d images a step, %d epoch%s", w->set.optimizer, w->world, w->world == 1 ? "" : "s",
             w->set.batch, w->set.epochs, w->set.epochs == 1 ? "" : "s");
    if ((rc = weights_write(&w->net, path, err)) != PD_OK) return rc;
    if ((rc = report_finish(&w->report, subtitle, err)) != PD_OK) return rc;
    printf("final test accuracy %.2f %%\nweights %s\ncurve   %s\n", w->report.accuracy, path, w->report.picture);
    return PD_OK;
}

static int allocate(worker *w, pd_error *err)
{
    int most = w->set.batch > COURSE_CHUNK ? w->set.batch : COURSE_CHUNK;

    w->x = malloc((size_t)most * DATASET_PIXELS * sizeof *w->x);
    w->label = malloc((size_t)most);
    if (w->x == NULL || w->label == NULL || mlp_new(&w->net, course_widths, most) != PD_OK) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return PD_OK;
}

static int load(worker *w, pd_error *err)
{
    int rc = dataset_load(&w->train, w->set.data, "train", w->rank, w->world, err);

    if (rc == PD_OK && w->rank == 0) rc = dataset_load(&w->test, w->set.data, "t10k", 0, 1, err);
    if (rc == PD_OK && w->rank == 0 && w->set.probe > 0) rc = dataset_load_first(&w->probe, w->set.data, "train", COURSE_PROBE, err);
    if (rc == PD_OK && w->set.batch > w->train.total) rc = pd_fail(err, PD_INVALID_ARGUMENT, "a batch of %d, but only %d images", w->set.batch, w->train.total);
    return rc;
}

int main(int argc, char **argv)
{
    worker   w = { 0 };
    pd_error err = { 0 };
    int      rc;

    settings_parse(&w.set, argc, argv);
    openblas_set_num_threads(1);                        /* the workers share this machine's cores */
    rc = allocate(&w, &err);
    if (rc == PD_OK) rc = join(&w, &err);
    if (rc == PD_OK) rc = load(&w, &err);
    if (rc == PD_OK) rc = declare(&w, &err);
    if (rc == PD_OK) rc = train(&w, &err);
    if (rc == PD_OK && w.rank == 0) rc = keep(&w, &err);
    if (rc == PD_OK) rc = pd_client_leave(w.client, &err);
    if (rc != PD_OK) fprintf(stderr, "fashion: rank %d: %s: %s\n", w.rank, pd_code_name(rc), err.text);

    pd_client_close(w.client);
    report_close(&w.report);
    dataset_free(&w.train);
    dataset_free(&w.test);
    dataset_free(&w.probe);
    mlp_free(&w.net);
    free(w.x);
    free(w.label);
    return rc == PD_OK ? 0 : 1;
}
