/* core_end.h - the end of a handle, and of a connection. */
#ifndef PD_CORE_END_H
#define PD_CORE_END_H

#include "core_state.h"

/* Ends the handle: every operation ends with this error. An operation whose bytes are being sent ends when the sender
 * gives them back. */
void pd_core_end(pd_core *core, const pd_error *error);
/* Asks for the end of the connection. */
void pd_core_drop(pd_core *core, const char *reason);

#endif
