/* sharing.h - sets up and ends the memory that a worker shares with a server on the same machine. Pushed gradients lie
 * in the worker's segment, pulled weights in the server's.
 *
 * Headers stay on the socket, so order, exactly-once and errors are the same with and without shared memory. If the
 * server does not want to share, or the system cannot, payloads go through the socket. */
#ifndef PD_SHARING_H
#define PD_SHARING_H

#include "core.h"

/* Returns whether the worker wants to share memory on the present connection. */
bool pd_sharing_wanted(const pd_core *core);
/* Offers the worker's segment to the server, once the server has accepted the parameters. Returns true if pushes must
 * wait for the server's answer to the offer. */
bool pd_sharing_begin(pd_core *core);
/* Handles the server's answer to the offer; `refusal` is its error, or NULL. */
int pd_sharing_answered(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_error *refusal);
/* Frees blocks of given-up frames that the server no longer reads. Then tells the server, by a Release frame, which
 * answers in shared memory were read. Sends nothing if there are none, or if the server has not answered an earlier
 * Release frame. */
void pd_sharing_release(pd_core *core);
/* Handles the end of the connection: unmaps the server's segment. */
void pd_sharing_end(pd_core *core);
/* Frees the descriptors and the segments. */
void pd_sharing_free(pd_core *core);

/* Returns memory for the gradient of a declared parameter (pd_client_buffer), in the worker's segment unless pushes
 * under way have taken the room there. While the server may read it from a push that was given up, the function returns
 * private memory. NULL: the parameters are not declared, there is no such parameter, or the system gives no memory. */
void *pd_core_buffer(pd_core *core, size_t param);

#endif
