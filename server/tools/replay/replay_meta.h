/* replay_meta.h - computes recorded inverse roots of Meta's Shampoo and compares them with the record. All
 * functions return PD_OK or an error of pd_replay_routine. */
#ifndef PD_REPLAY_META_H
#define PD_REPLAY_META_H

#include "replay_case.h"

int pd_judge_meta_root(pd_case *c);
int pd_judge_meta_retry(pd_case *c);

#endif
