/* fragment.h - a fragment: parameters whose steps have one set of ranks. Decides, once for each step, which ranks'
 * contributions count in it.
 *
 * Step thread. All parameters of a job are in fragment 0. If the job's sets are not open (pd_set_rule.open), every
 * rank counts in every step, rounds are complete by themselves, and a fragment only says so. Otherwise nothing of a
 * step is summed before its set is fixed:
 *
 *     open   the first contribution to a step opens it: the ranks that are members then are expected
 *     whole  a rank is whole when each chunk that it owes has come, or was reported absent. A group of ranks (a unit)
 *            is whole when all its ranks are
 *     fix    when all expected units are whole; or `grace` after a quorum of them was in the open step. If none of
 *            them has a gradient, the step waits for a rank that may have one: as long as reconnect_grace, and only for
 *            ranks whose workers are connected. All whole ranks count then. Contributions of other ranks are kept for
 *            the next step if they will not be too old then; the rank is late otherwise, and its memory is released
 *            before it is told so
 *     close  all parameters take the step, each as if it were in a job of its own
 *
 * A rank has the contributions of one push at a time, its last one: that of step t, which counts in a step u >= t with
 * age u - t. No set is fixed while parameters still take the step before, since no rank can be whole then; nor while a
 * cut, a pause or the WAL would stop the step: so an image of the job never lacks a set that is fixed.
 *
 * After a restart of the daemon, sets that were decided before are repeated (wal.h): each is fixed as soon as its ranks
 * are whole. */
#ifndef PD_FRAGMENT_H
#define PD_FRAGMENT_H

#include "fragment_ranks.h"

/* ---- members ---- */

/* Makes the rank a member: steps that are opened from now on wait for it; an open one takes it if it is whole in time.
 * `unit`: lowest rank of its group. Contributions of a rank that is not a member do not count. The caller raises
 * pd_steps.epoch afterwards. */
void pd_fragments_join(pd_steps *steps, uint32_t rank, uint32_t unit);
/* Sets the unit of a rank: lowest rank of its group. `known`: a process has said which group that is. In a job with
 * groups no step is taken while that is not known of a member. */
void pd_fragments_set_unit(pd_steps *steps, uint32_t rank, uint32_t unit, bool known);
/* Releases what the rank has given to the step that is collected, since another process has the rank now: it would
 * never complete the push of the one before. */
void pd_fragments_restart(pd_steps *steps, uint32_t rank);
/* Releases a push of the rank to fragment `only` that has not counted, whole or not, since the rank pushes for step
 * `step`, a later one: it has given the other push up, after an error. That push is late now. It stays if a set that is
 * repeated after a restart needs it: then the rank's new push comes too early. `only` NULL: its pushes to all
 * fragments. */
void pd_fragments_overtaken(pd_steps *steps, const pd_fragment *only, uint32_t rank, uint64_t step);
/* Removes all ranks of a unit: they are members no more, and no step waits for them. Where all of them are whole, they
 * still count in the step that is collected if `stay` is true. Otherwise their contributions are released. A step that
 * has waited for no other rank waits for the members that stay, also for those that have joined since it was opened. */
void pd_fragments_remove(pd_steps *steps, uint32_t unit, bool stay);
/* Begins to collect the next step anew, since other processes take all ranks: releases what earlier ones have given,
 * also those that were whole when they left. Nothing is known of the ranks until they declare their parameters. */
void pd_fragments_renew(pd_steps *steps);
/* Returns whether the rank has given something to a step that is not closed. */
bool pd_fragments_need(const pd_steps *steps, uint32_t rank);

/* ---- sets ---- */

/* Fixes the sets that can be fixed. PD_NO_MEMORY: it must be called again later. */
int pd_fragments_look(pd_steps *steps, uint64_t now_ns);
bool pd_fragments_have_work(const pd_steps *steps);
/* Returns the time at which pd_fragments_tick must be called; UINT64_MAX: at none. */
uint64_t pd_fragments_next(const pd_steps *steps);
void pd_fragments_tick(pd_steps *steps, uint64_t now_ns);
/* Notes that the parameter has closed step param->saved.step and that its round is empty. */
void pd_fragment_closed(pd_steps *steps, pd_param *param, uint64_t now_ns);

/* ---- for lists ---- */

/* Returns how many units are expected, and how many of them are whole. */
uint32_t pd_fragment_expected(const pd_steps *steps, const pd_fragment *fragment, uint32_t *whole);
/* Returns the number of whole units that a set needs now. */
uint32_t pd_fragment_quorum(const pd_steps *steps, const pd_fragment *fragment);
/* What the set of the next step lacks. */
typedef enum pd_set_lack {
    PD_SET_LACKS_NOTHING,  /* it is fixed now, or at the end of its grace */
    PD_SET_LACKS_CLOSE,    /* parameters still take the step before */
    PD_SET_LACKS_DISK,     /* a cut, a pause, or the WAL stops the parameters */
    PD_SET_LACKS_REPEATED, /* contributions of ranks that counted before the server was restarted, or may have */
    PD_SET_LACKS_GROUPS,   /* some member has not said yet with which ranks it counts */
    PD_SET_LACKS_QUORUM,
    PD_SET_LACKS_MEMBERS, /* the job has fewer than steps are taken with */
    PD_SET_LACKS_STALE    /* on_stale = wait: contributions that would become too old */
} pd_set_lack;

/* Returns the first thing that the set of the next step lacks. */
pd_set_lack pd_fragment_lack(const pd_steps *steps, const pd_fragment *fragment);
/* Returns whether the open step waits for the rank. */
bool pd_fragment_misses(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank);
/* Writes the ranks that the step waits for, as "1,3", cut with "..." if `size` is too short. Returns `text`. */
char *pd_fragment_missing(const pd_steps *steps, const pd_fragment *fragment, char *text, size_t size);

#endif
