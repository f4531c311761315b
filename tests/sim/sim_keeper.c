/* sim_keeper.c - the server's checkpoint writer as events, on a disk that survives the server; kills the server, and
 * starts it anew from that disk. */
#include "sim_keeper.h"

#include "checkpoint_files.h"
#include "state_dir.h"
#include "sim_journal.h"
#include "sim_judge.h"

#include <stdlib.h>
#include <string.h>

static const char root[] = SIM_STATE_DIR;

/* Hands a checkpoint back to the step thread, which takes its published versions back and frees it. */
static void hand_back(sim_server *server, pd_checkpoint_image *kept)
{
    pd_request *request = pd_request_new(PD_REQ_CHECKPOINT_WRITTEN, (pd_ticket){ 0, 0 });

    if (request == NULL) sim_fail("harness", "no memory for the keeper's answer");
    request->u.checkpoint_image = kept;
    request->job = kept->number;
    sim_step_post(server, request);
}

static void keeper_turn(sim *s, void *who, uint64_t life);

static void wake_keeper(sim_server *server)
{
    if (server->keeper_due || (server->n_keeping == 0 && server->tidy_dir[0] == '\0')) return;
    server->keeper_due = true;
    sim_after(server->s, 1 + sim_draw(server->s, sim_chance(server->s, 8) ? 200 * SIM_MS : 10 * SIM_MS), keeper_turn,
              server, server->life);
}

static pd_checkpoint_image *take_first(sim_server *server)
{
    pd_checkpoint_image *kept = server->checkpointing[0];

    server->n_keeping--;
    memmove(server->checkpointing, server->checkpointing + 1, server->n_keeping * sizeof server->checkpointing[0]);
    return kept;
}

/* Writes a checkpoint and hands it back. Older ones are removed after that, as in the daemon
 * (server/threads/keeper.c). */
static void keep(sim_server *server, pd_checkpoint_image *kept)
{
    static const pd_checkpoint_about about = { .paramd = "sim", .blas = "none", .cpu = "none" };
    const pd_disk *disk = sim_disk_functions(server->disk);
    uint64_t before = sim_disk_calls(server->disk);
    char job_dir[PD_KEEP_PATH];
    bool tidy = pd_checkpoint_put(disk, root, kept, &about, &kept->error) == PD_OK && !kept->ended;

    sim_note(server->s, kept->job, kept->step, kept->ended ? "is marked as ended" : "is written",
             sim_disk_calls(server->disk) - before, (uint64_t)-kept->error.code);
    if (kept->ended && kept->error.code == PD_OK) sim_judge_end_kept(server->s, kept->number);
    if (tidy) {
        pd_checkpoint_job_dir(job_dir, root, kept);
        if (strlen(job_dir) >= sizeof server->tidy_dir) sim_fail("harness", "%s is too long", job_dir);
        strcpy(server->tidy_dir, job_dir);
        server->tidy_left = kept->keep;
    }
    hand_back(server, kept);
}

static void tidy_up(sim_server *server)
{
    pd_checkpoint_tidy(sim_disk_functions(server->disk), server->tidy_dir, server->tidy_left);
    server->tidy_dir[0] = '\0';
}

static void keeper_turn(sim *s, void *who, uint64_t life)
{
    sim_server *server = who;
    sim_side before;

    if (life != server->life) return;
    before = sim_enter(SIM_SERVER);
    server->keeper_due = false;
    sim_hold_failures(true);
    if (server->tidy_dir[0] != '\0')
        tidy_up(server);
    else
        keep(server, take_first(server));
    sim_hold_failures(false);
    sim_enter(before);
    if (sim_disk_is_dead(server->disk))
        sim_server_kill(server); /* in the middle of this write: nobody hears of its result */
    else
        wake_keeper(server);
    (void)s;
}

void sim_keeper_keep(void *arg, pd_effect *effect)
{
    sim_server *server = arg;
    pd_checkpoint_image *kept = effect->u.checkpoint_image;

    effect->u.checkpoint_image = NULL;
    pd_effect_free(effect);
    if (server->dying) {
        hand_back(server, kept);
        return;
    }
    if (server->n_keeping == SIM_KEPT) sim_fail("liveness", "%d checkpoints wait for the keeper", SIM_KEPT);
    server->checkpointing[server->n_keeping++] = kept;
    wake_keeper(server);
}

void sim_keeper_end(sim_server *server)
{
    while (server->n_keeping > 0) hand_back(server, take_first(server));
    server->keeper_due = false;
    server->tidy_dir[0] = '\0';
}

static void note_damage(void *arg, const char *dir, const pd_error *why)
{
    sim_server *server = arg;

    (void)dir;
    sim_note(server->s, "keeper", 0, "passes a damaged checkpoint over", 0, (uint64_t)-why->code);
}

static void load_job(sim_server *server, const char *dir)
{
    pd_manifest manifest;
    pd_checkpoint_image *kept;
    pd_error err;
    int rc = pd_checkpoint_newest(sim_disk_functions(server->disk), dir, &kept, &manifest, note_damage, server, &err);

    if (rc == PD_NOT_FOUND) return;
    if (rc != PD_OK) sim_fail("durability", "%s cannot be loaded: %s", dir, err.text);
    sim_note(server->s, kept->job, kept->step, "is loaded", 0, 0);
    if (pd_store_restore(server->store, kept, server->s->now_ns, &err) != PD_OK)
        sim_fail("durability", "%s cannot be restored: %s", dir, err.text);
    sim_journal_load(server, dir, kept);
    pd_checkpoint_image_free(kept);
}

static bool has_ended(const pd_disk *disk, const char *dir)
{
    pd_step_list list;
    pd_error err;
    bool ended;

    if (pd_step_list_read(&list, disk, dir, &err) != PD_OK) sim_fail("durability", "%s", err.text);
    ended = list.ended;
    pd_step_list_free(&list);
    return ended;
}

void sim_keeper_load(sim_server *server)
{
    const pd_disk *disk = sim_disk_functions(server->disk);
    char dir[PD_KEEP_PATH];
    pd_job_dirs jobs;
    pd_error err;

    if (pd_job_dirs_read(&jobs, disk, root, &err) != PD_OK) sim_fail("durability", "%s", err.text);
    for (size_t i = 0; i < jobs.n; i++) {
        pd_keep_join(dir, root, jobs.at[i]);
        if (!has_ended(disk, dir)) load_job(server, dir);
    }
    pd_job_dirs_free(&jobs);
}

void sim_server_trouble_disk(sim_server *server, int error, uint64_t n)
{
    sim_disk_trouble(server->disk, error, n);
}
