/* replacement.h - weights of a running job that its program has changed by hand between two steps: rank 0 sends them,
 * and they take the place of the published ones. Step thread.
 *
 * All ranks change their weights in the same way. Rank 0 sends them before its next push, in one or more frames
 * (Initialise with `replaces`, the number of the change). They are staged until all have come, and then all of them are
 * published at once, as the weights of the step that the parameters have closed. Every push of the next step brings the
 * number of the change, by which ranks that have changed their weights differently are found.
 *
 * A parameter's staged weights are in `next`, which its step uses only after rank 0 has contributed. */
#ifndef PD_REPLACEMENT_H
#define PD_REPLACEMENT_H

#include "job.h"

/* Handles a frame of weights that replace the published ones: checks it, stages its weights, publishes all that are
 * staged if all have come, and answers. A frame that is refused drops what is staged. Takes ownership of the frame. */
void pd_replace_take(pd_job *job, pd_request *frame);
/* Drops weights that are staged: rank 0 continues without them. */
void pd_replace_drop(pd_job *job);

/* Checks that a push for the parameter's open round comes from a rank that has changed its weights as the others have.
 * PD_FAILED_PRECONDITION. */
int pd_replace_check_push(const pd_job *job, const pd_param *param, const pd_request *push, pd_error *err);
/* Notes which change the contribution of a push has seen. pd_replace_check_push must have checked it before. */
void pd_replace_note_push(const pd_job *job, pd_param *param, const pd_request *push);

#endif
