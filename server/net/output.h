/* output.h - the output of a connection: what it still has to send, in which order, and where the bytes are.
 *
 * Runs on the loop thread and uses no sockets. There are three queues: answers to heartbeats (which allocate
 * nothing), control frames, and data replies. After each frame, the first queue that is not empty sends its next
 * frame. The weights of a data reply are sent directly from the memory of the snapshots. */
#ifndef PD_OUTPUT_H
#define PD_OUTPUT_H

#include <sys/uio.h>

#include "message.h"
#include "pending.h"

#define PD_BEATS 8 /* most answers to heartbeats that may be queued */

#define PD_REPLY_SCALARS (4 * PD_MAX_SCALARS) /* most scalars in one reply; the header always has space for them */

/* Memory for building the headers of data replies (replies that carry weights or outcomes). All connections share
 * it. */
typedef struct pd_reply_scratch {
    size_t capacity; /* most pieces (tensors or chunks) of a reply */
    Paramd__Outcome *outcomes;
    Paramd__Outcome **list;
    struct iovec *spans; /* memory spans of the payload: at most 2 * capacity */
    Paramd__Scalar scalars[PD_REPLY_SCALARS], *scalar_list[PD_REPLY_SCALARS];
} pd_reply_scratch;

int pd_reply_scratch_init(pd_reply_scratch *scratch, size_t capacity); /* PD_NO_MEMORY */
void pd_reply_scratch_free(pd_reply_scratch *scratch);

typedef struct pd_frame_out { /* a packed control frame */
    struct pd_frame_out *next;
    size_t bytes;
    uint8_t *at;
} pd_frame_out;

typedef struct pd_output {
    uint8_t beats[PD_BEATS * PD_PREFIX_BYTES], sending[PD_BEATS * PD_PREFIX_BYTES];
    size_t beats_bytes;
    pd_frame_out *first, *last;
    pd_pending *first_reply, *last_reply;
    size_t held; /* bytes of unsent control frames and data replies, not counting weights */
    /* state of the frame that is being sent: */
    bool busy;
    uint8_t *head;       /* the frame's prefix and header */
    uint8_t *head_owned; /* memory that is freed with the frame; NULL: none */
    size_t head_bytes, head_sent;
    pd_pending *reply; /* the data reply whose payload follows the header; NULL: the frame has no such payload */
    size_t last_piece; /* index of the last piece with data: no padding follows its data */
    size_t piece;
    uint64_t piece_sent; /* bytes of the current piece (data and padding) that are sent already */
} pd_output;

bool pd_output_empty(const pd_output *output);

/* Queues the answer to the heartbeat with the prefix `asked`, without allocating memory. Returns false if the queue
 * is full. */
bool pd_output_beat(pd_output *output, const pd_prefix *asked);
/* Queues the packed frame at `at`, and becomes the owner of its memory. PD_NO_MEMORY: the frame is still the
 * caller's. */
int pd_output_frame(pd_output *output, uint8_t *at, size_t bytes);
/* Queues the reply to a request whose pieces all have their answers. Takes ownership of the request. */
void pd_output_reply(pd_output *output, pd_pending *reply);

/* Returns how many payload bytes the answer to a request has. */
uint64_t pd_reply_payload_bytes(const pd_wait *wait);

/* Fills iov[0..max) with the next bytes to send, at most `most` bytes. Sets *n to the number of spans, 0 if nothing
 * is queued. The bytes never cross the end of a frame. PD_NO_MEMORY, PD_OUT_OF_RANGE: the header of a reply cannot
 * be made. */
int pd_output_next(pd_output *output, pd_reply_scratch *scratch, struct iovec *iov, int max, size_t most, int *n);
/* Notes that n bytes were sent, and releases the references of the pieces that are completely sent. Returns true if
 * the frame is complete. Sets *done to the request that is now answered, which the caller frees, or to NULL. */
bool pd_output_sent(pd_output *output, pd_board *board, size_t n, pd_pending **done);
/* Frees the queued frames. Returns the replies that are not sent, linked by next_reply. */
pd_pending *pd_output_clear(pd_output *output);

#endif
