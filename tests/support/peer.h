/* peer.h - a server that a test plays by hand, for the client's core: frames in, frames out.
 *
 * No sockets, and the test sets the time. All functions fail the test when a frame is not as expected. */
#ifndef PEER_H
#define PEER_H

#include "call.h"
#include "core.h"
#include "declared_params.h"
#include "restart.h"

#define SECOND UINT64_C(1000000000)
enum { CHUNK = 64, WIRE_BYTES = 1 << 20 };

/* The server's end of the wire, and a framer that feeds the core. */
typedef struct peer {
    pd_core   *core;
    pd_framer *framer;
    pd_arena  *arena;
    uint64_t   now;
    uint64_t   creator;                 /* of the job, in welcomes */
    size_t     split;                   /* bytes given to the core at a time */
    uint8_t    wire[WIRE_BYTES];        /* what the core has sent and was not looked at */
    size_t     n;
} peer;

/* One frame of the core, taken from the wire. */
typedef struct letter {
    pd_prefix prefix;
    uint8_t  *at;                       /* prefix, header and payload */
    size_t    bytes;
    void     *message;                  /* in the peer's arena */
    uint8_t  *payload;
} letter;

extern const pd_core_config peer_four, peer_first;                  /* rank 2 of 4, job "job"; rank 0 */

peer  *peer_new(const pd_core_config *config);
void   peer_free(peer *p);
/* Connected, welcomed, n parameters of those sizes declared, at step 0. */
peer  *peer_running(const int64_t *sizes, size_t n);
void   peer_connect(peer *p);                                       /* the core has a connection; a fresh stream */
/* Breaks the connection, and lets time pass until the core wants another. */
void   peer_cut(peer *p);

/* Moves at most `bytes` of what the core wants to send to the wire; returns how many. */
size_t peer_pump(peer *p, size_t bytes);
/* The core's next frame; false: it is silent. letter_drop frees it. */
bool   peer_take(peer *p, letter *out);
letter peer_expect(peer *p, unsigned method);
void   peer_expect_silence(peer *p);
void   letter_drop(letter *l);

/* Answers, given to the core p->split bytes at a time; the framer's result. */
int    peer_reply(peer *p, const pd_prefix *to, const ProtobufCMessage *message, void *payload, size_t n);
int    peer_feed(peer *p, const uint8_t *at, size_t n);            /* raw bytes */
int    peer_reply_ok(peer *p, const pd_prefix *to);
int    peer_refuse(peer *p, const pd_prefix *to, int code, const char *text);
int    peer_refuse_marked(peer *p, const pd_prefix *to, int code, const char *text, uint64_t mark);
/* Outcomes, one for each of n pieces, all alike; and floats as payload. */
int    peer_reply_data(peer *p, const pd_prefix *to, size_t n, uint32_t outcome, uint64_t step, float *weights,
                       size_t floats);
void   peer_welcome(peer *p);
void   peer_welcome_with(peer *p, uint64_t max_payload, uint32_t max_pieces);
void   peer_answer_declare(peer *p, size_t n, uint64_t step);       /* all initialised, at that step */

pd_ticket_id peer_declare(peer *p, const int64_t *sizes, size_t n); /* p0, p1 … of rank 1 */
int    peer_finish(peer *p, pd_ticket_id ticket, pd_error *err);    /* the ticket must be done: its result */

#endif
