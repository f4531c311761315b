/* set_rule.h - how it is decided which ranks count in a step: what the job keys of rounds and members say together.
 * Pure. */
#ifndef PD_SET_RULE_H
#define PD_SET_RULE_H

#include "job_keys.h"

/* What a contribution of age a, in steps, is multiplied by: 1, 1 / (1 + a), or 1 / sqrt(1 + a). */
typedef enum pd_damping { PD_DAMPING_NONE, PD_DAMPING_INVERSE, PD_DAMPING_ROOT } pd_damping;

/* What happens when a rank leaves, is kicked, or is lost for longer than `reconnect_grace_ns`. */
typedef enum pd_on_lost { PD_LOST_WAIT, PD_LOST_SHRINK, PD_LOST_FAIL } pd_on_lost;

/* The job keys from `rounds` to `reconnect_grace`, with their defaults filled in. */
typedef struct pd_set_rule {
    /* The set of ranks of a step is not known before it is fixed (step/fragment.h). false: every rank counts in every
     * step, and all are members for ever */
    bool open;
    uint32_t quorum;    /* number of members that must be whole before a step is taken; UINT32_MAX: all */
    uint64_t grace_ns;  /* how long a step waits for further members then; UINT64_MAX: their patience says it */
    uint64_t staleness; /* largest age that counts; UINT64_MAX: any */
    bool waits;         /* no step is taken that would make a contribution too old */
    pd_damping damping;
    double weight_cap; /* largest weight of a push; 0: any */
    bool in_ranks; /* `least` is a number of ranks, since min_workers is not given; false: of units (groups of ranks) */
    uint32_t least, most; /* fewest members with which steps are taken; number of slots for members */
    pd_on_lost on_lost;
    uint64_t reconnect_grace_ns;
} pd_set_rule;

/* Fills *rule from the values of a job that begins with `world` workers. PD_INVALID_ARGUMENT: the values contradict
 * each other, or do not suit that number; the error names the keys. */
int pd_set_rule_make(pd_set_rule *rule, const pd_job_values *values, uint32_t world, pd_error *err);

/* Returns the smallest number of ranks that can count in a step. */
uint32_t pd_set_rule_fewest(const pd_set_rule *rule);
/* Returns the number by which the weight of a contribution of age `age` is multiplied. */
double pd_set_rule_damp(const pd_set_rule *rule, uint64_t age);

#endif
