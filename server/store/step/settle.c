/* settle.c - makes the tallies of this shard, keeps those of the last steps, and joins the tallies of all shards. */
#include "settle.h"

#include "most_shards.h"
#include "mutant.h"
#include "text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Value of entry.made_ns if the time until its verdict was measured, or if the tally was read from an image. */
#define MEASURED UINT64_MAX

/* A tally that was made. */
typedef struct entry {
    uint64_t step;
    uint32_t phase;
    bool settled;     /* a verdict has come */
    uint64_t hash;    /* of that verdict */
    uint64_t made_ns; /* time at which it was made; 0: not noted yet; MEASURED: of no use any more */
    size_t n;
    uint8_t *at; /* the bytes, in settle->memory */
} entry;

struct pd_settle {
    uint64_t step;  /* the step that is collected or decided */
    uint32_t phase; /* its next phase */
    bool decided;   /* the outcomes of the step are decided */
    bool waits;     /* the step waits for the verdict of the last tally */
    bool refusals;  /* the tally of the refusals is still to be made */
    bool news;
    uint8_t stepping[PD_TALLY_RULES_MOST / 8]; /* bit r: a parameter of rule r steps, on some shard */
    float largest[PD_TALLY_RULES_MOST];
    entry *entries; /* the tallies of the last steps, oldest first */
    size_t n, room;
    size_t most;            /* most bytes of a tally */
    uint8_t *memory;        /* of the tallies: room entries of `most` bytes */
    uint8_t *cuts, *joined; /* sets of cut parameters (pd_tally_cuts): of the tally being made; of the last verdict */
};

/* WORDS_MOST: a sum of squares of float32 numbers has no bits below 2^-298, nor above 2^320. FRAME_MOST: bytes of the
 * tallies of a verdict; a frame's header may have 64 KiB. */
enum { WORDS_MOST = 11, FRAME_MOST = 63 * 1024, FIELD = 4 };

static size_t cut_bytes(const pd_steps *steps)
{
    return PD_TALLY_CUT_SETS * pd_tally_bits(steps->n_cut);
}

/* Returns whether the optimizer of a rule has a limit for elements of gradients. */
static bool has_limit(const pd_job_values *values, const pd_rule *rule)
{
    return rule->hypers.row->gradient_most > 0 && values->at[PD_JOB_KEY_NONFINITE] != PD_APPLY;
}

/* Returns the most bytes of a tally. */
static size_t most_bytes(const pd_settle_size *size)
{
    size_t bytes = PD_TALLY_HEAD + 8 * WORDS_MOST + pd_tally_bits(size->n_rules) +
                   PD_TALLY_CUT_SETS * pd_tally_bits(size->n_cut) + PD_TALLY_REASON;

    for (size_t r = 0; r < size->n_rules; r++) {
        if (has_limit(size->values, &size->rules[r])) bytes += PD_TALLY_LARGEST;
        if (size->rules[r].hypers.row->refusal != NULL) bytes += PD_TALLY_REFUSAL;
    }
    return bytes;
}

/* Returns the most bytes of a verdict in a frame. */
static size_t verdict_bytes(const pd_settle_size *size)
{
    return size->shards * (most_bytes(size) + FIELD);
}

static size_t room_of(size_t scopes)
{
    return PD_SETTLE_STEPS * (3 + scopes);
}

static pd_settle_size size_of(const pd_steps *steps, size_t scopes)
{
    return (pd_settle_size){
        .values = &steps->values,
        .rules = steps->rules,
        .n_rules = steps->n_rules,
        .scopes = scopes,
        .shards = steps->shards,
        .n_cut = steps->n_cut,
        .ranks = steps->members.ranks,
    };
}

uint64_t pd_settle_bytes(const pd_settle_size *size)
{
    size_t cuts = PD_TALLY_CUT_SETS * pd_tally_bits(size->n_cut),
           waiting = verdict_bytes(size) + size->shards * sizeof(pd_tally_view);

    return sizeof(pd_settle) + room_of(size->scopes) * (most_bytes(size) + sizeof(entry)) + 2 * cuts +
           (uint64_t)size->ranks * waiting;
}

int pd_settle_fits(const pd_steps *steps, pd_error *err)
{
    pd_settle_size size = size_of(steps, 0);
    size_t bytes = verdict_bytes(&size);

    if (bytes <= FRAME_MOST && steps->n_cut <= UINT16_MAX) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "job %.100s: what %u shards tell each other in a step may take %zu bytes, and at most %d fit into a "
                   "frame: give fewer rules than %zu, fewer cut parameters than %u (split_bytes), or fewer shards",
                   steps->name, steps->shards, bytes, FRAME_MOST, steps->n_rules, steps->n_cut);
}

int pd_settle_make(pd_steps *steps, size_t scopes)
{
    pd_settle_size size = size_of(steps, scopes);
    size_t cuts = cut_bytes(steps);
    pd_settle *settle;

    assert(steps->n_rules <= PD_TALLY_RULES_MOST && steps->shards <= PD_MAX_SHARDS);
    if ((settle = calloc(1, sizeof *settle)) == NULL) return PD_NO_MEMORY;
    settle->room = room_of(scopes);
    settle->most = most_bytes(&size);
    settle->entries = calloc(settle->room, sizeof *settle->entries);
    settle->memory = malloc(settle->room * settle->most);
    settle->cuts = calloc(2 * cuts + 1, 1);
    if (settle->entries == NULL || settle->memory == NULL || settle->cuts == NULL) {
        pd_settle_free(settle);
        return PD_NO_MEMORY;
    }
    settle->joined = settle->cuts + cuts;
    for (size_t i = 0; i < settle->room; i++) settle->entries[i].at = settle->memory + i * settle->most;
    steps->together.settle = settle;
    return PD_OK;
}

void pd_settle_free(pd_settle *settle)
{
    if (settle == NULL) return;
    free(settle->cuts);
    free(settle->memory);
    free(settle->entries);
    free(settle);
}

/* ---- making tallies ---- */

static bool is_before(uint64_t step, uint32_t phase, const entry *e)
{
    return step < e->step || (step == e->step && phase < e->phase);
}

static entry *find(const pd_settle *settle, uint64_t step, uint32_t phase)
{
    for (size_t i = 0; i < settle->n; i++)
        if (settle->entries[i].step == step && settle->entries[i].phase == phase) return &settle->entries[i];
    return NULL;
}

void pd_settle_begin(pd_steps *steps)
{
    pd_settle *settle = steps->together.settle;

    settle->step = steps->params[0].saved.step + 1;
    settle->phase = 0;
    settle->decided = settle->waits = settle->refusals = false;
    /* Tallies of this step that were made before a restart do not count. */
    while (settle->n > 0 && settle->entries[settle->n - 1].step >= settle->step) settle->n--;
}

/* Returns the memory for a new entry, which replaces the oldest one if there is no room. */
static entry *new_entry(pd_settle *settle)
{
    entry oldest = settle->entries[0];

    if (settle->n < settle->room) return &settle->entries[settle->n++];
    memmove(settle->entries, settle->entries + 1, (settle->n - 1) * sizeof *settle->entries);
    settle->entries[settle->n - 1] = oldest; /* its memory is used again */
    return &settle->entries[settle->n - 1];
}

/* Completes a tally and keeps it. */
static void keep(pd_steps *steps, pd_tally *tally, bool waits)
{
    pd_settle *settle = steps->together.settle;
    entry *e = new_entry(settle);

    tally->step = settle->step;
    tally->phase = settle->phase++;
    tally->shard = (uint16_t)steps->shard;
    tally->shards = (uint16_t)steps->shards;
    assert(pd_tally_bytes(tally) <= settle->most);
    e->step = tally->step;
    e->phase = tally->phase;
    e->settled = false;
    e->made_ns = 0;
    e->n = pd_tally_write(tally, e->at);
    settle->waits = waits;
    settle->news = true;
}

static void set_reason(pd_tally *tally, const char *reason)
{
    tally->reason = reason;
    tally->reason_bytes = (uint16_t)strlen(reason);
}

/* Adds a portion of a cut parameter to the sets of cut parameters. */
static void add_cut(const pd_steps *steps, const pd_param *param)
{
    uint8_t *cuts = steps->together.settle->cuts;
    size_t bytes = pd_tally_bits(steps->n_cut);

    pd_tally_set_bit(cuts + (param->end.outcome == PD_NO_GRADIENT ? PD_CUTS_LACK : PD_CUTS_HAVE) * bytes,
                     param->cut_number);
    if (param->end.outcome == PD_SKIPPED) pd_tally_set_bit(cuts + PD_CUTS_SKIP * bytes, param->cut_number);
}

/* Adds what one parameter contributes to the tally of the outcomes. */
static void add_outcome(const pd_steps *steps, pd_tally *tally, const pd_param *param, uint8_t *stepping,
                        float *largest)
{
    size_t rule = (size_t)(param->rule - steps->rules);

    if (param->cut) add_cut(steps, param);
    if (param->end.outcome == PD_SKIPPED && !param->cut) tally->skipped = true;
    if (param->end.outcome != PD_STEPPED) return;
    pd_tally_set_bit(stepping, rule);
    if (has_limit(&steps->values, param->rule) && param->round.largest > largest[rule])
        largest[rule] = param->round.largest;
}

/* Writes the largest elements of the rules that have some. */
static void list_largest(const pd_steps *steps, pd_tally *tally, const float *largest, uint8_t *list)
{
    for (size_t r = 0; r < steps->n_rules; r++)
        if (largest[r] > 0)
            pd_tally_put_largest(list, tally->n_largest++, (pd_tally_largest){ (uint16_t)r, largest[r] });
    tally->largest = list;
}

static void tally_outcomes(pd_steps *steps, pd_tally *tally)
{
    uint8_t stepping[PD_TALLY_RULES_MOST / 8] = { 0 }, list[PD_TALLY_LARGEST * PD_TALLY_RULES_MOST];
    float largest[PD_TALLY_RULES_MOST] = { 0 };
    const pd_param *why = NULL;
    char text[384], reason[PD_TALLY_REASON + 1];

    memset(steps->together.settle->cuts, 0, cut_bytes(steps));
    for (uint32_t i = 0; i < steps->n_params; i++) {
        const pd_param *param = &steps->params[i];
        add_outcome(steps, tally, param, stepping, largest);
        if (why == NULL && param->end.outcome == PD_SKIPPED) why = param;
    }
    if (why != NULL) {
        pd_text_print(reason, sizeof reason, pd_param_why_skipped(why, text, sizeof text));
        set_reason(tally, reason);
    }
    tally->n_rules = (uint16_t)steps->n_rules;
    tally->stepping = stepping;
    list_largest(steps, tally, largest, list);
    tally->n_cuts = (uint16_t)steps->n_cut;
    tally->cuts = steps->together.settle->cuts;
    keep(steps, tally, true);
}

void pd_settle_tally(pd_steps *steps, bool seen, const pd_exact_sum *sum)
{
    pd_tally tally = { .kind = PD_TALLY_NORM, .seen = seen, .sum = *sum };

    if (steps->together.settle->decided) {
        keep(steps, &tally, true);
        return;
    }
    tally.kind = PD_TALLY_OUTCOMES;
    tally_outcomes(steps, &tally);
}

void pd_settle_await_refusals(pd_steps *steps)
{
    steps->together.settle->refusals = true;
}

bool pd_settle_awaits_refusals(const pd_steps *steps)
{
    return steps->together.settle != NULL && steps->together.settle->refusals;
}

void pd_settle_refusals(pd_steps *steps, const uint8_t *refusals, size_t n, const char *reason, bool waits)
{
    pd_tally tally = { .kind = PD_TALLY_REFUSALS, .refusals = refusals, .n_refusals = (uint16_t)n };
    char text[PD_TALLY_REASON + 1];

    if (n > 0) set_reason(&tally, pd_text_print(text, sizeof text, reason));
    steps->together.settle->refusals = false;
    keep(steps, &tally, waits);
}

/* ---- verdicts ---- */

/* Checks one tally of a verdict, that of shard s, against the first one. */
static int check_tally(const pd_steps *steps, const pd_tallies *verdict, size_t s, const pd_tally *tally,
                       pd_tally_kind kind, pd_error *err)
{
    if (tally->shard != s || tally->shards != verdict->n ||
        (tally->step != verdict->step && !PD_MUTANT(verdict_of_step_before)) || tally->phase != verdict->phase ||
        tally->kind != kind)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "verdict of step %llu, phase %u: tally %zu is of shard %u of %u, step %llu, phase %u, kind %d",
                       (unsigned long long)verdict->step, verdict->phase, s, tally->shard, tally->shards,
                       (unsigned long long)tally->step, tally->phase, (int)tally->kind);
    if (kind == PD_TALLY_OUTCOMES && (tally->n_rules != steps->n_rules || tally->n_cuts != steps->n_cut))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "verdict of step %llu: shard %zu has %u rules and %u cut parameters, this one %zu and %u",
                       (unsigned long long)verdict->step, s, tally->n_rules, tally->n_cuts, steps->n_rules,
                       steps->n_cut);
    if (verdict->at[s].n > steps->together.settle->most)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "verdict of step %llu: the tally of shard %zu has %zu bytes, expected at most %zu",
                       (unsigned long long)verdict->step, s, verdict->at[s].n, steps->together.settle->most);
    return PD_OK;
}

/* Checks that the tallies are those of all shards for one step and phase, of one kind, and that they have no more bytes
 * than were counted for a verdict that waits. */
static int check_tallies(const pd_steps *steps, const pd_tallies *verdict, pd_error *err)
{
    pd_tally_kind kind = PD_TALLY_OUTCOMES;
    pd_tally tally;

    if (verdict->n != steps->shards)
        return pd_fail(err, PD_INVALID_ARGUMENT, "verdict of %zu tallies: job %.100s has %u shards", verdict->n,
                       steps->name, steps->shards);
    for (size_t s = 0; s < verdict->n; s++) {
        if (pd_tally_open(&tally, verdict->at[s].at, verdict->at[s].n, err) != PD_OK) return PD_INVALID_ARGUMENT;
        if (s == 0) kind = tally.kind;
        if (check_tally(steps, verdict, s, &tally, kind, err) != PD_OK) return PD_INVALID_ARGUMENT;
    }
    return PD_OK;
}

bool pd_settle_is_early(const pd_settle *settle, uint64_t step, uint32_t phase)
{
    const entry *last = settle->n > 0 ? &settle->entries[settle->n - 1] : NULL;

    return last == NULL || is_before(last->step, last->phase, &(entry){ .step = step, .phase = phase });
}

/* Checks a verdict against the tally that this shard has made, and the verdict that came first. */
static int check_made(const pd_steps *steps, const pd_tallies *verdict, const entry *made, pd_error *err)
{
    const pd_tally_view *own = &verdict->at[steps->shard];

    if ((own->n != made->n || memcmp(own->at, made->at, made->n) != 0) && !PD_MUTANT(verdict_of_step_before))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "verdict of step %llu, phase %u: this shard, %u of %u, has made another tally: ask all shards "
                       "again",
                       (unsigned long long)verdict->step, verdict->phase, steps->shard, steps->shards);
    if (made->settled)
        return pd_fail(err, PD_INVALID_ARGUMENT, "verdict of step %llu, phase %u: another one has come before",
                       (unsigned long long)verdict->step, verdict->phase);
    return PD_OK;
}

int pd_settle_check(pd_steps *steps, const pd_tallies *verdict, pd_verdict_state *state, pd_error *err)
{
    const pd_settle *settle = steps->together.settle;
    const entry *made = find(settle, verdict->step, verdict->phase);
    bool closed;

    *state = PD_VERDICT_KNOWN;
    if (made != NULL && made->settled && made->hash == verdict->hash) return PD_OK;
    if (check_tallies(steps, verdict, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (made != NULL && check_made(steps, verdict, made, err) != PD_OK) return PD_INVALID_ARGUMENT;
    closed = verdict->step <= pd_steps_least(steps);
    if (!closed && made != NULL) *state = PD_VERDICT_NEW;
    if (!closed && made == NULL && pd_settle_is_early(settle, verdict->step, verdict->phase)) *state = PD_VERDICT_EARLY;
    return PD_OK;
}

static void join_outcomes(pd_settle *settle, const pd_tally *tally)
{
    for (size_t i = 0; i < pd_tally_bits(tally->n_rules); i++) settle->stepping[i] |= tally->stepping[i];
    for (size_t i = 0; i < PD_TALLY_CUT_SETS * pd_tally_bits(tally->n_cuts); i++) settle->joined[i] |= tally->cuts[i];
    for (size_t i = 0; i < tally->n_largest; i++) {
        pd_tally_largest largest = pd_tally_largest_at(tally->largest, i);
        if (largest.value > settle->largest[largest.rule]) settle->largest[largest.rule] = largest.value;
    }
}

static void join(pd_settle *settle, pd_verdict *out, const pd_tally *tally)
{
    out->kind = tally->kind;
    out->skipped = out->skipped || tally->skipped;
    out->seen = out->seen || tally->seen;
    pd_exact_sum_join(&out->sum, &tally->sum);
    if (out->reason[0] == '\0' && tally->reason_bytes > 0)
        snprintf(out->reason, sizeof out->reason, "on shard %u: %.*s", tally->shard, (int)tally->reason_bytes,
                 tally->reason);
    if (tally->kind == PD_TALLY_OUTCOMES) join_outcomes(settle, tally);
}

void pd_settle_take(pd_steps *steps, const pd_tallies *tallies, pd_verdict *out)
{
    pd_settle *settle = steps->together.settle;
    entry *made = find(settle, tallies->step, tallies->phase);
    pd_tally tally;
    pd_error err;

    assert(made != NULL && !made->settled);
    made->settled = true;
    made->hash = tallies->hash;
    if (made == &settle->entries[settle->n - 1]) settle->waits = false;
    settle->news = true;
    *out = (pd_verdict){ 0 };
    for (size_t s = 0; s < tallies->n; s++) {
        (void)pd_tally_open(&tally, tallies->at[s].at, tallies->at[s].n, &err); /* it was checked */
        if (s == 0 && tally.kind == PD_TALLY_OUTCOMES) {
            memset(settle->stepping, 0, sizeof settle->stepping);
            memset(settle->largest, 0, sizeof settle->largest);
            memset(settle->joined, 0, cut_bytes(steps));
        }
        join(settle, out, &tally);
    }
}

void pd_settle_decided(pd_steps *steps, bool stepped)
{
    steps->together.settle->decided = true;
    if (!stepped) pd_settle_skipped(steps);
}

void pd_settle_scaled(pd_steps *steps, size_t scope, float scale)
{
    pd_settle *settle = steps->together.settle;

    for (size_t r = 0; r < steps->n_rules; r++)
        if (scope == 0 || scope == 1 + r) settle->largest[r] *= scale;
}

void pd_settle_skipped(pd_steps *steps)
{
    memset(steps->together.settle->stepping, 0, sizeof steps->together.settle->stepping);
}

bool pd_settle_cut(const pd_steps *steps, uint32_t number, pd_tally_cuts set)
{
    return pd_tally_has_bit(pd_tally_cut_set(steps->together.settle->joined, steps->n_cut, set), number);
}

bool pd_settle_steps(const pd_settle *settle, size_t rule)
{
    return pd_tally_has_bit(settle->stepping, rule);
}

float pd_settle_largest(const pd_settle *settle, size_t rule)
{
    return settle->largest[rule];
}

bool pd_settle_waits(const pd_steps *steps)
{
    return steps->together.settle != NULL && steps->together.settle->waits;
}

/* ---- for workers ---- */

/* Returns whether the shard cannot have made a tally between (step, phase) and this entry. After phase 0 a step may
 * have no further phase. */
static bool follows(const entry *e, uint64_t step, uint32_t phase)
{
    return (e->step == step && e->phase == phase) || (e->step == step + 1 && e->phase == 0 && phase > 0);
}

int pd_settle_find(const pd_settle *settle, uint64_t step, uint32_t phase, pd_tally_view *tally, uint64_t *at_step,
                   uint32_t *at_phase)
{
    if (pd_settle_is_early(settle, step, phase)) return PD_UNAVAILABLE;
    for (size_t i = 0; i < settle->n; i++) {
        const entry *e = &settle->entries[i];
        if (is_before(e->step, e->phase, &(entry){ .step = step, .phase = phase })) continue;
        if (i == 0 && !follows(e, step, phase)) return PD_NOT_FOUND;
        *tally = (pd_tally_view){ e->at, e->n };
        *at_step = e->step;
        *at_phase = e->phase;
        return PD_OK;
    }
    return PD_UNAVAILABLE;
}

/* ---- images ---- */

/* Checks a tally that was read from an image. */
static bool fits(const pd_steps *steps, const entry *before, const entry *e)
{
    pd_tally tally;
    pd_error err;

    return pd_tally_open(&tally, e->at, e->n, &err) == PD_OK && tally.step == e->step && tally.phase == e->phase &&
           tally.shard == steps->shard && tally.shards == steps->shards &&
           (before == NULL || is_before(before->step, before->phase, e));
}

static void visit_entry(pd_archive *archive, pd_settle *settle, entry *e)
{
    pd_archive_value(archive, &e->step);
    pd_archive_value(archive, &e->phase);
    pd_archive_value(archive, &e->settled);
    pd_archive_value(archive, &e->hash);
    pd_archive_count(archive, &e->n, settle->most, 1);
    if (pd_archive_status(archive) == PD_OK) pd_archive_bytes(archive, e->at, e->n);
    if (pd_archive_is_reading(archive)) e->made_ns = MEASURED;
}

void pd_settle_visit(pd_archive *archive, pd_steps *steps)
{
    pd_settle *settle = steps->together.settle;
    bool reads = pd_archive_is_reading(archive);
    uint64_t closed = pd_steps_least(steps);
    size_t n = 0;

    while (!reads && n < settle->n && settle->entries[n].step <= closed) n++;
    pd_archive_enter(archive, "tallies");
    pd_archive_count(archive, &n, settle->room, PD_TALLY_HEAD);
    for (size_t i = 0; i < n && pd_archive_status(archive) == PD_OK; i++) {
        visit_entry(archive, settle, &settle->entries[i]);
        if (reads && pd_archive_status(archive) == PD_OK &&
            !fits(steps, i > 0 ? &settle->entries[i - 1] : NULL, &settle->entries[i]))
            pd_archive_fail(archive, PD_DATA_LOSS, "tally %zu of %zu is not one of this shard", i, n);
    }
    if (reads) settle->n = pd_archive_status(archive) == PD_OK ? n : 0;
    pd_archive_leave(archive);
}

bool pd_settle_has_news(const pd_steps *steps)
{
    return steps->together.settle != NULL && steps->together.settle->news;
}

/* Notes when a tally was made, and measures the time until its verdict. */
static void measure(pd_steps *steps, entry *e, uint64_t now_ns)
{
    if (e->made_ns == 0) e->made_ns = now_ns;
    if (!e->settled || e->made_ns == MEASURED) return;
    pd_histogram_add(&steps->figures.settle_times, now_ns - e->made_ns);
    e->made_ns = MEASURED;
}

void pd_settle_told(pd_steps *steps, uint64_t now_ns)
{
    pd_settle *settle = steps->together.settle;

    settle->news = false;
    for (size_t i = settle->n; i > 0 && settle->entries[i - 1].step + 1 >= settle->step; i--)
        measure(steps, &settle->entries[i - 1], now_ns);
}
