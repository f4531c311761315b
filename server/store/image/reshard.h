/* reshard.h - makes the checkpoints of a job on another number of shards from those of the shards that it had. Offline
 * only: paramctl reshard.
 *
 * The job is planned from its declaration for the new number, as if workers had declared it there. Then its portions
 * are copied, one after the other, so that only a few copies of one parameter's state are in memory at a time:
 *
 *   - From one shard to several, parameters are cut as planning says. Only here state is cut (portion_state.h).
 *   - From several to one, portions are joined: a daemon that is alone has whole parameters.
 *   - From several to several, portions move and stay as they are, since cutting does not depend on the number.
 *
 * Weights, optimizer state, pending roots, steps, overrides, the norms of clips, scalars and worker states stay.
 * Workers begin as new processes, as after a resize, and declare their ranges of parameters again. Tallies are dropped:
 * every shard is at the same step, so none waits for the tallies of another. */
#ifndef PD_RESHARD_H
#define PD_RESHARD_H

#include "checkpoint_image.h"
#include "jobs.h"
#include "wal_record.h"

typedef int pd_reshard_take(void *to, const pd_wal_record *record, pd_error *err);

/* The checkpoint of a shard that the job had. All of it is borrowed until pd_reshard_free. */
typedef struct pd_reshard_source {
    const char *name; /* for errors: the path of its directory */
    /* read_state must read the state of any parameter, in any order, and free its memory for i = n_params; read_arg is
     * passed to read_range, too */
    pd_checkpoint_image *image;
    /* reads `n` weights of parameter i, from element `first` on */
    int (*read_range)(void *arg, uint32_t i, int64_t first, int64_t n, float *to, pd_error *err);
    /* calls `take` with each record of decisions, of which values of `paramctl set` after the checkpoint are taken; its
     * errors are passed on. NULL: there are none */
    int (*read_decisions)(void *arg, pd_reshard_take *take, void *to, pd_error *err);
    void *decisions_arg; /* passed to read_decisions */
} pd_reshard_source;

typedef struct pd_reshard pd_reshard;

/* Checks that the n sources, in any order, are all shards of one job at one step, and plans the job for `shards`
 * shards. The errors are those of pd_restore_begin, and PD_FAILED_PRECONDITION: a shard is missing or comes twice,
 * parameters are at different steps, or the job cannot be on so many shards. */
int pd_reshard_new(pd_reshard **out, const pd_jobs *jobs, const pd_job_env *env, const pd_reshard_source *sources,
                   uint32_t n, uint32_t shards, pd_error *err);
/* Makes the checkpoint of a shard. Its read_state and lend_weights make states and weights, and are valid until the
 * next call, or pd_reshard_free. The caller frees *out before (pd_checkpoint_image_free). Call it for shard 0 first. */
int pd_reshard_shard(pd_reshard *r, uint32_t shard, pd_checkpoint_image **out, pd_error *err);
void pd_reshard_free(pd_reshard *r); /* accepts NULL */

#endif
