/* replay_parts.h - finds the parts that a replay declares as parameters: each parameter of a trace (file of a
 * recorded run) as a whole, or the tensor blocks of its shards.
 *
 * A trace of FSDP has metadata `shards`: for each rank the range [start, end) that it has of each flattened
 * parameter. The reference optimizer cuts each range into blocks that are tensors again (recovery.h), and treats
 * each block as a parameter of its own. A replay does the same. */
#ifndef PD_REPLAY_PARTS_H
#define PD_REPLAY_PARTS_H

#include "recipe.h"
#include "trace.h"

typedef struct pd_replay_part {
    /* The name under which the part is declared: NAME, or "NAME@OFFSET" for a block. If the recorded configuration has
     * groups (of parameters with hyperparameters of their own), the group's number comes first, "2/NAME", so that a
     * rule can match the group. */
    char *name;
    /* name of the parameter in the trace to which the part belongs */
    const char *recorded;
    size_t param;   /* index of the parameter in the trace to which the part belongs */
    int64_t offset; /* index of the part's first element in the parameter; its other elements follow */
    pd_shape shape;
    size_t group; /* number of the group of hyperparameters that the part belongs to */
    char *axes;   /* names of the part's dimensions; "": they have no names, as those of a block */
} pd_replay_part;

typedef struct pd_replay_parts {
    pd_replay_part *at;
    size_t n;
} pd_replay_parts;

/* Returns true if the trace has shards. Then a replay declares blocks instead of parameters. */
bool pd_replay_is_sharded(const pd_trace *trace);
/* Finds the parts of a checked trace that a replay declares: its parameters, or the blocks of their shards. The caller
 * frees *out, also after an error. PD_INVALID_ARGUMENT: the shards of a parameter do not follow each other or do not
 * cover the parameter. PD_NO_MEMORY: out of memory. */
int pd_replay_parts_find(pd_replay_parts *out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
void pd_replay_parts_free(pd_replay_parts *parts);

#endif
