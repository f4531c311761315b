/* override.h - values of hyperparameters that operators set while a job runs, and from which step on each of them
 * holds. Step thread.
 *
 * A command (job/override_command.h) makes one pd_override for the parameters of each rule; each of them has an
 * entry from a step of its own on, until a later command sets the same hyperparameter again. A later command also
 * replaces what was planned for its step or after. */
#ifndef PD_OVERRIDE_H
#define PD_OVERRIDE_H

#include "effects.h"
#include "param.h"

#define PD_MAX_PARAM_OVERRIDES 64       /* entries of one parameter, in force or planned */
#define PD_MAX_JOB_OVERRIDES   4096     /* overrides of one job */

/* What one command sets in the parameters of one rule. They share it. */
typedef struct pd_override {
    uint32_t  refs;                     /* entries, and the command that is making it */
    uint32_t *alive;                    /* the job's count of overrides */
    pd_hypers hypers;                   /* as declared, but for what is set here; at its own address, for its schedules */
    uint64_t  mask;                     /* bit h: it is about hyperparameter h, */
    uint64_t  withdrawn;                /* and for these it withdraws what was set before */
    char     *pattern;                  /* the operator's glob */
    char      by[128];                  /* who: the label of the connection */
    bool      planned;                  /* for a step that the operator named; the log has not reported that it has come */
    uint32_t  number;                   /* its place in an image that is being written */
    bool      overruled;                /* the log has reported that it goes before a value sent with a push */
} pd_override;

/* A parameter's part in it. */
typedef struct pd_override_entry {
    pd_override *override;
    uint64_t     from, mask;            /* step from which it holds for these hyperparameters */
} pd_override_entry;

/* Returns an override with one reference, which sets nothing. NULL: out of memory. */
pd_override *pd_override_new(const pd_hypers *declared, const char *pattern, const char *by, uint32_t *alive);
/* Drops one reference. Accepts NULL. */
void         pd_override_drop(pd_override *override);

/* Reserves room for one more entry. PD_NO_MEMORY. */
int      pd_overrides_reserve(pd_param *param, pd_error *err);
/* Inserts an entry, sorted by step. Entries of the same step or later lose its hyperparameters but stay in the list.
 * The caller has reserved room. Returns the new count. */
uint32_t pd_overrides_insert(pd_override_entry *entries, uint32_t n, pd_override_entry added);
/* Drops entries that hold nothing any more, now that the parameter's next step is step + 1; logs which planned ones
 * have come. */
void     pd_overrides_settle(pd_effects *outbox, const char *job, pd_param *param);
/* Drops all entries. */
void     pd_overrides_clear(pd_param *param);
/* Returns the hyperparameters with an override, in force or planned. */
uint64_t pd_overrides_mask(const pd_param *param);

/* Writes the overrides of the parameter's next step into value[PD_MAX_HYPERS], and returns which; the other values are
 * not touched. */
uint64_t pd_overrides_next(const pd_param *param, double *value);
/* Writes the values that the next step takes instead of declared or scheduled ones: those sent with its pushes, and
 * over those the overrides. Returns which. */
uint64_t pd_overrides_begin(pd_effects *outbox, const char *job, const pd_param *param, double *value);

/* Writes "0.05", or a schedule's text, cut with "..." where `size` is short. Returns `text`. */
char *pd_overrides_text(const pd_hypers *hypers, int index, char *text, size_t size);
/* Writes the same, and of a schedule its value at that count: "cosine(peak=0.1,steps=100), now 0.0999753". size >
 * 48. */
char *pd_overrides_text_at(const pd_hypers *hypers, int index, int64_t count, char *text, size_t size);

#endif
