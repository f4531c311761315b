/* cluster_model.h - a job on several shards as a bare state machine, without tensors, frames and files: verdicts,
 * private and common recoveries (client/lib/common_step.c), lives, which checkpoints stay, when a step counts as durable
 * on all shards (pd_client_sync), and owners of a shard that follow each other.
 *
 * Each shard has two places for an owner, of which one is used at first. When an owner sleeps for longer than its lease
 * lasts, the other place gets a new owner (a spare), with the newest checkpoint and a higher tenure. The earlier one may
 * wake, and serves on until it learns from the engine (etcd) that it is no longer the owner. Until then it takes steps,
 * but does not say that steps are durable, as the new owner may have gone back since. From the takeover on the disk
 * belongs to the new owner: what the earlier one writes does not count.
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
    LOWER_TENURE_TAKEN, /* a worker goes to an owner with a lower tenure than it has seen */
    SERVES_ON,          /* an owner serves on though it has learnt that another one has its shard */
    REPORTS_UNSURE,     /* an owner that has slept says that steps are durable before it has renewed its lease */
    NO_TABLE_ASKED,     /* a new process does not ask other shards who owns each shard now */
    WRITES_ON,          /* a checkpoint of an earlier owner counts as durable after the takeover */
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
    uint32_t tenure;               /* of this owner; 0: there is none in this place */
    bool asleep, unsure, replaced; /* unsure: it has woken, and not renewed its lease since */
} shard;

typedef struct worker {
    uint32_t step, window; /* step of its weights; number of steps that it can send again */
    uint32_t since;        /* first step that its window may have */
    uint32_t life[MOST_SHARDS];
    uint64_t base[MOST_STEPS + 1]; /* from which the gradients of a step were computed: all weights before it */
    uint64_t pulled[MOST_SHARDS];
    bool has_pulled[MOST_SHARDS];
    uint8_t
        owner[MOST_SHARDS]; /* the place of the owner to which it is connected, and the highest tenure it has seen */
    uint32_t tenure[MOST_SHARDS];
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
    shard *s;      /* the owners in the first places, then those in the second places */
    worker *w;
    uint64_t (*right)[MOST_SHARDS]; /* the weights of an undisturbed run */
    const char *fault;              /* what has gone wrong; NULL: nothing */
    bool away;                      /* the engine does not answer */
    bool calm;                      /* all workers can send all steps again, and none dies: none goes back */
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
    m->s = calloc((size_t)2 * shards, sizeof *m->s);
    m->w = calloc(ranks, sizeof *m->w);
    m->right = calloc(MOST_STEPS + 1, sizeof *m->right);
    compute_right(m);
    for (uint32_t i = 0; i < shards; i++) {
        m->s[i].weights = m->right[0][i];
        m->s[i].life = m->s[i].tenure = 1;
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

/* ---- owners ---- */

static shard *shard_of(const model *m, const worker *w, uint32_t i)
{
    return &m->s[w->owner[i] * m->shards + i];
}

static bool is_reachable(const shard *s)
{
    return s->tenure > 0 && !s->asleep;
}

/* Returns the shard's present owner. */
static shard *holder(const model *m, uint32_t i)
{
    return m->s[m->shards + i].tenure > m->s[i].tenure ? &m->s[m->shards + i] : &m->s[i];
}

/* Lets a worker connect to the other owner of a shard. Returns whether it has. */
static bool change_owner(const model *m, worker *w, uint32_t i)
{
    const shard *other = &m->s[(1 - w->owner[i]) * m->shards + i];

    if (!is_reachable(other) || (other->tenure < w->tenure[i] && m->bug != LOWER_TENURE_TAKEN)) return false;
    w->owner[i] = 1 - w->owner[i];
    return true;
}

/* Notes that a worker has reached an owner. */
static void note_tenure(model *m, worker *w, uint32_t i)
{
    uint32_t tenure = shard_of(m, w, i)->tenure;

    if (tenure < w->tenure[i]) blame(m, "a worker goes to an owner with a lower tenure than it has seen");
    w->tenure[i] = tenure;
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
static bool finish_writing(const model *m, shard *s)
{
    if (s->writing == 0 || !is_reachable(s)) return false;
    if (s->replaced && m->bug != WRITES_ON) {
        s->writing = 0;
        return true;
    }
    s->at[s->writing] = (checkpoint){ true, s->at[s->writing].weights, s->at[s->writing].tally };
    s->writing = 0;
    tidy(s);
    return true;
}

static void push(model *m, uint32_t r, uint32_t i, uint32_t step, uint64_t base)
{
    shard *s = shard_of(m, &m->w[r], i);

    s->got[r] = true;
    s->untouched = false;
    s->sum += gradient(r, i, step, base);
    if (++s->n_got == m->ranks) s->tally = tally_of(i, step, s->sum);
}

/* Takes the verdict of the shard's next step, and with it the step. */
static void close_step(model *m, shard *s, uint32_t i, const uint64_t *tallies)
{

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
        weights[i] = shard_of(m, w, i)->weights;
        w->life[i] = shard_of(m, w, i)->life;
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
        if (w->seen_step[i] + 1 != most || shard_of(m, w, i)->step != w->seen_step[i] || shard_of(m, w, i)->tally == 0)
            return false;
        *behind = i;
        found = true;
    }
    return found;
}

static void give_verdict(model *m, worker *w, uint32_t behind)
{
    uint64_t tallies[MOST_SHARDS];
    uint32_t step = shard_of(m, w, behind)->step + 1;

    for (uint32_t i = 0; i < m->shards; i++) {
        if (shard_of(m, w, i)->step != step && (shard_of(m, w, i)->step + 1 != step || shard_of(m, w, i)->tally == 0))
            return;
        tallies[i] = shard_of(m, w, i)->step == step ? shard_of(m, w, i)->last_tally : shard_of(m, w, i)->tally;
    }
    close_step(m, shard_of(m, w, behind), behind, tallies);
}

/* Returns whether a shard is still as the worker has seen it. */
static bool is_unchanged(const model *m, const worker *w, uint32_t i)
{
    const shard *s = shard_of(m, w, i);

    return is_reachable(s) && s->step == w->seen_step[i] && s->life == w->seen_life[i];
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
    const shard *s = shard_of(m, w, i);

    if (m->bug != GO_BACK_IGNORES_LIFE && s->life != w->seen_life[i]) return true;
    if (m->bug != GO_BACK_IGNORES_DURABLE && durable(s) > seen_durable(w, i)) return true;
    return !s->at[w->common].there && s->step != w->common;
}

static void ask(model *m, worker *w, uint32_t i)
{
    shard *s = shard_of(m, w, i);
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

static bool recover(model *m, worker *w)
{
    uint32_t i = w->next;

    if (!is_reachable(shard_of(m, w, i))) return change_owner(m, w, i);
    note_tenure(m, w, i);
    w->next++;
    if (w->asks) {
        ask(m, w, i);
        return true;
    }
    w->seen_step[i] = shard_of(m, w, i)->step;
    w->seen_life[i] = shard_of(m, w, i)->life;
    w->seen_kept[i] = list_kept(shard_of(m, w, i));
    if (w->next == m->shards) decide(m, w);
    return true;
}

/* ---- a worker ---- */

/* Returns the newest step of which all shards have a checkpoint, as far as the worker knows. */
static uint32_t known_common(const model *m, const worker *w)
{
    uint64_t kept = UINT64_MAX, any = 0;

    for (uint32_t i = 0; i < m->shards; i++) {
        uint64_t heard = m->all_hear ? list_kept(shard_of(m, w, i)) : w->heard[i];
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
    if (shard_of(m, w, i)->step != w->step + 1 || w->has_pulled[i]) return false;
    w->pulled[i] = shard_of(m, w, i)->weights;
    w->heard[i] |= list_kept(shard_of(m, w, i));
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
    shard *s = shard_of(m, w, i);

    if (s->got[r]) return false;
    push(m, r, i, s->step + 1, w->base[s->step + 1]);
    s->resent++;
    for (uint32_t k = 0; m->bug == RESENDS_TO_ALL && k < m->shards; k++) shard_of(m, w, k)->resent += k != i;
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
        if (shard_of(m, w, i)->step > w->step || (shard_of(m, w, i)->step == w->step && shard_of(m, w, i)->got[r]))
            return false;
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
            if (!holder(m, i)->at[w->sync].there) blame(m, "a step counts as durable that a shard does not have");
        if (w->sync > m->acked) m->acked = w->sync;
        w->sync = 0;
    }
    w->confirms = same;
}

/* Asks a shard for a checkpoint of the step. Returns whether anything has changed. */
static bool sync_shard(model *m, worker *w, uint32_t i)
{
    shard *s = shard_of(m, w, i);

    if (w->synced[i] || s->step < w->sync || (s->unsure && m->bug != REPORTS_UNSURE)) return false;
    /* The worker has pushed more than it knows: before it died, or to an earlier owner. It does not wait then. */
    if (s->step > w->sync && !s->at[w->sync].there) {
        w->sync = 0;
        return true;
    }
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

/* Returns whether the worker must look for a common step: the shard has another life than it knows, and its window does
 * not have the steps that the shard lacks; or it has gone back with an earlier owner of the shard. */
static bool must_recover(const worker *w, const shard *s, uint32_t i)
{
    if (w->life[i] == s->life) return false;
    return (s->step < w->step && !window_reaches(w, s)) || s->step > w->step + 1;
}

/* Lets worker r do something with shard i. Returns whether anything has changed. */
static bool act(model *m, uint32_t r, uint32_t i)
{
    worker *w = &m->w[r];
    shard *s = shard_of(m, w, i);

    if (w->recovers) return recover(m, w);
    if (!is_reachable(s)) return change_owner(m, w, i);
    note_tenure(m, w, i);
    if (must_recover(w, s, i)) {
        if (m->calm) blame(m, "a worker goes back though all can send their steps again");
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
    close_step(m, s, i, w->tally[m->bug == VERDICT_OF_STEP_BEFORE && s->step > 0 ? s->step : s->step + 1]);
    return true;
}

/* A worker dies, and a new process begins. It asks shards who owns each of them now: the addresses that it was given may
 * still be those of earlier owners. */
static void replace(model *m, uint32_t r)
{
    worker *w = &m->w[r];

    *w = (worker){ .window = w->window, .waited = w->waited, .recovers = true };
    for (uint32_t i = 0; m->bug != NO_TABLE_ASKED && i < m->shards; i++) {
        w->owner[i] = holder(m, i) != &m->s[i];
        w->tenure[i] = holder(m, i)->tenure;
    }
    m->crashes++;
}

/* ---- takeovers ---- */

static bool fall_asleep(shard *s)
{
    if (!is_reachable(s)) return false;
    return s->asleep = true;
}

static bool wake_up(shard *s)
{
    if (!s->asleep) return false;
    s->asleep = false;
    return s->unsure = true;
}

/* A spare takes a shard whose owner sleeps: the engine has ended the lease, and the owner does not answer. The place of
 * an owner that has stopped is free. Returns whether it has. */
static bool take_shard(model *m, uint32_t i)
{
    shard *old = holder(m, i), *spare = old == &m->s[i] ? &m->s[m->shards + i] : &m->s[i];
    uint32_t tenure = old->tenure + 1;

    if (m->away || !old->asleep || spare->tenure > 0) return false;
    memcpy(spare->at, old->at, sizeof spare->at);
    spare->life = old->life + 1000 * tenure;
    spare->tenure = tenure;
    spare->crashes = old->crashes + 1;
    m->crashes++;
    spare->common = spare->floor = 0;
    load(spare, durable(spare));
    old->replaced = true;
    return true;
}

/* An owner that has woken renews its lease, and learns whether another one has its shard: then it stops. Returns whether
 * anything has changed. */
static bool renew(const model *m, shard *s)
{
    if (m->away || !is_reachable(s) || !s->unsure) return false;
    s->unsure = false;
    if (s->replaced && m->bug != SERVES_ON) *s = (shard){ .crashes = s->crashes };
    return true;
}

static bool is_done(const model *m)
{
    for (uint32_t i = 0; i < m->shards; i++)
        if (holder(m, i)->step < m->steps) return false;
    for (uint32_t r = 0; r < m->ranks; r++)
        if (m->w[r].step < m->steps || m->w[r].recovers || m->w[r].sync > 0) return false;
    return true;
}

#endif
