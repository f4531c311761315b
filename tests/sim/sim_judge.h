/* sim_judge.h - checks the weights that the server publishes and that workers and operators get: they must be
 * correct, complete, and in order. */
#ifndef SIM_JUDGE_H
#define SIM_JUDGE_H

#include "sim.h"
#include "store.h"

/* Follow a restart of the server, which gives jobs new numbers. The first function marks all known numbers as old.
 * The second one gives the job of an old number its new number, and expects the server to report its parameters once
 * more. */
void sim_judge_forget_numbers(sim *s);
void sim_judge_renumber(sim *s, uint32_t before, uint32_t now);
/* Follows a server that was killed and started again, after sim_judge_forget_numbers. The new server's jobs may be at
 * older steps, but not older than what was reported as durable. From there on each step must have the weights and the
 * outcome that it had before. */
void sim_judge_restored(sim *s, pd_store *store);
/* Keeps the steps that a server which is about to be killed has closed and told nobody of. */
void sim_judge_keep_withheld(sim *s, pd_store *store);
/* Notes that the disk does not have all that tells the course of this job's steps: each of them may get other weights
 * when it is taken next, but not if it is repeated once more after that. */
void sim_judge_loosen(sim *s, uint32_t number);
/* Returns whether sim_judge_loosen was called for the job. */
bool sim_judge_is_loose(const sim *s, const sim_job *job);
/* Returns the last step at which the job went on with another number of workers; 0: it never did. */
uint64_t sim_judge_changed(const sim *s, const sim_job *job);
/* Notes that the end of a job is on the disk: from now on it must not come back. */
void sim_judge_end_kept(sim *s, uint32_t number);
/* Returns whether the job that the process `creator` has begun is later than that of another process. */
bool sim_judge_is_later(const sim *s, uint64_t creator, uint64_t other);
/* Checks an effect of the store: published weights enter the job's history. */
void sim_judge_effect(sim *s, pd_store *store, const pd_effect *effect);
/* Checks elements [first, first + n) of a parameter's weights that a worker got at this version. They must equal one
 * publication of the version. */
void sim_judge_weights(sim *s, const sim_job *job, uint32_t param, uint64_t version, const float *weights,
                       int64_t first, int64_t n);
/* Checks elements [first, first + n) of a parameter's weights that an operator exported at this step. They must
 * equal the weights that the parameter had when the step was closed. */
void sim_judge_exported(sim *s, const sim_job *job, uint32_t param, uint64_t step, const float *weights, int64_t first,
                        int64_t n);
/* Checks at the end of a run that all published weights follow from the contributions, each counted once. */
void sim_judge_all(sim *s);
void sim_judge_free(sim *s);

/* Hashes of the published weights of each job and parameter, by version; 0: there was none. */
typedef struct sim_digest {
    uint64_t version[SIM_JOBS][SIM_PARAMS][SIM_MOST_STEPS + 1];
    uint32_t begun[SIM_JOBS]; /* how often the job was begun */
    bool usable;              /* no allocation failed */
} sim_digest;

/* Computes the digest of a run, at its end. */
void sim_judge_digest(const sim *s, sim_digest *out);
/* Checks that two runs of a plan, with and without shared memory, published the same bits. Jobs are left out that began
 * more than once, with weights of other processes, or with root_delay = ready. Returns how many versions were compared.
 * */
uint64_t sim_judge_compare(const sim_plan *plan, const sim_digest *a, const sim_digest *b);

/* What workers contribute: functions of job, rank, step and parameter alone. If the job's resizes, each rank
 * contributes the same. */

/* Returns whether this rank has a gradient of the parameter in this step. */
bool sim_has_gradient(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param);
/* Returns whether the rank ends the step with close_step: it then pushes only what it has a gradient of. */
bool sim_rank_closes(const sim_job *job, uint32_t rank, uint64_t step);
/* Writes a gradient of small integers. Unless `finite` is true, one element is infinite if sim_gradient_is_infinite. */
void sim_gradient(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param, bool finite, float *out);
/* Returns the number of the change that the workers make by hand to their weights after a step; 0: they make none. */
uint64_t sim_replaces(const sim_job *job, uint64_t step);
/* Returns whether they change this parameter, and writes the weights that it gets. The first whole one is changed. */
bool sim_is_replaced(const sim_job *job, uint64_t step, uint32_t param);
void sim_replacement(const sim_job *job, uint64_t step, uint32_t param, float *out);
/* Returns element i of the gradient, which is finite. */
float sim_gradient_at(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param, int64_t i);
bool sim_gradient_is_infinite(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param);
double sim_weight(const sim_job *job, uint32_t rank, uint64_t step);
/* Writes the initial weights that a process sends. Elements carry a mark of the process, so that weights of
 * different processes differ. */
void sim_initial(const sim_job *job, uint32_t rank, uint64_t process, uint32_t param, float *out);
/* Computes the range of elements of a parameter that the rank has: [*start, *end). */
void sim_range(const sim_job *job, const sim_param *param, uint32_t rank, int64_t *start, int64_t *end);

#endif
