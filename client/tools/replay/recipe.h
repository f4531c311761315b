/* recipe.h - which optimizer, with which hyperparameters, does a recorded run ask for? Pure. */
#ifndef PD_RECIPE_H
#define PD_RECIPE_H

#include <jansson.h>

#include "paramd/optim.h"

typedef struct pd_recipe {
    size_t      n_groups;   /* at least 1 */
    pd_hypers  *groups;     /* of group 0: the parameters that no group of the configuration names. With schedules: each
                             * stays where it is */
    json_t     *members;    /* name of a parameter to the number of its group; NULL: all are in group 0 */
    json_t     *rates;      /* list of numbers, one a step; NULL: the configuration has none */
    json_t     *axes;       /* name of a parameter to the list of its dimensions' names, or true: the first is "layers";
                             * NULL: none have any */
    int64_t     start_step; /* steps that count as taken before the first one */
    const char *defect;     /* what upstream gets wrong in what is asked for; else NULL */
    const char *rate;       /* the hyperparameter that a recorded schedule of learning rates sets */
    /* Of averages of gradients alone: */
    const char *aggregate;  /* "mean", "adasum", "adasum_vdot", as the job's key has it; else NULL */
    int         shards;     /* the weights lie on this many neighbouring replicas: d, d + shards, d + 2 shards ... have
                             * the same, and average among themselves */
} pd_recipe;

/* From a trace's metadata `system` and `config`. Fills *out; pd_recipe_free it, also after an error. Each of
 * `config.groups` names its parameters in `params` and says in what they differ from the configuration around it. In
 * one of meta_shampoo null is off, an object is a choice and what belongs to it, or several hyperparameters, and how
 * upstream was distributed is passed over where it changes no number. In one of distributed_kron null is off, too,
 * weight_decay_mask parts the parameters into groups, and a schedule of learning rates is left to the trace's record of
 * them. Averages are taken of what sgd with rate 1 turns into minus itself. PD_UNIMPLEMENTED: this build lacks the
 * system, the optimizer or one of the hyperparameters; the text says which. PD_INVALID_ARGUMENT, PD_OUT_OF_RANGE: a
 * configuration that the optimizer refuses, or Adasum of a number of replicas that Trax refuses. PD_NO_MEMORY. */
int pd_recipe_read(pd_recipe *out, const char *system, const json_t *config, pd_error *err);
void pd_recipe_free(pd_recipe *recipe);
/* Some optimizer of the system is in the table. */
bool pd_recipe_knows(const char *system);

/* The number of a parameter's group. */
size_t pd_recipe_group(const pd_recipe *recipe, const char *name);
/* The learning rate that the configuration has for a step, counted from 1. False: it has none. */
bool pd_recipe_rate(const pd_recipe *recipe, int64_t step, double *rate);
/* Where the configuration leaves the learning rate to the updates ("none"), declares this one: that of the first. */
int pd_recipe_declare_rate(pd_recipe *recipe, double rate, pd_error *err);
/* The names of a parameter's dimensions, with commas between them, as many as it has dimensions, "": none. Gives; NULL:
 * out of memory. */
char *pd_recipe_axes(const pd_recipe *recipe, const char *name, int rank);
/* A group as a worker's rule for the names that match `glob`: "* sgd lr=0.1 momentum=0.9". Gives; NULL: out of
 * memory. */
char *pd_recipe_rule(const pd_recipe *recipe, size_t group, const char *glob);

#endif
