/* core_state.h - the state of the core: its operations, parameters and connection. The header has types, no
 * functions. */
#ifndef PD_CORE_STATE_H
#define PD_CORE_STATE_H

#include "message.h"
#include "outgoing.h"
#include "paramd/client.h"

/* Limits that keep the headers of a frame and of its answer under PD_MAX_HEADER_BYTES. In a packed header, the entry
 * for one tensor or chunk has at most PIECE_BOUND bytes. All other fields together have at most FORM_BOUND bytes. */
enum { PIECE_BOUND = 64, FORM_BOUND = 8 * 1024, MAX_PIECES = (PD_MAX_HEADER_BYTES - FORM_BOUND) / PIECE_BOUND };
/* Names of public functions, as error texts mention them. */
#define PD_DECLARE_CALL "pd_client_declare"
#define PD_RESTART_CALL "pd_client_restart"
#define PD_WAIT_CALL "pd_client_wait"

enum { MAX_TICKETS = 16384 };
enum { PD_OUTCOME_REFUSED = 4 }; /* value of the field Outcome.outcome: the optimizer refused the step */

/* One operation of the user, from its call to pd_core_finish. */
typedef struct pd_op {
    pd_ticket_id id;
    unsigned method;
    pd_item *items; /* borrowed, unless `owned` */
    size_t n;
    bool owned, done;
    size_t waits;             /* number of frames whose answers are missing */
    uint64_t closes;          /* the step that this operation closes (pd_client_close_step); 0: none */
    pd_scalar *scalars;       /* borrowed */
    size_t n_scalars, bearer; /* bearer: the item whose frame carries the scalars */
    pd_error error;           /* the first error */
    bool hopeless; /* a frame of this operation was refused, and answers to other frames are missing: the operation will
                               * fail */
    uint64_t give_up_ns;  /* time at which a hopeless operation stops waiting for its other answers; 0: not set yet */
    uint8_t *reply;       /* answer to a pd_core_call: its header, then its payload; else NULL */
    size_t reply_bytes;   /* length of the answer's header */
    size_t payload_bytes; /* length of the payload that the answer to a pd_core_call must have */
    UT_hash_handle hh;
} pd_op;

typedef struct pd_known { /* a declared parameter; its index in pd_core.params is also its handle in the protocol */
    char *name;
    pd_shape shape;
    bool ranged;
    int64_t start, end;          /* range of the elements that this rank pushes and pulls */
    pd_dtype push, pull, update; /* element types of gradients, weights and updates; update 0: this rank asks for no
                                  * updates */
    uint64_t *holds;             /* for each chunk: 1 + version of the weights in the caller's buffer, 0: unknown;
                                  * NULL: all are unknown */
    char *axes;                  /* names of the dimensions as declared; NULL: none */
    char *note;                  /* first note of the optimizer on this parameter; NULL: none */
    bool model_state;
    uint64_t step;             /* closed rounds of this parameter, as the server's last answer reported */
    uint64_t pushed;           /* step of this process's last push of the parameter */
    uint64_t refused;          /* step in which the server refused this parameter's gradient; 0: none, or it was
                                * pushed again */
    bool initialised, pushing; /* initialised: the server has all weights of this rank's range */
    bool given;                /* the server has initial weights of at least one element of this rank's range */
} pd_known;

typedef enum pd_stage {
    STAGE_DOWN,     /* no connection */
    STAGE_GREETING, /* Hello is sent */
    STAGE_WELCOMED, /* the server has answered Hello; no parameters are declared on this connection yet */
    STAGE_DECLARING,
    STAGE_RUNNING,
    STAGE_DROP, /* the connection is to be closed */
} pd_stage;

/* Buffers for building one frame at a time; allocated once. */
typedef struct pd_frame_scratch {
    Paramd__Piece piece[MAX_PIECES], *pieces[MAX_PIECES];
    Paramd__Want want[MAX_PIECES], *wants[MAX_PIECES];
    pd_part part[MAX_PIECES];
    struct iovec iov[2 * MAX_PIECES];
    struct iovec landing[2 * MAX_PIECES + 1]; /* memory that receives the payload of the current answer */
} pd_frame_scratch;

typedef struct pd_core {
    char *job, *label;
    char **options, **rules; /* arrays that end with NULL */
    uint32_t rank, world_size;
    uint64_t nonce;
    uint8_t flags;  /* flags of the frames that the core sends */
    bool impatient; /* the handle ends instead of connecting again */
    size_t urls;

    pd_stage stage;
    bool welcomed; /* the server has welcomed this process on the present connection */
    uint64_t retry_ns, received_ns, sent_ns, timeout_ns, heartbeat_ns;
    unsigned attempts; /* failed attempts to connect since the last welcome */
    size_t url;
    uint64_t random;
    char reason[PD_ERROR_TEXT];
    pd_error ended;   /* code other than PD_OK: the handle has ended */
    bool lost;        /* the handle ended because the server no longer has the job */
    bool restarting;  /* true from pd_core_restart until the parameters are declared again */
    bool rejoins;     /* the last Hello asked only to join a job that exists, not to create one */
    uint64_t creator; /* nonce of the process that created the job, from the last welcome; 0: not known */

    pd_welcome welcome;
    bool greeted; /* the server has welcomed this process at least once */
    uint32_t max_pieces;

    pd_known *params;
    size_t n_params;
    bool declared, must_init; /* declared: the server has accepted the parameters at least once */
    bool averages_init;       /* every rank sends initial weights of every parameter */
    size_t declares_waiting;  /* number of Declare frames whose answers are missing */
    pd_ticket_id welcome_ticket, declare_ticket;
    uint64_t barriers;
    uint64_t closing; /* step that is being closed for this rank; 0: none */

    pd_op *ops; /* hash table of operations by ticket */
    pd_outgoing out;
    uint64_t last_id;    /* last number that was given to a request or a ticket */
    uint64_t give_up_ns; /* when the next hopeless operation (pd_op.hopeless) ends; 0: pd_core_tick has to find out;
                          * UINT64_MAX: there is none */
    uint64_t mark;       /* number of the last error that the server sent on this connection; each push tells the
                          * server this number */
    pd_frame_scratch *scratch;
    pd_arena *arena; /* memory of the answer that is being received */
    Paramd__DataReply *reply;
    uint8_t *updates; /* buffer for the updates in the answer being received, or for an operator's payload; kept for
                       * later answers */
    size_t updates_room;
    pd_client_stats stats;
} pd_core;

#endif
