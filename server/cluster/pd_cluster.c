/* pd_cluster.c - decides which shard a daemon takes, and keeps its keys registered. */
#include "pd_cluster.h"

#include "cluster_view.h"
#include "lease.h"
#include "mutant.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

enum { LINE = 900, DECLINED_MS = 2000, RETRY_MS = 1000 };

struct pd_cluster {
    pd_cluster_config config;
    pd_engine *engine;
    pd_cluster_table table;
    pd_cluster_view view;
    pd_lease owner, spare;  /* the keys shard/N and spare/NAME */
    pd_engine_call removal; /* removes a key */
    char removed[PD_ENGINE_KEY];
    pd_place place;
    int chosen;
    uint64_t chosen_tenure; /* of the last owner of `chosen` when it was chosen: its state is what the caller gets */
    bool replaces;          /* the key of this daemon's earlier process must be removed first */
    bool owned;             /* the daemon owns the shard `chosen`, or has owned it since it chose it */
    bool leaves;            /* the daemon ends */
    bool reported;          /* the log says that this daemon is a spare */
    char url[PD_CLUSTER_URL];
    uint64_t life, tenure;               /* tenure: the last one that was logged */
    uint64_t declined_ms[PD_MAX_SHARDS]; /* until when the shard is not chosen again */
    uint64_t now_ms, removal_due_ms;
    uint64_t down_ms; /* since when the engine does not answer; 0: it answers */
    bool unsure;      /* the end of this daemon's key lease was logged, and the lease has not been renewed since */
    void (*changed)(void *arg);
    void *changed_arg;
    uint64_t version; /* of the table, when `changed` was last called */
};

static void say(const pd_cluster *c, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(const pd_cluster *c, int level, const char *format, ...)
{
    char line[LINE];
    va_list args;
    int n = snprintf(line, sizeof line, "cluster %s: ", c->config.name);

    va_start(args, format);
    vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    va_end(args);
    c->config.log(c->config.arg, level, line);
}

static void log_of_view(void *arg, int level, const char *text)
{
    say(arg, level, "%s", text);
}

static void on_owner(void *arg, uint32_t shard, uint64_t tenure, uint64_t revision, const char *value)
{
    pd_cluster *c = arg;

    if ((int)shard == c->chosen) pd_lease_seen(&c->owner, tenure, revision, value);
}

static void on_removed(pd_engine_call *call, const pd_engine_answer *answer)
{
    pd_cluster *c = call->arg;

    if (answer->result == PD_ENGINE_FAILED)
        c->removal_due_ms = c->now_ms + RETRY_MS;
    else
        c->replaces = false;
}

int pd_cluster_new(pd_cluster **out, pd_engine *engine, const pd_cluster_config *config, pd_error *err)
{
    pd_cluster *c = calloc(1, sizeof *c);
    pd_cluster_view_user user = { on_owner, log_of_view, c };

    if (c == NULL) {
        engine->free(engine);
        return pd_fail(err, PD_NO_MEMORY, "out of memory for the table of the cluster");
    }
    c->config = *config;
    c->engine = engine;
    c->chosen = c->table.own = -1;
    c->table.name = config->name;
    c->removal.answered = on_removed;
    c->removal.arg = c;
    pd_cluster_view_init(&c->view, engine, &c->table, config->name, config->shards, &user);
    pd_lease_init(&c->owner, engine, config->ttl_ms);
    pd_lease_init(&c->spare, engine, config->ttl_ms);
    *out = c;
    return PD_OK;
}

void pd_cluster_free(pd_cluster *c)
{
    if (c == NULL) return;
    c->engine->free(c->engine);
    free(c);
}

int pd_cluster_fd(const pd_cluster *c)
{
    return c->engine->fd;
}

pd_place pd_cluster_place(const pd_cluster *c)
{
    return c->place;
}

int pd_cluster_chosen(const pd_cluster *c)
{
    return c->chosen;
}

const pd_cluster_table *pd_cluster_table_now(const pd_cluster *c)
{
    return &c->table;
}

void pd_cluster_on_change(pd_cluster *c, void (*changed)(void *arg), void *arg)
{
    c->changed = changed;
    c->changed_arg = arg;
}

static void key_of(const pd_cluster *c, char out[PD_ENGINE_KEY], const char *kind, int shard)
{
    snprintf(out, PD_ENGINE_KEY, "%s%s/%d", c->view.prefix, kind, shard);
}

/* Returns the number of shards of the cluster: the owner of its own shard knows it, a spare has learned it. */
static uint32_t n_shards(const pd_cluster *c)
{
    return c->chosen >= 0 && c->chosen == c->config.shard ? c->config.shards : c->table.n_shards;
}

/* Writes the value of this daemon's keys. */
static int write_value(const pd_cluster *c, char *out, pd_error *err)
{
    pd_cluster_value value = { .life = c->life, .process = c->config.process_number, .shards = n_shards(c) };

    snprintf(value.http, sizeof value.http, "%s", c->config.http);
    /* A spare tells where it would listen, as far as that is known. */
    snprintf(value.url, sizeof value.url, "%s", c->url[0] != '\0' ? c->url : c->config.url);
    return pd_cluster_value_write(out, &value, err);
}

/* Begins to wait for a shard, as a spare that others see. */
static void become_spare(pd_cluster *c)
{
    char key[PD_ENGINE_KEY], value[PD_ENGINE_VALUE];

    c->place = PD_PLACE_SPARE;
    c->chosen = -1;
    if (c->spare.state != PD_LEASE_NONE || write_value(c, value, NULL) != PD_OK) return;
    snprintf(key, sizeof key, "%sspare/%.63s", c->view.prefix, c->config.process);
    pd_lease_keep(&c->spare, key, NULL, value, 0);
}

static void choose(pd_cluster *c, int shard)
{
    c->place = PD_PLACE_CHOSEN;
    c->chosen = shard;
    c->chosen_tenure = c->table.shards[shard].last_tenure;
}

/* Returns whether a shard of the table is registered under this daemon's own URL: by an earlier process. */
static bool is_own(const pd_cluster *c, int shard)
{
    return c->config.url[0] != '\0' && strcmp(c->table.shards[shard].url, c->config.url) == 0;
}

/* Warns if other owners say another number of shards than this daemon's settings. */
static void compare_shards(const pd_cluster *c)
{
    for (uint32_t i = 0; i < PD_MAX_SHARDS; i++) {
        if (!c->table.shards[i].alive || c->table.n_shards == c->config.shards) continue;
        say(c, LOG_WARNING, "%s has another cluster.shards, %u, than this daemon, %u: workers need one number",
            c->table.shards[i].url, c->table.n_shards, c->config.shards);
        return;
    }
}

/* Decides, when the table is known, whether this daemon owns its shard or is a spare. */
static void begin(pd_cluster *c)
{
    int own = c->config.shard;

    if (c->table.version == 0) return;
    if (own >= 0) compare_shards(c);
    if (own >= 0 && (!c->table.shards[own].alive || is_own(c, own))) {
        choose(c, own);
        return;
    }
    become_spare(c);
}

/* Logs once that this daemon is a spare, as soon as others can see it. */
static void report_spare(pd_cluster *c)
{
    int own = c->config.shard;

    if (c->reported || c->spare.state != PD_LEASE_HELD) return;
    c->reported = true;
    if (own >= 0)
        say(c, LOG_NOTICE, "shard %d is owned by %s: this daemon is a spare", own, c->table.shards[own].url);
    else
        say(c, LOG_NOTICE, "this daemon is a spare");
}

/* Chooses the lowest shard whose owner has not renewed its lease for the time of a lease: the lease has ended, or the
 * shard had no owner when this daemon began to look. Owners that stop leave their keys, so a lease always ends so. */
static void look_for_shard(pd_cluster *c)
{
    for (uint32_t i = 0; i < c->table.n_shards; i++) {
        const pd_cluster_shard *shard = &c->table.shards[i];
        if (shard->alive || shard->url[0] == '\0' || c->now_ms < c->declined_ms[i]) continue;
        if (c->now_ms - c->view.missing_ms[i] < c->config.ttl_ms || c->view.down) continue;
        say(c, LOG_NOTICE, "shard %u has no owner: its last one, %s, has not renewed the lease", i, shard->url);
        choose(c, (int)i);
        return;
    }
}

bool pd_cluster_must_probe(const pd_cluster *c, const char *url)
{
    const pd_cluster_shard *shards = c->table.shards;
    const char *last = shards[c->chosen].url;
    bool elsewhere = false;

    assert(c->place == PD_PLACE_CHOSEN);
    for (int i = 0; i < PD_MAX_SHARDS; i++)
        elsewhere = elsewhere || (i != c->chosen && shards[i].alive && strcmp(shards[i].url, last) == 0);
    return last[0] != '\0' && strcmp(last, url) != 0 && !elsewhere;
}

int pd_cluster_claim(pd_cluster *c, const char *url, uint64_t life, pd_error *err)
{
    char key[PD_ENGINE_KEY], last[PD_ENGINE_KEY], value[PD_ENGINE_VALUE];
    int rc;

    assert(c->place == PD_PLACE_CHOSEN);
    if (strlen(url) >= sizeof c->url)
        return pd_fail(err, PD_INVALID_ARGUMENT, "cluster.advertise: %.100s...: longer than %zu bytes", url,
                       sizeof c->url - 1);
    snprintf(c->url, sizeof c->url, "%s", url);
    c->life = life;
    if ((rc = write_value(c, value, err)) != PD_OK) return rc;
    c->place = PD_PLACE_CLAIMS;
    c->replaces = c->table.shards[c->chosen].alive && strcmp(c->table.shards[c->chosen].url, url) == 0;
    key_of(c, key, "shard", c->chosen);
    key_of(c, last, "last", c->chosen);
    pd_lease_keep(&c->owner, key, last, value, PD_MUTANT(claims_after_another) ? 0 : c->chosen_tenure);
    return PD_OK;
}

void pd_cluster_decline(pd_cluster *c)
{
    assert(c->place == PD_PLACE_CHOSEN);
    c->declined_ms[c->chosen] = c->now_ms + DECLINED_MS;
    become_spare(c);
}

/* Removes a key that this daemon, or its earlier process, has registered. */
static void remove_key(pd_cluster *c, const char *key, uint64_t tenure)
{
    if (c->removal.open || c->now_ms < c->removal_due_ms) return;
    snprintf(c->removed, sizeof c->removed, "%s", key);
    c->removal.verb = PD_ENGINE_REMOVE;
    c->removal.key = c->removed;
    c->removal.tenure = tenure;
    c->engine->ask(c->engine, &c->removal);
}

/* Removes the key of a spare, because the daemon owns a shard now, or ends. */
static void drop_spare(pd_cluster *c)
{
    bool held = c->spare.state == PD_LEASE_HELD;

    pd_lease_release(&c->spare);
    if (held) remove_key(c, c->spare.key, c->spare.tenure);
}

/* Logs each new tenure of this daemon. */
static void report_tenure(pd_cluster *c)
{
    if (c->owner.tenure == c->tenure) return;
    if (c->tenure == 0)
        say(c, LOG_NOTICE, "this daemon owns shard %d of %u, tenure %llu", c->chosen, n_shards(c),
            (unsigned long long)c->owner.tenure);
    else
        say(c, LOG_WARNING, "the lease of shard %d had ended, and nobody has taken it: tenure %llu after %llu",
            c->chosen, (unsigned long long)c->owner.tenure, (unsigned long long)c->tenure);
    c->tenure = c->owner.tenure;
}

/* Handles the state of the lease of the shard that is claimed or owned. The lease of a shard that is claimed may have
 * ended before its answer was read, as when the process slept: it is renewed first. */
static void look_at_owner(pd_cluster *c)
{
    if (c->owner.state == PD_LEASE_HELD) {
        if (c->place == PD_PLACE_CLAIMS && pd_lease_left(&c->owner, c->now_ms) == 0) return;
        if (c->place == PD_PLACE_CLAIMS) drop_spare(c);
        c->place = PD_PLACE_OWNER;
        c->owned = true;
        report_tenure(c);
        return;
    }
    if (c->owner.state != PD_LEASE_TAKEN) return;
    if (!c->owned) {
        say(c, LOG_NOTICE, "another daemon was faster: shard %d is taken", c->chosen);
        pd_lease_release(&c->owner);
        become_spare(c);
        return;
    }
    if (PD_MUTANT(owner_serves_on)) return;
    c->place = PD_PLACE_LOST;
    say(c, LOG_ERR, "shard %d has a newer owner: this daemon stops at once", c->chosen);
    c->config.lost(c->config.arg);
}

static void decide(pd_cluster *c)
{
    switch (c->place) {
    case PD_PLACE_ASKS: begin(c); break;
    case PD_PLACE_SPARE:
        report_spare(c);
        look_for_shard(c);
        break;
    case PD_PLACE_CLAIMS:
    case PD_PLACE_OWNER: look_at_owner(c); break;
    case PD_PLACE_CHOSEN:
    case PD_PLACE_LOST: break;
    }
}

/* Logs when the engine ceases to answer, and when it answers again. */
static void report_engine(pd_cluster *c)
{
    const char *why = c->view.down ? c->view.why : c->owner.down ? c->owner.why : c->spare.why;

    c->table.engine_up = c->table.version > 0 && !c->view.down && !c->owner.down && !c->spare.down;
    if (c->view.down || c->owner.down || c->spare.down) {
        if (c->down_ms > 0) return;
        c->down_ms = c->now_ms > 0 ? c->now_ms : 1;
        say(c, LOG_WARNING, "the engine does not answer (%s): %s", why,
            c->owned ? "this daemon serves on, but no shard finds a new owner" : "this daemon waits for it");
    } else if (c->down_ms > 0) {
        say(c, LOG_NOTICE, "the engine answers again, after %.1f s", (double)(c->now_ms - c->down_ms) / 1e3);
        c->down_ms = 0;
    }
}

/* Logs once when the lease of this daemon's shard has ended, although the daemon owns the shard as far as it knows. */
static void report_lease(pd_cluster *c, bool ended)
{
    if (ended && !c->unsure)
        say(c, LOG_WARNING,
            "the lease of shard %d has ended: this daemon takes steps, but tells workers of no new durable step until "
            "the lease is renewed, since another daemon may own the shard",
            c->chosen);
    c->unsure = ended;
}

/* Copies what the daemon knows of itself into the table, and tells the user of changes. */
static void fill_own(pd_cluster *c)
{
    pd_cluster_table *table = &c->table;
    bool owns = c->place == PD_PLACE_OWNER;

    if (owns && table->tenure != c->owner.tenure) table->version++;
    table->own = owns ? c->chosen : -1;
    table->tenure = owns ? c->owner.tenure : 0;
    table->lease_ms = pd_lease_left(owns ? &c->owner : &c->spare, c->now_ms);
    table->owned_until_ms = owns ? pd_lease_end(&c->owner) : 0;
    report_lease(c, owns && table->lease_ms == 0);
    for (uint32_t i = 0; i < PD_MAX_SHARDS; i++)
        table->shards[i].lease_ms = owns && (int)i == c->chosen ? table->lease_ms : 0;
    if (table->version == c->version) return;
    c->version = table->version;
    if (c->changed != NULL) c->changed(c->changed_arg);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Makes the calls that are due. The shard is registered only when the key of the earlier process is removed. */
static uint64_t make_calls(pd_cluster *c)
{
    uint64_t due = pd_cluster_view_turn(&c->view, c->now_ms);

    due = sooner(due, pd_lease_turn(&c->spare, c->now_ms));
    if (!c->replaces) return sooner(due, pd_lease_turn(&c->owner, c->now_ms));
    remove_key(c, c->owner.key, c->table.shards[c->chosen].tenure);
    return sooner(due, c->removal_due_ms);
}

uint64_t pd_cluster_turn(pd_cluster *c, uint64_t now_ms)
{
    uint64_t due;

    c->now_ms = c->view.now_ms = c->owner.now_ms = c->spare.now_ms = now_ms;
    c->engine->turn(c->engine, now_ms);
    if (!c->leaves) decide(c);
    due = c->leaves ? UINT64_MAX : make_calls(c);
    report_engine(c);
    fill_own(c);
    return sooner(due, c->engine->turn(c->engine, now_ms));
}

void pd_cluster_leave(pd_cluster *c)
{
    if (c->removal.open) c->engine->drop(c->engine, &c->removal);
    c->leaves = true;
    c->removal_due_ms = 0;
    pd_lease_release(&c->owner);
    drop_spare(c);
}

bool pd_cluster_has_left(const pd_cluster *c)
{
    return c->leaves && !c->removal.open;
}
