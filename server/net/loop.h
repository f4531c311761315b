/* loop.h - what the modules of the loop thread share: the daemon's own struct. Loop thread, all of it. */
#ifndef PD_LOOP_H
#define PD_LOOP_H

#include "conn.h"
#include "lag.h"
#include "platform.h"
#include "pool.h"

#define PD_SLICE         (64 * 1024)            /* bytes per read: what fits the cache moves fastest */
#define PD_LEAST_QUOTA   (32 * 1024)
#define PD_MOST_QUOTA    (256 * 1024)           /* bytes a connection may move, each way, in one turn of the loop */
#define PD_TURN_BYTES    (1024 * 1024)          /* bytes that all of them together should */
#define PD_MAX_PENDING   16384                  /* requests of a connection under way */
#define PD_MAX_WAITING   (1024 * 1024)          /* pieces of them */
#define PD_HIGH_WATER    (1024 * 1024)          /* bytes of our own memory in answers that a peer has not read: then we do not read from it */
#define PD_MAX_CONTROL   16                     /* requests of a connection, other than those of a training step, without an answer */

typedef struct pd_drain {
    bool     begun, stops, done;                /* stops: the daemon ends when it is done */
    uint64_t deadline_ms;                       /* by then it ends whatever the store says */
} pd_drain;

struct pd_daemon {
    pd_daemon_config config;
    pd_platform      platform;
    pd_mailbox      *effects, *requests;
    pd_mail         *backlog;                   /* effects taken and not handled */
    size_t           backlog_at;                /* entries of the first one that are handled, where it has several */
    pd_mail         *post_first, *post_last;    /* requests of this turn */
    pd_request      *farewells;                 /* of connections that went before the store had welcomed them */
    pd_snapshot     *released;                  /* to go back to the store at the end of this turn */
    pd_conn        **conns;                     /* number % capacity is the place */
    size_t           capacity, n_conns, next_place;
    uint64_t         serial;
    pd_conn         *dirty, *waking, *closed;   /* closed: freed at the end of this turn */
    size_t           active, was_active;        /* connections that moved bytes in this turn and the last */
    bool             stall_over;                /* shares have grown: those that wait for theirs are asked again */
    bool             short_of_budget;           /* some connection waits until others need less of the whole budget */
    bool             stall_untold;              /* the step thread could not be told of a connection that waits */
    pd_pool         *pool;
    pd_admission     admission;
    pd_board        *board;
    pd_arena        *arena;
    pd_reply_scratch scratch;
    pd_drain         drain;
    pd_request      *drain_request;             /* made in time; NULL once it is on its way */
    pd_lag           lag;
    int              statm;                     /* /proc/self/statm, opened at start */
    uint64_t         started_ms, key;
    uint64_t         mark;               /* counts pushes that this thread refused and deadlines that passed; errors carry it, so that pushes can tell what their sender knew */
    uint64_t         bytes_in, bytes_out, frames_in, frames_refused;
    uint64_t         calls[PD_METHODS];
};

/* ---- daemon.c ---- */
uint64_t pd_daemon_now_ms(const pd_daemon *daemon);
uint64_t pd_daemon_clock_ns(const pd_daemon *daemon);               /* for budgets of time within a turn */
pd_conn *pd_daemon_find(pd_daemon *daemon, uint64_t number);        /* NULL: gone */
int      pd_daemon_place(pd_daemon *daemon, pd_conn *conn);         /* numbers it. PD_RESOURCE_EXHAUSTED: no place */
void     pd_daemon_gone(pd_daemon *daemon, pd_conn *conn);          /* its place is free */
void     pd_daemon_post(pd_daemon *daemon, pd_request *request);    /* takes; goes out at the end of this turn */
void     pd_daemon_keep_farewell(pd_daemon *daemon, pd_request *farewell);      /* takes it, until the Hello of that connection is answered */
pd_request *pd_daemon_take_farewell(pd_daemon *daemon, uint64_t number);         /* gives it back; NULL: there is none */
void     pd_daemon_wake(pd_daemon *daemon, pd_conn *conn);          /* a frame of it that was held back is asked again at the end of this turn */
void     pd_daemon_home(pd_daemon *daemon, pd_buffer *buffer);      /* takes a payload's memory back; its rank may send more */
size_t   pd_daemon_quota(const pd_daemon *daemon);
void     pd_daemon_drain(pd_daemon *daemon, bool stops, uint64_t within_ms);
void     pd_daemon_drained(pd_daemon *daemon);                      /* the store has answered that drain */
void     pd_daemon_log(const pd_daemon *daemon, const pd_effect *effect);       /* of kind PD_EFF_LOG */
/* ---- dispatch.c ---- */
extern const pd_framer_user pd_dispatch;                            /* with arg = the connection */
void     pd_dispatch_check(void);                                   /* asserts that the table agrees with paramd.proto */
void     pd_incoming_drop(pd_conn *conn);                           /* forgets the frame under way */
bool     pd_conn_is_late(const pd_conn *conn);                      /* its sender made the frame under way before it had read of the deadline that concerns it */
/* ---- push.c: frames with tensors ---- */
int      pd_prepare_init(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
int      pd_prepare_push(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
void     pd_finish_init(pd_conn *conn);
void     pd_finish_push(pd_conn *conn);
int      pd_run_pull(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* ---- import.c: frames with optimizer state ---- */
int      pd_prepare_import(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
void     pd_finish_import(pd_conn *conn);
/* ---- hello.c: joining ---- */
int      pd_run_hello(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
int      pd_run_declare(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
void     pd_hello_reply(pd_conn *conn, pd_pending *pending, const pd_effect *effect);   /* effect NULL: an operator's */
void     pd_declare_reply(pd_conn *conn, const pd_effect *effect);
void     pd_undeclare(pd_conn *conn);
/* Gives *out, n of them. PD_NO_MEMORY: what there is of them belongs to the caller all the same. */
int      pd_options_copy(pd_option **out, size_t *n_out, Paramd__Option *const *from, size_t n);
/* ---- answer.c: effects ---- */
bool     pd_handle_effect(pd_daemon *daemon, pd_effect *effect, uint64_t until_ns);    /* takes it, or false: not finished, later again */
/* ---- info.c: what operators ask ---- */
void     pd_info_reply(pd_conn *conn, pd_pending *pending, const pd_info *info);
void     pd_set_reply(pd_conn *conn, pd_pending *pending, const pd_set_result *result);

#endif
