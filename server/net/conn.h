/* conn.h - one connection: its transport, what it has declared, what it waits for, what it still has to send. Loop thread.
 *
 * Life: GREETING until its Hello has come, WELCOMING until the store has answered it, OPEN, then either CLOSED at once or ENDING: a
 * last ERROR frame goes out and the peer is given a moment to read it. A connection never goes away inside a callback
 * of its own framer: closing marks it, and the end of the loop's turn frees it. */
#ifndef PD_CONN_H
#define PD_CONN_H

#include "admission.h"
#include "frame.h"
#include "output.h"
#include "transport.h"

struct pd_daemon;

typedef enum pd_conn_state { PD_GREETING, PD_WELCOMING, PD_OPEN, PD_ENDING, PD_CLOSED } pd_conn_state;

/* Parameters as this connection numbers them. */
typedef struct pd_handles {
    size_t           n, capacity;
    pd_handle_facts *facts;             /* which elements travel here; names are those of: */
    pd_param_decl   *decls;             /* what was declared; they own what they point to */
    uint32_t        *params;            /* index in the job; known once declared */
} pd_handles;

/* The frame under way, from its header to its end. */
typedef struct pd_incoming {
    bool         begun;                 /* its header has been looked at: a stalled frame is asked again */
    bool         asked;                 /* memory for its payload has been asked for */
    pd_error     refusal;               /* code other than PD_OK: read away, then answered so */
    pd_request  *request;               /* to be posted when the payload is there */
    pd_pending  *pending;
    pd_buffer   *buffer;
    struct iovec span;
    uint64_t     mark;                  /* Push, Initialise: of the last error that the peer had read when it made the frame */
} pd_incoming;

/* The deadline that passed last while a frame of the connection waited for memory. Pushes that the peer made before it read the
 * deadline's error end with the same error. */
typedef struct pd_overdue {
    uint64_t since;                     /* mark of the report; 0: there was none */
    uint64_t step;                      /* rounds up to this one are meant */
    pd_error error;
} pd_overdue;

typedef struct pd_conn {
    struct pd_daemon *daemon;
    uint64_t      number;               /* never reused */
    pd_conn_state state;
    pd_transport *transport;            /* NULL once closed */
    unsigned      watched;              /* events that the transport waits for */
    char          peer[72];             /* address, for the log */
    char          label[128];           /* what its Hello said */
    pd_framer    *framer;
    pd_incoming   incoming;
    pd_error      why;                  /* what a framer callback found wrong with the stream */
    uint32_t      job, rank;            /* job 0: none (operator, or it is gone) */
    bool          operates;             /* an operator's connection */
    bool          declaring, declared;  /* waits for the store's answer to its last Declare; has it */
    pd_handles    handles;
    pd_share      share;
    pd_pendings   pendings;
    pd_output     output;
    pd_request   *farewell;             /* PD_REQ_LOST, made in time; NULL once posted or when nobody needs to know */
    bool          joined;               /* a Hello was posted: the store has to know when we go */
    bool          dirty;                /* in the daemon's list of those with something to write */
    bool          shut;                 /* ENDING: everything is sent and our side is shut */
    bool          hung;                 /* while nothing was read from it, the peer has ended its side, or the connection is broken */
    bool          ended;                /* the peer has ended its side: it is owed answers, and nothing is read any more */
    bool          has_left;             /* by a Leave of its own */
    uint64_t      refused;              /* mark of the last push that was refused before it reached the store; 0: none was */
    pd_overdue    overdue;
    uint64_t      pieces;               /* that its parameters travel in, once declared */
    struct pd_conn *next_dirty;
    bool          waking;               /* in the daemon's list of those whose payload came home while they waited */
    struct pd_conn *next_waking, *next_closed;
    uint64_t      opened_ms, read_ms, frame_ms, write_ms, end_ms, beat_ms;      /* opened; last bytes; frame in begun; frame out begun; ENDING or `ended` until; said that we live */
} pd_conn;

/* Where the store sends its answer to a request of this connection. */
static inline pd_ticket pd_conn_ticket(const pd_conn *conn, const pd_pending *pending) { return (pd_ticket){ conn->number, pending->serial }; }

/* Takes the transport. NULL: out of memory, the transport is still the caller's. */
pd_conn *pd_conn_new(struct pd_daemon *daemon, pd_transport *transport, const char *peer);
/* Frees a closed one, at the end of a turn. */
void     pd_conn_free(pd_conn *conn);
/* Sends a last ERROR frame, then ends the connection. `asked`: the request that the frame answers; NULL: it answers none and has request id 0. */
void     pd_conn_end(pd_conn *conn, const pd_prefix *asked, const pd_error *err);
/* At once. `reason` goes to the log and the store. */
void     pd_conn_close(pd_conn *conn, const char *reason);
bool     pd_conn_live(const pd_conn *conn);             /* neither ENDING nor CLOSED */

/* Answers to the request with the prefix `asked`, with a checksum where it has one. Each sees to it that they are written at the end of the loop's
 * turn; without memory the connection is closed. */
void     pd_conn_reply(pd_conn *conn, const pd_prefix *asked, const ProtobufCMessage *message);
void     pd_conn_refuse(pd_conn *conn, const pd_prefix *asked, const pd_error *err);
void     pd_conn_answer(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message);      /* takes pending */
void     pd_conn_fail(pd_conn *conn, pd_pending *pending, const pd_error *err);                    /* takes pending */
void     pd_conn_fail_all(pd_conn *conn, const pd_error *err);
void     pd_conn_touch(pd_conn *conn);                  /* there is something to write */

/* Starts the answer to a request whose pieces all have theirs. Takes pending, which is in no table. */
void     pd_conn_data_reply(pd_conn *conn, pd_pending *pending);

/* Something it waited for has come: goes on with the frame that was held back. Not inside a framer callback. */
void     pd_conn_resume(pd_conn *conn);
/* Writes what can be written now. */
void     pd_conn_write(pd_conn *conn);
/* Sees to its deadlines. */
void     pd_conn_tick(pd_conn *conn, uint64_t now_ms);

/* ---- handles (handles.c) ---- */

/* PD_NO_MEMORY: nothing has changed. Copies what the declaration points to, and where it is not ranged fills in all `elements`. */
int      pd_handles_add(pd_handles *handles, const pd_param_decl *decl, int64_t elements);
/* A copy with its own texts. PD_NO_MEMORY: *to owns nothing. */
int      pd_decl_copy(pd_param_decl *to, const pd_param_decl *from);
void     pd_handles_cut(pd_handles *handles, size_t n);     /* forgets all but the first n */
void     pd_handles_free(pd_handles *handles);

#endif
