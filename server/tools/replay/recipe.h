/* recipe.h - the optimizer and hyperparameters of a recorded run, as paramd names them. All functions are pure:
 * they use no files. */
#ifndef PD_RECIPE_H
#define PD_RECIPE_H

#include <jansson.h>

#include "paramd/optim.h"

/* The optimizer of a recorded run and its hyperparameters, for all parameters. */
typedef struct pd_recipe {
    size_t n_groups; /* number of groups of parameters, at least 1; a group has the same hyperparameters */
    /* Hyperparameters of each group of parameters. Group 0 has the parameters that the configuration names in no
     * group. Do not move the array: the hyperparameters may contain schedules. */
    pd_hypers *groups;
    /* JSON object from a parameter's name to the number of its group; NULL: all parameters are in group 0. */
    json_t *members;
    json_t *rates; /* JSON list of learning rates, one for each step; NULL: the configuration has no such list */
    /* JSON object from a parameter's name to the list of its dimensions' names. The value true says that the first
     * dimension is "layers". NULL: no parameter has names of dimensions. */
    json_t *axes;
    int64_t start_step; /* number of steps that count as already taken when the recorded run begins */
    /* A defect of the reference optimizer that this configuration triggers; NULL: none is known. */
    const char *defect;
    const char *left_out; /* what the run needs and paramd leaves out on purpose; NULL: nothing */
    /* The run was computed in another type than float32, or keeps other state than paramd: only its weights are
     * compared, within their noise. */
    bool weights_only;
    bool zeros; /* a parameter without a gradient takes a step with zeros, as the reference optimizer makes it do */
    const char *rate; /* name of the hyperparameter that gets the recorded learning rates, such as lr */

    /* Only for a trace of averages, which records averaged gradients in place of weights: */
    const char *aggregate; /* value of the job's key `aggregate`: "mean", "adasum" or "adasum_vdot"; NULL: the run has
                            * weights */
    int shards; /* number of shards of the weights: replica r has shard r mod `shards`, and averages with the replicas
                 * that have the same shard */
} pd_recipe;

/* Reads which optimizer and hyperparameters a trace was made with, from its metadata `system` and `config`. The caller
 * frees *out, also after an error.
 *
 * Each entry of `config.groups` names its parameters in `params` and lists how its configuration differs from the whole
 * one. Special values:
 *   - meta_shampoo: null switches an option off. An object sets several hyperparameters. Keys about distribution
 *     are ignored if they don't change results.
 *   - distributed_kron: null switches an option off. weight_decay_mask splits the parameters into groups. A
 *     schedule of learning rates is ignored, since the trace records the rates.
 *   - trace of averages (of gradients): it has no optimizer. It is played with sgd at learning rate 1, which turns
 *     weights of 0 into minus the average.
 *
 * PD_UNIMPLEMENTED: this build lacks the system, the optimizer or a hyperparameter, which the error names.
 * PD_INVALID_ARGUMENT, PD_OUT_OF_RANGE: the optimizer refuses the configuration, or Adasum cannot average this number
 * of replicas. PD_NO_MEMORY. */
int pd_recipe_read(pd_recipe *out, const char *system, const json_t *config, pd_error *err);
void pd_recipe_free(pd_recipe *recipe);
/* Returns true if runs that were recorded with this system, such as "torch_optim", can be replayed. */
bool pd_recipe_knows(const char *system);

/* Returns the number of the group to which a parameter belongs. */
size_t pd_recipe_group(const pd_recipe *recipe, const char *name);
/* Sets *rate to the learning rate that the configuration has for a step; steps count from 1. Returns false if it has
 * none. */
bool pd_recipe_rate(const pd_recipe *recipe, int64_t step, double *rate);
/* Gives `rate`, the learning rate that was recorded for the first step, to each group of parameters whose configuration
 * has the learning rate "none". */
int pd_recipe_declare_rate(pd_recipe *recipe, double rate, pd_error *err);
/* Puts off the computation of bases beyond the end of every run, for a run whose bases are recorded inputs. */
int pd_recipe_take_bases(pd_recipe *recipe, pd_error *err);
/* Makes kron update its factors in the listed ones of n steps, for a trace that records in which steps factors were
 * updated, as psgd_torch decides by chance. */
int pd_recipe_declare_updates(pd_recipe *recipe, const json_t *steps, int64_t n, pd_error *err);
/* Gives a number to the hyperparameter `name` of all groups: what follows from a trace's tensors. */
int pd_recipe_declare(pd_recipe *recipe, const char *name, double value, pd_error *err);
/* Returns the names of a parameter's dimensions, separated by commas; "" if they have no names. The caller frees the
 * text. NULL: out of memory. */
char *pd_recipe_axes(const pd_recipe *recipe, const char *name, int rank);
/* Returns the hyperparameters of a group of parameters that are not the defaults as the text of a rule, which a worker
 * sends for the parameters that match `glob`, such as "* sgd lr=0.1 momentum=0.9". The caller frees the text. NULL: out
 * of memory. */
char *pd_recipe_rule(const pd_recipe *recipe, size_t group, const char *glob);

#endif
