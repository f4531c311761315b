/* output.h - the output of a connection: what it still has to send, in which order, and where the bytes are.
 *
 * Runs on the loop thread and uses no sockets. There are three queues: answers to heartbeats, which allocate nothing;
 * control frames: all other answers, and errors; and data replies: answers to pushes and pulls that succeed. After each
 * frame, the first queue that is not empty sends its next frame. The weights of a data reply are sent directly from the
 * memory of the published versions.
 *
 * If the worker has mapped the segment that the published versions lie in, a large data reply only tells where the
 * weights are: its frame has the flag SHARED. The reply is then outstanding until the worker releases it. It keeps its
 * references to published versions meanwhile, so the weights stay unchanged. */
#ifndef PD_OUTPUT_H
#define PD_OUTPUT_H

#include "message.h"
#include "pending.h"
#include "segment.h"

#include <sys/uio.h>

typedef struct pd_outstanding {
    pd_pending *first, *last; /* linked by next_reply */
    uint64_t n;
    size_t bytes;      /* memory of the answers in the list, without weights */
    uint64_t since_ms; /* time since which the oldest answer waits to be released */
} pd_outstanding;

/* Adds an answer that is sent, and takes it. */
void pd_outstanding_add(pd_outstanding *list, pd_pending *answer, uint64_t now_ms);
/* Removes the oldest n answers from the list. Returns them, linked by next_reply. n is at most list->n. */
pd_pending *pd_outstanding_take(pd_outstanding *list, uint64_t n, uint64_t now_ms);

/* How many answers to heartbeats may be queued on a connection; they need no memory of their own. */
#define PD_BEATS 8

/* How many averages of scalars one reply may have; its header always has space for so many. */
#define PD_REPLY_SCALARS (4 * PD_MAX_SCALARS)

/* Memory for building the headers of data replies. All connections use the same. */
typedef struct pd_reply_scratch {
    size_t capacity; /* most pieces that a reply may have */
    Paramd__Outcome *outcomes;
    Paramd__Outcome **list;
    struct iovec *spans; /* addresses of a reply's payload, for its checksum: at most 2 * capacity */
    Paramd__Scalar scalars[PD_REPLY_SCALARS], *scalar_list[PD_REPLY_SCALARS];
} pd_reply_scratch;

int pd_reply_scratch_init(pd_reply_scratch *scratch, size_t capacity); /* PD_NO_MEMORY */
void pd_reply_scratch_free(pd_reply_scratch *scratch);

/* A control frame: it is complete in memory and waits to be sent, such as an answer without weights. */
typedef struct pd_frame_out {
    struct pd_frame_out *next;
    size_t bytes;
    uint8_t *at;
} pd_frame_out;

typedef struct pd_output {
    uint8_t beats[PD_BEATS * PD_PREFIX_BYTES], sending[PD_BEATS * PD_PREFIX_BYTES];
    size_t beats_bytes;
    pd_frame_out *first, *last;
    pd_pending *first_reply, *last_reply;
    size_t held; /* bytes of memory of unsent control frames and data replies, not counting weights */
    /* The next fields describe the frame that is being sent. */
    bool busy;
    uint8_t *head;       /* the frame's prefix and header, or answers to heartbeats */
    uint8_t *head_owned; /* memory to free when the frame is sent; NULL: none */
    size_t head_bytes, head_sent;
    pd_pending *reply; /* the answer to a push or pull that is being sent; NULL: another frame is */
    bool shared;       /* the payload of that answer does not follow its header: the worker reads it in shared memory */
    size_t last_piece; /* index of the last piece of the payload that has data: no padding follows it */
    size_t piece;
    uint64_t piece_sent; /* bytes of the current piece that are sent already */
    /* The next fields are for shared memory. */
    pd_segment weights; /* the segment of the job's weights, which the step thread has mapped, if the worker has mapped
                         * it too; else PD_NO_SEGMENT, or all 0 */
    uint64_t least_shared;      /* payload bytes of the smallest reply in shared memory: pd_least_shared */
    pd_outstanding outstanding; /* sent replies whose weights the worker has not released yet */
} pd_output;

bool pd_output_empty(const pd_output *output);

/* Queues the answer to the heartbeat with the prefix `asked`, without allocating memory. Returns false if the queue is
 * full. */
bool pd_output_beat(pd_output *output, const pd_prefix *asked);
/* Queues a frame that is complete in memory, and takes over its memory. PD_NO_MEMORY: the memory is still the
 * caller's. */
int pd_output_frame(pd_output *output, uint8_t *at, size_t bytes);
/* Queues the answer to a push or pull whose pieces all have their answers. Takes over the request. */
void pd_output_reply(pd_output *output, pd_pending *reply);

/* Returns how many bytes the payload of the answer to a push or pull has. */
uint64_t pd_reply_payload_bytes(const pd_wait *wait);

/* Finds the next bytes to send: fills iov[0..max) with their addresses, at most `most` bytes of one frame. Sets *n to
 * the number of spans of memory, 0 if nothing is queued. PD_NO_MEMORY, PD_OUT_OF_RANGE: the header of a reply cannot be
 * made. */
int pd_output_next(pd_output *output, pd_reply_scratch *scratch, struct iovec *iov, int max, size_t most, int *n);
/* Returns the bytes of weights that a worker gets in shared memory once n more bytes are sent: those of the reply that
 * is then complete, or 0. */
uint64_t pd_output_shared_bytes(const pd_output *output, size_t n);
/* Counts n sent bytes, and releases the references to weights of the pieces that are sent as a whole. Returns true if
 * the frame is complete. Then *done is the push or pull that it answered, which the caller frees, or NULL. A request
 * whose answer is in shared memory joins the outstanding ones instead. */
bool pd_output_sent(pd_output *output, pd_version_table *versions, size_t n, uint64_t now_ms, pd_pending **done);
/* Frees the queued frames. Returns the answers to pushes and pulls that were not sent or not released, linked by
 * next_reply. */
pd_pending *pd_output_clear(pd_output *output);

#endif
