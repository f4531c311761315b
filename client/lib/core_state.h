/* core_state.h - the state of the core: its operations, parameters and
 * connection. This header has types, no functions. */
#ifndef PD_CORE_STATE_H
#define PD_CORE_STATE_H

#include "message.h"
#include "outgoing.h"
#include "paramd/client.h"
#include "sent_frame.h"
#include "spare.h"

/* Limits that keep the headers of a frame and of its answer under PD_MAX_HEADER_BYTES. In a packed header, the entry
 * for one tensor or chunk has at most PIECE_BOUND bytes. All other fields together have at most FORM_BOUND bytes. */
enum { PIECE_BOUND = 64, FORM_BOUND = 8 * 1024, MAX_PIECES = (PD_MAX_HEADER_BYTES - FORM_BOUND) / PIECE_BOUND };
/* Names of public functions, for error texts that advise the user to call them. */
#define PD_DECLARE_CALL "pd_client_declare"
#define PD_RESTART_CALL "pd_client_restart"
#define PD_REWIND_CALL "pd_client_rewind"
#define PD_WAIT_CALL "pd_client_wait"

enum { MAX_TICKETS = 16384 };
enum { PD_OUTCOME_REFUSED = 4 }; /* value of Outcome.outcome in an answer: the optimizer refused the step */

/* One operation: a call of the user, from its start until pd_core_finish takes its result. */
typedef struct pd_op {
    pd_ticket_id id;
    unsigned method;
    pd_item *items; /* borrowed, unless `owned` */
    size_t n;
    bool owned, done;
    size_t waits;       /* number of the operation's frames that the server has not answered */
    uint64_t replaces;  /* number of the change by hand whose weights the operation sends; 0: it sends none */
    uint64_t closes;    /* the step that this operation closes (pd_client_close_step); 0: none */
    pd_scalar *scalars; /* borrowed */
    /* bearer: index of the item (parameter) whose frame carries the scalars */
    size_t n_scalars, bearer;
    pd_error error; /* the first error */
    /* The operation will fail: the server refused one of its frames, and answers to others are missing. */
    bool hopeless;
    bool gap;             /* the window lacks one of its frames: the server refused it, or memory was out */
    uint64_t give_up_ns;  /* when an operation that will fail (`hopeless`) stops waiting for answers; 0: not set yet */
    uint8_t *reply;       /* answer to a pd_core_call: header, then payload; NULL for other operations */
    size_t reply_bytes;   /* length of the header in `reply`, in bytes */
    size_t payload_bytes; /* length of the payload that the answer to a pd_core_call must have */
    UT_hash_handle hh;
} pd_op;

typedef struct
    pd_param_record { /* a declared parameter; its index in pd_core.params is also its handle in the protocol */
    char *name;
    pd_shape shape;
    bool ranged;
    int64_t start, end; /* this rank pushes and pulls the elements from `start` to before `end` */
    uint64_t home_at;   /* offset in the worker's segment where the gradient lies if `home` was taken in time */
    void *home;         /* memory for the gradient (pd_core_buffer), in that segment or private; NULL: not asked for */
    /* Element types of gradients, weights and updates. update 0: this rank asks for no updates. */
    pd_dtype push, pull, update;
    /* For each chunk: 1 + version of the weights in the caller's buffer; 0: the version is unknown. NULL: all
     * versions are unknown. */
    uint64_t *holds;
    char *axes; /* names of the dimensions as the user declared them; NULL: none */
    char *note; /* the first note (text for the user) of the optimizer on this parameter; NULL: none */
    bool model_state;
    uint64_t step; /* most closed rounds of this parameter that this process has seen */
    /* number of its closed rounds as the server last reported: less than `step` after the server has gone back */
    uint64_t there;
    /* Number of the change by hand (pd_push_options.replaces) that the weights after step `replaced` have, as this
     * process has sent or received them; 0: they are those of the step. there_replaces: as last declared. */
    uint64_t replaces, replaced, there_replaces;
    uint64_t pushed; /* step of this process's last push of the parameter */
    /* the window has all of this rank's pushes of the steps from `kept_from` to `kept_to`; none if that is less */
    uint64_t kept_from, kept_to;
    /* Step in which the server refused this rank's gradient of the parameter. 0: none was refused, or it was pushed
     * again. */
    uint64_t refused;
    /* initialised: the server has the initial weights of this rank's whole range. pushing: a push is under way.
     * missing: the server's last answer to Declare says that it has no such weights. */
    bool initialised, pushing, missing;
    bool given; /* the server has initial weights of at least one element of this rank's range */
} pd_param_record;

typedef enum pd_stage {
    STAGE_DOWN,     /* no connection */
    STAGE_GREETING, /* Hello is sent */
    STAGE_WELCOMED, /* the server has answered Hello; no parameters are declared on this connection yet */
    STAGE_DECLARING,
    STAGE_RUNNING,
    STAGE_DROP, /* the core has asked for the connection to be closed */
} pd_stage;

/* Weights that an answer leaves in shared memory, to be copied to the caller's buffer. */
typedef struct pd_copy {
    void *to;
    const void *from;
    size_t bytes;
} pd_copy;

/* Memory shared with the server, over a connection that can pass descriptors: sharing.h. */
typedef struct pd_sharing {
    bool refused;       /* the user, or the checksums that the user wants, or an error forbids it */
    bool possible;      /* the present connection passes descriptors */
    int to_send, taken; /* descriptors: of this worker's segment, to go with the Share; the one that came last. -1 */
    pd_segment weights; /* the server's segment with the job's weights; none before the answer to Share */
    uint64_t read;      /* answers in shared memory that were read and are not released */
    bool releasing;     /* a Release is not answered */
} pd_sharing;

/* Buffers for building one frame at a time, and for receiving one answer. Allocated once for a client handle (the
 * user's pd_client). */
typedef struct pd_frame_scratch {
    Paramd__Piece piece[MAX_PIECES], *pieces[MAX_PIECES];
    Paramd__Want want[MAX_PIECES], *wants[MAX_PIECES];
    pd_part part[MAX_PIECES];
    struct iovec iov[2 * MAX_PIECES];
    pd_copy copy[MAX_PIECES]; /* weights of the current answer that lie in shared memory, and where they go */
    struct iovec landing[2 * MAX_PIECES + 1]; /* memory that receives the payload of the answer that is arriving */
} pd_frame_scratch;

/* The frames of this process's last steps: window.h. */
typedef struct pd_window {
    uint32_t steps;                         /* most steps of a parameter; 0: nothing is kept */
    struct pd_window_step *oldest, *newest; /* lists of frames, by step */
    uint64_t bytes, most;                   /* payload bytes that are kept: now, and at most so far */
    pd_spare spare;                         /* memory of payloads that have left the window */
    const pd_outgoing_frame *frame;         /* the frame whose answer is arriving; NULL: none */
    pd_sent_frame *coming;                  /* what is kept of that frame; NULL: nothing */
    struct XXH3_state_s *hasher;            /* hashes the weights that its answer brings; NULL: not made yet */
    bool hashing;                           /* they are being hashed */
    uint64_t hash;                          /* XXH3-64 of the weights that its answer has brought */
    bool hashed;                            /* `hash` is known */
} pd_window;

/* Warnings of the server about the job: core_remarks.h. */
typedef struct pd_core_remarks {
    char *waiting[16]; /* those that the user does not have yet, the oldest first */
    size_t n;
    uint64_t told[32]; /* a ring of XXH3-64 hashes of those that have come */
    size_t n_told;
} pd_core_remarks;

typedef struct pd_core {
    pd_sharing sharing;
    pd_core_remarks remarks;
    pd_window window;
    size_t n_copies; /* number of entries in scratch->copy */
    char *job, *label;
    char *run; /* the launch that this process belongs to; "": unknown */
    int resume;
    bool joins;
    /* texts that the user gave when the client handle was opened: the job's options, and its optimizer rules; NULL ends
     * each list */
    char **options, **rules;
    uint32_t rank, world_size;
    uint64_t nonce;
    /* frame flags (PD_FLAG_...) for all frames that the core sends */
    uint8_t flags;
    /* after a lost connection the client handle ends instead of connecting again */
    bool impatient;
    size_t urls;
    const struct pd_address *addresses; /* borrowed; NULL: none are known */

    pd_stage stage;
    bool welcomed; /* the server has accepted Hello on the present connection */
    uint64_t retry_ns, received_ns, sent_ns, timeout_ns, heartbeat_ns;
    uint64_t alone_ns; /* when the last welcomed connection ended, or the first attempt to connect failed; 0: neither */
    size_t url;
    uint64_t random;
    char reason[PD_ERROR_TEXT];
    bool refused;     /* the server has refused the last Hello for now */
    uint64_t held_ns; /* when it first refused one since another process has the rank; 0: it has not */
    pd_error ended;   /* any code but PD_OK: the client handle has ended with this error */
    bool lost;        /* the client handle ended because the server no longer has the job */
    bool restarting;  /* true from the call of pd_core_restart until the parameters are declared to the new job */
    bool restarted;   /* pd_core_restart was called; see pd_core_begins_anew */
    /* resending: the server has gone back, and frames of the window are sent again. went_back: since the parameters
     * were last declared, the server has reported fewer steps of one than before. */
    bool resending, went_back;
    bool gone_back;   /* the client handle ended because the server has gone back to an earlier step */
    bool rewinding;   /* true from the call of pd_core_rewind until the parameters are declared again */
    bool rejoins;     /* the last Hello asked only to join a job that exists, not to create one */
    uint64_t creator; /* number that tells the job from others of its name, from the last welcome; 0: not known */

    pd_welcome welcome;
    bool greeted; /* the server has accepted a Hello of this process at least once */
    uint32_t max_pieces;

    pd_param_record *params;
    size_t n_params;
    bool declared, must_init; /* declared: the server has accepted the declared parameters at least once */
    bool averages_init;       /* the server averages initial weights, so every rank sends those of every parameter */
    size_t declares_waiting;  /* number of Declare frames (lists of parameters) that the server has not answered yet */
    pd_ticket_id welcome_ticket, declare_ticket;
    uint64_t barriers, passed; /* barriers that this process has called, and those that the server has answered */
    uint64_t durable;          /* steps up to this one survive a restart of the server, as its last answer reported */
    uint64_t closing;          /* step that this rank is closing (pd_client_close_step); 0: none */

    pd_op *ops;         /* hash table of the user's calls by ticket */
    uint64_t ended_ops; /* number of the user's calls that have ended */
    pd_outgoing out;
    uint64_t last_id; /* last number that was given to a request or to a call's ticket */
    /* When the next hopeless operation (a call of the user that will fail: pd_op.hopeless) ends. 0: not known,
     * pd_core_tick computes it. UINT64_MAX: there is no such operation. */
    uint64_t give_up_ns;
    /* Number of the last error that the server sent on this connection. Each push repeats it, so that the server
     * knows which errors this client had seen. */
    uint64_t mark;
    pd_frame_scratch *scratch;
    pd_arena *arena; /* memory for the fields of the answer that is being received */
    Paramd__DataReply *reply;
    /* Buffer for updates in the answer that is being received, or for the payload of an answer to paramctl. Kept for
     * later answers. */
    uint8_t *updates;
    size_t updates_room;
    pd_client_stats stats;
} pd_core;

#endif
