/* diloco_place.c - keeps the schedule of a pd_diloco: counts inner steps, measures the worker's speed, tells which
 * fragment is due, and writes and reads the worker's place. */
#include "outer.h"

#include <endian.h>
#include <math.h>
#include <string.h>

void pd_outer_leave(pd_diloco *d)
{
    d->mark = pd_clock_seconds();
}

void pd_outer_enter(pd_diloco *d)
{
    if (d->mark > 0) d->busy += pd_clock_seconds() - d->mark;
    d->mark = 0;
}

uint64_t pd_outer_step(const pd_diloco *d, const pd_outer_fragment *fragment)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < fragment->n; i++) {
        size_t param = d->order[fragment->first + i];
        uint64_t step = d->params[param].n > 0 ? pd_client_step(d->client, param) : UINT64_MAX;

        if (step < least) least = step;
    }
    return least < UINT64_MAX ? least : pd_client_step(d->client, d->order[fragment->first]);
}

/* Returns the first of those fragments that are furthest behind. */
static uint64_t furthest_behind(const pd_diloco *d)
{
    uint64_t found = 0;

    for (uint64_t f = 1; f < d->n_fragments; f++)
        if (d->fragments[f].step < d->fragments[found].step) found = f;
    return found;
}

void pd_outer_place(pd_diloco *d)
{
    uint64_t next;

    for (uint64_t f = 0; f < d->n_fragments; f++) {
        pd_outer_fragment *fragment = &d->fragments[f];

        *fragment = (pd_outer_fragment){ .first = fragment->first, .n = fragment->n };
        fragment->step = pd_outer_step(d, fragment);
    }
    next = furthest_behind(d);
    d->at = next * pd_outer_part(d);
    d->busy = 0;
    d->inner_steps = d->fragments[next].step * d->options.sync_every + next * (d->options.sync_every / d->n_fragments);
}

void pd_outer_realign(pd_diloco *d)
{
    uint64_t part = pd_outer_part(d), next = furthest_behind(d), at = next * part;

    if (!d->apart || (d->at + d->options.fragment_sync_delay) / part % d->n_fragments == next) return;
    if (d->at > 0) d->busy *= (double)at / (double)d->at;
    d->at = at;
}

double pd_outer_speed(const pd_diloco *d)
{
    if (d->speed > 0) return d->speed;
    return d->busy > 0 ? (double)d->at / d->busy : 0;
}

/* Returns how many inner steps the next cycle has: as many as this worker takes while the fastest one takes
 * sync_every. */
static uint64_t choose_every(const pd_diloco *d)
{
    uint64_t least = (d->options.fragment_sync_delay + 1) * d->n_fragments, most = d->options.sync_every, every;
    double fastest = d->options.dylu ? pd_client_fastest(d->client) : 0, share;

    /* It may be this worker that is the fastest, with the speed that it told last. */
    if (fastest == 0 || fastest <= d->flight->push.speed || pd_outer_speed(d) >= fastest) return most;
    share = pd_outer_speed(d) / fastest;
    every = (uint64_t)floor((double)most * share);
    every -= every % d->n_fragments;
    return every > least ? every : least;
}

/* Begins a cycle: notes the speed in the last one, of which half counts, and chooses how many inner steps it has. */
static void begin_cycle(pd_diloco *d)
{
    double now = d->busy > 0 ? (double)d->every / d->busy : 0;

    d->speed = d->speed > 0 && now > 0 ? (d->speed + now) / 2 : fmax(d->speed, now);
    d->busy = 0;
    d->at = 0;
    d->every = choose_every(d);
}

pd_diloco_due pd_diloco_inner_step(pd_diloco *d, double tokens)
{
    pd_diloco_due due = { -1, -1 };
    uint64_t part, ahead;

    pd_outer_enter(d);
    if (d->at == d->every) begin_cycle(d);
    d->inner_steps++;
    d->at++;
    for (size_t f = 0; f < d->n_fragments; f++) {
        d->fragments[f].steps++;
        d->fragments[f].tokens += tokens;
    }
    part = pd_outer_part(d);
    ahead = d->at + d->options.fragment_sync_delay;
    if (ahead % part == 0 && ahead <= d->every) due.send = (int64_t)(ahead / part) - 1;
    if (d->at % part == 0) due.take = (int64_t)(d->at / part) - 1;
    if (due.take != due.send && due.take != d->flying) due.take = -1; /* it was taken before it was due */
    pd_outer_leave(d);
    return due;
}

/* The place in bytes: numbers of 64 bits, the lower byte first. */
enum { HEAD_WORDS = 12, FRAGMENT_WORDS = 4 };
static const uint64_t place_mark = UINT64_C(0x316f636f6c696450); /* "Pdiloco1" */

static uint64_t word_of(double x)
{
    uint64_t word;

    memcpy(&word, &x, sizeof word);
    return word;
}

static double double_of(uint64_t word)
{
    double x;

    memcpy(&x, &word, sizeof x);
    return x;
}

static void put(uint8_t **at, uint64_t word)
{
    word = htole64(word);
    memcpy(*at, &word, sizeof word);
    *at += sizeof word;
}

static uint64_t get(const uint8_t *state, size_t index)
{
    uint64_t word;

    memcpy(&word, state + index * sizeof word, sizeof word);
    return le64toh(word);
}

int pd_diloco_save(const pd_diloco *d, void *out, size_t room, size_t *bytes)
{
    const uint64_t head[HEAD_WORDS] = {
        place_mark,
        d->n_fragments,
        d->options.sync_every,
        d->options.fragment_sync_delay,
        d->every,
        d->at,
        d->inner_steps,
        word_of(d->speed),
        d->pushes,
        d->counted,
        d->late,
        d->age,
    };
    uint8_t *at = out;

    *bytes = 8 * (HEAD_WORDS + FRAGMENT_WORDS * d->n_fragments);
    if (d->flying >= 0) return PD_FAILED_PRECONDITION;
    if (room == 0) return PD_OK;
    if (room < *bytes) return PD_OUT_OF_RANGE;
    for (size_t i = 0; i < HEAD_WORDS; i++) put(&at, head[i]);
    for (size_t f = 0; f < d->n_fragments; f++) {
        put(&at, d->fragments[f].step);
        put(&at, word_of(d->fragments[f].tokens));
        put(&at, d->fragments[f].steps);
        put(&at, d->fragments[f].carries);
    }
    return PD_OK;
}

/* Checks that the bytes are a place of this kind of pd_diloco. */
static int check_place(const pd_diloco *d, const uint8_t *state, size_t bytes, pd_error *err)
{
    uint64_t least = (d->options.fragment_sync_delay + 1) * d->n_fragments, every;

    if (bytes < 8 * HEAD_WORDS || get(state, 0) != place_mark)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%zu bytes are not the place of a worker: pass what pd_diloco_save wrote", bytes);
    if (get(state, 1) != d->n_fragments || get(state, 2) != d->options.sync_every ||
        get(state, 3) != d->options.fragment_sync_delay)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "the place is of %llu fragments, sync_every %llu and fragment_sync_delay %llu: expected %zu, "
                       "%llu and %llu; give the options with which it was saved",
                       (unsigned long long)get(state, 1), (unsigned long long)get(state, 2),
                       (unsigned long long)get(state, 3), d->n_fragments, (unsigned long long)d->options.sync_every,
                       (unsigned long long)d->options.fragment_sync_delay);
    every = get(state, 4);
    if (bytes == 8 * (HEAD_WORDS + FRAGMENT_WORDS * d->n_fragments) && every % d->n_fragments == 0 && every >= least &&
        every <= d->options.sync_every && get(state, 5) <= every)
        return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "the place of a worker is damaged: pass what pd_diloco_save wrote");
}

static int check_steps(const pd_diloco *d, const uint8_t *state, pd_error *err)
{
    for (size_t f = 0; f < d->n_fragments; f++) {
        uint64_t step = get(state, HEAD_WORDS + FRAGMENT_WORDS * f);

        if (step == d->fragments[f].step) continue;
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "the place was saved when fragment %zu had taken step %llu, and the job is at step %llu: go on "
                       "from the job's weights",
                       f, (unsigned long long)step, (unsigned long long)d->fragments[f].step);
    }
    return PD_OK;
}

int pd_diloco_load(pd_diloco *d, const void *state, size_t bytes, pd_error *err)
{
    int rc = d->flying < 0 ? PD_OK
                           : pd_fail(err, PD_FAILED_PRECONDITION, "fragment %lld is under way: pd_diloco_finish first",
                                     (long long)d->flying);

    if (rc == PD_OK) rc = check_place(d, state, bytes, err);
    if (rc == PD_OK) rc = check_steps(d, state, err);
    if (rc != PD_OK) return rc;
    d->every = get(state, 4);
    d->at = get(state, 5);
    d->inner_steps = get(state, 6);
    d->speed = double_of(get(state, 7));
    d->pushes = get(state, 8);
    d->counted = get(state, 9);
    d->late = get(state, 10);
    d->age = get(state, 11);
    for (size_t f = 0; f < d->n_fragments; f++) {
        size_t at = HEAD_WORDS + FRAGMENT_WORDS * f;

        d->fragments[f].tokens = double_of(get(state, at + 1));
        d->fragments[f].steps = get(state, at + 2);
        d->fragments[f].carries = get(state, at + 3) != 0;
    }
    return PD_OK;
}
