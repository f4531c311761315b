/* board.h - the published state of every parameter: answers pushes when their round has closed, and pulls when the
 * weights are new enough.
 *
 * Loop thread. The board has one entry per parameter of every job: rounds closed, the outcome of the last one, the last
 * published weights, and the waiters. A request that waits is one block of memory with a waiter per piece. Nothing is
 * allocated or looked up per piece. */
#ifndef PD_BOARD_H
#define PD_BOARD_H

#include "request.h"

typedef struct pd_board pd_board;
typedef struct pd_wait  pd_wait;

/* A piece that waits, and later its answer. The caller fills in the fields from `param` to `count`. */
typedef struct pd_waiter {
    struct pd_waiter *next, **link;     /* in the parameter's list while it waits; link NULL: not in it */
    pd_wait     *wait;
    uint32_t     param;                 /* index in the job */
    pd_dtype     dtype;                 /* element type of the weights it wants */
    bool         pulls;                 /* it wants weights, */
    pd_dtype     update;                /* or the step's update in this element type, if not 0, */
    uint64_t     holds;                 /* onto the weights it has: 1 + their version; 0: it has none */
    bool         idle;                  /* it waits for no round: its range has no elements */
    int64_t      first, count;          /* elements */
    int          outcome;               /* answer: enum pd_outcome; 0: it waited for no round */
    uint64_t     step, version;         /* answer: rounds closed; step that produced the weights */
    pd_snapshot *snapshot;              /* answer to a pull: a reference */
    bool         updates;               /* answer to a pull: the snapshot's update, not its weights */
    pd_reason   *why;                   /* answer to a push whose step was refused: a reference, or NULL */
    pd_scalar_means *scalars;           /* answer: scalars of the last round, a reference; NULL: none */
} pd_waiter;

/* A request that waits for several pieces. */
struct pd_wait {
    uint64_t  step;                     /* every piece waits until this many rounds of its parameter are closed */
    bool      pushes;                   /* the answer has the outcome of that round */
    uint32_t  rank;                     /* whose push it is: a round may close without some ranks (PD_LATE) */
    bool      all;                      /* it also waits until all other parameters have closed that round */
    size_t    n, open;                  /* pieces; pieces without an answer, plus 1 while `rest` waits */
    pd_waiter rest;                     /* stands in the list for all other parameters */
    pd_waiter at[];
};

typedef struct pd_board_user {
    void *arg;
    /* Called when the last piece has its answer. */
    void (*resolved)(void *arg, pd_wait *wait);
    /* Called when a wait ends with an error. The wait is in no list any more and may be freed. */
    void (*failed)(void *arg, pd_wait *wait, const pd_error *err);
    /* Takes a snapshot that the board does not read any more: it may go back to the store. */
    void (*released)(void *arg, pd_snapshot *snapshot);
} pd_board_user;

/* NULL: out of memory. */
pd_board *pd_board_new(const pd_board_user *user);
/* Releases all snapshots and frees the board. No request may wait. Accepts NULL. */
void      pd_board_free(pd_board *board);

/* Reserves entries for parameters 0 .. n of a job. PD_NO_MEMORY: nothing has changed. */
int  pd_board_reserve(pd_board *board, uint32_t job, size_t n);
/* Sets the number of parameters of the job, at most the number of reserved entries. Before, no wait for all parameters
 * is answered. */
void pd_board_settle(pd_board *board, uint32_t job, size_t n);
/* Returns whether all pieces would have their answer at once. */
bool pd_board_would_answer(const pd_board *board, uint32_t job, const pd_wait *wait);

/* Files the pieces of a wait, whose parameters have entries. True: all pieces have their answers already, and
 * `resolved` is not called. Borrows the wait until it is resolved, failed or forgotten. */
bool pd_board_wait(pd_board *board, uint32_t job, pd_wait *wait);
/* Ends a wait, answered or not, and releases its references. Called before a wait is freed. */
void pd_board_forget(pd_board *board, pd_wait *wait);
/* Releases the references of one piece, when its weights are written. */
void pd_board_unref(pd_board *board, pd_waiter *waiter);

/* Enters a closed round, or published weights. Takes the snapshot, the reason and the scalars. */
void pd_board_close(pd_board *board, uint32_t job, pd_closed *closed);
/* Fails the waits of a job for `step` or an earlier one. */
void pd_board_time_out(pd_board *board, uint32_t job, uint64_t step, const pd_error *err);
/* Fails all waits of a job and forgets the job. */
void pd_board_drop(pd_board *board, uint32_t job, const pd_error *err);

#endif
