/* whole_params.h - joins what the daemons of a cluster have of a job to whole parameters and whole tensors of optimizer
 * state, as one daemon would have them: for export and import-state.
 *
 * A large parameter may be cut into portions, whole rows of it, which lie on different daemons. Portion k of the
 * parameter "wte" is listed as "wte#k". Where a job has cut parameters, each '#' of a declared name is doubled. With
 * one daemon nothing is cut, and every parameter is its only portion. */
#ifndef PD_WHOLE_PARAMS_H
#define PD_WHOLE_PARAMS_H

#include "ask_all.h"
#include "state_list.h"

/* A portion of a parameter. */
typedef struct pd_whole_part {
    char *name; /* as its shard lists it; owned */
    uint32_t shard;
    pd_shape shape;
    uint64_t roots; /* number of its matrix roots */
    bool cut;       /* it is one of several portions, and `name` ends with its number */
    int blocks;     /* number of blocks for which it has optimizer state: what pd_whole_params_join_state finds */
} pd_whole_part;

/* A parameter. Its portions are parts[first] to parts[first + n - 1], in the order of its rows. */
typedef struct pd_whole_param {
    char *name; /* owned */
    pd_shape shape;
    size_t first, n;
} pd_whole_param;

typedef struct pd_whole_params {
    pd_whole_param *at; /* in ascending order of names (strcmp) */
    size_t n;
    pd_whole_part *parts;
    size_t n_parts, room;
    pd_error err; /* the first error of a page */
    const uint32_t *shard;
} pd_whole_params;

/* Fetches all parameters of a job. The caller frees *out, also after an error. PD_DATA_LOSS: a portion is missing, or
 * the portions of a parameter have different rows. PD_NO_MEMORY, or the daemon's error. */
int pd_whole_params_fetch(pd_whole_params *out, pd_cluster *cluster, const char *job, pd_error *err);
void pd_whole_params_free(pd_whole_params *params);
/* Returns the parameter of this name; NULL: there is none. */
const pd_whole_param *pd_whole_params_find(const pd_whole_params *params, const char *name);
/* Returns the number of matrix roots that the portions before portion `part` of the parameter have. */
uint64_t pd_whole_param_roots(const pd_whole_params *params, const pd_whole_param *param, size_t part);
/* Joins the tensors of a list that pd_state_list_fetch has made, and names their parameters by their whole names.
 * Blocks are numbered through all portions of a parameter. PD_DATA_LOSS: tensors of portions do not fit together.
 * PD_NO_MEMORY. */
int pd_whole_params_join_state(pd_whole_params *params, pd_state_list *list, pd_error *err);

#endif
