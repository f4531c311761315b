/* placement.h - decides how the parameters of a job are spread over the shards of a cluster: which parameters are cut
 * into portions, and on which shard each portion lies. Pure: every shard, and paramctl plan --shards, computes the same
 * from the same declaration, whatever its order.
 *
 * A portion is a parameter, or whole rows of a cut one (its first dimension). Where a parameter is cut does not depend
 * on the number of shards, so with another number portions move, and none is cut anew. A portion has four costs. A
 * shard has four loads, the sums of these costs as shares of the whole model. Portions are placed one after the other,
 * the costliest first. Each goes to the shard whose largest load is the least with it. */
#ifndef PD_PLACEMENT_H
#define PD_PLACEMENT_H

#include "footprint.h"
#include "plan.h"
#include "rule.h"

/* Version of the rules by which portions are cut and placed. It is part of the fingerprint: shards with other rules do
 * not work together. */
enum { PD_PLACEMENT_VERSION = 1 };
/* Most portions of one parameter, so that the answer to its Declare has room for them. */
enum { PD_MOST_PORTIONS = 1024 };

/* What a portion costs its shard: bytes of gradients and weights on the network, operations of a step, operations of
 * matrix roots per step, and memory. Operations are multiples of 2^20, so that the last bits of an estimate do not
 * count. */
typedef enum pd_load_kind { PD_LOAD_BYTES, PD_LOAD_STEP, PD_LOAD_ROOTS, PD_LOAD_MEMORY, PD_LOADS } pd_load_kind;
typedef struct pd_portion_cost {
    uint64_t of[PD_LOADS];
} pd_portion_cost;

typedef struct pd_portion {
    uint32_t param;       /* index of the parameter in the declaration */
    uint32_t shard;       /* the shard that it lies on: what pd_placement_some finds */
    int64_t first, count; /* its elements in the parameter */
} pd_portion;

/* Whether a parameter is cut, or why not. */
typedef enum pd_uncut {
    PD_IS_CUT,
    PD_UNCUT_SMALL,     /* it has at most split_bytes bytes */
    PD_UNCUT_APART,     /* the job does not step as a whole */
    PD_UNCUT_SETS,      /* not every rank counts in each step */
    PD_UNCUT_OPTIMIZER, /* the optimizer needs the whole parameter */
    PD_UNCUT_AGGREGATE, /* the aggregate needs the whole parameter */
    PD_UNCUT_STORAGE,   /* its state is stored as int8 or int16, with a scale for each column */
    PD_UNCUT_ROWS,      /* it has too few rows, or blocks of the optimizer cross the cuts */
    PD_UNCUT_NAME       /* the names of its portions would be too long */
} pd_uncut;

/* What decides whether a parameter is cut, besides its plan. */
typedef struct pd_cut_rule {
    uint64_t split_bytes; /* largest size of a parameter that is not cut, as float32; 0: none is cut */
    bool whole;           /* all parameters of the job take their steps together */
    bool open;            /* not every rank counts in each step, so each fragment lies whole on one shard */
    pd_aggregation how;   /* how contributions to the parameter are aggregated */
} pd_cut_rule;

/* Decides whether a parameter of this shape and plan is cut. Sets *rows to the number of rows of each portion; of a
 * parameter that is not cut, to all its rows. The last portion has from half to one and a half times as many. */
pd_uncut pd_cut_rows(int64_t *rows, const pd_cut_rule *rule, const pd_optimizer_ops *optimizer, const pd_shape *shape,
                     const pd_plan *plan);
/* Returns whether the plan of a portion has the blocks that the plan of the whole parameter has in these rows. If not,
 * the optimizer would compute other weights, and the parameter must not be cut. */
bool pd_cut_fits(const pd_plan *whole, const pd_plan *portion);
/* Returns the reason as the end of a message: "its optimizer looks at the whole parameter", for instance. */
const char *pd_uncut_text(pd_uncut why);

/* Returns the number of portions of a parameter of this shape that is cut every `rows` rows. */
int64_t pd_portions_count(const pd_shape *shape, int64_t rows);
/* Returns portion number i of them. Its `param` and `shard` are 0. */
pd_portion pd_portion_at(const pd_shape *shape, int64_t rows, int64_t i);
/* Returns the shape of a portion of a parameter. */
pd_shape pd_portion_shape(const pd_shape *shape, const pd_portion *portion);

/* Returns the number of steps from one run of the preconditioner tasks of a plan to the next, as it is after the first
 * steps; 0: the plan has no tasks, or they run more than a thousand steps apart. */
int64_t pd_portion_root_interval(const pd_hypers *hypers, const pd_plan *plan);
/* Computes the costs of a portion. `interval` is what pd_portion_root_interval returns. */
pd_portion_cost pd_portion_cost_of(const pd_plan *plan, const pd_footprint *need, int64_t interval);

enum { PD_PLACEMENT_OWN = 128 }; /* most bytes of pd_whole */
/* Returns the bytes that the declaration of `params` parameters, in `portions` portions of which `own` are on this
 * shard, takes there without names, besides those of these portions. Each of `world` connections has a record of each
 * handle. */
uint64_t pd_placement_bytes(size_t params, size_t portions, size_t own, uint64_t world);

/* A portion that is to be placed. */
typedef struct pd_placed {
    pd_portion *portion;
    const char *name; /* name of its parameter */
    pd_portion_cost cost;
    /* Number of the group of portions that must lie on one shard together. UINT32_MAX: the portion has no group. Group
     * 0 lies on shard 0. */
    uint32_t together;
} pd_placed;

typedef struct pd_placement pd_placement;

/* Begins to place n portions on the shards. Borrows the list, which pd_placement_some sorts. Returns NULL if out of
 * memory. */
pd_placement *pd_placement_new(pd_placed *list, size_t n, uint32_t shards);
/* Sorts and places portions for about *budget_ns nanoseconds of one core. Returns false if there is more to do. */
bool pd_placement_some(pd_placement *placement, double *budget_ns);
void pd_placement_free(pd_placement *placement); /* accepts NULL */

/* The load of one kind that is most uneven. */
typedef struct pd_skew {
    double over_mean;      /* the largest load of a shard divided by the mean */
    pd_load_kind load;     /* which load */
    uint32_t shard;        /* the shard that has it */
    const pd_placed *most; /* the portion that has most of it there */
} pd_skew;
/* Finds the largest skew of a placement that is finished. Without any load the skew is 1. */
pd_skew pd_placement_skew(const pd_placement *placement);
/* Returns the load of one kind that a shard has. */
uint64_t pd_placement_load(const pd_placement *p, uint32_t number, pd_load_kind load);
/* Returns the first shard without a portion. If each shard has one, returns the number of shards. */
uint32_t pd_placement_empty(const pd_placement *placement);
/* Computes the number of the map that says where portions lie. It depends on the rules' version, on the number of
 * shards, on split_bytes, and on the name, the elements and the shard of every portion. Never 0. PD_NO_MEMORY. */
int pd_placement_fingerprint(const pd_placement *placement, uint64_t split_bytes, uint64_t *fingerprint);
/* Returns the name of a load for messages: "memory", for instance. */
const char *pd_load_name(pd_load_kind load);

#endif
