/* reply.h - unpacks the server's replies, and ends the handle when one of them breaks the protocol. */
#ifndef PD_REPLY_H
#define PD_REPLY_H

#include "core_state.h"

/* Ends the handle because the server's reply breaks the protocol. The handle does not connect again: the next reply
 * would be the same. Returns PD_INTERNAL. */
int pd_reply_broken(pd_core *core, const pd_prefix *prefix, const char *what);
/* Unpacks a reply into the arena. PD_NO_MEMORY: the connection ends, and its requests are sent again later.
 * PD_INTERNAL: the reply breaks the protocol. */
int pd_reply_take(pd_core *core, const pd_prefix *prefix, const uint8_t *header, void **reply);

#endif
