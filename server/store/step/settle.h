/* settle.h - what a shard of a cluster tells the others about a step, and what all of them have said.
 *
 * Step thread. In a job on several shards each shard has some of the parameters, but a job that steps as a whole
 * decides over all of them: whether the step is skipped, by which factor gradients are scaled, how steps are counted,
 * whether an optimizer's refusal ends the step of others. So before it decides, a shard makes a tally (tally.h) of the
 * step and phase, and waits for the verdict: the tallies of all shards. Workers carry them (job/settling.h). Every
 * shard decides the same from the same verdict, and as one daemon with all parameters would.
 *
 *     phase     tally      made when                                                     file
 *     0         outcomes   the aggregates of all parameters are complete                 step_group.c, global_clip.c
 *     repeated  outcomes   some portions of a cut parameter lack a whole gradient, and   decide.c
 *                          others do not, so that none counts
 *     further   norm       a further scope of the clip is summed                         global_clip.c
 *     last      refusals   all optimizers of atomic groups have reported                 step_group.c
 *
 * Which phases a step has follows from its verdicts, so it is the same on all shards. The first verdict of a phase that
 * comes counts; a later one must be equal. The tallies of the last PD_SETTLE_STEPS steps are kept: other shards may
 * still wait for their verdict when this one has closed the step. */
#ifndef PD_SETTLE_H
#define PD_SETTLE_H

#include "archive.h"
#include "steps.h"
#include "tally.h"

enum { PD_SETTLE_STEPS = 8 };

typedef struct pd_settle pd_settle;

/* What a verdict is to this shard. */
typedef enum pd_verdict_state {
    PD_VERDICT_KNOWN, /* it came before, or its step is closed */
    PD_VERDICT_EARLY, /* this shard has not made its tally */
    PD_VERDICT_NEW    /* the step waits for it */
} pd_verdict_state;

/* What all shards have said in a phase. */
typedef struct pd_verdict {
    pd_tally_kind kind;
    bool skipped; /* OUTCOMES: some shard says so, of parameters that are not cut */
    bool seen;
    pd_exact_sum sum;
    char reason[PD_TALLY_REASON + 24]; /* of the first shard that gives one, with its number */
} pd_verdict;

/* What determines the bytes that a job whose steps are settled takes for it. */
typedef struct pd_settle_size {
    const pd_job_values *values;
    const pd_rule *rules;
    size_t n_rules, scopes;        /* scopes: of its clip */
    uint32_t shards, n_cut, ranks; /* n_cut: number of cut parameters of the whole declaration */
} pd_settle_size;

/* Returns the bytes that pd_settle_make allocates, and those of one verdict of each rank that waits for its tally. */
uint64_t pd_settle_bytes(const pd_settle_size *size);
/* Checks that a verdict of a job whose steps are settled fits into a frame. PD_RESOURCE_EXHAUSTED: it has too many
 * rules or cut parameters for the number of its shards. */
int pd_settle_fits(const pd_steps *steps, pd_error *err);
/* Allocates steps->together.settle for a job whose steps are settled (pd_steps_settle), whose verdicts fit, and whose
 * clip has this number of scopes. PD_NO_MEMORY. pd_param_set_forget frees it. */
int pd_settle_make(pd_steps *steps, size_t scopes);
void pd_settle_free(pd_settle *settle); /* accepts NULL */

/* ---- making tallies ---- */

/* Begins the next step: its first tally is that of the outcomes. */
void pd_settle_begin(pd_steps *steps);
/* Makes the tally of the outcomes, or of a further norm if the outcomes are decided; the step waits for the verdict.
 * `sum`: of the squares of the present scope's gradients, of which some exist if `seen`. */
void pd_settle_tally(pd_steps *steps, bool seen, const pd_exact_sum *sum);
/* Notes that this step has a phase of refusals, and returns whether its tally is still to be made. */
void pd_settle_await_refusals(pd_steps *steps);
bool pd_settle_awaits_refusals(const pd_steps *steps);
/* Makes the tally of the refusals: n entries, and the reason of the first. If no step of an atomic group is under way
 * on this shard (`waits` false), nothing waits for the verdict. */
void pd_settle_refusals(pd_steps *steps, const uint8_t *refusals, size_t n, const char *reason, bool waits);

/* ---- verdicts ---- */

/* Checks a verdict. Sets *state. PD_INVALID_ARGUMENT: it is not a verdict of its step and phase, this shard has made
 * another tally, or another verdict came first. */
int pd_settle_check(pd_steps *steps, const pd_tallies *verdict, pd_verdict_state *state, pd_error *err);
/* Returns whether this shard has not made its tally of the step and phase yet, nor a later one. */
bool pd_settle_is_early(const pd_settle *settle, uint64_t step, uint32_t phase);
/* Takes a verdict that is NEW: it counts from now on. Joins what the shards have said, except refusals, which the
 * caller reads. */
void pd_settle_take(pd_steps *steps, const pd_tallies *tallies, pd_verdict *out);
/* Notes that the outcomes of the step are decided: `stepped` unless all parameters skip it. */
void pd_settle_decided(pd_steps *steps, bool stepped);
/* Notes that the gradients of a scope (global_clip.h) were scaled on all shards. */
void pd_settle_scaled(pd_steps *steps, size_t scope, float scale);
/* Notes that all parameters skip the step after all. */
void pd_settle_skipped(pd_steps *steps);

/* Returns whether the cut parameter of this number is in a set of some shard, as the last outcomes say. */
bool pd_settle_cut(const pd_steps *steps, uint32_t number, pd_tally_cuts set);
/* Returns whether a parameter of the rule steps, on some shard. */
bool pd_settle_steps(const pd_settle *settle, size_t rule);
/* Returns the largest absolute element of the gradients of the rule's parameters, on all shards, after clipping. */
float pd_settle_largest(const pd_settle *settle, size_t rule);
/* Returns whether the step waits for a verdict. */
bool pd_settle_waits(const pd_steps *steps);

/* ---- for workers ---- */

/* Finds the first tally at or after (step, phase). It stays valid until the next request or batch of work. Sets
 * *at_step and *at_phase to its step and phase. Returns PD_NOT_FOUND if it is not kept any more, PD_UNAVAILABLE if it
 * is not made yet. */
int pd_settle_find(const pd_settle *settle, uint64_t step, uint32_t phase, pd_tally_view *tally, uint64_t *at_step,
                   uint32_t *at_phase);
/* Writes the tallies of closed steps to an image, or reads them: other shards may still wait for them after a
 * restart. */
void pd_settle_visit(pd_archive *archive, pd_steps *steps);

/* Returns whether a tally was made or a verdict was taken since the last call: workers may have to be answered. */
bool pd_settle_has_news(const pd_steps *steps);
/* Notes that workers will be answered at this time. Measures how long verdicts have taken (figures.settle_times). */
void pd_settle_told(pd_steps *steps, uint64_t now_ns);

#endif
