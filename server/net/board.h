/* board.h - the published state of every parameter. The board answers a push when its round has closed, and a pull
 * when the weights are new enough.
 *
 * Runs on the loop thread. The board has one entry per parameter of every job. An entry has the number of closed
 * rounds, the outcome of the last round, the last published weights, and the waiters.
 *
 * A request has one waiter for each of its pieces (a piece is a range of elements of one parameter). All waiters of
 * a request are in one block of memory, so the board allocates nothing per piece. */
#ifndef PD_BOARD_H
#define PD_BOARD_H

#include "request.h"

typedef struct pd_board pd_board;
typedef struct pd_wait pd_wait;

/* A piece of a request while it waits for its parameter, and later the answer for the piece. The caller fills in the
 * fields from `param` to `count`. */
typedef struct pd_waiter {
    struct pd_waiter *next, **link; /* neighbours in the list of the parameter's waiters; if `link` is NULL, this
                                     * waiter is in no list */
    pd_wait *wait;
    uint32_t param;           /* the parameter's index in the job */
    pd_dtype dtype;           /* element type in which the worker wants the weights */
    bool pulls;               /* the worker wants weights */
    pd_dtype update;          /* the worker also accepts the step's update instead of weights, in this element type;
                               * 0: it does not */
    uint64_t holds;           /* 1 + version of the weights that the worker has; 0: it has none */
    bool idle;                /* the worker has no elements of the parameter, so the piece waits for no round */
    int64_t first, count;     /* elements */
    int outcome;              /* answer: outcome of the round (enum pd_outcome); 0: the piece waited for no round */
    uint64_t step, version;   /* answer: number of closed rounds; step that produced the weights */
    pd_snapshot *snapshot;    /* answer to a pull: a reference to the snapshot with the weights */
    bool updates;             /* answer to a pull: send the update that the snapshot has, not its weights */
    pd_reason *why;           /* answer to a push whose step was refused: a reference to the reason, or NULL */
    pd_scalar_means *scalars; /* answer: a reference to the averaged scalars of the last round; NULL: the round had
                               * none */
} pd_waiter;

/* A request that waits until all its pieces have an answer. */
struct pd_wait {
    uint64_t step;  /* every piece waits until its parameter has closed this many rounds */
    bool pushes;    /* the request is a push: its answer contains the outcome of the round */
    uint32_t rank;  /* rank that pushes; it gets PD_LATE if the round closed without its contribution */
    bool all;       /* the request also waits until all other parameters of the job have closed the round */
    size_t n, open; /* n: number of pieces. open: number of pieces without an answer, plus 1 while the request waits
                     * for all other parameters */
    pd_waiter rest; /* entry in the list of requests that wait for all parameters of the job */
    pd_waiter at[];
};

typedef struct pd_board_user {
    void *arg;
    /* Called when the last piece of a waiting request has its answer. */
    void (*resolved)(void *arg, pd_wait *wait);
    /* Called when a waiting request ends with an error. The request is in no list any more and may be freed. */
    void (*failed)(void *arg, pd_wait *wait, const pd_error *err);
    /* Takes a snapshot that the board does not use any more and that may go back to the store. */
    void (*released)(void *arg, pd_snapshot *snapshot);
} pd_board_user;

/* Makes an empty board. Returns NULL if memory is out. */
pd_board *pd_board_new(const pd_board_user *user);
/* Releases all snapshots and frees the board. No request may be waiting. Accepts NULL. */
void pd_board_free(pd_board *board);

/* Reserves n entries, for parameters 0 to n - 1 of a job. PD_NO_MEMORY: the entries that the job had before stay
 * valid. */
int pd_board_reserve(pd_board *board, uint32_t number, size_t n);
/* Sets the number of parameters of the job, at most the number of reserved entries. Until this call, no request that
 * waits for all parameters is answered. */
void pd_board_settle(pd_board *board, uint32_t number, size_t n);
/* Returns whether a request would be answered at once, without waiting. */
bool pd_board_would_answer(const pd_board *board, uint32_t number, const pd_wait *wait);

/* Files the pieces of a request. Entries of their parameters must have been reserved. Returns true if all pieces
 * have their answers already; the callback `resolved` is not called then. Borrows the request until it is resolved,
 * failed or forgotten. */
bool pd_board_wait(pd_board *board, uint32_t number, pd_wait *wait);
/* Removes a request from the board, answered or not, and releases the request's references. Called before a request
 * is freed. */
void pd_board_forget(pd_board *board, pd_wait *wait);
/* Releases the references of one piece, once the weights of the piece are sent. */
void pd_board_unref(pd_board *board, pd_waiter *waiter);

/* Enters a closed round or newly published weights into the board, and answers the requests that waited for them.
 * Takes the snapshot, the reason and the scalars from `closed`. */
void pd_board_close(pd_board *board, uint32_t number, pd_closed *closed);
/* Fails the requests of a job that wait for round `step` or an earlier one. */
void pd_board_time_out(pd_board *board, uint32_t number, uint64_t step, const pd_error *err);
/* Fails all waiting requests of a job, and forgets the job. */
void pd_board_drop(pd_board *board, uint32_t number, const pd_error *err);

#endif
