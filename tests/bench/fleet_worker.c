/* fleet_worker.c - the life of a worker's process: joins, computes, sleeps, pushes, and reports what counted. */
#include "fleet.h"

#include <time.h>

#include "figure.h"
#include "paramd/diloco.h"

/* One worker. The weights that it trains with are in net->value. */
typedef struct worker {
    const fleet_options *options;
    fleet_state *state;
    int rank;
    uint64_t life, batches; /* which process of this rank it is, and the number of batches so far */
    pd_client *client;
    mlp *net;
    size_t n_params;
    pd_client_param params[TENSORS];
    float *weights[TENSORS], *gradients[TENSORS]; /* pointers into `net` */
    pd_diloco *outer;                             /* NULL: the worker pushes gradients */
    warm *local;                                  /* moments of the AdamW of local steps */
    int since;                                    /* local steps since the last sync */
    pd_client_stats before;                       /* what had gone when the worker had joined */
    int64_t told;                                 /* bytes since then of which report_traffic has told */
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

/* ---- joining ---- */

/* Cuts the model into parameters: tensors, or equal runs of values, which are fragments. */
static void cut_model(worker *w)
{
    static const char *const names[FLEET_PARTS] = { "part0", "part1", "part2", "part3" };
    int parts = w->options->sync.fragments; /* at most FLEET_PARTS, which is less than TENSORS */

    w->n_params = parts > 0 ? (size_t)parts : TENSORS;
    for (int i = 0; i < (int)w->n_params; i++) {
        int at = parts > 0 ? FLEET_VALUES / parts * i : tensor_at[i];
        int end = i + 1 == parts ? FLEET_VALUES : FLEET_VALUES / (parts > 0 ? parts : 1) * (i + 1);

        w->params[i].name = parts > 0 ? names[i] : tensor_name[i];
        w->params[i].push_dtype = w->options->push;
        w->params[i].shape = (pd_shape){ 2 - i % 2, { width[i / 2 + 1], i % 2 == 0 ? width[i / 2] : 0 } };
        if (parts > 0) w->params[i].shape = (pd_shape){ 1, { end - at } };
        if (parts > 0) w->params[i].fragment = (uint32_t)i;
        w->weights[i] = w->net->value + at;
        w->gradients[i] = w->net->gradient + at;
    }
}

static void join(worker *w)
{
    const fleet_options *o = w->options;
    const char *rules[] = { o->rule, NULL };
    pd_client_options me = { .urls = o->url,
                             .job = o->name,
                             .rank = w->rank,
                             .world_size = FLEET_WORKERS,
                             .options = o->options,
                             .rules = rules,
                             .feedback = o->forgets ? PD_FEEDBACK_OFF : PD_FEEDBACK_ON,
                             .run = "fleet",
                             .quiet = true };
    pd_diloco_options how = { .sync_every = (uint64_t)o->sync.every,
                              .fragment_sync_delay = (uint64_t)o->sync.delay,
                              .fragment_update_alpha = o->sync.alpha,
                              .drop_late = true,
                              .dylu = o->sync.dylu };
    pd_error err = { 0 };

    cut_model(w);
    check(w, pd_client_open(&w->client, &me, &err), &err);
    check(w, pd_client_declare(w->client, w->params, w->n_params, &err), &err);
    check(w, pd_client_init(w->client, (void *const *)w->weights, &err), &err);
    if (o->sync.every > 0) check(w, pd_diloco_make(&w->outer, w->client, w->weights, &how, &err), &err);
    w->before = pd_client_count(w->client);
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
    for (size_t i = 0; i < w->n_params; i++) {
        const float *end = i + 1 < w->n_params ? w->weights[i + 1] : w->net->value + FLEET_VALUES;
        const float *from = w->outer != NULL ? pd_diloco_global(w->outer, i) : w->weights[i];
        memcpy(to->value + (w->weights[i] - w->net->value), from, (size_t)(end - w->weights[i]) * sizeof *from);
    }
    atomic_store(&to->there, true);
}

/* Notes that a contribution of `examples` examples has its answer. */
static void report(const worker *w, bool counted, int64_t examples)
{
    atomic_fetch_add(counted ? &w->state->workers[w->rank].counted : &w->state->workers[w->rank].late, 1);
    if (counted) report_counted(w, examples);
}

/* Notes how many bytes of gradients and weights have gone since it was called last. */
static void report_traffic(worker *w)
{
    pd_client_stats stats = pd_client_count(w->client);
    int64_t sent = (int64_t)(stats.payload_out - w->before.payload_out);
    int64_t received = (int64_t)(stats.payload_in - w->before.payload_in);
    int64_t span = (int64_t)(figure_ms() - w->state->began_ms) / FLEET_SPAN_MS;

    atomic_store(&w->state->workers[w->rank].sent, sent);
    atomic_store(&w->state->workers[w->rank].received, received);
    if (span < FLEET_SPANS) atomic_fetch_add(&w->state->traffic[span], sent + received - w->told);
    w->told = sent + received;
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
    bool counted = true;
    size_t n = 0;

    for (size_t i = 0; i < w->n_params; i++)
        if (pd_client_step(w->client, i) < step) step = pd_client_step(w->client, i);
    for (size_t i = 0; i < w->n_params; i++)
        if (pd_client_step(w->client, i) == step)
            items[n++] = (pd_item){ .param = i, .gradient = w->gradients[i], .weights = w->weights[i] };
    check(w, pd_client_push_pull(w->client, items, n, &push, &ticket, &err), &err);
    if (o->patience_ms > 0) fleet_sleep_until(figure_ms() + o->patience_ms);
    check(w, pd_client_wait(w->client, ticket, 0, &err), &err);
    for (size_t i = 0; i < n; i++) {
        counted = counted && items[i].outcome == 1;
        report_step(w->state, items[i].step);
    }
    report(w, counted, o->batch);
}

/* Takes a local step of AdamW, and syncs the fragment that is due. */
static void step_locally(worker *w, double began)
{
    const fleet_options *o = w->options;
    uint64_t counted = pd_diloco_status_now(w->outer).counted;
    pd_diloco_due due;
    pd_error err = { 0 };

    differentiate(w);
    fleet_adamw(w->net->value, w->net->gradient, w->local->first, w->local->second, ++w->local->steps, local_lr(w));
    fleet_sleep_until(began + o->step_ms[w->rank]);
    w->since++;
    due = pd_diloco_inner_step(w->outer, o->batch);
    if (due.send >= 0) check(w, pd_diloco_send(w->outer, due.send, w->weights, &err), &err);
    if (due.take < 0) return;
    check(w, pd_diloco_take(w->outer, due.take, w->weights, &err), &err);
    report_step(w->state, pd_client_step(w->client, 0));
    report(w, pd_diloco_status_now(w->outer).counted > counted, (int64_t)o->batch * w->since);
    w->since = 0;
}

void fleet_work(const fleet_options *options, fleet_state *state, int rank, int life)
{
    worker w = { .options = options, .state = state, .rank = rank, .life = (uint64_t)life };

    w.net = figure_alloc(sizeof *w.net);
    w.local = figure_alloc(sizeof *w.local);
    mlp_init(w.net, (int)options->seed);
    if (options->warm != NULL) {
        memcpy(w.net->value, options->warm->value, sizeof w.net->value);
        *w.local = *options->warm;
    }
    join(&w);
    atomic_fetch_add(&state->ready, 1);
    while (!atomic_load(&state->go)) fleet_sleep_until(figure_ms() + 1);
    for (;; report_traffic(&w)) {
        double began = figure_ms();
        if (w.outer != NULL) {
            step_locally(&w, began);
            continue;
        }
        differentiate(&w);
        fleet_sleep_until(began + options->step_ms[rank] - options->patience_ms);
        exchange(&w);
    }
}
