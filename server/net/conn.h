/* conn.h - one connection: its transport, its peer, its declarations, its open requests and its output.
 *
 * Runs on the loop thread. A connection is GREETING until its Hello is received, WELCOMING until the store has answered
 * the Hello, then OPEN. A connection that ends at once is CLOSED. A connection that ends with an error is ENDING first:
 * a last ERROR frame is sent, and the peer gets a moment to read it. The tour (section 4) has the table of states.
 *
 * A frame that cannot get memory yet, or that would exceed a limit, is held back: the connection is not read until the
 * frame can be processed.
 *
 * A connection is never freed inside a callback of its framer. Closing only marks the connection as CLOSED. It is freed
 * at the end of the loop's turn. */
#ifndef PD_CONN_H
#define PD_CONN_H

#include "frame.h"
#include "loop.h"
#include "payloads.h"
#include "pieces.h"
#include "request.h"
#include "transport.h"

/* The parameters that a worker has declared on a connection. A piece names its parameter by a handle: the index in
 * these arrays. */
typedef struct pd_handles {
    size_t n, capacity;
    pd_handle_facts *facts; /* for each parameter: its name, which `decls` owns, and the range of elements that the
                             * connection pushes and pulls */
    pd_param_decl *decls;   /* the declaration of each parameter, with the memory of its strings */
    /* for each parameter: its index in the job; set when the store has answered the Declare */
    uint32_t *params;
} pd_handles;

/* Adds a parameter and copies the strings of its declaration. A declaration without a range gets the range of all
 * `elements`. PD_NO_MEMORY: nothing has changed. */
int pd_handles_add(pd_handles *handles, const pd_param_decl *decl, int64_t elements);
/* Removes all parameters but the first n. */
void pd_handles_cut(pd_handles *handles, size_t n);
void pd_handles_free(pd_handles *handles);

/* Once a connection has this many bytes of unsent answers, the server stops reading from it, because its peer reads too
 * slowly. Weights in the answers do not count. */
#define PD_HIGH_WATER (1024 * 1024)

typedef enum pd_conn_state { PD_GREETING, PD_WELCOMING, PD_OPEN, PD_ENDING, PD_CLOSED } pd_conn_state;

/* The frame that is being received on a connection. */
typedef struct pd_incoming {
    bool begun;          /* the frame's header was checked; it is not checked again if the frame is tried again after
                          * waiting for memory */
    bool asked;          /* memory for the frame's payload was requested before, and the frame waits for it */
    pd_error refusal;    /* why the frame is refused: its payload is then discarded, and this error is the answer */
    pd_request *request; /* request for the store, which is posted when the frame's payload is complete */
    pd_pending *pending;
    pd_buffer *buffer;
    struct iovec span;
    uint64_t mark; /* for Push and Initialise: number (pd_daemon.mark) of the last error that the peer had read when it
                    * sent the frame; 0: it had read none */
} pd_incoming;

/* A round's deadline that has passed while this connection had a held-back frame; of several deadlines the last one. A
 * push that the peer sent before it learned of the deadline is answered with the error in this struct. */
typedef struct pd_overdue {
    uint64_t since; /* number of the error that the deadline caused (pd_daemon.mark); 0: none */
    uint64_t step;  /* step of the last round whose deadline has passed */
    pd_error error;
} pd_overdue;

/* What a connection has lent to movers. */
typedef struct pd_conn_lent {
    unsigned in, out; /* the directions of the transport that are lent to receive, and to send, as pd_transport_ops.lend
                        * has returned them; 0: none is */
    pd_buffer *buffer; /* memory of a frame that was dropped while a mover receives its payload; NULL: none was */
} pd_conn_lent;

/* The roles of a connection's identity, as they were last looked up. */
typedef struct pd_conn_access {
    uint64_t roles_taken;        /* value of pd_peers.roles_taken at the last lookup; 0: there was none */
    bool known;                  /* the identity has a role for some job */
    pd_role role;                /* of a worker: the identity's role for its job */
    pd_role server;              /* the identity's role for the whole server */
    pd_role asked_role;          /* the identity's role for the job `asked` */
    char asked[PD_NAME_MAX + 1]; /* name of the job that the last request about a job named; "": no request did (a job's
                                  * name is never empty) */
} pd_conn_access;

/* Who the peer is. */
typedef struct pd_conn_peer {
    pd_identity identity; /* the identity that the transport has proven; set when the connection opens */
    char address[72];     /* address of the peer, as text for the log */
    char label[128];      /* name that the peer gives itself in its Hello, for the log and for operators */
    pd_usage *usage;      /* what the peer's identity uses on all its connections */
    pd_conn_access access;
} pd_conn_peer;

/* What a worker has declared, and the memory that its payloads may use. */
typedef struct pd_conn_params {
    bool declaring, declared; /* declaring: the set of parameters was sent to the store, which has not answered yet.
                               * declared: the store has accepted the set */
    pd_handles handles;
    /* number of this server among those of the job, and how many there are; set as `pieces` is */
    uint32_t shard, shards;
    uint64_t pieces;  /* number of pieces that all parameters are split into; set when the store has accepted them */
    uint64_t reserve; /* bytes of the rank's largest frame of tensors, which are reserved for it in the ingest budget.
                       * While a larger worker state is received, quota.reserve is as large as that */
    pd_quota quota;
    pd_loan *loan; /* the worker's segment, in which payloads of its pushes may lie; NULL: it has lent none */
} pd_conn_params;

/* State of a connection that is ending. */
typedef struct pd_conn_end_state {
    bool shut;          /* an ENDING connection has sent everything, and the server has shut its sending side */
    bool hung;          /* while the server was not reading, the peer ended the connection or the transport broke */
    bool peer;          /* the peer has ended its sending side: it still gets answers, but the server reads nothing
                         * more */
    pd_request *notice; /* disconnect notice (PD_REQ_LOST), with which the store learns that the connection has ended.
                         * Allocated in advance; NULL once it is posted */
} pd_conn_end_state;

/* The lists of the daemon that a connection may be in. */
typedef struct pd_conn_links {
    bool dirty, waking; /* dirty: the connection is in the list pd_conn_table.dirty, as it has bytes to send. waking: it
                         * is in pd_conn_table.waking, as its held-back frame is tried again */
    struct pd_conn *next_dirty, *next_waking, *next_closed;
    pd_brief_place brief; /* place among the connections that may be closed for a new one */
    pd_pace_place pace;   /* place among the connections that wait because the time for frames was used up */
} pd_conn_links;

/* Times by the clock of the platform, in ms. */
typedef struct pd_conn_times {
    uint64_t opened, read, frame; /* opened: when the connection was opened. read: when bytes were last received. frame:
                                   * when the frame that is being received began */
    uint64_t write;               /* when a frame was last sent completely, or when sending began after a pause */
    uint64_t end;                 /* when the server closes the connection: set if it is ENDING, or if the peer has
                                   * ended its sending side */
    uint64_t beat;                /* when the server last sent a heartbeat, or `opened` */
} pd_conn_times;

typedef struct pd_conn {
    pd_daemon *daemon;
    uint64_t number; /* connection number; no other connection of the daemon ever gets the same */
    pd_conn_state state;
    pd_transport *transport; /* sends and receives the connection's bytes; NULL once the connection is closed */
    unsigned watched;        /* events of the transport that this connection waits for now: a set of PD_ON_READ,
                              * PD_ON_WRITE and PD_ON_GONE */
    pd_conn_peer peer;
    char *job_name;        /* name of the job in a worker's Hello; NULL: the connection is no worker's */
    uint32_t job, rank;    /* job and rank of the worker; job 0: the connection has no job (an operator's connection, or
                            * the job has ended) */
    bool operates;         /* the peer is an operator, not a worker */
    bool remarks;          /* the worker's Hello says that it reads warnings about its job */
    bool follows;          /* the worker's Hello says that it follows its shard when that moves */
    uint64_t remark;       /* number of the first warning that this worker does not have yet (pd_remarks) */
    pd_rank_leases leases; /* what is leased to the worker; n = 0: nothing */
    double speed;          /* local steps per second, as the worker has told last; 0: it has told none */
    bool files;            /* each push of the connection's job is followed by a PD_EFF_FILED */
    bool joined;           /* a Hello was posted, so the store must be told when the connection ends */
    bool exports;          /* an Export was posted, so the store must be told when the connection ends */
    bool has_left;         /* the worker has left the job with a Leave request */
    pd_conn_params params;
    pd_framer *framer;
    pd_incoming incoming;
    pd_conn_lent lent;
    pd_error why; /* error in the bytes that the peer sent, found while a frame was parsed */
    pd_pendings pendings;
    pd_output output;
    uint64_t refused; /* number of the last error that refused a push of this connection before the store saw the push;
                       * 0: none */
    pd_overdue overdue;
    pd_conn_links links;
    pd_conn_times times;
    pd_conn_end_state end;
} pd_conn;

/* Returns the ticket by which the store's answer finds this connection and its request. */
static inline pd_ticket pd_conn_ticket(const pd_conn *conn, const pd_pending *pending)
{
    return (pd_ticket){ conn->number, pending->serial };
}

/* Makes a connection without a transport. Its framer passes frames to the callbacks in `frames`. `peer` is the address
 * of the peer as text. Returns NULL if out of memory, or if the table of connections is full. */
pd_conn *pd_conn_new(pd_daemon *daemon, const pd_framer_user *frames, const char *peer);
/* Frees a connection that is closed. Called at the end of a turn of the loop. */
void pd_conn_free(pd_conn *conn);
/* Logs an operator's command together with its author: the identity, name and address of the connection's peer. `job`
 * is "" if the command concerns no job. The log limits lines per format and peer, so each kind of command must have its
 * own format. */
void pd_conn_log_command(const pd_conn *conn, const char *job, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sends a last ERROR frame, then ends the connection. The frame answers the request with the prefix `asked`. If `asked`
 * is NULL, the frame answers no request and has request id 0. */
void pd_conn_end(pd_conn *conn, const pd_prefix *asked, const pd_error *err);
/* Closes the connection at once, and frees its open requests and unsent answers. `reason` is logged, and sent to the
 * store. pd_conn_free frees the connection itself later. What movers still use is freed when they give it back. */
void pd_conn_close(pd_conn *conn, const char *reason);
/* Tells the store that the connection ends: posts its disconnect notice, or frees the notice if the store does not know
 * the connection. Only the first call has an effect. If the store has not answered the connection's Hello yet, the
 * notice is posted after that answer, which brings the number of the job. */
void pd_conn_notify_store(pd_conn *conn, const char *reason);
/* Returns whether the connection still serves requests: it is neither ENDING nor CLOSED. */
bool pd_conn_live(const pd_conn *conn);
/* Removes the parameters that the connection has declared, and ends its reserve in the ingest budget and its use of
 * shared memory. */
void pd_conn_undeclare(pd_conn *conn);

/* Answers the request with the prefix `asked`. The answer has a checksum if the request had one, and is sent at the end
 * of the loop's turn. Without memory for it, the connection is closed. */
void pd_conn_reply(pd_conn *conn, const pd_prefix *asked, const ProtobufCMessage *message);
void pd_conn_refuse(pd_conn *conn, const pd_prefix *asked, const pd_error *err);
/* Sets *err to say that there is no memory for the request with the prefix `asked`. Returns PD_NO_MEMORY. */
int pd_conn_no_memory(const pd_prefix *asked, pd_error *err);
/* Answers one of the connection's open requests, then removes and frees the request. */
void pd_conn_answer(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message);
/* Answers one of the connection's open requests with a message and a copy of the `bytes` bytes at `payload`, then
 * removes and frees the request. */
void pd_conn_answer_with(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message, void *payload,
                         size_t bytes);
void pd_conn_fail(pd_conn *conn, pd_pending *pending, const pd_error *err);
/* Answers all open requests of the connection with an error, and frees them. */
void pd_conn_fail_all(pd_conn *conn, const pd_error *err);
/* Queues the answer to a push or pull whose pieces all have their answers. The caller has removed
 * `pending`, the request, from the connection's open requests. The connection then owns `pending`. */
void pd_conn_data_reply(pd_conn *conn, pd_pending *pending);

/* Puts the connection into the daemon's list of connections that write at the end of this turn of the loop. */
void pd_conn_touch(pd_conn *conn);
/* Tells the transport which events the connection now waits for: bytes to read, room to write, or the peer's end. */
void pd_conn_watch(pd_conn *conn);
/* Returns whether the transport has sent all queued bytes, so that closing the connection loses none. */
bool pd_conn_has_sent(const pd_conn *conn);
bool pd_conn_wants_to_read(const pd_conn *conn);

/* Discards the frame that is being received, and frees the memory for it. */
void pd_conn_drop_incoming(pd_conn *conn);
/* Returns whether the frame that is being received is a late push or Initialise: the deadline of its round has passed,
 * and the peer sent the frame before it learned of the deadline. */
bool pd_conn_is_late(const pd_conn *conn);
/* Returns the buffer of a payload to the pool or to the worker's segment, and its bytes to the ingest budget. Frames
 * that wait for this memory are tried again. */
void pd_conn_return_buffer(pd_daemon *daemon, pd_buffer *buffer);

/* Lends the rest of the payload that is being received to a mover, if it is long. Returns false if the caller must
 * receive it. */
bool pd_conn_lend_input(pd_conn *conn);
/* Lends the next bytes to send to a mover, if there are many. Returns false if the caller must send them. */
bool pd_conn_lend_output(pd_conn *conn);
/* Takes back a direction that was lent to a mover: pd_transport.moved. */
void pd_conn_moved(void *arg, const pd_moved *moved);
/* Returns whether one of these directions, a set of PD_ON_READ and PD_ON_WRITE, is lent. */
static inline bool pd_conn_is_lent(const pd_conn *conn, unsigned directions)
{
    return ((conn->lent.in | conn->lent.out) & directions) != 0;
}
/* Frees what a closed connection still has, as far as no mover uses it. */
void pd_conn_dispose(pd_conn *conn);

/* Handles n bytes that were received into the memory that the framer has offered. */
void pd_conn_received(pd_conn *conn, size_t n);
/* Handles an error that the transport has returned for `receive`. */
void pd_conn_input_ended(pd_conn *conn, ssize_t rc, const pd_error *err);
/* Counts n queued bytes that were sent, and frees the answer that they complete. */
void pd_conn_sent(pd_conn *conn, size_t n);

/* Gives a new connection its transport, which the connection then owns. */
void pd_conn_attach(pd_conn *conn, pd_transport *transport);
/* Processes the connection's held-back frame, if there is one and the reason for holding it back is gone. Must not be
 * called inside a callback of the framer. */
void pd_conn_resume(pd_conn *conn);
/* Writes as many queued bytes of a connection as the transport takes now, at most pd_loop_quota bytes. */
void pd_conn_write(pd_conn *conn);
/* Sends a worker the warnings about its job that it does not have yet, each in an unsolicited heartbeat, if it leads
 * the job and reads warnings. Does nothing for any other connection, or before the worker has joined its job. */
void pd_conn_tell_remarks(pd_conn *conn);
/* Ends the connection if a timeout has passed, and sends a heartbeat if one is due. Called several times a second. */
void pd_conn_tick(pd_conn *conn, uint64_t now_ms);

#endif
