/* rule.h - which optimizer does a parameter get? Rules are "glob optimizer name=value ...", and the first whose
 * glob matches the parameter's name wins. Pure. */
#ifndef PD_RULE_H
#define PD_RULE_H

#include "table.h"

typedef struct pd_rule {
    char     *text;                 /* as it was given */
    char     *glob;
    pd_hypers hypers;               /* row, values and schedules: set here, so the struct stays where it is */

    /* Values pushed with the frame of number `pushed_by`, read once for all parameters of this rule: push.c. */
    uint64_t  pushed_by;
    uint64_t  pushed_mask;          /* bit h: hyperparameter h was sent */
    pd_hypers pushed;
} pd_rule;

/* Reads rules; none at all means "* sgd". `rows`: the optimizers there are, ending with NULL. Gives *out, `*n_out`
 * rules. PD_INVALID_ARGUMENT: names the rule, and what there is instead. PD_NO_MEMORY. */
int  pd_rules_parse(pd_rule **out, size_t *n_out, char *const *rules, size_t n, const pd_row *const *rows,
                    pd_error *err);
/* The same for a job: behind them comes one that matches no name, with the row model_state. */
int  pd_rules_of_job(pd_rule **out, size_t *n_out, char *const *rules, size_t n, const pd_row *const *rows,
                     pd_error *err);
/* That one; `n` counts it. */
pd_rule *pd_rules_of_state(pd_rule *rules, size_t n);
void pd_rules_free(pd_rule *rules, size_t n);       /* accepts NULL */
/* The first rule that matches; NULL: none does. */
pd_rule *pd_rules_match(pd_rule *rules, size_t n, const char *name);

/* Shell pattern: * any run of bytes (a slash too), ? one byte, [a-z] [!a-z] one of a set, \x the byte x itself.
 * Time is at most pattern times name, whatever the pattern: it comes from a peer. */
bool pd_glob_match(const char *glob, const char *name);

#endif
