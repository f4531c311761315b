/* peer.h - a server whose frames the test sends one by one, for tests of the client's core.
 *
 * There are no sockets, and the test sets the time. All functions fail the test when a frame is not as expected. */
#ifndef PEER_H
#define PEER_H

#include "call.h"
#include "core.h"
#include "join.h"
#include "recoveries.h"
#include "segment.h"

#define SECOND UINT64_C(1000000000)
enum { CHUNK = 64, WIRE_BYTES = 1 << 20, PEER_ITEMS = 4, PEER_ELEMENTS = 200, PEER_SMALL = 4 };
/* Elements of a chunk where memory is shared: payloads must be large to lie there. */
enum { SHARED_CHUNK = 8192 };

/* The server's end of the connection, and a framer that passes its bytes to the client's core. */
typedef struct peer {
    pd_core *core;
    pd_framer *framer;
    pd_arena *arena;
    uint64_t now;
    uint64_t creator;         /* number that tells the job from others; the peer's welcomes contain it */
    uint64_t cluster;         /* cluster number in the peer's welcomes; 0: the peer is alone */
    uint64_t life;            /* life of the job, in the peer's welcomes */
    uint64_t tenure;          /* in the peer's welcomes; 0: the peer has no table of shards */
    uint32_t shards_known;    /* in the peer's welcomes */
    size_t split;             /* most bytes of an answer that the core gets at a time */
    uint8_t wire[WIRE_BYTES]; /* bytes that the core has sent and the test has not read */
    size_t n;
    uint64_t durable;        /* the durable step in the peer's answers */
    uint64_t chunk_elements; /* in the peer's welcomes; CHUNK at first */
    bool open_sets;          /* in the peer's answers to Declare */
    pd_dtype push_dtype;     /* with which peer_declare declares; 0: float32 */
    /* rank, slots: in the peer's welcomes. course: in these, and in answers to pushes and pulls. members, index, epoch,
     * staleness, counted: in the latter */
    uint32_t rank, slots, members, index, staleness, counted;
    uint64_t lease_first, lease_count; /* leased shares, for the next answers to Declare and pushes; count 0: none */
    uint64_t course, epoch;
    double fastest; /* in answers to pushes and pulls */
    /* items of peer_push_pull, and their gradients and weights */
    pd_item items[PEER_ITEMS];
    float gradients[PEER_ITEMS][PEER_ELEMENTS], weights[PEER_ITEMS][PEER_ELEMENTS];
    /* The next fields are for shared memory. */
    bool local;      /* the peer's connections pass descriptors */
    int came;        /* the descriptor that came last from the core; -1: none */
    pd_segment lent; /* the core's segment, once the peer has mapped it (peer_map) */
    bool has_closed; /* the peer closes the connection before the core has copied weights out of shared memory */
} peer;

/* A frame that the core has sent. */
typedef struct peer_frame {
    pd_prefix prefix;
    uint8_t *at; /* prefix, header and payload */
    size_t bytes;
    void *message; /* allocated in the peer's arena */
    uint8_t *payload;
} peer_frame;

extern const pd_core_config peer_four, peer_first; /* configurations of job "job": rank 2 of 4; rank 0 */

peer *peer_new(const pd_core_config *config);
void peer_free(peer *p);
/* Returns a peer with a running client core: it is connected and welcomed, and has declared n parameters of these
 * sizes at step 0. */
peer *peer_running(const int64_t *sizes, size_t n);
/* Returns a peer like that of peer_running, whose job process 1000 has created and is at this step. */
peer *peer_trained(const pd_core_config *config, const int64_t *sizes, size_t n, uint64_t step);
/* Pushes the next step of the first n parameters, of which each has `elements` elements, and pulls their weights into
 * p->weights. Gradients differ from step to step. */
pd_ticket_id peer_push_pull(peer *p, size_t n, size_t elements);
/* Returns a peer like that of peer_running, over a Unix socket. It has lent the core a segment of `bytes` bytes (0:
 * none), whose byte i is (uint8_t)(i * 7). */
peer *peer_sharing(const int64_t *sizes, size_t n, uint64_t bytes);
peer *peer_sharing_with(const pd_core_config *config, const int64_t *sizes, size_t n, uint64_t bytes);
void peer_connect(peer *p); /* connects the core, with an empty stream; over a Unix socket if p->local */
/* Breaks the connection, and lets time pass until the core wants to connect again. */
void peer_cut(peer *p);

/* Moves at most `bytes` from the core to the wire. Returns how many it has moved. */
size_t peer_pump(peer *p, size_t bytes);
/* Takes the core's next frame. Returns false if the core sends none. peer_frame_drop frees the frame. */
bool peer_take(peer *p, peer_frame *out);
peer_frame peer_expect(peer *p, unsigned method);
void peer_expect_silence(peer *p);
void peer_frame_drop(peer_frame *l);

/* Sends an answer to the core, p->split bytes at a time. Returns the framer's result. */
int peer_reply(peer *p, const pd_prefix *to, const ProtobufCMessage *message, void *payload, size_t n);
int peer_feed(peer *p, const uint8_t *at, size_t n); /* sends raw bytes */
int peer_reply_ok(peer *p, const pd_prefix *to);
int peer_refuse(peer *p, const pd_prefix *to, int code, const char *text);
int peer_refuse_marked(peer *p, const pd_prefix *to, int code, const char *text, uint64_t mark);
/* Sends an answer with the same outcome for each of n pieces, and `floats` numbers as payload. */
int peer_reply_data(peer *p, const pd_prefix *to, size_t n, uint32_t outcome, uint64_t step, float *weights,
                    size_t floats);
void peer_welcome(peer *p);
void peer_welcome_with(peer *p, uint64_t max_payload, uint32_t max_pieces);
/* answers Declare: all parameters are initialised and at step `step` */
void peer_answer_declare(peer *p, size_t n, uint64_t step);
/* Answers a Declare whose n parameters are at these steps. */
void peer_answer_declare_at(peer *p, const uint64_t *steps, size_t n);
/* Breaks the connection, connects again and declares: the n parameters are at these steps now. */
void peer_come_back_at(peer *p, const uint64_t *steps, size_t n);

/* Takes the core's Share, maps its segment, and answers with `fd` and `bytes`. Takes fd; -1: no descriptor comes. */
void peer_share(peer *p, int fd, uint64_t bytes);
/* Sends an answer whose weights lie in the peer's segment: those of each of n pieces from places[i] on. `bytes`: length
 * of the payload. */
int peer_reply_shared(peer *p, const pd_prefix *to, size_t n, uint64_t step, const uint64_t *places, uint64_t bytes);

pd_ticket_id peer_declare(peer *p, const int64_t *sizes, size_t n); /* declares vectors p0, p1 … of these sizes */
/* Pushes one parameter alone, and returns its frame. */
peer_frame peer_push_one(peer *p, size_t param, pd_ticket_id *ticket);
uint64_t peer_pushed_step(const peer_frame *l); /* returns the step that a push is for */
/* Answers a frame with the weights of `step` of n parameters of PEER_SMALL elements: each element is `step`. */
void peer_answer_step(peer *p, peer_frame *l, size_t n, uint32_t outcome, uint64_t step);
/* returns the result of the ticket, which must be done */
int peer_finish(peer *p, pd_ticket_id ticket, pd_error *err);

#endif
