/* frame.h - turns bytes of a stream into frames, and frames into bytes. No sockets, no allocation of payloads.
 *
 * Used by the loop thread (one framer per connection), the client's I/O thread and the fuzzers. PROTOCOL.md has the
 * layout.
 *
 *     n = pd_framer_space(framer, iov, 4, 65536);      where the next bytes belong
 *     got = readv(fd, iov, n);
 *     rc = pd_framer_fed(framer, got);                  calls header() and frame() as they become complete
 *
 * A framer has 4 KiB for bytes that are read ahead, and memory for the header that is being read. Payloads land in its
 * user's memory. */
#ifndef PD_FRAME_H
#define PD_FRAME_H

#include <sys/uio.h>

#include "paramd/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_PROTOCOL_VERSION 1
#define PD_FRAME_MAGIC      0x31464450u     /* "PDF1" */
#define PD_PREFIX_BYTES     40
#define PD_MAX_HEADER_BYTES (64 * 1024)
#define PD_PAYLOAD_ALIGN    64

enum { PD_FLAG_REPLY = 1, PD_FLAG_ERROR = 2, PD_FLAG_CHECKSUM = 4 };

typedef struct pd_prefix {
    uint8_t  version, flags;
    uint16_t method;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint64_t request;           /* id; an answer has that of its request */
    uint64_t checksum;          /* with PD_FLAG_CHECKSUM: XXH3-64 of header, then payload (seed 0); else 0 */
} pd_prefix;

void pd_prefix_write(uint8_t out[PD_PREFIX_BYTES], const pd_prefix *prefix);
/* Reads a prefix. PD_INVALID_ARGUMENT: bad magic, an unknown version, unknown flags, reserved bits set, or a checksum
 * without its flag. PD_RESOURCE_EXHAUSTED: header or payload exceed the limits. */
int  pd_prefix_read(pd_prefix *out, const uint8_t in[PD_PREFIX_BYTES], uint64_t max_payload, pd_error *err);

/* Computes XXH3-64 of a header, then of the spans. PD_NO_MEMORY, but never with n = 0. */
int pd_frame_checksum(uint64_t *out, const void *header, size_t header_bytes, const struct iovec *spans, size_t n);

typedef struct pd_framer pd_framer;

/* The callbacks of a framer. None may call the framer, or free it. */
typedef struct pd_framer_user {
    void *arg;
    /* Called when the prefix of a frame is complete, before memory for its header is allocated. May be NULL. Returns
     * PD_OK, or an error that ends the stream. */
    int (*prefix)(void *arg, const pd_prefix *prefix);
    /* Called when the header of a frame is complete. Decides where the payload lands: sets *spans to an array of *n
     * spans, whose lengths sum to prefix->payload_bytes. The array and the memory stay valid until `frame` is called.
     * Without a payload *n stays 0. A span with iov_base NULL is read and thrown away. Returns PD_OK, or an error that
     * ends the stream. PD_UNAVAILABLE is no error: the framer stalls, and pd_framer_resume calls `header` again. */
    int (*header)(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n);
    /* Called when the frame is complete and its checksum, if any, is right. `header` is valid during the call. An
     * error ends the stream. */
    int (*frame)(void *arg, const pd_prefix *prefix, const uint8_t *header);
} pd_framer_user;

/* Makes a framer. Frames with more than max_payload bytes of payload are refused by their prefix. NULL: out of
 * memory. */
pd_framer *pd_framer_new(const pd_framer_user *user, uint64_t max_payload);
/* Accepts NULL. */
void       pd_framer_free(pd_framer *framer);

/* Returns where the next bytes of the stream belong: fills iov[0..max) and returns the number of entries, at least 1
 * and none empty, or 0 while stalled and after an error. max >= 1. `slice` >= 1 bounds the bytes together (64 KiB reads
 * are fastest). Payload bytes go straight to the user's spans. Up to 4 KiB behind the end of a header or payload are
 * read ahead where that saves calls (with max 1, only from a frame's beginning). */
int pd_framer_space(pd_framer *framer, struct iovec *iov, int max, size_t slice);
/* Takes n bytes that one read put there, at most as many as the last pd_framer_space offered. Calls header() and
 * frame() as they become complete. Not while stalled. An error (bad prefix, checksum, or a callback's) is final for the
 * stream; pd_framer_error has its text. PD_DATA_LOSS: the checksum differs. PD_NO_MEMORY: no memory for the header. */
int pd_framer_fed(pd_framer *framer, size_t n);
bool pd_framer_stalled(const pd_framer *framer);
/* Calls header() again after a stall. Same results as pd_framer_fed. Does nothing if the framer is not stalled. */
int pd_framer_resume(pd_framer *framer);
/* Returns whether the stream is between two frames, with nothing read ahead. A stream that ends elsewhere was cut. */
bool pd_framer_idle(const pd_framer *framer);
/* Returns the error that ended the stream; code PD_OK: it has not ended. For an error of a callback, the text is only
 * that of the code. Borrowed. */
const pd_error *pd_framer_error(const pd_framer *framer);

#endif
