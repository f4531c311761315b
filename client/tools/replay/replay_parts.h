/* replay_parts.h - what a replay declares: each parameter of a trace whole, or the blocks of its shards.
 *
 * A trace of FSDP has metadata `shards`: for each rank the ranges [start, end) of the flat parameters that it holds.
 * Upstream finds blocks in each range that are tensors again (recovery.h) and treats each as a parameter of its own,
 * and so does a replay. */
#ifndef PD_REPLAY_PARTS_H
#define PD_REPLAY_PARTS_H

#include "recipe.h"
#include "trace.h"

typedef struct pd_replay_part {
    char    *name;              /* as declared: NAME, or "NAME@OFFSET" for a block; "2/NAME" if the recipe has groups,
                                 * so that a rule can match the group */
    const char *recorded;       /* NAME in the trace */
    size_t   param;             /* its index in the trace */
    int64_t  offset;            /* of its first element in the parameter; its elements are contiguous there */
    pd_shape shape;
    size_t   group;             /* its group in the recipe */
    char    *axes;              /* names of its dimensions, "": none; a block has none */
} pd_replay_part;

typedef struct pd_replay_parts {
    pd_replay_part *at;
    size_t          n;
} pd_replay_parts;

/* Returns true if the trace has shards, so that parts are not its parameters. */
bool pd_replay_is_sharded(const pd_trace *trace);
/* Finds the parts of a checked trace. Free *out, also after an error. PD_INVALID_ARGUMENT: shards that do not cover
 * their parameters one after the other. PD_NO_MEMORY. */
int  pd_replay_parts_find(pd_replay_parts *out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
void pd_replay_parts_free(pd_replay_parts *parts);

#endif
