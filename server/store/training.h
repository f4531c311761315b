/* training.h - the whole training state: what hangs where. Start reading the store here. Step thread.
 *
 *     pd_store ── pd_job ─┬─ pd_rank      one per rank: which process has it, what it holds
 *                         └─ pd_param ─┬─ pd_snapshot      weights
 *                                      ├─ pd_optim         optimizer and its state
 *                                      └─ pd_round ── pd_chunk ── pd_slot    who has contributed what
 *
 * A push is filed into slots (push.c); work.c sums chunks, steps parameters and publishes; what the loop thread is to know goes
 * into the outbox. */
#ifndef PD_TRAINING_H
#define PD_TRAINING_H

#include "job.h"
#include "override.h"
#include "store.h"

struct pd_store {
    pd_store_config config;
    pd_job_values     presets;
    pd_effects       outbox;
    pd_buffer_pools      shelves;
    pd_sums         sums;               /* of the batch being worked on */
    pd_collect_batch gathering;

    pd_job         *names, *numbers;    /* hash tables; numbers holds dropped jobs too until their tasks are back */
    uint32_t        n_jobs, last_number;
    pd_job         *due;                /* jobs with something to do, the one that was served longest ago first */
    uint64_t        turns;              /* batches so far */

    uint64_t        committed;          /* bytes counted against max_total_bytes */
    uint64_t        reserved;           /* sum of pd_rank.reserved over all jobs */
    uint64_t        n_ranks;            /* ranks of which that is not 0 */
    uint64_t        held;               /* bytes of frames not summed yet */
    bool            short_of_budget;    /* some connection waits until the whole budget has room */
    uint64_t        frames;             /* number of the last frame looked at: for marks */

    bool            draining;
    pd_request     *drain;              /* those who wait for it, linked by mail.next */
};

/* The job has something to do: it takes its turn. */
void pd_store_touch(pd_store *store, pd_job *job, uint64_t now_ns);
/* The reserves have grown: ranks of any job may be pressed now that were not. */
void pd_store_look_again(pd_store *store, uint64_t now_ns);
/* Job by number; NULL: none that is alive. */
pd_job *pd_store_job(const pd_store *store, uint32_t number);
/* By name; NULL: none. `name` may be NULL. */
pd_job *pd_store_find(const pd_store *store, const char *name);
/* Ends a job: waiters get `err`, its memory goes back (once its root tasks are). */
void pd_store_drop(pd_store *store, pd_job *job, const pd_error *err);
/* Keyed hash of a name. */
unsigned pd_store_hash(const pd_store *store, const char *name, size_t n);
/* Refuses a request: answers it with *err, frees it, sends its buffer home. Takes. */
void pd_store_refuse(pd_store *store, pd_request *request, const pd_error *err);
/* Frees an answered request, sends its buffer home. Takes. */
void pd_store_done(pd_store *store, pd_request *request);

/* declaration.c: one parameter as a rank declares it. */
/* The rule that it falls under; NULL: none. */
pd_rule *pd_declaration_rule(const pd_job *job, const pd_param_decl *decl);
/* By itself, number i of its set; gives its elements. PD_INVALID_ARGUMENT; PD_FAILED_PRECONDITION: no such updates. */
int  pd_declaration_check(const pd_job *job, const pd_param_decl *decl, size_t i, int64_t *elements, pd_error *err);
/* The declaration is that of `param` (NULL: the job has none of its name), and stands once in this frame, whose number marks it. PD_FAILED_PRECONDITION,
 * PD_INVALID_ARGUMENT. */
int  pd_declaration_match(const pd_job *job, pd_param *param, const pd_param_decl *decl, uint32_t rank, uint64_t frame, pd_error *err);
/* In the log: what the optimizers want known of the job's parameters. */
void pd_declarations_say(pd_job *job);

/* ranges.c: which rank has what of ranged parameters. */
/* The declaration's range lies in the parameter's elements. PD_INVALID_ARGUMENT. */
int  pd_range_check(const pd_param_decl *decl, int64_t elements, pd_error *err);
/* It fits to what this rank declared before, and to what the others have. PD_FAILED_PRECONDITION. */
int  pd_range_match(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank, pd_error *err);
/* Takes the ranges of a rank that declares for the first time. When it is the last rank every element must be in some range:
 * PD_FAILED_PRECONDITION, and nothing has changed. */
int  pd_ranges_take(pd_job *job, const pd_request *request, pd_error *err);
/* What was taken with this request is not known any more. */
void pd_ranges_give_back(pd_job *job, uint32_t rank);
/* The rank's largest frame: as much as one may hold, or every piece that it has. Of a parameter whose range is not known it has none. */
uint64_t pd_ranges_reserve(const pd_job *job, uint32_t rank);
/* The same of a Declare that was checked, before the job has parameters: of the rank that declares, or of any other one. */
uint64_t pd_ranges_reserve_declared(const pd_job *job, const pd_request *request, bool own);
/* reserve.c: ingest budget that a rank keeps. */
/* Checks that the budget holds the reserves of a whole world, `own` for one rank and `other` for each of the others, were there no other job.
 * PD_RESOURCE_EXHAUSTED. */
int  pd_reserve_check_world(const pd_job *job, uint64_t own, uint64_t other, pd_error *err);
/* Checks that there is room for the rank's reserve beside those of all others. PD_RESOURCE_EXHAUSTED. */
int  pd_reserve_check(const pd_job *job, const pd_rank *rank, uint64_t bytes, pd_error *err);
/* Takes the reserve of a rank that has declared. */
void pd_reserve_take(pd_job *job, pd_rank *rank, uint64_t bytes);
/* Gives back the reserve of a rank that has left, of all ranks of a job without workers, of a job whose parameters are gone. */
void pd_reserve_release(pd_job *job, pd_rank *rank);
void pd_reserve_release_all(pd_job *job);
void pd_reserve_forget(pd_job *job);
/* Counts the rank anew: its frames were summed, or its state has changed. */
void pd_reserve_settle(pd_job *job, pd_rank *rank);

/* planning.c: the first set of a job, in slices: job->planning. */
/* Checks the set before anything is made of it, then begins. Takes the time off the budget. PD_INVALID_ARGUMENT, PD_FAILED_PRECONDITION,
 * PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY; after an error pd_job_forget_set. */
int  pd_planning_begin(pd_job *job, const pd_request *request, double *budget_ns, pd_error *err);
/* Goes on for about as long as the budget says. False: there is more to do. True: the job has its parameters, or *rc says why not; after an error
 * pd_job_forget_set. */
bool pd_planning_run(pd_job *job, const pd_request *request, double *budget_ns, int *rc, pd_error *err);
/* Ends the planning. Parameters made so far belong to the job then, as those of a finished set do. Does nothing where none is under way. */
void pd_planning_free(pd_job *job);

/* declare.c: bytes counted against max_total_bytes. */
/* Checks that so many more fit. PD_RESOURCE_EXHAUSTED. */
int  pd_job_check_total(const pd_job *job, uint64_t more, pd_error *err);
void pd_job_commit(pd_job *job, uint64_t bytes);
/* Checks that there is room for the ranges that the rank has declared: ingest budget, and bytes. */
int  pd_job_check_ranges(const pd_job *job, uint32_t rank, pd_error *err);

/* A parameter in a hash table of names; NULL: there is none. */
pd_param *pd_param_named(const pd_store *store, pd_param *names, const char *name);
/* The parameter that declaration i of a Declare names; NULL: the job has none such. Quick where the ranks declare in the same order. */
pd_param *pd_declared_param(const pd_job *job, const pd_request *request, size_t i);
/* By name; NULL: the job has no such parameter. */
pd_param *pd_job_param(const pd_job *job, const char *name);

/* init.c: initial weights. */
/* Takes them out of the inbox. */
void pd_job_take_init(pd_job *job, pd_request *frame);
/* The same where initial weights are averaged: they are filed into the parameter's round. Takes. */
void pd_job_file_init(pd_job *job, pd_request *frame, uint64_t now_ns);
/* What stands of initial weights is their mean. */
bool pd_job_averages_init(const pd_job *job);
/* The mean is there: it becomes param->next. PD_NO_MEMORY: nothing has changed. */
int  pd_job_take_mean(const pd_job *job, pd_param *param);
/* The parameter has weights, or all that the rank has to give of them. */
bool pd_param_initialised(const pd_job *job, const pd_param *param, uint32_t rank);
/* The rank has to give initial weights of this parameter, and has not. */
bool pd_job_owes_init(const pd_job *job, const pd_param *param, uint32_t rank);
/* This rank is asked for initial weights. */
bool pd_job_asks_init(const pd_job *job, uint32_t rank);
/* Publishes the parameter if its initial weights are complete: writes *closed. */
bool pd_job_publish_landed(pd_job *job, pd_param *param, pd_closed *closed);

/* push.c: of frames with data. */
/* The rank may send such. */
int  pd_frame_may_come(pd_job *job, const pd_request *frame, pd_error *err);
void pd_frame_refuse(pd_job *job, pd_request *frame, const pd_error *err);      /* takes */
/* Ends a frame of which nothing is held (any more). Takes. */
void pd_frame_finish(pd_job *job, pd_request *frame);
/* A piece's parameter. NULL: there is none of that number; err says so. */
pd_param *pd_piece_param(const pd_job *job, const pd_piece *piece, pd_error *err);
/* A piece that is not empty: its chunk. */
pd_chunk *pd_piece_chunk(const pd_param *param, const pd_piece *piece);
/* The piece is one of those that the rank's range is cut into, and has data. */
int  pd_piece_check(const pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err);
/* No piece twice, and not both gradient and absence, within the frame of that number. */
int  pd_piece_check_once(pd_param *param, const pd_piece *piece, uint64_t number, pd_error *err);

/* weight.c */
/* Checks that a process weighs all that it gives to a parameter's open round alike. A process that has taken the rank over may bring a weight of its own
 * for the chunks that are still missing. PD_INVALID_ARGUMENT: names both weights. */
int  pd_weight_check(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err);
/* Remembers the weight of a piece that was checked and filed, of a rank that contributes to the parameter. */
void pd_weight_keep(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame);

/* roots.c: what is known of the roots of the plan's tasks. */
/* Memory for what the log has said of them. PD_NO_MEMORY. */
int  pd_roots_prepare(pd_param *param);
/* After a batch: what the log is to say of roots that have failed or are good again. */
void pd_roots_watch(pd_job *job, pd_param *param);
/* For operators: one root, the parameter's together. */
void pd_roots_fill(pd_root_info *info, const pd_param *param, size_t task);
void pd_roots_of_param(pd_param_info *info, const pd_param *param);

/* drain.c */
/* Takes a PD_REQ_DRAIN. From now on no round begins beyond the step that its job is at. */
void pd_store_drain(pd_store *store, pd_request *request, uint64_t now_ns);
/* Answers the drains that are over: every round that can close has, or the deadline has passed (PD_DEADLINE_EXCEEDED, naming an open round). */
void pd_store_answer_drain(pd_store *store, uint64_t now_ns);

/* set.c: answers a PD_REQ_SET. Takes. */
void pd_store_set(pd_store *store, pd_request *request);

/* push.c: the name of one of these hyperparameters that may not change from step to step; NULL: all may. */
const char *pd_fixed_hyper(const pd_row *row, uint64_t mask);

/* info.c: answers a PD_REQ_INFO. Takes. */
void pd_store_info(pd_store *store, pd_request *request);

#endif
