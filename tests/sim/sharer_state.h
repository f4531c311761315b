/* sharer_state.h - the state of a worker without the client library that shares memory (sharer.c), and what it sends
 * (sharer_frames.c). */
#ifndef SIM_SHARER_STATE_H
#define SIM_SHARER_STATE_H

#include "message.h"
#include "server.h"
#include "sharer.h"

#include <fcntl.h>

enum { CHUNKS = 4, STEPS = 6, LENT = CHUNKS * (STEPS + 1), LARGEST_CHUNK = 256 };
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE };

/* What the worker does. The requests of a phase are sent one after the other, each after the answer to the one before;
 * only those of a step go out together. */
typedef enum phase { HELLO, DECLARE, INIT, BAD_SHARE, SHARE, BAD_USE, STEP, WAIT, RELEASE, LEAVE, OVER } phase;

/* How the worker ends. */
typedef enum ending { LEAVES, DIES, KEEPS, SHUTS, ENDINGS } ending;

/* An answer that was lent and is not released. */
typedef struct lent {
    uint64_t place;
    uint64_t step, chunk;
} lent;

typedef struct sim_sharer {
    sim *s;
    uint64_t random;
    pd_transport *transport; /* NULL: disconnected */
    bool local;              /* the transport passes descriptors */
    pd_framer *framer;
    pd_arena *arena;
    uint8_t *out;
    size_t n_out, sent;
    int to_send; /* descriptor that goes with the next frame; -1: none */
    uint64_t last_id;
    phase phase;
    int expected;  /* code of the answer that the last request must get */
    uint64_t left; /* requests of this phase that are not sent yet */
    uint64_t asked_ns;
    ending ending;
    bool scribbles, spoilt; /* scribbles: changes payloads while the server reads them. spoilt: it has done so */
    uint64_t chunks;
    uint64_t step, first_id, waits, steps; /* first_id: of the pushes of this step; waits: for so many answers */
    uint64_t chunk_of[CHUNKS];             /* of the pushes of this step, in their order */
    uint8_t *own;                          /* the worker's segment */
    uint64_t own_bytes;
    int own_fd;
    const uint8_t *weights; /* the server's segment; NULL: none */
    uint64_t weights_bytes;
    bool shared; /* the server has taken the worker's segment */
    lent lent[LENT];
    size_t n_lent;
    float landing[LARGEST_CHUNK]; /* receives the payload of an answer that follows its header */
    struct iovec span;
    struct sim_sharer *next;
} sim_sharer;

/* Draws a number from 0 to n - 1 from the worker's own random state. */
uint64_t sim_sharer_draw(sim_sharer *h, uint64_t n);
/* Returns the bytes of a chunk of float32. */
uint64_t sim_sharer_chunk_bytes(const sim_sharer *h);
void sim_sharer_say_more(sim_sharer *h);
/* Adds a request with a payload of `bytes` bytes: at `payload`, or if that is NULL at this place in shared memory. */
void sim_sharer_add(sim_sharer *h, unsigned method, const ProtobufCMessage *message, const void *payload,
                    uint64_t bytes, uint32_t place);
/* Sends the requests that were added. The last one must be answered with this code. */
void sim_sharer_say(sim_sharer *h, int expected);
void sim_sharer_hello(sim_sharer *h);
void sim_sharer_declare(sim_sharer *h);
void sim_sharer_init(sim_sharer *h);
/* Adds a push of one chunk, which also pulls its new weights. */
void sim_sharer_add_push(sim_sharer *h, uint64_t chunk, const void *payload, uint32_t place);
/* Sends a Share with a descriptor, and takes it. */
void sim_sharer_share(sim_sharer *h, int fd, uint64_t bytes, int expected);
void sim_sharer_release(sim_sharer *h, uint64_t answers, int expected);
/* Makes a memfd (a file in memory). Returns its descriptor; -1: the system refuses memfds with these flags. */
int sim_sharer_memfd(unsigned flags, uint64_t bytes, int seals);
/* Sends a Share that the server must refuse, or a request that needs one. */
void sim_sharer_be_bad_first(sim_sharer *h);
/* Sends a request that the server must refuse after Share. */
void sim_sharer_be_bad_then(sim_sharer *h);

#endif
