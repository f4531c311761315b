/* reply.h - unpacks the server's replies, and ends the client handle if a reply breaks the protocol. */
#ifndef PD_REPLY_H
#define PD_REPLY_H

#include "core_state.h"

/* Ends the client handle (the user's pd_client) because the server's reply breaks the protocol. The handle does not
 * connect again, since the next reply would break the protocol in the same way. Returns PD_INTERNAL. */
int pd_reply_broken(pd_core *core, const pd_prefix *prefix, const char *what);
/* Unpacks a reply into the core's arena. PD_NO_MEMORY: the connection
 * is dropped, and the requests are sent again on the next one. PD_INTERNAL: the reply breaks the protocol. */
int pd_reply_take(pd_core *core, const pd_prefix *prefix, const uint8_t *header, void **reply);

#endif
