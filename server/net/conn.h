/* conn.h - one connection: its transport, its declarations, its open requests (not answered yet), and its output.
 *
 * Runs on the loop thread. A connection is GREETING until its Hello has come, WELCOMING until the store has answered
 * the Hello, then OPEN. A connection that ends at once is CLOSED. A connection that ends with an error is ENDING
 * first: a last ERROR frame goes out, and the peer gets a moment to read it.
 *
 * A frame that cannot get memory yet, or that would exceed a limit, is held back: the connection is not read until
 * the frame can be processed.
 *
 * A connection is never freed inside a callback of its framer (the parser of its frames). Closing only marks the
 * connection as CLOSED. It is freed at the end of the loop's turn. */
#ifndef PD_CONN_H
#define PD_CONN_H

#include "frame.h"
#include "handles.h"
#include "loop.h"
#include "transport.h"

#define PD_HIGH_WATER                                                                                                  \
    (1024 *                                                                                                            \
     1024) /* bytes of unsent answers (the weights in them do not count) at which the connection is not read any more */

typedef enum pd_conn_state { PD_GREETING, PD_WELCOMING, PD_OPEN, PD_ENDING, PD_CLOSED } pd_conn_state;

/* The frame that is being read, from its header to its end. */
typedef struct pd_incoming {
    bool begun;          /* the frame's header is checked already; it is not checked again if the frame has to wait
                          * for memory */
    bool asked;          /* memory for the frame's payload was requested */
    pd_error refusal;    /* why the frame is refused; then its payload is discarded and this error is the answer */
    pd_request *request; /* request that is posted to the store when the payload is complete */
    pd_pending *pending;
    pd_buffer *buffer;
    struct iovec span;
    uint64_t mark; /* Push and Initialise: number of the last error that the peer knew when it sent the frame */
} pd_incoming;

/* The last round deadline that passed while this connection had a held-back frame. Pushes that the peer sent before
 * it learned of the deadline end with the deadline's error. */
typedef struct pd_overdue {
    uint64_t since; /* number of the deadline's error; 0: no deadline has passed */
    uint64_t step;  /* last round to which the deadline applied */
    pd_error error;
} pd_overdue;

typedef struct pd_conn {
    pd_daemon *daemon;
    uint64_t number; /* connection number; never used for another connection */
    pd_conn_state state;
    pd_transport *transport; /* NULL once the connection is closed */
    unsigned watched;        /* events that the transport watches for this connection */
    char peer[72];           /* the peer's address, for the log */
    char label[128];         /* the peer's name for itself, from its Hello */
    pd_framer *framer;
    pd_incoming incoming;
    pd_error why;       /* error in the peer's bytes, found while a frame was being parsed */
    uint32_t job, rank; /* job 0: the connection has no job (an operator's connection, or the job has ended) */
    bool operates;      /* the peer is an operator, not a worker */
    /* declaring: the store has not answered a Declare yet. declared: the store has answered a Declare */
    bool declaring, declared;
    pd_handles handles;
    pd_quota quota;
    pd_pendings pendings;
    pd_output output;
    pd_request *notice; /* disconnect notice for the store (PD_REQ_LOST), allocated in advance; NULL once it is
                         * posted */
    bool joined;        /* a Hello was posted, so the store needs a disconnect notice at the end */
    bool exports;       /* an Export was posted, so the store needs a disconnect notice at the end */
    bool dirty;         /* the connection is in the daemon's list of connections with bytes to send */
    bool shut;          /* ENDING: everything is sent, and the server has shut its sending side */
    bool hung;          /* the peer ended the connection, or the transport broke, while the server was not reading */
    bool ended;         /* the peer has ended its sending side: it still gets answers, but nothing more is read */
    bool has_left;      /* the worker has left with a Leave request */
    uint64_t refused;   /* number of the last error that refused a push of this connection before the push reached
                         * the store; 0: none */
    pd_overdue overdue;
    uint64_t pieces; /* number of pieces that the worker's parameters are split into; known once they are declared */
    struct pd_conn *next_dirty;
    bool waking; /* the connection is in the daemon's list of connections that try their held-back frame again */
    struct pd_conn *next_waking, *next_closed;
    uint64_t opened_ms, read_ms, frame_ms, write_ms; /* times of: opening; last bytes received; begin of the frame
                                                      * being received; last frame sent (or begin of sending) */
    uint64_t end_ms, beat_ms;                        /* time at which an ending connection is closed; time of the
                                                      * server's last heartbeat */
} pd_conn;

/* Returns the numbers by which the store's answer later finds this connection and its request. */
static inline pd_ticket pd_conn_ticket(const pd_conn *conn, const pd_pending *pending)
{
    return (pd_ticket){ conn->number, pending->serial };
}

/* Makes a connection without a transport. Its frames are passed to `frames`. Returns NULL if memory is out or the
 * daemon has no free place for a connection. */
pd_conn *pd_conn_new(pd_daemon *daemon, const pd_framer_user *frames, const char *peer);
/* Frees a closed connection. Called at the end of a turn of the loop. */
void pd_conn_free(pd_conn *conn);
/* Logs an operator's command together with its author: the label and address of the connection. `job` is "" if the
 * command concerns no job. */
void pd_conn_log_command(const pd_conn *conn, const char *job, const char *command);
/* Sends a last ERROR frame, then ends the connection. The frame answers the request whose prefix (the fixed first
 * bytes of its frame) is `asked`. If `asked` is NULL, the frame answers no request and has request id 0. */
void pd_conn_end(pd_conn *conn, const pd_prefix *asked, const pd_error *err);
/* Closes the connection at once. `reason` goes to the log and to the store. */
void pd_conn_close(pd_conn *conn, const char *reason);
/* Sends the connection's disconnect notice to the store, once. If the store has not answered the Hello yet, the
 * notice waits for that answer. */
void pd_conn_notify_store(pd_conn *conn, const char *reason);
/* Returns whether the connection is still usable: neither ENDING nor CLOSED. */
bool pd_conn_live(const pd_conn *conn);
/* Forgets the connection's declarations, and returns the connection's part of the ingest budget. */
void pd_conn_undeclare(pd_conn *conn);

/* Answers the request with the prefix `asked`. The answer has a checksum if the request had one, and is sent at the
 * end of the loop's turn. If memory is out, the connection is closed. */
void pd_conn_reply(pd_conn *conn, const pd_prefix *asked, const ProtobufCMessage *message);
void pd_conn_refuse(pd_conn *conn, const pd_prefix *asked, const pd_error *err);
/* Sets the out-of-memory error of the request with the prefix `asked`. Returns PD_NO_MEMORY. */
int pd_conn_no_memory(const pd_prefix *asked, pd_error *err);
/* Answers a request, which is then no longer open. */
void pd_conn_answer(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message);
void pd_conn_answer_with(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message, void *payload,
                         size_t bytes); /* answers an open request with a message and a payload; the payload is
                                         * copied */
void pd_conn_fail(pd_conn *conn, pd_pending *pending, const pd_error *err);
/* Fails all open requests of the connection. */
void pd_conn_fail_all(pd_conn *conn, const pd_error *err);
/* Queues the answer to a request when all its pieces have their answers. The caller has removed `pending` from the
 * connection's open requests. The connection then owns `pending`. */
void pd_conn_data_reply(pd_conn *conn, pd_pending *pending);

/* Puts the connection into the daemon's list of connections with bytes to send. */
void pd_conn_touch(pd_conn *conn);
/* Processes the held-back frame of the connection again, at the end of this turn of the loop. */
void pd_conn_wake(pd_conn *conn);
/* Tells the transport which events the connection now waits for. */
void pd_conn_watch(pd_conn *conn);
bool pd_conn_wants_to_read(const pd_conn *conn);

/* Discards the frame that is being read, and frees the memory for it. */
void pd_conn_drop_incoming(pd_conn *conn);
/* Returns whether the frame that is being read is too late: its round's deadline has passed, and the peer sent the
 * frame before it learned of that. */
bool pd_conn_is_late(const pd_conn *conn);
/* Returns a payload's buffer to the pool. Its bytes are no longer charged to the rank, which may send more. */
void pd_conn_return_buffer(pd_daemon *daemon, pd_buffer *buffer);

#endif
