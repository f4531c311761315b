/* message.h - packs and unpacks the headers of frames, with hostile input in mind.
 *
 * Before anything is unpacked, the bytes are walked once along the descriptor of the message. The walk needs no memory,
 * and recurses no deeper than the schema. It counts unknown fields and checks text. Then the message is unpacked in an
 * arena with a hard budget. There are no globals; the thread that owns the arena calls. */
#ifndef PD_MESSAGE_H
#define PD_MESSAGE_H

#include "frame.h"
#include "paramd.pb-c.h"

#define PD_ARENA_BUDGET (2 * 1024 * 1024)   /* most bytes allocated for one header */
#define PD_MAX_UNKNOWN  16                  /* most unknown fields of a message, on all levels */
/* The error for a sparse gradient on both sides, after the name of its parameter. */
#define PD_SPARSE_ADVICE "its gradient is sparse, and a parameter must be dense here: make it dense before the push " \
                         "(in PyTorch: Embedding(sparse=False), or grad.to_dense())"
#define PD_MAX_DECLARE  4096                /* parameters in one Declare: as many as fit into its answer */

/* Method numbers are positions in the service. */
enum pd_method {
    PD_HELLO, PD_DECLARE, PD_INIT, PD_PUSH, PD_PULL, PD_PUSH_PULL, PD_BARRIER, PD_HEARTBEAT, PD_LEAVE,
    PD_STATUS, PD_LIST, PD_OPTIMIZERS, PD_DROP, PD_DRAIN, PD_SHUTDOWN, PD_SET, PD_IMPORT, PD_METHODS
};
/* Returns the name of a method, such as "Push"; "?": there is no such method. */
const char *pd_method_name(unsigned method);
static inline bool pd_method_pushes(unsigned method) { return method == PD_PUSH || method == PD_PUSH_PULL; }

/* Memory into which messages are unpacked; reset for each header. */
typedef struct pd_arena pd_arena;
/* Makes an arena of a few KiB, which grows to at most `budget` bytes. NULL: out of memory. */
pd_arena *pd_arena_new(size_t budget);
/* Accepts NULL. */
void      pd_arena_free(pd_arena *arena);
/* Frees all messages in the arena. */
void      pd_arena_reset(pd_arena *arena);
/* Returns the bytes that the arena has allocated: never more than its budget. */
size_t    pd_arena_bytes(const pd_arena *arena);

/* Unpacks a message into the arena. *out (any pointer, cast) is valid until the arena is reset. Text fields that were
 * not sent are "", never NULL. PD_INVALID_ARGUMENT: not such a message, too many unknown fields, or text with a NUL or
 * that is not UTF-8; the error names the field. PD_RESOURCE_EXHAUSTED: the message exceeds the arena's budget.
 * PD_NO_MEMORY. */
int pd_message_unpack(pd_arena *arena, const ProtobufCMessageDescriptor *type, const uint8_t *at, size_t bytes,
                      void **out, pd_error *err);
/* Unpack the request, or the reply, of a method. PD_UNIMPLEMENTED: there is no such method. */
int pd_request_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err);
int pd_reply_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err);

/* Packs prefix and header of a frame into one piece of memory: prefix at 0, header at PD_PREFIX_BYTES. Gives *out
 * (free() it), and its length *bytes. The payload is read only for the checksum, if flags has PD_FLAG_CHECKSUM.
 * PD_OUT_OF_RANGE: the header would exceed PD_MAX_HEADER_BYTES. PD_NO_MEMORY. */
int pd_frame_pack(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request,
                  const ProtobufCMessage *message, const struct iovec *payload, size_t n_payload,
                  uint64_t payload_bytes);
/* Packs an ERROR frame that answers `request`. flags: PD_FLAG_CHECKSUM or 0. Sends the code PD_NO_MEMORY as
 * RESOURCE_EXHAUSTED, and the text with its control characters escaped (pd_text_print). */
int pd_frame_pack_error(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request, int code,
                        const char *text, uint64_t mark);

/* Returns the length of the longest prefix that is UTF-8 without NUL: shortest forms only, no surrogates. */
size_t pd_utf8_prefix(const uint8_t *at, size_t bytes);

/* Reads an Error header: fills *err (code negative again) and returns err->code, never PD_OK. An unknown code becomes
 * PD_UNKNOWN. A header that is no Error gives the error of pd_message_unpack. */
int pd_message_error(pd_arena *arena, const uint8_t *at, size_t bytes, pd_error *err);
/* Does the same, and sets *mark to the error's mark, if it has one. */
int pd_message_marked_error(pd_arena *arena, const uint8_t *at, size_t bytes, pd_error *err, uint64_t *mark);

#endif
