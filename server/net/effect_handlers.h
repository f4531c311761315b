/* effect_handlers.h - handles the effects of the step thread: answers requests, publishes rounds, ends connections. */
#ifndef PD_EFFECT_HANDLERS_H
#define PD_EFFECT_HANDLERS_H

#include "loop.h"

/* Takes an effect and handles it. False: the time is up before the effect is finished; the caller keeps it and calls
 * again later. */
bool pd_effect_handle(pd_daemon *daemon, pd_effect *effect, uint64_t until_ns);

#endif
