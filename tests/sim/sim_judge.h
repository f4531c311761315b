/* sim_judge.h - what the server publishes and what workers are told: are the weights right, whole, and in order? */
#ifndef SIM_JUDGE_H
#define SIM_JUDGE_H

#include "sim.h"
#include "store.h"

/* The server has started anew: job numbers mean nothing any more; and the job that had one number has another one now. Its parameters are reported
 * once more. */
void sim_judge_forget_numbers(sim *s);
void sim_judge_renumber(sim *s, uint32_t before, uint32_t now);
/* An effect leaves the store. */
void sim_judge_effect(sim *s, pd_store *store, const pd_effect *effect);
/* A worker got elements [first, first + n) of a parameter at this version: they are those of one publication. */
void sim_judge_weights(sim *s, const sim_job *job, uint32_t param, uint64_t version, const float *weights,
                       int64_t first, int64_t n);
/* At the end of a run: all that was published follows from the contributions, each counted once. */
void sim_judge_all(sim *s);
void sim_judge_free(sim *s);

/* ---- what workers contribute: functions of job, rank, step and parameter alone ---- */
/* False: this rank has no gradient of the parameter in this step. */
bool   sim_has_gradient(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param);
/* Small integers; `finite` false: where the plan says so, one of them is infinite. */
void   sim_gradient(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param, bool finite, float *out);
bool   sim_gradient_is_infinite(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param);
double sim_weight(const sim_job *job, uint32_t rank, uint64_t step);
/* Initial weights that a process gives; `process` marks each element by who it comes from. */
void   sim_initial(const sim_job *job, uint32_t rank, uint64_t process, uint32_t param, float *out);
/* Elements that the rank has of a parameter. */
void   sim_range(const sim_job *job, const sim_param *param, uint32_t rank, int64_t *start, int64_t *end);

#endif
