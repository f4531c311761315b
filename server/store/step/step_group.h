/* step_group.h - lets parameters wait for other parameters of their job before they step: decides which ones wait, and
 * until when.
 *
 * Step thread. When the aggregate of a parameter is complete, the parameter moves to steps->queue.ready at once, or is
 * held (stage PD_HELD) until the parameters that it waits for are ready. The contributions to a held parameter are
 * summed and their frames released, so it takes nothing from the ingest budget. There are two reasons to wait: the job
 * steps as a whole, or the parameter belongs to a step group.
 *
 * The job steps as a whole (nonfinite_scope = job, or gradients are clipped together): no parameter begins step s
 * before the aggregates of all parameters for step s are complete. If one of these rounds is skipped, all parameters
 * skip the step. The global norm needs all aggregates, too (global_clip.h). All parameters are at the same step, so the
 * only state is the number of held parameters (pd_together.n_held).
 *
 * If the job has parameters on several shards, all of them decide together (settle.h): when the aggregates of this
 * shard are complete and summed, the step waits for a verdict, and a step counts for a group if a member steps on any
 * shard.
 *
 * A step group is a set of parameters that count their steps together, because their optimizer wants it
 * (pd_optimizer_ops.counts_by_group). Its members are the parameters that one rule of the job matches. A round counts
 * as a step of the group if at least one member steps in it. For an optimizer that counts steps without gradients
 * (pd_optimizer_ops.counts_empty) a member without a gradient counts as one that steps. The optimizer's count in step s
 * is 1 + the number of earlier rounds that count.
 *
 * So before a member steps, it must be known which earlier rounds count as steps of the group. A group stores two
 * numbers of rounds, `base` and `unknown`:
 *
 * rounds up to `base`             known: all members have closed these rounds
 * rounds base + 1 to unknown - 1  known, each round counts: some member has stepped in it
 * round `unknown`                 not known: no member has stepped in it, and not all have closed it
 *
 * A member may step in a round up to `unknown`. To step in a later one it waits until a slower member has stepped in
 * round `unknown`, or all members have closed that round. A member whose own rounds all had gradients never waits. */
#ifndef PD_STEP_GROUP_H
#define PD_STEP_GROUP_H

#include "steps.h"
#include "tally.h"

/* The data of a step group that survive a restart of the server. */
typedef struct pd_step_group_saved {
    uint64_t base;    /* number of rounds that all members have closed */
    uint64_t unknown; /* first round after `base` in which no member has stepped yet */
    uint64_t missed;  /* number of rounds up to `base` in which no member has stepped */
    int64_t brought; /* number of steps by which an import of optimizer state has raised the step count: job/import.h */
} pd_step_group_saved;

typedef struct pd_step_group {
    pd_step_group_saved saved;
    pd_param *members; /* in the order of their declaration, linked by links.next_member */
    uint32_t n_members;
    uint32_t n_held;          /* number of members whose steps wait for other members */
    uint32_t behind;          /* number of members that have closed exactly `base` rounds */
    uint32_t to_begin, begun; /* number of steps in the atomic group of this round; number of these that have begun */
    bool bound;               /* all steps of the atomic group have begun, and wait until each is taken or refused */
    pd_atomic_group atomic;
    /* If the steps are settled with other shards: whether a step of the group was refused in this round, on any shard,
     * and how many of the steps on this shard come before it or are it. The WAL has them. */
    bool refused;
    uint32_t before_refusal;
} pd_step_group;

/* Makes the job's step groups, after its parameters were added. PD_NO_MEMORY. pd_param_set_forget frees the groups. */
int pd_step_groups_make(pd_steps *steps);
/* Counts group->behind anew, after the steps of the members were read from an image. */
void pd_step_group_recount(pd_step_group *group);

/* Returns whether the job steps as a whole: no parameter begins a step before the aggregates of all are complete. */
bool pd_steps_are_whole(const pd_steps *steps);
/* Returns whether the job's steps are settled with other shards (settle.h): it has parameters on several, and steps as
 * a whole. */
bool pd_steps_settle(const pd_steps *steps);
/* Returns whether the parameter may have to wait for other parameters before it steps. If so, it stays in
 * steps->queue.waiting until its step can begin. */
bool pd_param_may_be_held(const pd_steps *steps, const pd_param *param);
/* Called when the parameter's aggregate is complete. Lets the parameter begin its step, or holds it until other
 * parameters are ready. Releases held parameters that waited for this one. Decides the outcome of the rounds of all
 * parameters that are not held. */
void pd_param_collected(pd_steps *steps, pd_param *param);
/* Lets all parameters of a job that steps as a whole begin their steps, when all aggregates are complete and
 * clipped. */
void pd_step_groups_go_on(pd_steps *steps);
/* Makes all parameters skip a step, and logs that, with the reason. */
void pd_steps_skip_all(pd_steps *steps, uint64_t step, const char *reason);
/* Called when the parameter has closed its round. Releases held members of its step group that waited for that. */
void pd_param_moved_on(pd_steps *steps, pd_param *param);

/* Returns whether the parameter's step belongs to an atomic group: in a job that steps as a whole, all members of a
 * step group step, or none if one refuses. Such a step runs only after all steps of the group have begun. */
bool pd_param_is_bound(const pd_steps *steps, const pd_param *param);
/* Counts that the parameter's step, which belongs to an atomic group, has begun. When all steps of the group have
 * begun, binds them together (pd_optim_bind) and puts their parameters into steps->queue.ready. */
void pd_param_begun(pd_steps *steps, pd_param *param);
/* Returns whether the parameter's step has begun, but waits because other steps of its atomic group have not. */
bool pd_param_awaits_group(const pd_param *param);
/* Let the steps of an atomic group, or of all atomic groups, continue when each optimizer has reported whether it
 * refuses its step. Call them after steps have run, and when a preconditioner task has come back. */
void pd_step_group_look(pd_steps *steps, pd_step_group *group); /* if `group` is NULL, does nothing */
void pd_step_groups_look(pd_steps *steps);

/* Returns a parameter whose step waits until it is known whether another shard refuses a step of its atomic group. It
 * is not in steps->queue.waiting: its step has begun. NULL: there is none. */
const pd_param *pd_step_groups_unsettled(const pd_steps *steps);
/* Lets the steps of an atomic group continue in a job whose steps are settled, when it is known whether a step of the
 * group was refused on any shard: `refusal` says which one; NULL: none was. */
void pd_step_group_settled(pd_steps *steps, pd_step_group *group, const pd_tally_refusal *refusal, const char *reason);

/* Returns another parameter that this held parameter waits for. */
const pd_param *pd_param_awaited(const pd_steps *steps, const pd_param *param);
/* Returns the step count of the parameter's step group before the parameter's next step, which must be able to
 * begin. */
int64_t pd_step_group_count(const pd_param *param);
/* Returns whether all members have closed the same rounds. Only then the step count can be set. */
bool pd_step_group_is_even(const pd_step_group *group);
/* Sets the step count of the group and of all its members. */
void pd_step_group_set_count(pd_step_group *group, int64_t count);

#endif
