/* window.h - the resend window: keeps the frames of this process's last steps until these steps are durable.
 *
 * When an answer to a push begins to arrive, the I/O thread copies the frame without holding the core's lock
 * (pd_core_keep). When the answer is complete, the copy joins the window, and the oldest step of its parameters leaves
 * it. So the window never has more than the configured number of steps of any parameter. */
#ifndef PD_WINDOW_H
#define PD_WINDOW_H

#include <stdint.h>

#include "core.h"

/* The frames of one step that are kept. */
typedef struct pd_window_step {
    struct pd_window_step *prev, *next; /* neighbours, in the order of their steps (utlist) */
    uint64_t step;
    pd_sent_frame *first; /* list of the step's frames, in the order of their ids (utlist) */
} pd_window_step;

/* Prepares a copy of a frame whose answer is arriving, if the window keeps such frames: pushes, worker states and
 * frames that close a step. If out of memory, the window lacks the frame. */
void pd_window_expect(pd_core *core, pd_outgoing_frame *frame);
/* Copies the payload of the frame whose answer is arriving. Called after pd_core_header, without a lock: the payload
 * belongs to the library until the ticket is done. */
void pd_core_keep(const pd_core *core);
/* Adds `n` bytes of the weights that an answer brings to their hash. Called without a lock, while these bytes are in
 * the CPU's cache. */
void pd_core_digest(pd_core *core, const void *weights, size_t n);
/* Completes the hash of the weights that an answer brings. Called before pd_core_frame, without a lock. */
void pd_core_digest_end(pd_core *core);
/* Ends the copying of the frame whose answer was arriving: the answer is stored or refused, or the connection has
 * ended. */
void pd_window_forget(pd_core *core);

/* Puts the frame into the window: its answer is complete and stored. Steps that became too old leave the window. */
void pd_window_take(pd_core *core, const pd_outgoing_frame *frame);
/* Notes, in every parameter of a call that is done, whether the window has all frames of its step. */
void pd_window_note_done(pd_core *core, const pd_op *op);
/* Drops the frames of durable steps; in a cluster those up to the step to which all shards can go back. */
void pd_window_trim(pd_core *core);
/* Makes the window empty, as after a lost job. */
void pd_window_clear(pd_core *core);
/* Frees the window with its core, when no other thread uses it. */
void pd_window_free(pd_core *core);
/* Notes that the window has no pushes of a parameter up to its present step. */
void pd_window_begin(pd_param_record *record);

/* Notes that this process has pushed nothing for the steps between the last one that the window has and `step`, which
 * it begins to push or to end: the window lacks nothing of them. Notes nothing if the window lacks the last push, or
 * the last end of a step, which ended with an error; nor if the job's sets are not open. Call it before record->pushed
 * or progress.ended becomes `step`. */
void pd_window_skip(const pd_core *core, pd_param_record *record, uint64_t step);

/* Notes that the weights after `step` were changed by hand (pd_client_replace): answers to pushes for this step may
 * have brought the weights from before or after the change. */
void pd_window_changed(pd_core *core, uint64_t step);
/* Returns whether the weights that the answer to a frame brings may have been changed by hand, although no push has
 * said so: this process changes weights, and has not pushed each parameter of the frame since. */
bool pd_window_may_change(const pd_core *core, const pd_sent_frame *sent);

/* Returns whether the window has all steps of a parameter that the server lacks, except for a step that is under way.
 * Sets *needed to the number of steps that the server lacks, and *had to how many of them the window has. */
bool pd_window_reaches(const pd_core *core, const pd_param_record *record, uint64_t *had, uint64_t *needed);

/* Bytes of the smallest block that is kept as spare. Smaller blocks are freed at once: malloc keeps their memory. */
enum { PD_LEAST_SPARE = 16 * 1024 };

/* Takes a spare block of exactly this size: the one that was given last. NULL: there is none. */
void *pd_spare_take(pd_spare *spare, uint64_t bytes);
/* Adds a block that malloc has made to the spare blocks. Accepts NULL. */
void pd_spare_give(pd_spare *spare, void *block, uint64_t bytes);
/* Frees spare blocks, those that were given first, until the list has at most `most` bytes. */
void pd_spare_shrink(pd_spare *spare, uint64_t most);

#endif
