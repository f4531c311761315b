/* sim_step.c - the server's step thread and preconditioner pool as events. Random draws decide when they run, whether
 * mail is taken, and when a root is done. */
#include "server_state.h"

#include "sim_cluster.h"
#include "sim_disk_writer.h"
#include "sim_judge.h"
#include "sim_sets.h"
#include "scraper.h"
#include "optimizer.h"
#include "rig.h"
#include "store_inside.h"
#include "checkpoint_due.h"
#include "job_turn.h"

#include <stdio.h>
#include <stdlib.h>

static void wake_step(sim_server *server);

static uint64_t step_now(void *arg)
{
    sim_server *server = arg;

    if (server->step_clock_ns < server->s->now_ns) server->step_clock_ns = server->s->now_ns;
    if (server->step_clock_ns < server->s->now_ns + 20 * SIM_MS)
        server->step_clock_ns += sim_chance(server->s, 8) ? sim_draw(server->s, 2 * SIM_MS) : 100;
    return server->step_clock_ns;
}

/* The clock of the store, which only measures: reading it draws no random number and takes no time. */
static uint64_t measure(void *arg)
{
    const sim_server *server = arg;

    return server->step_clock_ns;
}

static void on_effects(void *arg, pd_mail *first, pd_mail *last)
{
    sim_server *server = arg;
    sim_side before = sim_enter(SIM_HARNESS);

    for (pd_mail *mail = first; mail != NULL && !server->dying; mail = mail->next) {
        const pd_effect *effect = (const pd_effect *)(const void *)mail;
        if (server->s->cluster != NULL)
            sim_cluster_effect(server, effect);
        else
            sim_judge_effect(server->s, server->store, effect);
        if (effect->kind == PD_EFF_STATS) sim_scrapers_published(server->s, effect->u.stats);
    }
    sim_enter(before);
    pd_mailbox_post(pd_conversation_effects(server->daemon), first, last);
}

void sim_step_post(sim_server *server, pd_request *request)
{
    request->mail.next = NULL;
    pd_mailbox_post(server->requests, &request->mail, &request->mail);
}

static void next_task(sim_server *server);

static pd_request **place_of(sim_server *server, const pd_request *request)
{
    for (int i = 0; i < SIM_POOL; i++)
        if (server->running[i] == request) return &server->running[i];
    sim_fail("harness", "more threads than there is room for");
}

/* A pool thread has finished a task. `what` has the kind of the thread, the number of the server, and the life of the
 * server in which the task began. */
static void task_is_done(sim *s, void *who, uint64_t what)
{
    sim_server *server = s->servers[what / 2 % SIM_SERVERS];
    uint64_t choice = what % 2;
    sim_side before;

    if (what / 2 / SIM_SERVERS != server->life) return;
    before = sim_enter(SIM_SERVER);
    server->busy[choice]--;
    *place_of(server, who) = NULL;
    sim_step_post(server, who);
    next_task(server);
    sim_enter(before);
}

/* Draws the duration of a task: a light root takes at most a millisecond, another root up to root_ns of the plan. */
static uint64_t duration_ns(sim *s, const struct pd_task *task)
{
    return pd_task_cost(task) < 3000 ? 1 + sim_draw(s, SIM_MS)
                                     : 1 + s->plan->root_ns / 2 + sim_draw(s, s->plan->root_ns / 2);
}

/* Lets each free pool thread of this kind take a task. */
static void take_tasks(sim_server *server, pd_precond_queue_choice choice, uint32_t threads)
{
    pd_request *request;

    while (server->busy[choice] < threads && (request = pd_precond_queue_take(server->roots, choice)) != NULL) {
        server->busy[choice]++;
        *place_of(server, NULL) = request;
        sim_fairness_take(&server->fairness, request->job, pd_task_cost(request->u.task.task),
                          choice == PD_PRECOND_QUEUE_ALL);
        sim_hold_failures(true); /* no allocation fails in a root: a failed root would change the weights */
        pd_task_run(request->u.task.task);
        sim_hold_failures(false);
        sim_note(server->s, "pool", request->job, "runs a root of parameter", request->u.task.param, choice);
        sim_after(server->s, duration_ns(server->s, request->u.task.task), task_is_done, request,
                  (server->life * SIM_SERVERS + server->number) * 2 + choice);
    }
}

/* Starts waiting tasks on free pool threads. In half of the runs the pool has one more thread, for light tasks only.
 * Small tasks in the simulation are all light, so in the other half the other threads run light tasks, too. */
static void next_task(sim_server *server)
{
    take_tasks(server, PD_PRECOND_QUEUE_ALL, server->s->plan->pool_threads);
    if (server->s->plan->seed % 2 == 0) take_tasks(server, PD_PRECOND_QUEUE_LIGHT, 1);
}

static void on_task(void *arg, pd_effect *effect)
{
    sim_server *server = arg;
    pd_request *unrun = NULL;

    if (pd_precond_queue_add(server->roots, effect->u.task.task, effect->job, effect->u.task.param, &unrun) != PD_OK) {
        sim_step_post(server, pd_precond_queue_refuse(effect));
        return;
    }
    if (unrun != NULL)
        sim_step_post(server, unrun);
    else
        sim_fairness_wait(&server->fairness, effect->job, pd_task_cost(effect->u.task.task));
    pd_effect_free(effect);
    next_task(server);
}

static void on_forget(void *arg, uint32_t job)
{
    sim_server *server = arg;
    pd_request *unrun = pd_precond_queue_forget(server->roots, job), *next;

    sim_fairness_forget(&server->fairness, job);
    for (; unrun != NULL; unrun = next) {
        next = (pd_request *)(void *)unrun->mail.next;
        sim_step_post(server, unrun);
    }
}

static void step_turn(sim *s, void *who, uint64_t what);

/* Schedules a turn of the step thread at the store's next deadline. */
static void set_timer(sim_server *server)
{
    uint64_t at = pd_turn_next_tick(&server->turn), now = server->s->now_ns;

    if (at == UINT64_MAX) return;
    sim_after(server->s, at > now ? at - now + 1000 : 1000, step_turn, server, ++server->step_timer);
}

/* Runs a turn of the step thread. `what` is 0 if mail has come, otherwise the number of the timer that has expired.
 * Only the timer that was set last counts. */
static void step_turn(sim *s, void *who, uint64_t what)
{
    sim_server *server = who;
    sim_side before;
    bool more, later = sim_chance(s, 4);

    if (what != 0 && what != server->step_timer) return;
    if (what == 0) server->step_due = false;
    if (server->turn.store == NULL) return;
    if (s->now_ns < server->step_not_before) {
        wake_step(server);
        return;
    }
    before = sim_enter(SIM_SERVER);
    if (!later) pd_turn_add(&server->turn, pd_mailbox_take(server->requests));
    more = pd_turn_run(&server->turn);
    sim_enter(before);
    sim_sets_look(server);
    if (more || later) wake_step(server);
    set_timer(server);
}

static void wake_step(sim_server *server)
{
    sim *s = server->s;
    uint64_t delay = 1 + sim_draw(s, sim_chance(s, 16) ? 10 * SIM_MS : 200000);

    if (server->step_due) return;
    server->step_due = true;
    if (server->step_not_before > s->now_ns + delay) delay = server->step_not_before - s->now_ns;
    sim_after(s, delay, step_turn, server, 0);
}

void sim_step_wake(sim_server *server)
{
    wake_step(server);
}

static void on_mail(void *arg)
{
    wake_step(arg);
}

static void describe_job(const pd_job *job)
{
    char missing[64];

    printf("  %s: inbox %s, chunks ready %s, waiting %s, ready %s, %u rounds open, retry at %.3f s\n", job->steps.name,
           job->waiting.inbox.first != NULL ? "yes" : "no", job->steps.chunks.ready != NULL ? "yes" : "no",
           job->steps.chunks.waiting != NULL ? "yes" : "no", job->steps.queue.ready != NULL ? "yes" : "no",
           job->steps.queue.n_open, (double)job->steps.shortage.retry_ns / 1e9);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        printf("    rank %u: state %d, declared %d, reserve %llu, held %llu, step %llu\n", r, (int)job->ranks[r].state,
               job->steps.quotas[r].declared, (unsigned long long)job->steps.quotas[r].reserve,
               (unsigned long long)job->steps.quotas[r].held, (unsigned long long)job->ranks[r].saved.step);
    if (job->steps.sets.open && job->steps.fragments != NULL) sim_sets_describe(job);
    for (uint32_t p = 0; p < job->steps.n_params; p++)
        printf("    %s: step %llu, stage %d, misses %s\n", job->steps.params[p].name,
               (unsigned long long)job->steps.params[p].saved.step, (int)job->steps.params[p].stage,
               pd_round_missing(&job->steps.params[p].round, missing, sizeof missing));
}

void sim_step_describe(const sim_server *server)
{
    const pd_job *job, *next;

    printf("the store at the end: %s\n", server->store->due != NULL ? "has work" : "has nothing to do");
    HASH_ITER(hh, server->store->jobs.names, job, next) describe_job(job);
}

void sim_check_zero(const char *what, uint64_t n)
{
    if (n != 0) sim_fail("accounting", "at rest %s is %llu, expected 0", what, (unsigned long long)n);
}

/* Bytes of a job without parameters, for which nothing is committed yet. */
enum { JOB_BYTES = 12 * 1024 };

/* Checks that no deadline of a job is later than the store says. */
static void check_deadlines(const pd_store *store)
{
    const pd_job *job, *next;

    HASH_ITER(hh, store->jobs.names, job, next)
    if (pd_job_next_tick(job) < pd_store_next_tick(store) || pd_checkpoint_next_tick(job) < pd_store_next_tick(store))
        sim_fail("liveness", "a deadline of %s is earlier than the store's next", job->steps.name);
}

void sim_step_check(const sim_server *server)
{
    const pd_store *store = server->store;
    uint64_t more, live = (uint64_t)sim_live_bytes(SIM_SERVER), jobs = store->jobs.n * (uint64_t)JOB_BYTES;

    /* Memory is counted for all servers together. */
    if (server->s->n_servers == 1 && !server->step_due && !pd_flows_wait(&server->turn.flows, true) &&
        server->n_checkpoints + server->n_records == 0 && sim_loop_rests(server, &more) &&
        live > store->budget.used + more + jobs)
        sim_fail("accounting", "at rest %llu bytes are held; jobs have committed %llu, and %llu are for all else",
                 (unsigned long long)live, (unsigned long long)store->budget.used, (unsigned long long)(more + jobs));
    check_deadlines(store);
    if (store->budget.used > store->budget.limit)
        sim_fail("accounting", "%llu bytes are committed, %llu are allowed", (unsigned long long)store->budget.used,
                 (unsigned long long)store->budget.limit);
}

void sim_step_check_rest(const sim_server *server)
{
    sim_check_zero("the number of jobs", server->store->jobs.n);
    sim_check_zero("memory committed", server->store->budget.used);
    sim_check_zero("ingest reserved in the store", server->store->ingest.reserved);
    sim_check_zero("the number of ranks", server->store->ingest.n_ranks);
    sim_check_zero("bytes of frames held in the store", server->store->ingest.held);
}

static pd_store_config store_config(const sim_plan *plan, uint32_t number, uint64_t start)
{
    return (pd_store_config){ .max_jobs = 16,
                              .max_params = 64,
                              .max_total_bytes = 64 << 20,
                              .ingest_bytes = plan->ingest,
                              .chunk_elements = plan->chunk,
                              .frame_bytes = plan->payload,
                              .threads = 1,
                              .pool_threads = (int)plan->pool_threads,
                              .keeps = plan->crashes,
                              .mirrors = plan->mirrors,
                              .batch_ns = plan->batch_ns,
                              .stats_ns = plan->scrapes ? PD_STATS_NS : 0,
                              .hash_key = { 1, 2 + number },
                              .start = start };
}

void sim_step_make(sim_server *server)
{
    /* Daemons that own one shard after the other must not draw the same numbers for jobs. */
    uint64_t first = server->s->plan->spares > 0 ? 1000 * (server->number + 1) : 0;
    pd_store_config config = store_config(server->s->plan, server->number, first + ++server->starts);
    pd_error err;

    config.clock_ns = measure;
    config.clock_arg = server;
    server->requests = pd_mailbox_new(on_mail, server);
    server->roots = pd_precond_queue_new();
    if (server->requests == NULL || server->roots == NULL || pd_store_new(&server->store, &config, &err) != PD_OK)
        sim_fail("harness", "the store cannot be made");
    server->turn = (pd_turn){ .store = server->store,
                              .user = { .arg = server,
                                        .now_ns = step_now,
                                        .effects = on_effects,
                                        .task = on_task,
                                        .forget = on_forget,
                                        .keep = server->disk != NULL ? sim_write_checkpoint : NULL,
                                        .log = server->disk != NULL ? sim_write_record : NULL } };
}

/* Returns published versions to the store whose publication the loop thread has not taken from its mailbox. */
static void take_back(sim_server *server)
{
    pd_mail *mail = pd_mailbox_take(pd_conversation_effects(server->daemon)), *first = mail, *last = NULL;

    for (; mail != NULL; last = mail, mail = mail->next) {
        pd_effect *effect = (pd_effect *)(void *)mail;
        for (size_t i = 0; effect->kind == PD_EFF_CLOSED && i < effect->u.closed.n; i++) {
            pd_request *released =
                effect->u.closed.at[i].published != NULL ? pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 }) : NULL;
            if (released == NULL) continue;
            released->u.released.first = effect->u.closed.at[i].published;
            released->u.released.first->next_released = NULL;
            effect->u.closed.at[i].published = NULL;
            pd_store_apply(server->store, released, server->s->now_ns);
        }
    }
    if (first != NULL) pd_mailbox_post(pd_conversation_effects(server->daemon), first, last);
}

static void drop_jobs(sim_server *server)
{
    for (int i = 0; i < SIM_POOL; i++) {
        if (server->running[i] != NULL) sim_step_post(server, server->running[i]);
        server->running[i] = NULL;
    }
    server->busy[0] = server->busy[1] = 0;
    sim_disk_writers_end(server);
    pd_turn_add(&server->turn, pd_mailbox_take(server->requests));
    pd_turn_finish(&server->turn);
    pd_store_apply(server->store, pd_request_new(PD_REQ_DROP, (pd_ticket){ 0, 0 }), server->s->now_ns);
    pd_turn_finish(&server->turn);
    sim_disk_writers_end(server);
    pd_turn_add(&server->turn, pd_mailbox_take(server->requests));
    pd_turn_finish(&server->turn);
}

void sim_step_end(sim_server *server)
{
    drop_jobs(server);
    take_back(server);
    pd_turn_finish(&server->turn);
    pd_store_free(server->store);
    pd_mailbox_free(server->requests);
    pd_precond_queue_free(server->roots);
}
