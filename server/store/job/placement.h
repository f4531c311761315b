/* placement.h - decides how the parameters of a job are spread over the shards of a cluster: which parameters are cut
 * into portions, and on which shard each portion lies. Pure: every shard, and paramctl plan --shards, computes the same
 * from the same declaration, whatever its order.
 *
 * A portion is a parameter, or whole rows of a cut one (its first dimension). Where a parameter is cut does not depend
 * on the number of shards, so another number moves portions and cuts nothing. A portion has four costs; the largest of
 * a shard's four loads is what the shard is slow by. Portions are placed one after the other, the costliest first, each
 * on the shard that it makes the least slow. */
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

/* Why a parameter is not cut. PD_UNCUT_SMALL: it has at most split_bytes bytes. The others name what prevents it: the
 * job does not step as a whole; not every rank counts in each step; the optimizer looks at all of a parameter; the
 * aggregate does; state is stored as int8 or int16, whose scales belong to columns; its rows are too large or too few;
 * the names of its portions are too long. */
typedef enum pd_uncut {
    PD_IS_CUT,
    PD_UNCUT_SMALL,
    PD_UNCUT_APART,
    PD_UNCUT_SETS,
    PD_UNCUT_OPTIMIZER,
    PD_UNCUT_AGGREGATE,
    PD_UNCUT_STORAGE,
    PD_UNCUT_ROWS,
    PD_UNCUT_NAME
} pd_uncut;

/* What decides whether a parameter is cut, besides its plan. */
typedef struct pd_cut_rule {
    uint64_t split_bytes; /* largest size of a parameter that is not cut, as float32; 0: none is cut */
    bool whole;           /* all parameters of the job take their steps together */
    bool open;            /* not every rank counts in each step: each fragment lies whole on one shard */
    pd_aggregation how;   /* how contributions to the parameter are aggregated */
} pd_cut_rule;

/* Decides whether a parameter of this shape and plan is cut. *rows becomes the number of rows of each portion, except
 * that the last one may have fewer, or up to half as many more. If the parameter is not cut, *rows is all of them. */
pd_uncut pd_cut_rows(int64_t *rows, const pd_cut_rule *rule, const pd_optimizer_ops *optimizer, const pd_shape *shape,
                     const pd_plan *plan);
/* Returns whether a portion with this plan does what its parameter, with the plan `whole`, does with those rows: its
 * blocks are cut as the parameter's are. If not, the parameter is not cut. */
bool pd_cut_fits(const pd_plan *whole, const pd_plan *portion);
/* Returns why a parameter is not cut, for people: "its optimizer looks at the whole parameter", for instance. */
const char *pd_uncut_text(pd_uncut why);

/* Return how many portions a parameter of this shape is cut into, with `rows` rows each; and portion number i of them,
 * without its parameter and shard. */
int64_t pd_portions_count(const pd_shape *shape, int64_t rows);
pd_portion pd_portion_at(const pd_shape *shape, int64_t rows, int64_t i);
/* Returns the shape of a portion of a parameter. */
pd_shape pd_portion_shape(const pd_shape *shape, const pd_portion *portion);

/* Returns the number of steps from one run of the preconditioner tasks of a plan to the next, as it is after the first
 * steps; 0: the plan has no tasks, or they run more than a thousand steps apart. */
int64_t pd_portion_root_interval(const pd_hypers *hypers, const pd_plan *plan);
/* Computes the costs of a portion. `interval` is what pd_portion_root_interval returns. */
pd_portion_cost pd_portion_cost_of(const pd_plan *plan, const pd_footprint *need, int64_t interval);

/* A portion that is to be placed. */
typedef struct pd_placed {
    pd_portion *portion;
    const char *name; /* name of its parameter */
    pd_portion_cost cost;
    /* number of the group of portions that must lie on one shard; UINT32_MAX: it may lie on any. Group 0 lies on shard
     * 0 */
    uint32_t together;
} pd_placed;

typedef struct pd_placement pd_placement;

/* Begins to place n portions on the shards. Borrows the list, which it sorts. Returns NULL if out of memory. */
pd_placement *pd_placement_new(pd_placed *list, size_t n, uint32_t shards);
/* Places portions for about *budget_ns nanoseconds of one core. Returns false if there is more to do. */
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
/* Returns the shard on which no portion lies; the number of shards: each has one. */
uint32_t pd_placement_empty(const pd_placement *placement);
/* Computes the number of the map that says where portions lie. It depends on the rules' version, on the number of
 * shards, on split_bytes, and on the name, the elements and the shard of every portion. Never 0. PD_NO_MEMORY. */
int pd_placement_fingerprint(const pd_placement *placement, uint64_t split_bytes, uint64_t *fingerprint);
/* Returns the name of a load for people: "memory", for instance. */
const char *pd_load_name(pd_load_kind load);

#endif
