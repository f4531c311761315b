/* conn.h - one connection: its transport, its declarations, its open requests, and the answers it still has to send.
 *
 * Loop thread. A connection is GREETING until its Hello has come, WELCOMING until the store has answered the Hello,
 * then OPEN. It ends as CLOSED at once, or as ENDING: a last ERROR frame goes out and the peer gets a moment to read
 * it. A connection is never freed inside a callback of its own framer: closing only marks it, and the end of the loop's
 * turn frees it. */
#ifndef PD_CONN_H
#define PD_CONN_H

#include "frame.h"
#include "handles.h"
#include "loop.h"
#include "transport.h"

#define PD_HIGH_WATER (1024 * 1024)     /* bytes of our own memory in answers that a peer has not read: then the
                                         * connection is not read from */

typedef enum pd_conn_state { PD_GREETING, PD_WELCOMING, PD_OPEN, PD_ENDING, PD_CLOSED } pd_conn_state;

/* The frame that is being read, from its header to its end. */
typedef struct pd_incoming {
    bool         begun;                 /* its header was checked; the header of a stalled frame is offered again */
    bool         asked;                 /* memory for its payload was asked for */
    pd_error     refusal;               /* code other than PD_OK: the frame is read away, then answered with this */
    pd_request  *request;               /* posted when the payload is complete */
    pd_pending  *pending;
    pd_buffer   *buffer;
    struct iovec span;
    uint64_t     mark;                  /* Push, Initialise: mark of the last error the peer had read when it sent */
} pd_incoming;

/* The deadline that passed last while a frame of the connection waited for memory. Pushes that the peer sent before it
 * read the deadline's error end with the same error. */
typedef struct pd_overdue {
    uint64_t since;                     /* mark of the deadline's error; 0: no deadline has passed */
    uint64_t step;                      /* the deadline was that of rounds up to this one */
    pd_error error;
} pd_overdue;

typedef struct pd_conn {
    pd_daemon    *daemon;
    uint64_t      number;               /* never used again */
    pd_conn_state state;
    pd_transport *transport;            /* NULL once closed */
    unsigned      watched;              /* events that the transport waits for */
    char          peer[72];             /* address, for the log */
    char          label[128];           /* from its Hello */
    pd_framer    *framer;
    pd_incoming   incoming;
    pd_error      why;                  /* error in the stream that a framer callback found */
    uint32_t      job, rank;            /* job 0: none, as for an operator, or when the job has ended */
    bool          operates;             /* an operator's connection */
    bool          declaring, declared;  /* the store has not yet answered its last Declare; has answered it */
    pd_handles    handles;
    pd_share      share;
    pd_pendings   pendings;
    pd_output     output;
    pd_request   *notice;               /* disconnect notice, PD_REQ_LOST, made in time; NULL once posted */
    bool          joined;               /* a Hello was posted: the store needs the disconnect notice */
    bool          dirty;                /* in the daemon's list of connections with output */
    bool          shut;                 /* ENDING: everything is sent and our side is shut */
    bool          hung;                 /* while it was not read from, the peer ended its side or the transport broke */
    bool          ended;                /* the peer has ended its side: it still gets answers, nothing more is read */
    bool          has_left;             /* by a Leave of its own */
    uint64_t      refused;              /* mark of the last push refused before it reached the store; 0: none */
    pd_overdue    overdue;
    uint64_t      pieces;               /* in which its parameters travel; known once declared */
    struct pd_conn *next_dirty;
    bool          waking;               /* in the daemon's list of connections whose stalled frame is offered again */
    struct pd_conn *next_waking, *next_closed;
    uint64_t      opened_ms, read_ms, frame_ms, write_ms;       /* opened; last bytes read; this frame begun, in; out */
    uint64_t      end_ms, beat_ms;      /* ENDING or `ended` lasts until then; last heartbeat of our own */
} pd_conn;

/* Returns the ticket by which the store answers a request of this connection. */
static inline pd_ticket pd_conn_ticket(const pd_conn *conn, const pd_pending *pending)
{
    return (pd_ticket){ conn->number, pending->serial };
}

/* Makes a connection without a transport; `frames` gets its frames. NULL: out of memory, or no place. */
pd_conn *pd_conn_new(pd_daemon *daemon, const pd_framer_user *frames, const char *peer);
/* Frees a closed connection, at the end of a turn. */
void     pd_conn_free(pd_conn *conn);
/* Sends a last ERROR frame, then ends the connection. `asked` is the request that the frame answers; NULL: the frame
 * answers no request and has request id 0. */
void     pd_conn_end(pd_conn *conn, const pd_prefix *asked, const pd_error *err);
/* Closes at once. `reason` goes to the log and to the store. */
void     pd_conn_close(pd_conn *conn, const char *reason);
/* Sends the disconnect notice to the store, once. While the welcome is under way, the notice waits for it. */
void     pd_conn_notify_store(pd_conn *conn, const char *reason);
/* Returns whether the connection is neither ENDING nor CLOSED. */
bool     pd_conn_live(const pd_conn *conn);
/* Forgets the connection's declarations, and gives its part of the ingest budget back. */
void     pd_conn_undeclare(pd_conn *conn);

/* Answers the request with the prefix `asked`, with a checksum where the request has one. The answer is written at the
 * end of the loop's turn. Without memory the connection is closed. */
void     pd_conn_reply(pd_conn *conn, const pd_prefix *asked, const ProtobufCMessage *message);
void     pd_conn_refuse(pd_conn *conn, const pd_prefix *asked, const pd_error *err);
/* Fills in the error of a request for which there is no memory. Returns PD_NO_MEMORY. */
int      pd_conn_no_memory(const pd_prefix *asked, pd_error *err);
/* Answer an open request, which ends it. */
void     pd_conn_answer(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message);
void     pd_conn_fail(pd_conn *conn, pd_pending *pending, const pd_error *err);
/* Fails all open requests. */
void     pd_conn_fail_all(pd_conn *conn, const pd_error *err);
/* Queues the answer to a request whose pieces all have their answers. Takes pending, which is in no table. */
void     pd_conn_data_reply(pd_conn *conn, pd_pending *pending);

/* Puts the connection into the daemon's list of connections with output. */
void     pd_conn_touch(pd_conn *conn);
/* Offers the stalled frame of the connection again, at the end of this turn. */
void     pd_conn_wake(pd_conn *conn);
/* Tells the transport which events the connection waits for now. */
void     pd_conn_watch(pd_conn *conn);
bool     pd_conn_wants_to_read(const pd_conn *conn);

/* Forgets the frame that is being read. */
void     pd_conn_drop_incoming(pd_conn *conn);
/* Returns whether the peer sent the frame that is being read before it had read of the deadline that the frame
 * missed. */
bool     pd_conn_is_late(const pd_conn *conn);
/* Takes a payload's buffer back into the pool. The rank that it is charged to may send more. */
void     pd_conn_return_buffer(pd_daemon *daemon, pd_buffer *buffer);

#endif
