/* fleet_worker.c - the life of a worker's process: joins, computes, sleeps, pushes, and reports what counted. */
#include "fleet.h"

#include <time.h>

#include "figure.h"
#include "paramd/client.h"

/* One worker. The weights that it trains with are in net->value. */
typedef struct worker {
    const fleet_options *options;
    fleet_state *state;
    int rank;
    uint64_t life, batches; /* which process of this rank it is, and the number of batches so far */
    pd_client *client;
    mlp *net;
    float *base; /* local steps: the weights that the server gave last; they are pulled into this */
    warm *local; /* local steps: the moments of AdamW */
} worker;

/* Ends the process. After ABORTED the server has taken the worker for lost, and goes on without it. */
static void check(const worker *w, int rc, const pd_error *err)
{
    if (rc == PD_OK) return;
    if (rc == PD_ABORTED) {
        atomic_store(&w->state->workers[w->rank].gone, true);
        _exit(0);
    }
    figure_stop("job %s, worker %d: %s", w->options->name, w->rank, err->text);
}

/* Returns where the weights from the server go. */
static float *pulled(const worker *w)
{
    return w->options->local > 0 ? w->base : w->net->value;
}

static void join(worker *w)
{
    const fleet_options *o = w->options;
    const char *rules[] = { o->rule, NULL };
    pd_client_param params[TENSORS] = { 0 };
    pd_client_options me = { .urls = o->url,
                             .job = o->name,
                             .rank = w->rank,
                             .world_size = FLEET_WORKERS,
                             .options = o->options,
                             .rules = rules,
                             .run = "fleet",
                             .quiet = true };
    void *weights[TENSORS];
    pd_error err = { 0 };

    for (int t = 0; t < TENSORS; t++) {
        params[t].name = tensor_name[t];
        params[t].shape = (pd_shape){ 2 - t % 2, { width[t / 2 + 1], t % 2 == 0 ? width[t / 2] : 0 } };
        weights[t] = pulled(w) + tensor_at[t];
    }
    check(w, pd_client_open(&w->client, &me, &err), &err);
    check(w, pd_client_declare(w->client, params, TENSORS, &err), &err);
    check(w, pd_client_init(w->client, weights, &err), &err);
}

/* ---- what a worker computes ---- */

static void differentiate(worker *w)
{
    fleet_batch(w->net, w->options, (uint64_t)w->rank + FLEET_WORKERS * w->life, w->batches++);
    mlp_differentiate(w->net, w->options->batch);
}

/* Returns the learning rate of a local step: half a cosine over the examples that the job has counted. */
static double local_lr(const worker *w)
{
    double done = (double)atomic_load(&w->state->examples) / (double)w->options->examples;

    return w->options->local_lr * 0.5 * (1 + cos(M_PI * fmin(1, done)));
}

/* Takes the local steps of AdamW, and leaves what the server may take for a gradient: how far the weights have gone,
 * with the sign of a gradient. */
static void step_locally(worker *w, double began)
{
    const fleet_options *o = w->options;
    float *value = w->net->value, *gradient = w->net->gradient;

    memcpy(value, w->base, sizeof w->net->value);
    for (int i = 0; i < o->local; i++) {
        differentiate(w);
        fleet_adamw(value, gradient, w->local->first, w->local->second, ++w->local->steps, local_lr(w));
        fleet_sleep_until(began + o->step_ms[w->rank] * (i + 1));
    }
    for (int i = 0; i < FLEET_VALUES; i++) gradient[i] = w->base[i] - value[i];
}

/* ---- what it reports ---- */

static void report_step(fleet_state *s, uint64_t step)
{
    uint64_t last = atomic_load(&s->step);

    while (last < step && !atomic_compare_exchange_weak(&s->step, &last, step)) {}
    if (last < step && step < FLEET_STEPS) s->closed_ms[step] = figure_ms() - s->began_ms;
}

/* Leaves the weights where the program looks at them, if this answer was the first after a multiple of examples. */
static void report_counted(const worker *w, int64_t n)
{
    fleet_state *s = w->state;
    int64_t before = atomic_fetch_add(&s->examples, n), all = w->options->examples;
    int64_t look = all > 0 ? (before + n) * FLEET_LOOKS / all : 0;
    fleet_look *to;

    if (all == 0 || look == before * FLEET_LOOKS / all || look > FLEET_LOOKS) return;
    to = &s->looks[look - 1];
    to->ms = figure_ms() - s->began_ms;
    to->examples = before + n;
    memcpy(to->value, pulled(w), sizeof to->value);
    atomic_store(&to->there, true);
}

static void report(const worker *w, const pd_item *items, size_t n)
{
    bool counted = true;
    int64_t examples = (int64_t)w->options->batch * (w->options->local > 0 ? w->options->local : 1);

    for (size_t i = 0; i < n; i++) {
        counted = counted && items[i].outcome == 1;
        report_step(w->state, items[i].step);
    }
    if (counted) {
        atomic_fetch_add(&w->state->workers[w->rank].counted, 1);
        report_counted(w, examples);
    } else {
        atomic_fetch_add(&w->state->workers[w->rank].late, 1);
    }
}

/* ---- steps ---- */

/* Pushes the gradient of the step that the job is at, and pulls the weights after it. After the death of a process of
 * this rank some parameters may be a step ahead: they have had their gradients. */
static void exchange(worker *w)
{
    const fleet_options *o = w->options;
    pd_push_options push = { .patience_ms = o->tells_patience ? (uint32_t)o->patience_ms : 0 };
    pd_item items[TENSORS];
    uint64_t step = UINT64_MAX;
    pd_ticket_id ticket;
    pd_error err = { 0 };
    size_t n = 0;

    for (size_t t = 0; t < TENSORS; t++)
        if (pd_client_step(w->client, t) < step) step = pd_client_step(w->client, t);
    for (size_t t = 0; t < TENSORS; t++) {
        if (pd_client_step(w->client, t) != step) continue;
        items[n++] =
            (pd_item){ .param = t, .gradient = w->net->gradient + tensor_at[t], .weights = pulled(w) + tensor_at[t] };
    }
    check(w, pd_client_push_pull(w->client, items, n, &push, &ticket, &err), &err);
    if (o->patience_ms > 0) fleet_sleep_until(figure_ms() + o->patience_ms);
    check(w, pd_client_wait(w->client, ticket, 0, &err), &err);
    report(w, items, n);
}

void fleet_work(const fleet_options *options, fleet_state *state, int rank, int life)
{
    worker w = { .options = options, .state = state, .rank = rank, .life = (uint64_t)life };

    w.net = figure_alloc(sizeof *w.net);
    w.base = figure_alloc(sizeof w.net->value);
    w.local = figure_alloc(sizeof *w.local);
    mlp_init(w.net, (int)options->seed);
    if (options->warm != NULL) {
        memcpy(w.net->value, options->warm->value, sizeof w.net->value);
        *w.local = *options->warm;
    }
    memcpy(w.base, w.net->value, sizeof w.net->value);
    join(&w);
    atomic_fetch_add(&state->ready, 1);
    while (!atomic_load(&state->go)) fleet_sleep_until(figure_ms() + 1);
    for (;;) {
        double began = figure_ms();
        if (options->local > 0) {
            step_locally(&w, began);
        } else {
            differentiate(&w);
            fleet_sleep_until(began + options->step_ms[rank] - options->patience_ms);
        }
        exchange(&w);
    }
}
