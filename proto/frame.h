/* frame.h - turns bytes of a stream into frames, and frames into bytes. No sockets, no allocation of payloads.
 *
 * Used by the daemon's loop thread (one framer per connection), the client's I/O thread and the fuzzers. PROTOCOL.md
 * has the layout of a frame.
 *
 *     n = pd_framer_space(framer, iov, 4, 65536);      where the next bytes belong
 *     got = readv(fd, iov, n);
 *     rc = pd_framer_fed(framer, got);                  calls header() and frame() as they become complete
 *
 * A framer has 4 KiB for bytes that are read ahead, and memory for the header that is being read. Payloads are
 * stored in memory that the framer's user provides. */
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

enum { PD_FLAG_REPLY = 1, PD_FLAG_ERROR = 2, PD_FLAG_CHECKSUM = 4 };

typedef struct pd_prefix {
    uint8_t version, flags;
    uint16_t method;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint64_t request;  /* id of the request, which its answer repeats */
    uint64_t checksum; /* if PD_FLAG_CHECKSUM is set: XXH3-64 of header, then payload (seed 0); else 0 */
} pd_prefix;

void pd_prefix_write(uint8_t out[PD_PREFIX_BYTES], const pd_prefix *prefix);
/* Reads the prefix of a frame. PD_INVALID_ARGUMENT: the magic is wrong, the version or a flag is unknown, reserved
 * bits are set, or there is a checksum without its flag. PD_RESOURCE_EXHAUSTED: header or payload exceed the limits. */
int pd_prefix_read(pd_prefix *out, const uint8_t in[PD_PREFIX_BYTES], uint64_t max_payload, pd_error *err);

/* Computes the checksum of a frame: XXH3-64 of the header, then of the n spans of payload. PD_NO_MEMORY: possible
 * only if n > 0. */
int pd_frame_checksum(uint64_t *out, const void *header, size_t header_bytes, const struct iovec *spans, size_t n);

typedef struct pd_framer pd_framer;

/* Functions that a framer calls; its user provides them. They must not call the framer, or free it. */
typedef struct pd_framer_user {
    void *arg;
    /* Called when the prefix of a frame is complete, before memory for its header is allocated. May be NULL. Returns
     * PD_OK, or an error that ends the stream. */
    int (*prefix)(void *arg, const pd_prefix *prefix);
    /* Called when the header of a frame is complete. Decides where the payload is stored: sets *spans to an array of
     * *n spans, whose lengths sum to prefix->payload_bytes. The array and the memory must stay valid until `frame`
     * is called. For a frame without payload *n stays 0. Bytes of a span with iov_base NULL are read and thrown
     * away.
     *
     * Returns PD_OK, or an error that ends the stream. Exception: after PD_UNAVAILABLE the framer stalls, and
     * pd_framer_resume calls `header` again. */
    int (*header)(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n);
    /* Called when a frame is complete and its checksum, if any, is right. `header` is valid during the call. Returns
     * PD_OK, or an error that ends the stream. */
    int (*frame)(void *arg, const pd_prefix *prefix, const uint8_t *header);
} pd_framer_user;

/* Makes a framer. It refuses frames with more than max_payload bytes of payload as soon as their prefix is read.
 * NULL: out of memory. */
pd_framer *pd_framer_new(const pd_framer_user *user, uint64_t max_payload);
/* Accepts NULL. */
void pd_framer_free(pd_framer *framer);

/* Returns where the next bytes of the stream belong: fills iov[0..max), max >= 1, and returns the number of entries.
 * It returns 0 while the framer is stalled and after an error. Otherwise there is at least one entry, and no entry
 * is empty.
 *
 * The entries have at most `slice` >= 1 bytes in all (64 KiB reads are fastest). Payload bytes go straight to the
 * user's memory. To save calls, up to 4 KiB behind the end of a header or payload may be read ahead (with max 1,
 * only from a frame's beginning). */
int pd_framer_space(pd_framer *framer, struct iovec *iov, int max, size_t slice);
/* Takes n bytes that one read stored in the memory offered by the last pd_framer_space. Calls header() and frame()
 * as they become complete. Must not be called while the framer is stalled. An error (bad prefix, checksum, or a
 * callback's error) is final for the stream; pd_framer_error has its text. PD_DATA_LOSS: the checksum differs.
 * PD_NO_MEMORY: no memory for the header. */
int pd_framer_fed(pd_framer *framer, size_t n);
bool pd_framer_stalled(const pd_framer *framer);
/* Calls header() again after a stall. Returns the same codes as pd_framer_fed. Does nothing if the framer is not
 * stalled. */
int pd_framer_resume(pd_framer *framer);
/* Returns whether the stream is between two frames, and no bytes are read ahead. If a stream ends anywhere else, its
 * last frame was cut. */
bool pd_framer_idle(const pd_framer *framer);
/* Returns the error that ended the stream; its code is PD_OK if the stream has not ended. For an error that a
 * callback returned, the text is only the code's short text. The framer owns the error. */
const pd_error *pd_framer_error(const pd_framer *framer);

#endif
