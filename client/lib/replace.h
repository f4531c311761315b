/* replace.h - weights that the program changes by hand between two steps: sends them, and keeps the number of the
 * change, which pushes bring. */
#ifndef PD_REPLACE_H
#define PD_REPLACE_H

#include "core.h"

/* Sends weights that replace those of the server. The ticket is done when they are in force. */
int pd_core_replace(pd_core *core, const pd_item *items, size_t n, uint64_t number, pd_ticket_id *ticket,
                    pd_error *err);
/* On a new connection, sends the weights of a call that is under way once more, all of them: the server forgets those
 * of an earlier connection. PD_NO_MEMORY. */
int pd_replace_again(pd_core *core);

/* Notes that the weights of a call (replace.h) are in force. */
void pd_replace_done(pd_core *core, const pd_op *op);
/* Returns the number that the next push of a parameter brings: `given` by the program, or, if that is 0, the one of the
 * weights that this process has sent or received last. */
uint64_t pd_replace_number(const pd_param_record *record, uint64_t given);
/* Takes over what the server has declared of a parameter whose weights this process receives next. */
void pd_replace_begin(pd_param_record *record);
/* Returns whether the server has gone back to a state without weights that this process has replaced: only the program
 * can replace them again. */
bool pd_replace_is_lost(const pd_core *core, const pd_param_record *record);

#endif
