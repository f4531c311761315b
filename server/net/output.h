/* output.h - the output of a connection: what it still has to send, in which order, and where the bytes are.
 *
 * Loop thread; no sockets. There are three queues: answers to heartbeats (which allocate nothing), control frames, and
 * data replies. After each frame, the first queue that is not empty sends the next one. The weights of a data reply are
 * sent from the snapshots' own memory. */
#ifndef PD_OUTPUT_H
#define PD_OUTPUT_H

#include <sys/uio.h>

#include "message.h"
#include "pending.h"

#define PD_BEATS 8                      /* unanswered heartbeats, at most */

#define PD_REPLY_SCALARS (4 * PD_MAX_SCALARS)  /* in one reply; they always fit beside the outcomes */

/* Memory for building the headers of data replies; one for all connections. */
typedef struct pd_reply_scratch {
    size_t            capacity;         /* most pieces of a reply */
    Paramd__Outcome  *outcomes;
    Paramd__Outcome **list;
    struct iovec     *spans;            /* twice the capacity */
    Paramd__Scalar    scalars[PD_REPLY_SCALARS], *scalar_list[PD_REPLY_SCALARS];
} pd_reply_scratch;

int  pd_reply_scratch_init(pd_reply_scratch *scratch, size_t capacity);     /* PD_NO_MEMORY */
void pd_reply_scratch_free(pd_reply_scratch *scratch);

typedef struct pd_frame_out {           /* a packed control frame */
    struct pd_frame_out *next;
    size_t               bytes;
    uint8_t             *at;
} pd_frame_out;

typedef struct pd_output {
    uint8_t       beats[PD_BEATS * PD_PREFIX_BYTES], sending[PD_BEATS * PD_PREFIX_BYTES];
    size_t        beats_bytes;
    pd_frame_out *first, *last;
    pd_pending   *first_reply, *last_reply;
    size_t        held;                 /* bytes of unsent control frames and data replies, without their weights */
    /* the frame being sent */
    bool          busy;
    uint8_t      *head;                 /* prefix and header */
    uint8_t      *head_owned;           /* freed with the frame; NULL: nothing */
    size_t        head_bytes, head_sent;
    pd_pending   *reply;                /* the payload of this reply follows, or NULL */
    size_t        last_piece;           /* the last piece with data: no padding follows it */
    size_t        piece;
    uint64_t      piece_sent;           /* bytes of its data and padding */
} pd_output;

bool pd_output_empty(const pd_output *output);

/* Queues the answer to the heartbeat with the prefix `asked`. Allocates nothing. False: the queue is full. */
bool pd_output_beat(pd_output *output, const pd_prefix *asked);
/* Queues the packed frame `at` and takes it. PD_NO_MEMORY: the frame is still the caller's. */
int  pd_output_frame(pd_output *output, uint8_t *at, size_t bytes);
/* Queues the reply to a request whose pieces all have their answers. Takes the request. */
void pd_output_reply(pd_output *output, pd_pending *reply);

/* Returns the bytes of payload in the answer to a request. */
uint64_t pd_reply_payload_bytes(const pd_wait *wait);

/* Fills iov[0..max) with the next bytes to send, at most `most`, none if nothing is queued. The bytes never cross the
 * end of a frame. PD_NO_MEMORY, PD_OUT_OF_RANGE: the header of a reply cannot be made. */
int  pd_output_next(pd_output *output, pd_reply_scratch *scratch, struct iovec *iov, int max, size_t most, int *n);
/* Notes that n bytes were sent, and releases the references of the pieces that are sent. True: the frame is complete.
 * Gives *done, the request that is answered now, for the caller to free, or NULL. */
bool pd_output_sent(pd_output *output, pd_board *board, size_t n, pd_pending **done);
/* Frees the queued frames. Gives the replies that are not sent, linked by next_reply. */
pd_pending *pd_output_clear(pd_output *output);

#endif
