/* replay_parts.h - what a replay declares: each parameter of a trace whole, under its own name. */
#ifndef PD_REPLAY_PARTS_H
#define PD_REPLAY_PARTS_H

#include "recipe.h"
#include "trace.h"

typedef struct pd_replay_part {
    char    *name;              /* that it is declared under: where the recipe has groups "2/NAME", so that a rule can name each group */
    size_t   param;             /* of the trace */
    int64_t  offset;            /* of its first element in that parameter's */
    pd_shape shape;
    size_t   group;             /* of the recipe */
} pd_replay_part;

typedef struct pd_replay_parts {
    pd_replay_part *at;
    size_t          n;
} pd_replay_parts;

/* The trace has been checked. Fills *out; pd_replay_parts_free it, also after an error. PD_NO_MEMORY. */
int  pd_replay_parts_find(pd_replay_parts *out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
void pd_replay_parts_free(pd_replay_parts *parts);

#endif
