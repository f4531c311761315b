/* replacement.h - replaces the published weights of a running job by weights that its program has changed by hand
 * between two steps, and that the job's leader sends (membership.h). Step thread.
 *
 * All ranks change their weights in the same way. The leader sends the new weights before its next push, in one or more
 * frames (Initialise with `replaces`, the number of the change). They are staged until all have come; then all are
 * published at once, as the weights of the steps that the parameters have closed: one for each fragment. Every push of
 * the next step of a fragment some of whose weights were changed has the number of the change, so that a rank which has
 * changed its weights differently is found.
 *
 * Where not every rank counts in every step, pushes of other ranks are not compared with the change: they may belong to
 * earlier weights, and a rank that is left out must not stop the others. The leader may be another rank after each step
 * there.
 *
 * A parameter's staged weights are in its `next`. They are dropped when the rank that sends them pushes, or when a step
 * begins without it. */
#ifndef PD_REPLACEMENT_H
#define PD_REPLACEMENT_H

#include "job.h"

/* Handles a frame of replacement weights: checks it, stages its weights, publishes all staged weights if all have come,
 * and answers. If it refuses a frame, it drops all staged weights of that rank. Takes ownership of the frame. */
void pd_replace_take(pd_job *job, pd_request *frame);
/* Drops the staged weights that this rank has sent, if there are any: it continues without them. */
void pd_replace_drop_of(pd_job *job, uint32_t rank);

/* Checks that a push for the parameter's open round comes from a rank that has changed its weights as the other ranks
 * have. PD_FAILED_PRECONDITION: it has not. */
int pd_replace_check_push(const pd_job *job, const pd_param *param, const pd_request *push, pd_error *err);
/* Remembers the number of the change that a push for the parameter's open round has. The caller has checked the push
 * with pd_replace_check_push. */
void pd_replace_note_push(const pd_job *job, pd_param *param, const pd_request *push);

#endif
