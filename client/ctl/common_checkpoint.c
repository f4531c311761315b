/* common_checkpoint.c - makes the daemons of a cluster write checkpoints of the same step of a job. */
#include "common_checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>

#include "job_steps.h"

/* Joins the answers of several daemons. Returns whether all have made checkpoints of the same step. */
static bool join_checkpoints(pd_checkpoints_made *all, void *const *replies, size_t n)
{
    *all = (pd_checkpoints_made){ .least = UINT64_MAX };
    for (size_t i = 0; i < n; i++) {
        const Paramd__CheckpointReply *one = replies[i];
        if (one == NULL) continue;
        all->least = one->step < all->least ? one->step : all->least;
        all->most = one->step > all->most ? one->step : all->most;
        all->bytes += one->bytes;
        all->ms = one->ms > all->ms ? one->ms : all->ms;
    }
    return all->least == all->most;
}

/* Asks several daemons for a checkpoint of one step. A job that is training goes on between the requests, so the
 * command then asks again for a later step, which no daemon has begun yet. If the daemons need not come to the same
 * steps, each makes one of its own. */
static int checkpoint_at_one_step(pd_cluster *cluster, Paramd__CheckpointRequest *request, void **replies,
                                  pd_checkpoints_made *all, pd_error *err)
{
    enum { TRIES = 4 };
    pd_job_steps steps;
    uint64_t more = 0;
    int rc = pd_job_steps_ask(&steps, cluster, request->job, err);

    if (rc == PD_OK && request->step == 0 && !steps.apart) request->step = steps.most;
    for (int i = 0; i < TRIES && rc == PD_OK; i++) {
        rc = pd_cluster_ask(cluster, PD_CHECKPOINT, &request->base, replies, err);
        if (rc != PD_OK || join_checkpoints(all, replies, cluster->n) || steps.apart) return rc;
        if ((rc = pd_job_steps_ask(&steps, cluster, request->job, err)) != PD_OK) return rc;
        request->step = pd_job_steps_ahead(&steps) + more;
        more = 2 * more + 4;
    }
    if (rc != PD_OK) return rc;
    return pd_fail(err, PD_ABORTED,
                   "%.200s: the daemons wrote checkpoints of different steps, the last one of step %" PRIu64
                   ": choose a later step with --step",
                   request->job, all->most);
}

int pd_common_checkpoint(pd_cluster *cluster, Paramd__CheckpointRequest *request, pd_checkpoints_made *all,
                         pd_error *err)
{
    void **replies = calloc(cluster->n, sizeof *replies);
    int rc;

    if (replies == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (cluster->n > 1)
        rc = checkpoint_at_one_step(cluster, request, replies, all, err);
    else if ((rc = pd_cluster_ask(cluster, PD_CHECKPOINT, &request->base, replies, err)) == PD_OK)
        (void)join_checkpoints(all, replies, 1);
    free(replies);
    return rc;
}
