/* sim_owner.c - lets servers register with a model of the engine, own shards, sleep, be cut off, and take shards. */
#include "sim_owner.h"

#include "engine_model.h"
#include "mirror.h"
#include "pd_cluster.h"
#include "sim_cluster.h"
#include "sim_disk.h"
#include "sim_disk_writer.h"
#include "sim_mirror.h"
#include "state_dir.h"

#include <stdlib.h>
#include <string.h>

/* TURN_MS: longest time between two turns with the engine. PROBE_MS: how long a spare waits for an answer of the last
 * owner. START_MS: time until a process starts again. SETTLE_S: time after which an earlier owner must have ended.
 * APART_S: how long one is kept from hearing that it was replaced. */
enum { TURN_MS = 100, PROBE_MS = 500, START_MS = 50, SETTLE_S = 20, APART_S = 5 };

struct sim_owner {
    model_client client; /* must be the first member: the cluster gets its engine */
    uint64_t (*turn)(pd_engine *engine, uint64_t now_ms);
    sim_server *server;
    pd_cluster *cluster; /* NULL: the daemon is down */
    char url[32], name[32];
    uint64_t late_ms;             /* time until which the engine's answers are under way */
    uint64_t lags_ns;             /* time until which its watch reports nothing */
    uint64_t cut_off_ns;          /* time until which the daemon does not reach the engine */
    bool apart;                   /* nor do other daemons reach it */
    uint64_t down_ns;             /* time from its next kill until it starts again; 0: a short one is drawn */
    bool lost;                    /* another daemon has its shard: its process ends */
    bool gets;                    /* the daemon is getting the state of the shard that it may take */
    bool answers;                 /* the last owner of that shard has answered the daemon: it still lives */
    uint64_t last_life;           /* number of that owner's copy of the state; 0: there was no owner */
    uint64_t last_tenure, tenure; /* of that owner; of this daemon, while it owns a shard */
    sim_disk *copies[SIM_SHARDS]; /* in plans with mirrors: what its machine has of each shard; NULL: nothing yet */
    uint32_t n_copies;            /* number of disks that its machines have had so far */
    bool fetched[SIM_SHARDS];     /* its copy of the shard is from the mirror; it has not owned it since */
};

static engine_model model;           /* of this run */
static sim_disk *states[SIM_SHARDS]; /* the disk with the state of each shard: of a server, or one set aside */
static uint64_t away_ns;             /* time until which no daemon reaches the engine */
static bool rests;                   /* all jobs have ended */
static const sim_server *earlier;    /* an owner that was replaced, and is kept from the engine; NULL: none yet */
static bool died;                    /* a process has died since then */

static uint64_t now_ms(const sim *s)
{
    return s->now_ns / SIM_MS + 1;
}

static void note(const sim_owner *o, const char *what, uint64_t a, uint64_t b)
{
    sim_note(o->server->s, "daemon", o->server->number, what, a, b);
}

/* ---- the engine ---- */

/* The model's turn, once the answers are no longer late. */
static uint64_t late_turn(pd_engine *engine, uint64_t now)
{
    sim_owner *o = (sim_owner *)(void *)engine;

    return now < o->late_ms ? o->late_ms : o->turn(engine, now);
}

static void make_client(sim_owner *o)
{
    model_client_init(&o->client, &model);
    o->turn = o->client.base.turn;
    o->client.base.turn = late_turn;
    o->late_ms = 0;
}

/* Draws what happens to the daemon's calls of the engine until its next turn. */
static void draw_trouble(sim_owner *o)
{
    sim *s = o->server->s;

    o->client.cut = s->now_ns < o->cut_off_ns || s->now_ns < away_ns;
    o->client.lags = s->now_ns < o->lags_ns;
    if (s->calm) return;
    if (sim_chance(s, 24)) o->late_ms = now_ms(s) + sim_draw(s, 2 * s->plan->lease_ms);
    if (sim_chance(s, 24)) o->client.fault = sim_chance(s, 2) ? MODEL_LOSES_CALL : MODEL_LOSES_ANSWER;
}

/* ---- a daemon that takes a shard ---- */

/* Returns whether a daemon that serves at this address would answer another daemon now. */
static bool answers(const sim *s, const char *url)
{
    bool found = false;

    for (uint32_t i = 0; i < s->n_servers; i++) {
        const sim_server *server = s->servers[i];
        const sim_owner *o = server->owner;
        bool apart = o->apart && s->now_ns < o->cut_off_ns;
        found = found || (strcmp(o->url, url) == 0 && server->listens && s->now_ns >= server->asleep_ns && !apart);
    }
    return found;
}

static bool is_of_server(const sim *s, const sim_disk *disk)
{
    bool found = false;

    for (uint32_t i = 0; i < s->n_servers; i++) found = found || s->servers[i]->disk == disk;
    return found;
}

static void free_state(const sim *s, uint32_t shard)
{
    if (!is_of_server(s, states[shard])) sim_disk_free(states[shard]);
}

/* Gives the server the state of a shard. Another state that its disk has is set aside until somebody wants it. */
static void take_state(sim_server *server, uint32_t shard)
{
    const sim *s = server->s;

    if (states[shard] == server->disk) return;
    for (uint32_t i = 0; i < s->plan->shards; i++) {
        if (states[i] != server->disk) continue;
        states[i] = sim_disk_new(server->s, SIM_SERVERS + i, SIM_STATE_DIR);
        sim_disk_take(states[i], server->disk);
    }
    sim_disk_take(server->disk, states[shard]);
    free_state(s, shard);
    states[shard] = server->disk;
}

/* Gives the state of a shard, which nobody has had yet, its number. */
static void begin_state(sim *s, uint32_t shard)
{
    const pd_disk *disk = sim_disk_functions(states[shard]);
    pd_error err;

    if (pd_state_dir_set_life(disk, SIM_STATE_DIR, 1 + sim_draw(s, UINT32_MAX), &err) != PD_OK)
        sim_fail("harness", "%s", err.text);
}

/* Returns the number of the copy of a shard's state that is on its disk. */
static uint64_t read_life(const sim_owner *o, uint32_t shard)
{
    const pd_disk *disk = sim_disk_functions(states[shard]);
    uint64_t life;
    pd_error err;

    if (pd_state_dir_life(disk, SIM_STATE_DIR, &life, &err) != PD_OK)
        sim_fail("one owner", "the state of shard %u cannot be had: %s", shard, err.text);
    if (o->last_life != 0 && life != o->last_life)
        sim_fail("one owner", "the copy of shard %u has number %llu, that of its last owner %llu", shard,
                 (unsigned long long)life, (unsigned long long)o->last_life);
    return life;
}

/* Returns the disk on which the daemon's machine keeps a shard's state, and makes it at the first call. */
static sim_disk *copy_of(sim_owner *o, uint32_t shard)
{
    if (o->copies[shard] == NULL)
        o->copies[shard] =
            sim_disk_new(o->server->s, SIM_SERVERS * (2 + o->server->number) + o->n_copies++, SIM_STATE_DIR);
    return o->copies[shard];
}

static bool is_copy(const sim_owner *o, const sim_disk *disk)
{
    bool found = false;

    for (uint32_t i = 0; i < SIM_SHARDS; i++) found = found || o->copies[i] == disk;
    return found;
}

/* Loses all that the daemon's machine has: another one takes its place. */
static void lose_machine(sim_owner *o)
{
    sim_side before = sim_enter(SIM_HARNESS);

    note(o, "is on another machine", 0, 0);
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        if (o->copies[i] != o->server->disk) sim_disk_free(o->copies[i]);
        o->copies[i] = NULL;
        o->fetched[i] = false;
    }
    sim_disk_free(o->server->disk);
    o->server->disk = sim_disk_new(o->server->s, SIM_SERVERS * (2 + o->server->number) + o->n_copies++, SIM_STATE_DIR);
    sim_enter(before);
}

/* Gets the state of the chosen shard to a disk of the daemon's machine, as take_state_dir in server/takeover.c does.
 * *life becomes the number of the copy. Returns false if it cannot be had. */
static bool take_copy(sim_owner *o, uint32_t shard, uint64_t *life)
{
    sim *s = o->server->s;
    sim_disk *disk = copy_of(o, shard);
    const pd_disk *functions = sim_disk_functions(disk);
    bool own = o->server->number == shard;
    pd_error err = { 0 };
    int rc = pd_state_dir_life(functions, SIM_STATE_DIR, life, &err);
    size_t n = 0;

    if (rc != PD_OK) sim_fail("one owner", "the copy of shard %u cannot be had: %s", shard, err.text);
    if (*life != 0 && (*life == o->last_life || o->last_life == 0)) return true;
    sim_disk_start(disk, true);
    if (o->last_life != 0) rc = sim_mirror_fetch(shard, o->last_tenure, functions, &err);
    if (rc == PD_NOT_FOUND && own) rc = pd_mirror_count(functions, SIM_STATE_DIR, &n, &err);
    if (rc == PD_OK && n > 0) rc = pd_fail(&err, PD_NOT_FOUND, "its own state is older, and the mirror has no job");
    if (rc == PD_OK) {
        o->fetched[shard] = o->last_life != 0;
        *life = 1 + sim_draw(s, UINT32_MAX);
        rc = pd_state_dir_set_life(functions, SIM_STATE_DIR, *life, &err);
    }
    sim_disk_start(disk, false);
    if (rc != PD_OK) note(o, err.text, shard, (uint64_t)-rc);
    if (rc == PD_FAILED_PRECONDITION) lose_machine(o); /* an operator empties the directory */
    return rc == PD_OK;
}

/* Gets the number of the copy of a shard's state that the daemon has now. Returns false if it has none. */
static bool get_copy(sim_owner *o, uint32_t shard, uint64_t *life)
{
    if (o->server->s->plan->mirrors) return take_copy(o, shard, life);
    *life = read_life(o, shard);
    return true;
}

/* Claims the chosen shard, whose state the daemon has got, or declines it. */
static void got_state(sim *s, void *who, uint64_t life)
{
    sim_server *server = who;
    sim_owner *o = server->owner;
    sim_side before;
    uint64_t copy;
    pd_error err;

    if (life != server->life || o->cluster == NULL || rests) return;
    if (s->now_ns < server->asleep_ns) {
        sim_after(s, server->asleep_ns - s->now_ns, got_state, server, life);
        return;
    }
    before = sim_enter(SIM_SERVER);
    o->gets = false;
    if (o->answers || !get_copy(o, (uint32_t)pd_cluster_chosen(o->cluster), &copy))
        pd_cluster_decline(o->cluster);
    else if (pd_cluster_claim(o->cluster, o->url, copy, &err) != PD_OK)
        sim_fail("one owner", "%s", err.text);
    sim_enter(before);
}

/* Begins to get the state of the chosen shard, as server/takeover.c does: makes sure first that its last owner, if that
 * was another daemon, does not answer. */
static void get_state(sim_owner *o)
{
    sim *s = o->server->s;
    const pd_cluster_shard *last = &pd_cluster_table_now(o->cluster)->shards[pd_cluster_chosen(o->cluster)];
    bool probes = pd_cluster_must_probe(o->cluster, o->url);

    o->gets = true;
    o->last_life = last->life;
    o->last_tenure = last->last_tenure;
    o->answers = probes && answers(s, last->url);
    note(o, o->answers ? "sees that its last owner answers: shard" : "may take shard",
         (uint64_t)pd_cluster_chosen(o->cluster), 0);
    sim_after(s, 1 + sim_draw(s, (probes ? PROBE_MS : START_MS) * SIM_MS), got_state, o->server, o->server->life);
}

/* Keeps the owner that is replaced now from hearing of it, in plans with two owners. */
static void keep_apart(const sim *s, const sim_server *before)
{
    sim_owner *o = before->owner;

    if (!s->plan->two_owners || earlier != NULL || s->calm || before->shard < 0 || o->cluster == NULL) return;
    earlier = before;
    o->apart = true;
    o->cut_off_ns = s->now_ns + APART_S * SIM_S;
    note(o, "is replaced, and does not hear of it: shard", (uint64_t)before->shard, 0);
}

static uint64_t tenure_of(void *arg)
{
    sim_owner *o = arg;
    uint64_t tenure = o->cluster != NULL ? pd_cluster_table_now(o->cluster)->tenure : 0;

    if (tenure > 0) o->tenure = tenure;
    return o->tenure;
}

/* Lets the server have the daemon's copy of its shard, which is copied to the mirror from now on. */
static void use_copy(sim_owner *o)
{
    sim_server *server = o->server;

    if (!server->s->plan->mirrors) {
        take_state(server, (uint32_t)server->shard);
        return;
    }
    if (!is_copy(o, server->disk)) sim_disk_free(server->disk);
    server->disk = copy_of(o, (uint32_t)server->shard);
    sim_mirror_open(server, tenure_of, o);
    if (o->fetched[server->shard]) sim_cluster_fetched(server);
    o->fetched[server->shard] = false;
}

/* Loads the jobs of the shard that the daemon owns now, and serves them. */
static void begin_to_serve(sim_owner *o)
{
    sim_server *server = o->server;
    sim *s = server->s;
    uint32_t shard = (uint32_t)pd_cluster_chosen(o->cluster);

    note(o, "serves shard", shard, pd_cluster_table_now(o->cluster)->tenure);
    if (s->cluster->holder[shard] != server) keep_apart(s, s->cluster->holder[shard]);
    server->shard = (int)shard;
    s->cluster->holder[shard] = server;
    use_copy(o);
    sim_disk_die_in(server->disk, UINT64_MAX); /* the kill was meant for a server that writes */
    sim_disk_start(server->disk, true);
    sim_load_jobs(server);
    sim_disk_start(server->disk, false);
    sim_enter(SIM_HARNESS);
    sim_cluster_restored(server);
    sim_enter(SIM_SERVER);
    server->listens = true;
    sim_step_wake(server);
    sim_server_wake_loop(server);
}

static void follow_place(sim_owner *o)
{
    pd_place place = pd_cluster_place(o->cluster);

    if (place == PD_PLACE_CHOSEN && !o->gets) get_state(o);
    if (place == PD_PLACE_OWNER && o->server->shard < 0) begin_to_serve(o);
}

/* ---- the life of a daemon ---- */

static void on_log(void *arg, int level, const char *text)
{
    note(arg, text, (uint64_t)level, 0);
}

static void on_lost(void *arg)
{
    ((sim_owner *)arg)->lost = true;
}

static void on_change(void *arg)
{
    sim_server *server = arg;

    pd_conversation_tell_moved(server->daemon);
    sim_server_wake_loop(server);
}

/* Checks that another daemon has registered the shard of one that is about to end, since that one's last tenure. */
static void check_replaced(const sim_owner *o)
{
    const pd_engine_entry *last;
    char key[PD_ENGINE_KEY];

    snprintf(key, sizeof key, "/paramd/sim/last/%d", o->server->shard);
    last = model_get(&model, key);
    if (last == NULL || last->revision <= o->tenure)
        sim_fail("one owner", "daemon %u ends, although nobody has taken shard %d since its tenure %llu",
                 o->server->number, o->server->shard, (unsigned long long)o->tenure);
}

/* Runs a turn of the daemon with the engine. Puts it off while the loop thread sleeps. */
static void cluster_turn(sim *s, void *who, uint64_t life)
{
    sim_server *server = who;
    sim_owner *o = server->owner;
    uint64_t due, now = now_ms(s);
    sim_side before;
    bool held;

    if (life != server->life || o->cluster == NULL || rests) return;
    if (s->now_ns < server->loop_not_before) {
        sim_after(s, server->loop_not_before - s->now_ns + sim_draw(s, 5 * SIM_MS), cluster_turn, server, life);
        return;
    }
    before = sim_enter(SIM_SERVER);
    held = sim_hold_failures(true);
    draw_trouble(o);
    model_time(&model, now);
    (void)tenure_of(o);
    due = pd_cluster_turn(o->cluster, now);
    if (o->lost)
        check_replaced(o);
    else
        follow_place(o);
    sim_hold_failures(held);
    sim_enter(before);
    if (o->lost) {
        note(o, "ends, since its shard has another owner", (uint64_t)server->shard, 0);
        sim_server_kill(server);
        return;
    }
    if (due > now + TURN_MS) due = now + TURN_MS;
    sim_after(s, (due > now ? due - now : 1) * SIM_MS + sim_draw(s, 5 * SIM_MS), cluster_turn, server, life);
}

/* Starts the daemon's process. */
static void start(sim *s, void *who, uint64_t life)
{
    sim_server *server = who;
    sim_owner *o = server->owner;
    const sim_plan *plan = s->plan;
    sim_side before;
    pd_error err;

    if (life != server->life || rests) return;
    snprintf(o->name, sizeof o->name, "d%u-%llu", server->number, (unsigned long long)server->life);
    make_client(o);
    before = sim_enter(SIM_SERVER);
    if (pd_cluster_new(&o->cluster, &o->client.base,
                       &(pd_cluster_config){ .name = "sim",
                                             .shard = server->number < plan->shards ? (int)server->number : -1,
                                             .shards = plan->shards,
                                             .process = o->name,
                                             .url = o->url,
                                             .http = "",
                                             .ttl_ms = plan->lease_ms,
                                             .process_number = 1 + sim_draw(s, UINT32_MAX),
                                             .log = on_log,
                                             .lost = on_lost,
                                             .arg = o },
                       &err) != PD_OK)
        sim_fail("harness", "%s", err.text);
    pd_cluster_on_change(o->cluster, on_change, server);
    sim_enter(before);
    note(o, "starts", server->life, 0);
    sim_after(s, sim_draw(s, 5 * SIM_MS), cluster_turn, server, life);
}

sim_owner *sim_owner_new(sim_server *server)
{
    sim_side before = sim_enter(SIM_HARNESS);
    sim_owner *o = sim_must(calloc(1, sizeof *o));

    o->server = server;
    sim_address(server->number, o->url);
    sim_enter(before);
    return o;
}

static void end_cluster(sim_owner *o)
{
    sim_side before = sim_enter(SIM_SERVER);

    pd_cluster_free(o->cluster);
    o->cluster = NULL;
    sim_enter(before);
}

void sim_owner_free(sim_owner *o)
{
    sim_side before;

    if (o == NULL) return;
    end_cluster(o);
    before = sim_enter(SIM_HARNESS);
    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        if (o->copies[i] != o->server->disk) sim_disk_free(o->copies[i]);
    free(o);
    sim_enter(before);
}

const pd_cluster_table *sim_owner_table(void *server)
{
    const sim_owner *o = ((sim_server *)server)->owner;

    return o->cluster != NULL ? pd_cluster_table_now(o->cluster) : NULL;
}

void sim_owner_note_down(sim_server *server, uint64_t ns)
{
    if (server->owner != NULL) server->owner->down_ns = ns;
}

bool sim_owner_is_down(const sim_server *server)
{
    return server->owner != NULL && server->owner->cluster == NULL;
}

void sim_owner_ended(sim_server *server)
{
    sim_owner *o = server->owner;
    sim *s = server->s;
    uint64_t down = o->down_ns > 0 && !o->lost ? o->down_ns : 1 + sim_draw(s, START_MS * SIM_MS);

    end_cluster(o);
    if (s->plan->mirrors) sim_mirror_close(server);
    if (s->plan->mirrors && !o->lost && !s->calm && sim_chance(s, 2)) lose_machine(o);
    server->listens = false;
    server->shard = -1;
    server->asleep_ns = server->loop_not_before = server->step_not_before = 0;
    o->down_ns = 0;
    o->lost = o->gets = false;
    sim_after(s, down, start, server, server->life);
}

/* ---- faults ---- */

static void fall_asleep(sim_server *server, uint64_t ns)
{
    uint64_t until = server->s->now_ns + ns;

    if (until > server->asleep_ns) server->asleep_ns = until;
    if (until > server->loop_not_before) server->loop_not_before = until;
    if (until > server->step_not_before) server->step_not_before = until;
}

void sim_owner_hurt(sim_server *server, const sim_fault *fault)
{
    uint64_t until = server->s->now_ns + fault->amount;
    sim_owner *o = server->owner;

    if (fault->kind == SIM_ENGINE_AWAY) {
        away_ns = until;
    } else if (fault->kind == SIM_LATE_WATCH) {
        o->lags_ns = until;
    } else if (fault->kind == SIM_CUT_OFF) {
        o->cut_off_ns = until;
        o->apart = fault->amount % 2 == 1;
    } else {
        fall_asleep(server, fault->amount);
    }
}

/* Lets a process of a job die, and another one start. */
static void replace_process(sim *s, void *who, uint64_t rank)
{
    const sim_job *job = who;
    sim_trainee *t = sim_trainee_at(s, job->number, (uint32_t)rank);

    if (t == NULL) return;
    sim_trainee_kill(t);
    sim_trainee_start(s, job, (uint32_t)rank, sim_draw(s, START_MS * SIM_MS));
}

void sim_owners_durable(sim *s, const sim_job *job)
{
    if (earlier == NULL || died || s->calm || s->now_ns >= earlier->owner->cut_off_ns) return;
    died = true;
    sim_after(s, sim_draw(s, START_MS * SIM_MS), replace_process, (void *)job, sim_draw(s, job->world));
}

uint32_t sim_owners_first(const sim *s, uint32_t rank)
{
    return died && s->now_ns < earlier->owner->cut_off_ns ? earlier->number : rank;
}

/* ---- all daemons ---- */

void sim_owners_begin(sim *s)
{
    if (s->plan->spares == 0) return;
    model_init(&model);
    away_ns = 0;
    rests = died = false;
    earlier = NULL;
    if (s->plan->mirrors) sim_mirrors_begin(s);
    for (uint32_t i = 0; !s->plan->mirrors && i < s->plan->shards; i++) {
        states[i] = s->servers[i]->disk;
        begin_state(s, i);
    }
    for (uint32_t i = 0; i < s->n_servers; i++)
        sim_after(s, sim_draw(s, START_MS * SIM_MS), start, s->servers[i], s->servers[i]->life);
}

void sim_owners_rest(sim *s)
{
    rests = true;
    sim_mirrors_end();
    for (uint32_t i = 0; s->plan->spares > 0 && !s->plan->mirrors && i < s->plan->shards; i++) free_state(s, i);
}

bool sim_owners_are_settled(const sim *s)
{
    bool settled = true;

    for (uint32_t i = 0; s->plan->spares > 0 && i < s->n_servers; i++)
        settled = settled && !sim_owner_is_down(s->servers[i]) && !sim_cluster_is_replaced(s->servers[i]);
    return settled;
}

void sim_owners_check(const sim *s)
{
    if (s->plan->spares == 0 || s->now_ns < s->plan->calm_ns + SETTLE_S * SIM_S) return;
    for (uint32_t i = 0; i < s->n_servers; i++) {
        const sim_server *server = s->servers[i];
        if (!sim_cluster_is_replaced(server) || s->now_ns < server->asleep_ns + SETTLE_S * SIM_S) continue;
        sim_fail("one owner", "daemon %u goes on, although daemon %u has its shard, %d", i,
                 s->cluster->holder[server->shard]->number, server->shard);
    }
}

void sim_owners_describe(const sim *s)
{
    for (uint32_t i = 0; s->plan->spares > 0 && i < s->n_servers; i++) {
        const sim_server *server = s->servers[i];
        const sim_owner *o = server->owner;
        printf("daemon %u: %s, shard %d%s, place %d\n", i, o->cluster != NULL ? "runs" : "is down", server->shard,
               sim_cluster_is_replaced(server) ? " (another one has it)" : "",
               o->cluster != NULL ? (int)pd_cluster_place(o->cluster) : -1);
    }
}
