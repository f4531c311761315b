/* answer.h - receives the server's answers: chooses the memory for their payload, stores results, and ends calls. */
#ifndef PD_ANSWER_H
#define PD_ANSWER_H

#include "core.h"

/* Handles a received answer, whose payload is already in its final memory. A pd_framer calls this function; `arg` is
 * the pd_core. */
int pd_core_frame(void *arg, const pd_prefix *prefix, const uint8_t *header);

/* Takes the header of an answer and returns the memory that receives its payload. A pd_framer calls this function
 * before it reads the payload; `arg` is the pd_core. */
int pd_core_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n);

/* Copies the weights that the answer has in shared memory to the caller's buffers. Called after pd_core_header and
 * before pd_core_frame, without a lock. The weights stay unchanged as long as the connection is open. */
void pd_core_copy(pd_core *core);

/* Ends an operation that has an error, without waiting for its other answers. Items without an answer get the same
 * error. The user may push them again: the server has kept the gradients that it received, so it answers at once. */
void pd_core_abandon(pd_core *core, pd_op *op);

/* Notes the durable step that an answer tells, and from which step on all steps up to it are within reach. An answer
 * that tells an earlier step than one before it changes nothing: the server may not tell newer steps for a while.
 * Returns whether the step is new. */
bool pd_core_note_durable(pd_core *core, uint64_t step, uint64_t unbroken);
/* Notes up to which step the server's mirror has the job (DataReply.mirrored). */
void pd_core_note_mirrored(pd_core *core, const Paramd__DataReply *reply);
/* Notes what an answer says of the members of the job. */
void pd_core_note_members(pd_core *core, const Paramd__DataReply *reply);

#endif
