/* rule.h - chooses the optimizer of a parameter. Rules are "glob optimizer name=value ...", and the first rule whose
 * glob matches the parameter's name wins. Pure functions. */
#ifndef PD_RULE_H
#define PD_RULE_H

#include "table.h"

typedef struct pd_rule {
    char *text; /* the text of the rule, as given */
    char *glob;
    pd_hypers hypers; /* Optimizer, values and schedules. They belong to the struct at this address, so it must not
                       * be moved. */

    /* Values for one step, sent with the push of frame number `pushed_by`. They are read once for all parameters of
     * this rule (push.c). */
    uint64_t pushed_by;
    uint64_t pushed_mask; /* bit h: the push has a value for hyperparameter h */
    pd_hypers pushed;
} pd_rule;

/* Reads the texts of n rules. Without rules there is one, "* sgd". `rows` are the known optimizers, with NULL at the
 * end. Gives an array of *n_out rules in *out. PD_INVALID_ARGUMENT: the error names the wrong rule and what is
 * possible instead. PD_NO_MEMORY. */
int pd_rules_parse(pd_rule **out, size_t *n_out, char *const *rules, size_t n, const pd_row *const *rows,
                   pd_error *err);
/* Reads the rules of a job as pd_rules_parse does, and adds a last rule for model state: it matches no name, and its
 * optimizer is model_state. */
int pd_rules_of_job(pd_rule **out, size_t *n_out, char *const *rules, size_t n, const pd_row *const *rows,
                    pd_error *err);
/* Returns the last rule of a job, the one for model state. `n` is the number of all rules, including that one. */
pd_rule *pd_rules_of_state(pd_rule *rules, size_t n);
void pd_rules_free(pd_rule *rules, size_t n); /* accepts NULL */
/* Returns the first rule whose glob matches a parameter's name; NULL: none does. */
pd_rule *pd_rules_match(pd_rule *rules, size_t n, const char *name);

/* Returns whether a name matches a shell pattern. * stands for any bytes (slashes, too), ? for one byte, [a-z] for
 * one byte of a set, [!a-z] for one that is not in it, \x for the byte x itself. Patterns come from peers: the time
 * is at most the product of the lengths of pattern and name. */
bool pd_glob_match(const char *glob, const char *name);

#endif
