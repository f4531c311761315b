/* message.h - packs and unpacks the headers of frames, with hostile input in mind.
 *
 * Before anything is unpacked the bytes are walked once along the message's descriptor (no memory, no recursion beyond the
 * schema's own few levels): unknown fields are counted, text is checked. Unpacking then runs in an arena with a hard budget.
 * No globals; whoever owns the arena calls. */
#ifndef PD_MESSAGE_H
#define PD_MESSAGE_H

#include "frame.h"
#include "paramd.pb-c.h"

#define PD_ARENA_BUDGET (2 * 1024 * 1024)   /* most bytes that one header may make us allocate */
#define PD_MAX_UNKNOWN  16                  /* most unknown fields of a message and all it holds */
/* What is said of a sparse gradient, by either side, behind whose it is. */
#define PD_SPARSE_ADVICE "its gradient is sparse, and a parameter must be dense here: make it dense before the push (in PyTorch: Embedding(sparse=False), or grad.to_dense())"
#define PD_MAX_DECLARE  4096                /* parameters in one Declare: as many as its answer has room for */

/* Method numbers are positions in the service. */
enum pd_method {
    PD_HELLO, PD_DECLARE, PD_INIT, PD_PUSH, PD_PULL, PD_PUSH_PULL, PD_BARRIER, PD_HEARTBEAT, PD_LEAVE,
    PD_STATUS, PD_LIST, PD_OPTIMIZERS, PD_DROP, PD_DRAIN, PD_SHUTDOWN, PD_SET, PD_IMPORT, PD_METHODS
};
/* "Push"; "?" for a number that is none. From the generated descriptor. */
const char *pd_method_name(unsigned method);
static inline bool pd_method_pushes(unsigned method) { return method == PD_PUSH || method == PD_PUSH_PULL; }

/* Memory that messages are unpacked into; reset and used again for each header. */
typedef struct pd_arena pd_arena;
pd_arena *pd_arena_new(size_t budget);              /* NULL: out of memory. Holds a few KiB at first, grows to at most `budget` */
void      pd_arena_free(pd_arena *arena);           /* accepts NULL */
void      pd_arena_reset(pd_arena *arena);          /* what was unpacked into it is gone */
size_t    pd_arena_bytes(const pd_arena *arena);    /* bytes it holds now: never more than its budget */

/* Unpacks into the arena; *out (any pointer, cast) is valid until it is reset. Text fields that were not sent are "", never NULL.
 * PD_INVALID_ARGUMENT: not such a message, too many unknown fields, text with a NUL or that is not UTF-8 (names the field).
 * PD_RESOURCE_EXHAUSTED: it asks for more than the arena's budget. PD_NO_MEMORY. */
int pd_message_unpack(pd_arena *arena, const ProtobufCMessageDescriptor *type, const uint8_t *at, size_t bytes, void **out, pd_error *err);
/* The request (or reply) of a method. PD_UNIMPLEMENTED: no such method. */
int pd_request_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err);
int pd_reply_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err);

/* Prefix and header of a frame in one piece of memory: prefix at 0, header at PD_PREFIX_BYTES. Gives *out (free() it), *bytes its length. The
 * payload's length and, where flags has PD_FLAG_CHECKSUM, its spans for the checksum are told; the payload itself is not touched otherwise.
 * PD_OUT_OF_RANGE: the header would exceed PD_MAX_HEADER_BYTES. PD_NO_MEMORY. */
int pd_frame_pack(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request, const ProtobufCMessage *message,
                  const struct iovec *payload, size_t n_payload, uint64_t payload_bytes);
/* Packs an ERROR frame that answers `request`. flags: PD_FLAG_CHECKSUM or 0. Sends the code PD_NO_MEMORY as
 * RESOURCE_EXHAUSTED, and the text with its control characters escaped (pd_text_print). */
int pd_frame_pack_error(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request, int code, const char *text, uint64_t mark);

/* Length of the longest prefix that is UTF-8 without NUL: `bytes` if all of it is. Shortest forms only, no surrogates. */
size_t pd_utf8_prefix(const uint8_t *at, size_t bytes);

/* Reads an Error header back: fills *err (code negative again) and returns err->code: never PD_OK. A code that is not on the list
 * becomes PD_UNKNOWN; a header that is no Error, what pd_message_unpack says of it. */
int pd_message_error(pd_arena *arena, const uint8_t *at, size_t bytes, pd_error *err);
/* Does the same, and sets *mark to the error's mark. Leaves *mark as it is where the error has none. */
int pd_message_marked_error(pd_arena *arena, const uint8_t *at, size_t bytes, pd_error *err, uint64_t *mark);

/* ---- scalars of a push ---- */

enum { PD_PUSH_SCALARS = 16, PD_PUSH_SCALAR_NAME = 64 };       /* at most so many, with names of so many bytes */

/* What a push brings beside its gradients: names of 1 to 64 bytes, UTF-8 without control characters, none twice; finite values.
 * PD_INVALID_ARGUMENT: the text names the scalar and what is wrong. PD_RESOURCE_EXHAUSTED: too many. */
int pd_scalars_check(Paramd__Scalar *const *scalars, size_t n, pd_error *err);

/* ---- pieces: what a payload holds ---- */

/* What a side knows of a handle: its name, and which elements of the parameter travel on this connection: [start, end). */
typedef struct pd_handle_facts { int64_t start, end; const char *name; } pd_handle_facts;

/* Checks every piece against the handles, the chunk grid, its dtype and the payload: known handle, exactly one piece of its range
 * (pd_range_piece), known dtype, its data where the piece before it ends (pd_piece_end; the first at 0), the payload ending with the last one
 * (its padding to 64 may be there or not). Absent pieces hold nothing: first, count and offset are 0. No piece twice, none of a parameter that is
 * also absent; the pieces may stand in any order of handles.
 * PD_INVALID_ARGUMENT: the text names piece, parameter, what was expected and what came. PD_NO_MEMORY.
 * Costs O(n) for pieces that ascend by (handle, first), O(n log n) otherwise. chunk_elements >= 1. */
int pd_pieces_check(Paramd__Piece *const *pieces, size_t n, const pd_handle_facts *handles, size_t n_handles,
                    uint64_t chunk_elements, uint64_t payload_bytes, pd_error *err);
/* Checks that no chunk stands twice among the wants of a Pull. Every handle must be known. PD_INVALID_ARGUMENT: the text names the wants and their
 * parameter. PD_NO_MEMORY. Costs O(n) for wants that ascend by (handle, first), O(n log n) otherwise. */
int pd_wants_check_distinct(Paramd__Want *const *wants, size_t n, const pd_handle_facts *handles, pd_error *err);
/* Offset at which the next piece begins after one at `offset` of `bytes`: rounded up to 64. UINT64_MAX: does not fit. */
uint64_t pd_piece_end(uint64_t offset, uint64_t bytes);

#endif
