/* job.h - one model in training: its configuration, its workers, its parameters. Who belongs to it, and what is there to do?
 * Step thread. */
#ifndef PD_JOB_H
#define PD_JOB_H

#include "effects.h"
#include "param.h"

struct pd_store;

typedef enum pd_rank_state { PD_RANK_ABSENT, PD_RANK_CONNECTED, PD_RANK_LOST, PD_RANK_LEFT } pd_rank_state;

enum { PD_SUPERSEDED = 4 };

/* A rank and the process that has it. */
typedef struct pd_rank {
    pd_rank_state state;
    uint64_t    conn, nonce;            /* of the process that has it, or had it last */
    uint16_t    process;                /* number of processes that have had this rank; a slot notes it to tell them apart */
    char        label[128], reason[96]; /* "host:pid"; LOST: why */
    uint64_t    since_ns;               /* LOST, LEFT: when */
    bool        declared;               /* on this connection */
    bool        sealed;                 /* some process at this rank has declared: its ranges stand */
    uint64_t    refused_sets;           /* declarations of this process that were refused */
    uint64_t    reserve;                /* its largest frame; 0: the rank has not declared */
    uint64_t    reserved;               /* bytes of ingest budget counted for the rank now: reserve.c */
    bool        released;               /* the rank has gone and keeps no more of its reserve than its frames take */
    uint64_t    held;                   /* bytes of its frames that are not summed yet */
    bool        stalled;                /* its connection waits for memory, and it holds some */
    uint64_t    superseded[PD_SUPERSEDED]; uint32_t n_superseded;       /* nonces of processes that others took the rank from: the last few */
    uint64_t    initialiser;            /* nonce of the process whose initial weights came last, where these are averaged */
    uint64_t    step, contributions;    /* highest step contributed to; gradients of chunks taken */
    pd_request *barrier;                /* waits for the others, or NULL */
    uint64_t    barrier_base;           /* barriers that the job had passed when this process came: it counts its own from 1 */
} pd_rank;

/* Sums over the parameters, for operators: listing.h. */
typedef struct pd_job_totals {
    const pd_param *params; uint32_t n; /* of which parameters, */
    uint64_t    changes;                /* and as they were after so many changes of the job */
    uint64_t    elements, state_bytes, step_least, step_most;
    uint64_t    roots_due, roots_adopted, roots_failed, roots_replaced, root_waits;
} pd_job_totals;

typedef struct pd_listing pd_listing;

typedef struct pd_job {
    UT_hash_handle hh, hh_number;       /* store->names (until dropped), store->numbers */
    struct pd_store *store;
    char       *name;
    uint32_t    number, world;
    uint64_t    name_hash;
    uint64_t    creator;                /* nonce of the process whose Hello created it */
    pd_job_values values;
    pd_rule    *rules;      size_t n_rules;         /* the last is that of model state */
    pd_rank    *ranks;                  /* world */
    uint32_t    connected;              /* of them: connected now */
    bool        gone;                   /* dropped; waits for its root tasks to come back */

    pd_param   *params;     uint32_t n_params;      /* none before the first Declare was answered */
    pd_param   *names;                  /* hash table of params */
    pd_chunk   *chunks;                 /* of all parameters, behind one another */
    pd_slot    *slots;
    pd_range   *ranges;                 /* of all ranged parameters, behind one another */
    uint32_t    n_settings;             /* by operators: setting.h */
    uint64_t    held;                   /* bytes of its frames that are not summed yet */
    uint64_t    changes;                /* batches of work, tasks and commands that may have changed its parameters */
    pd_job_totals totals;               /* as they were counted last */
    pd_listing *listing;                /* the list that was asked for last; NULL: none */
    uint64_t    committed;              /* bytes counted against max_total_bytes; */
    uint64_t    gathered;               /* of them: for what ranks with ranges may leave behind */

    pd_request *declares, *declares_last;       /* Declares that are not answered yet, linked by mail.next; the first of them is */
    struct pd_planning *planning;       /* the first set, while it is planned; n_params is 0 until it is finished. NULL: none is */
    pd_request *inbox, *inbox_last;     /* frames that need arithmetic before they are taken: Init, and Push under nonfinite = reject */
    pd_chunk   *complete, *partial;     /* chunks to sum: every rank has been heard of; ranks in order have */
    pd_chunk   *full, *loose;           /* of parameters that gather: every rank has been heard of; somebody is missed, frames are held */
    pd_param   *merging;                /* parameters of which all contributions to their Adasum are there; linked as job->ready */
    pd_param   *waiting, *ready;        /* see pd_param */
    struct pd_step_group *groups;            /* by rule; together.h */
    struct pd_global_clip *norm;               /* its parameters are clipped together; NULL: they are not. norm.h */
    uint32_t    n_held;                 /* parameters that wait for the others, where the job steps as a whole */
    bool        look, look_loose;       /* something was filed since partial, resp. loose chunks were last looked at */
    uint32_t    n_open;                 /* rounds open */
    uint64_t    retry_ns;               /* memory was short: not before then; 0: no */
    pd_param  **batch;                  /* room for n_params: steps of one batch, */
    pd_optim  **optims;                 /* and the optimizers that run in it */
    struct pd_job *prev_due, *next_due; /* store->due: jobs with something to do */
    bool        queued;                 /* stands there */
    uint64_t    turn;                   /* number of the last batch it had */

    struct pd_import *import;           /* optimizer state on its way into the job; NULL: none */
    uint64_t    barrier;                /* barriers passed */
    uint64_t    linger_ns;              /* when it ends because nobody is there; 0: somebody is */
    uint64_t    noticed_ns;             /* when overdue rounds were last reported; 0: never */
    uint64_t    init_ns;                /* since when initial weights are waited for: the first Declare, the last weights or report */
    uint32_t    n_begun;                /* parameters that have weights */
    const pd_param *noticed; uint64_t noticed_step;     /* which one the log has named */
    uint64_t    drain_step;             /* draining: the highest step that still closes */
    uint32_t    tasks_out;              /* root tasks not back */
    pd_effect  *farewell, *notice;      /* memory for JOB_GONE, and for a report that memory is short */
    uint64_t    contributions, steps, skipped, refused, duplicates;
    uint64_t    refused_steps;          /* rounds that closed without a step, since an optimizer refused it */
    uint64_t    skipped_whole;          /* steps of all parameters skipped because of one */
} pd_job;

/* Rounds that count as closed before the first one. */
static inline uint64_t pd_job_start_step(const pd_job *job) { return job->values.at[PD_JOB_KEY_START_STEP]; }

/* Creates a job as the Hello describes it. Gives *out, in no table yet. PD_INVALID_ARGUMENT, PD_NO_MEMORY. */
int  pd_job_new(pd_job **out, struct pd_store *store, const pd_request *hello, pd_error *err);
/* All contributions released (pd_job_release), all root tasks back. Accepts NULL. */
void pd_job_free(pd_job *job);
/* PD_FAILED_PRECONDITION: the Hello describes another job of this name; names the key and both values. PD_INVALID_ARGUMENT. */
int  pd_job_agrees(const pd_job *job, const pd_request *hello, pd_error *err);

/* Hello: the process takes its rank. The one that had it is told. Takes the request. */
void pd_job_join(pd_job *job, pd_request *hello, bool created);
/* The rank that speaks, or NULL: superseded, gone, or nonsense; *err says which. */
pd_rank *pd_job_speaker(pd_job *job, const pd_request *request, pd_error *err);
void pd_job_lost(pd_job *job, const pd_request *request, uint64_t now_ns);
/* The rank's connection waits for memory: what the rank holds, or where the whole budget is used what all hold, is summed early. Takes. */
void pd_job_stalled(pd_job *job, pd_request *request, uint64_t now_ns);
/* A process that was superseded at its rank stays out: PD_ABORTED. */
int  pd_job_admits(const pd_job *job, const pd_request *hello, pd_error *err);
void pd_job_leave(pd_job *job, pd_request *request, uint64_t now_ns);       /* takes */
void pd_job_barrier(pd_job *job, pd_request *request);                      /* takes */

/* declare.c */
/* Takes the request: answers it at once where that takes little time, else in pd_job_declare_some. */
void pd_job_declare(pd_job *job, pd_request *request, uint64_t now_ns);
/* Works at the Declares that wait, for about so long. */
void pd_job_declare_some(pd_job *job, double budget_ns, uint64_t now_ns);
/* The job ends: all of them get `err`, and what is planned so far is forgotten. */
void pd_job_refuse_declares(pd_job *job, const pd_error *err);
bool pd_job_sealed(const pd_job *job);
void pd_job_forget_set(pd_job *job);        /* frees the parameters and what was counted for them */

/* push.c: Push and Init. Take the request. */
void pd_job_push(pd_job *job, pd_request *request, uint64_t now_ns);
void pd_job_init(pd_job *job, pd_request *request, uint64_t now_ns);
/* The parameter has weights to step. */
int  pd_push_check_weights(const pd_job *job, const pd_param *param, pd_error *err);
/* May a contribution be to this step, which the parameter has not closed? Files that a rank has no gradient; false: it has said so before. */
int  pd_push_check_step(const pd_job *job, const pd_param *param, uint64_t step, pd_error *err);
bool pd_push_file_absent(pd_job *job, pd_param *param, uint32_t rank, uint64_t now_ns);
/* last.c: a push that ends its rank's step. Of frame `number`, whose own pieces are marked. Then what they left out is filed; or remembers of
 * a push that is refused what came in vain. */
int  pd_close_step_check(const pd_job *job, const pd_request *frame, uint64_t number, pd_error *err);
void pd_close_step_file(pd_job *job, const pd_request *frame, uint64_t now_ns);
void pd_close_step_note_refusal(pd_job *job, const pd_request *frame);
/* The frames in the inbox: scanned or copied, then taken or refused. */
void pd_job_take_inbox(pd_job *job, uint64_t now_ns);
/* Files a rank's contribution into an empty slot of its chunk: what it is part of may be summed then. */
void pd_job_file_slot(pd_job *job, pd_chunk *chunk, uint32_t rank, pd_slot slot, uint64_t now_ns);
/* A rank's range has become known while the parameter's round was open: chunks that do not wait for it may be summed. */
void pd_job_list_chunks(pd_job *job, pd_param *param);
/* Takes a chunk out of the list of chunks to sum that it stands in, if any. */
void pd_job_unlist_chunk(pd_job *job, pd_chunk *chunk);
/* All of a frame is filed: its record stays as long as something of its buffer is held. Takes. */
void pd_job_keep(pd_job *job, pd_request *frame);
/* One piece of a frame is done with; the last sends its buffer home. */
void pd_job_let_go(pd_job *job, pd_request *frame);

/* work.c: one batch: the inbox, sums, steps. */
/* Puts a parameter into job->ready. */
void pd_job_ready(pd_job *job, pd_param *param, pd_stage stage);
void pd_job_work(pd_job *job, uint64_t now_ns);
/* The rank's share of ingest memory is nearly used: what it holds is to be let go of as early as may be. So it is of some rank. */
bool pd_rank_is_over_quota(const pd_job *job, const pd_rank *rank);
bool pd_job_is_over_quota(const pd_job *job);
bool pd_job_has_work(const pd_job *job, uint64_t now_ns);
/* A root task is back. */
void pd_job_task(pd_job *job, pd_request *request, uint64_t now_ns);

/* end.c */
/* What waits is answered or released, buffers go home, waiters get `err`; nothing of it is used any more. */
void pd_job_release(pd_job *job, const pd_error *err);
/* Reports overdue rounds and says when to look next (UINT64_MAX: never). */
void pd_job_tick(pd_job *job, uint64_t now_ns);
uint64_t pd_job_next_tick(const pd_job *job);

#endif
