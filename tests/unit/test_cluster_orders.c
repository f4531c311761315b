/* Tests how a small job on two shards recovers, in a model (cluster_model.h): in all orders of events, with a crash of
 * a shard at each moment. */
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
    size_t ends; /* number of states in which nothing more can happen */
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
    }
    if (!w->asks) plain.common = 0;
    return plain;
}

static uint64_t hash_model(const model *m, uint32_t crashes)
{
    uint64_t hash = crashes + 1;

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

/* Tries an event on a copy of the state. Returns whether it changes anything. */
static bool branch(search *q, const model *m, uint32_t event, uint32_t crashes)
{
    uint32_t pairs = m->shards * m->ranks;
    model copy = *m;
    bool changed = true;

    copy.s = malloc(m->shards * sizeof *m->s);
    copy.w = malloc(m->ranks * sizeof *m->w);
    memcpy(copy.s, m->s, m->shards * sizeof *m->s);
    memcpy(copy.w, m->w, m->ranks * sizeof *m->w);
    if (event < pairs)
        changed = act(&copy, event / m->shards, event % m->shards);
    else if (event < pairs + m->shards)
        changed = finish_writing(&copy.s[event - pairs]);
    else
        crash(&copy, &copy.s[event - pairs - m->shards]);
    if (copy.fault != NULL) fail_msg("%s", copy.fault);
    if (changed) explore(q, &copy, crashes + (event >= pairs + m->shards));
    free(copy.s);
    free(copy.w);
    return changed;
}

static void explore(search *q, model *m, uint32_t crashes)
{
    uint32_t events = m->shards * m->ranks + m->shards;
    bool any = false;

    if (!note_state(q, hash_model(m, crashes))) return;
    for (uint32_t e = 0; e < events; e++) any |= branch(q, m, e, crashes);
    for (uint32_t i = 0; crashes == 0 && i < m->shards; i++) (void)branch(q, m, events + i, crashes);
    if (any) return;
    q->ends++;
    if (!is_done(m)) fail_msg("nothing more happens, and the job is not done");
}

static void try_all_orders(uint32_t window_0, uint32_t window_1)
{
    search q = { .room = (size_t)1 << 24 };
    model m;

    q.seen = calloc(q.room, sizeof *q.seen);
    model_new(&m, 2, 2, MOST_STEPS, 1, NONE);
    m.w[0].window = window_0;
    m.w[1].window = window_1;
    explore(&q, &m, 0);
    assert_true(q.ends > 0);
    model_free(&m);
    free(q.seen);
}

HOLDS(all_orders_of_events_with_windows, try_all_orders(9, 9));
HOLDS(all_orders_of_events_without_windows, try_all_orders(0, 0));
HOLDS(all_orders_of_events_of_a_mixed_crew, try_all_orders(0, 9));
