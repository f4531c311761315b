/* answer.h - takes the server's answers. */
#ifndef PD_ANSWER_H
#define PD_ANSWER_H

#include "core_state.h"

/* Takes a frame whose payload is in place, as a callback of pd_framer; `arg` is the pd_core. */
int pd_core_frame(void *arg, const pd_prefix *prefix, const uint8_t *header);

#endif
