/* turn.h - one turn of the step thread: applies requests for a bounded time, does one batch of work (sums and
 * optimizer steps), checks deadlines, and forwards effects.
 *
 * This module has no thread, clock or mailbox, so the daemon's step thread and the single-threaded simulator run the
 * same code. Both take mail from a mailbox and repeat:
 *
 *     pd_turn_add(turn, mail);            new requests, oldest first; NULL: none
 *     more = pd_turn_run(turn);           true: call again at once; false: wait for mail or for pd_turn_next_tick */
#ifndef PD_TURN_H
#define PD_TURN_H

#include "flows.h"
#include "store.h"

/* Time limits of a turn of the step thread. The time for requests is as long as the last batch of work took, but at
 * least PD_TURN_SLICE_NS and at most PD_TURN_MOST_NS. So neither requests nor work wait long for each other. Effects
 * are forwarded every PD_TURN_SLICE_NS. */
#define PD_TURN_SLICE_NS 4000000u
#define PD_TURN_MOST_NS 50000000u
/* Time that a part of a request takes, by the store's estimate. Then other requests have their turn. */
#define PD_TURN_PART_NS 2000000u

/* Requests that only read get one part in PD_TURN_READ_SHARE of the time. What they have not used they may use later,
 * but not more than PD_TURN_READ_BURST_NS at once. Where nothing else was served for PD_TURN_QUIET_NS, they get all
 * time. Shorter pauses do not count: a job whose workers compute has many of them. */
#define PD_TURN_READ_SHARE 16
#define PD_TURN_READ_BURST_NS 4000000u
#define PD_TURN_QUIET_NS 100000000u

/* The functions that a turn of the step thread calls. They must not call the turn or the store. */
typedef struct pd_turn_user {
    void *arg;
    /* Returns the time in nanoseconds, by a clock that never goes back. */
    uint64_t (*now_ns)(void *arg);
    /* Posts effects to the loop thread: those from `first` to `last`, linked by
     * mail.next. */
    void (*effects)(void *arg, pd_mail *first, pd_mail *last);
    /* Hands a preconditioner task, which comes in an effect, to the preconditioner pool. The task comes
     * back as a PD_REQ_TASK request. */
    void (*task)(void *arg, pd_effect *effect);
    /* Takes back from the preconditioner pool the waiting preconditioner tasks of a job that has ended. They come as
     * PD_REQ_TASK requests. */
    void (*forget)(void *arg, uint32_t job);
    /* Hands a checkpoint, which comes in an effect, to the checkpoint writer. It comes back as a PD_REQ_KEPT request.
     * NULL: there is no checkpoint writer (pd_store_config.keeps is false). */
    void (*keep)(void *arg, pd_effect *effect);
    /* Hands an entry of a log, which comes in an effect, to the WAL thread. It comes back as a PD_REQ_WAL
     * request. NULL: there is no WAL thread (pd_store_config.keeps is false). */
    void (*log)(void *arg, pd_effect *effect);
} pd_turn_user;

typedef struct pd_turn {
    pd_turn_user user;
    pd_store *store;   /* borrowed */
    pd_flows flows;    /* requests that wait to be applied to the store */
    uint64_t work_ns;  /* nanoseconds that the last batch of work took */
    uint64_t reads_ns; /* time from which requests that only read may be served although others are served, too */
    uint64_t other_ns; /* time at which work was done, or a request was served that does not only read */
    uint64_t effects;  /* number of effects forwarded to the loop thread so far */
} pd_turn;

/* Adds a chain of new requests to the store, each behind the waiting ones of its flow (flows.h), and takes them over.
 * NULL: there are no new requests. */
void pd_turn_add(pd_turn *turn, pd_mail *mail);
/* Runs one turn of the step thread: applies requests for a limited time, does one batch of work, and handles deadlines
 * that have passed. Forwards effects about every PD_TURN_SLICE_NS. Returns true if work is left, or requests that may
 * be served now. */
bool pd_turn_run(pd_turn *turn);
/* Applies all waiting requests to the store, however long that takes, and forwards the effects. Called when the step
 * thread ends. */
void pd_turn_finish(pd_turn *turn);
/* Forwards the effects of the store (its answers, reports and tasks): preconditioner tasks to the preconditioner pool,
 * checkpoints to the checkpoint writer, entries of logs to the WAL thread, all other effects to the loop thread as one
 * chain.
 *
 * Effects for the loop thread are numbered 1, 2, 3 ... for the life of the process; the loop thread asserts that order.
 *
 * All effects of the step thread pass through this function. Answers do not wait for the disk: a step is reported when
 * it is closed, and reported as durable later (PD_EFF_DURABLE). */
void pd_turn_forward(pd_turn *turn);
/* Returns the time at which the next turn must run even if no request has come, because a deadline passes then or
 * requests may be served that only read (UINT64_MAX: no time). */
uint64_t pd_turn_next_tick(const pd_turn *turn);

#endif
