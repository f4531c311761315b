/* override.h - overrides: values of hyperparameters that operators set while a job runs, each from a certain step on.
 *
 * Step thread. A command (job/override_command.h) makes one pd_override for the parameters of each optimizer rule. Each
 * of these parameters gets an entry, with the step from which the override applies to it. The entry applies until a
 * later command sets the same hyperparameter again. A later command also replaces entries of that hyperparameter that
 * were planned for its step or a later one. */
#ifndef PD_OVERRIDE_H
#define PD_OVERRIDE_H

#include "effects.h"
#include "param.h"

/* most entries of one parameter: overrides that apply now or are planned for later steps */
#define PD_MAX_PARAM_OVERRIDES 64
#define PD_MAX_JOB_OVERRIDES 4096 /* most overrides that a job may have */

/* An override: the values that one operator's command sets in the parameters of one optimizer rule. These parameters
 * share the struct. */
typedef struct pd_override {
    /* number of references: each entry of a parameter has one, and so has the command while it runs */
    uint32_t refs;
    uint32_t *alive; /* points to the number of overrides that the job has, this one included */
    /* the declared hyperparameters of the optimizer rule, in which those that the command sets are replaced */
    pd_hypers hypers;
    uint64_t mask;      /* bit h: the command sets or withdraws hyperparameter h */
    uint64_t withdrawn; /* bit h: the command takes back earlier overrides of hyperparameter h */
    char *pattern;      /* glob of the command: it applies to parameters whose names match */
    char by[128];       /* label of the connection of the operator who gave the command */
    /* the override was set for a later step, and the log has not reported yet that this step has come */
    bool planned;
    /* number that the override gets in an image while the image is written */
    uint32_t number;
    bool overruled; /* the log has reported that the override takes precedence over a value that workers push */
} pd_override;

/* An entry in a parameter's list of overrides: an override, and the steps and hyperparameters for which it applies. */
typedef struct pd_override_entry {
    pd_override *override;
    /* `from`: first step to which the override applies; `mask`: bit h: the override gives hyperparameter h its value */
    uint64_t from, mask;
} pd_override_entry;

/* Returns an override that does not set anything yet, with one reference. `declared` are the hyperparameters of an
 * optimizer rule, `alive` points to the job's number of overrides. NULL: out of memory. */
pd_override *pd_override_new(const pd_hypers *declared, const char *pattern, const char *by, uint32_t *alive);
/* Drops one reference to an override. When the last one is dropped, the override is freed. Accepts NULL. */
void pd_override_drop(pd_override *override);

/* Makes room for one more entry in the parameter's list of overrides. PD_NO_MEMORY. */
int pd_overrides_reserve(pd_param *param, pd_error *err);
/* Inserts an entry into a list of n overrides that is sorted by step. Entries for the same step or a later one lose
 * the hyperparameters that the new entry has; an entry that has none left stays in the list. The caller has reserved
 * room. Returns the new number of entries. */
uint32_t pd_overrides_insert(pd_override_entry *entries, uint32_t n, pd_override_entry added);
/* Removes those entries of the parameter's list of overrides that give no value any more. Logs each planned override
 * whose first step is the next one. Call it after the parameter has closed a round. */
void pd_overrides_settle(pd_effects *outbox, const char *job, pd_param *param);
/* Removes all entries from the parameter's list of overrides. */
void pd_overrides_clear(pd_param *param);
/* Returns which hyperparameters of the parameter have an override that applies now or is planned: bit h for
 * hyperparameter h. */
uint64_t pd_overrides_mask(const pd_param *param);

/* Writes the values of the overrides that apply to the parameter's next step into value[PD_MAX_HYPERS], and leaves
 * the other values as they are. Returns which values were written: bit h for hyperparameter h. */
uint64_t pd_overrides_next(const pd_param *param, double *value);
/* Writes the values that the parameter's next step uses in place of declared or scheduled ones: those that pushes of
 * the round have sent, and those of overrides, which take precedence. Returns which values were written: bit h for
 * hyperparameter h. */
uint64_t pd_overrides_begin(pd_effects *outbox, const char *job, const pd_param *param, double *value);

/* Writes the value of a hyperparameter, like "0.05", or the text of its schedule. If `size` is too small the text is
 * cut and ends with "...". Returns `text`. */
char *pd_overrides_text(const pd_hypers *hypers, int index, char *text, size_t size);
/* Writes the value of a hyperparameter. If it has a schedule, writes the schedule's text and the value that it gives at
 * step count `count`, like "cosine(peak=0.1,steps=100), now 0.0999753". `size` must be more than 48. Returns `text`. */
char *pd_overrides_text_at(const pd_hypers *hypers, int index, int64_t count, char *text, size_t size);

/* Finds a hyperparameter in `mask` that must not change from step to step, and returns its name. Bit i of `mask` is
 * hyperparameter i of the optimizer `row`. NULL: all of them may change. */
const char *pd_fixed_hyper(const pd_optimizer_ops *row, uint64_t mask);

#endif
