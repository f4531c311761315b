/* override.h - overrides: values of hyperparameters that operators set while a job runs, each from a certain step
 * on. Step thread.
 *
 * A command (job/override_command.h) makes one pd_override for the parameters of each rule. Each of these parameters
 * gets an entry, with the step from which the override applies to it. The entry applies until a later command sets
 * the same hyperparameter again. A later command also replaces entries that were planned for its step or a later
 * one. */
#ifndef PD_OVERRIDE_H
#define PD_OVERRIDE_H

#include "effects.h"
#include "param.h"

#define PD_MAX_PARAM_OVERRIDES 64 /* most entries of one parameter, in force or planned */
#define PD_MAX_JOB_OVERRIDES 4096 /* most overrides of one job */

/* The values that one command sets in the parameters of one rule. These parameters share the struct. */
typedef struct pd_override {
    uint32_t refs;      /* number of references: from entries, and from the command while it runs */
    uint32_t *alive;    /* points to the job's number of overrides */
    pd_hypers hypers;   /* the declared hyperparameters, with the command's values in place of theirs */
    uint64_t mask;      /* bit h: the command sets or withdraws hyperparameter h */
    uint64_t withdrawn; /* bit h: the command withdraws earlier overrides of hyperparameter h */
    char *pattern;      /* glob on parameter names, from the command */
    char by[128];       /* label of the operator's connection */
    bool planned;       /* the command named a later step, and the log has not reported yet that this step has come */
    uint32_t number;    /* number of the override in an image that is being written */
    bool overruled;     /* the log has reported that the override replaces a value which workers push */
} pd_override;

/* A parameter's reference to an override. */
typedef struct pd_override_entry {
    pd_override *override;
    uint64_t from, mask; /* first step to which it applies; bit h: it gives the value of hyperparameter h */
} pd_override_entry;

/* Returns an override with one reference, which does not set anything yet. NULL: out of memory. */
pd_override *pd_override_new(const pd_hypers *declared, const char *pattern, const char *by, uint32_t *alive);
/* Drops one reference; the last one frees the override. Accepts NULL. */
void pd_override_drop(pd_override *override);

/* Reserves room for one more entry. PD_NO_MEMORY. */
int pd_overrides_reserve(pd_param *param, pd_error *err);
/* Inserts an entry, sorted by step. Entries of the same step or a later one lose the hyperparameters that the new
 * entry has, but stay in the list. The caller has reserved room. Returns the new number of entries. */
uint32_t pd_overrides_insert(pd_override_entry *entries, uint32_t n, pd_override_entry added);
/* Drops the entries that give no value any more, after the parameter has closed a round. Logs which planned entries
 * apply from the next step on. */
void pd_overrides_settle(pd_effects *outbox, const char *job, pd_param *param);
/* Drops all of the parameter's entries. */
void pd_overrides_clear(pd_param *param);
/* Returns the hyperparameters that have an override, in force or planned: bit h for hyperparameter h. */
uint64_t pd_overrides_mask(const pd_param *param);

/* Writes the values of overrides that apply to the parameter's next step into value[PD_MAX_HYPERS], and leaves the
 * other values alone. Returns bit h for each hyperparameter h that it has written. */
uint64_t pd_overrides_next(const pd_param *param, double *value);
/* Writes the values that replace declared or scheduled ones in the next step: first those that pushes of the round
 * have sent, then the overrides, which take precedence. Returns bit h for each hyperparameter h that it has written. */
uint64_t pd_overrides_begin(pd_effects *outbox, const char *job, const pd_param *param, double *value);

/* Writes the hyperparameter's value, like "0.05", or its schedule's text. Cuts the text with "..." if `size` is too
 * small. Returns `text`. */
char *pd_overrides_text(const pd_hypers *hypers, int index, char *text, size_t size);
/* Writes the hyperparameter's value. If it has a schedule, writes the schedule's text and the value at the step
 * count `count`, like "cosine(peak=0.1,steps=100), now 0.0999753". size > 48. Returns `text`. */
char *pd_overrides_text_at(const pd_hypers *hypers, int index, int64_t count, char *text, size_t size);

#endif
