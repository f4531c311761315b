/* replay_parts.h - finds the parts that a replay declares as parameters: each parameter of a trace as a whole, or
 * the tensor blocks of its shards.
 *
 * A trace of FSDP has metadata `shards`: for each rank the range [start, end) that it has of each flattened
 * parameter. The reference optimizer cuts each range into blocks that are tensors again (recovery.h), and treats
 * each block as a parameter of its own. A replay does the same. */
#ifndef PD_REPLAY_PARTS_H
#define PD_REPLAY_PARTS_H

#include "recipe.h"
#include "trace.h"

typedef struct pd_replay_part {
    char *name;           /* declared name: NAME, or "NAME@OFFSET" for a block. If the recipe has groups, the group's
                           * number comes first, "2/NAME", so that a rule can match the group */
    const char *recorded; /* name of its parameter in the trace */
    size_t param;         /* index of its parameter in the trace */
    int64_t offset;       /* index of the part's first element in the parameter; its elements are contiguous */
    pd_shape shape;
    size_t group; /* number of its group in the recipe */
    char *axes;   /* names of the part's dimensions; "": the dimensions have no names; blocks never have any */
} pd_replay_part;

typedef struct pd_replay_parts {
    pd_replay_part *at;
    size_t n;
} pd_replay_parts;

/* Returns true if the trace has shards, so that its parts are blocks instead of parameters. */
bool pd_replay_is_sharded(const pd_trace *trace);
/* Finds the parts of a checked trace. The caller frees *out, also after an error. PD_INVALID_ARGUMENT: the shards of
 * a parameter do not follow each other or do not cover it. PD_NO_MEMORY: out of memory. */
int pd_replay_parts_find(pd_replay_parts *out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
void pd_replay_parts_free(pd_replay_parts *parts);

#endif
