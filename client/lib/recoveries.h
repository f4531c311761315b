/* recoveries.h - how a handle continues after it has lost its connection, or the server has lost steps or the job.
 *
 *   restamp   new connection, same state: queued requests get the marks of the new connection
 *   resend    the server went back and the window reaches back as far: the window's pushes are sent again
 *   rewind    the server went back and the window does not: the program takes the steps again from the checkpoint
 *   recreate  the server has lost the job: the workers create it again from their weights
 *   resume    the program's side of rewind and recreate (pd_client_rewind, pd_client_restart): it gets the weights */
#ifndef PD_RECOVERIES_H
#define PD_RECOVERIES_H

#include "core.h"
#include "paramd/client.h"

/* Changes those fields of a request's header that belong to one connection or to one server: `mark` becomes that of the
 * last error of the present connection, and if `forget` is set, `holds` becomes 0. All else stays byte for byte. Resets
 * the core's arena. PD_NO_MEMORY: the frame is as it was. */
int pd_restamp(pd_core *core, pd_outgoing_frame *frame, bool forget);
/* Does the same with all queued requests that need it. */
int pd_restamp_all(pd_core *core, bool forget);

/* Returns whether the window has a frame of a step that the server lacks: the server has gone back, or the frame is the
 * worker state of a step under way. */
bool pd_resend_is_needed(const pd_core *core);
/* Begins to send the window's frames of the steps that the server lacks, or continues with that on a new connection.
 * Called when the parameters are declared, before other frames are sent. PD_NO_MEMORY. */
int pd_resend_begin(pd_core *core);
/* Holds those newly queued frames that the server cannot take yet. */
void pd_resend_hold(pd_core *core);
/* Lets held frames go that the server can take now. Ends the sending again if the server is as far as this process has
 * seen it. */
void pd_resend_advance(pd_core *core);
/* Takes the answer to a frame that was sent again: an error if `refusal` is not NULL. An answer that differs from the
 * first one ends the client handle. */
void pd_resend_answered(pd_core *core, pd_outgoing_frame *frame, const pd_error *refusal);
/* Returns whether a frame of a call that is under way is for a round that was closed before the server has gone back.
 * The program does not notice if the server refuses such a frame. */
bool pd_resend_repeats(const pd_core *core, const pd_outgoing_frame *frame);
/* Handles the refusal of a frame for a round that was closed before. */
void pd_resend_refused(pd_core *core, pd_outgoing_frame *frame, const pd_error *refusal);

/* Returns whether the server has no weights of a parameter that had some. Then its job is not the one that this process
 * knows. */
bool pd_core_lacks_weights(const pd_core *core);
/* Returns whether the server has closed fewer rounds of a parameter than this process has seen. */
bool pd_core_is_behind(const pd_core *core);
/* Returns the parameter of which the server lacks most steps. */
const pd_param_record *pd_core_furthest_behind(const pd_core *core);
/* Ends the client handle with PD_REWIND, because the server has gone back. `why`: why the window did not help, as the
 * rest of a sentence, or "". */
void pd_core_go_back(pd_core *core, const char *why);
/* Ends the client handle likewise if the window does not reach back to the server's steps. Returns whether it does. */
bool pd_core_window_helps(pd_core *core);
/* Opens a client handle that ended with PD_REWIND: connects again as the same process, and takes over the server's
 * steps. The ticket is done when the server has accepted the parameters. PD_FAILED_PRECONDITION: the server has not
 * gone back. If the handle has ended with another error, returns that error. */
int pd_core_rewind(pd_core *core, pd_ticket_id *ticket, pd_error *err);

/* Starts a lost job anew with the parameters that were declared before. Rank 0 creates the job, whose option start_step
 * becomes the lowest step of rank 0's parameters. The other ranks wait until the job exists. The ticket is done when
 * the parameters are declared. PD_FAILED_PRECONDITION: the job is not lost (pd_core_lost). */
int pd_core_recreate(pd_core *core, pd_ticket_id *ticket, pd_error *err);
/* Returns whether the server had weights of this job when it last answered. If it had, and a server now says that there
 * is no such job, the job is lost. */
bool pd_core_has_begun(const pd_core *core);
/* Returns whether this process starts the lost job anew, and has not seen weights of it yet. Then only rank 0 may
 * create the job, because only rank 0 knows at which step it begins; the other ranks wait for it. This holds, too, if
 * the server is lost once more before it has the weights. */
bool pd_core_recreates(const pd_core *core);
/* Ends the client handle because the server no longer has its job. The user may then restart the job on the same handle
 * (pd_client_restart). */
void pd_core_lose_job(pd_core *core);

#endif
