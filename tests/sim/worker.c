/* worker.c - one process of a training job: Hello, Declare, initial weights, steps, farewell. */
#include "worker.h"

#include "intruder.h"
#include "judge.h"
#include "pump.h"
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 3, RESTART_MS = 300, RETRY_MS = 200 };

typedef enum phase { WELCOME, DECLARE, INIT, FETCH, STEP, STEPPING, PULLING, BARRIER, LEAVING, RESTING, ENDED } phase;

static const char *const phase_names[] = { "welcome", "declare", "init", "fetch", "step", "stepping", "pulling", "barrier", "leaving", "resting", "ended" };

/* One push, with its items. */
typedef struct call {
    pd_ticket_id ticket;
    bool         pulls;                 /* its weights come with the answer; else they are pulled afterwards */
    uint64_t     again_ns;              /* when it is tried again; 0: it is not */
    pd_item      items[SIM_PARAMS];
    size_t       n;
} call;

struct sim_worker {
    sim           *s;
    const sim_job *job;
    uint32_t       rank;
    uint64_t       process;             /* number of all that were started */
    pd_core       *core;
    pd_pump        pump;
    sim_link      *link;
    phase          phase, after;        /* after: where RESTING goes on */
    pd_ticket_id   ticket;
    call           calls[CALLS]; size_t n_calls;
    float         *weights[SIM_PARAMS], *gradients[SIM_PARAMS];
    uint64_t       versions[SIM_PARAMS];
    uint64_t       step, barriers;      /* the step under way; barriers passed */
    uint64_t       close_ns;            /* when the step is closed once more; 0: it is not */
    bool           finite, finished, dropped, told_missing;
    uint64_t       reached, asked_ns;   /* how far its program has come, and since when it has been there */
    uint64_t       alarm_ns;            /* when it is called next by the clock; 0: not */
    struct sim_worker *next;
};

static uint64_t processes(const sim *s)
{
    return s->workers != NULL ? s->workers->process : 0;
}

static void note(sim_worker *w, const char *what, uint64_t a, uint64_t b)
{
    char who[40];

    snprintf(who, sizeof who, "%s rank", w->job->name);
    sim_note(w->s, who, w->rank, what, a, b);
}

/* ---- the end of a process ---- */

static void rest(sim_worker *w, phase after, const char *why);

static void end_process(sim_worker *w)
{
    sim_side before;

    if (w->phase == ENDED) return;
    w->phase = ENDED;
    before = sim_enter(SIM_WORKER);
    if (w->pump.transport != NULL) w->pump.transport->ops->close(w->pump.transport);
    w->pump.transport = NULL;
    pd_framer_free(w->pump.framer);
    w->pump.framer = NULL;
    pd_core_free(w->core);
    w->core = NULL;
    w->link = NULL;
    for (uint32_t p = 0; p < w->job->n_params; p++) {
        free(w->weights[p]);
        free(w->gradients[p]);
    }
    sim_enter(before);
}

/* The job was dropped while this process was in it: another process begins the job anew. */
static void end_dropped(sim_worker *w)
{
    note(w, "ends with its job", 0, 0);
    end_process(w);
    sim_worker_start(w->s, w->job, w->rank, RESTART_MS * SIM_MS);
}

/* Another process was started at this rank. */
static bool is_superseded(const sim_worker *w)
{
    for (const sim_worker *other = w->s->workers; other != w; other = other->next)
        if (other->job == w->job && other->rank == w->rank) return true;
    return false;
}

/* A Hello of a process that has died since may be read after that of the process that comes after it: the rank then has to be taken once more. */
static bool came_after_the_dead(const sim_worker *w)
{
    bool any = false;

    for (const sim_worker *other = w->next; other != NULL; other = other->next) {
        if (other->job != w->job || other->rank != w->rank) continue;
        if (other->phase != ENDED) return false;
        any = true;
    }
    return any;
}

/* Some other process has done all of the job. */
static bool is_over(const sim_worker *w)
{
    for (const sim_worker *other = w->s->workers; other != NULL; other = other->next)
        if (other->job == w->job && other->finished) return true;
    return false;
}

static bool memory_was_short(void) { return sim_failed_allocations() > 0; }

/* An error that the plan explains, or a violation. */
static void end_refused(sim_worker *w, int code, const char *text)
{
    if (strstr(text, "has dropped the job") != NULL) w->dropped = true;     /* it came between the operator's word and the deed */
    if (w->dropped && (code == PD_ABORTED || code == PD_FAILED_PRECONDITION || code == PD_NOT_FOUND)) {
        end_dropped(w);
        return;
    }
    if ((sim_server_draining(w->s->server) && code == PD_UNAVAILABLE) || (code == PD_ABORTED && is_superseded(w))) {
        end_process(w);
        return;
    }
    if (code == PD_DATA_LOSS || (code == PD_ABORTED && strstr(text, "taken over") != NULL && came_after_the_dead(w))) {
        end_dropped(w);                 /* the job lingered out while all its workers were away, or a dead process was heard late */
        return;
    }
    if (strstr(text, "in the mean already") != NULL) {      /* nobody but the operator can help */
        sim_drop_job(w->s, w->job->number);
        rest(w, INIT, "asks the operator to drop the job");
        return;
    }
    if (memory_was_short()) {           /* a worker that was refused for lack of memory begins anew */
        end_dropped(w);
        return;
    }
    sim_fail("liveness", "%s rank %u, step %llu, %s: %s: %s", w->job->name, w->rank, (unsigned long long)w->step, phase_names[w->phase], pd_code_name(code), text);
}

/* ---- calls ---- */

/* A worker that tries again and again gets nowhere: only what it has not reached before counts. */
static void go_on(sim_worker *w, phase next)
{
    uint64_t place = w->step * 16 + next;

    w->phase = next;
    if (place <= w->reached) return;
    w->reached = place;
    w->asked_ns = w->s->now_ns;
}

static void rest(sim_worker *w, phase after, const char *why)
{
    note(w, why, after, 0);
    w->after = after;
    w->phase = RESTING;
    w->alarm_ns = w->s->now_ns + RETRY_MS * SIM_MS;
}

/* True: the ticket is done; *rc is its result. */
static bool is_done(sim_worker *w, pd_ticket_id ticket, int *rc, pd_error *err)
{
    uint8_t *reply;
    size_t bytes;

    if (!pd_core_done(w->core, ticket)) return false;
    *rc = pd_core_finish(w->core, ticket, &reply, &bytes, err);
    free(reply);
    return true;
}

static bool is_worth_another_try(int code)
{
    return code == PD_RESOURCE_EXHAUSTED || code == PD_NO_MEMORY;
}

/* A deadline has passed. Of a job whose rank has gone for good it names that rank. */
static void note_deadline(sim_worker *w, const pd_error *err)
{
    char name[24];

    note(w, err->text, w->step, 0);
    if (w->job->missing == w->job->world || !w->s->calm) return;
    snprintf(name, sizeof name, "rank %u", w->job->missing);
    if (strstr(err->text, name) != NULL) w->told_missing = true;
    else if (strstr(err->text, "waits for") == NULL && strstr(err->text, "rank") == NULL && strstr(err->text, "waited") == NULL)
        sim_fail("liveness", "%s rank %u: rank %u is missing, and the error is \"%.300s\"", w->job->name, w->rank, w->job->missing, err->text);
}

static void declare(sim_worker *w)
{
    pd_client_param params[SIM_PARAMS];
    pd_error err;

    memset(params, 0, sizeof params);
    for (uint32_t p = 0; p < w->job->n_params; p++) {
        const sim_param *param = &w->job->params[p];
        params[p] = (pd_client_param){ .name = param->name, .shape = param->shape, .ranged = param->ranged, .model_state = param->model_state };
        if (param->ranged) sim_range(w->job, param, w->rank, &params[p].start, &params[p].end);
    }
    if (pd_core_declare(w->core, params, w->job->n_params, &w->ticket, &err) != PD_OK) end_refused(w, err.code, err.text);
    else go_on(w, DECLARE);
}

static void fetch(sim_worker *w)
{
    pd_error err;

    if (pd_core_fetch(w->core, (void *const *)w->weights, &w->ticket, &err) != PD_OK) end_refused(w, err.code, err.text);
    else go_on(w, FETCH);
}

static void init_weights(sim_worker *w)
{
    pd_error err;

    if (!pd_core_must_init(w->core)) {
        fetch(w);
        return;
    }
    for (uint32_t p = 0; p < w->job->n_params; p++) sim_initial(w->job, w->rank, w->process, p, w->weights[p]);
    if (pd_core_init(w->core, (void *const *)w->weights, &w->ticket, &err) != PD_OK) end_refused(w, err.code, err.text);
    else go_on(w, INIT);
}

static void on_declared(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    if (rc == PD_OK) init_weights(w);
    else if (is_worth_another_try(rc)) rest(w, DECLARE, err.text);
    else end_refused(w, rc, err.text);
}

static void on_initialised(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    if (rc == PD_OK) fetch(w);
    else if (is_worth_another_try(rc) || rc == PD_DEADLINE_EXCEEDED) rest(w, INIT, err.text);
    else end_refused(w, rc, err.text);
}

static void on_fetched(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    if (rc == PD_OK) {
        go_on(w, STEP);
        return;
    }
    if (rc == PD_DEADLINE_EXCEEDED) note_deadline(w, &err);
    if (w->told_missing) end_process(w);
    else if (rc == PD_DEADLINE_EXCEEDED || is_worth_another_try(rc)) rest(w, FETCH, err.text);
    else end_refused(w, rc, err.text);
}

/* ---- steps ---- */

static uint64_t least_step(const sim_worker *w)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t p = 0; p < w->job->n_params; p++) {
        uint64_t step = pd_core_step(w->core, p);
        if (step < least) least = step;
    }
    return least;
}

/* Parameters of this step, in an order of this worker's own. */
static size_t choose(sim_worker *w, uint32_t *order)
{
    size_t n = 0;

    for (uint32_t p = 0; p < w->job->n_params; p++)
        if (pd_core_step(w->core, p) + 1 == w->step) order[n++] = p;
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)sim_draw(w->s, i);
        uint32_t swap = order[k];
        order[k] = order[i - 1];
        order[i - 1] = swap;
    }
    return n;
}

/* In such steps a worker names only what it has a gradient of, and closes the step. */
static bool closes_step(const sim_worker *w)
{
    return sim_mix(w->job->number + 9, w->rank, w->step, 5) % 3 == 0;
}

static pd_item item_of(sim_worker *w, uint32_t p)
{
    pd_item item = { .param = p, .weights = w->weights[p] };

    if (!sim_has_gradient(w->job, w->rank, w->step, p)) return item;
    sim_gradient(w->job, w->rank, w->step, p, w->finite, w->gradients[p]);
    item.gradient = w->gradients[p];
    return item;
}

static int push(sim_worker *w, call *c, pd_error *err)
{
    pd_push_options options = { .weight = sim_weight(w->job, w->rank, w->step) };

    c->pulls = !sim_chance(w->s, 4);
    return pd_core_push(w->core, c->pulls ? PD_PUSH_PULL : PD_PUSH, c->items, c->n, &options, &c->ticket, err);
}

/* Several pushes at once; a small one may be the whole step. */
static void begin_step(sim_worker *w)
{
    uint32_t order[SIM_PARAMS];
    size_t n, calls = 1 + (size_t)sim_draw(w->s, CALLS);
    pd_error err;

    w->step = least_step(w) + 1;
    if (w->step > w->job->steps) {
        if (pd_core_leave(w->core, &w->ticket, &err) != PD_OK) end_refused(w, err.code, err.text);
        else go_on(w, LEAVING);
        return;
    }
    n = choose(w, order);
    w->n_calls = 0;
    w->close_ns = 0;
    note(w, "begins step", w->step, n);
    for (size_t c = 0, i = 0; c < calls; c++) {
        call *one = &w->calls[w->n_calls];
        one->n = 0;
        one->again_ns = 0;
        for (size_t end = n * (c + 1) / calls; i < end; i++)
            if (sim_has_gradient(w->job, w->rank, w->step, order[i]) || !closes_step(w)) one->items[one->n++] = item_of(w, order[i]);
        if (one->n == 0) continue;
        if (push(w, one, &err) != PD_OK) {
            end_refused(w, err.code, err.text);
            return;
        }
        w->n_calls++;
    }
    w->ticket = 0;
    if (closes_step(w) && pd_core_close_step(w->core, w->step, &w->ticket, &err) != PD_OK) end_refused(w, err.code, err.text);
    else go_on(w, STEPPING);
}

/* Weights that came: whole, of one version, and none older than before. */
static void check_pulled(sim_worker *w, const call *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const pd_item *item = &c->items[i];
        int64_t start, end;
        if (item->outcome < 0) continue;
        if (item->version < w->versions[item->param])
            sim_fail("consistency", "%s rank %u: %s went from version %llu back to %llu", w->job->name, w->rank, w->job->params[item->param].name,
                     (unsigned long long)w->versions[item->param], (unsigned long long)item->version);
        w->versions[item->param] = item->version;
        sim_range(w->job, &w->job->params[item->param], w->rank, &start, &end);
        sim_judge_weights(w->s, w->job, (uint32_t)item->param, item->version, item->weights, start, end - start);
    }
}

/* What a refused push means for the next try. True: there is one. */
static bool try_again(sim_worker *w, int rc, const pd_error *err)
{
    bool infinite = false;

    if (rc == PD_DEADLINE_EXCEEDED) {
        note_deadline(w, err);
        return true;
    }
    for (uint32_t p = 0; p < w->job->n_params; p++) infinite = infinite || sim_gradient_is_infinite(w->job, w->rank, w->step, p);
    if (rc == PD_INVALID_ARGUMENT && w->job->rejects && infinite) {
        w->finite = true;
        return true;
    }
    if (rc == PD_FAILED_PRECONDITION && strstr(err->text, "its push of this parameter was refused") != NULL) return infinite || memory_was_short();
    return is_worth_another_try(rc);
}

/* Ends a ticket that is done, of a push (or pull) or, where `c` is NULL, of a step's closing. *again_ns: when it is tried once more. False: the
 * process has ended. */
static bool finish_ticket(sim_worker *w, pd_ticket_id *ticket, const call *c, uint64_t *again_ns)
{
    pd_error err;
    int rc;

    if (*ticket == 0 || !is_done(w, *ticket, &rc, &err)) return true;
    *ticket = 0;
    if (rc == PD_OK) {
        if (c != NULL && c->pulls) check_pulled(w, c);
        return true;
    }
    if (!try_again(w, rc, &err)) {
        end_refused(w, rc, err.text);
        return false;
    }
    *again_ns = w->s->now_ns + RETRY_MS * SIM_MS;
    return true;
}

/* What is not closed yet is pushed once more, the same bytes unless they were refused. */
static int send_again(sim_worker *w, call *c, pd_error *err)
{
    size_t n = 0;

    c->again_ns = 0;
    if (w->phase == PULLING) return pd_core_pull(w->core, c->items, c->n, w->step, &c->ticket, err);
    for (size_t i = 0; i < c->n; i++)
        if (pd_core_step(w->core, c->items[i].param) + 1 == w->step) c->items[n++] = item_of(w, (uint32_t)c->items[i].param);
    c->n = n;
    return n > 0 ? push(w, c, err) : PD_OK;
}

static void after_step(sim_worker *w)
{
    pd_error err;

    w->finite = false;
    if (!w->job->barriers || w->step % 2 == 1) {
        go_on(w, STEP);
    } else if (pd_core_barrier(w->core, &w->ticket, &err) != PD_OK) {
        end_refused(w, err.code, err.text);
    } else {
        go_on(w, BARRIER);
    }
}

/* Pulls what one push did not bring. False: all of them did. */
static bool pull(sim_worker *w)
{
    call *c = &w->calls[0];
    pd_error err;

    while (c < w->calls + w->n_calls && (c->pulls || c->n == 0)) c++;
    if (c == w->calls + w->n_calls) return false;
    c->pulls = true;
    if (pd_core_pull(w->core, c->items, c->n, w->step, &c->ticket, &err) != PD_OK) end_refused(w, err.code, err.text);
    else go_on(w, PULLING);
    return true;
}

static bool is_due(const sim_worker *w, uint64_t at_ns) { return at_ns != 0 && w->s->now_ns >= at_ns; }

/* Looks at one push. True: it is neither answered nor given up. */
static bool is_open(sim_worker *w, call *c)
{
    pd_error err;

    if (!finish_ticket(w, &c->ticket, c, &c->again_ns)) return true;
    if (is_due(w, c->again_ns) && send_again(w, c, &err) != PD_OK) end_refused(w, err.code, err.text);
    return c->ticket != 0 || c->again_ns != 0;
}

static bool is_closing(sim_worker *w)
{
    pd_error err;

    if (!finish_ticket(w, &w->ticket, NULL, &w->close_ns)) return true;
    if (is_due(w, w->close_ns)) {
        w->close_ns = 0;
        if (pd_core_close_step(w->core, w->step, &w->ticket, &err) != PD_OK) end_refused(w, err.code, err.text);
    }
    return w->ticket != 0 || w->close_ns != 0;
}

static void on_step(sim_worker *w)
{
    bool open = false;

    for (size_t c = 0; c < w->n_calls && w->phase != ENDED; c++) open = is_open(w, &w->calls[c]) || open;
    if (w->phase != ENDED) open = is_closing(w) || open;
    if (w->phase == ENDED) return;
    if (w->told_missing) {
        note(w, "gives up", w->step, 0);
        end_process(w);
    } else if (!open && !pull(w)) {
        after_step(w);
    }
}

static void on_barrier(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    if (rc != PD_OK) end_refused(w, rc, err.text);
    else go_on(w, STEP);
}

static void on_left(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    note(w, "has left", rc == PD_OK, 0);
    w->finished = w->step > w->job->steps;
    if (rc == PD_OK || w->dropped) end_process(w);
    else end_refused(w, rc, err.text);
}

static void on_rest(sim_worker *w)
{
    if (w->s->now_ns < w->alarm_ns) return;
    w->alarm_ns = 0;
    switch (w->after) {
    case DECLARE: declare(w); break;
    case INIT:    init_weights(w); break;
    case FETCH:   fetch(w); break;
    default:      go_on(w, STEP); break;
    }
}

static void on_welcome(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    if (rc == PD_OK && pd_core_welcome(w->core)->created && is_over(w)) end_process(w);       /* the job has ended without it */
    else if (rc == PD_OK) declare(w);
    else if (is_worth_another_try(rc) && memory_was_short()) end_dropped(w);
    else end_refused(w, rc, err.text);
}

/* The program of the process, as far as it can go now. */
static void run_program(sim_worker *w)
{
    phase before;

    do {
        before = w->phase;
        switch (w->phase) {
        case WELCOME:  on_welcome(w); break;
        case DECLARE:  on_declared(w); break;
        case INIT:     on_initialised(w); break;
        case FETCH:    on_fetched(w); break;
        case STEP:     begin_step(w); break;
        case STEPPING: case PULLING: on_step(w); break;
        case BARRIER:  on_barrier(w); break;
        case LEAVING:  on_left(w); break;
        case RESTING:  on_rest(w); break;
        case ENDED:    break;
        }
    } while (w->phase != before && w->phase != ENDED);
}

/* ---- the I/O of the process ---- */

static void on_clock(sim *s, void *who, uint64_t what);
static void carry(sim_worker *w);

static void no_lock(void *arg) { (void)arg; }

static void on_transport(void *arg, unsigned events)
{
    sim_worker *w = arg;
    sim_side before = sim_enter(SIM_WORKER);

    if (w->phase != ENDED) {
        while (pd_pump_ready(&w->pump, events, w->s->now_ns)) events = PD_ON_READ;
        carry(w);
    }
    sim_enter(before);
}

static void connect_to_server(sim_worker *w)
{
    pd_transport *transport = sim_server_connect(w->s->server, &w->link);

    if (transport == NULL) {
        pd_pump_lose(&w->pump, w->s->now_ns, "nobody listens");
        return;
    }
    note(w, "connects", w->process, 0);
    transport->ready = on_transport;
    transport->arg = w;
    pd_pump_open(&w->pump, transport, w->s->now_ns);
}

/* Connections are made and dropped as the core asks. */
static void tend_connection(sim_worker *w)
{
    pd_link link = pd_core_link(w->core, w->s->now_ns);

    if (link == PD_LINK_CONNECT) connect_to_server(w);
    else if (link == PD_LINK_DROP) pd_pump_lose(&w->pump, w->s->now_ns, "dropped");
    if (w->pump.transport == NULL) w->link = NULL;
}

static void set_alarm(sim_worker *w)
{
    uint64_t at = pd_core_next(w->core), now = w->s->now_ns;

    if (w->phase == RESTING && w->alarm_ns < at) at = w->alarm_ns;
    for (size_t c = 0; c < w->n_calls; c++)
        if (w->calls[c].again_ns != 0 && w->calls[c].again_ns < at) at = w->calls[c].again_ns;
    if (w->close_ns != 0 && w->close_ns < at) at = w->close_ns;
    if (at == UINT64_MAX) return;
    sim_after(w->s, at > now ? at - now : 1000, on_clock, w, 0);
}

static void carry(sim_worker *w)
{
    const pd_error *ended;

    for (int i = 0; i < 3; i++) {
        tend_connection(w);
        run_program(w);
        if (w->phase == ENDED) return;
        if (w->pump.transport != NULL)
            while (pd_pump_send(&w->pump, w->s->now_ns)) continue;
    }
    if ((ended = pd_core_ended(w->core)) != NULL) {
        end_refused(w, ended->code, ended->text);
        return;
    }
    set_alarm(w);
}

static void on_clock(sim *s, void *who, uint64_t what)
{
    sim_worker *w = who;
    sim_side before = sim_enter(SIM_WORKER);

    (void)s, (void)what;
    if (w->phase != ENDED) carry(w);
    sim_enter(before);
}

/* ---- life ---- */

static void make_buffers(sim_worker *w)
{
    for (uint32_t p = 0; p < w->job->n_params; p++) {
        int64_t start, end;
        sim_range(w->job, &w->job->params[p], w->rank, &start, &end);
        w->weights[p] = sim_must(calloc((size_t)(end - start) + 1, sizeof(float)));
        w->gradients[p] = sim_must(calloc((size_t)(end - start) + 1, sizeof(float)));
    }
}

static void make_core(sim_worker *w)
{
    const char *options[SIM_OPTIONS + 1] = { NULL }, *rules[2] = { w->job->rule, NULL };
    pd_core_config config = { .job = w->job->name, .label = "sim", .rank = w->rank, .world_size = w->job->world, .options = options, .rules = rules,
                              .nonce = sim_mix(w->s->plan->seed, w->process, 3, 1) | 1, .urls = 1 };
    pd_error err;

    for (uint32_t o = 0; o < w->job->n_options; o++) options[o] = w->job->options[o];
    if (pd_core_new(&w->core, &config, &err) != PD_OK) sim_fail("harness", "%s", err.text);
    w->pump = (pd_pump){ .core = w->core, .enter = no_lock, .leave = no_lock };
    w->ticket = pd_core_welcome_ticket(w->core);
}

static void begin_process(sim *s, void *who, uint64_t what)
{
    const sim_job *job = who;
    sim_side before = sim_enter(SIM_WORKER);
    sim_worker *w = sim_must(calloc(1, sizeof *w));

    w->s = s;
    w->job = job;
    w->rank = (uint32_t)what;
    w->process = processes(s) + 1;
    w->asked_ns = s->now_ns;
    make_buffers(w);
    make_core(w);
    w->next = s->workers;
    s->workers = w;
    note(w, "starts as process", w->process, 0);
    carry(w);
    sim_enter(before);
}

static uint64_t coming;                 /* processes that are about to start */

static void begin_coming(sim *s, void *who, uint64_t what)
{
    coming--;
    begin_process(s, who, what);
}

void sim_worker_start(sim *s, const sim_job *job, uint32_t rank, uint64_t delay_ns)
{
    coming++;
    sim_after(s, delay_ns, begin_coming, (void *)job, rank);
}

sim_worker *sim_worker_at(sim *s, uint32_t job, uint32_t rank)
{
    sim_worker *w = s->workers;

    while (w != NULL && (w->phase == ENDED || w->job->number != job || w->rank != rank)) w = w->next;
    return w;
}

void sim_worker_kill(sim_worker *w)
{
    note(w, "dies", 0, 0);
    end_process(w);
}

/* Whatever it waits for is given up. */
void sim_worker_leave(sim_worker *w)
{
    sim_side before = sim_enter(SIM_WORKER);
    pd_error err;

    if (w->phase > DECLARE && w->phase < LEAVING && pd_core_leave(w->core, &w->ticket, &err) == PD_OK) {
        note(w, "leaves in the middle", w->step, 0);
        go_on(w, LEAVING);
        carry(w);
    } else {
        sim_worker_kill(w);
    }
    sim_enter(before);
}

sim_link *sim_worker_link(sim_worker *w) { return w->pump.transport != NULL ? w->link : NULL; }

void sim_worker_note_drop(sim *s, uint32_t job)
{
    for (sim_worker *w = s->workers; w != NULL; w = w->next)
        if (w->phase != ENDED && w->job->number == job) w->dropped = true;
}

bool sim_workers_done(const sim *s)
{
    for (const sim_worker *w = s->workers; w != NULL; w = w->next)
        if (w->phase != ENDED) return false;
    return coming == 0;
}

/* Roots that the job waits for may take their time, which it shares with the other jobs. Where a gradient is rejected while other tensors of its push
 * wait for the whole job, the ticket ends with the round's deadline. */
static uint64_t patience_ns(const sim_worker *w)
{
    uint64_t roots = 0, deadline = w->job->rejects ? (uint64_t)(w->job->step_timeout * 1e9) * w->job->steps : 0;

    for (uint32_t p = 0; p < w->job->n_params && !w->job->plain; p++) roots += 2 + (uint64_t)w->job->params[p].n / 2;
    return 10 * SIM_S + deadline + roots * w->s->plan->n_jobs * w->s->plan->root_ns;
}

void sim_workers_describe(const sim *s)
{
    for (const sim_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->phase == ENDED) continue;
        printf("%s rank %u, process %llu: %s of step %llu, %s%s\n", w->job->name, w->rank, (unsigned long long)w->process, phase_names[w->phase],
               (unsigned long long)w->step, w->pump.transport == NULL ? "not connected" : w->pump.blocked ? "cannot send" : "can send",
               pd_core_has_output(w->core) ? ", has more to send" : "");
        for (size_t c = 0; c < w->n_calls; c++)
            printf("  push %zu: %zu items from p%zu on, ticket %llu, again at %.3f s\n", c, w->calls[c].n, w->calls[c].items[0].param,
                   (unsigned long long)w->calls[c].ticket, (double)w->calls[c].again_ns / 1e9);
    }
}

void sim_workers_check(sim *s)
{
    for (const sim_worker *w = s->workers; w != NULL; w = w->next) {
        uint64_t since = w->asked_ns > s->plan->calm_ns ? w->asked_ns : s->plan->calm_ns, patience = patience_ns(w);
        if (w->phase == ENDED || s->now_ns < since + patience || sim_server_draining(s->server)) continue;
        if (w->job->missing < w->job->world && s->now_ns < since + patience + 61 * SIM_S) continue;
        sim_fail("liveness", "%s rank %u waits for %s of step %llu since %.1f s, and nobody answers (%s)", w->job->name, w->rank, phase_names[w->phase],
                 (unsigned long long)w->step, (double)(s->now_ns - since) / 1e9, pd_core_reason(w->core));
    }
}

void sim_workers_free(sim *s)
{
    sim_side before = sim_enter(SIM_WORKER);

    while (s->workers != NULL) {
        sim_worker *w = s->workers;
        s->workers = w->next;
        end_process(w);
        free(w);
    }
    coming = 0;
    sim_enter(before);
}
