/* foe.h - connections of a hostile client: raw frames, many requests under way, and no error that
 * ends the program, since a daemon may refuse whatever an attack sends. */
#ifndef FOE_H
#define FOE_H

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <stdatomic.h>

#include "message.h"

/* Counts of an attack, over all of its connections. */
typedef struct foe_count {
    uint64_t sent[PD_METHODS];  /* requests by method */
    uint64_t answered, refused; /* answers; those of them that are errors */
    uint64_t lost;              /* connections that could not be made, or that the daemon has ended */
    char error[PD_ERROR_TEXT];  /* text of the last error */
} foe_count;

/* What the connections of an attack share. One thread uses it; `over` is set by another. */
typedef struct foe_side {
    const char *path; /* the daemon's Unix socket; NULL: its port on 127.0.0.1 instead */
    int port;
    atomic_bool *over; /* the attack has to end: functions that wait return at once */
    foe_count count;
} foe_side;

/* A frame that is ready to be sent, with a payload of zeros behind it. */
typedef struct foe_frame {
    uint8_t *at;
    size_t bytes;
    unsigned method;
} foe_frame;

/* Packs a frame. Ends the program if out of memory, or if the header is too long for a frame. */
foe_frame foe_pack(unsigned method, const ProtobufCMessage *message, size_t payload_bytes);
void foe_frame_free(foe_frame *frame);
void foe_frames_free(foe_frame *frames, size_t n); /* frees the array, too */

typedef struct foe {
    foe_side *side;
    int fd;       /* -1: there is no connection */
    uint64_t ids; /* requests so far */
    size_t open;  /* requests without an answer */
    int code;     /* of the last answer: PD_OK, or its error */
    /* the request that is being written, and how much of it is out */
    const foe_frame *out;
    size_t written;
    int descriptor;                  /* to be passed with the request's first bytes; -1: none */
    uint8_t prefix[PD_PREFIX_BYTES]; /* of that request, with its id */
    /* the answer that is being read: its prefix and, of an error, its header */
    uint8_t in[PD_PREFIX_BYTES + 2048];
    size_t read;
    uint64_t waste; /* bytes of the answer that are still to be read and thrown away */
} foe;

/* Connects. After a failure `fd` is -1. */
void foe_connect(foe *f, foe_side *side);
void foe_close(foe *f);
/* Sends a request, and waits until all requests of the connection are answered. Returns the code of the last answer;
 * PD_UNAVAILABLE: the connection has ended, or the attack is over. */
int foe_call(foe *f, const foe_frame *frame);
/* As foe_call. Packs the message first. */
int foe_ask(foe *f, unsigned method, const ProtobufCMessage *message, size_t payload_bytes);
/* Sends the frames of a list in turn, again and again, over all n connections, until the attack is over or no
 * connection is left. Each connection has at most `most` requests under way. */
void foe_flood(foe *foes, size_t n, const foe_frame *frames, size_t n_frames, size_t most);
/* Sends the frames of a list once over one connection, at most `most` under way, and waits for all answers. Returns the
 * code of the last answer, as foe_call does. */
int foe_send_all(foe *f, const foe_frame *frames, size_t n_frames, size_t most);

static inline bool foe_over(const foe_side *side)
{
    return atomic_load_explicit(side->over, memory_order_relaxed);
}

#endif
