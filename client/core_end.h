/* core_end.h - ends a handle, or its connection. */
#ifndef PD_CORE_END_H
#define PD_CORE_END_H

#include "core_state.h"

/* Ends the handle with this error. All unfinished operations end with the same error. If bytes of an operation are
 * being sent, the operation ends after that. */
void pd_core_end(pd_core *core, const pd_error *error);
/* Asks the I/O thread to close the connection. `reason` goes into errors of calls that time out. */
void pd_core_drop(pd_core *core, const char *reason);

#endif
