/* renew.h - changes requests for another connection than the one that they were made for. */
#ifndef PD_RENEW_H
#define PD_RENEW_H

#include "core_state.h"

/* Changes those fields of a request's header that belong to one connection or to one server: `mark` becomes that of the
 * last error of the present connection, and if `forget` is set, `holds` (versions of weights that the worker has)
 * becomes 0. All else stays byte for byte. Resets the core's arena. PD_NO_MEMORY: the frame is as it was. */
int pd_renew(pd_core *core, pd_outgoing_frame *frame, bool forget);
/* Does the same with all queued requests that need it. */
int pd_renew_all(pd_core *core, bool forget);

#endif
