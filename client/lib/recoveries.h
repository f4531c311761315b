/* recoveries.h - the functions with which a handle continues after it has lost its connection, or the server has lost
 * steps or the job.
 *
 *   restamp   new connection, same state: queued requests get the marks of the new connection
 *   resend    the server went back, and the window has all pushes that it lacks: they are sent again
 *   rewind    the server went back, and the window lacks some: the program repeats the steps since the checkpoint
 *   recreate  the server has lost the job: the workers create it again from their weights
 *   resume    the program's side of rewind and recreate (pd_client_rewind, pd_client_restart): it gets the weights */
#ifndef PD_RECOVERIES_H
#define PD_RECOVERIES_H

#include "core.h"
#include "paramd/client.h"

/* Changes the fields of a request's header that belong to one connection or server: `mark` becomes the number of the
 * present connection's last error, and `share` says so if it names a share of other leases now (pd_leased_restamp). If
 * `forget` is set, `holds` becomes 0. All other bytes of the frame stay. Resets the core's arena. PD_NO_MEMORY: the
 * frame is as it was. */
int pd_restamp(pd_core *core, pd_outgoing_frame *frame, bool forget);
/* Calls pd_restamp for all queued requests that need it. */
int pd_restamp_all(pd_core *core, bool forget);

/* Returns whether the window has a frame of a step that the server lacks: the server has gone back, or the frame is the
 * worker state of a step under way. */
bool pd_resend_is_needed(const pd_core *core);
/* Begins to send the window's frames of the steps that the server lacks, or continues with that on a new connection.
 * Called when the parameters are declared, before other frames are sent. PD_NO_MEMORY: drop the connection; the next
 * one begins again. */
int pd_resend_begin(pd_core *core);
/* Holds those newly queued frames that the server cannot take yet. */
void pd_resend_hold(pd_core *core);
/* Releases the held frames that the server can take now. Ends the resend once the server has closed all rounds that
 * this process has seen closed. */
void pd_resend_advance(pd_core *core);
/* Handles the answer to a frame that was sent again from the window; `refusal` is its error, or NULL. An answer that
 * differs from the frame's first answer ends the client handle. */
void pd_resend_answered(pd_core *core, pd_outgoing_frame *frame, const pd_error *refusal);
/* Handles the answer to a pull with which the client waits until the server has closed a step of which this process has
 * no frame; `refusal` is its error, or NULL. */
int pd_resend_probed(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_error *refusal);
/* Returns whether a frame of a call under way is for a round that was already closed before the server went back. The
 * program does not learn that the server refuses such a frame. */
bool pd_resend_repeats(const pd_core *core, const pd_outgoing_frame *frame);
/* Handles the refusal of a frame for which pd_resend_repeats is true. */
void pd_resend_refused(pd_core *core, pd_outgoing_frame *frame, const pd_error *refusal);

/* Returns whether the server lacks the weights of a parameter that had weights before. Then its job is another one than
 * this process knows. */
bool pd_core_lacks_weights(const pd_core *core);
/* Returns whether the server has closed fewer rounds of a parameter than this process has seen. */
bool pd_core_is_behind(const pd_core *core);
/* Returns whether the server has closed steps after the next one of this process. No step closes without its rank, so
 * the server does not know that the job has gone back since: it continues from a mirror that did not have that yet. */
bool pd_core_is_ahead(const pd_core *core);
/* Returns the parameter of which the server lacks the most steps that this process has seen. */
const pd_param_record *pd_core_furthest_behind(const pd_core *core);
/* Ends the client handle with PD_REWIND, because the server has gone back. `why`: why the window did not help, as the
 * end of the error's sentence; "": no reason. */
void pd_core_go_back(pd_core *core, const char *why);
/* Returns whether the program knows nothing of the job yet: it still declares the parameters to other shards. */
bool pd_core_is_new(const pd_core *core);
/* Returns whether this process takes over the server's steps, whatever it has seen before. */
bool pd_core_begins_anew(const pd_core *core);
/* In a cluster whose shard 0 chooses the ranks: if another shard says that another process has the rank of this one,
 * or that it has none, ends the handle so that pd_client_rewind opens it again: shard 0 then gives it another rank, or
 * refuses it for good. Returns whether that is so. */
bool pd_core_loses_rank(pd_core *core, const pd_error *error);
/* If the server has given this process another rank than the one for which it has pushed, or other shares than those
 * that the program has taken for a step that is not closed, ends the handle as pd_core_go_back does, and returns true:
 * what the program has computed must not count. If the step is closed, the server itself finds that a push is of shares
 * that are not leased (PushRequest.share), and answers that it is late. `reply`: the answer to Declare. */
bool pd_core_gives_up(pd_core *core, const Paramd__DeclareReply *reply);
/* Returns whether the server's job has another course than the steps that this process has seen: after a restart the
 * server could not repeat them. If so, ends the client handle with PD_REWIND. `course`: that of the welcome. */
bool pd_core_left_course(pd_core *core, uint64_t course);
/* Does the same with the course that an answer brings. A process that has seen no step that the server lacks stays, and
 * takes the course over: it begins after these steps, because the server ends the connections of the processes that
 * have seen one of its steps otherwise. */
bool pd_core_changes_course(pd_core *core, uint64_t course);
/* Returns whether the window has all pushes that the server lacks. If not, ends the client handle with PD_REWIND. */
bool pd_core_window_helps(pd_core *core);
/* Ends the client handle with PD_REWIND, because another shard of its cluster has gone back. Does nothing if it has
 * ended. */
void pd_core_send_back(pd_core *core);
/* Reopens a client handle that ended with PD_REWIND: connects again as the same process, and takes over the server's
 * steps. The ticket is done when the server has accepted the parameters. PD_FAILED_PRECONDITION: the server has not
 * gone back. If the handle has ended with another error, returns that error. */
int pd_core_rewind(pd_core *core, pd_ticket_id *ticket, pd_error *err);

/* Starts a lost job anew with the parameters that were declared before. Rank 0 creates the job, whose option start_step
 * becomes the lowest step of rank 0's parameters, or `least` if that is higher. The other ranks wait until the job
 * exists. The ticket is done when the parameters are declared. PD_FAILED_PRECONDITION: the job is not lost
 * (pd_core.end.lost). */
int pd_core_recreate(pd_core *core, uint64_t least, pd_ticket_id *ticket, pd_error *err);
/* Returns whether the server had weights of this job when it last answered. If so, an answer "no such job" means that
 * the job is lost. */
bool pd_core_has_begun(const pd_core *core);
/* Returns whether this process starts the lost job anew, and has not seen weights of it yet. Then only rank 0 may
 * create the job, because only rank 0 knows at which step it begins; the other ranks wait for that. The result stays
 * true if the server is lost once more before it has the weights. */
bool pd_core_recreates(const pd_core *core);
/* Ends the client handle because the server no longer has its job. The user may then restart the job on the same handle
 * (pd_client_restart). */
void pd_core_lose_job(pd_core *core);

#endif
