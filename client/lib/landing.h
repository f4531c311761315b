/* landing.h - decides where the payload of an answer is received: in the caller's weights, in a buffer, or nowhere. */
#ifndef PD_LANDING_H
#define PD_LANDING_H

#include "core_state.h"

/* Takes the header of an answer and returns the memory that receives its payload. A pd_framer (the splitter of
 * received bytes into frames) calls this function before it reads the payload; `arg` is the pd_core. */
int pd_core_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n);

/* Copies the weights that the answer has in shared memory to the caller's buffers. Called after pd_core_header and
 * before pd_core_frame, without a lock. The weights stay unchanged as long as the connection is open. */
void pd_core_copy(pd_core *core);

/* Returns whether answers to this method carry the outcomes of rounds, for instance "step taken" or "skipped". */
bool pd_landing_has_outcomes(unsigned method);

#endif
