/* replay_kron.h - computes recorded cases of distributed_kron's functions and compares them with the record. All
 * functions return PD_OK or an error of pd_replay_routine. */
#ifndef PD_REPLAY_KRON_H
#define PD_REPLAY_KRON_H

#include "replay_case.h"

int pd_judge_kron_norm(pd_case *c);
int pd_judge_kron_update(pd_case *c);
int pd_judge_kron_probability(pd_case *c);
int pd_judge_jax_threefry(pd_case *c);

#endif
