/* pressure.c - an invariant of both threads at rest: no rank waits for memory while it holds something that could be summed. */
#include "server_state.h"

#include "store_inside.h"

#include <utlist.h>

/* Returns whether all ranks before it have been heard of, so that its contribution can be added to the sum. */
static bool could_be_summed(const pd_chunk *chunk, uint32_t rank)
{
    return chunk->summed <= rank && rank < chunk->prefix && chunk->slots[rank].state == PD_SLOT_HELD;
}

static void check_rank(const sim_server *server, const pd_job *job, uint32_t rank)
{
    const pd_chunk *chunk;

    if (job->steps.quotas[rank].held == 0 || !sim_waits_for_memory(server, job->ranks[rank].conn)) return;
    DL_FOREACH(job->steps.partial, chunk)
        if (could_be_summed(chunk, rank))
            sim_fail("liveness", "%s rank %u waits for memory, and nobody sums what it holds of %s", job->steps.name, rank, chunk->param->name);
}

void sim_pressure_check(const sim_server *server)
{
    const pd_job *job, *next;

    if (server->step_due || server->loop_due || server->mail_due || sim_bytes_in_flight(server) > server->store->ingest.held) return;     /* something is on its way */
    if (server->store->ingest.held == 0 || sim_failed_allocations() > 0) return;       /* the step thread may not have been told */
    HASH_ITER(hh, server->store->jobs.names, job, next)
        for (uint32_t rank = 0; rank < job->steps.members.ranks && job->steps.partial != NULL; rank++) check_rank(server, job, rank);
}
