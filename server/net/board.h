/* board.h - what is published: answers pushes when their round has closed and pulls when there are weights new enough.
 *
 * Loop thread. One entry per parameter of every job: rounds closed, how the last one ended, the weights last published, and who waits.
 * A request that waits is one block of memory, a waiter per piece in it; nothing is allocated or looked up per piece. */
#ifndef PD_BOARD_H
#define PD_BOARD_H

#include "request.h"

typedef struct pd_board pd_board;
typedef struct pd_wait  pd_wait;

/* A piece that waits, then its answer. */
typedef struct pd_waiter {
    struct pd_waiter *next, **link;     /* in the parameter's list while it waits; link NULL: not in it */
    pd_wait     *wait;
    uint32_t     param;                 /* set by the caller, as are: */
    pd_dtype     dtype;                 /*   element type wanted */
    bool         pulls;                 /*   wants weights, */
    pd_dtype     update;                /*   or, not 0, what a step added to those that it holds: in this element type, */
    uint64_t     holds;                 /*   onto 1 + this version; 0: it holds none */
    bool         idle;                  /*   waits for no round: it is of a range without elements, and rounds close without it */
    int64_t      first, count;          /*   which elements of them */
    int          outcome;               /* answer: enum pd_outcome, 0 where no round was waited for */
    uint64_t     step, version;         /* answer: rounds closed; step that produced the weights */
    pd_snapshot *snapshot;              /* answer, where it pulls: a reference */
    bool         updates;               /* answer, where it pulls: the snapshot's update, not its weights */
    pd_reason   *why;                   /* answer, of a push whose step was refused: a reference; NULL: nobody knows why */
    pd_scalar_means *scalars;           /* answer: those of the last round, a reference; NULL: there were none */
} pd_waiter;

/* A request that waits for several pieces. */
struct pd_wait {
    uint64_t  step;                     /* every piece waits until so many rounds of its parameter are closed */
    bool      pushes;                   /* tells the outcome of that round */
    bool      all;                      /* waits for that of every other parameter of the job, too */
    size_t    n, open;                  /* pieces; what has no answer: of them, and of all the others together */
    pd_waiter rest;                     /* all the others: no piece, only its place in a list */
    pd_waiter at[];
};

typedef struct pd_board_user {
    void *arg;
    /* The last piece has its answer. */
    void (*resolved)(void *arg, pd_wait *wait);
    /* It ends with an error. The wait no longer waits for anything; it may be freed. */
    void (*failed)(void *arg, pd_wait *wait, const pd_error *err);
    /* Nobody here reads the snapshot any more: it may go back to the store. Takes it. */
    void (*released)(void *arg, pd_snapshot *snapshot);
} pd_board_user;

pd_board *pd_board_new(const pd_board_user *user);      /* NULL: out of memory */
void      pd_board_free(pd_board *board);               /* releases all snapshots; nobody may wait; accepts NULL */

/* Makes room for parameters 0 .. n of a job. PD_NO_MEMORY: nothing has changed. */
int  pd_board_reserve(pd_board *board, uint32_t job, size_t n);
/* The job has n parameters: room was made for at least so many. Until then nothing that waits for all of them is answered. */
void pd_board_settle(pd_board *board, uint32_t job, size_t n);
/* Would all pieces have their answer at once? Changes nothing. */
bool pd_board_would_answer(const pd_board *board, uint32_t job, const pd_wait *wait);

/* Files the wait's pieces (parameters for which room was made). True: all have their answer already; `resolved` is not called.
 * Borrows the wait until resolved, failed or forgotten. */
bool pd_board_wait(pd_board *board, uint32_t job, pd_wait *wait);
/* Ends a wait, answered or not: whoever frees one calls this first. Gives its references back. */
void pd_board_forget(pd_board *board, pd_wait *wait);
/* Gives back one piece's references, when its weights are written. */
void pd_board_unref(pd_board *board, pd_waiter *waiter);

/* A round has closed, or weights were published: takes the snapshot, the reason and the scalars. */
void pd_board_close(pd_board *board, uint32_t job, pd_closed *closed);
/* Fails the job's waits for `step` or less. */
void pd_board_time_out(pd_board *board, uint32_t job, uint64_t step, const pd_error *err);
/* Fails all of the job's waits and forgets the job. */
void pd_board_drop(pd_board *board, uint32_t job, const pd_error *err);

#endif
