/* frame.h - how bytes on a stream become frames and frames become bytes. No sockets, no allocation of payloads.
 *
 * Used by the loop thread (one framer a connection), the client's I/O thread and the fuzzers. PROTOCOL.md has the layout.
 *
 *     n = pd_framer_space(framer, iov, 4, 65536);      where the next bytes belong
 *     got = readv(fd, iov, n);
 *     rc = pd_framer_fed(framer, got);                  calls header() and frame() as they become complete
 *
 * A framer holds 4 KiB for what is read ahead, and the header of the frame under way; payloads land in its user's memory. */
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
    uint64_t request;           /* id; answers bear the request's */
    uint64_t checksum;          /* XXH3-64 of header then payload (seed 0) where PD_FLAG_CHECKSUM is set, else 0 */
} pd_prefix;

void pd_prefix_write(uint8_t out[PD_PREFIX_BYTES], const pd_prefix *prefix);
/* PD_INVALID_ARGUMENT: bad magic, a version that this side does not speak, unknown flags, reserved bits set, a checksum without its flag.
 * PD_RESOURCE_EXHAUSTED: header or payload over the limits. */
int  pd_prefix_read(pd_prefix *out, const uint8_t in[PD_PREFIX_BYTES], uint64_t max_payload, pd_error *err);

/* XXH3-64 of a header, then of the spans. PD_NO_MEMORY: never with n = 0. */
int pd_frame_checksum(uint64_t *out, const void *header, size_t header_bytes, const struct iovec *spans, size_t n);

typedef struct pd_framer pd_framer;

/* What the framer asks of its user. No function may call the framer, or free it. */
typedef struct pd_framer_user {
    void *arg;
    /* The prefix of a frame is complete, and there is no memory for its header yet. May be NULL. Return PD_OK, or an error that ends the stream. */
    int (*prefix)(void *arg, const pd_prefix *prefix);
    /* The header of a frame is complete (its payload is not). Decide where prefix->payload_bytes are to be landed: set *spans to
     * memory that stays valid until `frame` is called, the array too (lengths sum to payload_bytes; *n comes as 0: leave it when there is
     * no payload). A span with iov_base NULL is read and thrown away. Return PD_OK, or an error that ends the stream;
     * PD_UNAVAILABLE is not an error: the framer stalls and `header` is called again by pd_framer_resume. */
    int (*header)(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n);
    /* The frame is complete and, where it has one, its checksum holds. `header` is valid during the call. An error ends the stream. */
    int (*frame)(void *arg, const pd_prefix *prefix, const uint8_t *header);
} pd_framer_user;

/* NULL: out of memory. max_payload: bytes; larger frames are refused when their prefix is read. */
pd_framer *pd_framer_new(const pd_framer_user *user, uint64_t max_payload);
void       pd_framer_free(pd_framer *framer);                   /* accepts NULL */

/* Memory for the next bytes of the stream: fills iov[0..max) and returns how many entries (at least 1, none empty), or 0 while stalled
 * and after an error. max, slice >= 1. `slice`: at most so many bytes together (64 KiB reads are fastest). Payload bytes go straight to the
 * user's spans; behind the end of a header or payload up to 4 KiB are read ahead where that saves calls (with max 1, only from a frame's beginning). */
int pd_framer_space(pd_framer *framer, struct iovec *iov, int max, size_t slice);
/* n bytes were put there, in order, by one read: at most what the last pd_framer_space offered. Calls header() and frame() as they become
 * complete. Not while stalled. An error (bad prefix, checksum, or what the user returned) is final for the stream; pd_framer_error says more.
 * PD_DATA_LOSS: the checksum differs. PD_NO_MEMORY: for the header. */
int pd_framer_fed(pd_framer *framer, size_t n);
bool pd_framer_stalled(const pd_framer *framer);
/* After a stall: asks header() again. Same results as pd_framer_fed. Does nothing when not stalled. */
int pd_framer_resume(pd_framer *framer);
/* Between two frames with nothing read ahead: true. A stream that ends elsewhere was cut. */
bool pd_framer_idle(const pd_framer *framer);
/* Why the stream ended: code PD_OK while it has not. Where the user's function returned the error, the text is only its code's:
 * the user knows more. Borrowed. */
const pd_error *pd_framer_error(const pd_framer *framer);

#endif
