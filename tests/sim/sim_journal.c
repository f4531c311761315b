/* sim_journal.c - the server's WAL thread as events, on the simulated disk. */
#include "sim_journal.h"

#include "wal_files.h"
#include "sim_disk.h"
#include "store.h"

#include <string.h>

enum { SEGMENT = 1 << 16 }; /* least bytes of a segment: small, so that segments are often written anew */

static const char root[] = SIM_STATE_DIR;

static void hand_back(sim_server *server, pd_wal_record *entry)
{
    pd_request *request = pd_request_new(PD_REQ_WAL, (pd_ticket){ 0, 0 });

    if (request == NULL) sim_fail("harness", "no memory for the journal's answer");
    request->u.wal = entry;
    request->job = entry->number;
    sim_step_post(server, request);
}

static void hand_back_all(sim_server *server)
{
    size_t n = server->n_logging;

    server->n_logging = 0;
    for (size_t i = 0; i < n; i++) hand_back(server, server->logging[i]);
}

/* Writes all entries that wait. The memory of the logs is not that of jobs, so it is charged to the harness. */
static void write_all(sim_server *server)
{
    sim_side before = sim_enter(SIM_HARNESS);
    pd_error err;

    if (server->logs == NULL &&
        pd_wal_writer_new(&server->logs, sim_disk_functions(server->disk), root, SEGMENT, &err) != PD_OK)
        sim_fail("harness", "%s", err.text);
    pd_wal_write(server->logs, server->logging, server->n_logging);
    sim_enter(before);
    for (size_t i = 0; i < server->n_logging; i++)
        sim_note(server->s, server->logging[i]->job, server->logging[i]->step, "is logged", server->logging[i]->bytes,
                 (uint64_t)-server->logging[i]->error.code);
}

static void journal_turn(sim *s, void *who, uint64_t life)
{
    sim_server *server = who;
    sim_side before;

    (void)s;
    if (life != server->life) return;
    before = sim_enter(SIM_SERVER);
    server->journal_due = false;
    sim_hold_failures(true);
    write_all(server);
    hand_back_all(server);
    sim_hold_failures(false);
    sim_enter(before);
    if (sim_disk_is_dead(server->disk)) sim_server_kill(server); /* in the middle of this write */
}

void sim_journal_take(void *arg, pd_effect *effect)
{
    sim_server *server = arg;
    pd_wal_record *entry = effect->u.wal;

    effect->u.wal = NULL;
    pd_effect_free(effect);
    if (server->dying) {
        pd_fail(&entry->error, PD_CANCELLED, "the server stops");
        hand_back(server, entry);
        return;
    }
    if (server->n_logging == SIM_LOGGED) sim_fail("liveness", "%d entries wait for the journal", SIM_LOGGED);
    server->logging[server->n_logging++] = entry;
    if (server->journal_due) return;
    server->journal_due = true;
    sim_after(server->s, 1 + sim_draw(server->s, sim_chance(server->s, 8) ? 50 * SIM_MS : 3 * SIM_MS), journal_turn,
              server, server->life);
}

void sim_journal_end(sim_server *server)
{
    sim_side before;

    for (size_t i = 0; i < server->n_logging; i++)
        pd_fail(&server->logging[i]->error, PD_CANCELLED, "the server stops");
    hand_back_all(server);
    server->journal_due = false;
    before = sim_enter(SIM_HARNESS);
    pd_wal_writer_free(server->logs);
    server->logs = NULL;
    sim_enter(before);
}

static int repeat(void *arg, const pd_wal_record *entry, pd_error *err)
{
    sim_server *server = arg;
    bool unchanged;

    if (pd_store_replay(server->store, entry, server->s->now_ns, &unchanged, err) != PD_OK)
        sim_fail("durability", "the entry of step %llu of %s cannot be repeated: %s", (unsigned long long)entry->step,
                 entry->job, err->text);
    sim_note(server->s, entry->job, entry->step, "is repeated", 0, 0);
    return PD_OK;
}

static int take_control(void *arg, const pd_wal_record *entry, pd_error *err)
{
    sim_server *server = arg;

    if (pd_store_control(server->store, entry, err) != PD_OK)
        sim_fail("durability", "entry %llu of the control log of %s cannot be used: %s",
                 (unsigned long long)entry->step, entry->job, err->text);
    sim_note(server->s, entry->job, entry->step, "controls", 0, 0);
    return PD_OK;
}

static void load_control(sim_server *server, const char *job_dir, const pd_checkpoint_image *kept)
{
    const pd_disk *disk = sim_disk_functions(server->disk);
    pd_wal_about about;
    pd_error err;

    if (pd_wal_read(&(pd_wal_source){ disk, job_dir, kept->creator, PD_WAL_DECISIONS, 0 }, take_control, server, &about,
                    &err) != PD_OK)
        sim_fail("durability", "the control log of %s cannot be read: %s", kept->job, err.text);
    if (pd_wal_truncate(&(pd_wal_source){ disk, job_dir, kept->creator, PD_WAL_DECISIONS, 0 }, about.last, &err) !=
        PD_OK)
        sim_fail("durability", "the control log of %s cannot be cut: %s", kept->job, err.text);
}

void sim_journal_load(sim_server *server, const char *job_dir, const pd_checkpoint_image *kept)
{
    const pd_disk *disk = sim_disk_functions(server->disk);
    pd_wal_about about;
    pd_error err;

    if (pd_wal_read(&(pd_wal_source){ disk, job_dir, kept->creator, PD_WAL_STEPS, kept->step }, repeat, server, &about,
                    &err) != PD_OK)
        sim_fail("durability", "the log of %s cannot be read: %s", kept->job, err.text);
    if (pd_wal_truncate(&(pd_wal_source){ disk, job_dir, kept->creator, PD_WAL_STEPS, kept->step }, about.last, &err) !=
        PD_OK)
        sim_fail("durability", "the log of %s cannot be cut: %s", kept->job, err.text);
    load_control(server, job_dir, kept);
}
