/* resend.h - sends the frames of the window again after the server has gone back to an earlier step.
 *
 * The server refuses a push for a later step than the next one of a parameter. So frames of later steps, those of the
 * window and those of the user's calls, are held until the server has closed the step before. Pulls wait until the
 * server is as far as this process has seen it, so the program does not notice. */
#ifndef PD_RESEND_H
#define PD_RESEND_H

#include "core_state.h"

/* Returns whether the window has a frame of a step that the server lacks: the server has gone back, or the frame is the
 * note of a step under way. */
bool pd_resend_is_needed(const pd_core *core);
/* Begins to send the window's frames of the steps that the server lacks, or goes on with that on a new connection.
 * Called when the parameters are declared, before other frames are sent. PD_NO_MEMORY. */
int pd_resend_begin(pd_core *core);
/* Holds those newly queued frames that the server cannot take yet. */
void pd_resend_hold(pd_core *core);
/* Lets held frames go that the server can take now. Ends the sending again if the server is as far as this process has
 * seen it. */
void pd_resend_advance(pd_core *core);
/* Takes the answer to a frame that was sent again: an error if `refusal` is not NULL. An answer that differs from the
 * first one ends the client handle (the user's pd_client). */
void pd_resend_answered(pd_core *core, pd_outgoing_frame *frame, const pd_error *refusal);
/* Returns whether a frame of a call that is under way is for a round that was closed before the server has gone back.
 * The program does not notice if the server refuses such a frame. */
bool pd_resend_repeats(const pd_core *core, const pd_outgoing_frame *frame);
/* Handles the refusal of a frame for a round that was closed before. */
void pd_resend_refused(pd_core *core, pd_outgoing_frame *frame, const pd_error *refusal);

#endif
