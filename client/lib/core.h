/* core.h - the client's side of the protocol as a state machine: decides what to send, where answers are received, and
 * when to connect.
 *
 * The core uses no sockets, clock or threads. Its inputs are the user's calls (call.h), the state of the connection,
 * received frames and the time. Its outputs are bytes to send (headers, and the caller's own tensors), places for
 * payloads (in the caller's own weights), and calls that are done. Only one thread at a time may call the core. Times
 * are nanoseconds of a monotonic clock.
 *
 * This file declares the types, then the functions that the core's owner calls (io.c, pump.c, the simulator), then the
 * functions that the core's own files share: for operations, frames, replies and the end of the handle. */
#ifndef PD_CORE_H
#define PD_CORE_H

#include "message.h"
#include "outgoing.h"
#include "paramd/client.h"

/* Limits that keep the headers of a frame and of its answer under PD_MAX_HEADER_BYTES. In a packed header, the entry
 * for one tensor or chunk has at most PIECE_BOUND bytes. All other fields together have at most FORM_BOUND bytes. */
enum { PIECE_BOUND = 64, FORM_BOUND = 8 * 1024, MAX_PIECES = (PD_MAX_HEADER_BYTES - FORM_BOUND) / PIECE_BOUND };
/* Names of public functions, for error texts that advise the user to call them. */
#define PD_DECLARE_CALL "pd_client_declare"
#define PD_RESTART_CALL "pd_client_restart"
#define PD_REWIND_CALL "pd_client_rewind"
#define PD_WAIT_CALL "pd_client_wait"

enum { MAX_TICKETS = 16384 }; /* most operations that a core has at once */
/* values of Outcome.outcome in an answer: the step was taken; the optimizer refused it; the push came too late */
enum {
    PD_OUTCOME_STEPPED = 1,
    PD_OUTCOME_SKIPPED = 2,
    PD_OUTCOME_NO_GRADIENT = 3,
    PD_OUTCOME_REFUSED = 4,
    PD_OUTCOME_LATE = 5
};

/* The lowest and the highest step in answers about parameters of one fragment; 0: there is none. */
typedef struct pd_step_span {
    uint64_t least, most;
} pd_step_span;

/* Versions of an item during a pull. PD_TORN: it has elements of several versions, because a round has closed between
 * the answers to two frames. PD_UNANSWERED: there is no answer yet. */
#define PD_TORN UINT64_MAX
#define PD_UNANSWERED (UINT64_MAX - 1)

/* One operation: a call of the user, from its start until pd_core_finish takes its result. */
typedef struct pd_op {
    pd_ticket_id id;
    unsigned method;
    pd_item *items; /* the `n` tensors of the call; borrowed, unless `owned` is set */
    size_t n;
    bool owned, done;
    bool pushed, weighs;  /* the operation's pushes were queued; they have a weight */
    bool fetches;         /* pd_core_fetch: the items' buffers have this rank's initial weights */
    bool torn;            /* of a pull: an item has PD_TORN */
    bool again;           /* of a push: it repeats the last one of its items, which has ended with an error */
    pd_weights_form form; /* which weights the operation gets */
    bool lost;            /* of a push: it was late, and the shares that it was made of are leased to others */
    bool *tell_lost;      /* the caller's memory for `lost` (pd_push_options.lost); NULL: not wanted */
    uint64_t share;       /* of a push: PushRequest.share */
    size_t waits;         /* number of the operation's frames that the server has not answered */
    uint64_t replaces;    /* for pd_client_replace: the caller's number of the change; 0: another operation */
    uint64_t closes;      /* the step that this operation closes (pd_client_close_step); 0: none */
    /* Of a push in a job with open sets: the step that all its items are for. 0: each item is for the next step of its
     * parameter. Of a worker state that goes without a push: its step. */
    uint64_t step;
    /* In a job with open sets: the steps in the answers so far. Of pd_client_replace in any job: both numbers are 1 +
     * the step whose weights are replaced. `spans` has a span for each fragment; NULL: there is one fragment, and
     * `span` is its span. */
    pd_step_span span, *spans;
    /* Number of times that the operation has pulled items again, because their answers were about different steps; the
     * least step that it has asked for the last time. */
    unsigned levels;
    uint64_t level;
    pd_item_count *counts; /* the caller's memory for results (pd_push_options.counts); NULL: not wanted */
    pd_scalar *scalars;    /* the caller's scalars; borrowed */
    /* n_scalars: number of scalars. bearer: index of the item whose frame carries them. */
    size_t n_scalars, bearer;
    pd_error error; /* the first error of the operation */
    /* The operation will fail: the server refused one of its frames, and answers to its other frames are missing. */
    bool hopeless;
    /* The resend window lacks a frame of this operation: the server refused the frame, or there was no memory. */
    bool gap;
    uint64_t give_up_ns;  /* when an operation that will fail (`hopeless`) stops waiting for answers; 0: not set yet */
    uint8_t *reply;       /* answer to a pd_core_call: header, then payload; NULL for other operations */
    size_t reply_bytes;   /* length of the header in `reply`, in bytes */
    size_t payload_bytes; /* length of the payload that the answer to a pd_core_call must have */
    UT_hash_handle hh;
} pd_op;

/* What becomes of the rest of a quantized gradient before the next one is quantized: feedback.h. */
typedef enum pd_fate {
    PD_FATE_KEPT,      /* it stays */
    PD_FATE_COUNTED,   /* the last push counted: it is what quantizing has lost of the vector that was sent */
    PD_FATE_CARRIED,   /* the last push was late: it is all of that vector */
    PD_FATE_FORGOTTEN, /* the steps that it belongs to are lost: it is 0 */
} pd_fate;

/* The memory of a quantized parameter: feedback.h. */
typedef struct pd_feedback {
    uint8_t *codes;     /* the pieces of the last push, as they are sent; NULL: there was none */
    uint64_t chunk;     /* number of elements of a chunk for which `codes` is cut into pieces */
    float *rest, *sent; /* the rest; the vector that was quantized last. NULL: there is no feedback */
    pd_fate fate;
    bool forgotten; /* the fate of the rest becomes PD_FATE_FORGOTTEN at the next push */
} pd_feedback;

/* A declared parameter, or a portion of one that is cut (portion_records.h). Frames name it by its index in
 * pd_core.params (the field `handle`). The members that each push and each answer reads come first and lie together: a
 * model may have so many parameters that no cache holds them. */
typedef struct pd_param_record {
    int64_t start, end; /* this rank pushes and pulls the elements from `start` to before `end` */
    uint64_t step;      /* number of the parameter's closed rounds that this process has seen; a rewind lowers it */
    uint64_t pushed;    /* step of this process's last push of the parameter */
    uint64_t answered;  /* step of its last push of which the server has answered all, without an error */
    /* Step in which the server refused this rank's gradient of the parameter. 0: it refused none, or this rank has
     * pushed the gradient again. */
    uint64_t refused;
    /* replaces: the program's number (pd_client_replace) of the weights after step `replaced` that this process sent or
     * received; 0: nothing replaced the weights of that step. server_replaces: the number that the server reported in
     * its last answer to Declare. */
    uint64_t replaces, replaced, server_replaces;
    /* Element types: push of gradients, pull of weights, update of updates (0: this rank asks for no updates). */
    pd_dtype push, pull, update;
    uint32_t fragment; /* see pd_client_param */
    /* initialised: the server has the initial weights of this rank's whole range. pushing: a push of the parameter is
     * under way. missing: the server's last answer to Declare says that it lacks initial weights of this parameter. */
    bool initialised, pushing, missing;
    bool preparing; /* the gradients of the push under way are being quantized; none of its frames is queued yet */
    bool given;     /* the server has initial weights of at least one element of this rank's range */
    bool landed;    /* the caller's buffer may have some of the server's weights: an answer has begun to come */
    /* In a cluster. cut: a parameter that is cut, or a portion of one. elsewhere: the server has no such parameter or
     * portion, and no frame may name it: it lies on another shard, or it is the cut parameter itself. shard: the shard
     * that has it; of a cut parameter itself: 0. */
    bool cut, elsewhere;
    uint32_t shard;
    /* For each chunk: 1 + the version of its weights in the caller's buffer; 0: unknown. NULL: unknown for all. */
    uint64_t *holds;
    /* number of closed rounds as the server last reported it; less than `step` once the server has gone back */
    uint64_t server_step;
    /* The window has all of this rank's pushes of the parameter for the steps `kept_from` to `kept_to`, both included.
     * It has none if kept_to < kept_from. In a job with open sets the rank may have given nothing to some of them, nor
     * to those after `kept_to` that it has seen since. */
    uint64_t kept_from, kept_to;

    char *name; /* of the parameter; a portion has a copy of its own */
    pd_shape shape;
    bool ranged;
    /* Offset in bytes, in the worker's segment, that is meant for the gradient. `buffer` lies elsewhere if pushes under
     * way had taken the room there. */
    uint64_t buffer_at;
    void *buffer; /* memory for the gradient (pd_core_buffer), in the segment or private; NULL: the user wants none */
    void *spare;  /* private memory for the gradient while the server may read `buffer`; NULL: none was needed yet */
    pd_feedback feedback; /* if `push` is quantized */
    char *axes;           /* names of the dimensions as the user declared them; NULL: none */
    char *note;           /* the first note of the optimizer on this parameter; NULL: none */
    bool model_state;     /* see pd_client_param */
    /* Of a portion: the index of its parameter, and its first element there, from which start, end and chunks count. Of
     * a cut parameter itself: its portions are the records from `portion` on, n_portions of them. */
    size_t declared;
    int64_t origin;
    size_t portion, n_portions;
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
    bool refused;  /* no memory is shared: the user forbids it or wants checksums, or an error came */
    bool possible; /* the present connection passes descriptors */
    /* Descriptors; -1: none. to_send: this worker's segment, which the Share frame brings to the server. taken: the
     * last received one. */
    int to_send, taken;
    pd_segment weights; /* the server's segment with the job's weights; none before the answer to Share */
    uint64_t read;      /* number of answers in shared memory that were read and are not released */
    bool releasing;     /* the server has not answered the last Release frame (pd_sharing_release) */
} pd_sharing;

/* Buffers for building one frame at a time, and for receiving one answer. Allocated once for a client handle. */
typedef struct pd_frame_scratch {
    Paramd__Piece piece[MAX_PIECES], *pieces[MAX_PIECES];
    Paramd__Want want[MAX_PIECES], *wants[MAX_PIECES];
    pd_frame_piece own[MAX_PIECES];
    struct iovec iov[2 * MAX_PIECES];
    pd_copy copy[MAX_PIECES]; /* weights of the current answer that lie in shared memory, and where they go */
    struct iovec landing[2 * MAX_PIECES + 1]; /* memory that receives the payload of the answer that is arriving */
} pd_frame_scratch;

/* Memory of frames that have left the window. Frames of the same size that enter the window use it again, since memory
 * that is fresh from the system costs a page fault for each 4 KiB. */
typedef struct pd_spare {
    struct pd_spare_block *blocks; /* list of the free blocks; the block that was freed last comes first */
    uint64_t bytes;                /* number of bytes of all blocks */
} pd_spare;

/* The resend window: the frames of this process's last steps (window.h). */
typedef struct pd_window {
    uint32_t steps;                 /* most steps of a parameter that are kept; 0: nothing is kept */
    struct pd_window_step *oldest;  /* list of the kept steps, each with its frames; the oldest step comes first */
    uint64_t bytes, most;           /* number of payload bytes that are kept: now, and the highest so far */
    pd_spare spare;                 /* memory of payloads that have left the window */
    const pd_outgoing_frame *frame; /* the frame whose answer is arriving; NULL: no answer is arriving */
    pd_sent_frame *coming;          /* the copy of `frame` for the window; NULL: `frame` is not copied */
    struct XXH3_state_s *hasher;    /* state of the hash of the arriving weights; NULL: not made yet */
    bool hashing;                   /* the arriving weights are being hashed */
    uint64_t hash;                  /* XXH3-64 of the weights in the answer to `frame`, if `hashed` is set */
    bool hashed;
    uint64_t changed; /* the last step whose weights were changed by hand, as a push has said; 0: there is none */
} pd_window;

/* Warnings of the server about the job: notice.h. */
typedef struct pd_core_remarks {
    char *waiting[16]; /* `n` warnings that the user does not have yet, the oldest first */
    size_t n;
    uint64_t told[32]; /* ring of XXH3-64 hashes of the last warnings that came, so that each is told once */
    size_t n_told;     /* number of warnings that were ever added to `told` */
} pd_core_remarks;

/* The core's copy of its settings (pd_core_config); see pd_client_options for fields without a comment. */
typedef struct pd_core_setup {
    char *job, *label, *run; /* run "": unknown */
    int resume;
    bool joins;
    char **options, **rules; /* the job's options and optimizer rules; NULL ends each list */
    bool any_rank;           /* the server chooses the rank; `rank` is what it has chosen, 0 before its first welcome */
    uint32_t rank, world_size, group;
    uint64_t generation;
    uint32_t shares;
    int feedback;         /* enum pd_feedback_mode */
    uint64_t nonce;       /* identifies this process to the server; pd_core_recreate makes a new one */
    uint8_t flags;        /* PD_FLAG_... bits that every sent frame has */
    bool impatient;       /* the handle ends with its connection instead of connecting again */
    uint64_t deadline_ns; /* with impatient: time in which the user wants a welcome; 0: not said */
    /* number of this server in the cluster, number of its shards (1: the server is alone), and the cluster number (0:
     * not known yet) */
    uint32_t shard, shards;
    uint64_t cluster;
    char congestion[16];                /* TCP's congestion control; "": none is chosen */
    size_t urls;                        /* number of addresses */
    const struct pd_address *addresses; /* borrowed, or following.addresses; NULL: none are known */
} pd_core_setup;

/* The connection. Fields with `_ns` are times of the callers' monotonic clock (0: never), except timeout_ns and
 * heartbeat_ns, which are durations. */
typedef struct pd_core_link_state {
    pd_stage stage;
    size_t url;    /* index of the address in use */
    bool welcomed; /* the server has accepted Hello on the present connection */
    bool refused;  /* the server has refused the last Hello for now */
    /* Times: of the next attempt to connect; when bytes were last received, and last sent. Durations: silence after
     * which the connection is dropped; time from one heartbeat to the next. */
    uint64_t retry_ns, received_ns, sent_ns, timeout_ns, heartbeat_ns;
    uint64_t alone_ns; /* when the last welcomed connection ended, or the first attempt to connect failed */
    uint64_t held_ns;  /* when the server first refused Hello because another process has the rank */
    uint64_t random;   /* state of the random numbers that vary the pauses before new attempts to connect */
    /* Number of the last error that the server sent on this connection. Each push repeats it, so that the server knows
     * which errors this client had seen. */
    uint64_t mark;
    char reason[PD_ERROR_TEXT]; /* why there is no connection, or what the server waits for; "": unknown */
} pd_core_link_state;

/* How the handle has ended. `lost` allows the recovery recreate, `gone_back` the recovery rewind. */
typedef struct pd_core_ending {
    pd_error error; /* PD_OK: it has not ended */
    bool left;      /* the worker has left the job */
    bool lost;      /* the server no longer has the job */
    bool gone_back; /* the server has gone back to an earlier step */
} pd_core_ending;

/* Recoveries under way: recoveries.h. */
typedef struct pd_core_recovery {
    bool resending;   /* the server has gone back, and frames of the window are sent again */
    bool rewinding;   /* from the call of pd_core_rewind until the parameters are declared again */
    bool recreating;  /* from the call of pd_core_recreate until the parameters are declared to the new job */
    bool recreated;   /* pd_core_recreate was called at least once on this handle */
    bool went_back;   /* since the last Declare, the server has reported fewer steps of a parameter than before */
    bool moved;       /* since the last Declare, a welcome has given this process another rank */
    bool forgot_rest; /* the rests of quantized gradients were set to 0, and the program does not know it yet */
    bool rejoins;     /* the last Hello asked only to join a job that exists */
    uint64_t creator; /* the last welcome's number of the job, which tells it from others of its name; 0: unknown */
    /* The course of the job's steps (DataReply.course): that of the steps which this process has seen, and that of the
     * last welcome. */
    uint64_t course, welcome_course;
    bool probing;    /* a pull is under way that waits until the server has closed a step (resend.c) */
    uint32_t probed; /* the parameter that it pulls */
} pd_core_recovery;

enum { PD_KEPT_STEPS = 16 }; /* most steps in DeclareReply.kept */

/* How far the job is; the steps of its parameters are in pd_param_record. */
typedef struct pd_core_progress {
    uint64_t barriers, passed; /* number of barriers that this process has called; how many the server has answered */
    uint64_t durable;          /* the durable step, as the last answer reported */
    uint64_t unbroken;         /* with pd_core.replays: each step from here to `durable` is within reach */
    uint64_t mirrored; /* 1 + the step up to which the server's mirror has the job, as the last answer reported; 0: the
                        * server has no mirror; UINT64_MAX: it lacks too many checkpoints, and does not count */
    /* In a cluster: the last steps that the server has reported as durable, in a ring, all in this life of its job;
     * newest step to which all shards and their mirrors can go back, as they have reported (0: none). */
    uint64_t reported[PD_KEPT_STEPS], life;
    size_t n_reported;
    uint64_t common;
    uint64_t closing;  /* step that this rank is closing (pd_client_close_step); 0: none */
    uint64_t ended;    /* last step that it has begun to close, also if that failed; 0: none */
    uint64_t *pushing; /* by fragment, in a job with open sets: step of its last push; 0: none */
} pd_core_progress;

/* What the last answer said of the members of the job, in the form of pd_client_members. */
typedef struct pd_core_members {
    int members, index; /* members 0: all ranks are members for ever */
    bool leads;         /* in a job with open sets: this rank leads it */
    uint64_t epoch;
} pd_core_members;

/* The shares first to first + count - 1 of the data. */
typedef struct pd_core_share_range {
    uint64_t first, count;
} pd_core_share_range;

/* The shares that are leased to this worker: leased.h. */
typedef struct pd_core_shares {
    pd_core_share_range ranges[32];
    size_t n;
    uint64_t taken;        /* number of these shares that the program has taken */
    uint64_t least_unused; /* all shares below this one were used by some rank */
    uint64_t carried;      /* number of these shares, the first ones, of which the program carries the data */
    uint64_t named;        /* what the program's next push is made of: pd_leased_taken */
    uint64_t pushed;       /* what its last push was made of */
    uint64_t since;        /* the last step that this process had pushed when it learned of these leases */
    /* Ids of frames: answers to those up to `settled` tell nothing new of what has counted; late pushes up to `lost`
     * were made of shares that others may have now. */
    uint64_t settled, lost;
} pd_core_shares;

/* Where the server is, in a cluster whose daemons have a table of shards: follow.h. */
typedef struct pd_core_following {
    struct pd_shard_table *table; /* borrowed; NULL: the handle follows no table */
    uint64_t tenure;              /* highest tenure of the shard that this handle knows; 0: none; PD_TENURE_UNKNOWN */
    uint64_t ask;                 /* id of the request Shards that is under way; 0: none */
    uint32_t known;               /* HelloReply.shards_known of the last answer to Hello */
    /* The handle is of one server, which is one of several: it waits for the table (spreads), or has ended (spread). */
    bool spreads, spread;
    char *home;                     /* the table's text of the owner's addresses; NULL: not known */
    char *spares;                   /* the table's text of the spares' addresses; NULL: none */
    const struct pd_address *named; /* addresses that the user has named; borrowed */
    size_t n_named;
    /* setup.addresses, once they are not the user's: first `own` addresses of the owner, then those of spares, then
     * those that the user has named; NULL: they are the user's, all of the owner. stray: the owner was found at an
     * address after its own. moves: the connection is dropped, since the shard has moved: the next attempt is at
     * link.url. */
    struct pd_address *addresses;
    size_t own;
    bool stray, moves;
} pd_core_following;

/* The user's calls. */
typedef struct pd_core_calls {
    pd_op *table;     /* hash table of the operations, by ticket */
    uint64_t ended;   /* number of calls that have ended */
    uint64_t last_id; /* last number that was given to a request or to a ticket */
    /* When the next operation with `hopeless` set ends. 0: pd_core_tick must compute it. UINT64_MAX: there is none. */
    uint64_t give_up_ns;
} pd_core_calls;

/* The answer that is being received. */
typedef struct pd_core_receive {
    Paramd__DataReply *message;
    size_t n_copies; /* number of entries in scratch->copy */
    /* Buffer of `room` bytes that receives updates and answers to operators' requests. Kept for later answers. */
    uint8_t *buffer;
    size_t room;
} pd_core_receive;

typedef struct pd_core {
    pd_core_setup setup;
    pd_core_link_state link;
    pd_core_ending end;
    pd_core_recovery recovery;
    pd_core_progress progress;
    pd_core_calls calls;
    pd_core_receive receive;
    pd_core_remarks remarks;
    pd_core_following following;
    pd_sharing sharing;
    pd_window window;
    /* The core's part in carrying tallies between the shards of a cluster: settle_relay.h. */
    struct {
        struct pd_settle_box *box; /* where the tallies of all shards meet; borrowed; NULL: the server is alone */
        uint64_t ask, verdict;     /* ids of the requests under way; 0: none */
        uint64_t life;             /* `life` of the shard when its parameters were last declared */
        bool holds;                /* pd_relay_holds */
    } settling;
    pd_outgoing out;

    pd_welcome welcome;
    bool greeted;        /* the server has accepted a Hello of this process at least once */
    uint32_t max_pieces; /* most pieces of one frame */
    /* The declared parameters, then the portions of those that are cut. n_params: number of both. */
    pd_param_record *params;
    size_t n_params, n_declared;
    /* steps to which the server can go back, whether it has taken a step since it has read the job, and whether steps
     * wait for verdicts: DeclareReply.kept, .replays, .first, .last, .fresh, .settles */
    uint64_t kept[PD_KEPT_STEPS], first, last;
    size_t n_kept;
    bool replays, fresh, settles;
    uint64_t durable;     /* the durable step of that answer: progress.durable may be newer */
    uint64_t map;         /* number of the map of portions (DeclareReply.map); 0: none */
    uint64_t life;        /* HelloReply.life of the last welcome; 0: none */
    uint64_t tenure;      /* HelloReply.tenure of the last welcome: following.tenure may be a newer one */
    uint32_t n_fragments; /* number of fragments of these parameters; 0 before they are declared */
    /* declared: the server has accepted the declared parameters at least once. must_init: the server waits for initial
     * weights of this rank. */
    bool declared, must_init;
    bool owes_init; /* the server waits for them, and no call has sent them since it has said so */
    bool begun;     /* the program has made a call about the declared parameters: it may know weights of a step */
    bool open_sets; /* not every rank counts in every step (DeclareReply.open_sets) */
    pd_core_members members;
    pd_core_shares shares;
    double fastest;          /* greatest speed of the job's workers, as the last answer told; 0: not known */
    bool sends_whole;        /* with must_init: this rank sends the parameters that are not ranged */
    bool averages_init;      /* the server takes the mean of all ranks' initial weights, so every rank sends them */
    size_t declares_waiting; /* number of Declare frames that the server has not answered yet */
    pd_ticket_id welcome_ticket, declare_ticket;

    pd_frame_scratch *scratch;
    pd_arena *arena; /* memory for the fields of the answer that is being received */
    pd_client_stats stats;
} pd_core;

/* Most seconds for which a process keeps asking for a rank that another process has. The other process may be dead. The
 * server notices that within its heartbeat_timeout, which is usually a little shorter. */
enum { PD_HELD_SECONDS = 35 };

/* The settings of a core. pd_core_new copies all texts, so the caller may free them. */
typedef struct pd_core_config {
    const char *job, *label;
    uint32_t rank, world_size;
    const char *const *options, *const *rules; /* see pd_client_options */
    uint64_t nonce;
    bool checksum, impatient, no_shared_memory; /* see pd_client_options */
    uint64_t deadline_ns;                       /* with impatient: pd_client_options.deadline; 0: not said */
    uint32_t window;                            /* see pd_client_options */
    const char *run;                            /* see pd_client_options; NULL: unknown */
    int resume;                                 /* see pd_client_options */
    bool joins;                                 /* see pd_client_options */
    bool any_rank;                              /* the server chooses the rank; `rank` is 0 */
    uint32_t group;                             /* see pd_client_options */
    uint64_t generation;                        /* see pd_client_options */
    uint32_t shares;                            /* see pd_client_options */
    int feedback;                               /* see pd_client_options */
    const char *congestion;                     /* see pd_client_options.tcp_congestion; NULL: none is chosen */
    uint32_t shard, shards;                     /* see pd_core_setup; shards 0: the server is alone */
    uint64_t cluster;                           /* see pd_core_setup */
    struct pd_shard_table *table;               /* see pd_core_following; borrowed */
    uint64_t least_shared; /* payload bytes of the smallest push that uses shared memory; 0: PD_LEAST_SHARED */
    size_t urls;           /* number of addresses */
    /* the addresses; borrowed as long as the core lives; NULL: error texts name no address */
    const struct pd_address *addresses;
    /* addresses that the user has named for the whole cluster; borrowed. NULL: none but `addresses` */
    const struct pd_address *named;
    size_t n_named;
} pd_core_config;

/* Makes a core, which pd_core_free frees. PD_INVALID_ARGUMENT: an option is not of the form name=value. */
int pd_core_new(pd_core **out, const pd_core_config *config, pd_error *err);
/* Returns settings with which another core is like this one, but for its addresses. The texts are the core's, and the
 * addresses that the user has named. */
pd_core_config pd_core_config_of(const pd_core *core);
/* Frees the core. Accepts NULL. */
void pd_core_free(pd_core *core);

typedef enum pd_link {
    PD_LINK_REST,    /* no connection is wanted now; call pd_core_link again at the time that pd_core_next returns */
    PD_LINK_CONNECT, /* connect to address number pd_core.link.url, then call pd_core_up, or pd_core_down on failure */
    PD_LINK_KEEP,    /* nothing needs to be done with the connection */
    PD_LINK_DROP,    /* the caller must close the connection, then call pd_core_down */
} pd_link;

/* Returns what the caller must do with the connection now: make one, keep it, or drop it. */
pd_link pd_core_link(const pd_core *core, uint64_t now_ns);
/* Tells the core that a connection has been made. `passes_descriptors`: its transport can send and receive descriptors,
 * which shared memory needs. */
void pd_core_up(pd_core *core, bool passes_descriptors, uint64_t now_ns);
/* Tells the core that a connection could not be made, broke, or was dropped. `reason` becomes part of the error texts
 * of calls that time out. On the next connection, requests without an answer are sent again. */
void pd_core_down(pd_core *core, uint64_t now_ns, const char *reason);
/* Queues a heartbeat, which the server answers at once. Does nothing before the server has welcomed this client. */
void pd_core_ask(pd_core *core);
/* Does what is due at this time: queues heartbeats, and drops a connection whose server has gone silent. */
void pd_core_tick(pd_core *core, uint64_t now_ns);
/* Returns the time at which the caller must call pd_core_tick and pd_core_link again. UINT64_MAX: not before something
 * happens, such as a received byte or a call of the user. */
uint64_t pd_core_next(const pd_core *core);

/* Lends the next bytes to send: at most `max` iovec entries, about `bytes` bytes in all. Returns the number of entries.
 * The bytes stay valid until pd_core_sent or pd_core_down, whatever other functions are called in between. The caller
 * must call pd_core_sent afterwards, even if no byte was sent. */
int pd_core_output(pd_core *core, struct iovec *iov, int max, size_t bytes);
void pd_core_sent(pd_core *core, size_t n, uint64_t now_ns);
bool pd_core_has_output(const pd_core *core);
/* Tells the core that n bytes were received. The bytes themselves go to a pd_framer, whose callbacks are pd_core_header
 * and pd_core_frame (answer.h). */
void pd_core_received(pd_core *core, size_t n, uint64_t now_ns);

/* Returns whether the call that has this ticket is done. Returns true for a ticket that does not exist, too. */
bool pd_core_done(const pd_core *core, pd_ticket_id ticket);
/* Frees the ticket of a call that is done, and returns the result of the call. For a ticket of pd_core_call, *reply is
 * the header of the answer (*bytes long) followed by the payload; the caller frees it. For other tickets *reply is NULL
 * and *bytes is 0. PD_NOT_FOUND: there is no such ticket. */
int pd_core_finish(pd_core *core, pd_ticket_id ticket, uint8_t **reply, size_t *bytes, pd_error *err);

/* Returns how many rounds of the parameter are closed, as far as the server's answers have reported. */
uint64_t pd_core_step(const pd_core *core, size_t param);
/* Returns the highest step of all parameters of a fragment. */
uint64_t pd_core_highest_step(const pd_core *core, uint32_t fragment);
/* Returns the step that this process has begun to push for last in a fragment, or a later one that it is closing; 0:
 * none. */
uint64_t pd_core_begun(const pd_core *core, uint32_t fragment);
/* Returns the step that an operation pushes a parameter for: the next one, or that of the push which it repeats. */
static inline uint64_t pd_op_step(const pd_op *op, const pd_param_record *record)
{
    if (op->step > 0) return op->step;
    return op->again && record->pushed > 0 ? record->pushed : record->step + 1;
}
/* Returns the steps in the answers to an operation about parameters of a fragment. */
static inline pd_step_span *pd_op_span(pd_op *op, uint32_t fragment)
{
    return op->spans != NULL ? &op->spans[fragment] : &op->span;
}
pd_core_members pd_core_members_now(const pd_core *core);
/* Returns whether this rank leads the job, as far as this process knows: pd_client_leads. */
bool pd_core_leads(const pd_core *core);
/* Returns the optimizer's note on a parameter, or "" if there is none. Once the parameters are declared, the text stays
 * valid. */
const char *pd_core_note(const pd_core *core, size_t param);
pd_client_stats pd_core_stats(const pd_core *core);

/* Ends the client handle with this error. All waiting calls of the user end with the same error. A call whose bytes are
 * being sent ends when the sender has stopped using them, since they are the caller's memory. */
void pd_core_end(pd_core *core, const pd_error *error);
/* Asks the I/O thread to close the connection. `reason` becomes part of the error texts of calls that time out. */
void pd_core_drop(pd_core *core, const char *reason);

/* Fails an operation because another shard has refused its part of the same call. It ends when it is answered, at the
 * latest a second later, or at once if there is no connection. Does nothing if it is done, or does not exist. */
void pd_core_spoil(pd_core *core, pd_ticket_id ticket, const pd_error *error);

/* Makes an operation, and gives it a ticket. NULL: out of memory. */
pd_op *pd_op_new(pd_core *core, unsigned method);
/* Makes an operation with a ticket, unless the client handle has ended. Returns the error that ended the handle if it
 * has ended, PD_RESOURCE_EXHAUSTED if too many calls are waiting, and PD_NO_MEMORY if out of memory. */
int pd_op_begin(pd_core *core, unsigned method, pd_op **op, pd_error *err);
/* Returns the operation that has this ticket; NULL: there is none. */
pd_op *pd_op_find(const pd_core *core, pd_ticket_id ticket);
void pd_op_free(pd_core *core, pd_op *op);
/* Sets the error with which the operation ends, unless an earlier error is set. */
void pd_op_fail(pd_op *op, const pd_error *error);
/* Ends an operation that has no frames any more, with an error. */
void pd_op_end(pd_core *core, pd_op *op, const pd_error *error);
/* Removes a frame that needs no further answer from the queue, and counts it as answered in its operation. If the
 * frame's bytes are being sent, both happen only after that, since the bytes are the caller's memory. */
void pd_op_retire(pd_core *core, pd_outgoing_frame *frame);

/* Queues a message as a frame of its own. `op` is the user's call that waits for the answer; NULL: none waits. After an
 * error nothing is queued. PD_OUT_OF_RANGE: the message is too long. PD_NO_MEMORY. */
int pd_core_post(pd_core *core, unsigned method, const ProtobufCMessage *message, pd_queue queue, pd_op *op);
/* Queues a message as a frame of its own with a payload, which is copied. Errors as in pd_core_post. */
int pd_core_post_with(pd_core *core, unsigned method, const ProtobufCMessage *message, const struct iovec *payload,
                      pd_queue queue, pd_op *op);

/* Ends the client handle because the server's reply breaks the protocol. The handle does not connect again, since the
 * next reply would break the protocol in the same way. Returns PD_INTERNAL. */
int pd_reply_broken(pd_core *core, const pd_prefix *prefix, const char *what);
/* Unpacks a reply into the core's arena. PD_NO_MEMORY: the connection is dropped, and the requests are sent again on
 * the next one. PD_INTERNAL: the reply breaks the protocol. */
int pd_reply_take(pd_core *core, const pd_prefix *prefix, const uint8_t *header, void **reply);

/* Returns whether this rank pushes and pulls elements of the parameter on this server. */
static inline bool pd_has_elements(const pd_param_record *record)
{
    return record->start < record->end && !record->elsewhere;
}
/* Returns the lowest step among the parameters of which this rank has elements (pd_param_record.step); UINT64_MAX: it
 * has elements of none. */
uint64_t pd_core_steps_seen(const pd_core *core);
/* Frees what a record refers to. */
void pd_param_record_free(pd_param_record *record);
/* Forgets which versions of the weights the caller's buffers have. */
void pd_core_forget_versions(pd_param_record *record);
/* Returns the parameter to which piece number `piece` of a sent frame belongs. */
static inline pd_param_record *pd_piece_record(const pd_core *core, const pd_outgoing_frame *frame, size_t piece)
{
    if (frame->source != NULL) return &core->params[frame->source->pieces[piece].param];
    return &core->params[frame->op->items[frame->pieces[piece].item].param];
}

#endif
