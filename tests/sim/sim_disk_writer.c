/* sim_disk_writer.c - the server's checkpoint writer and WAL thread as events, on a disk that survives the server;
 * loads jobs from that disk when the server starts. */
#include "sim_disk_writer.h"

#include "checkpoint_files.h"
#include "sim_cluster.h"
#include "sim_judge.h"
#include "state_dir.h"
#include "store.h"
#include "wal_files.h"

#include <stdlib.h>
#include <string.h>

enum { SEGMENT = 1 << 16 }; /* least bytes of a segment: small, so that segments are often written anew */

static const char root[] = SIM_STATE_DIR;

/* Hands a checkpoint or record back to the step thread, in a request of this kind. */
static pd_request *new_request(pd_request_kind kind, uint32_t job)
{
    pd_request *request = pd_request_new(kind, (pd_ticket){ 0, 0 });

    if (request == NULL) sim_fail("harness", "out of memory for the answer of a disk writer");
    request->job = job;
    return request;
}

static void return_checkpoint(sim_server *server, pd_checkpoint_image *image)
{
    pd_request *request = new_request(PD_REQ_CHECKPOINT_WRITTEN, image->number);

    request->u.checkpoint_image = image;
    sim_step_post(server, request);
}

static void return_record(sim_server *server, pd_wal_record *record)
{
    pd_request *request = new_request(PD_REQ_WAL, record->number);

    request->u.wal = record;
    sim_step_post(server, request);
}

static void return_records(sim_server *server)
{
    size_t n = server->n_records;

    server->n_records = 0;
    for (size_t i = 0; i < n; i++) return_record(server, server->records[i]);
}

/* ---- writing ---- */

static pd_checkpoint_image *take_first(sim_server *server)
{
    pd_checkpoint_image *image = server->checkpoints[0];

    server->n_checkpoints--;
    memmove(server->checkpoints, server->checkpoints + 1, server->n_checkpoints * sizeof server->checkpoints[0]);
    return image;
}

/* Writes a checkpoint and hands it back. Older ones are removed after that, as in server/threads/disk_writer.c. */
static void write_checkpoint(sim_server *server, pd_checkpoint_image *image)
{
    /* At time 0 there would be no checkpoint: the mirror's code tells one by its step and this time. */
    const pd_checkpoint_about about = {
        .paramd = "sim", .blas = "none", .cpu = "none", .written_ms = 1 + server->s->now_ns / SIM_MS
    };
    const pd_disk *disk = sim_disk_functions(server->disk);
    uint64_t before = sim_disk_calls(server->disk);
    char job_dir[PD_KEEP_PATH];
    bool tidy = pd_checkpoint_put(disk, root, image, &about, &image->error) == PD_OK && !image->ended;

    sim_note(server->s, image->job, image->step, image->ended ? "is marked as ended" : "is written",
             sim_disk_calls(server->disk) - before, (uint64_t)-image->error.code);
    if (image->ended && image->error.code == PD_OK) sim_judge_end_kept(server->s, image->number);
    if (tidy) {
        pd_checkpoint_job_dir(job_dir, root, image);
        if (strlen(job_dir) >= sizeof server->tidy_dir) sim_fail("harness", "%s is too long", job_dir);
        strcpy(server->tidy_dir, job_dir);
        server->tidy_retention = pd_checkpoint_retention(image);
    }
    return_checkpoint(server, image);
}

static void tidy_up(sim_server *server)
{
    pd_checkpoint_tidy(sim_disk_functions(server->disk), server->tidy_dir, &server->tidy_retention);
    server->tidy_dir[0] = '\0';
}

/* Writes all records that wait. The memory of the WAL writer is not that of jobs, so it is charged to the harness. */
static void write_records(sim_server *server)
{
    sim_side before = sim_enter(SIM_HARNESS);
    pd_error err;

    if (server->wal == NULL &&
        pd_wal_writer_new(&server->wal, sim_disk_functions(server->disk), root, SEGMENT, &err) != PD_OK)
        sim_fail("harness", "%s", err.text);
    pd_wal_write(server->wal, server->records, server->n_records);
    sim_enter(before);
    for (size_t i = 0; i < server->n_records; i++)
        sim_note(server->s, server->records[i]->job, server->records[i]->step, "is recorded", server->records[i]->bytes,
                 (uint64_t)-server->records[i]->error.code);
}

/* Does the work of a disk writer, and kills the server if its disk was cut in the middle of it. Returns whether the
 * server lives. */
static bool work(sim_server *server, void (*verb)(sim_server *server))
{
    sim_side before = sim_enter(SIM_SERVER);

    sim_hold_failures(true);
    verb(server);
    sim_hold_failures(false);
    sim_enter(before);
    if (!sim_disk_is_dead(server->disk)) return true;
    sim_server_kill(server);
    return false;
}

static void turn_checkpoints(sim_server *server)
{
    server->checkpoints_due = false;
    if (server->tidy_dir[0] != '\0')
        tidy_up(server);
    else
        write_checkpoint(server, take_first(server));
}

static void turn_records(sim_server *server)
{
    server->records_due = false;
    write_records(server);
    return_records(server);
}

/* Puts an event of a server off while all its threads sleep. Returns whether it was put off. */
static bool sleeps(sim_server *server, sim_action action, uint64_t life)
{
    uint64_t now = server->s->now_ns;

    if (now >= server->asleep_ns || life != server->life) return false;
    sim_after(server->s, server->asleep_ns - now + sim_draw(server->s, 5 * SIM_MS), action, server, life);
    return true;
}

static void checkpoints_turn(sim *s, void *who, uint64_t life);

static void wake_checkpoints(sim_server *server)
{
    if (server->checkpoints_due || (server->n_checkpoints == 0 && server->tidy_dir[0] == '\0')) return;
    server->checkpoints_due = true;
    sim_after(server->s, 1 + sim_draw(server->s, sim_chance(server->s, 8) ? 200 * SIM_MS : 10 * SIM_MS),
              checkpoints_turn, server, server->life);
}

static void checkpoints_turn(sim *s, void *who, uint64_t life)
{
    sim_server *server = who;

    (void)s;
    if (sleeps(server, checkpoints_turn, life)) return;
    if (life == server->life && work(server, turn_checkpoints)) wake_checkpoints(server);
}

static void records_turn(sim *s, void *who, uint64_t life)
{
    sim_server *server = who;

    (void)s;
    if (sleeps(server, records_turn, life)) return;
    if (life == server->life) (void)work(server, turn_records);
}

static void return_order(sim_server *server, pd_go_back_order *order)
{
    pd_request *request = new_request(PD_REQ_WENT_BACK, order->number);

    request->u.go_back_order = order;
    sim_step_post(server, request);
}

/* Carries out an order to go back. */
static void go_back(sim_server *server)
{
    static const pd_checkpoint_about about = { .paramd = "sim", .blas = "none", .cpu = "none" };
    pd_go_back_order *order = server->order;

    server->order = NULL;
    if (server->s->cluster != NULL) sim_cluster_goes_back(server);
    pd_checkpoint_go_back(sim_disk_functions(server->disk), root, &about, order);
    sim_note(server->s, order->job, order->step, "goes back", 0, (uint64_t)-order->error.code);
    if (server->s->cluster != NULL && order->error.code == PD_OK) sim_cluster_went_back(server, order);
    return_order(server, order);
}

static void order_turn(sim *s, void *who, uint64_t life)
{
    sim_server *server = who;

    (void)s;
    if (sleeps(server, order_turn, life)) return;
    if (life == server->life && server->order != NULL) (void)work(server, go_back);
}

/* Takes an order to go back. No checkpoint of its job is under way, so it need not wait for those of other jobs. */
static void take_order(sim_server *server, pd_effect *effect)
{
    pd_go_back_order *order = effect->u.go_back_order;

    pd_effect_free(effect);
    if (server->dying || server->order != NULL) {
        pd_fail(&order->error, server->dying ? PD_CANCELLED : PD_UNAVAILABLE, "the disk is busy");
        return_order(server, order);
        return;
    }
    server->order = order;
    sim_after(server->s, 1 + sim_draw(server->s, 10 * SIM_MS), order_turn, server, server->life);
}

void sim_write_checkpoint(void *arg, pd_effect *effect)
{
    sim_server *server = arg;
    pd_checkpoint_image *image = effect->u.checkpoint_image;

    if (effect->kind == PD_EFF_GO_BACK) {
        take_order(server, effect);
        return;
    }

    effect->u.checkpoint_image = NULL;
    pd_effect_free(effect);
    if (server->dying) {
        return_checkpoint(server, image);
        return;
    }
    if (server->n_checkpoints == SIM_KEPT) sim_fail("liveness", "%d checkpoints wait for their writer", SIM_KEPT);
    server->checkpoints[server->n_checkpoints++] = image;
    wake_checkpoints(server);
}

void sim_write_record(void *arg, pd_effect *effect)
{
    sim_server *server = arg;
    pd_wal_record *record = effect->u.wal;

    effect->u.wal = NULL;
    pd_effect_free(effect);
    if (server->dying) {
        pd_fail(&record->error, PD_CANCELLED, "the server stops");
        return_record(server, record);
        return;
    }
    if (server->n_records == SIM_LOGGED) sim_fail("liveness", "%d records wait for the WAL thread", SIM_LOGGED);
    server->records[server->n_records++] = record;
    if (server->records_due) return;
    server->records_due = true;
    sim_after(server->s, 1 + sim_draw(server->s, sim_chance(server->s, 8) ? 50 * SIM_MS : 3 * SIM_MS), records_turn,
              server, server->life);
}

void sim_disk_writers_end(sim_server *server)
{
    sim_side before;

    while (server->n_checkpoints > 0) return_checkpoint(server, take_first(server));
    if (server->order != NULL) pd_fail(&server->order->error, PD_CANCELLED, "the server stops");
    if (server->order != NULL) return_order(server, server->order);
    server->order = NULL;
    server->checkpoints_due = server->records_due = false;
    server->tidy_dir[0] = '\0';
    for (size_t i = 0; i < server->n_records; i++)
        pd_fail(&server->records[i]->error, PD_CANCELLED, "the server stops");
    return_records(server);
    before = sim_enter(SIM_HARNESS);
    pd_wal_writer_free(server->wal);
    server->wal = NULL;
    sim_enter(before);
}

/* ---- the start ---- */

static int replay(void *arg, const pd_wal_record *record, pd_error *err)
{
    sim_server *server = arg;
    bool unchanged;

    if (pd_store_replay(server->store, record, server->s->now_ns, &unchanged, err) != PD_OK)
        sim_fail("durability", "record %llu of %s cannot be replayed: %s", (unsigned long long)record->step,
                 record->job, err->text);
    sim_note(server->s, record->job, record->step, record->stream == PD_WAL_STEPS ? "is repeated" : "controls", 0, 0);
    return PD_OK;
}

/* Replays a stream of the WAL of a job that was restored, and truncates it. */
static void load_stream(sim_server *server, const char *job_dir, const pd_checkpoint_image *image, pd_wal_stream stream)
{
    pd_wal_source from = { sim_disk_functions(server->disk), job_dir, image->creator, stream, image->place };
    pd_wal_about about;
    pd_error err;

    if (pd_wal_read(&from, replay, server, &about, &err) != PD_OK)
        sim_fail("durability", "the WAL of %s cannot be read: %s", image->job, err.text);
    if (pd_wal_truncate(&from, about.last, &err) != PD_OK)
        sim_fail("durability", "the WAL of %s cannot be truncated: %s", image->job, err.text);
}

static void note_damage(void *arg, const char *dir, const pd_error *why)
{
    sim_server *server = arg;

    (void)dir;
    sim_note(server->s, "keeper", 0, "passes a damaged checkpoint over", 0, (uint64_t)-why->code);
}

/* A job on the disk that has not ended. */
typedef struct kept_job {
    char dir[PD_KEEP_PATH];
    pd_checkpoint_image *image; /* its newest checkpoint; NULL: it has none */
} kept_job;

static pd_checkpoint_image *read_job(sim_server *server, const char *dir)
{
    pd_checkpoint_image *kept = NULL;
    pd_manifest manifest;
    pd_error err;
    int rc = pd_checkpoint_newest(sim_disk_functions(server->disk), dir, &kept, &manifest, note_damage, server, &err);

    if (rc != PD_OK && rc != PD_NOT_FOUND) sim_fail("durability", "%s cannot be loaded: %s", dir, err.text);
    return rc == PD_OK ? kept : NULL;
}

static void restore_job(sim_server *server, const kept_job *job)
{
    pd_error err;

    sim_note(server->s, job->image->job, job->image->step, "is loaded", 0, 0);
    if (pd_store_restore(server->store, job->image, server->s->now_ns, &err) != PD_OK)
        sim_fail("durability", "%s cannot be restored: %s", job->dir, err.text);
    load_stream(server, job->dir, job->image, PD_WAL_STEPS);
    load_stream(server, job->dir, job->image, PD_WAL_DECISIONS);
}

/* Returns whether there is a later job of the same name. Then the end of this one could not be written to the disk, and
 * the daemon leaves it there (server/recover.c). */
static bool is_outdated(const sim_server *server, const kept_job *jobs, size_t n, size_t i)
{
    bool outdated = false;

    for (size_t k = 0; k < n; k++)
        outdated =
            outdated || (k != i && jobs[k].image != NULL && strcmp(jobs[k].image->job, jobs[i].image->job) == 0 &&
                         sim_judge_is_later(server->s, jobs[k].image->creator, jobs[i].image->creator));
    return outdated;
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

void sim_load_jobs(sim_server *server)
{
    const pd_disk *disk = sim_disk_functions(server->disk);
    pd_job_dirs dirs;
    kept_job *jobs;
    pd_error err;

    if (pd_job_dirs_read(&dirs, disk, root, &err) != PD_OK) sim_fail("durability", "%s", err.text);
    jobs = sim_must(calloc(dirs.n + 1, sizeof *jobs));
    for (size_t i = 0; i < dirs.n; i++) {
        pd_keep_join(jobs[i].dir, root, dirs.at[i]);
        if (!has_ended(disk, jobs[i].dir)) jobs[i].image = read_job(server, jobs[i].dir);
    }
    for (size_t i = 0; i < dirs.n; i++)
        if (jobs[i].image != NULL && !is_outdated(server, jobs, dirs.n, i)) restore_job(server, &jobs[i]);
    for (size_t i = 0; i < dirs.n; i++) pd_checkpoint_image_free(jobs[i].image);
    free(jobs);
    pd_job_dirs_free(&dirs);
}

void sim_server_trouble_disk(sim_server *server, int error, uint64_t n, bool dies)
{
    sim_disk_trouble(server->disk, error, n, dies);
}
