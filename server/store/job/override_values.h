/* override_values.h - reads the values of an operator's command for one optimizer rule, checks every combination of
 * values that the rule's parameters would then have, and describes the changes for the answer. Step thread. */
#ifndef PD_OVERRIDE_VALUES_H
#define PD_OVERRIDE_VALUES_H

#include "job.h"
#include "override.h"

/* For each hyperparameter the override that gives its value at some step. NULL: no override
 * does, so the value is the declared one of the optimizer rule. */
typedef struct pd_override_state {
    const pd_override *from[PD_MAX_HYPERS];
} pd_override_state;

/* One operator's command, as it applies to the parameters of one optimizer rule, and the values that were checked last
 * for such a parameter. */
typedef struct pd_override_reading {
    /* the command's values for the optimizer of this rule; NULL: the command matches no parameter to which the rule
     * applies */
    pd_override *override;
    /* index in result->at of the first change that the command makes to parameters of this optimizer rule */
    size_t first;
    /* For each value in `merged` the override that it came from. Most parameters of an optimizer
     * rule have the same overrides, so the same values need not be checked again. */
    pd_override_state checked;
    /* Hyperparameters of this rule's optimizer, with the values that were checked last. `row`, which names the
     * optimizer, is NULL if no values were checked yet. */
    pd_hypers merged;
    /* first step for which the values in `merged` were checked; INT64_MAX: they were not checked for any step yet */
    int64_t count;
    double cost_ns; /* estimate of the time that checks of values have taken, in ns of one core */
} pd_override_reading;

/* Reads the values of a command for the optimizer rule of a parameter into r->override, unless that is done already.
 * Sets bit i of *known if the rule's optimizer has hyperparameter i of the command. PD_INVALID_ARGUMENT,
 * PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY. */
int pd_override_read(pd_override_reading *r, pd_job *job, const pd_request *request, const pd_param *param,
                     uint64_t *known, pd_error *err);
/* Fills *out with the overrides that apply at a step. `entries` has n entries, sorted by step. */
void pd_override_state_at(pd_override_state *out, const pd_override_entry *entries, uint32_t n, uint64_t step);
/* Checks every combination of values that the parameter would have from the first step of `added` on, if this entry
 * were added. Includes overrides that are planned for later steps. `r` is what was read for the parameter's rule. */
int pd_override_check(pd_override_reading *r, const pd_param *param, pd_override_entry added, pd_error *err);

/* The values whose text was last compared with a change's former value, so that the same text is not made again. */
typedef struct pd_override_shown {
    const pd_hypers *hypers; /* NULL: no parameter has the change yet */
    int64_t count;
    bool same; /* true: these values have the same text as the former value that the change shows */
} pd_override_shown;

/* Adds the parameter to a change of the answer: the parameter's new entry `added` changes hyperparameter h. `before`
 * has the overrides that would apply at the entry's step without it. *last is updated. */
void pd_override_add_change(pd_set_change *change, pd_override_shown *last, const pd_param *param,
                            const pd_override_state *before, pd_override_entry added, int h);

#endif
