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

/* Sent data replies whose weights the worker may still read in shared memory, the oldest first. */
typedef struct pd_outstanding {
    pd_pending *first, *last; /* linked by next_reply */
    uint64_t n;
    size_t bytes;      /* memory of the replies in the list, not counting weights */
    uint64_t since_ms; /* when (ms) the oldest reply became the oldest: its write_timeout counts from then on */
} pd_outstanding;

/* Adds a sent reply to the list, which then owns it. */
void pd_outstanding_add(pd_outstanding *list, pd_pending *answer, uint64_t now_ms);
/* Removes the oldest n replies from the list. Returns them, linked by next_reply. n is at most list->n. */
pd_pending *pd_outstanding_take(pd_outstanding *list, uint64_t n, uint64_t now_ms);

/* Most answers to heartbeats that may be queued on a connection without memory of their own. */
#define PD_BEATS 8

/* Most averages of scalars in one reply; its header always has space for so many. */
#define PD_REPLY_SCALARS (4 * PD_MAX_SCALARS)

/* Memory in which the headers of data replies are built. All connections share it. */
typedef struct pd_reply_scratch {
    size_t capacity; /* most pieces that a reply may have */
    Paramd__Outcome *outcomes;
    Paramd__Outcome **list;
    struct iovec *spans; /* the memory spans of a reply's payload, at most 2 * capacity, to compute its checksum */
    Paramd__Scalar scalars[PD_REPLY_SCALARS], *scalar_list[PD_REPLY_SCALARS];
} pd_reply_scratch;

/* Allocates the memory for the headers of replies with at most `capacity` pieces. PD_NO_MEMORY: the caller frees
 * `scratch` all the same. */
int pd_reply_scratch_init(pd_reply_scratch *scratch, size_t capacity);
void pd_reply_scratch_free(pd_reply_scratch *scratch);

/* The leases of a worker as a list of messages. */
typedef struct pd_lease_list {
    Paramd__Lease at[PD_LEASES * PD_LEASE_RANGES], *list[PD_LEASES * PD_LEASE_RANGES];
} pd_lease_list;

/* Fills the list with leases->n messages, and returns it in the form that protobuf-c wants. */
Paramd__Lease **pd_lease_list_fill(pd_lease_list *list, const pd_rank_leases *leases);

/* A control frame, such as an answer without weights: all its bytes are in memory, and it waits to be sent. */
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
    size_t held; /* bytes of unsent control frames and data replies, not counting weights */
    /* The fields from `busy` to `piece_sent` describe the frame that is being sent. */
    bool busy;
    uint8_t *head;       /* the frame's prefix and header, or answers to heartbeats */
    uint8_t *head_owned; /* memory that is freed when the frame is sent; NULL: none is */
    size_t head_bytes, head_sent;
    pd_pending *reply;   /* the data reply that is being sent; NULL: another frame is */
    bool shared;         /* the payload of `reply` does not follow its header: the worker reads it in shared memory */
    size_t last_piece;   /* index of the last piece of the payload that has data: no padding follows it */
    size_t piece;        /* index of the piece of the payload that is being sent */
    uint64_t piece_sent; /* bytes of the piece with index `piece` that are sent already */
    /* The fields below are for replies in shared memory. */
    pd_segment weights;    /* the segment of the job's weights, if the worker has mapped it; otherwise PD_NO_SEGMENT, or
                            * all 0 */
    uint64_t least_shared; /* fewest payload bytes of a reply in shared memory; 0: PD_LEAST_SHARED */
    pd_outstanding outstanding; /* sent replies that the worker has not released yet */
} pd_output;

bool pd_output_empty(const pd_output *output);

/* Queues the answer to the heartbeat with the prefix `asked`, without allocating memory. Returns false if the queue is
 * full. */
bool pd_output_beat(pd_output *output, const pd_prefix *asked);
/* Queues a frame that is complete in memory, and takes over its memory. PD_NO_MEMORY: the memory is still the
 * caller's. */
int pd_output_frame(pd_output *output, uint8_t *at, size_t bytes);
/* Queues a data reply: the answer to a push or pull whose pieces all have their answers. Takes over the request. */
void pd_output_reply(pd_output *output, pd_pending *reply);

/* Returns how many payload bytes the answer to a push or pull has. */
uint64_t pd_reply_payload_bytes(const pd_wait *wait);

/* Finds the next bytes to send: sets iov[0] to iov[*n - 1] to memory spans, at most `max` spans, with at most `most`
 * bytes of one frame. *n is 0 if nothing is queued. PD_NO_MEMORY, PD_OUT_OF_RANGE: the header of a reply cannot be
 * built; the caller closes the connection. */
int pd_output_next(pd_output *output, pd_reply_scratch *scratch, struct iovec *iov, int max, size_t most, int *n);
/* If n more sent bytes complete a reply in shared memory, returns the bytes of its weights; otherwise 0. */
uint64_t pd_output_shared_bytes(const pd_output *output, size_t n);
/* Counts n sent bytes, and releases the references to weights of the pieces that are completely sent. Returns true if
 * the frame is complete. *done is then the push or pull that it answered, for the caller to free. *done is NULL for
 * other frames, and for a reply in shared memory, which becomes outstanding. */
bool pd_output_sent(pd_output *output, pd_version_table *versions, size_t n, uint64_t now_ms, pd_pending **done);
/* Frees the queued frames. Returns the answers to pushes and pulls that were not sent or not released, linked by
 * next_reply. */
pd_pending *pd_output_clear(pd_output *output);

#endif
