/* message.h - packs and unpacks the headers of frames, with hostile input in mind.
 *
 * Unpacking runs with a counting allocator (an arena with a hard budget), refuses unknown fields beyond a few, and the checks
 * that need no state are done here once, for both sides. No globals; owner thread. */
#ifndef PD_MESSAGE_H
#define PD_MESSAGE_H

#include "frame.h"
#include "paramd.pb-c.h"

#define PD_ARENA_BUDGET (1024 * 1024)       /* most bytes that one header may make us allocate */
#define PD_MAX_UNKNOWN  16

/* Method numbers are positions in the service. */
enum pd_method {
    PD_HELLO, PD_DECLARE, PD_INIT, PD_PUSH, PD_PULL, PD_PUSH_PULL, PD_BARRIER, PD_HEARTBEAT, PD_LEAVE,
    PD_STATUS, PD_LIST, PD_OPTIMIZERS, PD_DROP, PD_DRAIN, PD_SHUTDOWN, PD_METHODS
};
/* "Push"; "?" for a number that is none. From the generated descriptor. */
const char *pd_method_name(unsigned method);

/* Memory that messages are unpacked into; reset and used again for each header. */
typedef struct pd_arena pd_arena;
pd_arena *pd_arena_new(size_t budget);              /* NULL: out of memory */
void      pd_arena_free(pd_arena *arena);           /* accepts NULL */
void      pd_arena_reset(pd_arena *arena);          /* what was unpacked into it is gone */

/* Unpacks into the arena; *out is valid until it is reset.
 * PD_INVALID_ARGUMENT: not such a message, too many unknown fields, a string with a NUL or that is not UTF-8.
 * PD_RESOURCE_EXHAUSTED: it asks for more than the arena's budget. */
int pd_message_unpack(pd_arena *arena, const ProtobufCMessageDescriptor *type, const uint8_t *at, size_t bytes, void **out, pd_error *err);
/* The request (or reply) of a method. PD_UNIMPLEMENTED: no such method. */
int pd_request_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err);
int pd_reply_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err);

/* Prefix and header of a frame in one piece of memory: prefix at 0, header at PD_PREFIX_BYTES. Gives *out (free() it), *bytes its length. The
 * payload's length and, where flags has PD_FLAG_CHECKSUM, its spans for the checksum are told; the payload itself is not touched otherwise.
 * PD_OUT_OF_RANGE: the header would exceed PD_MAX_HEADER_BYTES. PD_NO_MEMORY. */
int pd_frame_pack(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request, const ProtobufCMessage *message,
                  const struct iovec *payload, size_t n_payload, uint64_t payload_bytes);
/* An ERROR frame that answers `request`. */
int pd_frame_pack_error(uint8_t **out, size_t *bytes, unsigned method, uint64_t request, int code, const char *text);

/* Reads an Error header back: fills *err (code negative again) and returns err->code. */
int pd_message_error(pd_arena *arena, const uint8_t *at, size_t bytes, pd_error *err);

/* ---- pieces: what a payload holds ---- */

/* What a side knows of a handle. */
typedef struct pd_handle_facts { int64_t elements; const char *name; } pd_handle_facts;

/* Checks every piece against the handles, the chunk grid, its dtype and the payload: known handle, exactly one chunk, known dtype, offset a
 * multiple of 64, ascending, not overlapping, inside the payload; absent pieces hold nothing; no piece twice (ascending (handle, first)
 * is not asked for). The text names piece, parameter, what was expected and what came. */
int pd_pieces_check(Paramd__Piece *const *pieces, size_t n, const pd_handle_facts *handles, size_t n_handles,
                    uint64_t chunk_elements, uint64_t payload_bytes, pd_error *err);
/* Offset at which the next piece begins after one at `offset` of `bytes`: rounded up to 64. */
uint64_t pd_piece_end(uint64_t offset, uint64_t bytes);

#endif
