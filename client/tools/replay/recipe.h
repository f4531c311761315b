/* recipe.h - the optimizer and hyperparameters that a recorded run asks for. Pure. */
#ifndef PD_RECIPE_H
#define PD_RECIPE_H

#include <jansson.h>

#include "paramd/optim.h"

typedef struct pd_recipe {
    size_t      n_groups;   /* at least 1 */
    pd_hypers  *groups;     /* group 0 has the parameters that no group of the configuration names. With schedules, so
                             * the entries stay at their addresses */
    json_t     *members;    /* name of a parameter to the number of its group; NULL: all are in group 0 */
    json_t     *rates;      /* list of numbers, one a step; NULL: the configuration has none */
    json_t     *axes;       /* name of a parameter to the list of its dimensions' names, or true: the first is "layers";
                             * NULL: none have any */
    int64_t     start_step; /* number of steps that count as taken before the first */
    const char *defect;     /* a defect of upstream's that the configuration meets; else NULL */
    const char *rate;       /* the hyperparameter that a recorded schedule of learning rates sets */
    /* For averages of gradients only: */
    const char *aggregate;  /* "mean", "adasum", "adasum_vdot", as the job's key has it; else NULL */
    int         shards;     /* the weights lie on this many neighbouring replicas: d, d + shards, d + 2 shards ... have
                             * the same, and average among themselves */
} pd_recipe;

/* Reads a trace's metadata `system` and `config`. Free *out, also after an error. Each of `config.groups` names its
 * parameters in `params` and lists its changes to the configuration around it. In a configuration of meta_shampoo null
 * means off, an object is a choice and its members, or several hyperparameters, and keys of the distribution are
 * ignored if they change no number. In one of distributed_kron null means off, too, weight_decay_mask splits the
 * parameters into groups, and a schedule of learning rates is left to the trace's record of them. Averages are taken of
 * what sgd with rate 1 turns into minus itself. PD_UNIMPLEMENTED: this build lacks the system, the optimizer or a
 * hyperparameter; the text says which. PD_INVALID_ARGUMENT, PD_OUT_OF_RANGE: a configuration that the optimizer
 * refuses, or Adasum of a number of replicas that Trax refuses. PD_NO_MEMORY. */
int pd_recipe_read(pd_recipe *out, const char *system, const json_t *config, pd_error *err);
void pd_recipe_free(pd_recipe *recipe);
/* Returns true if the table has an optimizer of the system. */
bool pd_recipe_knows(const char *system);

/* Returns the number of a parameter's group. */
size_t pd_recipe_group(const pd_recipe *recipe, const char *name);
/* Finds the learning rate of a step, counted from 1. False: the configuration has none. */
bool pd_recipe_rate(const pd_recipe *recipe, int64_t step, double *rate);
/* Declares this learning rate, that of the first update, if the configuration has none of its own ("none"). */
int pd_recipe_declare_rate(pd_recipe *recipe, double rate, pd_error *err);
/* Returns the names of a parameter's dimensions, separated by commas, "" if there are none. The caller frees. NULL: out
 * of memory. */
char *pd_recipe_axes(const pd_recipe *recipe, const char *name, int rank);
/* Returns a group as a worker's rule for the names that match `glob`: "* sgd lr=0.1 momentum=0.9". The caller frees.
 * NULL: out of memory. */
char *pd_recipe_rule(const pd_recipe *recipe, size_t group, const char *glob);

#endif
