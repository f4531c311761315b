/* rule.h - chooses the optimizer of a parameter. A job has rules of the form "glob optimizer name=value ...", and the
 * first rule whose glob matches the parameter's name wins. Pure functions. */
#ifndef PD_RULE_H
#define PD_RULE_H

#include "glob.h"
#include "optimizer_ops.h"

/* One optimizer rule of a job. The arrays of rules are freed by pd_rules_free. */
typedef struct pd_rule {
    char *text; /* the text of the optimizer rule, as the user wrote it */
    pd_glob *glob;
    /* The optimizer, and the values and schedules of its hyperparameters. Schedules point to this struct, so it must
     * not be moved. */
    pd_hypers hypers;

    /* `pushed` has the hyperparameter values of the push in frame number `pushed_by`. They are valid for one step.
     * push.c reads them once for all parameters of this rule. */
    uint64_t pushed_by;
    uint64_t pushed_mask; /* bit h is set if the push has a value for hyperparameter h */
    pd_hypers pushed;
} pd_rule;

/* Reads the texts of n optimizer rules. If there are none, the only rule is "* sgd". `rows` are the known optimizers,
 * with NULL at the end. Stores an array of *n_out rules in *out. PD_INVALID_ARGUMENT: the error names the wrong rule
 * and says what is possible instead. PD_NO_MEMORY: out of memory. */
int pd_rules_parse(pd_rule **out, size_t *n_out, char *const *rules, size_t n, const pd_optimizer_ops *const *rows,
                   pd_error *err);
/* Reads the optimizer rules of a job as pd_rules_parse does, and adds a last rule for model state: the rule matches no
 * name, and its optimizer is model_state. */
int pd_rules_of_job(pd_rule **out, size_t *n_out, char *const *rules, size_t n, const pd_optimizer_ops *const *rows,
                    pd_error *err);
/* Returns the last rule of a job, which is the rule for model state. `n` is the number of all rules, including that
 * one. */
pd_rule *pd_rules_of_state(pd_rule *rules, size_t n);
void pd_rules_free(pd_rule *rules, size_t n); /* accepts NULL */
/* Returns the first optimizer rule whose glob matches a parameter's name; NULL: no rule matches. Adds an estimate of
 * the time that this takes, in ns of one core, to *cost_ns; `cost_ns` may be NULL. */
pd_rule *pd_rules_match(pd_rule *rules, size_t n, const char *name, double *cost_ns);

#endif
