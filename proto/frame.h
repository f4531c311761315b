/* frame.h - cuts the bytes of a stream into frames, and checks them. It uses no sockets, and allocates no payloads.
 *
 * Used by the daemon's loop thread (one framer per connection), the client's I/O thread and the fuzzers. PROTOCOL.md
 * has the layout of a frame.
 *
 *     n = pd_framer_space(framer, iov, 4, 65536);      where the next bytes belong
 *     got = readv(fd, iov, n);
 *     rc = pd_framer_fed(framer, got);                  calls header() and frame() as they become complete
 *
 * A framer owns 4 KiB for bytes that are read ahead, and memory for the header that is being read. Payloads are stored
 * in memory that the framer's user provides. */
#ifndef PD_FRAME_H
#define PD_FRAME_H

#include <sys/uio.h>

#include "paramd/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_PROTOCOL_VERSION 1
#define PD_FRAME_MAGIC 0x31464450u /* "PDF1" */
#define PD_PREFIX_BYTES 40
#define PD_MAX_HEADER_BYTES (64 * 1024)
#define PD_PAYLOAD_ALIGN 64
#define PD_LEAST_SHARED 16384

/* The flags of a frame. PD_FLAG_REPLY: it answers a request. PD_FLAG_ERROR: it refuses one. PD_FLAG_CHECKSUM: its
 * prefix has a checksum. PD_FLAG_SHARED: the payload lies in memory that sender and receiver share (segment.h), not
 * after the header. */
enum { PD_FLAG_REPLY = 1, PD_FLAG_ERROR = 2, PD_FLAG_CHECKSUM = 4, PD_FLAG_SHARED = 8 };

/* The fixed first bytes of a frame, decoded. */
typedef struct pd_prefix {
    uint8_t version, flags;
    uint16_t method;
    uint32_t header_bytes;
    uint32_t place; /* in a request with PD_FLAG_SHARED: where the payload begins in the sender's segment, in units of
                     * PD_PAYLOAD_ALIGN bytes; else 0 */
    uint64_t payload_bytes;
    uint64_t request;  /* request id: the sender of the request chooses it, and the answer repeats it */
    uint64_t checksum; /* XXH3-64 (seed 0) of header, then payload, if PD_FLAG_CHECKSUM is set; else 0 */
} pd_prefix;

/* Returns how many bytes a payload must have to be passed in shared memory: to share a smaller one costs more than it
 * saves. `setting`: the number that the user has set; 0: none is set, so PD_LEAST_SHARED holds. */
static inline uint64_t pd_least_shared(uint64_t setting)
{
    return setting > 0 ? setting : PD_LEAST_SHARED;
}

void pd_prefix_write(uint8_t out[PD_PREFIX_BYTES], const pd_prefix *prefix);
/* Changes a prefix that pd_prefix_write has written: sets the flag PD_FLAG_SHARED and the place, or clears both. */
void pd_prefix_share(uint8_t prefix[PD_PREFIX_BYTES], bool shared, uint32_t place);
/* Decodes and checks the prefix of a frame. After an error *out is not changed. PD_INVALID_ARGUMENT: the first four
 * bytes are wrong, the version or a flag is unknown, there is a place or a checksum without its flag, or a payload in
 * shared memory has a checksum. PD_RESOURCE_EXHAUSTED: header or payload exceed the limits. */
int pd_prefix_read(pd_prefix *out, const uint8_t in[PD_PREFIX_BYTES], uint64_t max_payload, pd_error *err);

/* Computes the checksum of a frame: XXH3-64 of the header, then of the payload, which lies in n spans of memory.
 * Without payload (n = 0) it cannot fail; otherwise it may return PD_NO_MEMORY. */
int pd_frame_checksum(uint64_t *out, const void *header, size_t header_bytes, const struct iovec *spans, size_t n);

typedef struct pd_framer pd_framer;

/* The functions by which a framer tells its user what it has read. They must not call the framer, or free it. */
typedef struct pd_framer_user {
    void *arg;
    /* Called when the prefix of a frame is complete, before memory for the frame's header is allocated. May be NULL.
     * Returns PD_OK, or an error that ends the stream. */
    int (*prefix)(void *arg, const pd_prefix *prefix);
    /* Called when the header of a frame is complete. Decides where the payload is stored: sets *spans to an array of *n
     * spans of memory, whose lengths sum to prefix->payload_bytes. The array and the memory must stay valid until
     * `frame` is called. For a frame without payload, or with one in shared memory, *n stays 0. Bytes of a span with
     * iov_base NULL are read and discarded.
     *
     * Returns PD_OK, or an error that ends the stream. Exception: after PD_UNAVAILABLE the framer stalls until
     * pd_framer_resume calls `header` again. */
    int (*header)(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n);
    /* Called with the next n bytes of the payload, in the order of the stream, as soon as they are stored in the user's
     * memory and still in the CPU's cache. Not called for bytes that are discarded. May be NULL. */
    void (*payload)(void *arg, const void *at, size_t n);
    /* Called when a frame is complete and its checksum, if it has one, is right. `header` is valid during the call.
     * Returns PD_OK, or an error that ends the stream. */
    int (*frame)(void *arg, const pd_prefix *prefix, const uint8_t *header);
} pd_framer_user;

/* Makes a framer, which cuts one stream of bytes into frames. It refuses frames with more than max_payload bytes of
 * payload as soon as their prefix is read. Returns NULL if out of memory. */
pd_framer *pd_framer_new(const pd_framer_user *user, uint64_t max_payload);
/* Accepts NULL. */
void pd_framer_free(pd_framer *framer);

/* Returns where the next bytes of the stream belong: fills iov[0..max), max >= 1, with places in memory, and returns
 * their number. It returns 0 while the framer is stalled and after an error. Otherwise there is at least one place, and
 * each has room for at least one byte.
 *
 * The places have room for at most `slice` >= 1 bytes in all (256 KiB at most are still in the CPU's cache afterwards).
 * Payload bytes go straight to the user's memory. To save calls, up to 4 KiB after the end of a header or payload may
 * be read ahead. This needs a second place, so with max 1 bytes are read ahead only where a frame begins. */
int pd_framer_space(pd_framer *framer, struct iovec *iov, int max, size_t slice);
/* Tells the framer that one read has stored n bytes in the memory that the last pd_framer_space offered. Calls the
 * user's functions for each prefix, header, stretch of payload and frame that these bytes complete. Must not be called
 * while the framer is stalled. An error (a bad prefix or checksum, or an error of the user's function) is final for the
 * stream; pd_framer_error has its text. PD_DATA_LOSS: the checksum differs. PD_NO_MEMORY: no memory for the header. */
int pd_framer_fed(pd_framer *framer, size_t n);
bool pd_framer_stalled(const pd_framer *framer);
/* Returns how many bytes of the present frame's payload have not come yet; 0 outside of a payload. */
uint64_t pd_framer_left(const pd_framer *framer);
/* Finds where the next bytes of a payload belong, if another thread may receive them: sets *span to at most `most`
 * bytes of the user's memory. The caller tells pd_framer_fed of received bytes, and leaves the framer alone until then.
 * Returns false if the framer does not wait for a payload, or has to see its bytes as they come: to discard them, for a
 * checksum, or for the user's function `payload`. */
bool pd_framer_lends(const pd_framer *framer, struct iovec *span, size_t most);
/* Lets a framer that has stalled continue: calls the user's function `header` again. Returns the same codes as
 * pd_framer_fed. Does nothing if the framer is not stalled. */
int pd_framer_resume(pd_framer *framer);
/* Returns whether the stream is between two frames, and no bytes are read ahead. If a stream ends anywhere else, its
 * last frame is incomplete. */
bool pd_framer_idle(const pd_framer *framer);
/* Returns the error that ended the stream of frames; its code is PD_OK if the stream has not ended. If a function of
 * the framer's user returned the error, its text is only the code's short text. The framer owns the error. */
const pd_error *pd_framer_error(const pd_framer *framer);

#endif
