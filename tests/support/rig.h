/* rig.h - a store for tests that is driven as the loop thread drives it, but without sockets or threads.
 *
 * Each rank has a connection number. The rig keeps answers, publications and returned buffers for the test to look
 * at. rig_free asserts that every request was answered, and that every buffer and published version was returned. */
#ifndef RIG_H
#define RIG_H

#include "store.h"
#include "checkpoint_image.h"
#include "wal_record.h"

enum { RIG_JOBS = 64, RIG_CONNS = 512, RIG_RECORDS = 128, RIG_OLDER = 64 };

/* The record of a parameter that the loop thread's version table would keep. */
typedef struct rig_entry {
    uint64_t step, closed; /* step: that of the last entry; closed: number of entries so far */
    pd_outcome outcome;
    pd_published *published;  /* the published version that was published last */
    char why[200];            /* reason why the last step was refused; "": it was not refused */
    pd_scalar_means *scalars; /* means of the scalars of the last closed round; NULL: the round had none */
} rig_entry;

/* Elements [start, end) of a parameter; start -1: the whole parameter, not as a range. */
typedef struct rig_range {
    int64_t start, end;
} rig_range;

typedef struct rig {
    pd_store *store;
    uint64_t now; /* the time */
    uint64_t last_id;
    int64_t chunk;           /* number of elements of a chunk */
    const rig_range *ranges; /* ranges that the next Declares give their parameters; NULL: whole parameters. Borrowed */
    const char *const *axes; /* names of axes that the next Declares give their parameters; NULL: none */
    const bool *states;      /* which parameters the next Declares declare as model state; NULL: none */
    const uint32_t *fragments; /* fragment of each parameter of the next Declares; NULL: 0. Borrowed */
    bool rejoins;              /* for the next Hellos */
    const char *identity;      /* for the next Hellos; NULL: not known */
    const char *run;           /* for the next Hellos; rig_new says "launch"; NULL: not known */
    pd_intent intent;          /* for the next Hellos */
    bool joins;                /* for the next Hellos */
    bool any_rank;             /* for the next Hellos */
    uint32_t group;            /* for the next Hellos: 1 + the number of the group; 0: none */
    uint64_t generation;       /* for the next Hellos */
    uint32_t wants;            /* shares that the next Declares and frames of pushes want; 0: none */
    uint64_t means;            /* for the next Hellos: creator of the job that they rejoin; 0: any of its name */
    /* The last answer that the store gave to a request, and what answers of different kinds had in them. */
    pd_effect_kind answer; /* PD_EFF_HELLO, PD_EFF_OK, ... */
    uint64_t answered;     /* number of answers so far */
    pd_error error;        /* error of the last answer; code PD_OK: no error */
    pd_filed filed;        /* what was said of the last push, in a job that says it */
    pd_rank_leases leases; /* what the store has leased last: at a Declare, or later */
    uint32_t job;          /* number of the job, from the last welcome */
    bool created, must_init;
    uint32_t rank, slots; /* from the last welcome */
    uint64_t epoch;       /* from the last welcome, or the last report of the members */
    uint64_t formed;      /* generation of the job, from the last welcome */
    uint64_t members;     /* bit r: rank r is a member, as last reported */
    uint32_t leader;      /* the leader, as last reported with the members */
    uint64_t reports;     /* number of reports of the members */
    uint64_t seed, creator, reserve;
    uint64_t in_cluster, life; /* numbers of the job's cluster and of its life, from the last welcome */
    uint32_t handles[4096];    /* handles of the parameters, from the last answer to Declare */
    bool initialised[4096];
    uint64_t steps[4096], replaced[4096];
    pd_declared_place *places; /* where portions lie, from the last answer to Declare; NULL: the job is on one daemon */
    size_t n_places;
    uint64_t map; /* of the last answer to Declare */
    bool settles;
    char notes[16][240];  /* notes of the first 16 parameters, from the last answer to Declare */
    pd_info *info;        /* the last answer to List; the rig owns it */
    pd_set_result *set;   /* the last answer to Set; the rig owns it */
    pd_exported exported; /* the last answer to Export; the rig owns its bytes */
    /* What the store reported without a request. */
    rig_entry *versions[RIG_JOBS]; /* version table of each job, by job number: 4096 parameters each */
    uint64_t fenced_conn;
    pd_error fenced;
    uint64_t timed_out, timed_out_step;
    pd_error timeout;
    uint32_t gone_job;
    uint64_t gone;
    pd_error goodbye;
    uint64_t stats, stats_ranks;     /* number of published figures of jobs; number of ranks in the last ones */
    uint64_t logs, warnings, errors; /* errors count as warnings, too */
    char log[480], warning[480], fault[480];
    uint64_t buffers_out, bytes_out[RIG_CONNS]; /* payload buffers that were not returned yet */
    uint64_t batches;                           /* number of effects that publish closed rounds (PD_EFF_CLOSED) */
    uint32_t batch_jobs[1024];                  /* number of the job in each of the first 1024 of these effects */
    struct pd_task *tasks[256];
    uint32_t task_params[256], task_jobs[256];
    size_t n_tasks;
    /* Checkpoints. The rig plays the checkpoint writer, if the configuration says that there is one (keeps). */
    /* the checkpoint that the store has handed over and that rig_write_checkpoint has not returned */
    pd_checkpoint_image *checkpointing;
    pd_checkpoint_image *disk; /* a copy of the last checkpoint that was written, as the disk would return it */
    /* copies of all checkpoints that were written and that the job can go back to, the oldest first, if keeps_older */
    pd_checkpoint_image *older[RIG_OLDER];
    size_t n_older;
    bool keeps_older;
    pd_go_back_order *ordered; /* the order to go back that lazy_back holds back */
    bool lazy_back; /* true: an order stays in `ordered` until rig_go_back_ordered; false: it is carried out at once */
    uint64_t kept, ended; /* number of checkpoints written; of jobs whose end was reported to the checkpoint writer */
    uint64_t durable;     /* last reported durable step */
    uint64_t mirrored;    /* last reported pd_effect.u.durable.mirrored */
    uint64_t checkpoint_step, checkpoint_bytes; /* the last answer to a request for a checkpoint */
    /* The last tally that the store has given: its bytes, step and phase; number of tallies that have come */
    uint8_t tally[4096];
    size_t tally_bytes;
    uint64_t tally_step, tallies;
    uint32_t tally_phase;
    uint32_t shard, shards; /* for the next Hellos */
    uint64_t cluster;       /* for the next Hellos */
    uint64_t note_step;     /* the last answer to Recall: step, and the note as text */
    char note[64];
    const char *disk_error; /* the disk fails with these words; NULL: it works */
    bool lazy_disk; /* true: a checkpoint stays in `keeping` until rig_write_checkpoint; false: it is written at once */
    /* The WAL of the job: the rig plays the WAL thread, too. */
    pd_wal_record *logging[RIG_RECORDS]; /* records that the store has handed over and that are not written yet */
    pd_wal_record *records[RIG_RECORDS]; /* copies of the records of steps after the last durable checkpoint */
    size_t n_logging, n_records;
    uint64_t recorded;                     /* number of records of steps that were written */
    pd_wal_record *decisions[RIG_RECORDS]; /* copies of the records of decisions that are still needed */
    size_t n_decisions;
    uint64_t decisions_written; /* number of records of decisions that were written */
    const char *wal_error;      /* the disk of the WAL fails with these words; NULL: it works */
    bool lazy_wal;       /* true: records stay in `logging` until rig_write_record; false: each is written at once */
    pd_dtype push_dtype; /* that the next Declares give their parameters; 0: any */
    uint32_t window;     /* for the next Hellos */
    uint64_t barriers;   /* for the next Hellos */
    uint64_t seen;       /* for the next Hellos: steps that the processes have seen closed */
    uint64_t course;     /* for the next Hellos: the course of these steps */
    uint64_t looked;     /* for the next requests to go back: 1 + the durable step that the worker has seen */
    /* what the last welcome said: the lowest step of the job, and its course */
    uint64_t welcome_step, welcome_course;
    /* called with each effect before the rig takes it; NULL: nobody watches */
    void (*watch)(void *watcher, const pd_effect *effect);
    void *watcher;
    bool lazy_tasks; /* true: tasks stay in `tasks` until rig_finish_task; false: each is run and returned at once */
} rig;

/* Returns a configuration with enough memory for everything, chunks of 64 elements, and batches of 50 ms. */
pd_store_config rig_config(void);
void rig_new(rig *r, const pd_store_config *config); /* makes a rig; its frames have chunks of config->chunk_elements */
void rig_make(rig *r);                               /* makes a rig with rig_config() */
void rig_free(rig *r);
/* Make and free a rig as set-up and tear-down of a cmocka test: *state is the rig. rig_set_up uses rig_config(),
 * rig_set_up_with a configuration of the test. */
int rig_set_up(void **state);
int rig_set_up_with(void **state, const pd_store_config *config);
int rig_tear_down(void **state);

/* Applies a request and stores its effects. Returns the code of its answer (PD_OK if there was no error). */
int rig_apply(rig *r, pd_request *request);
/* Applies a Declare. Works until it is answered, because a large one is not answered at once; or until the store has
 * nothing to do, because the answer waits for the disk. Returns the answer's code; PD_OK if there is none. */
int rig_apply_declare(rig *r, pd_request *request);
/* Lets the store work until it has nothing more to do. */
void rig_work(rig *r);
/* Lets time pass. */
void rig_sleep(rig *r, double seconds);
void rig_absorb(rig *r);
void rig_write_checkpoint(rig *r); /* writes the checkpoint that lazy_disk holds back, or fails to */
void rig_write_record(rig *r);     /* writes the oldest record that lazy_wal holds back, or fails to */
/* Carries the order to go back out that lazy_back holds back, or fails to. Then lets the store work. */
void rig_go_back_ordered(rig *r);
/* Carries the order out, and returns it as the request that the store is to get. */
pd_request *rig_answer_order(rig *r);
/* Asks as the worker of `rank` (job NULL) or as an operator that the job goes back to `step`, and lets the store work.
 * life 0: any. Returns the code of the answer, or RIG_NO_ANSWER. */
enum { RIG_NO_ANSWER = 1 << 20 };
int rig_go_back(rig *r, const char *job, uint32_t rank, uint64_t conn, uint64_t step, uint64_t life);
/* Adds a checkpoint that was written to those that the job can go back to, and lists them in kept->kept. Carries out an
 * order to go back, and one about the records of a WAL. Used by rig.c and rig_disk.c. */
void rig_note_older(rig *r, pd_checkpoint_image *kept);
void rig_on_order(rig *r, pd_go_back_order *order);
void rig_on_dropping(rig *r, const pd_wal_record *order);
/* Fills in what a checkpoint that was read says of the others, and of the WAL. */
void rig_describe(const rig *r, pd_checkpoint_image *image);
void rig_free_older(rig *r);
/* Removes the oldest checkpoint, as the checkpoint writer does. */
void rig_forget_oldest(rig *r);
/* Take a checkpoint or a record that the store hands over. Used by rig.c. */
void rig_on_checkpoint(rig *r, pd_checkpoint_image *kept);
void rig_on_record(rig *r, pd_wal_record *entry);
/* Drops the records that a checkpoint of step `step` makes superfluous, and those that wait. Used by rig.c. */
void rig_drop_records(rig *r, uint64_t step);
/* Replays the records that the rig `from` has after its checkpoint. Returns the code of the error, which is
 * in r->error. */
int rig_replay(rig *r, const rig *from);
/* Reads the decisions of the rig `from`. Returns the code of the error, which is in r->error. */
int rig_read_decisions(rig *r, const rig *from);
/* Makes a new server from what the disk of the old one has: its last checkpoint, and the records after it. The new one
 * has a configuration of its own, and the old one's clock, watcher, and laziness of the disk. */
void rig_crash(rig *r, const pd_store_config *config);
/* Asks for a checkpoint of step `step` or a later one, as rank 0 of the job on connection `conn`; or as an operator, if
 * `job` is not NULL. */
int rig_checkpoint(rig *r, const char *job, uint64_t conn, uint64_t step, double seconds);
int rig_note(rig *r, uint32_t rank, uint64_t conn, uint64_t step, const char *text);
int rig_recall(rig *r, uint32_t rank, uint64_t conn);
/* Asks for the tally of a step and phase, or with n > 0 tallies brings a verdict. Returns the code of the answer; PD_OK
 * if there is none yet. */
int rig_settle(rig *r, uint32_t rank, uint64_t conn, uint64_t step, uint32_t phase, const pd_tally_view *tallies,
               size_t n);
/* Asks for a drain as an operator on connection `conn`. Returns whether it was answered at once. */
bool rig_drain(rig *r, uint64_t conn, double seconds);
/* Makes a job from the disk of the rig `from`. Returns the code of the error, which is in r->error. */
int rig_restore(rig *r, const rig *from);
void rig_finish_task(rig *r, size_t i); /* runs task i, which lazy_tasks has kept, and returns it to the store */
/* Returns task i, which lazy_tasks has kept, to the store without a run, as if a newer task had replaced it. */
void rig_replace_task(rig *r, size_t i);

pd_ticket rig_ticket(rig *r, uint64_t conn);
/* Sends Hello on connection `conn`. `options` are written as "a=1 b=2" and `rules` as "rule;rule"; NULL: none.
 * Returns the answer's code. */
int rig_hello(rig *r, const char *job, uint32_t rank, uint32_t world, uint64_t nonce, uint64_t conn,
              const char *options, const char *rules);
/* Declares n parameters with these names and shapes, in the order `order` (NULL: ascending). Returns the answer's
 * code. */
int rig_declare(rig *r, uint32_t job, uint32_t rank, uint64_t conn, const char *const *names, const pd_shape *shapes,
                const uint32_t *order, size_t n, pd_dtype pull);
/* Sends a request without data as a rank: PD_REQ_LEAVE, PD_REQ_LOST, or PD_REQ_BARRIER with this number. Returns the
 * answer's code. */
int rig_ask_as(rig *r, pd_request_kind kind, uint32_t rank, uint64_t conn, uint64_t sequence);
/* Removes a rank from a job as an operator. Returns the answer's code. */
int rig_kick(rig *r, const char *job, uint32_t rank);
/* Declares one float32 parameter of r->job, of which the rank has this range of elements. */
int rig_declare_range(rig *r, uint32_t rank, uint64_t conn, const char *name, const pd_shape *shape, rig_range range);

typedef struct rig_frame rig_frame;
/* Makes an empty frame for initial weights (PD_REQ_INIT) or a push (PD_REQ_PUSH). rig_send or rig_request frees it. */
rig_frame *rig_frame_new(rig *r, pd_request_kind kind, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step);
/* Adds elements [first, first + count) of a parameter to a frame. `values` are float32, and are rounded to
 * `dtype`, or quantized. */
void rig_piece(rig_frame *frame, uint32_t param, pd_dtype dtype, int64_t first, int64_t count, const float *values);
void rig_absent(rig_frame *frame, uint32_t param);
void rig_last(rig_frame *frame); /* close_step: the frame ends the rank's step */
void rig_carried(
    rig_frame *frame); /* says that the gradient also has the data of the rank's last push, which was late */
void rig_patience(rig_frame *frame, uint64_t ms); /* says how long the rank can do without the answer */
void rig_weight(rig_frame *frame, double weight, bool presummed);
/* The frame is of a change by hand with this number: a push, or initial weights that replace those of its step, of
 * `whole` parameters. */
void rig_replaces(rig_frame *frame, uint64_t number, uint32_t whole);
void rig_share(rig_frame *frame, uint64_t share); /* the first share that a push is made of */
void rig_hyper(rig_frame *frame, const char *name, const char *value);
void rig_scalar(rig_frame *frame, const char *name, double value);
pd_request *rig_request(rig_frame *frame); /* returns the request of a frame, and frees the frame */
int rig_send(rig *r, rig_frame *frame);
/* Makes a payload buffer for requests of other kinds, as if the bytes had arrived on `conn`. *out receives the
 * buffer, which the request then owns. Returns the address of its bytes. */
void *rig_payload(rig *r, uint64_t conn, size_t bytes, pd_buffer **out);

/* Send a whole parameter of n elements, as initial weights or as a gradient, with one frame for each chunk. */
int rig_init(rig *r, uint32_t job, uint64_t conn, uint32_t param, const float *values, int64_t n);
int rig_push(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step, uint32_t param, const float *values,
             int64_t n);
/* Starts a job of `world` ranks on connections conn, conn + 1 ..., which also are the nonces. All ranks declare n
 * vectors p0, p1 ... of these sizes, and initialise them with rig_noise(7, ...). `rules` NULL: "* sgd lr=1". Returns
 * the job's number. */
uint32_t rig_start(rig *r, const char *job, uint32_t world, uint64_t conn, const int64_t *sizes, size_t n,
                   const char *options, const char *rules);
/* Fills `out` with numbers of very different sizes, so that their float32 sums depend on the order of summation. */
void rig_noise(uint64_t seed, float *out, int64_t n);
/* Returns the next number of a fixed pseudorandom sequence. */
uint64_t rig_random(uint64_t *state);
pd_info *rig_ask(rig *r, pd_info_what what, const char *job); /* gets a list, borrowed until the next one */

/* Set hyperparameters as an operator, written as "lr=0.1 momentum=". rig_set returns the answer's code, and r->set
 * holds the changes. */
pd_request *rig_set_request(rig *r, const char *job, const char *pattern, const char *options, uint64_t from_step);
int rig_set(rig *r, const char *job, const char *pattern, const char *options, uint64_t from_step);

/* Returns the version table's record of a parameter. */
const rig_entry *rig_versions(const rig *r, uint32_t job, uint32_t param);
/* Returns the published weights of a parameter as float32, borrowed until the next publication. */
const float *rig_weights(rig *r, uint32_t job, uint32_t param);

/* Returns a copy of a checkpoint, whose weights lie in memory of its own. NULL: out of memory. */
pd_checkpoint_image *checkpoint_copy(const pd_checkpoint_image *kept);

/* Returns a copy of a record, whose aggregates lie in memory of its own. NULL: out of memory. */
pd_wal_record *record_copy(const pd_wal_record *record);

#endif
