/* settle_box.c - keeps the tallies of all shards until they are verdicts, and says which core must send what. */
#include "settle_box.h"

#include "most_shards.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include <utlist.h>

#include "mutant.h"

/* The tallies of one step and phase. */
typedef struct entry {
    struct entry *prev, *next; /* neighbours, by step and phase (utlist) */
    uint64_t step;
    uint32_t phase;
    uint32_t n;                         /* number of shards whose tally is here; all: it is a verdict */
    pd_tally_span tally[PD_MAX_SHARDS]; /* by shard; `at` NULL: not here. Owned */
    uint64_t taken;                     /* bit i: shard i has taken the verdict since it last joined */
    uint64_t undone;                    /* bit i: shard i has joined before this step, and not taken it since */
    uint32_t refused;                   /* number of times that a shard has refused the verdict */
    uint32_t lent;                      /* number of shards to which it is being sent */
    bool dropped;                       /* it is freed when it is no longer lent */
} entry;

/* What the box knows of a shard. */
typedef struct shard {
    bool here;       /* its core has a connection on which the parameters are declared */
    bool joined;     /* it is here, and its steps need verdicts */
    bool left;       /* the worker has left the job there */
    uint64_t closed; /* number of steps that it had closed when it joined */
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
    bool begun;     /* all shards have joined since the box was made or has forgotten: `floor` is known */
    entry *entries, *dropped;
    shard shards[PD_MAX_SHARDS];
};

int pd_settle_box_new(pd_settle_box **out, uint32_t shards, uint32_t window, pd_error *err)
{
    pd_settle_box *box;

    if (shards < 2 || shards > PD_MAX_SHARDS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%u servers: expected 2 to %d", shards, PD_MAX_SHARDS);
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

    while (box->entries != NULL && box->entries->step + box->window <= newest) {
        if (box->entries->step > box->floor) box->floor = box->entries->step;
        drop(box, box->entries);
    }
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

/* Returns the bits of all shards. */
static uint64_t all_of(const pd_settle_box *box)
{
    return UINT64_MAX >> (64 - box->n);
}

/* Takes the tally of a shard out of an entry. */
static void withdraw(pd_settle_box *box, uint32_t number, entry *e)
{
    free((void *)(uintptr_t)e->tally[number].at);
    e->tally[number] = (pd_tally_span){ NULL, 0 };
    if (--e->n == 0) drop(box, e);
}

/* Notes for one entry that a shard has joined when it had closed so many steps. It makes the tallies of later ones
 * again. A verdict stays as long as some shard may have taken it: what the shard itself knows of others may be old. */
static void rejoin(pd_settle_box *box, uint32_t number, uint64_t closed, entry *e)
{
    uint64_t bit = UINT64_C(1) << number;

    if (e->step <= closed) {
        e->taken |= bit;
        e->undone &= ~bit;
        return;
    }
    e->taken &= ~bit;
    e->undone |= bit;
    if (e->undone == all_of(box))
        drop(box, e); /* all shards have gone back, and other gradients may follow */
    else if (!is_verdict(box, e) && e->tally[number].at != NULL)
        withdraw(box, number, e);
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
    entry *e, *next;

    pthread_mutex_lock(&box->lock);
    end_giving(box, s);
    s->here = true;
    s->joined = settles;
    s->asking = false;
    s->closed = closed;
    DL_FOREACH_SAFE(box->entries, e, next) rejoin(box, number, closed, e);
    /* Shards that have not kept an old tally may make it again. */
    if (closed < box->floor) box->floor = closed;
    if (!box->begun) begin(box);
    wake_others(box, number);
    pthread_mutex_unlock(&box->lock);
}

void pd_settle_box_gone(pd_settle_box *box, uint32_t number)
{
    shard *s = &box->shards[number];

    pthread_mutex_lock(&box->lock);
    end_giving(box, s);
    s->here = s->joined = s->asking = false;
    pthread_mutex_unlock(&box->lock);
}

void pd_settle_box_left(pd_settle_box *box, uint32_t number)
{
    pthread_mutex_lock(&box->lock);
    box->shards[number].left = true;
    wake_others(box, number);
    pthread_mutex_unlock(&box->lock);
}

bool pd_settle_box_all_here(pd_settle_box *box)
{
    bool all = true;

    pthread_mutex_lock(&box->lock);
    for (uint32_t i = 0; i < box->n; i++) all = all && (box->shards[i].here || box->shards[i].left);
    pthread_mutex_unlock(&box->lock);
    return all;
}

void pd_settle_box_forget(pd_settle_box *box)
{
    pthread_mutex_lock(&box->lock);
    while (box->entries != NULL) drop(box, box->entries);
    /* Answers of the present connections may be of what is forgotten. */
    for (uint32_t i = 0; i < box->n; i++) box->shards[i].joined = false;
    box->begun = false;
    pthread_mutex_unlock(&box->lock);
}

/* ---- what a core sends ---- */

/* Returns whether no phase can lie between (step, phase) and the entry. After phase 0 a step may have no other. */
static bool follows(const entry *e, uint64_t step, uint32_t phase)
{
    return (e->step == step && e->phase == phase) || (e->step == step + 1 && e->phase == 0 && phase > 0);
}

/* Finds the first step and phase that lacks a verdict and the shard's tally: where entries leave a gap, of an entry, or
 * after the last one. Returns false if the shard has given its tally, but others have not: then it cannot go on. */
static bool find_ask(const pd_settle_box *box, uint32_t number, uint64_t *step, uint32_t *phase)
{
    const entry *e;

    *step = box->floor + 1;
    *phase = 0;
    DL_FOREACH(box->entries, e)
    {
        if (e->step <= box->floor) continue;
        if (!follows(e, *step, *phase)) return true;
        *step = e->step;
        *phase = e->phase;
        if (e->tally[number].at == NULL) return true;
        if (!is_verdict(box, e)) return false;
        ++*phase;
    }
    return true;
}

/* Returns whether the shard is asked already for the first tally at or after (step, phase), or for an earlier one. */
static bool is_asked(const shard *s, uint64_t step, uint32_t phase)
{
    return s->asking && (s->ask_step < step || (s->ask_step == step && s->ask_phase <= phase));
}

bool pd_settle_box_next_ask(pd_settle_box *box, uint32_t number, pd_settle_frame *out)
{
    shard *s = &box->shards[number];
    uint64_t step;
    uint32_t phase;
    bool is;

    pthread_mutex_lock(&box->lock);
    is = box->begun && s->joined && find_ask(box, number, &step, &phase) && !is_asked(s, step, phase);
    if (is) {
        s->asking = true;
        s->ask_step = step;
        s->ask_phase = phase;
        *out = (pd_settle_frame){ .step = step, .phase = phase };
    }
    pthread_mutex_unlock(&box->lock);
    return is;
}

/* Returns whether some shard that is there has not gone back behind the step of a verdict. If none is there, all may
 * have gone back, since another worker wanted it, and this handle may just not have connected to all of them yet. Then
 * other gradients may follow, and the verdict must not be given: a shard whose own tally is the same would take it. */
static bool is_confirmed(const pd_settle_box *box, const entry *e)
{
    for (uint32_t i = 0; i < box->n; i++)
        if (box->shards[i].joined && (e->undone >> i & 1) == 0) return true;
    return false;
}

bool pd_settle_box_next_verdict(pd_settle_box *box, uint32_t number, pd_settle_frame *out)
{
    shard *s = &box->shards[number];
    entry *e, *before = NULL, *next = NULL;

    pthread_mutex_lock(&box->lock);
    if (s->joined && s->giving == NULL) {
        DL_FOREACH(box->entries, e)
        {
            if (!is_verdict(box, e)) continue;
            if ((e->taken >> number & 1) != 0) {
                before = e;
                continue;
            }
            next = is_confirmed(box, e) ? e : NULL;
            break;
        }
    }
    if (next != NULL) {
        next->lent++;
        s->giving = next;
        if (PD_MUTANT(verdict_of_step_before) && before != NULL && before->phase == next->phase) e = before;
        *out = (pd_settle_frame){ next->step, next->phase, box->n, e->tally };
    }
    pthread_mutex_unlock(&box->lock);
    return next != NULL;
}

/* ---- answers ---- */

/* Drops the entry that a shard was asked for, and has passed over: its tallies are of a course that has ended. Returns
 * whether there was one. */
static bool drop_passed(pd_settle_box *box, uint32_t number, const shard *s)
{
    entry *e;

    DL_FOREACH(box->entries, e)
    if (e->step == s->ask_step && e->phase == s->ask_phase && e->tally[number].at == NULL) {
        drop(box, e);
        return true;
    }
    return false;
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

/* Takes a tally. Returns whether other cores have something to send now. */
static bool take_tally(pd_settle_box *box, uint32_t number, uint64_t step, uint32_t phase, pd_tally_span tally)
{
    const shard *s = &box->shards[number];
    bool passed = (step != s->ask_step || phase != s->ask_phase) && drop_passed(box, number, s);

    return put(box, number, step, phase, tally) || passed;
}

int pd_settle_box_told(pd_settle_box *box, uint32_t number, uint64_t step, uint32_t phase, pd_tally_span tally,
                       const pd_error *refusal, pd_error *err)
{
    shard *s = &box->shards[number];
    bool news = refusal != NULL;
    int rc = PD_OK;

    pthread_mutex_lock(&box->lock);
    s->asking = false;
    if (!s->joined)
        news = false; /* what was asked is forgotten */
    else if (refusal != NULL)
        refused_ask(box, s, refusal);
    else if (step < s->ask_step || (step == s->ask_step && phase < s->ask_phase))
        rc = pd_fail(err, PD_INTERNAL, "the server gave the tally of step %" PRIu64 ", phase %u, for %" PRIu64 ", %u",
                     step, phase, s->ask_step, s->ask_phase);
    else
        news = take_tally(box, number, step, phase, tally);
    if (news) wake_others(box, number);
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
        e->undone &= ~(UINT64_C(1) << number);
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
