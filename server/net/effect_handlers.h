/* effect_handlers.h - handles the effects that the step thread sends: answers requests, publishes rounds, ends
 * connections. */
#ifndef PD_EFFECT_HANDLERS_H
#define PD_EFFECT_HANDLERS_H

#include "loop.h"

/* Handles an effect and frees it. Returns false if the turn's time ended before the effect was finished. Then the
 * caller keeps the effect and calls again later. */
bool pd_effect_handle(pd_daemon *daemon, pd_effect *effect, uint64_t until_ns);

#endif
