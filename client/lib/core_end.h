/* core_end.h - ends a client handle after an error, or drops its connection. */
#ifndef PD_CORE_END_H
#define PD_CORE_END_H

#include "core_state.h"

/* Ends the client handle (the user's pd_client) with this error. All waiting calls of the user end with the same error.
 * A call whose bytes are being sent ends when the sender has stopped using them, since they are the caller's memory. */
void pd_core_end(pd_core *core, const pd_error *error);
/* Asks the I/O thread to close the connection. `reason` becomes part of the error texts of calls that time out. */
void pd_core_drop(pd_core *core, const char *reason);

#endif
