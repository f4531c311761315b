/* settle_box.h - carries tallies between the shards of a job: the box in which the cores of one handle put the tallies
 * of their shards, and each core's part in that.
 *
 * A job on several shards decides each step over all of its parameters (DeclareReply.settles; PROTOCOL.md, section 7,
 * Verdicts). Each core asks its shard for the next tally. When the box has the tallies of all shards for a step and
 * phase, they are the verdict, which each core gives to its shard. Verdicts of the last steps are kept: a shard that
 * was killed takes these steps again, and needs them again. The box does not understand tallies.
 *
 * The cores of a handle have threads of their own. The box has a lock, which is held for a short time. It may be taken
 * while a core is locked: the box calls no core, it only writes to event descriptors. It has no thread. */
#ifndef PD_SETTLE_BOX_H
#define PD_SETTLE_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

typedef struct pd_settle_box pd_settle_box;

enum {
    PD_SETTLE_KEPT = 8,    /* least number of steps whose verdicts are kept */
    PD_SETTLE_ATTEMPTS = 2 /* the handle ends when a verdict was refused so many times the number of shards */
};

/* ---- for the owner of the cores (shards.c) ---- */

/* Makes a box for this number of shards, whose verdicts are kept for PD_SETTLE_KEPT steps, or `window` if that is more.
 * PD_NO_MEMORY, PD_INVALID_ARGUMENT. */
int pd_settle_box_new(pd_settle_box **out, uint32_t shards, uint32_t window, pd_error *err);
/* Frees the box. All I/O threads must have stopped. Accepts NULL. */
void pd_settle_box_free(pd_settle_box *box);
/* Sets how the I/O thread of a shard is woken when there is something to send: eventfd `fd` is written. */
void pd_settle_box_wake(pd_settle_box *box, uint32_t number, int fd);
/* Forgets all tallies: the job goes back, and other gradients may follow. The present connections ask and bring nothing
 * more: the box begins again when all shards have joined on new ones. */
void pd_settle_box_forget(pd_settle_box *box);
/* Writes what the box waits for, such as "shard 2 has given no tally of step 7"; "" if it waits for nothing. Returns
 * `text`. For errors of calls that time out. */
char *pd_settle_box_text(pd_settle_box *box, char *text, size_t size);

/* ---- for a core (settle_relay.c) ---- */

typedef struct pd_tally_span {
    const uint8_t *at;
    size_t n;
} pd_tally_span;

/* A frame that a core is to send: an ask (n 0), or a verdict of n tallies. These stay valid until pd_settle_box_taken,
 * _joined or _gone is called for its shard. */
typedef struct pd_settle_frame {
    uint64_t step;
    uint32_t phase;
    size_t n;
    const pd_tally_span *tallies;
} pd_settle_frame;

/* Tells the box that the shard has accepted the declared parameters on a new connection, and how many steps it has
 * closed. `settles`: its steps need verdicts. */
void pd_settle_box_joined(pd_settle_box *box, uint32_t number, bool settles, uint64_t closed);
/* Tells the box that the worker has left the job on the shard, so that no other core waits for it any more. */
void pd_settle_box_left(pd_settle_box *box, uint32_t number);
/* Returns whether all shards that the worker has not left have joined on their present connections, also if their steps
 * need no verdicts. */
bool pd_settle_box_all_here(pd_settle_box *box);
/* Tells the box that the connection to the shard has ended. */
void pd_settle_box_gone(pd_settle_box *box, uint32_t number);
/* Finds what the core must send now, and notes that it is under way. Returns false if there is nothing. At most one
 * verdict is under way. An ask may be sent while another one is, if the box needs an earlier tally: it replaces the
 * other, whose answer must not be given to the box. */
bool pd_settle_box_next_ask(pd_settle_box *box, uint32_t shard, pd_settle_frame *out);
bool pd_settle_box_next_verdict(pd_settle_box *box, uint32_t shard, pd_settle_frame *out);
/* Takes the answer to the shard's last ask: a tally, or an error (`refusal`). Returns PD_OK, or an error that ends the
 * handle. */
int pd_settle_box_told(pd_settle_box *box, uint32_t number, uint64_t step, uint32_t phase, pd_tally_span tally,
                       const pd_error *refusal, pd_error *err);
/* Takes the answer to the shard's verdict: an error, if `refusal` is not NULL. Returns PD_OK, or an error that ends the
 * handle. */
int pd_settle_box_taken(pd_settle_box *box, uint32_t number, const pd_error *refusal, pd_error *err);

#endif
