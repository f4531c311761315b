/* recipe.h - which optimizer, with which hyperparameters, does a recorded run ask for? Pure. */
#ifndef PD_RECIPE_H
#define PD_RECIPE_H

#include <jansson.h>

#include "paramd/optim.h"

typedef struct pd_recipe {
    pd_hypers   hypers;     /* with their schedules: the struct stays where it is */
    const char *rate;       /* the hyperparameter that a recorded schedule of learning rates sets */
} pd_recipe;

/* From a trace's metadata `system` and `config`. Fills *out; pd_recipe_free it, also after an error.
 * PD_UNIMPLEMENTED: this build lacks the system, the optimizer or one of the hyperparameters; the text says which.
 * PD_INVALID_ARGUMENT, PD_OUT_OF_RANGE: a configuration that the optimizer refuses. */
int pd_recipe_read(pd_recipe *out, const char *system, const json_t *config, pd_error *err);
void pd_recipe_free(pd_recipe *recipe);
/* Some optimizer of the system is in the table. */
bool pd_recipe_knows(const char *system);

/* The recipe as a worker's rule for all parameters: "* sgd lr=0.1 momentum=0.9". Gives; NULL: out of memory. */
char *pd_recipe_rule(const pd_recipe *recipe);

#endif
