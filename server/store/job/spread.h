/* spread.h - makes the map of a job on a cluster: plans every parameter of a declaration to learn what it costs and
 * where it may be cut, and places the portions on the shards. In parts of bounded time. The thread that plans. */
#ifndef PD_SPREAD_H
#define PD_SPREAD_H

#include "placement.h"
#include "request.h"

/* The map of a job. */
typedef struct pd_map {
    pd_portion *portions; /* in the order of the declaration, and of their elements */
    size_t n;
    uint64_t fingerprint;
} pd_map;

/* What a map is made from. The caller keeps all of it until the spread is freed. */
typedef struct pd_spread_job {
    const pd_sizing *sizing;
    pd_rule *rules;
    size_t n_rules;
    const pd_param_decl *decls; /* the whole declaration, checked: pd_param_decl.rule is set */
    size_t n;
    uint32_t shards;
    bool whole;  /* the job steps as a whole */
    size_t most; /* most portions that the job may have */
    /* a map that was read from the disk, and becomes the map as it is; NULL: one is made */
    const pd_map *map;
} pd_spread_job;

/* The model statistics of each optimizer rule, at the index of the first rule that has the same optimizer. */
typedef struct pd_model_facts {
    size_t *alike; /* for each rule the index of that first rule */
    double (*stats)[PD_MAX_MODEL_STATS];
    bool *surveyed; /* the statistics include a parameter already */
} pd_model_facts;

/* Makes empty statistics. PD_NO_MEMORY: the caller frees what was made. */
int pd_model_facts_make(pd_model_facts *facts, const pd_rule *rules, size_t n_rules);
void pd_model_facts_free(pd_model_facts *facts);
/* Adds a parameter to the statistics of its rule's optimizer. */
void pd_model_facts_add(pd_model_facts *facts, const pd_declaration *declaration);

/* Facts about a map for messages. */
typedef struct pd_spread_notes {
    pd_skew skew;
    uint32_t uncut; /* index of the largest parameter that is larger than split_bytes and not cut; n: there is none */
    pd_uncut why;   /* why it is not cut */
} pd_spread_notes;

typedef struct pd_spread pd_spread;

/* Begins to make the map, or, if it was read from the disk, to compute the statistics alone. Returns NULL if out of
 * memory. */
pd_spread *pd_spread_new(const pd_spread_job *job);
/* Works for about *budget_ns nanoseconds of one core. Returns false if there is more to do. When it returns true, *rc
 * is PD_OK or an error: one of pd_plan_make, PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED (too many portions), or
 * PD_FAILED_PRECONDITION (a shard would have no portion). */
bool pd_spread_some(pd_spread *spread, double *budget_ns, int *rc, pd_error *err);
/* Moves the finished map, and the statistics of the whole model, to the caller. */
void pd_spread_take(pd_spread *spread, pd_map *map, pd_model_facts *facts);
/* Returns these facts about a map that was made; valid until the spread is freed. */
pd_spread_notes pd_spread_notes_of(const pd_spread *spread);
/* Returns the placement of a map that was made, with the loads of the shards; valid until the spread is freed. NULL:
 * the map was read from the disk. */
const pd_placement *pd_spread_placement(const pd_spread *spread);
void pd_spread_free(pd_spread *spread); /* accepts NULL */

/* Returns the declaration from which the optimizer of a declared parameter, or of a portion of this shape, is
 * planned. */
pd_declaration pd_spread_declaration(const pd_spread_job *job, const pd_param_decl *decl, const pd_shape *shape,
                                     struct pd_name_maps *maps);

#endif
