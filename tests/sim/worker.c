/* worker.c - the start, the connection and the end of a process of a training job, and how long it may wait. */
#include "intruder.h"
#include "sim_judge.h"
#include "program.h"
#include "relaunch.h"
#include "sim_sets.h"
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESTART_MS = 300 };

static uint64_t processes(const sim *s)
{
    return s->workers != NULL ? s->workers->process : 0;
}

static uint64_t nonce_of(const sim *s, uint64_t process)
{
    return sim_mix(s->plan->seed, process, 3, 1) | 1;
}

void sim_worker_trace(sim_worker *w, const char *what, uint64_t a, uint64_t b)
{
    char who[40];

    snprintf(who, sizeof who, "%s rank", w->job->name);
    sim_note(w->s, who, w->rank, what, a, b);
}

void sim_worker_end(sim_worker *w)
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
    sim_rests_free(&w->rests);
    sim_enter(before);
}

/* The job has ended while this process was a member, so a new process begins the job anew. */
void sim_worker_end_dropped(sim_worker *w)
{
    sim_worker_trace(w, "ends with its job", 0, 0);
    sim_worker_end(w);
    sim_worker_start(w->s, w->job, w->place, RESTART_MS * SIM_MS);
}

/* Returns whether a newer process was started at this rank. */
static bool is_superseded(const sim_worker *w)
{
    for (const sim_worker *other = w->s->workers; other != w; other = other->next)
        if (other->job->number == w->job->number && other->place == w->place) return true;
    return false;
}

/* Returns whether an older process may have taken the rank from this process. The server can read the Hello of an older
 * process, even of a dead one, after the Hello of this newer one. A new process must then take the rank again. But if
 * an older process that lives was welcomed before this one, this process was superseded, and must not come back. */
static bool came_after_the_dead(const sim_worker *w)
{
    bool any = false;

    for (const sim_worker *other = w->next; other != NULL; other = other->next) {
        if (other->job->number != w->job->number || other->place != w->place) continue;
        if (other->phase == ENDED && other->welcomed_ns == 0) return true; /* a dead process's Hello may still arrive */
        if (other->phase != ENDED && !other->dropped && other->welcomed_ns != 0 && other->welcomed_ns < w->welcomed_ns)
            return false;
        any = true;
    }
    return any;
}

/* Ends a process that has seen weights of a course which the job does not take again: the server was killed before the
 * disk had the record of a root or a value. With barriers the whole job is launched again, since a single new process
 * would count them from 0. */
static void end_misled(sim_worker *w)
{
    if (!w->job->barriers) {
        sim_worker_end_dropped(w);
        return;
    }
    sim_relaunch(w->s, w->job);
    sim_worker_end(w);
}

/* Returns whether the plan has a fault of this kind for the process's job. */
static bool has_fault(const sim_worker *w, sim_fault_kind kind)
{
    const sim_plan *plan = w->s->plan;

    for (uint32_t f = 0; f < plan->n_faults; f++)
        if (plan->faults[f].kind == kind && plan->faults[f].job == w->job->number) return true;
    return false;
}

/* Returns the process that has begun with this nonce; NULL: there is none. */
static const sim_worker *process_of(const sim *s, uint64_t nonce)
{
    const sim_worker *w = s->workers;

    while (w != NULL && nonce_of(s, w->process) != nonce) w = w->next;
    return w;
}

uint64_t sim_worker_generation(const sim *s, uint64_t nonce)
{
    const sim_worker *w = process_of(s, nonce);

    return w != NULL ? w->generation : 0;
}

uint32_t sim_worker_place(const sim *s, uint64_t nonce)
{
    const sim_worker *w = process_of(s, nonce);

    return w != NULL ? w->place : SIM_WORLD;
}

/* Ends the process if the error is expected. An unexpected error violates an invariant. */
void sim_worker_end_refused(sim_worker *w, int code, const char *text)
{
    if (strstr(text, "has dropped the job") != NULL || strstr(text, "the job has ended") != NULL)
        w->dropped = true; /* the operator's drop was sent, and is not carried out yet */
    if (w->dropped && (code == PD_ABORTED || code == PD_FAILED_PRECONDITION || code == PD_NOT_FOUND)) {
        sim_worker_end_dropped(w);
        return;
    }
    if ((sim_server_draining(w->s->server) && code == PD_UNAVAILABLE) || (code == PD_ABORTED && is_superseded(w))) {
        sim_worker_end(w);
        return;
    }
    if (strstr(text, " was formed again as generation ") != NULL && w->generation < sim_generation(w->s, w->job)) {
        sim_worker_end(w);
        return;
    }
    if (code == PD_ABORTED && strstr(text, "removed") != NULL && strstr(text, "stays out") != NULL &&
        has_fault(w, SIM_KICK)) {
        sim_worker_end_dropped(w);
        return;
    }
    if (code == PD_DATA_LOSS || (code == PD_ABORTED && strstr(text, "taken over") != NULL && came_after_the_dead(w))) {
        sim_worker_end_dropped(
            w); /* the job ended while all its workers were away, or the server read the Hello of a dead process late */
        return;
    }
    /* The process at its rank is gone since, and the other ranks have workers. */
    if (code == PD_ABORTED && strstr(text, "and no other rank is free") != NULL && w->job->open.any_rank) {
        sim_worker_end_dropped(w);
        return;
    }
    if (code == PD_ALREADY_EXISTS && w->job->runless) { /* the process that it replaces is not known to be dead yet */
        sim_worker_end_dropped(w);
        return;
    }
    if (code == PD_FAILED_PRECONDITION && strstr(text, "than the first time") != NULL &&
        sim_judge_is_loose(w->s, w->job)) {
        end_misled(w);
        return;
    }
    if (w->job->open.on && strstr(text, "already in the mean") != NULL) { /* an operator must drop the job */
        sim_drop_job(w->s, w->job->number);
        sim_program_rest(w, INIT, "asks the operator to drop the job");
        return;
    }
    if ((sim_failed_allocations() > 0)) { /* after failed allocations, a refused worker starts as a new process */
        sim_worker_end_dropped(w);
        return;
    }
    if (code == PD_FAILED_PRECONDITION && strstr(text, " has world_size = ") != NULL &&
        sim_relaunch_again(w->s, w->job)) {
        sim_worker_end(w); /* the server was killed before the disk had a checkpoint with the new number of workers */
        return;
    }
    sim_fail("liveness", "%s rank %u, step %llu, %s: %s: %s", w->job->name, w->rank, (unsigned long long)w->step,
             sim_phase_names[w->phase], pd_code_name(code), text);
}

static void on_clock(sim *s, void *who, uint64_t what);
static void carry(sim_worker *w);

static void no_lock(void *arg)
{
    (void)arg;
}

static void on_transport(void *arg, unsigned events)
{
    sim_worker *w = arg;
    sim_side before = sim_enter(SIM_WORKER);

    if (w->phase != ENDED && w->s->now_ns >= w->asleep_ns) {
        while (pd_pump_ready(&w->pump, events, w->s->now_ns)) events = PD_ON_READ;
        carry(w);
    }
    sim_enter(before);
}

/* Returns whether the next connection of the process passes descriptors. A process that shares memory comes back over
 * another network at times. */
static bool is_local(sim_worker *w)
{
    return w->shares && !sim_once_in(&w->sharing, 4);
}

static void connect_to_server(sim_worker *w)
{
    pd_transport *transport;

    w->s->identity = sim_plan_identity(w->s->plan, w->job->number, w->place);
    transport = sim_server_connect(w->s->server, is_local(w), &w->link);
    w->s->identity = NULL;
    if (transport == NULL) {
        pd_pump_lose(&w->pump, w->s->now_ns, "nobody listens");
        return;
    }
    sim_worker_trace(w, "connects", w->process, 0);
    transport->ready = on_transport;
    transport->arg = w;
    pd_pump_open(&w->pump, transport, w->s->now_ns);
}

/* Opens or drops the connection as the client core requests. */
static void tend_connection(sim_worker *w)
{
    pd_link link = pd_core_link(w->core, w->s->now_ns);

    if (link == PD_LINK_CONNECT)
        connect_to_server(w);
    else if (link == PD_LINK_DROP)
        pd_pump_lose(&w->pump, w->s->now_ns, "dropped");
    if (w->pump.transport == NULL) w->link = NULL;
}

static void set_alarm(sim_worker *w)
{
    uint64_t at = pd_core_next(w->core), now = w->s->now_ns;

    if (w->phase == RESTING && w->alarm_ns < at) at = w->alarm_ns;
    for (size_t c = 0; c < w->n_calls; c++)
        if (w->calls[c].again_ns != 0 && w->calls[c].again_ns < at) at = w->calls[c].again_ns;
    if (w->close_ns > now && w->close_ns < at) at = w->close_ns;
    if (at == UINT64_MAX) return;
    sim_after(w->s, at > now ? at - now : 1000, on_clock, w, 0);
}

static void carry(sim_worker *w)
{

    for (int i = 0; i < 3; i++) {
        tend_connection(w);
        if (w->core->end.gone_back && w->phase != ENDED) sim_program_go_back(w);
        sim_program_run(w);
        if (w->phase == ENDED) return;
        if (w->pump.transport != NULL)
            while (pd_pump_send(&w->pump, w->s->now_ns)) continue;
    }
    if (w->core->end.error.code != PD_OK) {
        sim_worker_end_refused(w, w->core->end.error.code, w->core->end.error.text);
        return;
    }
    set_alarm(w);
}

static void on_clock(sim *s, void *who, uint64_t what)
{
    sim_worker *w = who;
    sim_side before = sim_enter(SIM_WORKER);

    (void)what;
    if (w->phase != ENDED && s->now_ns >= w->asleep_ns) carry(w);
    sim_enter(before);
}

/* Lets a process go on that was stopped: it reads what has come meanwhile. */
static void wake_up(sim *s, void *who, uint64_t what)
{
    sim_worker *w = who;

    (void)what;
    if (w->phase == ENDED || s->now_ns < w->asleep_ns) return;
    sim_worker_trace(w, "goes on", 0, 0);
    if (w->pump.transport != NULL) sim_end_poll(w->pump.transport);
    on_clock(s, w, 0);
}

void sim_worker_stop(sim_worker *w, uint64_t ns)
{
    sim_worker_trace(w, "is stopped", 0, 0);
    w->asleep_ns = w->s->now_ns + ns;
    sim_after(w->s, ns, wake_up, w, 0);
}

static void make_buffers(sim_worker *w)
{
    for (uint32_t p = 0; p < w->job->n_params; p++) {
        int64_t start, end;
        sim_range(w->job, &w->job->params[p], w->rank, &start, &end);
        w->weights[p] = sim_must(calloc((size_t)(end - start) + 1, sizeof(float)));
        w->gradients[p] = sim_must(calloc((size_t)(end - start) + 1, sizeof(float)));
    }
}

static void draw_sharing(sim_worker *w)
{
    w->sharing = sim_mix(w->s->plan->seed, w->process, 8, 1);
    w->shares = w->s->plan->shares && !sim_once_in(&w->sharing, 4);
    w->in_place = w->shares && sim_once_in(&w->sharing, 2);
}

static void make_core(sim_worker *w)
{
    const char *options[SIM_OPTIONS + 1] = { NULL }, *rules[2] = { w->job->rule, NULL };
    pd_core_config config = { .job = w->job->name,
                              .label = "sim",
                              .rank = w->job->open.any_rank ? 0 : w->rank,
                              .world_size = w->job->world,
                              .run = w->job->runless ? NULL : "launch",
                              .options = options,
                              .rules = rules,
                              .nonce = nonce_of(w->s, w->process),
                              .no_shared_memory = !w->shares,
                              .window = w->job->window[w->place],
                              .generation = w->generation,
                              .any_rank = w->job->open.any_rank,
                              .group = w->job->open.group > 1 ? 1 + w->place / w->job->open.group : 0,
                              .shares = sim_wanted(w->job, w->rank, 0),
                              .feedback = w->job->open.carries ? PD_FEEDBACK_CARRY : PD_FEEDBACK_ON,
                              .least_shared = w->s->plan->least_shared,
                              .urls = 1 };
    pd_error err;

    for (uint32_t o = 0; o < w->job->n_options; o++) options[o] = w->job->options[o];
    if (pd_core_new(&w->core, &config, &err) != PD_OK) sim_fail("harness", "%s", err.text);
    w->pump = (pd_pump){ .core = w->core, .enter = no_lock, .leave = no_lock };
    w->ticket = w->core->welcome_ticket;
}

static uint64_t coming; /* number of processes that are about to start */
/* those of them that a launch starts beside the processes of an earlier one, by job and place */
static uint32_t coming_beside[SIM_JOBS][SIM_WORLD];

/* Returns whether the place has a process of the job's last launch that works, or is about to start. Another fault may
 * have started one. */
static bool is_manned(sim *s, const sim_job *job, uint32_t rank)
{
    const sim_worker *w = sim_worker_at(s, job->number, rank);

    if (coming_beside[job->number][rank] > 0) return true;
    return w != NULL && w->phase != LEAVING && (!job->open.reforms || w->generation == sim_generation(s, job));
}

static void begin_process(sim *s, void *who, uint64_t what)
{
    const sim_job *job = sim_job_now(s, who);
    sim_side before = sim_enter(SIM_WORKER);
    sim_worker *w = sim_must(calloc(1, sizeof *w));

    w->s = s;
    w->job = job;
    w->rank = w->place = (uint32_t)what;
    w->process = processes(s) + 1;
    w->asked_ns = s->now_ns;
    w->began = UINT64_MAX;
    w->launch = sim_generation(s, job);
    w->generation = job->open.reforms ? w->launch : 0;
    w->newest = sim_sets_newest(s, job);
    w->passed = sim_sets_barrier(s, job, w->newest);
    make_buffers(w);
    draw_sharing(w);
    make_core(w);
    w->next = s->workers;
    s->workers = w;
    sim_worker_trace(w, "starts as process", w->process, 0);
    carry(w);
    sim_enter(before);
}

static void begin_coming(sim *s, void *who, uint64_t what)
{
    coming--;
    if ((uint32_t)what < sim_job_now(s, who)->world && !is_manned(s, who, (uint32_t)what)) begin_process(s, who, what);
}

void sim_worker_start(sim *s, const sim_job *job, uint32_t rank, uint64_t delay_ns)
{
    coming++;
    sim_after(s, delay_ns, begin_coming, (void *)job, rank);
}

static void begin_beside(sim *s, void *who, uint64_t what)
{
    coming--;
    coming_beside[((const sim_job *)who)->number][what]--;
    begin_process(s, who, what);
}

void sim_worker_start_beside(sim *s, const sim_job *job, uint32_t place, uint64_t delay_ns)
{
    coming++;
    coming_beside[job->number][place]++;
    sim_after(s, delay_ns, begin_beside, (void *)job, place);
}

sim_worker *sim_worker_at(sim *s, uint32_t job, uint32_t place)
{
    sim_worker *w = s->workers;

    while (w != NULL && (w->phase == ENDED || w->job->number != job || w->place != place)) w = w->next;
    return w;
}

bool sim_worker_knows(const sim *s, uint32_t job, uint64_t creator, uint64_t course, uint32_t fragment, uint64_t step,
                      uint64_t nonce)
{
    for (const sim_worker *w = s->workers; w != NULL; w = w->next)
        if (w->phase != ENDED && w->job->number == job && w->core->recovery.creator == creator &&
            w->core->recovery.course == course && (nonce == 0 || w->core->setup.nonce == nonce) &&
            pd_core_highest_step(w->core, fragment) >= step)
            return true;
    return false;
}

bool sim_worker_repeats(const sim *s, uint32_t job, uint64_t creator, uint32_t rank, uint64_t step)
{
    for (const sim_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->phase == ENDED || w->job->number != job || w->core->recovery.creator != creator || w->rank != rank)
            continue;
        /* The server had counted a push that ended with an error: nobody has it to send it again. */
        if (w->unsent == step) return false;
        if (w->phase == STEPPING && w->step == step) return true;
        return w->job->window[w->place] > 0 && step > w->began && step <= w->step &&
               step + w->job->window[w->place] > w->step && pd_core_highest_step(w->core, 0) >= step;
    }
    return false;
}

void sim_worker_kill(sim_worker *w)
{
    sim_worker_trace(w, "dies", 0, 0);
    sim_worker_end(w);
}

/* Gives up all open requests of the process, and sends Leave. A process that has nothing to leave is killed. */
void sim_worker_leave(sim_worker *w)
{
    sim_side before = sim_enter(SIM_WORKER);
    pd_error err;

    if (w->phase > DECLARE && w->phase < LEAVING && pd_core_leave(w->core, &w->ticket, &err) == PD_OK) {
        sim_worker_trace(w, "leaves in the middle", w->step, 0);
        sim_program_go_on(w, LEAVING);
        carry(w);
    } else {
        sim_worker_kill(w);
    }
    sim_enter(before);
}

sim_link *sim_worker_link(sim_worker *w)
{
    return w->pump.transport != NULL ? w->link : NULL;
}

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

/* Returns whether the plan has a fault SIM_HOLE, which silences a connection. A client that has had no answer yet
 * drops a silent connection only after 10 s. */
static bool has_holes(const sim_plan *plan)
{
    bool any = false;

    for (uint32_t f = 0; f < plan->n_faults; f++) any = any || plan->faults[f].kind == SIM_HOLE;
    return any;
}

/* Returns how long a request may take. A step may wait for roots, which share the pool with the roots of other jobs. */
static uint64_t patience_ns(const sim_worker *w)
{
    uint64_t roots = 0;

    for (uint32_t p = 0; p < w->job->n_params && !w->job->plain; p++) roots += 2 + (uint64_t)w->job->params[p].n / 2;
    return 10 * SIM_S + (has_holes(w->s->plan) ? 10 * SIM_S : 0) + roots * w->s->plan->n_jobs * w->s->plan->root_ns +
           (w->job->open.meets ? 20 * SIM_S : 0) + w->job->open.grace_ns + w->job->open.patience_ns +
           10 * w->job->open.work_ns;
}

void sim_workers_describe(const sim *s)
{
    for (const sim_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->phase == ENDED) continue;
        printf("%s rank %u, process %llu: %s of step %llu, %s%s\n", w->job->name, w->rank,
               (unsigned long long)w->process, sim_phase_names[w->phase], (unsigned long long)w->step,
               w->pump.transport == NULL ? "not connected"
               : w->pump.blocked         ? "cannot send"
                                         : "can send",
               pd_core_has_output(w->core) ? ", has more to send" : "");
        if (w->ticket != 0 || w->close_ns != 0)
            printf("  ticket %llu, closes the step again at %.3f s\n", (unsigned long long)w->ticket,
                   (double)w->close_ns / 1e9);
        for (size_t c = 0; c < w->n_calls; c++)
            printf("  push %zu: %zu items from p%zu on, ticket %llu, again at %.3f s\n", c, w->calls[c].n,
                   w->calls[c].items[0].param, (unsigned long long)w->calls[c].ticket,
                   (double)w->calls[c].again_ns / 1e9);
    }
}

void sim_workers_check(sim *s)
{
    for (sim_worker *w = s->workers; w != NULL; w = w->next) {
        uint64_t since = w->asked_ns > s->plan->calm_ns ? w->asked_ns : s->plan->calm_ns, patience = patience_ns(w);
        if (w->phase == ENDED || s->now_ns < since + patience || sim_server_draining(s->server)) continue;
        /* It has begun the job anew while another process had finished it, and had not read so. None comes any more. */
        if (((w->phase == FETCH && w->step == 0) || w->core->welcome.created) && sim_is_finished(w)) {
            sim_worker_end(w);
            continue;
        }
        /* The server reports an open round once in each step_timeout: a worker that misses the first report gets the
         * second. */
        if (w->job->missing < w->job->world &&
            s->now_ns < since + patience + (uint64_t)(2e9 * w->job->step_timeout) + SIM_S)
            continue;
        sim_fail("liveness", "%s rank %u waits for %s of step %llu since %.1f s, and nobody answers (%s)", w->job->name,
                 w->rank, sim_phase_names[w->phase], (unsigned long long)w->step, (double)(s->now_ns - since) / 1e9,
                 w->core->link.reason);
    }
}

void sim_workers_free(sim *s)
{
    sim_side before = sim_enter(SIM_WORKER);

    while (s->workers != NULL) {
        sim_worker *w = s->workers;
        s->workers = w->next;
        sim_worker_end(w);
        free(w);
    }
    coming = 0;
    memset(coming_beside, 0, sizeof coming_beside);
    sim_enter(before);
}
