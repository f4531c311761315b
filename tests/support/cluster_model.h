/* cluster_model.h - a job on several shards as a bare state machine, without tensors, frames and files: verdicts,
 * private and common recoveries (client/lib/common_step.c), lives, which checkpoints stay, and when a step counts as
 * durable on all shards (pd_client_sync).
 *
 * Weights are hashes of all that went into them, so a step that is taken from weights of different steps, twice, or
 * with another verdict is seen at once. The functions are in this header because a test chooses the sizes of the
 * arrays. */
#ifndef CLUSTER_MODEL_H
#define CLUSTER_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef MOST_SHARDS
#define MOST_SHARDS 64
#define MOST_RANKS 1000
#define MOST_STEPS 60
#endif
enum { KEPT_MOST = 16 };

/* Bugs that the model can have. */
typedef enum bug {
    NONE,
    VERDICT_OF_STEP_BEFORE,
    GO_BACK_IGNORES_LIFE,
    GO_BACK_IGNORES_DURABLE, /* a shard goes back though a step became durable since the worker has looked */
    GO_BACK_RAISES_FLOOR,    /* a shard that goes back gives up the steps before, which others may need */
    ASKS_IN_ANY_ORDER,       /* the shard whose durable step is the lowest is not asked first to go back */
    SYNC_UNCONFIRMED,        /* a step counts as durable once each shard has said so, at any time */
    COMMON_TOO_HIGH,
    RESENDS_TO_ALL,
    BUGS
} bug;

typedef struct checkpoint {
    bool there;
    uint64_t weights, tally; /* the weights after the step; the shard's tally of the step */
} checkpoint;

typedef struct shard {
    uint32_t step, life, n_got, writing;      /* writing: step of the checkpoint that is being written; 0: none */
    uint32_t common, floor;                   /* as in pd_checkpoint_policy */
    uint64_t weights, sum, tally, last_tally; /* tally of step + 1, once all ranks have pushed it; that of `step` */
    bool untouched;                           /* it has got nothing since it was loaded */
    bool got[MOST_RANKS];                     /* which ranks have pushed step + 1 */
    checkpoint at[MOST_STEPS + 1];
    uint32_t crashes, resent, went_back;
} shard;

typedef struct worker {
    uint32_t step, window; /* step of its weights; number of steps that it can send again */
    uint32_t since;        /* first step that its window may have */
    uint32_t life[MOST_SHARDS];
    uint64_t base[MOST_STEPS + 1]; /* from which the gradients of a step were computed: all weights before it */
    uint64_t pulled[MOST_SHARDS];
    bool has_pulled[MOST_SHARDS];
    /* tallies of the steps, from all shards */
    uint64_t tally[MOST_STEPS + 1][MOST_SHARDS];
    bool told[MOST_STEPS + 1][MOST_SHARDS];
    /* a common recovery: the shards that it has looked at, and that it has asked; the step */
    bool recovers, asks, asks_rest; /* asks: first the shard whose durable step is the lowest, then the rest */
    uint32_t next, common;
    uint32_t seen_step[MOST_SHARDS], seen_life[MOST_SHARDS];
    uint64_t seen_kept[MOST_SHARDS];
    /* Checkpoints that the shards have told of, as bits. */
    uint64_t heard[MOST_SHARDS];
    /* A step that the worker waits for to be durable; 0: none. The shards that have said that it is, and their lives
     * then; confirms: all have, and are asked once more. */
    uint32_t sync, waited; /* waited: last step for which it has begun to wait */
    bool confirms, synced[MOST_SHARDS];
    uint32_t sync_life[MOST_SHARDS];
} worker;

typedef struct model {
    uint32_t shards, ranks, steps, every;
    bug bug;
    bool all_hear; /* each worker knows at once which checkpoints there are: there are fewer states to search */
    shard *s;
    worker *w;
    uint64_t (*right)[MOST_SHARDS]; /* the weights of an undisturbed run */
    const char *fault;              /* what has gone wrong; NULL: nothing */
    uint32_t crashes, acked;        /* acked: newest step that a worker was told to be durable on all shards */
} model;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u;

    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t gradient(uint32_t rank, uint32_t i, uint32_t step, uint64_t base)
{
    return mix(mix(rank, i), mix(step, base));
}

static uint64_t fold(const uint64_t *values, uint32_t n)
{
    uint64_t all = 1;

    for (uint32_t i = 0; i < n; i++) all = mix(all, values[i]);
    return all;
}

static uint64_t tally_of(uint32_t i, uint32_t step, uint64_t sum)
{
    return mix(mix(77, i), mix(step, sum));
}

static void blame(model *m, const char *what)
{
    if (m->fault == NULL) m->fault = what;
}

/* Computes the weights of an undisturbed run. */
static void compute_right(model *m)
{
    for (uint32_t i = 0; i < m->shards; i++) m->right[0][i] = mix(5, i);
    for (uint32_t step = 1; step <= m->steps; step++) {
        uint64_t base = fold(m->right[step - 1], m->shards), sums[MOST_SHARDS] = { 0 }, tallies[MOST_SHARDS];
        for (uint32_t i = 0; i < m->shards; i++) {
            for (uint32_t r = 0; r < m->ranks; r++) sums[i] += gradient(r, i, step, base);
            tallies[i] = tally_of(i, step, sums[i]);
        }
        for (uint32_t i = 0; i < m->shards; i++)
            m->right[step][i] = mix(m->right[step - 1][i], mix(sums[i], fold(tallies, m->shards)));
    }
}

static void model_new(model *m, uint32_t shards, uint32_t ranks, uint32_t steps, uint32_t every, bug b)
{
    *m = (model){ .shards = shards, .ranks = ranks, .steps = steps, .every = every, .bug = b };
    m->s = calloc(shards, sizeof *m->s);
    m->w = calloc(ranks, sizeof *m->w);
    m->right = calloc(MOST_STEPS + 1, sizeof *m->right);
    compute_right(m);
    for (uint32_t i = 0; i < shards; i++) {
        m->s[i].weights = m->right[0][i];
        m->s[i].life = 1;
        m->s[i].at[0] = (checkpoint){ .there = true, .weights = m->right[0][i] };
    }
    for (uint32_t r = 0; r < ranks; r++) {
        m->w[r].since = 1;
        m->w[r].base[1] = fold(m->right[0], shards);
        for (uint32_t i = 0; i < shards; i++) m->w[r].life[i] = m->w[r].heard[i] = 1;
    }
}

static void model_free(model *m)
{
    free(m->s);
    free(m->w);
    free(m->right);
}

/* ---- a shard ---- */

/* Removes checkpoints as the checkpoint writer does, with checkpoint_keep = 1. */
static void tidy(shard *s)
{
    uint32_t n = 0;
    bool common = false;

    for (uint32_t step = MOST_STEPS + 1; step-- > 0;) {
        bool first;
        if (!s->at[step].there) continue;
        first = !common && step <= s->floor;
        common = common || first;
        if (n++ == 0 || first || (!common && n < KEPT_MOST)) continue;
        s->at[step].there = false;
    }
}

static uint32_t durable(const shard *s)
{
    uint32_t step = MOST_STEPS;

    while (!s->at[step].there) step--;
    return step;
}

static void clear_round(shard *s)
{
    memset(s->got, 0, sizeof s->got);
    s->n_got = 0;
    s->sum = s->tally = 0;
}

/* Loads a checkpoint: after a crash, or because the shard goes back. */
static void load(shard *s, uint32_t step)
{
    for (uint32_t later = step + 1; later <= MOST_STEPS; later++) s->at[later].there = false;
    s->step = step;
    s->weights = s->at[step].weights;
    s->last_tally = s->at[step].tally;
    s->writing = 0;
    s->untouched = true;
    s->life++;
    clear_round(s);
}

static void crash(model *m, shard *s)
{
    s->crashes++;
    m->crashes++;
    s->common = s->floor = 0;
    load(s, durable(s));
}

static void begin_checkpoint(shard *s)
{
    s->writing = s->step;
    s->at[s->step].weights = s->weights;
    s->at[s->step].tally = s->last_tally;
}

/* The checkpoint that is being written is on the disk. */
static bool finish_writing(shard *s)
{
    if (s->writing == 0) return false;
    s->at[s->writing] = (checkpoint){ true, s->at[s->writing].weights, s->at[s->writing].tally };
    s->writing = 0;
    tidy(s);
    return true;
}

static void push(model *m, uint32_t r, uint32_t i, uint32_t step, uint64_t base)
{
    shard *s = &m->s[i];

    s->got[r] = true;
    s->untouched = false;
    s->sum += gradient(r, i, step, base);
    if (++s->n_got == m->ranks) s->tally = tally_of(i, step, s->sum);
}

/* Takes the verdict of the shard's next step, and with it the step. */
static void close_step(model *m, uint32_t i, const uint64_t *tallies)
{
    shard *s = &m->s[i];

    if (m->bug != VERDICT_OF_STEP_BEFORE && tallies[i] != s->tally) blame(m, "a verdict is not of the shard's tally");
    s->weights = mix(s->weights, mix(s->sum, fold(tallies, m->shards)));
    s->step++;
    s->last_tally = s->tally;
    clear_round(s);
    if (s->weights != m->right[s->step][i]) blame(m, "weights differ from those of an undisturbed run");
    if (s->step % m->every == 0 && s->writing == 0) begin_checkpoint(s);
}

/* ---- a common recovery ---- */

static uint64_t list_kept(const shard *s)
{
    uint64_t kept = 0;

    for (uint32_t step = 0; step <= MOST_STEPS; step++) kept |= (uint64_t)s->at[step].there << step;
    return kept;
}

/* Takes over the weights of all shards, which are at one step. */
static void take_over(model *m, worker *w)
{
    uint64_t weights[MOST_SHARDS];

    for (uint32_t i = 0; i < m->shards; i++) {
        weights[i] = m->s[i].weights;
        w->life[i] = m->s[i].life;
        w->heard[i] = w->seen_kept[i];
        w->has_pulled[i] = false;
    }
    w->step = w->seen_step[0];
    if (w->step < m->acked) blame(m, "a step is taken back that was durable on all shards");
    w->since = w->step + 1;
    if (w->step < MOST_STEPS) w->base[w->step + 1] = fold(weights, m->shards);
    memset(w->told, 0, sizeof w->told);
    w->recovers = w->asks = false;
    w->next = 0;
}

static bool choose_common(const model *m, worker *w)
{
    uint64_t kept = UINT64_MAX, least = UINT64_MAX;

    for (uint32_t i = 0; i < m->shards; i++) {
        kept &= w->seen_kept[i] | (uint64_t)1 << w->seen_step[i];
        if (w->seen_step[i] < least) least = w->seen_step[i];
    }
    kept &= ((uint64_t)2 << least) - 1;
    for (w->common = (uint32_t)least; kept != 0 && (kept >> w->common & 1) == 0; w->common--) continue;
    return kept != 0;
}

/* Returns whether the shards are one step apart, and those behind have all contributions to it: then a verdict is all
 * that they lack. *behind: one of these shards. */
static bool lacks_verdict(const model *m, const worker *w, uint32_t *behind)
{
    uint32_t most = 0;
    bool found = false;

    for (uint32_t i = 0; i < m->shards; i++)
        if (w->seen_step[i] > most) most = w->seen_step[i];
    for (uint32_t i = 0; i < m->shards; i++) {
        if (w->seen_step[i] == most) continue;
        if (w->seen_step[i] + 1 != most || m->s[i].step != w->seen_step[i] || m->s[i].tally == 0) return false;
        *behind = i;
        found = true;
    }
    return found;
}

static void give_verdict(model *m, worker *w, uint32_t behind)
{
    uint64_t tallies[MOST_SHARDS];
    uint32_t step = m->s[behind].step + 1;

    for (uint32_t i = 0; i < m->shards; i++) {
        if (m->s[i].step != step && (m->s[i].step + 1 != step || m->s[i].tally == 0)) return;
        tallies[i] = m->s[i].step == step ? m->s[i].last_tally : m->s[i].tally;
    }
    (void)w;
    close_step(m, behind, tallies);
}

/* Returns whether a shard is still as the worker has seen it. */
static bool is_unchanged(const model *m, const worker *w, uint32_t i)
{
    return m->s[i].step == w->seen_step[i] && m->s[i].life == w->seen_life[i];
}

/* Decides after a look at all shards, which may have gone on meanwhile. */
static void decide(model *m, worker *w)
{
    uint32_t behind = 0;
    bool same = true, unchanged = true;

    for (uint32_t i = 0; i < m->shards; i++) {
        same = same && w->seen_step[i] == w->seen_step[0];
        unchanged = unchanged && is_unchanged(m, w, i);
    }
    w->next = 0;
    if (same) {
        if (unchanged) take_over(m, w);
    } else if (lacks_verdict(m, w, &behind)) {
        if (unchanged) give_verdict(m, w, behind);
    } else if (choose_common(m, w)) {
        w->asks = true;
    } else if (unchanged) {
        blame(m, "there is no step to which all shards can go back");
    }
}

/* Goes on with the rest of the shards, or with another look, once all shards had their turn. */
static void end_round(const model *m, worker *w)
{
    if (w->next < m->shards) return;
    w->next = 0;
    w->asks = !w->asks_rest;
    w->asks_rest = w->asks;
}

/* Returns the newest of the checkpoints that the worker has seen at a shard. */
static uint32_t seen_durable(const worker *w, uint32_t i)
{
    return 63 - (uint32_t)__builtin_clzll(w->seen_kept[i]);
}

/* Returns whether the shard is asked before the others: its durable step is the lowest. Once it has gone back, no step
 * becomes durable on all shards that was not when the worker looked. */
static bool is_first(const model *m, const worker *w, uint32_t i)
{
    for (uint32_t k = 0; k < m->shards; k++)
        if (seen_durable(w, k) < seen_durable(w, i)) return false;
    return true;
}

/* Returns whether a shard refuses to go back: another worker was faster, a step has become durable, or the checkpoint
 * was removed meanwhile. */
static bool refuses(const model *m, const worker *w, uint32_t i)
{
    const shard *s = &m->s[i];

    if (m->bug != GO_BACK_IGNORES_LIFE && s->life != w->seen_life[i]) return true;
    if (m->bug != GO_BACK_IGNORES_DURABLE && durable(s) > seen_durable(w, i)) return true;
    return !s->at[w->common].there && s->step != w->common;
}

static void ask(model *m, worker *w, uint32_t i)
{
    shard *s = &m->s[i];
    bool first = m->bug == ASKS_IN_ANY_ORDER ? w->seen_step[i] > w->common : is_first(m, w, i);

    if (first == w->asks_rest) {
        end_round(m, w);
        return;
    }
    if (refuses(m, w, i)) { /* the worker looks again */
        w->asks = w->asks_rest = false;
        w->next = 0;
        return;
    }
    /* A shard that was loaded at this step, and has got nothing since, has nothing to take back. */
    if (s->at[w->common].there && !(s->step == w->common && s->untouched)) {
        load(s, w->common);
        if (s->floor > w->common) s->floor = w->common;
        if (s->common > w->common) s->common = s->floor;
        if (m->bug == GO_BACK_RAISES_FLOOR) s->common = s->floor = w->common;
        s->went_back++;
    }
    end_round(m, w);
}

static void recover(model *m, worker *w)
{
    uint32_t i = w->next++;

    if (w->asks) {
        ask(m, w, i);
        return;
    }
    w->seen_step[i] = m->s[i].step;
    w->seen_life[i] = m->s[i].life;
    w->seen_kept[i] = list_kept(&m->s[i]);
    if (w->next == m->shards) decide(m, w);
}

/* ---- a worker ---- */

/* Returns the newest step of which all shards have a checkpoint, as far as the worker knows. */
static uint32_t known_common(const model *m, const worker *w)
{
    uint64_t kept = UINT64_MAX, any = 0;

    for (uint32_t i = 0; i < m->shards; i++) {
        uint64_t heard = m->all_hear ? list_kept(&m->s[i]) : w->heard[i];
        kept &= heard;
        any |= heard;
    }
    if (m->bug == COMMON_TOO_HIGH) kept = any;
    return kept > 0 ? 63 - (uint32_t)__builtin_clzll(kept) : 0;
}

static void tell_common(const model *m, const worker *w, shard *s)
{
    uint32_t common = known_common(m, w);

    if (common <= s->common || (!s->at[common].there && m->bug != COMMON_TOO_HIGH)) return;
    s->floor = m->bug == COMMON_TOO_HIGH ? common : s->common;
    s->common = common;
}

/* Returns whether the worker can send a shard all steps again that it lacks. */
static bool window_reaches(const worker *w, const shard *s)
{
    return s->step + 1 >= w->since && s->step + w->window >= w->step;
}

static bool has_verdict(const model *m, const worker *w, uint32_t step)
{
    for (uint32_t i = 0; i < m->shards; i++)
        if (!w->told[step][i]) return false;
    return true;
}

/* Notes the shard's tally of its next step, or of its last one. Returns whether that is news. */
static bool note_tally(worker *w, const shard *s, uint32_t i)
{
    if (s->tally != 0 && !w->told[s->step + 1][i]) {
        w->tally[s->step + 1][i] = s->tally;
        return w->told[s->step + 1][i] = true;
    }
    if (s->step == 0 || s->step != w->step + 1 || w->told[s->step][i]) return false;
    w->tally[s->step][i] = s->last_tally;
    return w->told[s->step][i] = true;
}

/* Pulls the weights of the next step, and takes it once it has those of all shards. */
static bool pull(model *m, worker *w, uint32_t i)
{
    if (m->s[i].step != w->step + 1 || w->has_pulled[i]) return false;
    w->pulled[i] = m->s[i].weights;
    w->heard[i] |= list_kept(&m->s[i]);
    w->has_pulled[i] = true;
    for (uint32_t k = 0; k < m->shards; k++)
        if (!w->has_pulled[k]) return true;
    w->step++;
    if (w->step < MOST_STEPS) w->base[w->step + 1] = fold(w->pulled, m->shards);
    memset(w->has_pulled, 0, sizeof w->has_pulled);
    return true;
}

/* Sends a shard that has lost steps the next of them. */
static bool resend(model *m, worker *w, uint32_t r, uint32_t i)
{
    shard *s = &m->s[i];

    if (s->got[r]) return false;
    push(m, r, i, s->step + 1, w->base[s->step + 1]);
    s->resent++;
    for (uint32_t k = 0; m->bug == RESENDS_TO_ALL && k < m->shards; k++) m->s[k].resent += k != i;
    return true;
}

/* ---- waiting for a durable step ---- */

/* Lets worker r wait until its present step is durable, before it pushes the next one. Returns whether it has begun
 * to. */
static bool begin_sync(model *m, uint32_t r)
{
    worker *w = &m->w[r];

    if (w->recovers || w->sync > 0 || w->step <= w->waited) return false;
    for (uint32_t i = 0; i < m->shards; i++)
        if (m->s[i].step > w->step || (m->s[i].step == w->step && m->s[i].got[r])) return false;
    w->sync = w->waited = w->step;
    w->confirms = false;
    memset(w->synced, 0, sizeof w->synced);
    return true;
}

/* Ends a round of answers: the step is durable on all shards if each has said so once more since all have, in the same
 * life. */
static void end_sync_round(model *m, worker *w)
{
    bool same = true;

    for (uint32_t i = 0; i < m->shards; i++) {
        if (!w->synced[i]) return;
        same = same && w->sync_life[i] == w->life[i];
    }
    memset(w->synced, 0, sizeof w->synced);
    if (same && (w->confirms || m->bug == SYNC_UNCONFIRMED)) {
        for (uint32_t i = 0; i < m->shards; i++)
            if (!m->s[i].at[w->sync].there) blame(m, "a step counts as durable that a shard does not have");
        if (w->sync > m->acked) m->acked = w->sync;
        w->sync = 0;
    }
    w->confirms = same;
}

/* Asks a shard for a checkpoint of the step. Returns whether anything has changed. */
static bool sync_shard(model *m, worker *w, uint32_t i)
{
    shard *s = &m->s[i];

    if (w->synced[i] || s->step < w->sync) return false;
    if (!s->at[w->sync].there) {
        if (s->writing != 0 || s->step != w->sync) return false;
        begin_checkpoint(s);
        return true;
    }
    w->synced[i] = true;
    if (!w->confirms) w->sync_life[i] = s->life;
    w->heard[i] |= list_kept(s);
    end_sync_round(m, w);
    return true;
}

/* Lets worker r do something with shard i. Returns whether anything has changed. */
static bool act(model *m, uint32_t r, uint32_t i)
{
    worker *w = &m->w[r];
    shard *s = &m->s[i];

    if (w->recovers) {
        recover(m, w);
        return true;
    }
    if (w->life[i] != s->life && s->step < w->step && !window_reaches(w, s)) {
        w->recovers = true;
        w->next = w->sync = 0;
        return true;
    }
    if (w->life[i] != s->life) {
        w->life[i] = s->life;
        w->heard[i] = list_kept(s);
        if (s->step <= w->step) w->has_pulled[i] = false;
        return true;
    }
    if (s->step > w->step + 1) {
        blame(m, "a shard is ahead of a worker by two steps");
        return false;
    }
    if (s->step < w->step && resend(m, w, r, i)) return true;
    if (w->sync > 0 && sync_shard(m, w, i)) return true;
    if (s->step == w->step && w->step < m->steps && w->sync == 0 && !s->got[r]) {
        push(m, r, i, w->step + 1, w->base[w->step + 1]);
        tell_common(m, w, s);
        w->heard[i] |= list_kept(s);
        return true;
    }
    if (note_tally(w, s, i) || pull(m, w, i)) return true;
    if (s->tally == 0 || !has_verdict(m, w, s->step + 1)) return false;
    close_step(m, i, w->tally[m->bug == VERDICT_OF_STEP_BEFORE && s->step > 0 ? s->step : s->step + 1]);
    return true;
}

/* A worker dies, and a new process begins. */
static void replace(model *m, uint32_t r)
{
    worker *w = &m->w[r];

    *w = (worker){ .window = w->window, .waited = w->waited, .recovers = true };
    m->crashes++;
}

static bool is_done(const model *m)
{
    for (uint32_t i = 0; i < m->shards; i++)
        if (m->s[i].step < m->steps) return false;
    for (uint32_t r = 0; r < m->ranks; r++)
        if (m->w[r].step < m->steps || m->w[r].recovers || m->w[r].sync > 0) return false;
    return true;
}

#endif
