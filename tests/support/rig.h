/* rig.h - a store driven as the loop thread does it, without sockets or threads: for tests.
 *
 * Each rank has a connection; answers, publications and buffers that come home are kept where a test looks for them. Whatever is
 * sent must be answered in the end, every buffer and snapshot must come home: rig_free asserts it. */
#ifndef RIG_H
#define RIG_H

#include "store.h"

enum { RIG_JOBS = 64, RIG_CONNS = 512 };

/* What the loop's board would know of a parameter. */
typedef struct rig_entry {
    uint64_t     step, closed;              /* of the last entry; entries so far */
    pd_outcome   outcome;
    pd_snapshot *snapshot;                  /* last published */
    char         why[200];                  /* of a step that was refused; "": it was not */
    pd_scalar_means *scalars;               /* of the last round; NULL: it had none */
} rig_entry;

/* Elements [start, end) of a parameter; start -1: all, not as a range. */
typedef struct rig_range { int64_t start, end; } rig_range;

typedef struct rig {
    pd_store *store;
    uint64_t  now;                          /* the clock */
    uint64_t  last_id;
    int64_t   chunk;                        /* elements */
    const rig_range *ranges;                /* for the Declares that follow: one for each of their names; NULL: none is ranged. Borrowed */
    const char *const *axes;                /* likewise; NULL: none have names */
    const bool *states;                     /* likewise: which are model state; NULL: none */
    bool      rejoins;                      /* for the Hellos that follow */
    /* the last answer to a request that waits for one */
    pd_effect_kind answer;                  /* PD_EFF_HELLO, PD_EFF_OK, ... */
    uint64_t  answered;                     /* answers so far */
    pd_error  error;                        /* code PD_OK where it was none */
    uint32_t  job;                          /* of the last welcome */
    bool      created, must_init;
    uint64_t  seed, creator, reserve;
    uint32_t  handles[4096];                /* of the last Declared */
    bool      initialised[4096];
    uint64_t  steps[4096];
    char      notes[16][240];               /* of the first of them */
    pd_info  *info;                         /* last, owned by the rig */
    pd_set_result *set;                     /* last, owned by the rig */
    /* what came by itself */
    rig_entry *board[RIG_JOBS];             /* by job number, 4096 each */
    uint64_t  fenced_conn; pd_error fenced;
    uint64_t  timed_out, timed_out_step; pd_error timeout;
    uint32_t  gone_job; uint64_t gone; pd_error goodbye;
    uint64_t  logs, warnings; char log[400], warning[400];
    uint64_t  buffers_out, bytes_out[RIG_CONNS];     /* not home yet */
    uint64_t  batches;                      /* PD_EFF_CLOSED effects */
    uint32_t  batch_jobs[1024];             /* the job of each, the first 1024 */
    struct pd_task *tasks[256]; uint32_t task_params[256], task_jobs[256]; size_t n_tasks;
    bool      lazy_tasks;                   /* tasks stay in `tasks` until rig_finish_task; else they are run and brought back at once */
} rig;

/* A configuration with room for everything; chunks of 64 elements, batches of 50 ms. */
pd_store_config rig_config(void);
void rig_new(rig *r, const pd_store_config *config);         /* the rig's frames follow config->chunk_elements */
void rig_free(rig *r);
/* The same as a test's set-up and tear-down: *state is the rig. rig_set_up takes rig_config(); a set_up with a configuration of its own calls the second. */
int  rig_set_up(void **state);
int  rig_set_up_with(void **state, const pd_store_config *config);
int  rig_tear_down(void **state);

/* Applies a request and keeps what comes of it; gives the request's answer code (PD_OK where there was no error). */
int  rig_apply(rig *r, pd_request *request);
/* The same of a Declare: works until it is answered, as a large one is not at once. */
int  rig_apply_declare(rig *r, pd_request *request);
/* Works until there is nothing more to do. */
void rig_work(rig *r);
/* Time passes. */
void rig_sleep(rig *r, double seconds);
void rig_absorb(rig *r);
void rig_finish_task(rig *r, size_t i);     /* runs and brings back a task that was kept */

pd_ticket rig_ticket(rig *r, uint64_t conn);
/* "a=1 b=2" and "rule;rule"; NULL: none. Connection `conn`. */
int  rig_hello(rig *r, const char *job, uint32_t rank, uint32_t world, uint64_t nonce, uint64_t conn, const char *options, const char *rules);
/* n parameters p0, p1 ... of `elements` elements each (a vector), in the order `order` (NULL: ascending). */
int  rig_declare(rig *r, uint32_t job, uint32_t rank, uint64_t conn, const char *const *names, const pd_shape *shapes, const uint32_t *order, size_t n, pd_dtype pull);
/* One float32 parameter of r->job, of which the rank contributes that range. */
int  rig_declare_range(rig *r, uint32_t rank, uint64_t conn, const char *name, const pd_shape *shape, rig_range range);

/* ---- data frames ---- */

typedef struct rig_frame rig_frame;
/* `kind`: PD_REQ_INIT or PD_REQ_PUSH. Gives; sent by rig_send. */
rig_frame *rig_frame_new(rig *r, pd_request_kind kind, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step);
/* Elements [first, first + count) of a parameter, `values` float32 rounded to `dtype`. */
void       rig_piece(rig_frame *frame, uint32_t param, pd_dtype dtype, int64_t first, int64_t count, const float *values);
void       rig_absent(rig_frame *frame, uint32_t param);
void       rig_last(rig_frame *frame);          /* it ends the rank's step */
void       rig_weight(rig_frame *frame, double weight, bool presummed);
void       rig_hyper(rig_frame *frame, const char *name, const char *value);
void       rig_scalar(rig_frame *frame, const char *name, double value);
pd_request *rig_request(rig_frame *frame);      /* gives the request; frees the frame */
int        rig_send(rig *r, rig_frame *frame);
/* Memory of a payload that has landed, for frames of other kinds: gives *out to the request it is put into, and where its bytes are. */
void      *rig_payload(rig *r, uint64_t conn, size_t bytes, pd_buffer **out);

/* A whole parameter of n elements in one frame per chunk of the configuration's size. */
int  rig_init(rig *r, uint32_t job, uint64_t conn, uint32_t param, const float *values, int64_t n);
int  rig_push(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step, uint32_t param, const float *values, int64_t n);
/* A job of `world` ranks on connections conn, conn + 1 ... (nonces the same numbers), with n vectors p0, p1 ... of these sizes, declared by all
 * and initialised with rig_noise(7, ...). Gives its number. Rules NULL: "* sgd lr=1". */
uint32_t rig_start(rig *r, const char *job, uint32_t world, uint64_t conn, const int64_t *sizes, size_t n, const char *options, const char *rules);
/* Fills `out` with numbers of very different size: their float32 sums depend on the order. */
void rig_noise(uint64_t seed, float *out, int64_t n);
/* The next of a fixed sequence of random numbers. */
uint64_t rig_random(uint64_t *state);
pd_info *rig_ask(rig *r, pd_info_what what, const char *job);       /* borrowed until the next */

/* An operator sets hyperparameters, "lr=0.1 momentum=": gives the code; what has changed is in r->set. */
pd_request *rig_set_request(rig *r, const char *job, const char *pattern, const char *options, uint64_t from_step);
int  rig_set(rig *r, const char *job, const char *pattern, const char *options, uint64_t from_step);

/* What the board knows of a parameter. */
const rig_entry *rig_board(const rig *r, uint32_t job, uint32_t param);
/* Published weights as float32, borrowed until the next publication. */
const float *rig_weights(rig *r, uint32_t job, uint32_t param);

#endif
