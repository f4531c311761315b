/* effect_handlers.h - handles effects: answers requests, publishes rounds, ends
 * connections. */
#ifndef PD_EFFECT_HANDLERS_H
#define PD_EFFECT_HANDLERS_H

#include "loop.h"

/* Handles an effect and frees it. Returns false if the turn's time ended before that was finished. Then the caller
 * keeps the effect and calls again in a later turn. */
bool pd_effect_handle(pd_daemon *daemon, pd_effect *effect, uint64_t until_ns);

#endif
