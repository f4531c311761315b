/* trainee.c - a process that trains a job on several servers, as a user's program does: with the public calls of the
 * client library alone. */
#include "sim_cluster.h"
#include "sim_judge.h"
#include "sim_owner.h"

#include "paramd/client.h"

enum { RETRY_MS = 200, PUSHES = 2, PATIENCE_S = 120, LATE_S = 20 };

struct sim_trainee {
    sim_process process;
    sim_trainee *next;
    sim *s;
    const sim_job *job;
    sim_cluster_job *of;
    uint32_t rank;
    uint64_t number; /* of this process: they are numbered in the order in which they start */
    pd_client *client;
    float *weights[SIM_PARAMS], *readouts[SIM_PARAMS], *gradients[SIM_PARAMS]; /* readouts: to evaluate with */
    float *whole[SIM_PARAMS];   /* the weights after the last step that was taken whole */
    uint64_t step;              /* the last step that was taken */
    bool declared, begun, over; /* begun: it has got the weights of the job */
    const char *does;           /* what it is doing */
    uint64_t since_ns;          /* time at which it has last made progress */
    uint64_t progress;          /* of all that: the step, and the call */
};

/* The note of a step. */
typedef struct note {
    uint32_t job, rank;
    uint64_t step;
} note;

static void trace(const sim_trainee *t, const char *what, uint64_t a, uint64_t b)
{
    char who[40];

    snprintf(who, sizeof who, "%s rank", t->job->name);
    sim_note(t->s, who, t->rank, what, a, b);
}

/* Notes what the process begins to do. It is progress if the process has not done it in this step before. */
static void begin(sim_trainee *t, const char *what, uint64_t place)
{
    uint64_t progress = t->step * 16 + place;

    t->does = what;
    if (progress <= t->progress) return;
    t->progress = progress;
    t->since_ns = t->s->now_ns;
}

/* Returns whether a call has to be made again, since it has timed out. */
static bool is_slow(const sim_trainee *t, int rc, const pd_error *err)
{
    return !t->process.killed && rc == PD_DEADLINE_EXCEEDED && strncmp(err->text, "waited ", 7) == 0;
}

/* Ends the process with an error that is not explained. */
static void refuse(const sim_trainee *t, int rc, const pd_error *err)
{
    sim_fail("liveness", "%s rank %u, step %llu, %s: %s: %s", t->job->name, t->rank, (unsigned long long)t->step,
             t->does, pd_code_name(rc), err->text);
}

static int64_t range_of(const sim_trainee *t, uint32_t p, int64_t *start)
{
    int64_t end;

    sim_range(t->job, &t->job->params[p], t->rank, start, &end);
    return end - *start;
}

/* Returns whether an error of the server passes: another try may succeed. */
static bool passes(int rc)
{
    return rc == PD_DEADLINE_EXCEEDED || rc == PD_RESOURCE_EXHAUSTED || rc == PD_NO_MEMORY;
}

/* Returns whether a disk of the plan fails at times. */
static bool has_disk_faults(const sim_trainee *t)
{
    for (uint32_t f = 0; f < t->s->plan->n_faults; f++) {
        sim_fault_kind kind = t->s->plan->faults[f].kind;
        if (kind == SIM_DISK_FULL || kind == SIM_DISK_FAIL || kind == SIM_DISK_DIES) return true;
    }
    return false;
}

/* Returns whether a call may end with PD_UNAVAILABLE: a disk fails, or a server has lost its disk to a spare. */
static bool may_be_unavailable(const sim_trainee *t)
{
    return has_disk_faults(t) || t->s->plan->spares > 0;
}

/* ---- weights ---- */

/* Checks the weights of a parameter, or those to evaluate it with: they are those after a step. */
static void check_weights(const sim_trainee *t, pd_weights_form form, uint32_t p, uint64_t step)
{
    const float *own = form == PD_FORM_EVAL ? t->readouts[p] : t->weights[p];
    int64_t start, n = range_of(t, p, &start);
    const float *twin;

    if (t->of->loose || step > t->job->steps) return;
    twin = form == PD_FORM_EVAL ? t->of->readouts[step][p] : t->of->weights[step][p];
    if (memcmp(own, twin + start, (size_t)n * sizeof(float)) != 0)
        sim_fail(form == PD_FORM_EVAL ? "evaluation" : "exactly once",
                 "%s rank %u: the weights of %s after step %llu are not those of the undisturbed twin", t->job->name,
                 t->rank, t->job->params[p].name, (unsigned long long)step);
}

/* Returns the lowest step of the parameters. Model state takes its steps apart from others, and may be a step ahead. */
static uint64_t lowest_step(const sim_trainee *t)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t p = 0; p < t->job->n_params; p++) {
        uint64_t step = pd_client_step(t->client, p);
        if (step < least) least = step;
    }
    return least;
}

/* Returns whether a parameter takes its steps together with others of its job. */
static bool is_coupled(const sim_trainee *t, uint32_t p)
{
    return t->job->whole && !t->job->params[p].model_state;
}

/* Checks that parameters that take their steps together are at one step. A job that was begun anew on one shard may
 * have model state that is a step behind. */
static void check_one_step(const sim_trainee *t)
{
    uint64_t one = UINT64_MAX;

    /* On one server a step that is decided may be under way. */
    for (uint32_t p = 0; t->s->plan->shards > 1 && p < t->job->n_params; p++) {
        uint64_t step = pd_client_step(t->client, p);
        if (!is_coupled(t, p)) continue;
        if (one != UINT64_MAX && step != one)
            sim_fail("one step", "%s rank %u has weights of steps %llu and %llu", t->job->name, t->rank,
                     (unsigned long long)one, (unsigned long long)step);
        one = step;
    }
}

static void keep_whole(sim_trainee *t)
{
    for (uint32_t p = 0; p < t->job->n_params; p++) {
        int64_t start, n = range_of(t, p, &start);
        memcpy(t->whole[p], t->weights[p], (size_t)n * sizeof(float));
    }
}

/* ---- recoveries ---- */

/* Returns the last step up to this one with which the rank gives a note: it gives none with a step for which it pushes
 * nothing. */
static uint64_t noted(const sim_trainee *t, uint64_t step)
{
    for (; step > 0 && sim_rank_closes(t->job, t->rank, step); step--)
        for (uint32_t p = 0; p < t->job->n_params; p++)
            if (sim_has_gradient(t->job, t->rank, step, p)) return step;
    return step;
}

/* Asks for the note of this rank: in a job whose parameters take their steps together it is that of the step at which
 * the process goes on, or an older one if a shard that had it has lost the job. */
static int recall(sim_trainee *t, pd_error *err)
{
    note back = { 0 };
    uint64_t step = 0;
    size_t bytes = 0;
    int rc;

    begin(t, "recall", 3);
    do rc = pd_client_recall(t->client, &back, sizeof back, &bytes, &step, err);
    while (is_slow(t, rc, err));
    if (rc != PD_OK || bytes == 0) return rc;
    if (bytes != sizeof back || back.job != t->job->number || back.rank != t->rank || back.step != step)
        sim_fail("notes", "%s rank %u gets a note of job %u, rank %u, step %llu for step %llu", t->job->name, t->rank,
                 back.job, back.rank, (unsigned long long)back.step, (unsigned long long)step);
    if (t->job->whole && !t->of->loose && step != noted(t, t->step) && step != noted(t, t->step + 1))
        sim_fail("notes", "%s rank %u gets the note of step %llu, and goes on from step %llu", t->job->name, t->rank,
                 (unsigned long long)step, (unsigned long long)t->step);
    return PD_OK;
}

/* Takes over the step at which the job is, after a start or a recovery. */
static int take_over(sim_trainee *t, bool went_back, pd_error *err)
{
    t->step = lowest_step(t);
    t->progress = 0;
    check_one_step(t);
    for (uint32_t p = 0; p < t->job->n_params; p++) check_weights(t, PD_FORM_TRAIN, p, pd_client_step(t->client, p));
    /* A new process may have got its weights just before a step for which an earlier process of the rank has pushed. */
    if (t->step < t->of->acked && !sim_cluster_is_past(t->s, t->job, t->of->acked))
        sim_fail("durability", "%s rank %u goes on from step %llu, and step %llu was durable on all shards",
                 t->job->name, t->rank, (unsigned long long)t->step, (unsigned long long)t->of->acked);
    sim_cluster_check_number(t->s, t->job);
    keep_whole(t);
    t->begun = true;
    trace(t, went_back ? "has gone back to step" : "begins at step", t->step, t->number);
    return recall(t, err);
}

static int rewind_job(sim_trainee *t, pd_error *err)
{
    int rc;

    begin(t, "rewind", 4);
    if (t->of->calm)
        sim_fail("private recovery", "%s rank %u is told to go back, though all ranks can send their steps again: %s",
                 t->job->name, t->rank, err->text);
    trace(t, "is told to go back at step", t->step, 0);
    while ((rc = pd_client_rewind(t->client, (void *const *)t->weights, err)) != PD_OK && !t->process.killed) {
        if (rc == PD_REWIND || is_slow(t, rc, err)) continue;
        if (!passes(rc) && !(rc == PD_UNAVAILABLE && may_be_unavailable(t))) return rc;
        trace(t, err->text, t->step, (uint64_t)-rc);
        sim_process_sleep(RETRY_MS * SIM_MS);
    }
    return rc == PD_OK ? take_over(t, true, err) : rc;
}

/* Begins the job anew on the shards that have lost it. */
static int restart_job(sim_trainee *t, pd_error *err)
{
    int rc;

    begin(t, "restart", 5);
    trace(t, "starts the job anew at step", t->step, 0);
    t->of->calm = false;
    t->of->loose = true; /* weights that a call has brought may be newer than the step at which the job begins */
    for (uint32_t p = 0; p < t->job->n_params; p++) {
        int64_t start, n = range_of(t, p, &start);
        memcpy(t->weights[p], t->whole[p], (size_t)n * sizeof(float));
        if (!t->begun) sim_initial(t->job, t->rank, 0, p, t->weights[p]);
    }
    /* The call is repeated also if the server says that rank 0 has not sent weights in time. */
    do rc = pd_client_restart(t->client, (void *const *)t->weights, err);
    while (rc == PD_DEADLINE_EXCEEDED && !t->process.killed);
    return rc == PD_OK ? take_over(t, false, err) : rc;
}

/* Continues after an error. Returns false if the process ends. */
static bool recover(sim_trainee *t, int rc, pd_error *err)
{
    while (rc != PD_OK) {
        if (t->process.killed || t->of->abandoned || (t->of->finished && !t->begun)) return false;
        trace(t, err->text, t->step, (uint64_t)-rc);
        if (rc == PD_REWIND) {
            rc = rewind_job(t, err);
        } else if (rc == PD_ABORTED && strstr(err->text, "taken over") != NULL && t->number > 1) {
            /* The server has read the Hello of an earlier process of the rank, which is dead, after this one's. */
            sim_trainee_start(t->s, t->job, t->rank, RETRY_MS * SIM_MS);
            return false;
        } else if (rc == PD_DATA_LOSS && t->of->finished) {
            return false;
        } else if (rc == PD_DATA_LOSS && strstr(err->text, "no step is left") != NULL && t->s->plan->mirrors &&
                   sim_cluster_has_common(t->s, t->of)) {
            sim_fail("one step", "%s rank %u, step %llu: %s", t->job->name, t->rank, (unsigned long long)t->step,
                     err->text);
        } else if (rc == PD_DATA_LOSS && strstr(err->text, "no step is left") == NULL && t->of->lasting &&
                   t->declared) {
            rc = restart_job(t, err);
        } else if (rc == PD_DATA_LOSS || strstr(err->text, "is left from cluster") != NULL) {
            /* Shards have no step in common; or shard 0 was killed before the job was on its disk. */
            if (t->of->acked > 0)
                sim_fail("durability", "%s rank %u, and step %llu was durable on all shards: %s", t->job->name, t->rank,
                         (unsigned long long)t->of->acked, err->text);
            sim_cluster_abandon(t->s, t->job, "cannot continue");
            return false;
        } else if (rc == PD_UNAVAILABLE && may_be_unavailable(t)) {
            sim_process_sleep(RETRY_MS * SIM_MS);
            return true;
        } else if (rc == PD_RESOURCE_EXHAUSTED || rc == PD_NO_MEMORY || rc == PD_DEADLINE_EXCEEDED) {
            sim_process_sleep(RETRY_MS * SIM_MS);
            return true;
        } else {
            refuse(t, rc, err);
        }
    }
    return true;
}

/* ---- the start ---- */

/* Writes the addresses of all shards; where there are spares, those of all daemons: a worker may name any of them. */
static void write_urls(const sim_trainee *t, char urls[SIM_SERVERS * 32])
{
    const sim_plan *plan = t->s->plan;
    uint32_t n = plan->shards + plan->spares;
    char one[32];

    urls[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        sim_address(plan->spares > 0 ? (i + sim_owners_first(t->s, t->rank)) % n : i, one);
        if (i > 0) strcat(urls, plan->spares > 0 ? "," : " ");
        strcat(urls, one);
    }
}

static int open_handle(sim_trainee *t, pd_error *err)
{
    char urls[SIM_SERVERS * 32];
    const char *options[SIM_OPTIONS + 1] = { NULL }, *rules[2] = { t->job->rule, NULL };
    pd_client_options all = { .urls = urls,
                              .job = t->job->name,
                              .rank = (int)t->rank,
                              .world_size = (int)t->job->world,
                              .run = "launch",
                              .label = "sim",
                              .options = options,
                              .rules = rules,
                              .nonce = sim_mix(t->s->plan->seed, t->number, 3, 1) | 1,
                              .deadline = 20,
                              .slice = t->job->slice,
                              .window = t->job->window[t->rank],
                              .no_shared_memory = true,
                              .quiet = true };
    int rc;

    for (uint32_t o = 0; o < t->job->n_options; o++) options[o] = t->job->options[o];
    write_urls(t, urls);
    begin(t, "open", 0);
    do rc = pd_client_open(&t->client, &all, err);
    while (rc == PD_UNAVAILABLE && !t->process.killed);
    return rc;
}

static int declare(sim_trainee *t, pd_error *err)
{
    pd_client_param params[SIM_PARAMS];
    int rc;

    memset(params, 0, sizeof params);
    for (uint32_t p = 0; p < t->job->n_params; p++) {
        const sim_param *param = &t->job->params[p];
        params[p] = (pd_client_param){
            .name = param->name, .shape = param->shape, .ranged = param->ranged, .model_state = param->model_state
        };
        if (param->ranged) sim_range(t->job, param, t->rank, &params[p].start, &params[p].end);
    }
    begin(t, "declare", 1);
    do rc = pd_client_declare(t->client, params, t->job->n_params, err);
    while (is_slow(t, rc, err));
    return rc;
}

static int init(sim_trainee *t, pd_error *err)
{
    int rc;

    for (uint32_t p = 0; p < t->job->n_params; p++) sim_initial(t->job, t->rank, 0, p, t->weights[p]);
    begin(t, "init", 2);
    do rc = pd_client_init(t->client, (void *const *)t->weights, err);
    while (is_slow(t, rc, err));
    return rc;
}

/* Joins the job, and gets its weights. Returns false if the process ends. */
static bool join(sim_trainee *t, pd_error *err)
{
    int rc = open_handle(t, err);

    while (rc == PD_OK && !t->declared) {
        rc = declare(t, err);
        t->declared = rc == PD_OK;
        if (rc == PD_RESOURCE_EXHAUSTED || rc == PD_DEADLINE_EXCEEDED) {
            sim_process_sleep(RETRY_MS * SIM_MS);
            rc = t->process.killed ? PD_CANCELLED : PD_OK;
        }
    }
    if (rc == PD_REWIND) t->declared = true;
    if (rc != PD_OK && t->client == NULL) return recover(t, rc, err) && false;
    for (;;) {
        if (rc == PD_OK && (rc = init(t, err)) == PD_OK && (rc = take_over(t, false, err)) == PD_OK) return true;
        if (rc == PD_REWIND) return recover(t, rc, err);
        if (!recover(t, rc, err)) return false;
        rc = PD_OK;
    }
}

/* ---- steps ---- */

static pd_item item_of(sim_trainee *t, uint64_t step, uint32_t p)
{
    pd_item item = { .param = p, .weights = t->weights[p] };

    if (!sim_has_gradient(t->job, t->rank, step, p)) return item;
    item.gradient = t->gradients[p];
    return item;
}

/* Lists the parameters that have not taken a step, which this rank pushes. Returns their number. */
static size_t list_items(sim_trainee *t, uint64_t step, pd_item *items)
{
    bool closes = sim_rank_closes(t->job, t->rank, step);
    size_t n = 0;

    for (uint32_t p = 0; p < t->job->n_params; p++)
        if (pd_client_step(t->client, p) < step && (!closes || sim_has_gradient(t->job, t->rank, step, p)))
            items[n++] = item_of(t, step, p);
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)sim_draw(t->s, i);
        pd_item swap = items[k];
        items[k] = items[i - 1];
        items[i - 1] = swap;
    }
    return n;
}

/* Waits for a ticket. */
static int await(sim_trainee *t, pd_ticket_id ticket, pd_error *err)
{
    int rc;

    do rc = pd_client_wait(t->client, ticket, t->job->slice, err);
    while (is_slow(t, rc, err));
    return rc;
}

static void check_outcomes(const sim_trainee *t, uint64_t step, const pd_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int should = t->of->outcome[step][items[i].param];
        if (items[i].outcome <= 0 || t->of->loose || items[i].step != step || items[i].outcome == should) continue;
        sim_fail("exactly once", "%s rank %u is told outcome %d of step %llu of %s, the undisturbed twin has %d",
                 t->job->name, t->rank, items[i].outcome, (unsigned long long)step, t->job->params[items[i].param].name,
                 should);
    }
}

/* Returns whether an error says that the optimizer has refused the step of some parameters, which is taken. */
static bool is_refused(int rc, const pd_item *items, size_t n)
{
    bool all = rc == PD_FAILED_PRECONDITION;

    for (size_t i = 0; i < n; i++) all = all && items[i].outcome > 0;
    return all;
}

/* Pushes what is missing of a step, and waits. `again`: an earlier try has ended with an error. */
static int push_step(sim_trainee *t, uint64_t step, bool again, pd_error *err)
{
    pd_item items[SIM_PARAMS];
    size_t n = list_items(t, step, items), at = 0, tries = 1 + (size_t)sim_draw(t->s, PUSHES);
    pd_ticket_id tickets[PUSHES + 1], *last = tickets;
    note own = { t->job->number, t->rank, step };
    pd_push_options options = {
        .weight = sim_weight(t->job, t->rank, step), .note = &own, .note_bytes = sizeof own, .again = again
    };
    pd_error error;
    int rc = PD_OK, result;

    for (size_t i = 0; rc == PD_OK && i < tries; i++) {
        size_t end = n * (i + 1) / tries;
        if (end == at) continue;
        rc = sim_chance(t->s, 4) ? pd_client_push(t->client, items + at, end - at, &options, last, err)
                                 : pd_client_push_pull(t->client, items + at, end - at, &options, last, err);
        if (rc == PD_OK) last++;
        at = end;
    }
    if (rc == PD_OK && sim_rank_closes(t->job, t->rank, step) && lowest_step(t) < step &&
        (rc = pd_client_close_step(t->client, step, last, err)) == PD_OK)
        last++;
    for (const pd_ticket_id *ticket = tickets; ticket < last; ticket++)
        if ((result = await(t, *ticket, &error)) != PD_OK && rc == PD_OK) {
            rc = result;
            *err = error;
        }
    if (t->process.killed) return rc != PD_OK ? rc : PD_CANCELLED;
    if (is_refused(rc, items, n)) rc = PD_OK;
    if (rc == PD_OK) check_outcomes(t, step, items, n);
    return rc;
}

/* Gets the weights of all parameters after a step, in one of their forms. */
static int pull_step(sim_trainee *t, pd_weights_form form, uint64_t step, pd_error *err)
{
    float *const *to = form == PD_FORM_EVAL ? t->readouts : t->weights;
    pd_item items[SIM_PARAMS];
    pd_ticket_id ticket;
    int rc;

    for (uint32_t p = 0; p < t->job->n_params; p++) items[p] = (pd_item){ .param = p, .weights = to[p] };
    rc = pd_client_pull_form(t->client, items, t->job->n_params, step, form, &ticket, err);
    if (rc == PD_OK) rc = await(t, ticket, err);
    /* Where parameters take their steps apart, an earlier process of the rank may have pushed for later steps. */
    for (uint32_t p = 0; rc == PD_OK && !t->process.killed && p < t->job->n_params; p++)
        check_weights(t, form, p, t->job->whole ? step : items[p].step);
    return rc;
}

/* Gets weights after a step, as often as the server refuses that for a while. */
static int pull_patiently(sim_trainee *t, pd_weights_form form, uint64_t step, pd_error *err)
{
    int rc;

    while ((rc = pull_step(t, form, step, err)) != PD_OK) {
        if (t->process.killed || !passes(rc)) return rc;
        sim_process_sleep(RETRY_MS * SIM_MS);
    }
    return t->process.killed ? PD_CANCELLED : PD_OK;
}

static int take_step(sim_trainee *t, pd_error *err)
{
    uint64_t step = t->step + 1;
    int rc;

    begin(t, "step", 6);
    trace(t, "begins step", step, 0);
    for (uint32_t p = 0; p < t->job->n_params; p++)
        sim_cluster_gradient(t->job, t->rank, step, p, t->whole, t->gradients[p]);
    for (bool again = false; (rc = push_step(t, step, again, err)) != PD_OK; again = true) {
        if (t->process.killed || !passes(rc)) return rc;
        trace(t, err->text, step, (uint64_t)-rc);
        sim_process_sleep(RETRY_MS * SIM_MS);
        if (t->process.killed) return PD_CANCELLED;
    }
    if (lowest_step(t) < step || sim_chance(t->s, 2)) begin(t, "pull", 7);
    if ((rc = pull_patiently(t, PD_FORM_TRAIN, step, err)) != PD_OK) return rc;
    if (lowest_step(t) != step)
        sim_fail("one step", "%s rank %u has taken step %llu, and its parameters are at %llu", t->job->name, t->rank,
                 (unsigned long long)step, (unsigned long long)lowest_step(t));
    keep_whole(t);
    t->step = step;
    if (!sim_averages(t->job) || step % 2 == 1) return PD_OK;
    begin(t, "evaluate", 7);
    return pull_patiently(t, PD_FORM_EVAL, step, err);
}

/* Waits until the present step is durable on all shards. */
static int sync_step(sim_trainee *t, pd_error *err)
{
    int rc;

    begin(t, "sync", 8);
    do rc = pd_client_sync(t->client, t->step, err);
    while (is_slow(t, rc, err));
    if (rc == PD_OK && !t->process.killed) {
        trace(t, "knows to be durable step", t->step, 0);
        if (sim_cluster_acked(t->s, t->job, t->step) > t->of->acked)
            t->of->acked = sim_cluster_acked(t->s, t->job, t->step);
        sim_owners_durable(t->s, t->job);
    }
    return rc;
}

/* Comes to a barrier after every other step, and checks that all ranks have come. */
static int meet(sim_trainee *t, pd_error *err)
{
    int rc;

    if (!t->job->barriers || t->step % 2 == 1) return PD_OK;
    begin(t, "barrier", 9);
    t->of->met[t->rank] = t->step;
    do rc = pd_client_barrier(t->client, err);
    while (is_slow(t, rc, err));
    for (uint32_t rank = 0; rc == PD_OK && !t->process.killed && rank < t->job->world; rank++)
        if (t->of->met[rank] < t->step)
            sim_fail("barriers", "%s rank %u is past the barrier of step %llu, to which rank %u has not come",
                     t->job->name, t->rank, (unsigned long long)t->step, rank);
    return rc;
}

static int leave(sim_trainee *t, pd_error *err)
{
    int rc;

    begin(t, "leave", 10);
    do rc = pd_client_leave(t->client, err);
    while (is_slow(t, rc, err));
    trace(t, "has left", rc == PD_OK, 0);
    return t->of->finished ? PD_OK : rc;
}

/* Takes the next step, or ends. Returns an error of a call. */
static int go_on(sim_trainee *t, pd_error *err)
{
    int rc;

    if (t->step < t->job->steps) {
        rc = take_step(t, err);
        if (rc == PD_OK) rc = meet(t, err);
        if (rc != PD_OK || t->rank != 0 || !sim_chance(t->s, 4)) return rc;
        return sync_step(t, err);
    }
    if ((rc = sync_step(t, err)) != PD_OK) return rc;
    t->of->finished = true;
    rc = leave(t, err);
    t->over = rc == PD_OK;
    return rc;
}

static void train(void *arg)
{
    sim_trainee *t = arg;
    pd_error err = { .code = PD_OK };
    bool goes_on = join(t, &err);

    while (goes_on && !t->over && !t->process.killed && !t->of->abandoned) {
        int rc = go_on(t, &err);
        goes_on = recover(t, rc, &err);
    }
    trace(t, "ends", t->step, t->over);
    pd_client_close(t->client);
    t->client = NULL;
}

/* ---- processes ---- */

static void begin_process(sim *s, void *who, uint64_t rank)
{
    const sim_job *job = who;
    sim_side before = sim_enter(SIM_HARNESS);
    sim_trainee *t;

    s->cluster->coming--;
    sim_enter(before);
    if (s->cluster->jobs[job->number].abandoned || s->cluster->jobs[job->number].finished ||
        sim_trainee_at(s, job->number, (uint32_t)rank) != NULL)
        return;
    sim_enter(SIM_HARNESS);
    t = sim_must(calloc(1, sizeof *t));
    t->s = s;
    t->job = job;
    t->of = &s->cluster->jobs[job->number];
    t->rank = (uint32_t)rank;
    t->number = s->cluster->trainees != NULL ? s->cluster->trainees->number + 1 : 1;
    t->since_ns = s->now_ns;
    for (uint32_t p = 0; p < job->n_params; p++) {
        int64_t start, n = range_of(t, p, &start);
        t->weights[p] = sim_must(calloc((size_t)n + 1, sizeof(float)));
        t->gradients[p] = sim_must(calloc((size_t)n + 1, sizeof(float)));
        t->whole[p] = sim_must(calloc((size_t)n + 1, sizeof(float)));
        t->readouts[p] = sim_must(calloc((size_t)n + 1, sizeof(float)));
    }
    t->next = s->cluster->trainees;
    s->cluster->trainees = t;
    trace(t, "starts as process", t->number, 0);
    sim_enter(before);
    sim_process_start(&t->process, s, sim_plan_identity(s->plan, job->number, t->rank), train, t);
}

void sim_trainee_start(sim *s, const sim_job *job, uint32_t rank, uint64_t delay_ns)
{
    s->cluster->coming++;
    sim_after(s, delay_ns, begin_process, (void *)job, rank);
}

sim_trainee *sim_trainee_at(const sim *s, uint32_t job, uint32_t rank)
{
    sim_trainee *t = s->cluster->trainees;

    while (t != NULL && (t->process.over || t->job->number != job || t->rank != rank)) t = t->next;
    return t;
}

sim_process *sim_trainee_process(sim_trainee *t)
{
    return &t->process;
}

void sim_trainee_kill(sim_trainee *t)
{
    trace(t, "dies", t->step, 0);
    sim_process_kill(&t->process);
}

void sim_trainees_check(sim *s)
{
    for (sim_trainee *t = s->cluster->trainees; t != NULL; t = t->next) {
        uint64_t since = t->since_ns > s->plan->calm_ns ? t->since_ns : s->plan->calm_ns;
        if (t->process.over || s->now_ns < since + LATE_S * SIM_S) continue;
        if (t->of->finished && !t->begun) sim_trainee_kill(t); /* it has begun the job anew, and no other rank comes */
        if (t->process.over || s->now_ns < since + PATIENCE_S * SIM_S) continue;
        sim_fail("liveness", "%s rank %u waits in %s after step %llu since %.1f s", t->job->name, t->rank, t->does,
                 (unsigned long long)t->step, (double)(s->now_ns - since) / 1e9);
    }
}

bool sim_trainees_are_over(const sim *s)
{
    for (const sim_trainee *t = s->cluster->trainees; t != NULL; t = t->next)
        if (!t->process.over) return false;
    return true;
}

void sim_trainees_describe(const sim *s)
{
    for (const sim_trainee *t = s->cluster->trainees; t != NULL; t = t->next) {
        if (t->process.over) continue;
        printf("%s rank %u, process %llu: in %s after step %llu\n", t->job->name, t->rank,
               (unsigned long long)t->number, t->does, (unsigned long long)t->step);
        sim_process_describe(&t->process);
    }
}

void sim_trainees_free(sim *s)
{
    while (s->cluster->trainees != NULL) {
        sim_trainee *t = s->cluster->trainees;
        s->cluster->trainees = t->next;
        if (!t->process.over) sim_process_kill(&t->process);
        sim_process_end(&t->process);
        for (uint32_t p = 0; p < t->job->n_params; p++) {
            free(t->weights[p]);
            free(t->gradients[p]);
            free(t->whole[p]);
            free(t->readouts[p]);
        }
        free(t);
    }
}
