/* conn.h - one connection: its transport, its declarations, its open requests (not answered yet), and its output.
 *
 * Runs on the loop thread. A connection is GREETING until its Hello has come, WELCOMING until the store has answered
 * the Hello, then OPEN. A connection that ends at once is CLOSED. A connection that ends with an error is ENDING first:
 * a last ERROR frame goes out, and the peer gets a moment to read it.
 *
 * A frame that cannot get memory yet, or that would exceed a limit, is held back: the connection is not read until the
 * frame can be processed.
 *
 * A connection is never freed inside a callback of its framer. Closing only marks the
 * connection as CLOSED. It is freed at the end of the loop's turn. */
#ifndef PD_CONN_H
#define PD_CONN_H

#include "frame.h"
#include "handles.h"
#include "payloads.h"
#include "loop.h"
#include "transport.h"

/* Bytes of unsent answers from which on the server does not read from a connection, because its peer reads too slowly.
 * Weights in the answers do not count. */
#define PD_HIGH_WATER (1024 * 1024)

typedef enum pd_conn_state { PD_GREETING, PD_WELCOMING, PD_OPEN, PD_ENDING, PD_CLOSED } pd_conn_state;

/* The frame that is being received on a connection. */
typedef struct pd_incoming {
    bool begun;          /* the frame's header was checked, so it is not checked again when the frame is tried again
                          * after waiting for memory */
    bool asked;          /* memory for the frame's payload was requested before, and the frame waits for it */
    pd_error refusal;    /* why the frame that is being received is refused; then its payload is discarded and this
                          * error is the answer */
    pd_request *request; /* request for the store, which is posted when the frame's payload is complete */
    pd_pending *pending;
    pd_buffer *buffer;
    struct iovec span;
    uint64_t mark; /* of Push and Initialise: number of the last error that the peer had read when it sent the frame, by
                    * which the server knows which errors the peer knew */
} pd_incoming;

/* The last deadline of a round that passed while this connection had a held-back frame (one that waits for memory).
 * Pushes that the peer sent before it learned of the deadline are answered with the deadline's error. */
typedef struct pd_overdue {
    uint64_t since; /* number of the error that the deadline caused (the server counts errors that pushes must know
                     * about); 0: none */
    uint64_t step;  /* last round whose deadline has passed */
    pd_error error;
} pd_overdue;

/* What the roles say about a connection itself, and about the last job that it asked about. */
typedef struct pd_conn_access {
    uint64_t roles_taken;        /* value of pd_daemon.roles_taken when they were looked up; 0: they were not */
    bool known;                  /* the identity has a role for some job */
    pd_role role;                /* of a worker: the identity's role for its job */
    pd_role server;              /* the identity's role for the whole server */
    pd_role asked_role;          /* the identity's role for the job `asked` */
    char asked[PD_NAME_MAX + 1]; /* name of the job that the last request about a job named; "": there was none, as no
                                  * job has this name */
} pd_conn_access;

typedef struct pd_conn {
    pd_daemon *daemon;
    uint64_t number; /* connection number; no other connection of the daemon ever gets the same */
    pd_conn_state state;
    pd_transport *transport; /* sends and receives the connection's bytes; NULL once the connection is closed */
    unsigned watched;        /* events of the transport that this connection waits for now: a set of PD_ON_READ,
                              * PD_ON_WRITE and PD_ON_GONE */
    pd_identity identity;    /* who the peer is, as far as the transport proves it; from the opening on */
    char peer[72];           /* the peer's address, for the log */
    char label[128];         /* the name that the peer gives itself in its Hello, for the log and for operators */
    char *job_name;          /* name of the job in a worker's Hello; NULL: the connection is no worker's */
    pd_usage *usage;         /* what the peer's identity uses, this connection included */
    pd_conn_access access;
    pd_framer *framer;
    pd_incoming incoming;
    pd_error why;       /* error in the bytes that the peer sent, found while a frame was parsed */
    uint32_t job, rank; /* job and rank of the worker; job 0: the connection has no job (an operator's connection, or
                         * the job has ended) */
    bool operates;      /* the peer is an operator, not a worker */
    bool remarks;       /* the worker reads warnings about its job */
    /* declaring: the worker's set of parameters was sent to the store, which has not answered yet. declared: the store
     * has accepted the set */
    bool declaring, declared;
    pd_handles handles;
    pd_loan *loan; /* the worker's segment, in which payloads of its pushes may lie; NULL: it has lent none */
    pd_quota quota;
    uint64_t reserve; /* bytes of the rank's largest frame of tensors; quota.reserve is larger while a Note comes in */
    pd_pendings pendings;
    pd_output output;
    pd_request *notice; /* disconnect notice (PD_REQ_LOST), with which the store learns that the connection has ended.
                         * Allocated in advance; NULL once it is posted */
    bool joined;        /* a Hello was posted, so the store must be told when the connection ends */
    bool exports;       /* an Export was posted, so the store must be told when the connection ends */
    bool dirty;         /* the connection is in the daemon's list of connections with bytes to send */
    bool shut;          /* an ENDING connection has sent everything, and the server has shut its sending side */
    bool hung;          /* while the server was not reading, the peer ended the connection or the transport broke */
    bool ended;    /* the peer has ended its sending side: it still gets answers, but the server reads nothing more */
    bool has_left; /* the worker has left the job with a Leave request */
    uint64_t refused; /* number of the last error that refused a push of this connection before the store saw the
                         * push; 0: none */
    pd_overdue overdue;
    uint64_t pieces; /* number of pieces that the worker's parameters are split into; known once
                      * they are declared */
    struct pd_conn *next_dirty;
    bool waking; /* the connection is in the daemon's list of connections whose held-back frame is tried again */
    struct pd_conn *next_waking, *next_closed;
    pd_brief_place brief;
    pd_pace_place pace;
    uint64_t opened_ms, read_ms, frame_ms, write_ms; /* clock times of: opening the connection; the last bytes received;
                                                      * the begin of the frame that is being received; the last frame
                                                      * sent (or the begin of sending) */
    uint64_t end_ms, beat_ms;                        /* clock times: at which an ending connection is closed; of the
                                                      * server's last heartbeat */
} pd_conn;

/* Returns the two numbers by which the store's answer later finds its way: those of this connection and of its
 * request. */
static inline pd_ticket pd_conn_ticket(const pd_conn *conn, const pd_pending *pending)
{
    return (pd_ticket){ conn->number, pending->serial };
}

/* Makes a connection, which has no transport yet. Its frames are passed to the callbacks in `frames`. Returns NULL if
 * out of memory or the daemon has its most connections already. */
pd_conn *pd_conn_new(pd_daemon *daemon, const pd_framer_user *frames, const char *peer);
/* Frees a connection that is closed. Called at the end of a turn of the loop. */
void pd_conn_free(pd_conn *conn);
/* Logs an operator's command together with its author: the identity, name and address of the connection's peer. `job`
 * is "" if the command concerns no job. Commands of one format have one limit for each peer, so each kind of command
 * has a format of its own. */
void pd_conn_log_command(const pd_conn *conn, const char *job, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sends a last ERROR frame, then ends the connection. The frame answers the request whose prefix (the fixed first
 * bytes of its frame) is `asked`. If `asked` is NULL, the frame answers no request and has request id 0. */
void pd_conn_end(pd_conn *conn, const pd_prefix *asked, const pd_error *err);
/* Closes the connection at once. `reason` goes to the log and to the store. */
void pd_conn_close(pd_conn *conn, const char *reason);
/* Tells the store, once, that the connection has ended (the disconnect notice). If the store has not answered the
 * connection's Hello yet, the notice is kept until that answer, which has the job's number. */
void pd_conn_notify_store(pd_conn *conn, const char *reason);
/* Returns whether the connection still serves requests: it is neither ENDING (sending a last error) nor CLOSED. */
bool pd_conn_live(const pd_conn *conn);
/* Forgets the parameters that the connection declared, and gives its part of the ingest budget (memory for received
 * payloads) to others. */
void pd_conn_undeclare(pd_conn *conn);

/* Answers the request with the prefix `asked` (the fixed first bytes of its frame). The answer has a checksum if the
 * request had one, and is sent at the end of the loop's turn. If out of memory, the connection is closed. */
void pd_conn_reply(pd_conn *conn, const pd_prefix *asked, const ProtobufCMessage *message);
void pd_conn_refuse(pd_conn *conn, const pd_prefix *asked, const pd_error *err);
/* Fills *err for a request that fails because out of memory; `asked` is the prefix of its
 * frame. Returns PD_NO_MEMORY. */
int pd_conn_no_memory(const pd_prefix *asked, pd_error *err);
/* Answers one of the connection's open requests, and removes it from them. */
void pd_conn_answer(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message);
/* Answers one of the connection's open requests with a message and a copy of the payload, and removes it from them. */
void pd_conn_answer_with(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message, void *payload,
                         size_t bytes);
void pd_conn_fail(pd_conn *conn, pd_pending *pending, const pd_error *err);
/* Answers all open requests of the connection with an error. */
void pd_conn_fail_all(pd_conn *conn, const pd_error *err);
/* Queues the answer to a push or pull whose pieces all have their answers. The caller has removed
 * `pending`, the request, from the connection's open requests. The connection then owns `pending`. */
void pd_conn_data_reply(pd_conn *conn, pd_pending *pending);

/* Puts the connection into the daemon's list of connections that write at the end of this turn of the loop. */
void pd_conn_touch(pd_conn *conn);
/* Lets the connection's held-back frame (one that waits for memory or for answers) be tried again at the end of this
 * turn of the loop. */
void pd_conn_wake(pd_conn *conn);
/* Tells the transport which events the connection now waits for: bytes to read, room to write, or the peer's end. */
void pd_conn_watch(pd_conn *conn);
/* Returns whether all queued bytes were sent and the transport has none of them left, so that closing loses none. */
bool pd_conn_has_sent(const pd_conn *conn);
bool pd_conn_wants_to_read(const pd_conn *conn);

/* Discards the frame that is being received, and frees the memory for it. */
void pd_conn_drop_incoming(pd_conn *conn);
/* Returns whether the frame that is being received comes too late: the deadline of its round has passed, and the peer
 * sent the frame before it learned of that. */
bool pd_conn_is_late(const pd_conn *conn);
/* Returns the buffer of a payload to the pool of buffers, and its bytes to the ingest budget, so that the rank may send
 * more. */
void pd_conn_return_buffer(pd_daemon *daemon, pd_buffer *buffer);

#endif
