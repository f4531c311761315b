/* rewind.h - the server has gone back to an earlier step: it was started anew from a checkpoint. */
#ifndef PD_REWIND_H
#define PD_REWIND_H

#include "core_state.h"

/* Returns whether the server has no weights of a parameter that had some. Then its job is not the one that this process
 * knows. */
bool pd_core_lacks_weights(const pd_core *core);
/* Returns whether the server has closed fewer rounds of a parameter than this process has seen. */
bool pd_core_is_behind(const pd_core *core);
/* Returns the parameter of which the server lacks most steps. */
const pd_param_record *pd_core_furthest_behind(const pd_core *core);
/* Ends the client handle with PD_REWIND, because the server has gone back. `why`: why the window did not help, as the
 * rest of a sentence, or "". */
void pd_core_go_back(pd_core *core, const char *why);
/* Ends the client handle likewise if the window does not reach back to the server's steps. Returns whether it does. */
bool pd_core_window_helps(pd_core *core);
/* Opens a client handle that ended with PD_REWIND: connects again as the same process, and takes over the server's
 * steps. The ticket is done when the server has accepted the parameters. PD_FAILED_PRECONDITION: the server has not
 * gone back. If the handle has ended with another error, returns that error. */
int pd_core_rewind(pd_core *core, pd_ticket_id *ticket, pd_error *err);

#endif
