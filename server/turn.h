/* turn.h - one turn of the step thread: requests for a bounded time, one batch of work, deadlines, effects.
 *
 * There is no thread, clock or mailbox here: the daemon's step thread and the single-threaded simulator run the same
 * code. Both take mail from a mailbox and repeat:
 *
 *     pd_turn_add(turn, mail);            new requests, oldest first; NULL: none
 *     more = pd_turn_run(turn);           true: call again at once; false: wait for mail or for pd_turn_next_tick
 */
#ifndef PD_TURN_H
#define PD_TURN_H

#include "store.h"

/* Requests are applied for PD_TURN_SLICE_NS before their effects go out. After a batch of work that took longer, the
 * requests of the next turn get as much time as the batch took, at most PD_TURN_MOST_NS. So neither requests nor work
 * wait for more than about twice their own time. */
#define PD_TURN_SLICE_NS 4000000u
#define PD_TURN_MOST_NS  50000000u

/* The surroundings of a turn. No function may call the turn or the store. */
typedef struct pd_turn_user {
    void *arg;
    /* Reads a monotonic clock. */
    uint64_t (*now_ns)(void *arg);
    /* Takes the effects first..last, linked by mail.next, for the loop thread. */
    void (*effects)(void *arg, pd_mail *first, pd_mail *last);
    /* Takes an effect with a root task for the pool. The task comes back as a PD_REQ_TASK. */
    void (*task)(void *arg, pd_effect *effect);
    /* Gives back the waiting root tasks of a job that has gone, as PD_REQ_TASK. */
    void (*forget)(void *arg, uint32_t job);
} pd_turn_user;

typedef struct pd_turn {
    pd_turn_user user;
    pd_store    *store;             /* borrowed */
    pd_mail     *first, *last;      /* requests that wait, oldest first */
    uint64_t     work_ns;           /* how long the last batch of work took */
    uint64_t     effects;           /* sent to the loop thread so far: number of the last one */
} pd_turn;

/* Adds a chain of requests behind the ones that wait, and takes it. NULL: none. */
void     pd_turn_add(pd_turn *turn, pd_mail *mail);
/* Applies requests in the order of their arrival while there is time, does one batch of work, and handles deadlines.
 * Forwards effects at least every PD_TURN_SLICE_NS between two requests. True: requests or work are left. */
bool     pd_turn_run(pd_turn *turn);
/* Applies all requests that wait, however long that takes, and forwards the effects. For the end. */
void     pd_turn_finish(pd_turn *turn);
/* Forwards the effects of the store: root tasks to the pool, all others to the loop thread as one chain. Numbers the
 * latter from 1, rising by one over the life of the process; the loop thread asserts this order. Every effect leaves
 * the step thread here. So durability will hold effects back here until the state that they report is on disk. */
void     pd_turn_forward(pd_turn *turn);
/* Returns the time at which pd_turn_run is due even without mail (UINT64_MAX: never). */
uint64_t pd_turn_next_tick(const pd_turn *turn);

#endif
