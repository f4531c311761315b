/* settle_box.c - keeps the tallies of all shards until they are verdicts, and says which core must send what. */
#include "settle_box.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include <utlist.h>

/* The tallies of one step and phase. */
typedef struct entry {
    struct entry *prev, *next; /* neighbours, by step and phase (utlist) */
    uint64_t step;
    uint32_t phase;
    uint32_t n;                            /* number of shards whose tally is here; all: it is a verdict */
    pd_tally_span tally[PD_SETTLE_SHARDS]; /* by shard; `at` NULL: not here. Owned */
    uint64_t taken;                        /* bit i: shard i has taken the verdict since it last joined */
    uint32_t refused;                      /* number of times that a shard has refused the verdict */
    uint32_t lent;                         /* number of shards to which it is being sent */
    bool dropped;                          /* it is freed when it is no longer lent */
} entry;

/* What the box knows of a shard. */
typedef struct shard {
    bool joined;     /* its core has a connection on which the parameters are declared, and its steps need verdicts */
    uint64_t closed; /* least number of steps that it has closed, as far as its answers tell since it joined */
    bool asking;     /* an ask is under way, for the first tally at or after this step and phase */
    uint64_t ask_step;
    uint32_t ask_phase;
    entry *giving; /* the verdict that is under way; NULL: none */
    int wake;      /* event descriptor that wakes its core; -1: none */
} shard;

struct pd_settle_box {
    pthread_mutex_t lock;
    uint32_t n, window;
    uint64_t floor; /* tallies of steps up to this one are not wanted */
    bool begun;     /* all shards have joined once: `floor` is known */
    entry *entries, *dropped;
    shard shards[PD_SETTLE_SHARDS];
};

int pd_settle_box_new(pd_settle_box **out, uint32_t shards, uint32_t window, pd_error *err)
{
    pd_settle_box *box;

    if (shards < 2 || shards > PD_SETTLE_SHARDS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%u servers: expected 2 to %d", shards, PD_SETTLE_SHARDS);
    if ((box = calloc(1, sizeof *box)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pthread_mutex_init(&box->lock, NULL);
    box->n = shards;
    box->window = window > PD_SETTLE_KEPT ? window : PD_SETTLE_KEPT;
    for (uint32_t i = 0; i < shards; i++) box->shards[i].wake = -1;
    *out = box;
    return PD_OK;
}

static void free_entry(pd_settle_box *box, entry *e)
{
    for (uint32_t i = 0; i < box->n; i++) free((void *)(uintptr_t)e->tally[i].at);
    free(e);
}

void pd_settle_box_free(pd_settle_box *box)
{
    entry *e, *next;

    if (box == NULL) return;
    DL_FOREACH_SAFE(box->entries, e, next) free_entry(box, e);
    DL_FOREACH_SAFE(box->dropped, e, next) free_entry(box, e);
    pthread_mutex_destroy(&box->lock);
    free(box);
}

void pd_settle_box_wake(pd_settle_box *box, uint32_t number, int fd)
{
    pthread_mutex_lock(&box->lock);
    box->shards[number].wake = fd;
    pthread_mutex_unlock(&box->lock);
}

/* Wakes the cores of all shards but one, whose thread calls the box. */
static void wake_others(const pd_settle_box *box, uint32_t number)
{
    for (uint32_t i = 0; i < box->n; i++)
        if (i != number && box->shards[i].wake >= 0) (void)eventfd_write(box->shards[i].wake, 1);
}

/* ---- entries ---- */

static bool is_before(uint64_t step, uint32_t phase, const entry *e)
{
    return step < e->step || (step == e->step && phase < e->phase);
}

static bool is_verdict(const pd_settle_box *box, const entry *e)
{
    return e->n == box->n;
}

/* Takes an entry out. While a core sends it, its memory stays. */
static void drop(pd_settle_box *box, entry *e)
{
    DL_DELETE(box->entries, e);
    if (e->lent == 0) {
        free_entry(box, e);
        return;
    }
    e->dropped = true;
    DL_APPEND(box->dropped, e);
}

/* Ends the sending of a verdict to a shard. */
static void end_giving(pd_settle_box *box, shard *s)
{
    entry *e = s->giving;

    s->giving = NULL;
    if (e == NULL || --e->lent > 0 || !e->dropped) return;
    DL_DELETE(box->dropped, e);
    free_entry(box, e);
}

/* Drops the oldest tallies, as long as those of more steps are here than are kept. */
static void trim(pd_settle_box *box)
{
    uint64_t newest = box->entries != NULL ? box->entries->prev->step : 0;

    while (box->entries != NULL && box->entries->step + box->window <= newest) drop(box, box->entries);
}

/* Finds the entry of a step and phase, or makes it. NULL: out of memory. */
static entry *entry_of(pd_settle_box *box, uint64_t step, uint32_t phase)
{
    entry *e, *made;

    DL_FOREACH(box->entries, e)
    {
        if (e->step == step && e->phase == phase) return e;
        if (is_before(step, phase, e)) break;
    }
    if ((made = calloc(1, sizeof *made)) == NULL) return NULL;
    made->step = step;
    made->phase = phase;
    if (e != NULL)
        DL_PREPEND_ELEM(box->entries, e, made);
    else
        DL_APPEND(box->entries, made);
    return made;
}

/* ---- connections ---- */

/* Drops the verdicts of steps that no shard has closed any more: all have gone back, and other gradients may follow. */
static void forget_undone(pd_settle_box *box)
{
    uint64_t most = 0;
    entry *e, *next;

    for (uint32_t i = 0; i < box->n; i++) {
        if (!box->shards[i].joined) return;
        if (box->shards[i].closed > most) most = box->shards[i].closed;
    }
    DL_FOREACH_SAFE(box->entries, e, next)
    if (e->step > most) drop(box, e);
}

/* Begins to ask for tallies, once all shards have joined: from the step on that the slowest of them takes next. */
static void begin(pd_settle_box *box)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < box->n; i++) {
        if (!box->shards[i].joined) return;
        if (box->shards[i].closed < least) least = box->shards[i].closed;
    }
    box->floor = least;
    box->begun = true;
}

void pd_settle_box_joined(pd_settle_box *box, uint32_t number, bool settles, uint64_t closed)
{
    shard *s = &box->shards[number];
    entry *e;

    pthread_mutex_lock(&box->lock);
    end_giving(box, s);
    s->joined = settles;
    s->asking = false;
    s->closed = closed;
    DL_FOREACH(box->entries, e)
    if (e->step > closed)
        e->taken &= ~(UINT64_C(1) << number);
    else
        e->taken |= UINT64_C(1) << number;
    /* Shards that have not kept an old tally may make it again. */
    if (closed < box->floor) box->floor = closed;
    if (!box->begun)
        begin(box);
    else
        forget_undone(box);
    wake_others(box, number);
    pthread_mutex_unlock(&box->lock);
}

void pd_settle_box_gone(pd_settle_box *box, uint32_t number)
{
    shard *s = &box->shards[number];

    pthread_mutex_lock(&box->lock);
    end_giving(box, s);
    s->joined = s->asking = false;
    pthread_mutex_unlock(&box->lock);
}

void pd_settle_box_forget(pd_settle_box *box, uint64_t step)
{
    entry *e, *next;

    pthread_mutex_lock(&box->lock);
    DL_FOREACH_SAFE(box->entries, e, next)
    if (e->step > step) drop(box, e);
    if (box->floor > step) box->floor = step;
    pthread_mutex_unlock(&box->lock);
}

/* ---- what a core sends ---- */

/* Finds the step and phase whose tally the box lacks of a shard: of the first entry that others have given a tally for,
 * or what follows the last verdict. */
static void find_ask(const pd_settle_box *box, uint32_t number, shard *s)
{
    const entry *e, *last = NULL;

    s->ask_step = box->floor + 1;
    s->ask_phase = 0;
    DL_FOREACH(box->entries, e)
    {
        if (e->tally[number].at != NULL) {
            last = e;
            continue;
        }
        s->ask_step = e->step;
        s->ask_phase = e->phase;
        return;
    }
    if (last == NULL || last->step <= box->floor) return;
    s->ask_step = last->step;
    s->ask_phase = last->phase + 1;
}

/* Returns whether a tally of the shard waits for tallies of others. Then its step has no later one. */
static bool waits_for_others(const pd_settle_box *box, uint32_t number)
{
    const entry *last = box->entries != NULL ? box->entries->prev : NULL;

    return last != NULL && !is_verdict(box, last) && last->tally[number].at != NULL;
}

bool pd_settle_box_next_ask(pd_settle_box *box, uint32_t number, pd_settle_frame *out)
{
    shard *s = &box->shards[number];
    bool is;

    pthread_mutex_lock(&box->lock);
    is = box->begun && s->joined && !s->asking && !waits_for_others(box, number);
    if (is) {
        find_ask(box, number, s);
        s->asking = true;
        *out = (pd_settle_frame){ .step = s->ask_step, .phase = s->ask_phase };
    }
    pthread_mutex_unlock(&box->lock);
    return is;
}

bool pd_settle_box_next_verdict(pd_settle_box *box, uint32_t number, pd_settle_frame *out)
{
    shard *s = &box->shards[number];
    entry *e, *next = NULL;

    pthread_mutex_lock(&box->lock);
    if (s->joined && s->giving == NULL) {
        DL_FOREACH(box->entries, e)
        {
            if (!is_verdict(box, e) || (e->taken >> number & 1) != 0) continue;
            next = e;
            break;
        }
    }
    if (next != NULL) {
        next->lent++;
        s->giving = next;
        *out = (pd_settle_frame){ next->step, next->phase, box->n, next->tally };
    }
    pthread_mutex_unlock(&box->lock);
    return next != NULL;
}

/* ---- answers ---- */

/* Notes that a shard has closed all steps before this one, whose tally it has made. */
static void note_closed(shard *s, uint64_t step)
{
    if (step > s->closed + 1) s->closed = step - 1;
}

/* Drops the entry that a shard was asked for, and has passed over: its tallies are of a course that has ended. */
static void drop_passed(pd_settle_box *box, uint32_t number, const shard *s)
{
    entry *e, *next;

    DL_FOREACH_SAFE(box->entries, e, next)
    if (e->step == s->ask_step && e->phase == s->ask_phase && e->tally[number].at == NULL) drop(box, e);
}

/* Puts a tally into its entry. Out of memory, the core asks again. Returns whether the entry is a verdict now. */
static bool put(pd_settle_box *box, uint32_t number, uint64_t step, uint32_t phase, pd_tally_span tally)
{
    entry *e = entry_of(box, step, phase);
    uint8_t *copy = e != NULL && e->tally[number].at == NULL ? malloc(tally.n + 1) : NULL;
    bool complete;

    if (copy == NULL) return false;
    if (tally.n > 0) memcpy(copy, tally.at, tally.n);
    e->tally[number] = (pd_tally_span){ copy, tally.n };
    complete = ++e->n == box->n;
    trim(box);
    return complete;
}

/* Handles an ask that the shard has refused. If it does not keep the tally any more, other ranks have carried it. */
static void refused_ask(pd_settle_box *box, shard *s, const pd_error *refusal)
{
    entry *e, *next;

    if (refusal->code == PD_ABORTED || refusal->code == PD_FAILED_PRECONDITION) s->joined = false;
    if (refusal->code != PD_NOT_FOUND) return;
    if (s->ask_step > box->floor) box->floor = s->ask_step;
    DL_FOREACH_SAFE(box->entries, e, next)
    if (e->step <= box->floor && !is_verdict(box, e)) drop(box, e);
}

int pd_settle_box_told(pd_settle_box *box, uint32_t number, uint64_t step, uint32_t phase, pd_tally_span tally,
                       const pd_error *refusal, pd_error *err)
{
    shard *s = &box->shards[number];
    bool news = false;
    int rc = PD_OK;

    pthread_mutex_lock(&box->lock);
    s->asking = false;
    if (refusal != NULL) {
        refused_ask(box, s, refusal);
    } else if (step < s->ask_step || (step == s->ask_step && phase < s->ask_phase)) {
        rc = pd_fail(err, PD_INTERNAL, "the server gave the tally of step %" PRIu64 ", phase %u, for %" PRIu64 ", %u",
                     step, phase, s->ask_step, s->ask_phase);
    } else {
        note_closed(s, step);
        if (step != s->ask_step || phase != s->ask_phase) drop_passed(box, number, s);
        news = put(box, number, step, phase, tally);
    }
    if (news || refusal != NULL) wake_others(box, number);
    pthread_mutex_unlock(&box->lock);
    return rc;
}

/* Asks all shards again for the tallies of a verdict that a shard has refused. Those that have taken it keep it. */
static void ask_again(pd_settle_box *box, entry *e)
{
    entry *again;
    uint64_t step = e->step, taken = e->taken;
    uint32_t phase = e->phase, refused = e->refused;

    drop(box, e);
    if ((again = entry_of(box, step, phase)) == NULL) return;
    again->taken = taken;
    again->refused = refused;
}

int pd_settle_box_taken(pd_settle_box *box, uint32_t number, const pd_error *refusal, pd_error *err)
{
    shard *s = &box->shards[number];
    entry *e = s->giving;
    int rc = PD_OK;

    pthread_mutex_lock(&box->lock);
    if (e != NULL && refusal == NULL) {
        e->taken |= UINT64_C(1) << number;
        note_closed(s, e->step);
    } else if (e != NULL && refusal->code == PD_INVALID_ARGUMENT && !e->dropped) {
        if (++e->refused >= PD_SETTLE_ATTEMPTS * box->n)
            rc = pd_fail(err, refusal->code, "%.400s", refusal->text);
        else
            ask_again(box, e);
    } else if (refusal != NULL && (refusal->code == PD_ABORTED || refusal->code == PD_FAILED_PRECONDITION)) {
        s->joined = false;
    }
    end_giving(box, s);
    if (refusal != NULL) wake_others(box, number);
    pthread_mutex_unlock(&box->lock);
    return rc;
}

char *pd_settle_box_text(pd_settle_box *box, char *text, size_t size)
{
    const entry *last;
    uint32_t i = 0;

    pthread_mutex_lock(&box->lock);
    text[0] = '\0';
    last = box->entries != NULL ? box->entries->prev : NULL;
    if (last != NULL && !is_verdict(box, last)) {
        while (last->tally[i].at != NULL) i++;
        snprintf(text, size, "shard %u has given no tally of step %" PRIu64 " yet, others wait for it", i, last->step);
    }
    pthread_mutex_unlock(&box->lock);
    return text;
}
