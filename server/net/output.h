/* output.h - what a connection still has to send, in which order, and where its bytes are.
 *
 * Loop thread; no sockets. Three queues: answers to heartbeats (no allocation), control frames, data replies. Between two
 * frames the first that has something goes on; the weights of a data reply are sent from the snapshots' own memory. */
#ifndef PD_OUTPUT_H
#define PD_OUTPUT_H

#include <sys/uio.h>

#include "message.h"
#include "pending.h"

#define PD_BEATS 8                      /* heartbeats that can be owed at once */

#define PD_REPLY_SCALARS (4 * PD_MAX_SCALARS)  /* in one reply: there is always room for them beside the outcomes */

/* Memory in which the headers of data replies are put together; one for all connections. */
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
    size_t        held;                 /* bytes of our own memory in control frames and data replies that are not sent; weights are the board's */
    /* the frame being sent */
    bool          busy;
    uint8_t      *head;                 /* prefix and header */
    uint8_t      *head_owned;           /* to be freed with it, or NULL */
    size_t        head_bytes, head_sent;
    pd_pending   *reply;                /* whose payload follows, or NULL */
    size_t        last_piece;           /* of the reply with data: no padding follows it */
    size_t        piece;
    uint64_t      piece_sent;           /* of its data and padding */
} pd_output;

bool pd_output_empty(const pd_output *output);

/* Queues the answer to the heartbeat with the prefix `asked`. Takes no memory. False: too many are owed. */
bool pd_output_beat(pd_output *output, const pd_prefix *asked);
/* Takes the packed frame `at`. PD_NO_MEMORY: it is still the caller's. */
int  pd_output_frame(pd_output *output, uint8_t *at, size_t bytes);
/* Takes the request, whose pieces all have their answers. */
void pd_output_reply(pd_output *output, pd_pending *reply);

/* Bytes of weights that answer a request. */
uint64_t pd_reply_payload_bytes(const pd_wait *wait);

/* The next bytes: fills iov[0..max) with at most `most` bytes, 0 when there is nothing. Never crosses a frame's end.
 * PD_NO_MEMORY, PD_OUT_OF_RANGE: a reply's header cannot be made. */
int  pd_output_next(pd_output *output, pd_reply_scratch *scratch, struct iovec *iov, int max, size_t most, int *n);
/* n of them were sent. True: that completed the frame. Gives *done, if not NULL: the request that is answered by now, to be freed;
 * references of pieces that are through are given back to the board. */
bool pd_output_sent(pd_output *output, pd_board *board, size_t n, pd_pending **done);
/* Frees frames; gives the replies not sent, linked by next_reply. */
pd_pending *pd_output_clear(pd_output *output);

#endif
