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
    char    *name;              /* that it is declared under: NAME, a block "NAME@OFFSET"; where the recipe has groups
                                 * "2/NAME": so a rule can name each */
    const char *recorded;       /* NAME: the trace's */
    size_t   param;             /* of the trace */
    int64_t  offset;            /* of its first element in that parameter's, among which its elements lie together */
    pd_shape shape;
    size_t   group;             /* of the recipe */
    char    *axes;              /* names of its dimensions, "": none; those of a whole parameter alone */
} pd_replay_part;

typedef struct pd_replay_parts {
    pd_replay_part *at;
    size_t          n;
} pd_replay_parts;

/* Parts are not the trace's parameters. */
bool pd_replay_is_sharded(const pd_trace *trace);
/* The trace has been checked. Fills *out; pd_replay_parts_free it, also after an error. PD_INVALID_ARGUMENT: shards
 * that do not cover their parameters one behind the other. PD_NO_MEMORY. */
int  pd_replay_parts_find(pd_replay_parts *out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
void pd_replay_parts_free(pd_replay_parts *parts);

#endif
