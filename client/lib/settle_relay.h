/* settle_relay.h - a core's part in carrying tallies between the shards of a job (settle_box.h): asks its shard for
 * tallies, and gives it verdicts. Does nothing in a core without a box. */
#ifndef PD_SETTLE_RELAY_H
#define PD_SETTLE_RELAY_H

#include "core.h"

/* Called when the server has accepted all parameters on a new connection. `settles`: steps of the job need verdicts. */
void pd_relay_declared(pd_core *core, bool settles);
/* Returns whether the core must hold its requests back: the shard has loaded the job again, and other shards may have
 * gone back with it. If this worker has to go back there, what it has pushed here must not count: the shard would take
 * a step that the others take anew, and all would go back once more. pd_relay_tick releases the requests when this
 * handle has found all shards. A job whose steps need verdicts takes none before that anyhow. */
bool pd_relay_holds(const pd_core *core);
/* Called when the connection has ended. */
void pd_relay_down(pd_core *core);
/* Called when the worker has left the job on this shard: cores whose shards load the job again do not wait for it. */
void pd_relay_left(pd_core *core);
/* Queues an ask and a verdict, if the box has some for this core. */
void pd_relay_tick(pd_core *core);
/* Takes the answer to an ask or to a verdict, the request with this id; `refusal` NULL: it is no error. */
int pd_relay_answered(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_error *refusal);

#endif
