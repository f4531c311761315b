/* sim_judge.c - keeps the published weights, and compares the weights that workers get with them. At the end of a run
 * it checks the published weights against the contributions. */
#include "sim_judge.h"

#include "../support/rig.h"
#include "optimizer.h"
#include "store_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSIONS = SIM_MOST_STEPS + 1 };

/* Weights of a step that a job has taken, and after a crash again with another course. Workers may have them. */
typedef struct lost_weights {
    struct lost_weights *next;
    uint64_t version;
    float at[];
} lost_weights;

typedef struct published {
    float *weights[VERSIONS]; /* weights by version; NULL: no step has made this version */
    lost_weights *lost;
    pd_outcome outcome[VERSIONS]; /* outcome of the round that closed with this step */
    uint64_t step, version;
    uint64_t most; /* last step that was ever closed: larger than `step` once the server has gone back */
    bool begun;    /* the initial weights were published */
    bool again;    /* the server was restarted, and has not reported this parameter since */
} published;

/* The history of one job, from its creation to its end. A job that is begun anew has another history. */
typedef struct sim_history {
    const sim_job *job;
    uint32_t number;
    uint64_t creator; /* the process that began the job: tells it from other jobs of the same name */
    uint64_t durable; /* largest step that the server has reported as durable */
    bool goes_back;   /* the server was killed, and has this job again: from now on it may be at an older step */
    bool ended;       /* the server has ended the job, so it need not come back after a crash */
    bool loose;       /* repeated steps may have other weights than before: sim_judge_loosen */
    bool end_kept;    /* the end of the job is on the disk, so it must not come back */
    published params[SIM_PARAMS];
    struct sim_history *next;
} sim_history;

/* ---- what workers contribute ---- */

bool sim_has_gradient(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param)
{
    return sim_mix(job->number + 1, rank, step, param) % 16 >= job->absent_of_16;
}

bool sim_gradient_is_infinite(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param)
{
    return sim_mix(job->number + 101, rank, step, param) % 64 < job->infinite_of_64 &&
           sim_has_gradient(job, rank, step, param);
}

void sim_range(const sim_job *job, const sim_param *param, uint32_t rank, int64_t *start, int64_t *end)
{
    int64_t each = param->n / job->world;

    *start = param->ranged ? rank * each : 0;
    *end = param->ranged && rank + 1 < job->world ? *start + each : param->n;
}

static float gradient_at(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param, int64_t i)
{
    return (float)(int)(sim_mix(job->number, rank << 16 | param, step, (uint64_t)i) % 9) - 4;
}

void sim_gradient(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param, bool finite, float *out)
{
    int64_t start, end;

    sim_range(job, &job->params[param], rank, &start, &end);
    for (int64_t i = start; i < end; i++) out[i - start] = gradient_at(job, rank, step, param, i);
    if (!finite && sim_gradient_is_infinite(job, rank, step, param)) out[(end - start) / 2] = INFINITY;
}

double sim_weight(const sim_job *job, uint32_t rank, uint64_t step)
{
    return job->weighted ? (double)(1 + sim_mix(job->number, rank, step, 77) % 4) : 1;
}

/* Initial weights are small integers. In an unranged parameter all elements also have the same fraction, a multiple
 * of 1/64 that marks the sending process. So weights that mix two processes are found. With initial_weights=mean the
 * rank is added instead, so all processes of a rank send the same values. */
void sim_initial(const sim_job *job, uint32_t rank, uint64_t process, uint32_t param, float *out)
{
    const sim_param *p = &job->params[param];
    int64_t start, end;
    float mark = job->mean_init ? (float)rank : p->ranged ? 0 : (float)(process % 8) / 64;

    sim_range(job, p, rank, &start, &end);
    for (int64_t i = start; i < end; i++)
        out[i - start] = (float)(sim_mix(job->number, param, 0, (uint64_t)i) % 9) + mark;
}

/* ---- what is published ---- */

static sim_history *history_of(sim *s, uint32_t number)
{
    sim_history *h = s->histories;

    while (h != NULL && h->number != number) h = h->next;
    return h;
}

static sim_history *begin_history(sim *s, const pd_job *job)
{
    sim_history *h = sim_must(calloc(1, sizeof *h));

    h->number = job->steps.number;
    h->creator = job->saved.creator;
    for (uint32_t j = 0; j < s->plan->n_jobs; j++)
        if (strcmp(s->plan->jobs[j].name, job->steps.name) == 0) h->job = &s->plan->jobs[j];
    h->next = s->histories;
    s->histories = h;
    return h;
}

static uint32_t param_number(const sim_job *job, const char *name)
{
    for (uint32_t p = 0; p < job->n_params; p++)
        if (strcmp(job->params[p].name, name) == 0) return p;
    sim_fail("harness", "%s has no parameter %s", job->name, name);
}

static void check_mark(const sim_job *job, const sim_param *param, const float *weights)
{
    if (param->ranged || job->mean_init) return;
    for (int64_t i = 1; i < param->n; i++)
        if (weights[i] - floorf(weights[i]) != weights[0] - floorf(weights[0]))
            sim_fail("consistency",
                     "the initial weights of %s %s come from two processes: element 0 is %g, element %lld is %g",
                     job->name, param->name, (double)weights[0], (long long)i, (double)weights[i]);
}

/* Keeps the weights of a version that are about to be replaced. */
static void lose(published *pub, uint64_t version, size_t bytes)
{
    lost_weights *lost = sim_must(malloc(sizeof *lost + bytes));

    *lost = (lost_weights){ .next = pub->lost, .version = version };
    memcpy(lost->at, pub->weights[version], bytes);
    pub->lost = lost;
}

/* Checks weights that a server publishes for the second time, because it has gone back. */
static void check_repeated(sim_history *h, uint32_t p, const pd_snapshot *snapshot)
{
    const sim_param *param = &h->job->params[p];
    float *before = h->params[p].weights[snapshot->version];
    size_t bytes = (size_t)param->n * sizeof(float);

    if (memcmp(before, snapshot->at[PD_F32], bytes) == 0) return;
    if (!h->loose)
        sim_fail("durability", "%s %s: version %llu has other weights than before the server went back", h->job->name,
                 param->name, (unsigned long long)snapshot->version);
    lose(&h->params[p], snapshot->version, bytes);
    memcpy(before, snapshot->at[PD_F32], bytes);
}

static void keep(sim_history *h, uint32_t p, const pd_snapshot *snapshot)
{
    published *pub = &h->params[p];
    const sim_param *param = &h->job->params[p];

    if (snapshot->version > h->job->steps)
        sim_fail("exactly once", "%s %s has version %llu after %llu steps", h->job->name, param->name,
                 (unsigned long long)snapshot->version, (unsigned long long)h->job->steps);
    if (pub->begun && snapshot->version <= pub->version)
        sim_fail("consistency", "%s %s goes from version %llu to %llu", h->job->name, param->name,
                 (unsigned long long)pub->version, (unsigned long long)snapshot->version);
    pub->version = snapshot->version;
    if (pub->weights[snapshot->version] != NULL) {
        check_repeated(h, p, snapshot);
        return;
    }
    pub->weights[snapshot->version] = sim_must(malloc((size_t)param->n * sizeof(float)));
    memcpy(pub->weights[snapshot->version], snapshot->at[PD_F32], (size_t)param->n * sizeof(float));
}

/* Takes a parameter back to the step of a checkpoint, which a restarted server has reported. */
static void go_back(sim_history *h, uint32_t p, const pd_closed *closed)
{
    published *pub = &h->params[p];
    const char *name = h->job->params[p].name;

    if (closed->step > pub->step || closed->step < h->durable)
        sim_fail("durability", "%s %s comes back at step %llu, it was at step %llu, and step %llu was durable",
                 h->job->name, name, (unsigned long long)closed->step, (unsigned long long)pub->step,
                 (unsigned long long)h->durable);
    if (closed->snapshot == NULL || closed->snapshot->version > closed->step ||
        pub->weights[closed->snapshot->version] == NULL)
        sim_fail("durability", "%s %s comes back at step %llu with weights that it never had", h->job->name, name,
                 (unsigned long long)closed->step);
    pub->step = closed->step;
    pub->version = closed->snapshot->version;
}

/* Checks the first report of a restarted server: it must equal the last report before the restart, or the report of the
 * step to which a killed server goes back. */
static void check_again(const sim_history *h, uint32_t p, const pd_closed *closed)
{
    const published *pub = &h->params[p];
    pd_outcome last = pub->step > 0 ? pub->outcome[pub->step] : (pd_outcome)0;

    if (closed->step != pub->step || closed->outcome != last || closed->snapshot == NULL ||
        closed->snapshot->version != pub->version)
        sim_fail("image", "%s %s comes back at step %llu with outcome %d, it was at step %llu with outcome %d",
                 h->job->name, h->job->params[p].name, (unsigned long long)closed->step, (int)closed->outcome,
                 (unsigned long long)pub->step, (int)last);
    if (memcmp(closed->snapshot->at[PD_F32], pub->weights[pub->version], (size_t)h->job->params[p].n * sizeof(float)) !=
        0)
        sim_fail("image", "%s %s comes back with other weights", h->job->name, h->job->params[p].name);
}

static void on_closed(sim *s, sim_history *h, uint32_t p, const pd_closed *closed)
{
    published *pub = &h->params[p];
    const sim_param *param = &h->job->params[p];

    if (pub->again) {
        pub->again = false;
        if (h->goes_back) go_back(h, p, closed);
        check_again(h, p, closed);
        return;
    }
    sim_note(s, h->job->name, p, closed->outcome == 0 ? "has initial weights" : "closes step", closed->step,
             closed->outcome);
    if (closed->snapshot != NULL) keep(h, p, closed->snapshot);
    if (closed->outcome == 0) {
        if (pub->begun)
            sim_fail("consistency", "%s %s has initial weights for the second time", h->job->name, param->name);
        check_mark(h->job, param, pub->weights[0]);
        pub->begun = true;
        return;
    }
    if (closed->step != pub->step + 1 || closed->step > h->job->steps)
        sim_fail("exactly once", "%s %s closes step %llu after step %llu of %llu", h->job->name, param->name,
                 (unsigned long long)closed->step, (unsigned long long)pub->step, (unsigned long long)h->job->steps);
    if (closed->step <= pub->most && !h->loose && closed->outcome != pub->outcome[closed->step])
        sim_fail("durability", "%s %s: step %llu has outcome %d, and had %d before the server went back", h->job->name,
                 param->name, (unsigned long long)closed->step, (int)closed->outcome, (int)pub->outcome[closed->step]);
    pub->step = closed->step;
    pub->outcome[closed->step] = closed->outcome;
    if (closed->step > pub->most) pub->most = closed->step;
}

enum { FORGOTTEN = 1u << 30 };

void sim_judge_forget_numbers(sim *s)
{
    for (sim_history *h = s->histories; h != NULL; h = h->next) h->number |= FORGOTTEN;
}

static void renumber(sim_history *h, uint32_t now)
{
    h->number = now;
    for (uint32_t p = 0; h->job != NULL && p < h->job->n_params; p++) h->params[p].again = true;
}

void sim_judge_renumber(sim *s, uint32_t before, uint32_t now)
{
    sim_history *h = history_of(s, before | FORGOTTEN);

    if (h != NULL) renumber(h, now);
}

/* Finds the history of a job that a killed server had. */
static sim_history *history_before(sim *s, const pd_job *job)
{
    sim_history *h = s->histories;

    while (h != NULL && (h->job == NULL || (h->number & FORGOTTEN) == 0 || h->creator != job->saved.creator ||
                         strcmp(h->job->name, job->steps.name) != 0))
        h = h->next;
    return h;
}

void sim_judge_loosen(sim *s, uint32_t number)
{
    sim_history *h = history_of(s, number);

    if (h == NULL || h->job == NULL || !h->job->ready || h->loose) return;
    sim_note(s, h->job->name, 0, "may take another course", 0, 0);
    h->loose = true;
}

bool sim_judge_is_loose(const sim *s, const sim_job *job)
{
    for (const sim_history *h = s->histories; h != NULL; h = h->next)
        if (h->job == job && h->loose) return true;
    return false;
}

void sim_judge_restored(sim *s, pd_store *store)
{
    const pd_job *job, *next;
    sim_history *h;

    HASH_ITER(hh, store->jobs.names, job, next)
    {
        if ((h = history_before(s, job)) == NULL)
            sim_fail("durability", "%s comes back, but the killed server had no such job", job->steps.name);
        if (h->end_kept) sim_fail("durability", "%s comes back, though its end was on the disk", job->steps.name);
        h->goes_back = true;
        h->ended = false;
        renumber(h, job->steps.number);
    }
    for (h = s->histories; h != NULL; h = h->next)
        if (h->job != NULL && (h->number & FORGOTTEN) != 0 && h->durable > 0 && !h->ended)
            sim_fail("durability", "%s does not come back, though its step %llu was durable", h->job->name,
                     (unsigned long long)h->durable);
}

static void note_durable(sim *s, const pd_effect *effect)
{
    sim_history *h = history_of(s, effect->job);

    if (h == NULL) return;
    if (effect->u.durable_step < h->durable)
        sim_fail("durability", "%s: the durable step goes from %llu back to %llu", h->job->name,
                 (unsigned long long)h->durable, (unsigned long long)effect->u.durable_step);
    h->durable = effect->u.durable_step;
}

static void note_end(sim *s, const pd_effect *effect)
{
    sim_history *h = history_of(s, effect->job);

    if (h != NULL) h->ended = true;
}

void sim_judge_end_kept(sim *s, uint32_t number)
{
    sim_history *h = history_of(s, number);

    if (h != NULL) h->end_kept = true;
}

void sim_judge_effect(sim *s, pd_store *store, const pd_effect *effect)
{
    const pd_job *job;
    sim_history *h;

    if (effect->kind == PD_EFF_DURABLE) note_durable(s, effect);
    if (effect->kind == PD_EFF_JOB_GONE) note_end(s, effect);
    if (effect->kind != PD_EFF_CLOSED || (job = inside_job(store, effect->job)) == NULL) return;
    if ((h = history_of(s, effect->job)) == NULL) h = begin_history(s, job);
    if (strncmp(job->steps.name, "unlike", 6) == 0 && effect->u.closed.n > 0 && effect->u.closed.at[0].outcome != 0)
        sim_fail("exactly once", "%s steps, though its worker weighs the chunks of a parameter unlike",
                 job->steps.name);
    for (size_t i = 0; h->job != NULL && i < effect->u.closed.n; i++)
        on_closed(s, h, param_number(h->job, job->steps.params[effect->u.closed.at[i].param].name),
                  &effect->u.closed.at[i]);
}

/* ---- what workers get ---- */

void sim_judge_weights(sim *s, const sim_job *job, uint32_t param, uint64_t version, const float *weights,
                       int64_t first, int64_t n)
{
    bool known = false;

    for (const sim_history *h = s->histories; h != NULL; h = h->next) {
        const float *was = h->job == job && version < VERSIONS ? h->params[param].weights[version] : NULL;
        if (was == NULL) continue;
        known = true;
        if (memcmp(was + first, weights, (size_t)n * sizeof *weights) == 0) return;
        for (const lost_weights *lost = h->params[param].lost; lost != NULL; lost = lost->next)
            if (lost->version == version && memcmp(lost->at + first, weights, (size_t)n * sizeof *weights) == 0) return;
    }
    if (!known)
        sim_fail("consistency", "%s %s: a worker got version %llu, which was never published", job->name,
                 job->params[param].name, (unsigned long long)version);
    sim_fail("consistency", "%s %s: a worker got weights that are not those of version %llu", job->name,
             job->params[param].name, (unsigned long long)version);
}

/* Returns the weights that a parameter has after a step: its latest version up to this step. NULL: the step is not
 * closed. */
static const float *weights_after(const sim_history *h, uint32_t param, uint64_t step)
{
    uint64_t version = step < VERSIONS ? step : VERSIONS - 1;

    while (version > 0 && h->params[param].weights[version] == NULL) version--;
    return h->params[param].step >= step ? h->params[param].weights[version] : NULL;
}

void sim_judge_exported(sim *s, const sim_job *job, uint32_t param, uint64_t step, const float *weights, int64_t first,
                        int64_t n)
{
    for (const sim_history *h = s->histories; h != NULL; h = h->next) {
        const float *was = h->job == job ? weights_after(h, param, step) : NULL;
        if (was != NULL && memcmp(was + first, weights, (size_t)n * sizeof *weights) == 0) return;
    }
    sim_fail("consistency", "%s %s: an export of step %llu has weights that are not those of this step", job->name,
             job->params[param].name, (unsigned long long)step);
}

/* ---- expected weights, by arithmetic ---- */

/* Collects the values and weights that the ranks contribute to one element of a parameter. Returns their number. */
static int values_of(const sim_job *job, uint32_t p, uint64_t step, int64_t i, double *value, double *weight)
{
    int n = 0;

    for (uint32_t rank = 0; rank < job->world; rank++) {
        int64_t start, end;
        sim_range(job, &job->params[p], rank, &start, &end);
        if (i < start || i >= end || !sim_has_gradient(job, rank, step, p)) continue;
        value[n] = gradient_at(job, rank, step, p, i);
        if (!job->rejects && i == start + (end - start) / 2 && sim_gradient_is_infinite(job, rank, step, p))
            value[n] = INFINITY;
        weight[n++] = sim_weight(job, rank, step);
    }
    return n;
}

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static double middle(double *value, int n, int trim)
{
    double sum = 0;

    qsort(value, (size_t)n, sizeof *value, by_value);
    for (int k = trim; k < n - trim; k++) sum += value[k];
    return sum / (n - 2 * trim);
}

static double aggregate(const sim_job *job, bool values, double *value, const double *weight, int n)
{
    double sum = 0, weights = 0;
    int most = (n - 1) / 2;

    for (int k = 0; k < n; k++) {
        double w = job->how == PD_WEIGHTED_MEAN ? weight[k] : 1;
        sum += w * value[k];
        weights += w;
    }
    if (!values && job->how == PD_SUM) return sum;
    if (!values && job->how == PD_MEDIAN) return middle(value, n, most);
    if (!values && job->how == PD_TRIMMED_MEAN) return middle(value, n, most < 1 ? most : 1);
    return sum / weights;
}

/* Checks a step of sgd with lr=1, which subtracts the aggregate. Model state becomes the aggregate. */
static void check_arithmetic(const sim_history *h, uint32_t p, uint64_t step, const float *before, const float *after)
{
    const sim_job *job = h->job;
    double value[SIM_WORLD], weight[SIM_WORLD];
    int64_t stride = job->params[p].n > 32 ? 7 : 1;

    for (int64_t i = 0; i < job->params[p].n; i += stride) {
        int n = values_of(job, p, step, i, value, weight);
        bool state = job->params[p].model_state;
        double moved = aggregate(job, state, value, weight, n), expected = state ? moved : before[i] - moved;
        if (n == 0 || fabs(after[i] - expected) > 1e-3)
            sim_fail("exactly once", "%s %s: step %llu takes element %lld from %g to %g, expected %g", job->name,
                     job->params[p].name, (unsigned long long)step, (long long)i, (double)before[i], (double)after[i],
                     expected);
    }
}

static void check_plain(const sim_history *h)
{
    for (uint32_t p = 0; p < h->job->n_params; p++) {
        const float *before = h->params[p].weights[0];
        for (uint64_t step = 1; before != NULL && step <= h->params[p].step; step++) {
            const float *after = h->params[p].weights[step];
            if (after == NULL) continue;
            check_arithmetic(h, p, step, before, after);
            before = after;
        }
    }
}

/* ---- expected weights, from an undisturbed twin: a store that gets the same contributions one by one ---- */

static void join_options(const sim_job *job, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    /* The twin has no disk. */
    for (uint32_t o = 0; o < job->n_options; o++)
        if (strncmp(job->options[o], "durability", 10) != 0)
            used += (size_t)snprintf(text + used, size - used, "%s%s", o > 0 ? " " : "", job->options[o]);
}

static void declare_twin(rig *r, const sim_job *job, uint32_t rank)
{
    const char *names[SIM_PARAMS];
    pd_shape shapes[SIM_PARAMS];
    rig_range ranges[SIM_PARAMS];
    bool states[SIM_PARAMS];

    for (uint32_t p = 0; p < job->n_params; p++) {
        const sim_param *param = &job->params[p];
        names[p] = param->name;
        shapes[p] = param->shape;
        states[p] = param->model_state;
        ranges[p] = (rig_range){ -1, 0 };
        if (param->ranged) sim_range(job, param, rank, &ranges[p].start, &ranges[p].end);
    }
    r->ranges = ranges;
    r->states = states;
    if (rig_declare(r, r->job, rank, 1 + rank, names, shapes, NULL, job->n_params, PD_F32) != PD_OK)
        sim_fail("harness", "the twin refuses Declare: %s", r->error.text);
    r->ranges = NULL;
    r->states = NULL;
}

/* Sends the twin store one frame with all chunks that the rank has of a parameter. */
static void send_twin(rig *r, pd_request_kind kind, const sim_job *job, uint32_t rank, uint64_t step, uint32_t p,
                      const float *values)
{
    rig_frame *frame = rig_frame_new(r, kind, r->job, rank, 1 + rank, step);
    int64_t start, end;

    sim_range(job, &job->params[p], rank, &start, &end);
    rig_weight(frame, sim_weight(job, rank, step), false);
    for (int64_t at = start, stop; at < end; at = stop) {
        stop = (at / r->chunk + 1) * r->chunk;
        if (stop > end) stop = end;
        rig_piece(frame, p, PD_F32, at, stop - at, values + (at - start));
    }
    if (rig_send(r, frame) != PD_OK) sim_fail("harness", "the twin refuses a frame: %s", r->error.text);
    rig_work(r);
}

static void init_twin(rig *r, const sim_history *h)
{
    for (uint32_t p = 0; p < h->job->n_params; p++)
        for (uint32_t rank = 0; rank < h->job->world; rank++) {
            float initial[SIM_ELEMENTS];
            int64_t start, end;
            const float *weights = h->params[p].weights[0];
            if (weights == NULL || (rank > 0 && !h->job->params[p].ranged && !h->job->mean_init)) continue;
            sim_range(h->job, &h->job->params[p], rank, &start, &end);
            sim_initial(h->job, rank, 0, p, initial);
            send_twin(r, PD_REQ_INIT, h->job, rank, 0, p, h->job->mean_init ? initial : weights + start);
        }
}

static void step_twin(rig *r, const sim_history *h, uint64_t step)
{
    float gradient[SIM_ELEMENTS];

    for (uint32_t rank = 0; rank < h->job->world; rank++)
        for (uint32_t p = 0; p < h->job->n_params; p++) {
            if (h->params[p].weights[0] == NULL) continue;
            if (sim_has_gradient(h->job, rank, step, p)) {
                sim_gradient(h->job, rank, step, p, h->job->rejects, gradient);
                send_twin(r, PD_REQ_PUSH, h->job, rank, step, p, gradient);
            } else {
                rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, 1 + rank, step);
                rig_absent(frame, p);
                rig_send(r, frame);
                rig_work(r);
            }
        }
    rig_work(r);
}

static void compare_twin(rig *r, const sim_history *h, uint64_t step)
{
    for (uint32_t p = 0; p < h->job->n_params; p++) {
        const published *pub = &h->params[p];
        const rig_entry *twin = rig_board(r, r->job, p);
        if (pub->weights[0] == NULL || pub->step < step) continue;
        if (twin->step != step || (step > 0 && twin->outcome != pub->outcome[step]))
            sim_fail("exactly once", "%s %s: step %llu has outcome %d, the undisturbed twin %d (at step %llu)",
                     h->job->name, h->job->params[p].name, (unsigned long long)step, (int)pub->outcome[step],
                     (int)twin->outcome, (unsigned long long)twin->step);
        if (pub->weights[step] == NULL) continue;
        if (memcmp(pub->weights[step], rig_weights(r, r->job, p), (size_t)h->job->params[p].n * sizeof(float)) != 0)
            sim_fail("exactly once",
                     "%s %s: the weights of step %llu have other bits than those of the undisturbed twin", h->job->name,
                     h->job->params[p].name, (unsigned long long)step);
    }
}

static void check_twin(const sim *s, const sim_history *h, uint64_t last)
{
    static rig r;
    pd_store_config config = rig_config();
    char options[SIM_OPTIONS * 48];

    config.chunk_elements = s->plan->chunk;
    rig_new(&r, &config);
    join_options(h->job, options, sizeof options);
    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        if (rig_hello(&r, h->job->name, rank, h->job->world, 1 + rank, 1 + rank, options, h->job->rule) != PD_OK)
            sim_fail("harness", "the twin refuses Hello: %s", r.error.text);
        declare_twin(&r, h->job, rank);
    }
    init_twin(&r, h);
    compare_twin(&r, h, 0);
    for (uint64_t step = 1; step <= last; step++) {
        step_twin(&r, h, step);
        compare_twin(&r, h, step);
    }
    rig_free(&r);
}

static bool all_begun(const sim_history *h, uint64_t *last)
{
    bool all = true;

    *last = 0;
    for (uint32_t p = 0; p < h->job->n_params; p++) {
        all = all && h->params[p].begun;
        if (h->params[p].step > *last) *last = h->params[p].step;
    }
    return all;
}

void sim_judge_all(sim *s)
{
    uint64_t last;

    for (const sim_history *h = s->histories; h != NULL; h = h->next) {
        if (h->job == NULL || !all_begun(h, &last) || last == 0) continue;
        if (h->job->plain && !h->job->clips && h->job->how != PD_ADASUM && h->job->how != PD_VDOT_ADASUM)
            check_plain(h);
        if (!h->job->ready && (h->job->plain || sim_failed_allocations() == 0))
            /* A root that fails for lack of memory changes the weights. So a job with roots is compared with its
             * undisturbed twin only if no allocation has failed. */
            check_twin(s, h, last);
    }
}

/* ---- the same run once more ---- */

static uint64_t hash_of(const float *weights, int64_t n)
{
    uint64_t hash = 1;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &weights[i], sizeof bits);
        hash = sim_mix(hash, bits, 6, 6) | 1;
    }
    return hash;
}

void sim_judge_digest(const sim *s, sim_digest *out)
{
    memset(out, 0, sizeof *out);
    for (const sim_history *h = s->histories; h != NULL; h = h->next) {
        if (h->job == NULL) continue;
        out->begun[h->job->number]++;
        for (uint32_t p = 0; p < h->job->n_params; p++)
            for (int v = 0; v < VERSIONS; v++)
                if (h->params[p].weights[v] != NULL)
                    out->version[h->job->number][p][v] = hash_of(h->params[p].weights[v], h->job->params[p].n);
    }
    out->usable = sim_failed_allocations() == 0;
}

static bool begin_alike(const sim_digest *a, const sim_digest *b, const sim_job *job)
{
    bool alike = a->begun[job->number] == 1 && b->begun[job->number] == 1;

    for (uint32_t p = 0; p < job->n_params; p++)
        alike = alike && a->version[job->number][p][0] == b->version[job->number][p][0];
    return alike;
}

uint64_t sim_judge_compare(const sim_plan *plan, const sim_digest *a, const sim_digest *b)
{
    uint64_t compared = 0;

    if (!a->usable || !b->usable) return 0; /* a root that fails for lack of memory changes the weights */
    for (uint32_t j = 0; j < plan->n_jobs; j++) {
        if (!begin_alike(a, b, &plan->jobs[j])) continue;
        for (uint32_t p = 0; p < plan->jobs[j].n_params; p++)
            for (int v = 1; v < VERSIONS; v++) {
                uint64_t with = a->version[j][p][v], without = b->version[j][p][v];
                if (with == 0 || without == 0) continue;
                compared++;
                if (with != without)
                    sim_fail("sharing", "%s %s: version %d has other bits if memory is shared", plan->jobs[j].name,
                             plan->jobs[j].params[p].name, v);
            }
    }
    return compared;
}

static void free_weights(published *pub)
{
    for (int v = 0; v < VERSIONS; v++) free(pub->weights[v]);
    while (pub->lost != NULL) {
        lost_weights *next = pub->lost->next;
        free(pub->lost);
        pub->lost = next;
    }
}

void sim_judge_free(sim *s)
{
    while (s->histories != NULL) {
        sim_history *h = s->histories;
        s->histories = h->next;
        for (uint32_t p = 0; p < SIM_PARAMS; p++) free_weights(&h->params[p]);
        free(h);
    }
}
