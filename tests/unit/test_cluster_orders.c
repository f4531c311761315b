/* Tests how a small job on two shards recovers, in a model (cluster_model.h): in all orders of events, with a crash of
 * a shard at each moment; and with a worker that waits from any moment on until its step is durable, while the other
 * one dies at each moment. */
#define MOST_SHARDS 2
#define MOST_RANKS 2
/* Sanitizers make the search ten times slower, and it has one thread. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define MOST_STEPS 2
#else
#define MOST_STEPS 3
#endif
#include "test.h"
#include "cluster_model.h"

typedef struct search {
    uint64_t *seen; /* hash table of `room` entries: hashes of the states that the search has visited */
    size_t room, n;
    size_t ends;       /* number of states in which nothing more can happen */
    bool waits;        /* worker 1 waits once until its step is durable, and worker 0 may die in place of a shard */
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
        plain.life[i] = w->life[i] == m->s[i].life;
        plain.seen_life[i] = w->recovers && w->seen_life[i] == m->s[i].life;
        if (!w->recovers) plain.seen_step[i] = 0;
        if (!w->recovers) plain.seen_kept[i] = 0;
        if (!w->has_pulled[i]) plain.pulled[i] = 0;
        plain.heard[i] = 0; /* model.all_hear */
        plain.sync_life[i] = 0;
        if (w->sync > 0 && (w->confirms || w->synced[i]))
            plain.sync_life[i] = 1 + (w->sync_life[i] == w->life[i]) + 2 * (w->sync_life[i] == m->s[i].life);
    }
    if (!w->asks) plain.common = 0;
    return plain;
}

static uint64_t hash_model(const model *m, uint32_t crashes)
{
    uint64_t hash = mix(crashes + 1, m->acked);

    for (uint32_t i = 0; i < m->shards; i++) {
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

static void explore(search *q, model *m, uint32_t crashes);

/* The events after those of pairs of a worker and a shard: each shard has its checkpoint on the disk; each is killed;
 * worker 0 dies; worker 1 begins to wait for a durable step. */
enum { WRITTEN, KILLED = MOST_SHARDS, DIES = 2 * MOST_SHARDS, WAITS };

/* Lets an event happen. Returns whether it changes anything. */
static bool happen(model *m, uint32_t event)
{
    uint32_t pairs = m->shards * m->ranks, later = event - pairs;

    if (event < pairs) return act(m, event / m->shards, event % m->shards);
    if (later < KILLED) return finish_writing(&m->s[later]);
    if (later == WAITS) return begin_sync(m, 1);
    if (later == DIES)
        replace(m, 0);
    else
        crash(m, &m->s[later - KILLED]);
    return true;
}

/* Tries an event on a copy of the state. Returns whether it changes anything. */
static bool branch(search *q, const model *m, uint32_t event, uint32_t crashes)
{
    uint32_t later = event - m->shards * m->ranks;
    model copy = *m;
    bool changed;

    if (q->fault != NULL) return true;
    copy.s = malloc(m->shards * sizeof *m->s);
    copy.w = malloc(m->ranks * sizeof *m->w);
    memcpy(copy.s, m->s, m->shards * sizeof *m->s);
    memcpy(copy.w, m->w, m->ranks * sizeof *m->w);
    changed = happen(&copy, event);
    if (copy.fault != NULL)
        q->fault = copy.fault;
    else if (changed)
        explore(q, &copy, crashes + (later >= KILLED && later <= DIES));
    free(copy.s);
    free(copy.w);
    return changed;
}

static void explore(search *q, model *m, uint32_t crashes)
{
    uint32_t pairs = m->shards * m->ranks;
    bool any = false;

    if (!note_state(q, hash_model(m, crashes))) return;
    for (uint32_t e = 0; e < pairs + m->shards; e++) any |= branch(q, m, e, crashes);
    for (uint32_t i = 0; crashes == 0 && i < m->shards; i++) (void)branch(q, m, pairs + KILLED + i, crashes);
    if (q->waits && crashes == 0) (void)branch(q, m, pairs + DIES, crashes);
    if (q->waits && m->w[1].waited == 0) (void)branch(q, m, pairs + WAITS, crashes);
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
    explore(q, &m, 0);
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

HOLDS(all_orders_of_events_with_windows, try_all_orders(9, 9));
HOLDS(all_orders_of_events_without_windows, try_all_orders(0, 0));
HOLDS(all_orders_of_events_of_a_mixed_crew, try_all_orders(0, 9));

HOLDS(a_durable_step_stays_in_all_orders_of_events, assert_null(wait_in_all_orders(0, NONE)));
HOLDS(a_durable_step_stays_in_all_orders_of_a_mixed_crew, assert_null(wait_in_all_orders(9, NONE)));
HOLDS(going_back_behind_a_new_checkpoint_is_found,
      assert_string_equal(wait_in_all_orders(0, GO_BACK_IGNORES_DURABLE),
                          "a step is taken back that was durable on all shards"));
HOLDS(asking_shards_in_any_order_is_found, assert_string_equal(wait_in_all_orders(0, ASKS_IN_ANY_ORDER),
                                                               "a step is taken back that was durable on all shards"));
HOLDS(a_durable_step_that_is_not_confirmed_is_found,
      assert_string_equal(wait_in_all_orders(9, SYNC_UNCONFIRMED),
                          "a step is taken back that was durable on all shards"));
