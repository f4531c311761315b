/* replaced.h - what is known of weights that were changed by hand: the number of the change, which pushes bring. */
#ifndef PD_REPLACED_H
#define PD_REPLACED_H

#include "core_state.h"

/* Notes that the weights of a call (replace.h) are in force. */
void pd_replace_done(pd_core *core, const pd_op *op);
/* Returns the number that the next push of a parameter brings: `given` by the program, or, if that is 0, the one of the
 * weights that this process has sent or received last. */
uint64_t pd_replace_number(const pd_param_record *known, uint64_t given);
/* Forgets which versions of the weights the caller's buffer has: they were changed. */
void pd_replace_forget_versions(pd_param_record *known);
/* Takes over what the server has declared of a parameter whose weights this process receives next. */
void pd_replace_begin(pd_param_record *known);
/* Returns whether the server has gone back to a state without weights that this process has replaced: only the program
 * can replace them again. */
bool pd_replace_is_lost(const pd_core *core, const pd_param_record *known);

#endif
