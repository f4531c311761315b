/* replace.h - sends weights that the program has changed by hand between two steps. */
#ifndef PD_REPLACE_H
#define PD_REPLACE_H

#include "core_state.h"

/* Sends weights that replace those of the server. The ticket is done when they are in force. */
int pd_core_replace(pd_core *core, const pd_item *items, size_t n, uint64_t number, pd_ticket_id *ticket,
                    pd_error *err);
/* On a new connection, sends the weights of a call that is under way once more, all of them: the server forgets those
 * of an earlier connection. PD_NO_MEMORY. */
int pd_replace_again(pd_core *core);

#endif
