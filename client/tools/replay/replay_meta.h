/* replay_meta.h - judges recorded cases of inverse roots of Meta's Shampoo. Codes as pd_replay_routine has them. */
#ifndef PD_REPLAY_META_H
#define PD_REPLAY_META_H

#include "replay_case.h"

int pd_judge_meta_root(pd_case *c);
int pd_judge_meta_retry(pd_case *c);

#endif
