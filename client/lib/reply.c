/* reply.c - unpacks the server's replies, and ends the client handle if a reply breaks the protocol. */
#include "reply.h"

#include "core_end.h"

#include <inttypes.h>

int pd_reply_broken(pd_core *core, const pd_prefix *prefix, const char *what)
{
    pd_error error;

    pd_fail(&error, PD_INTERNAL, "the server's answer to %s (request %" PRIu64 "): %s", pd_method_name(prefix->method),
            prefix->request, what);
    pd_core_end(core, &error);
    return PD_INTERNAL;
}

int pd_reply_take(pd_core *core, const pd_prefix *prefix, const uint8_t *header, void **reply)
{
    pd_error error;
    int rc;

    pd_arena_reset(core->arena);
    rc = pd_reply_unpack(core->arena, prefix->method, header, prefix->header_bytes, reply, &error);
    if (rc == PD_NO_MEMORY) pd_core_drop(core, error.text);
    return rc == PD_OK || rc == PD_NO_MEMORY ? rc : pd_reply_broken(core, prefix, error.text);
}
