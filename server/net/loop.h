/* loop.h - the state of the loop thread: its connections by number, its mail to the store, and what they share. */
#ifndef PD_LOOP_H
#define PD_LOOP_H

#include "admission.h"
#include "board.h"
#include "payload_pool.h"
#include "daemon_config.h"
#include "lag.h"
#include "mailbox.h"
#include "output.h"
#include "platform.h"

/* The end of the daemon, from the first signal or Shutdown on. */
typedef struct pd_shutdown {
    bool     begun, drained;                    /* the store is asked to drain; it has answered */
    uint64_t deadline_ms;                       /* the loop stops then, even if the store has not drained */
} pd_shutdown;

struct pd_daemon {
    pd_daemon_config config;
    pd_platform      platform;
    pd_mailbox      *effects, *requests;
    pd_mail         *backlog;                   /* effects taken and not handled */
    size_t           backlog_at;                /* entries of the first one that are handled, where it has several */
    uint64_t         effects_handled;           /* number of the last effect that was handled */
    pd_mail         *post_first, *post_last;    /* requests of this turn */
    pd_request      *notices;                   /* disconnect notices: of connections closed while being welcomed */
    pd_snapshot     *released;                  /* to go back to the store at the end of this turn */
    struct pd_conn **conns;                     /* the place of a connection is its number % capacity */
    uint64_t        *numbers;                   /* of the connections, by place */
    size_t           capacity, n_conns, next_place;
    uint64_t         serial;                    /* connections so far */
    struct pd_conn  *dirty, *waking, *closed;   /* lists; closed ones are freed at the end of this turn */
    size_t           active, was_active;        /* connections that moved bytes in this turn, and in the last */
    bool             stall_over;                /* shares have grown: connections that wait for theirs ask again */
    bool             short_of_budget;           /* some connection waits until others need less of the whole budget */
    bool             stall_unreported;          /* no memory to report a connection that waits to the step thread */
    pd_pool         *pool;
    pd_admission     admission;
    pd_board        *board;
    pd_arena        *arena;                     /* for the message that is read now */
    pd_reply_scratch scratch;
    pd_shutdown      shutdown;
    pd_request      *drain_request;             /* made in time; NULL once it is on its way */
    pd_lag           lag;
    int              statm;                     /* /proc/self/statm, opened at start */
    uint64_t         started_ms, key;
    uint64_t         mark;                      /* counts pushes that this thread refused and deadlines that passed.
                                                 * Errors carry it, so that pushes can tell which of them their sender
                                                 * had read */
    uint64_t         bytes_in, bytes_out, frames_in, frames_refused;
    uint64_t         calls[PD_METHODS];
};

uint64_t pd_loop_now_ms(const pd_daemon *daemon);
/* Reads the clock for time budgets within a turn. */
uint64_t pd_loop_clock_ns(const pd_daemon *daemon);
/* Logs the line of an effect of kind PD_EFF_LOG. */
void     pd_loop_log(const pd_daemon *daemon, const pd_effect *effect);

/* Returns the connection of that number; NULL: it is closed. */
struct pd_conn *pd_loop_find(pd_daemon *daemon, uint64_t number);
/* Adds a connection and gives it a number that is never used again. PD_RESOURCE_EXHAUSTED: all places are taken. */
int      pd_loop_place(pd_daemon *daemon, struct pd_conn *conn, uint64_t *number);
/* Frees the place of a connection. */
void     pd_loop_remove(pd_daemon *daemon, uint64_t number);
/* Returns how many bytes a connection may move, each way, in this turn. */
size_t   pd_loop_quota(const pd_daemon *daemon);

/* Takes a request, and posts it at the end of this turn. */
void     pd_loop_post(pd_daemon *daemon, pd_request *request);
/* Posts the requests of this turn, and the snapshots that the board has released. */
void     pd_loop_flush(pd_daemon *daemon);
/* Takes the disconnect notice of a connection whose Hello the store has not answered yet. */
void     pd_loop_keep_notice(pd_daemon *daemon, pd_request *notice);
/* Gives the disconnect notice of that connection back; NULL: there is none. */
pd_request *pd_loop_take_notice(pd_daemon *daemon, uint64_t number);

#endif
