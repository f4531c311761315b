/* sim_restart.c - ends the server's process as a crash does, and starts another one: from images of its jobs, or from
 * what the disk has. */
#include "server_state.h"

#include "sim_cluster.h"
#include "sim_owner.h"
#include "wal.h"
#include "conversation.h"
#include "image.h"
#include "relaunch.h"
#include "sim_judge.h"
#include "sim_disk_writer.h"
#include "rig.h"
#include "store_inside.h"

#include <stdlib.h>
#include <string.h>

enum { AGAIN_NS = 200000 };

/* An image that stores one job of the old process. */
typedef struct saved {
    uint8_t *image;
    size_t n;
    uint32_t number;
    char name[64];
} saved;

static bool may_restart(const sim_server *server)
{
    const pd_job *job, *next;

    if (server->busy[0] + server->busy[1] + server->n_background > 0 || server->store->jobs.n == 0) return false;
    if (!sim_loop_is_caught_up(server)) return false;
    HASH_ITER(hh, server->store->jobs.names, job, next)
    if (!pd_image_is_possible(job)) return false;
    return true;
}

static size_t save_jobs(sim_server *server, saved *at)
{
    const pd_job *job, *next;
    pd_error err;
    size_t n = 0;

    HASH_ITER(hh, server->store->jobs.names, job, next)
    {
        at[n].number = job->steps.number;
        strncpy(at[n].name, job->steps.name, sizeof at[n].name - 1);
        if (pd_store_save_job(server->store, job->steps.name, &at[n].image, &at[n].n, &err) != PD_OK)
            sim_fail("image", "%s cannot be saved: %s", job->steps.name, err.text);
        n++;
    }
    return n;
}

static void end_process(sim_server *server)
{
    server->dying = true;
    sim_enter(SIM_HARNESS);
    sim_links_break(server);
    sim_enter(SIM_SERVER);
    sim_loop_end_movers(server);
    pd_conversation_close_all(server->daemon);
    sim_loop_finish_background(server);
    sim_step_end(server);
    pd_conversation_dispose(server->daemon);
    server->dying = server->mail_due = false;
    server->n_ends = 0;
    server->fairness = (sim_fairness){ 0 };
}

static void load_jobs(sim_server *server, saved *at, size_t n)
{
    pd_error err;

    for (size_t i = 0; i < n; i++) {
        if (pd_store_load_job(server->store, at[i].image, at[i].n, server->s->now_ns, &err) != PD_OK)
            sim_fail("image", "%s cannot be read: %s", at[i].name, err.text);
        free(at[i].image);
    }
}

static void restart(sim_server *server)
{
    saved at[32];
    sim_side before = sim_enter(SIM_SERVER);
    size_t n;

    sim_note(server->s, "server", 0, "starts anew", 0, 0);
    sim_hold_failures(true);
    n = save_jobs(server, at);
    end_process(server);
    sim_step_make(server);
    sim_loop_make(server);
    load_jobs(server, at, n);
    sim_hold_failures(false);
    sim_enter(SIM_HARNESS);
    sim_judge_forget_numbers(server->s);
    for (size_t i = 0; i < n; i++)
        sim_judge_renumber(server->s, at[i].number, inside_find(server->store, at[i].name)->steps.number);
    sim_enter(before);
    sim_step_wake(server);
    sim_server_wake_loop(server);
}

/* Restarts the server if images of all jobs can be taken now. Otherwise tries again a little later, until the
 * simulated time `until`. */
static void try_restart(sim *s, void *who, uint64_t until)
{
    sim_server *server = who;

    if (sim_server_stopped(server) || sim_server_draining(server) || s->now_ns > until) return;
    if (may_restart(server))
        restart(server);
    else
        sim_after(s, AGAIN_NS, try_restart, server, until);
}

void sim_server_restart(sim_server *server, uint64_t within_ns)
{
    try_restart(server->s, server, server->s->now_ns + within_ns);
}

static void listen_again(sim *s, void *who, uint64_t what)
{
    (void)s, (void)what;
    ((sim_server *)who)->listens = true;
}

/* Returns whether the disk has a record of each choice that the steps of the job have made (roots, ranks, overrides),
 * in records of its WAL. */
static bool is_course_kept(const pd_job *job)
{
    const pd_wal *wal = job->steps.wal;

    for (uint32_t i = 0; i < job->steps.n_params && job->checkpointing.steps.wanted; i++)
        if (job->steps.params[i].saved.step > job->checkpointing.durable_step) return false;
    if (wal == NULL) return true;
    return job->checkpointing.decisions.on && job->checkpointing.decisions.under_way == 0 &&
           wal->decisions.made.first == NULL;
}

/* Returns whether an operator may set a value of the job while it repeats steps, which had other values before. */
static bool may_set(const sim_server *server, const char *job)
{
    const sim_plan *plan = server->s->plan;

    for (uint32_t i = 0; i < plan->n_faults; i++)
        if (plan->faults[i].kind == SIM_SET && strcmp(plan->jobs[plan->faults[i].job].name, job) == 0 &&
            plan->faults[i].at_ns + 500 * SIM_MS > server->s->now_ns)
            return true;
    return false;
}

static void loosen_jobs(const sim_server *server)
{
    const pd_job *job, *next;

    HASH_ITER(hh, server->store->jobs.names, job, next)
    {
        if (!is_course_kept(job) || may_set(server, job->steps.name)) sim_judge_loosen(server->s, job->steps.number);
    }
}

static void keep_withheld(sim_server *server)
{
    sim_side before = sim_enter(SIM_HARNESS);

    sim_judge_keep_withheld(server->s, server->store);
    sim_enter(before);
}

/* Ends the server's process as a crash does. Another one begins, which has loaded nothing yet. */
static void end_life(sim_server *server)
{
    server->life++;
    loosen_jobs(server);
    keep_withheld(server);
    sim_judge_forget_numbers(server->s);
    end_process(server);
    sim_disk_lose(server->disk);
    sim_step_make(server);
    sim_loop_make(server);
}

/* Starts a server that was killed, with the jobs on its disk. */
static void come_back(sim_server *server)
{
    sim_disk_start(server->disk, true);
    sim_load_jobs(server);
    sim_disk_start(server->disk, false);
    sim_hold_failures(false);
    sim_enter(SIM_HARNESS);
    if (server->s->cluster != NULL) {
        sim_cluster_restored(server);
    } else {
        sim_judge_restored(server->s, server->store);
        sim_relaunch_after_crash(server->s, server->life);
    }
}

void sim_server_kill(sim_server *server)
{
    sim_side before = sim_enter(SIM_SERVER);

    sim_note(server->s, "server", server->owner != NULL ? server->number : server->life, "is killed", 0, 0);
    sim_hold_failures(true);
    end_life(server);
    if (server->owner != NULL) {
        sim_hold_failures(false);
        sim_owner_ended(server);
        sim_enter(before);
        return;
    }
    come_back(server);
    sim_enter(before);
    server->listens = false;
    sim_after(server->s, sim_draw(server->s, 50 * SIM_MS), listen_again, server, 0);
    sim_step_wake(server);
    sim_server_wake_loop(server);
}

void sim_server_kill_in(sim_server *server, uint64_t amount)
{
    if (sim_server_stopped(server) || sim_server_draining(server) || sim_owner_is_down(server)) return;
    if (amount % 2 == 0)
        sim_server_kill(server);
    else
        sim_disk_die_in(server->disk, amount / 2 % 32);
}

void sim_server_end_trouble(sim_server *server)
{
    sim_disk_trouble(server->disk, 0, 0, false);
    sim_disk_die_in(server->disk, UINT64_MAX);
    if (server->s->cluster == NULL && server->life == 0 && !sim_server_stopped(server)) sim_server_kill(server);
}
