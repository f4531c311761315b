/* replay_google.h - computes recorded cases of the functions of Google's Shampoo and compares them with the record.
 * All functions return PD_OK or an error of pd_replay_routine. */
#ifndef PD_REPLAY_GOOGLE_H
#define PD_REPLAY_GOOGLE_H

#include "replay_case.h"

int pd_judge_inverse_pth_root(pd_case *c);
int pd_judge_power_iteration(pd_case *c);
int pd_judge_quantized_value(pd_case *c);
int pd_judge_symmetric_matrices(pd_case *c);

#endif
