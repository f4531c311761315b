/* message.h - packs and unpacks the headers of frames. Bytes from a peer may be hostile.
 *
 * Before a message is unpacked, its bytes are checked once against the message's descriptor. The check needs no
 * memory, and recurses no deeper than the schema. It counts unknown fields and checks text. Then the message is
 * unpacked into an arena with a hard budget. There are no globals; the thread that owns the arena calls. */
#ifndef PD_MESSAGE_H
#define PD_MESSAGE_H

#include "frame.h"
#include "paramd.pb-c.h"

#define PD_ARENA_BUDGET (2 * 1024 * 1024) /* most bytes that unpacking one header may allocate */
#define PD_MAX_UNKNOWN 16                 /* most unknown fields of a message, nested messages included */
/* The end of the error text for a sparse gradient. Client and server put the parameter's name before it. */
#define PD_SPARSE_ADVICE                                                                                               \
    "its gradient is sparse, and a parameter must be dense here: make it dense before the push "                       \
    "(in PyTorch: Embedding(sparse=False), or grad.to_dense())"
#define PD_MAX_DECLARE 4096 /* most parameters in one Declare request: as many as fit into its answer */

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
    PD_METHODS
};
/* Returns the name of a method, such as "Push"; "?": there is no such method. */
const char *pd_method_name(unsigned method);
static inline bool pd_method_pushes(unsigned method)
{
    return method == PD_PUSH || method == PD_PUSH_PULL;
}

/* Memory into which messages are unpacked. It is reset for each header. */
typedef struct pd_arena pd_arena;
/* Makes an arena of a few KiB, which grows to at most `budget` bytes. NULL: out of memory. */
pd_arena *pd_arena_new(size_t budget);
/* Accepts NULL. */
void pd_arena_free(pd_arena *arena);
/* Frees all messages in the arena. */
void pd_arena_reset(pd_arena *arena);
/* Returns the bytes that the arena has allocated, which never exceed its budget. */
size_t pd_arena_bytes(const pd_arena *arena);

/* Unpacks a message into the arena. *out (any pointer, cast) is valid until the arena is reset. Text fields that
 * were not sent are "", never NULL. PD_INVALID_ARGUMENT: the bytes are no message of this type, there are too many
 * unknown fields, or a text has a NUL or is not UTF-8; the error names the field. PD_RESOURCE_EXHAUSTED: the message
 * exceeds the arena's budget. PD_NO_MEMORY. */
int pd_message_unpack(pd_arena *arena, const ProtobufCMessageDescriptor *type, const uint8_t *at, size_t bytes,
                      void **out, pd_error *err);
/* Unpack the request of a method, or its reply. PD_UNIMPLEMENTED: there is no such method. */
int pd_request_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err);
int pd_reply_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err);

/* Packs prefix and header of a frame into one piece of memory: the prefix at offset 0, the header at
 * PD_PREFIX_BYTES. Gives *out (free() it), and its length *bytes. The payload is read only for the checksum, if
 * `flags` has PD_FLAG_CHECKSUM. PD_OUT_OF_RANGE: the header would exceed PD_MAX_HEADER_BYTES. PD_NO_MEMORY. */
int pd_frame_pack(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request,
                  const ProtobufCMessage *message, const struct iovec *payload, size_t n_payload,
                  uint64_t payload_bytes);
/* Packs a frame with a copy of its payload into one piece of memory. Otherwise it works as pd_frame_pack. */
int pd_frame_pack_whole(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request,
                        const ProtobufCMessage *message, const struct iovec *payload);
/* Packs an ERROR frame that answers the request with the id `request`. flags: PD_FLAG_CHECKSUM or 0. The code
 * PD_NO_MEMORY is sent as RESOURCE_EXHAUSTED. Control characters in the text are escaped (pd_text_print). */
int pd_frame_pack_error(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request, int code,
                        const char *text, uint64_t mark);

/* Returns how many bytes from the beginning are UTF-8 without NUL. Overlong forms and surrogates do not count as
 * UTF-8. */
size_t pd_utf8_prefix(const uint8_t *at, size_t bytes);

/* Reads the header of an ERROR frame, fills *err and returns err->code, which is never PD_OK. Codes are positive in
 * the header, and negative in *err. An unknown code becomes PD_UNKNOWN. A header that is no Error message gives the
 * error of pd_message_unpack. */
int pd_message_error(pd_arena *arena, const uint8_t *at, size_t bytes, pd_error *err);
/* Reads an Error header as pd_message_error does. Sets *mark to the number that the server gave to this error, if it
 * has one. */
int pd_message_marked_error(pd_arena *arena, const uint8_t *at, size_t bytes, pd_error *err, uint64_t *mark);

#endif
