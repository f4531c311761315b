/* portion_records.h - which parameters of the model the server has, in a cluster: the server's answers to Declare say
 * where each parameter lies, and how large ones are cut into portions that lie on several shards.
 *
 * All shards make the same map. The records of portions follow those of the declared parameters in pd_core.params, in
 * the order of the parameters and, of one parameter, of its elements. So a record's index is its handle on the wire, on
 * every shard. */
#ifndef PD_PORTION_RECORDS_H
#define PD_PORTION_RECORDS_H

#include "core.h"

/* Takes over where the parameters from index `first` on lie, and adds records of their portions. If they were declared
 * before, compares: a server that has another map than before ends the client handle. PD_INTERNAL: the answer breaks
 * the protocol. PD_FAILED_PRECONDITION: another map. PD_NO_MEMORY: the connection is dropped. */
int pd_portions_take(pd_core *core, size_t first, const Paramd__DeclareReply *reply, const pd_prefix *prefix);
/* Forgets where the parameters lie: the next answers to Declare tell it. */
void pd_portions_forget(pd_core *core);

#endif
