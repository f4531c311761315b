/* pressure.c - checks an invariant that holds whenever the loop thread and the step thread are idle: no rank waits
 * for memory while the server stores a contribution of this rank that it could sum or spill. */
#include "server_state.h"

#include "chunk_queues.h"
#include "rig.h"
#include "store_inside.h"

#include <utlist.h>

/* Returns whether the rank's contribution can be spilled, or added to the sum, because all lower ranks have contributed
 * or are known to be absent. */
static bool could_be_relieved(const pd_chunk *chunk, uint32_t rank)
{
    return chunk->contributions[rank].state == PD_CONTRIBUTION_HELD &&
           (pd_param_spills(chunk->param) || (chunk->summed <= rank && rank < chunk->prefix));
}

static void check_rank(const sim_server *server, const pd_job *job, uint32_t rank)
{
    const pd_chunk *chunk;

    if (job->steps.quotas[rank].held == 0 || !sim_waits_for_memory(server, job->ranks[rank].conn)) return;
    DL_FOREACH(job->steps.chunks.waiting, chunk)
    if (could_be_relieved(chunk, rank))
        sim_fail("liveness", "%s rank %u waits for memory, and nobody sums or spills what it holds of %s",
                 job->steps.name, rank, chunk->param->name);
}

void sim_pressure_check(const sim_server *server)
{
    const pd_job *job, *next;

    if (server->step_due || server->loop_due || server->mail_due ||
        sim_bytes_in_flight(server) > server->store->ingest.held)
        return; /* the server is not idle: a frame or an event is on its way */
    if (server->store->ingest.held == 0 || sim_failed_allocations() > 0)
        return; /* no contribution is stored; or a notice was lost with a failed allocation */
    HASH_ITER(hh, server->store->jobs.names, job, next)
    for (uint32_t rank = 0; rank < job->steps.members.ranks && job->steps.chunks.waiting != NULL; rank++)
        check_rank(server, job, rank);
}
