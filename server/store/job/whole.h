/* whole.h - the whole declaration of a job whose parameters lie on several shards. pd_steps.params has only the
 * portions of this shard; here are all parameters, and the map that says where their portions lie. Step thread.
 *
 * A Declare lists the whole model. It is checked, or matched, as a whole, and then becomes the list of this shard's
 * portions: what comes after that handles portions as it handles parameters. All ranks declare in the same order, so
 * that all shards give a parameter the same number. */
#ifndef PD_WHOLE_H
#define PD_WHOLE_H

#include "job.h"
#include "spread.h"

typedef struct pd_whole {
    /* The parameters as the first rank has declared them. Its ranges and the types in which it pulls mean nothing here.
     * push_dtype is 0 unless the job counts memory by it. */
    pd_param_decl *params;
    size_t n;
    uint32_t n_fragments; /* number of fragments of the whole model */
    pd_map map;
    size_t *first;  /* first[i]: index in map.portions of the first portion of parameter i; first[n]: their number */
    uint32_t *own;  /* for each portion its index in pd_steps.params; UINT32_MAX: it lies on another shard */
    uint32_t *mine; /* for each parameter in pd_steps.params the index of its portion */
    size_t n_own;
    uint32_t *cut_before; /* for each parameter, and after the last one: number of cut parameters before it */
    bool cut;             /* some parameter is cut, so names of portions are marked (pd_whole_name) */
    /* While it is made: a hash table of the names so far. Each place has 1 + the index of a parameter, or 0. */
    uint32_t *names;
    size_t last_place; /* index of the last place; all bits up to its highest one are set */
} pd_whole;

/* Most bytes of the text of pd_whole_name. */
enum { PD_PORTION_NAME = 2 * PD_NAME_MAX + 16 };

/* Begins to make the whole declaration of a job from a Declare whose parameters are checked. Takes the map, also if it
 * returns NULL: out of memory. */
pd_whole *pd_whole_begin(const pd_request *declare, pd_map *map);
/* Works for about *budget_ns nanoseconds of one core. Returns false if there is more to do. When it returns true, *rc
 * is PD_OK or an error. PD_NO_MEMORY. PD_INVALID_ARGUMENT: a name is too long to be marked, or comes twice.
 * PD_DATA_LOSS: the map, which was read from the disk, does not fit the declaration. */
bool pd_whole_some(pd_whole *whole, const pd_job *job, const pd_request *declare, double *budget_ns, int *rc,
                   pd_error *err);
/* Gives a job its whole declaration. */
void pd_whole_give(pd_job *job, pd_whole *whole);
void pd_whole_free(pd_whole *whole); /* accepts NULL */

/* Returns whether a parameter is cut: else its only portion is all of it, with the ranges that ranks declare. */
static inline bool pd_whole_is_cut(const pd_whole *whole, size_t param)
{
    return whole->first[param + 1] - whole->first[param] > 1;
}
/* Begins to replace the parameters of a Declare, which is checked or matched, by the portions of this shard: leaves no
 * parameters in it. The whole list stays in the request. PD_NO_MEMORY: nothing has changed. */
int pd_whole_expand(const pd_job *job, pd_request *declare, pd_error *err);
#define PD_EXPAND_NS 200.0 /* estimate of how long pd_whole_expand_one takes, in nanoseconds of one core */
/* Adds the next portion of this shard to the Declare, until it has all (n_own). A range becomes one of the portion.
 * PD_NO_MEMORY. */
int pd_whole_expand_one(const pd_job *job, pd_request *declare, pd_error *err);
/* Sets what a parameter of the job knows of the declaration: `declared`, `cut`, `portions`, `origin`, declared_name. */
void pd_whole_tell(const pd_job *job, pd_param *param);
/* Returns what the answer to an expanded Declare says of a portion: where it lies. */
pd_declared_place pd_whole_place(const pd_whole *whole, size_t portion);

/* Writes the name of a portion: "wte#2" for the third portion of wte. In a job with a cut parameter, each '#' of a
 * declared name becomes "##". Returns `text`. */
char *pd_whole_name(const pd_whole *whole, size_t portion, char text[PD_PORTION_NAME]);

/* Tells people, once for all shards, of a map whose loads are uneven, and of the parameter that cannot be cut. */
void pd_whole_say(pd_job *job, const pd_spread *spread, const pd_request *declare);
/* Returns the bytes of memory that the whole declaration takes, on the step thread and on the loop thread. */
uint64_t pd_whole_bytes(const pd_job *job);

#endif
