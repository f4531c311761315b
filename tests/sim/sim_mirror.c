/* sim_mirror.c - plays the mirror thread: lets the owner of a shard copy what is durable to the shard's mirror, some
 * time later, and cuts some of these copies in the middle. */
#include "sim_mirror.h"

#include "mirror.h"
#include "sim_cluster.h"
#include "sim_disk.h"

#include <string.h>

/* PAUSE_MS, LATE_MS: longest time between two passes, and when the mirror is slow. CUT: most calls of a pass before it
 * is cut. */
enum { PAUSE_MS = 50, LATE_MS = 1500, CUT = 60 };

/* What a server's process copies. */
typedef struct copying {
    sim_server *server;
    uint64_t life; /* of the server */
    uint32_t shard;
    pd_mirror_writer *writer; /* NULL: it copies nothing */
    pd_fenced_disk fenced;
    pd_mirror_user user;
} copying;

static const char root[] = "/mirror";
static sim_disk *mirrors[SIM_SHARDS]; /* of this run */
static copying copies[SIM_SERVERS];

void sim_mirrors_begin(sim *s)
{
    for (uint32_t i = 0; i < s->plan->shards; i++) mirrors[i] = sim_disk_new(s, SIM_SERVERS + SIM_SHARDS + i, root);
}

void sim_mirrors_end(void)
{
    sim_side before = sim_enter(SIM_HARNESS);

    for (uint32_t i = 0; i < SIM_SERVERS; i++) pd_mirror_writer_free(copies[i].writer);
    for (uint32_t i = 0; i < SIM_SHARDS; i++) sim_disk_free(mirrors[i]);
    memset(copies, 0, sizeof copies);
    memset(mirrors, 0, sizeof mirrors);
    sim_enter(before);
}

/* Tells the step thread up to which step the mirror has a job, as mirror_thread.c does. */
static void on_mirrored(void *arg, const char *job, uint64_t creator, uint64_t step)
{
    const copying *c = arg;
    sim_side before = sim_enter(SIM_SERVER);
    pd_request *request = sim_must(pd_request_new(PD_REQ_MIRRORED, (pd_ticket){ 0, 0 }));

    request->u.mirrored.job_name = sim_must(strdup(job));
    request->u.mirrored.creator = creator;
    request->u.mirrored.step = step;
    sim_step_post(c->server, request);
    sim_enter(before);
    sim_note(c->server->s, job, c->shard, "is in the mirror up to step", step, 0);
    sim_cluster_mirrored(c->server, job, step);
}

static void on_remark(void *arg, const pd_error *remark)
{
    const copying *c = arg;

    sim_note(c->server->s, "mirror", c->shard, remark->text, 0, 0);
}

/* Makes a pass. In some passes the mirror loses what it has not synced after one of the calls, and in half of these the
 * server dies at the same time. Returns whether the server lives. */
static bool pass(copying *c)
{
    sim *s = c->server->s;
    sim_disk *disk = mirrors[c->shard];
    pd_error err = { 0 };

    if (!s->calm && sim_chance(s, 12)) sim_disk_die_in(disk, sim_draw(s, CUT));
    if (pd_mirror_pass(c->writer, &err) != PD_OK) sim_note(s, "mirror", c->shard, err.text, 0, 0);
    if (!sim_disk_is_dead(disk)) {
        sim_disk_die_in(disk, UINT64_MAX);
        return true;
    }
    sim_disk_lose(disk);
    if (sim_chance(s, 2)) return true;
    sim_server_kill(c->server);
    return false;
}

static void turn(sim *s, void *who, uint64_t life)
{
    copying *c = who;
    sim_side before;

    if (c->writer == NULL || life != c->life) return;
    if (s->now_ns < c->server->asleep_ns) {
        sim_after(s, c->server->asleep_ns - s->now_ns + sim_draw(s, 5 * SIM_MS), turn, c, life);
        return;
    }
    before = sim_enter(SIM_HARNESS);
    if (pass(c)) sim_after(s, 1 + sim_draw(s, (sim_chance(s, 3) ? LATE_MS : PAUSE_MS) * SIM_MS), turn, c, life);
    sim_enter(before);
}

void sim_mirror_open(sim_server *server, uint64_t (*tenure)(void *arg), void *arg)
{
    copying *c = &copies[server->number];
    sim_side before = sim_enter(SIM_HARNESS);
    size_t n_jobs;
    pd_error err;

    *c = (copying){
        .server = server, .life = server->life, .shard = (uint32_t)server->shard, .user = { c, on_mirrored, on_remark }
    };
    pd_fenced_disk_init(&c->fenced, sim_disk_functions(mirrors[c->shard]), root, tenure, arg);
    if (pd_mirror_fence(c->fenced.base.below, root, tenure(arg) - 1, &err) != PD_OK ||
        pd_mirror_writer_new(&c->writer, sim_disk_functions(server->disk), SIM_STATE_DIR, &c->fenced.base.functions,
                             root, &c->user, &err) != PD_OK ||
        pd_mirror_begin(c->writer, &n_jobs, &err) != PD_OK)
        sim_fail("harness", "%s", err.text);
    sim_after(server->s, 1 + sim_draw(server->s, PAUSE_MS * SIM_MS), turn, c, c->life);
    sim_enter(before);
}

void sim_mirror_close(const sim_server *server)
{
    copying *c = &copies[server->number];
    sim_side before = sim_enter(SIM_HARNESS);

    pd_mirror_writer_free(c->writer);
    c->writer = NULL;
    sim_enter(before);
}

int sim_mirror_fetch(uint32_t shard, uint64_t tenure, const pd_disk *to, pd_error *err)
{
    const pd_disk *from = sim_disk_functions(mirrors[shard]);
    sim_side before = sim_enter(SIM_HARNESS);
    int rc = tenure > 0 ? pd_mirror_fence(from, root, tenure, err) : PD_OK;

    if (rc == PD_OK) rc = pd_mirror_fetch_from(from, root, to, SIM_STATE_DIR, NULL, err);
    sim_enter(before);
    return rc;
}
