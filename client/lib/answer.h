/* answer.h - handles an answer of the server when all its bytes are there. */
#ifndef PD_ANSWER_H
#define PD_ANSWER_H

#include "core_state.h"

/* Handles a received answer, whose payload is already in its final memory. A pd_framer (the splitter of received
 * bytes into frames) calls this function; `arg` is the pd_core. */
int pd_core_frame(void *arg, const pd_prefix *prefix, const uint8_t *header);

#endif
