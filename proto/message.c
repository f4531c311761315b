/* message.c - packs and unpacks the headers of frames, which are protobuf messages. */
#include "message.h"

#include "text.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const ProtobufCMethodDescriptor *find_method(unsigned method)
{
    const ProtobufCServiceDescriptor *service = &paramd__paramd__descriptor;
    return method < service->n_methods ? &service->methods[method] : NULL;
}

const char *pd_method_name(unsigned method)
{
    const ProtobufCMethodDescriptor *found = find_method(method);
    return found != NULL ? found->name : "?";
}

enum { FIRST_BLOCK_BYTES = 4096 };

/* A block of an arena: memory from one malloc. An arena has a list of blocks if one was too small for a header;
 * pd_arena_reset merges them. */
typedef struct block {
    struct block *next;
    size_t used, capacity;
    _Alignas(max_align_t) uint8_t at[];
} block;

struct pd_arena {
    ProtobufCAllocator allocator;
    /* budget: most bytes that all blocks of the arena may have together; held: the bytes that they have now */
    size_t budget, held;
    bool exhausted; /* memory was refused because the arena would have exceeded its budget */
    bool no_memory; /* an allocation failed */
    block *first;
};

/* Adds a block with room for at least `bytes` bytes to the arena, and doubles the arena's memory if the budget allows.
 * Returns NULL if the budget or the memory does not suffice, and sets `exhausted` or `no_memory`. */
static block *add_block(pd_arena *arena, size_t bytes)
{
    size_t least = bytes + sizeof(block), room = arena->budget - arena->held;
    size_t wish = least > arena->held ? least : arena->held;

    if (least > room) {
        arena->exhausted = true;
        return NULL;
    }
    if (wish > room) wish = room;
    block *added = malloc(wish);
    if (added == NULL) {
        arena->no_memory = true;
        return NULL;
    }
    *added = (block){ .next = arena->first, .capacity = wish - sizeof(block) };
    arena->held += wish;
    return arena->first = added;
}

static void *arena_alloc(void *data, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    pd_arena *arena = data;
    block *from = arena->first;

    if (size > arena->budget) {
        arena->exhausted = true;
        return NULL;
    }
    size = (size + align - 1) / align * align;
    if (from == NULL || from->capacity - from->used < size) from = add_block(arena, size);
    if (from == NULL) return NULL;
    from->used += size;
    return from->at + from->used - size;
}

/* Does nothing: protobuf-c calls it to free one allocation, but pd_arena_reset frees all of them at once. */
static void arena_keep(void *data, void *at)
{
    (void)data;
    (void)at;
}

static void free_blocks(pd_arena *arena)
{
    while (arena->first != NULL) {
        block *next = arena->first->next;
        free(arena->first);
        arena->first = next;
    }
    arena->held = 0;
}

pd_arena *pd_arena_new(size_t budget)
{
    pd_arena *arena = calloc(1, sizeof *arena);

    if (arena == NULL) return NULL;
    arena->allocator = (ProtobufCAllocator){ arena_alloc, arena_keep, arena };
    arena->budget = budget;
    if (budget >= FIRST_BLOCK_BYTES && add_block(arena, FIRST_BLOCK_BYTES - sizeof(block)) == NULL) {
        free(arena);
        return NULL;
    }
    return arena;
}

void pd_arena_free(pd_arena *arena)
{
    if (arena == NULL) return;
    free_blocks(arena);
    free(arena);
}

/* Empties the arena. Replaces several blocks by one of their total size, so that the next header of the same size needs
 * no malloc. If malloc fails, the arena has no block, and the next header allocates one. */
void pd_arena_reset(pd_arena *arena)
{
    size_t held = arena->held;

    if (arena->first != NULL && arena->first->next != NULL) {
        free_blocks(arena);
        add_block(arena, held - sizeof(block));
    }
    if (arena->first != NULL) arena->first->used = 0;
    arena->exhausted = arena->no_memory = false;
}

size_t pd_arena_bytes(const pd_arena *arena)
{
    return arena->held;
}

size_t pd_utf8_prefix(const uint8_t *at, size_t bytes)
{
    size_t i = 0, n;
    uint32_t point;

    while (i < bytes && (n = pd_utf8_next((const char *)at + i, bytes - i, &point)) > 0 && point != 0) i += n;
    return i;
}

/* State of the check of a message before it is unpacked. */
typedef struct walk {
    const uint8_t *at, *end;
    unsigned unknown; /* number of checked fields that the schema does not have, in all nested messages */
    pd_error *err;
} walk;

/* Reads a varint, protobuf's form of a number. Returns false if there is none of at most 10 bytes. */
static inline bool read_varint(walk *w, uint64_t *value)
{
    if (w->at < w->end && *w->at < 0x80) {
        *value = *w->at++;
        return true;
    }
    *value = 0;
    for (int shift = 0; shift < 70 && w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) return true;
    }
    return false;
}

/* Skips the value of a protobuf field. *body is its content if the field is a text or a message, else NULL. Returns
 * false if the value exceeds the message, or if its wire type is not one of proto3. */
static bool read_value(walk *w, unsigned wire_type, const uint8_t **body, size_t *bytes)
{
    uint64_t n = 0;

    *body = NULL;
    *bytes = 0;
    switch (wire_type) {
    case PROTOBUF_C_WIRE_TYPE_VARINT: return read_varint(w, &n);
    case PROTOBUF_C_WIRE_TYPE_64BIT: n = 8; break;
    case PROTOBUF_C_WIRE_TYPE_32BIT: n = 4; break;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        if (!read_varint(w, &n)) return false;
        *body = w->at;
        break;
    default: return false;
    }
    if (n > (uint64_t)(w->end - w->at)) return false;
    *bytes = (size_t)n;
    w->at += n;
    return true;
}

static int check_text(walk *w, const ProtobufCMessageDescriptor *type, const char *field, const uint8_t *at,
                      size_t bytes)
{
    size_t good = pd_utf8_prefix(at, bytes);

    if (good == bytes) return PD_OK;
    return pd_fail(w->err, PD_INVALID_ARGUMENT, "%s.%s: %s at byte %zu of the text", type->short_name, field,
                   at[good] == 0 ? "a NUL" : "not UTF-8", good);
}

/* Returns the field with a number; NULL: there is none. Fields are sorted by number, and most messages leave none
 * out. */
static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *type, unsigned number)
{
    if (number <= type->n_fields && type->fields[number - 1].id == number) return &type->fields[number - 1];
    return protobuf_c_message_descriptor_get_field(type, number);
}

static int check_message(walk *w, const ProtobufCMessageDescriptor *type);

static int check_field(walk *w, const ProtobufCMessageDescriptor *type, uint64_t tag)
{
    const ProtobufCFieldDescriptor *field = find_field(type, (unsigned)(tag >> 3));
    const uint8_t *body;
    size_t bytes;

    if (!read_value(w, tag & 7, &body, &bytes))
        return pd_fail(w->err, PD_INVALID_ARGUMENT, "%s: field %u is truncated or has an unknown wire type",
                       type->short_name, (unsigned)(tag >> 3));
    if (field == NULL) {
        if (++w->unknown > PD_MAX_UNKNOWN)
            return pd_fail(w->err, PD_INVALID_ARGUMENT, "%s: more than %d unknown fields", type->short_name,
                           PD_MAX_UNKNOWN);
        return PD_OK;
    }
    if (body == NULL) return PD_OK;
    if (field->type == PROTOBUF_C_TYPE_STRING) return check_text(w, type, field->name, body, bytes);
    if (field->type != PROTOBUF_C_TYPE_MESSAGE) return PD_OK;
    walk inner = { .at = body, .end = body + bytes, .unknown = w->unknown, .err = w->err };
    int rc = check_message(&inner, field->descriptor);
    w->unknown = inner.unknown;
    return rc;
}

/* Checks the fields of a protobuf message and of the messages in it. The recursion ends, because no message of the
 * schema contains itself (a test checks this). */
static int check_message(walk *w, const ProtobufCMessageDescriptor *type)
{
    while (w->at < w->end) {
        uint64_t tag;
        if (!read_varint(w, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
            return pd_fail(w->err, PD_INVALID_ARGUMENT, "%s: malformed field", type->short_name);
        int rc = check_field(w, type, tag);
        if (rc != PD_OK) return rc;
    }
    return PD_OK;
}

int pd_message_unpack(pd_arena *arena, const ProtobufCMessageDescriptor *type, const uint8_t *at, size_t bytes,
                      void **out, pd_error *err)
{
    int rc = check_message(&(walk){ .at = at, .end = at + bytes, .err = err }, type);
    if (rc != PD_OK) return rc;

    void *message = protobuf_c_message_unpack(type, &arena->allocator, bytes, at);
    if (message != NULL) {
        memcpy(out, &message, sizeof message); /* copies the pointer with memcpy, because an assignment would break the
                                                * aliasing rule: callers pass (void **)&typed */
        return PD_OK;
    }
    if (arena->exhausted)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%s: unpacking %zu bytes of header takes more than %zu: send fewer "
                       "entries in a frame",
                       type->short_name, bytes, arena->budget);
    if (arena->no_memory) return pd_fail(err, PD_NO_MEMORY, "%s: out of memory", type->short_name);
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s: a field has the wrong wire type", type->short_name);
}

int pd_request_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err)
{
    const ProtobufCMethodDescriptor *found = find_method(method);

    if (found == NULL)
        return pd_fail(err, PD_UNIMPLEMENTED, "method %u: only 0 to %d are known", method, PD_METHODS - 1);
    return pd_message_unpack(arena, found->input, at, bytes, out, err);
}

int pd_reply_unpack(pd_arena *arena, unsigned method, const uint8_t *at, size_t bytes, void **out, pd_error *err)
{
    const ProtobufCMethodDescriptor *found = find_method(method);

    if (found == NULL)
        return pd_fail(err, PD_UNIMPLEMENTED, "method %u: only 0 to %d are known", method, PD_METHODS - 1);
    return pd_message_unpack(arena, found->output, at, bytes, out, err);
}

int pd_frame_pack(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request,
                  const ProtobufCMessage *message, const struct iovec *payload, size_t n_payload,
                  uint64_t payload_bytes)
{
    size_t header_bytes = protobuf_c_message_get_packed_size(message);
    pd_prefix prefix = {
        .version = PD_PROTOCOL_VERSION,
        .flags = flags,
        .method = (uint16_t)method,
        .header_bytes = (uint32_t)header_bytes,
        .payload_bytes = payload_bytes,
        .request = request,
    };

    if (header_bytes > PD_MAX_HEADER_BYTES) return PD_OUT_OF_RANGE;
    uint8_t *frame = malloc(PD_PREFIX_BYTES + header_bytes);
    if (frame == NULL) return PD_NO_MEMORY;
    protobuf_c_message_pack(message, frame + PD_PREFIX_BYTES);
    if ((flags & PD_FLAG_CHECKSUM) != 0 &&
        pd_frame_checksum(&prefix.checksum, frame + PD_PREFIX_BYTES, header_bytes, payload, n_payload) != PD_OK) {
        free(frame);
        return PD_NO_MEMORY;
    }
    pd_prefix_write(frame, &prefix);
    *out = frame;
    *bytes = PD_PREFIX_BYTES + header_bytes;
    return PD_OK;
}

int pd_frame_pack_whole(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request,
                        const ProtobufCMessage *message, const struct iovec *payload)
{
    size_t more = payload->iov_len;
    uint8_t *whole;
    int rc = pd_frame_pack(out, bytes, method, flags, request, message, payload, more > 0, more);

    if (rc != PD_OK || more == 0) return rc;
    if ((whole = realloc(*out, *bytes + more)) == NULL) {
        free(*out);
        return PD_NO_MEMORY;
    }
    memcpy(whole + *bytes, payload->iov_base, more);
    *out = whole;
    *bytes += more;
    return PD_OK;
}

int pd_frame_pack_error(uint8_t **out, size_t *bytes, unsigned method, uint8_t flags, uint64_t request, int code,
                        const char *text, uint64_t mark)
{
    char whole[PD_ERROR_TEXT];
    Paramd__Error error = PARAMD__ERROR__INIT;

    error.code = code == PD_NO_MEMORY ? -PD_RESOURCE_EXHAUSTED : -code;
    error.text = pd_text_print(whole, sizeof whole, text);
    error.mark = mark;
    return pd_frame_pack(out, bytes, method, flags | PD_FLAG_REPLY | PD_FLAG_ERROR, request, &error.base, NULL, 0, 0);
}

int pd_message_error(pd_arena *arena, const uint8_t *at, size_t bytes, pd_error *err, uint64_t *mark)
{
    void *message = NULL;
    int rc = pd_message_unpack(arena, &paramd__error__descriptor, at, bytes, &message, err);

    if (rc != PD_OK) return rc;
    const Paramd__Error *error = message;
    if (mark != NULL && error->mark != 0) *mark = error->mark;
    rc = error->code >= -PD_CANCELLED && error->code <= -PD_UNAUTHENTICATED ? -error->code : PD_UNKNOWN;
    return pd_fail(err, rc, "%s", error->text);
}
