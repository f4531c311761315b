/* Tests how a small job on two shards recovers, in a model (cluster_model.h): in all orders of events, with a crash of
 * a shard at each moment; with a worker that waits from any moment on until its step is durable, while the other one
 * dies at each moment; and with a takeover of a shard, whose owner sleeps and wakes at any moments, while the engine is
 * away at any time. */
#define MOST_SHARDS 2
#define MOST_RANKS 2
#define MOST_STEPS 3
#include "test.h"
#include "cluster_model.h"

typedef struct search {
    uint64_t *seen; /* hash table of `room` entries: hashes of the states that the search has visited */
    size_t room, n;
    size_t ends;       /* number of states in which nothing more can happen */
    bool waits;        /* worker 1 waits once until its step is durable, and worker 0 may die in place of a shard */
    bool takeover;     /* the owner of shard 0 sleeps once; no shard is killed */
    bool away;         /* the engine is away once, for a while */
    const char *fault; /* what has gone wrong; NULL: nothing */
} search;

static uint64_t hash_bytes(uint64_t seed, const void *at, size_t bytes)
{
    const uint8_t *b = at;

    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, b + i, sizeof word);
        if (word != 0) seed = mix(seed, mix(word, i));
    }
    return seed;
}

/* Returns a shard without what has no influence on later events. */
static shard plain_shard(const shard *s)
{
    shard plain = *s;

    plain.life = plain.crashes = plain.resent = plain.went_back = 0;
    return plain;
}

/* Does the same of a worker. Of lives it only matters whether they are the present ones. */
static worker plain_worker(const model *m, const worker *w)
{
    worker plain = *w;

    for (uint32_t i = 0; i < m->shards; i++) {
        plain.life[i] = w->life[i] == shard_of(m, w, i)->life;
        plain.seen_life[i] = w->recovers && w->seen_life[i] == shard_of(m, w, i)->life;
        if (!w->recovers) plain.seen_step[i] = 0;
        if (!w->recovers) plain.seen_kept[i] = 0;
        if (!w->has_pulled[i]) plain.pulled[i] = 0;
        plain.heard[i] = 0; /* model.all_hear */
        plain.sync_life[i] = 0;
        if (w->sync > 0 && (w->confirms || w->synced[i]))
            plain.sync_life[i] = 1 + (w->sync_life[i] == w->life[i]) + 2 * (w->sync_life[i] == shard_of(m, w, i)->life);
    }
    if (!w->asks) plain.common = 0;
    return plain;
}

/* What has happened so far that happens only once. */
typedef struct past {
    bool crashed, slept, went_away;
} past;

static uint64_t hash_model(const model *m, past p)
{
    uint64_t hash = mix(1 + p.crashed + 2 * p.slept + 4 * p.went_away + 8 * m->away, m->acked);

    for (uint32_t i = 0; i < 2 * m->shards; i++) {
        shard plain = plain_shard(&m->s[i]);
        hash = hash_bytes(hash, &plain, sizeof plain);
    }
    for (uint32_t r = 0; r < m->ranks; r++) {
        worker plain = plain_worker(m, &m->w[r]);
        hash = hash_bytes(hash, &plain, sizeof plain);
    }
    return hash;
}

static bool note_state(search *q, uint64_t hash)
{
    size_t at = hash % q->room;

    while (q->seen[at] != 0 && q->seen[at] != hash) at = (at + 1) % q->room;
    if (q->seen[at] == hash) return false;
    assert_true(q->n + 1 < q->room / 2);
    q->seen[at] = hash;
    q->n++;
    return true;
}

static void explore(search *q, model *m, past p);

/* The events after those of pairs of a worker and a shard. WRITTEN: the checkpoint of an owner is on the disk. WAKES,
 * RENEWS: an owner does. TAKEN, SLEEPS: shard 0. BROKEN: a worker's connection to shard 0. */
enum {
    WRITTEN,
    KILLED = WRITTEN + 2 * MOST_SHARDS,
    DIES = KILLED + MOST_SHARDS,
    WAITS,
    WAKES,
    RENEWS = WAKES + 2 * MOST_SHARDS,
    TAKEN = RENEWS + 2 * MOST_SHARDS,
    BACK,
    SLEEPS,
    AWAY,
    BROKEN
};

/* Lets an event happen that is none of a worker with a shard. Returns whether it changes anything. */
static bool happen_later(model *m, uint32_t event)
{
    bool away = m->away;

    if (event < KILLED) return finish_writing(m, &m->s[event - WRITTEN]);
    if (event >= WAKES && event < RENEWS) return wake_up(&m->s[event - WAKES]);
    if (event >= RENEWS && event < TAKEN) return renew(m, &m->s[event - RENEWS]);
    switch (event) {
    case DIES: replace(m, 0); return true;
    case WAITS: return begin_sync(m, 1);
    case TAKEN: return take_shard(m, 0);
    case SLEEPS: return fall_asleep(&m->s[0]);
    case AWAY:
    case BACK: m->away = event == AWAY; return m->away != away;
    case BROKEN: return change_owner(m, &m->w[0], 0);
    default: crash(m, &m->s[event - KILLED]); return true;
    }
}

/* Tries an event on a copy of the state. Returns whether it changes anything. */
static bool branch(search *q, const model *m, uint32_t event, past p)
{
    uint32_t pairs = m->shards * m->ranks;
    model copy = *m;
    bool changed;

    if (q->fault != NULL) return true;
    copy.s = malloc(2 * m->shards * sizeof *m->s);
    copy.w = malloc(m->ranks * sizeof *m->w);
    memcpy(copy.s, m->s, 2 * m->shards * sizeof *m->s);
    memcpy(copy.w, m->w, m->ranks * sizeof *m->w);
    changed = event < pairs ? act(&copy, event / m->shards, event % m->shards) : happen_later(&copy, event - pairs);
    if (copy.fault != NULL)
        q->fault = copy.fault;
    else if (changed)
        explore(q, &copy, p);
    free(copy.s);
    free(copy.w);
    return changed;
}

/* Tries the events that need not happen. */
static void branch_once(search *q, const model *m, past p)
{
    uint32_t first = m->shards * m->ranks;
    const past crashed = { true, p.slept, p.went_away }, slept = { p.crashed, true, p.went_away },
               away = { p.crashed, p.slept, true };

    for (uint32_t i = 0; !p.crashed && !q->takeover && i < m->shards; i++)
        (void)branch(q, m, first + KILLED + i, crashed);
    if (q->waits && !p.crashed) (void)branch(q, m, first + DIES, crashed);
    if (q->waits && m->w[1].waited == 0) (void)branch(q, m, first + WAITS, p);
    if (q->takeover && !p.slept) (void)branch(q, m, first + SLEEPS, slept);
    if (q->away && !p.went_away) (void)branch(q, m, first + AWAY, away);
    if (q->takeover) (void)branch(q, m, first + BROKEN, p);
}

static void explore(search *q, model *m, past p)
{
    uint32_t first = m->shards * m->ranks;
    bool any = false;

    if (!note_state(q, hash_model(m, p))) return;
    for (uint32_t e = 0; e < first + KILLED; e++) any |= branch(q, m, e, p);
    for (uint32_t e = first + WAKES; q->takeover && e <= first + BACK; e++) any |= branch(q, m, e, p);
    branch_once(q, m, p);
    if (any || q->fault != NULL) return;
    q->ends++;
    if (!is_done(m)) q->fault = "nothing more happens, and the job is not done";
}

/* Returns what has gone wrong in the first order in which something has; NULL: in no order. */
static const char *find_fault(search *q, uint32_t steps, uint32_t window_0, uint32_t window_1, bug b)
{
    model m;

    q->room = (size_t)1 << 24;
    q->seen = calloc(q->room, sizeof *q->seen);
    model_new(&m, 2, 2, steps, 1, b);
    m.all_hear = true;
    m.w[0].window = window_0;
    m.w[1].window = window_1;
    explore(q, &m, (past){ false, false, false });
    assert_true(q->ends > 0 || q->fault != NULL);
    model_free(&m);
    free(q->seen);
    return q->fault;
}

static void try_all_orders(uint32_t window_0, uint32_t window_1)
{
    const char *fault = find_fault(&(search){ 0 }, MOST_STEPS, window_0, window_1, NONE);

    if (fault != NULL) fail_msg("%s", fault);
}

/* Looks for faults while worker 1 waits until a step is durable, and worker 0 dies. */
static const char *wait_in_all_orders(uint32_t window_1, bug b)
{
    return find_fault(&(search){ .waits = true }, 2, 0, window_1, b);
}

/* Looks for faults while shard 0 finds a new owner. */
static const char *take_over_in_all_orders(uint32_t steps, uint32_t window, bool away, bug b)
{
    return find_fault(&(search){ .takeover = true, .away = away }, steps, window, window, b);
}

HOLDS(all_orders_of_events_with_windows, try_all_orders(9, 9));
HOLDS(all_orders_of_events_without_windows, try_all_orders(0, 0));
HOLDS(all_orders_of_events_of_a_mixed_crew, try_all_orders(0, 9));

HOLDS(a_durable_step_stays_in_all_orders_of_events, assert_null(wait_in_all_orders(0, NONE)));
HOLDS(a_durable_step_stays_in_all_orders_of_a_mixed_crew, assert_null(wait_in_all_orders(9, NONE)));
HOLDS(going_back_behind_a_new_checkpoint_is_found,
      assert_string_equal(wait_in_all_orders(0, GO_BACK_IGNORES_DURABLE),
                          "a step counts as durable that a shard does not have"));
HOLDS(asking_shards_in_any_order_is_found, assert_string_equal(wait_in_all_orders(0, ASKS_IN_ANY_ORDER),
                                                               "a step counts as durable that a shard does not have"));
HOLDS(a_durable_step_that_is_not_confirmed_is_found,
      assert_string_equal(wait_in_all_orders(9, SYNC_UNCONFIRMED),
                          "a step counts as durable that a shard does not have"));

HOLDS(a_takeover_in_all_orders_with_windows, assert_null(take_over_in_all_orders(MOST_STEPS, 9, false, NONE)));
HOLDS(a_takeover_in_all_orders_without_windows, assert_null(take_over_in_all_orders(MOST_STEPS - 1, 0, false, NONE)));
HOLDS(a_takeover_in_all_orders_while_the_engine_is_away,
      assert_null(take_over_in_all_orders(MOST_STEPS - 1, 9, true, NONE)));
HOLDS(a_worker_that_takes_a_lower_tenure_is_found,
      assert_string_equal(take_over_in_all_orders(MOST_STEPS, 9, true, LOWER_TENURE_TAKEN),
                          "a worker goes to an owner with a lower tenure than it has seen"));
HOLDS(an_owner_that_serves_on_is_found, assert_string_equal(take_over_in_all_orders(MOST_STEPS, 9, true, SERVES_ON),
                                                            "nothing more happens, and the job is not done"));
