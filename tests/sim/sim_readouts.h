/* sim_readouts.h - checks the weights to evaluate with that workers and operators get: they must be those that the
 * undisturbed twin of the job has after the same step. */
#ifndef SIM_READOUTS_H
#define SIM_READOUTS_H

#include "rig.h"
#include "sim_history.h"

/* Keeps elements [first, first + n) of the weights that somebody got to evaluate with, after a step of a job that
 * averages (sim_averages). `creator`: the process that has begun the job; 0: it is not known, and they are kept only if
 * the job was begun once. */
void sim_readouts_keep(sim *s, const sim_job *job, uint64_t creator, uint32_t param, uint64_t step,
                       const float *weights, int64_t first, int64_t n);
/* Writes the weights to evaluate with that a parameter of a twin has now. */
void sim_readouts_of_twin(rig *twin, const sim_job *job, uint32_t param, float *out);
/* Checks the kept weights of a parameter after a step. Each element must be that of the twin after the step, or after
 * the workers have also changed the weights by hand. */
void sim_readouts_check(const sim_history *h, uint32_t param, uint64_t step, const float *stepped,
                        const float *replaced);
void sim_readouts_free(sim_history *h);

#endif
