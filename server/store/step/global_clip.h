/* global_clip.h - clips by the global norm: scales the gradients of a step together, if their common norm exceeds a
 * limit, and skips a step whose common norm is an outlier. All parameters of such a job begin each step together. Step
 * thread.
 *
 * If the job skips outliers (skip_outlier), the norm of all its gradients is compared with those of earlier steps first
 * (pd_outlier_is). If it is an outlier, all parameters skip the step, and nothing is clipped.
 *
 * If the job has a limit (clip_global_norm), all its gradients are clipped together next. Then each rule whose
 * optimizer has a limit (pd_optimizer_ops.clip_norm, from the declared hyperparameters) clips the gradients of its
 * parameters, as the first clip has left them. Parameters without a gradient in this step are left out, and so is model
 * state (pd_optimizer_ops.takes_values).
 *
 * Clipping begins when the aggregates of all parameters are complete (step_group.h). It runs in bounded batches. Until
 * it ends, no round of the job closes. Aggregates are scaled in place. The memory is allocated when the parameters are
 * declared, so clipping cannot fail. If the job is dropped while it is clipping, nothing has to be undone. */
#ifndef PD_GLOBAL_CLIP_H
#define PD_GLOBAL_CLIP_H

#include "exact_sum.h"
#include "steps.h"

enum {
    PD_OUTLIER_STEPS = 64, /* number of steps whose norms are stored */
    PD_OUTLIER_LEAST = 8   /* with fewer norms of earlier steps, no step is an outlier */
};

/* The norms of the last steps. The norm of step s is at index s % PD_OUTLIER_STEPS. Initialize with zeros. */
typedef struct pd_outlier_norms {
    uint64_t step[PD_OUTLIER_STEPS]; /* step of each norm; 0: none */
    double norm[PD_OUTLIER_STEPS];
} pd_outlier_norms;

typedef struct pd_global_clip pd_global_clip;

/* The data of the clip that survive a restart of the server. */
typedef struct pd_global_clip_saved {
    /* Norm of the last step's gradients before they were clipped: if the job has a limit or skips outliers, that of all
     * gradients; otherwise that of the first optimizer rule that has a limit and gradients. 0: none was computed. */
    double last;
    uint64_t clipped;       /* number of steps in which some norm exceeded its limit */
    uint64_t outliers;      /* number of steps that were skipped as outliers */
    pd_outlier_norms norms; /* norms of the last steps, if the job skips outliers */
} pd_global_clip_saved;

/* Returns whether the job skips outliers, or it or one of its optimizer rules has a limit on the norm of its gradients.
 * Then all parameters of the job step together. */
bool pd_global_clip_wanted(const pd_steps *steps);
/* Allocates steps->together.clip if pd_global_clip_wanted. PD_NO_MEMORY. pd_param_set_forget frees it. */
int pd_global_clip_make(pd_steps *steps);
/* Returns the number of scopes of the clip of a job with these values and rules: of sets of gradients whose norm is
 * computed. 0: the job has no clip. */
size_t pd_global_clip_scopes(const pd_job_values *values, const pd_rule *rules, size_t n_rules);
/* Returns the bytes of the clip for a job with these values and rules; 0: the job has no clip. */
uint64_t pd_global_clip_bytes(const pd_job_values *values, const pd_rule *rules, size_t n_rules);

/* Begins to clip the gradients of a step. Call it when the aggregates of all parameters are complete, and the outcomes
 * of their rounds are decided. */
void pd_global_clip_begin(pd_steps *steps);
/* Returns whether gradients of a step are being clipped. While the first norm waits for a verdict, none has been
 * changed, and the result is false. */
bool pd_global_clip_runs(const pd_steps *steps);
/* Returns whether pd_global_clip_run has something to do: gradients are clipped, and no norm waits for a verdict. */
bool pd_global_clip_has_work(const pd_steps *steps);
/* Clips gradients for about budget_ns nanoseconds of one core, but makes some progress however small the budget is.
 * *cost_ns becomes the estimated time that it took. Returns true when clipping is finished: then the caller
 * lets all parameters begin their steps (pd_step_groups_go_on). */
bool pd_global_clip_run(pd_steps *steps, double budget_ns, double *cost_ns);

/* In a job on several shards a norm is that of all shards. When this shard has summed a scope, the clip makes a tally
 * (pd_settle_tally) and waits. One of these functions lets it continue: */
/* with the sum over all shards, of gradients of which some exist if `seen`; */
void pd_global_clip_settled(pd_steps *steps, bool seen, const pd_exact_sum *sum);
/* with the first pass over the same scope, because outcomes of rounds have changed; */
void pd_global_clip_again(pd_steps *steps);
/* or with its end, because all parameters skip the step. */
void pd_global_clip_skip(pd_steps *steps);

/* Returns the data of the clip that an image stores. NULL: the job has no clip. */
pd_global_clip_saved *pd_global_clip_saved_of(const pd_steps *steps);

/* Returns whether the norm of a step is an outlier: more than `factor` times the median of the norms of earlier steps.
 * Stores this median in *median, and the number of these norms in *n. If *n is even, the median is the larger of the
 * two norms in the middle. If *n is less than PD_OUTLIER_LEAST or the median is 0, returns false. */
bool pd_outlier_is(const pd_outlier_norms *norms, uint64_t step, double norm, double factor, double *median, size_t *n);
/* Stores the norm of a step, if it is finite. */
void pd_outlier_note(pd_outlier_norms *norms, uint64_t step, double norm);

#endif
