/* message.h - packs and unpacks the headers of frames, which are protobuf messages. Bytes from a peer may be hostile.
 *
 * Messages are packed by protobuf-c. They are unpacked here, by its descriptors, in one walk that also counts unknown
 * fields and checks text: protobuf-c would need three, and most headers have hundreds of small messages in them. The
 * walk recurses no deeper than the schema. Its memory is an arena, with a hard budget. The functions use no globals.
 * Only the thread that owns an arena may pass it to them. */
#ifndef PD_MESSAGE_H
#define PD_MESSAGE_H

#include "frame.h"
#include "paramd.pb-c.h"

/* Most bytes that unpacking the header of one frame may allocate. */
#define PD_ARENA_BUDGET (2 * 1024 * 1024)
/* Most unknown fields, which the schema does not have, in a message and all messages inside it. */
#define PD_MAX_UNKNOWN 16
/* The end of the error text for a sparse gradient. Client and server put the parameter's name before it. */
#define PD_SPARSE_ADVICE                                                                                               \
    "its gradient is sparse, and a parameter must be dense here: make it dense before the push "                       \
    "(in PyTorch: Embedding(sparse=False), or grad.to_dense())"
/* Most parameters in one Declare request: as many as its answer has room for. */
#define PD_MAX_DECLARE 4096

/* Numbers of the protocol's methods. A number is the method's position in the protobuf service. */
enum pd_method {
    PD_HELLO,
    PD_DECLARE,
    PD_INIT,
    PD_PUSH,
    PD_PULL,
    PD_PUSH_PULL,
    PD_BARRIER,
    PD_HEARTBEAT,
    PD_LEAVE,
    PD_STATUS,
    PD_LIST,
    PD_OPTIMIZERS,
    PD_DROP,
    PD_DRAIN,
    PD_SHUTDOWN,
    PD_SET,
    PD_IMPORT,
    PD_EXPORT,
    PD_SHARE,
    PD_RELEASE,
    PD_NOTE,
    PD_RECALL,
    PD_CHECKPOINT,
    PD_KICK,
    PD_SETTLE,
    PD_GO_BACK,
    PD_SHARDS,
    PD_METHODS
};
/* Returns the name of a method of the protocol, such as "Push"; "?": there is no such method. */
const char *pd_method_name(unsigned method);
static inline bool pd_method_pushes(unsigned method)
{
    return method == PD_PUSH || method == PD_PUSH_PULL;
}

/* An arena: memory into which the header of one frame is unpacked. It is emptied before the next header. */
typedef struct pd_arena pd_arena;
/* Makes an arena of a few KiB, which grows to at most `budget` bytes. Returns NULL if out of memory. */
pd_arena *pd_arena_new(size_t budget);
/* Accepts NULL. */
void pd_arena_free(pd_arena *arena);
/* Frees all messages that were unpacked into the arena. */
void pd_arena_reset(pd_arena *arena);
/* Returns how many bytes of memory the arena has allocated, never more than its budget. */
size_t pd_arena_bytes(const pd_arena *arena);

/* Unpacks a protobuf message into an arena. *out (any pointer, cast) is valid until the arena is reset. Text fields
 * that were not sent are "", never NULL. PD_INVALID_ARGUMENT: the bytes are not a message of this type, there are too
 * many unknown fields, or a text has a NUL or is not UTF-8; the error names the field. PD_RESOURCE_EXHAUSTED: the
 * message exceeds the arena's budget. PD_NO_MEMORY: out of memory. */
int pd_message_unpack(pd_arena *arena, const ProtobufCMessageDescriptor *type, const uint8_t *at, size_t bytes,
                      void **out, pd_error *err);
/* Unpack the header of a method's request, or of its reply. PD_UNIMPLEMENTED: there is no such method. */
int pd_request_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err);
int pd_reply_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err);

/* Packs prefix and header of a frame into one new buffer: the prefix at offset 0, the header (`message`) at
 * PD_PREFIX_BYTES. *out gets the buffer, which the caller frees with free(), and *bytes its length. The payload, the
 * n_payload spans at `payload`, is not packed: it is read only for the checksum, if `flags` has PD_FLAG_CHECKSUM.
 * PD_OUT_OF_RANGE: the header would exceed PD_MAX_HEADER_BYTES. PD_NO_MEMORY: out of memory. */
int pd_frame_pack(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request,
                  const ProtobufCMessage *message, const struct iovec *payload, size_t n_payload,
                  uint64_t payload_bytes);
/* Packs a whole frame into one new buffer: prefix, header, and a copy of its payload, the single span `payload`.
 * Otherwise it works as pd_frame_pack. */
int pd_frame_pack_whole(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request,
                        const ProtobufCMessage *message, const struct iovec *payload);
/* Packs an ERROR frame that answers the request with the id `request`. flags: PD_FLAG_CHECKSUM or 0. mark: number of
 * the refusal, which the worker repeats in later pushes to show that it has read the error (Error.mark); 0: none. The
 * code PD_NO_MEMORY is sent as RESOURCE_EXHAUSTED. Control characters in the text become '?' (pd_text_print). */
int pd_frame_pack_error(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request, int code,
                        const char *text, uint64_t mark);

/* Returns how many bytes at the beginning of a text are UTF-8 without NUL. Characters in more bytes than necessary and
 * surrogates do not count as UTF-8. */
size_t pd_utf8_prefix(const uint8_t *at, size_t bytes);

/* Reads the header of an ERROR frame, fills *err and returns err->code, which is never PD_OK. Codes are positive in the
 * header, and negative in *err. An unknown code becomes PD_UNKNOWN. If the header is not an Error message, *err is the
 * error of pd_message_unpack. If the frame has the number of a refusal (Error.mark), *mark is set to it. `mark` may be
 * NULL. */
int pd_message_error(pd_arena *arena, const uint8_t *at, size_t bytes, pd_error *err, uint64_t *mark);

#endif
