/* core_state.h - the state of the core: its operations, parameters and connection. Data alone, no functions. */
#ifndef PD_CORE_STATE_H
#define PD_CORE_STATE_H

#include "message.h"
#include "outgoing.h"
#include "paramd/client.h"

/* Bounds that keep a frame's header, and that of its answer, under PD_MAX_HEADER_BYTES: no piece, want or outcome packs
 * to more than PIECE_BOUND bytes, and the other fields of a header to no more than FORM_BOUND. */
enum { PIECE_BOUND = 64, FORM_BOUND = 8 * 1024, MAX_PIECES = (PD_MAX_HEADER_BYTES - FORM_BOUND) / PIECE_BOUND };
/* Names of the public calls, for texts of errors. */
#define PD_DECLARE_CALL "pd_client_declare"
#define PD_RESTART_CALL "pd_client_restart"
#define PD_WAIT_CALL    "pd_client_wait"

enum { MAX_TICKETS = 16384 };
enum { PD_OUTCOME_REFUSED = 4 };        /* of Outcome.outcome: the optimizer refused the step */

/* One operation of the user, from its call to pd_core_finish. */
typedef struct pd_op {
    pd_ticket_id id;
    unsigned     method;
    pd_item     *items;                 /* borrowed, unless `owned` */
    size_t       n;
    bool         owned, done;
    size_t       waits;                 /* frames not answered */
    uint64_t     closes;                /* the step that it ends for this rank; 0: none */
    pd_scalar   *scalars;               /* borrowed */
    size_t       n_scalars, bearer;     /* bearer: the item whose frame brings the scalars */
    pd_error     error;                 /* the first error */
    bool         hopeless;              /* one of its frames was refused, others are not answered yet */
    uint64_t     give_up_ns;            /* when it stops waiting for the other answers; 0: not set yet */
    uint8_t     *reply;                 /* of a pd_core_call */
    size_t       reply_bytes;
    UT_hash_handle hh;
} pd_op;

typedef struct pd_known {               /* a declared parameter; its index is its handle */
    char    *name;
    pd_shape shape;
    bool     ranged;
    int64_t  start, end;                /* elements that this rank pushes and pulls */
    pd_dtype push, pull, update;        /* update: 0, weights come whole */
    uint64_t *holds;                    /* with updates, by chunk: 1 + version of the weights in the caller's buffer;
                                         * 0: not known */
    char    *axes, *note;               /* as declared, or NULL; the first note of the optimizer, or NULL */
    bool     model_state;
    uint64_t step, pushed;              /* rounds closed, by the last answer; the step pushed last */
    uint64_t refused;                   /* step whose push ended with an error and was not repeated; 0: none */
    bool     initialised, pushing;      /* initialised: the server has its weights, or this rank's part */
    bool     given;                     /* the server has some of this rank's part */
} pd_known;

typedef enum pd_stage {
    STAGE_DOWN,                         /* no connection */
    STAGE_GREETING,                     /* Hello is sent */
    STAGE_WELCOMED,                     /* nothing is declared yet */
    STAGE_DECLARING,
    STAGE_RUNNING,
    STAGE_DROP,                         /* the connection is to be closed */
} pd_stage;

/* Memory for building a frame; made once. */
typedef struct pd_frame_scratch {
    Paramd__Piece piece[MAX_PIECES], *pieces[MAX_PIECES];
    Paramd__Want  want[MAX_PIECES], *wants[MAX_PIECES];
    pd_part       part[MAX_PIECES];
    struct iovec  iov[2 * MAX_PIECES];
    struct iovec  landing[2 * MAX_PIECES + 1];  /* places of the payload that is landing */
} pd_frame_scratch;

typedef struct pd_core {
    char    *job, *label;
    char   **options, **rules;          /* NULL at the end */
    uint32_t rank, world_size;
    uint64_t nonce;
    uint8_t  flags;                     /* of the frames that it sends */
    bool     impatient;                 /* the handle ends instead of connecting again */
    size_t   urls;

    pd_stage stage;
    bool     welcomed;                  /* on this connection */
    uint64_t retry_ns, received_ns, sent_ns, timeout_ns, heartbeat_ns;
    unsigned attempts;                  /* failed ones since the last welcome */
    size_t   url;
    uint64_t random;
    char     reason[PD_ERROR_TEXT];
    pd_error ended;                     /* code other than PD_OK: the handle has ended */
    bool     lost;                      /* it ended because the server no longer has the job */
    bool     restarting;                /* from pd_core_restart until the parameters are declared again */
    bool     rejoins;                   /* field of the last Hello */
    uint64_t creator;                   /* of the job, from the last welcome; 0: not known */

    pd_welcome welcome;
    bool       greeted;                 /* there was a welcome */
    uint32_t   max_pieces;

    pd_known *params;
    size_t    n_params;
    bool      declared, must_init;      /* declared: accepted once */
    bool      averages_init;            /* every rank sends initial weights of every parameter */
    size_t    declares_waiting;         /* frames not answered */
    pd_ticket_id welcome_ticket, declare_ticket;
    uint64_t  barriers;
    uint64_t  closing;                  /* step that is being ended for this rank; 0: none */

    pd_op    *ops;                      /* by ticket */
    pd_outgoing out;
    uint64_t  last_id;                  /* of requests and tickets */
    uint64_t  give_up_ns;               /* when the next hopeless operation ends; 0: the next tick sets it; UINT64_MAX:
                                         * none is hopeless */
    uint64_t  mark;                     /* of the last error read on this connection: pushes repeat it */
    pd_frame_scratch *scratch;
    pd_arena *arena;                    /* of the answer that is landing */
    Paramd__DataReply *reply;
    uint8_t  *updates;                  /* place of the updates of that answer; kept for the next one */
    size_t    updates_room;
    pd_client_stats stats;
} pd_core;

#endif
