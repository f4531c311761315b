/* setting.h - what operators set while a job runs: which value of a hyperparameter holds for a parameter, from which step on? Step thread.
 *
 * A command (set.c) makes one pd_override for the parameters of each rule; each of them holds it from a step of its own on, until a later
 * command sets the same hyperparameter again. What a later command sets also takes the place of whatever was planned for its step or after. */
#ifndef PD_SETTING_H
#define PD_SETTING_H

#include "param.h"

#define PD_MAX_PARAM_OVERRIDES    64          /* settings of one parameter, in force or planned */
#define PD_MAX_JOB_OVERRIDES 4096        /* of one job */

struct pd_effects;
struct pd_info;

/* What one command sets in the parameters of one rule. They share it. */
typedef struct pd_override {
    uint32_t  refs;                     /* holds, and whoever is making it */
    uint32_t *alive;                    /* the job's count of settings */
    pd_hypers hypers;                   /* as declared, but for what is set here; at its own address, for its schedules */
    uint64_t  mask;                     /* bit h: it is about hyperparameter h, */
    uint64_t  withdrawn;                /* and of these: what was set before no longer holds */
    char     *pattern;                  /* the operator's glob */
    char      by[128];                  /* who: the label of the connection */
    bool      planned;                  /* for a step that the operator named; the log has not said that it has come */
    bool      overruled;                /* the log has said that it goes before a value sent with a push */
} pd_override;

/* A parameter's part in it. */
typedef struct pd_override_entry {
    pd_override *setting;
    uint64_t    from, mask;             /* step from which it holds for these hyperparameters */
} pd_override_entry;

/* With one reference, and nothing set. NULL: out of memory. */
pd_override *pd_override_new(const pd_hypers *declared, const char *pattern, const char *by, uint32_t *alive);
void        pd_override_drop(pd_override *setting);           /* one reference less; accepts NULL */

/* Room for one more. PD_NO_MEMORY. */
int      pd_overrides_reserve(pd_param *param, pd_error *err);
/* Puts `news` among the n holds in the order of their steps; what it replaces loses its bits but stays. There is room. Gives how many there are. */
uint32_t pd_overrides_insert(pd_override_entry *holds, uint32_t n, pd_override_entry news);
/* Lets go of what holds nothing any more, now that the parameter's next step is step + 1; says in the log which planned ones have come. */
void     pd_overrides_settle(struct pd_effects *outbox, const char *job, pd_param *param);
void     pd_overrides_clear(pd_param *param);
/* Hyperparameters with something set, now or for later. */
uint64_t pd_overrides_mask(const pd_param *param);

/* Puts what operators have set for the parameter's next step into value[PD_MAX_HYPERS]; gives which, the others are not touched. */
uint64_t pd_overrides_next(const pd_param *param, double *value);
/* What the next step takes instead of what is declared or scheduled: values sent with its pushes, and over those what operators have set. Gives which. */
uint64_t pd_overrides_begin(struct pd_effects *outbox, const char *job, const pd_param *param, double *value);

/* "0.05", or a schedule's text, cut with "..." where `size` is short. Returns `text`. */
char *pd_overrides_text(const pd_hypers *hypers, int index, char *text, size_t size);
/* The same, and of a schedule its value at that count: "cosine(peak=0.1,steps=100), now 0.0999753". size > 48. */
char *pd_overrides_text_at(const pd_hypers *hypers, int index, int64_t count, char *text, size_t size);

#endif
