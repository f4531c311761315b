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
    /* budget: most bytes that all blocks of the arena may have together; held: the bytes that they have now */
    size_t budget, held;
    bool no_memory; /* an allocation failed */
    block *first;
};

/* Adds a block with room for at least `bytes` bytes to the arena, and doubles the arena's memory if the budget allows.
 * Returns NULL if the budget does not suffice, or the memory: then it sets `no_memory`. */
static block *add_block(pd_arena *arena, size_t bytes)
{
    size_t least = bytes + sizeof(block), room = arena->budget - arena->held;
    size_t wish = least > arena->held ? least : arena->held;

    if (least > room) return NULL;
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

static void *arena_alloc(pd_arena *arena, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    block *from = arena->first;

    if (size > arena->budget) return NULL;
    size = (size + align - 1) / align * align;
    if (from == NULL || from->capacity - from->used < size) from = add_block(arena, size);
    if (from == NULL) return NULL;
    from->used += size;
    return from->at + from->used - size;
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
    arena->no_memory = false;
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

/* State of a message that is being unpacked. */
typedef struct walk {
    const uint8_t *at, *end; /* the bytes that are left of the message */
    unsigned unknown;        /* number of fields so far that the schema does not have, in all nested messages */
    pd_arena *arena;
    pd_error *err;
} walk;

/* The value of a field, as it is on the wire. */
typedef struct wire_value {
    unsigned type;       /* ProtobufCWireType */
    uint64_t number;     /* of a varint */
    const uint8_t *body; /* of all others: the bytes */
    size_t bytes;
} wire_value;

/* Reads a varint, protobuf's form of a number. Returns false if there is none of at most 64 bits. */
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
        if ((byte & 0x80) == 0) return shift < 63 || byte <= 1;
    }
    return false;
}

/* Reads the value of a field. Returns false if the value exceeds the message, or if its wire type is not one of
 * proto3. */
static inline bool read_value(walk *w, unsigned wire_type, wire_value *value)
{
    uint64_t n;

    value->type = wire_type;
    switch (wire_type) {
    case PROTOBUF_C_WIRE_TYPE_VARINT: return read_varint(w, &value->number);
    case PROTOBUF_C_WIRE_TYPE_64BIT: n = 8; break;
    case PROTOBUF_C_WIRE_TYPE_32BIT: n = 4; break;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        if (!read_varint(w, &n)) return false;
        break;
    default: return false;
    }
    if (n > (uint64_t)(w->end - w->at)) return false;
    value->body = w->at;
    value->bytes = (size_t)n;
    w->at += n;
    return true;
}

/* Returns the field with a number; NULL: there is none. Fields are sorted by number, and most messages leave none
 * out. */
static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *type, unsigned number)
{
    if (number <= type->n_fields && type->fields[number - 1].id == number) return &type->fields[number - 1];
    return protobuf_c_message_descriptor_get_field(type, number);
}

/* Returns why the arena has no memory. pd_message_unpack writes the error's text. */
static int no_room(const walk *w)
{
    return w->arena->no_memory ? PD_NO_MEMORY : PD_RESOURCE_EXHAUSTED;
}

static int unpack_into(walk *w, const ProtobufCMessageDescriptor *type, uint8_t *message);

/* Store a text, bytes or a message in a member of this type. The pointer is copied with memcpy, because the member is
 * a pointer to another type. */
static int put_text(walk *w, const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                    const wire_value *value, void *member)
{
    size_t good = pd_utf8_prefix(value->body, value->bytes);
    char *text;

    if (good < value->bytes)
        return pd_fail(w->err, PD_INVALID_ARGUMENT, "%s.%s: %s at byte %zu of the text", type->short_name, field->name,
                       value->body[good] == 0 ? "a NUL" : "not UTF-8", good);
    if ((text = arena_alloc(w->arena, value->bytes + 1)) == NULL) return no_room(w);
    memcpy(text, value->body, value->bytes);
    text[value->bytes] = '\0';
    memcpy(member, &text, sizeof text);
    return PD_OK;
}

static int put_bytes(walk *w, const wire_value *value, void *member)
{
    ProtobufCBinaryData *data = member;

    *data = (ProtobufCBinaryData){ 0 };
    if (value->bytes == 0) return PD_OK;
    if ((data->data = arena_alloc(w->arena, value->bytes)) == NULL) return no_room(w);
    memcpy(data->data, value->body, data->len = value->bytes);
    return PD_OK;
}

/* A message that comes twice, and is not an entry of a list, is one message with the fields of both. */
static int put_message(walk *w, const ProtobufCMessageDescriptor *type, const wire_value *value, void *member)
{
    walk inner = *w;
    uint8_t *message;
    int rc;

    memcpy(&message, member, sizeof message);
    if (message == NULL) {
        if ((message = arena_alloc(w->arena, type->sizeof_message)) == NULL) return no_room(w);
        type->message_init((ProtobufCMessage *)(void *)message);
        memcpy(member, &message, sizeof message);
    }
    inner.at = value->body;
    inner.end = value->body + value->bytes;
    rc = unpack_into(&inner, type, message);
    w->unknown = inner.unknown;
    return rc;
}

static unsigned wire_type_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return PROTOBUF_C_WIRE_TYPE_64BIT;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
    default: return PROTOBUF_C_WIRE_TYPE_VARINT;
    }
}

/* Stores a value in the member of a message, or in an element of a list. A test checks that the schema has no other
 * types. */
static int put_value(walk *w, const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                     const wire_value *value, void *member)
{
    if (value->type != wire_type_of(field->type))
        return pd_fail(w->err, PD_INVALID_ARGUMENT, "%s.%s: the field has the wrong wire type", type->short_name,
                       field->name);
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: return put_text(w, type, field, value, member);
    case PROTOBUF_C_TYPE_BYTES: return put_bytes(w, value, member);
    case PROTOBUF_C_TYPE_MESSAGE: return put_message(w, field->descriptor, value, member);
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: memcpy(member, value->body, 8); break;
    case PROTOBUF_C_TYPE_BOOL: *(protobuf_c_boolean *)member = value->number != 0; break;
    case PROTOBUF_C_TYPE_UINT64: *(uint64_t *)member = value->number; break;
    case PROTOBUF_C_TYPE_SINT32:
        *(uint32_t *)member = (uint32_t)(value->number) >> 1 ^ -((uint32_t)value->number & 1);
        break;
    default: *(uint32_t *)member = (uint32_t)value->number; break;
    }
    return PD_OK;
}

static size_t size_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_UINT64: return 8;
    default: return 4;
    }
}

/* Appends an element of zeros to a list, and returns it; NULL: the arena has no room. The list's memory doubles when
 * its number of elements is a power of two. */
static void *add_element(walk *w, const ProtobufCFieldDescriptor *field, uint8_t *message)
{
    size_t *n = (size_t *)(void *)(message + field->quantifier_offset), size = size_of(field->type);
    uint8_t *list;

    memcpy(&list, message + field->offset, sizeof list);
    if ((*n & (*n - 1)) == 0) {
        uint8_t *more = arena_alloc(w->arena, (*n > 0 ? 2 * *n : 1) * size);
        if (more == NULL) return NULL;
        if (*n > 0) memcpy(more, list, *n * size);
        memcpy(message + field->offset, &more, sizeof more);
        list = more;
    }
    return memset(list + (*n)++ * size, 0, size);
}

/* Unpacks numbers that were sent in one field. */
static int unpack_numbers(walk *w, const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                          const wire_value *all, uint8_t *message)
{
    walk inner = *w;
    wire_value value;
    int rc = PD_OK;

    inner.at = all->body;
    inner.end = all->body + all->bytes;
    while (rc == PD_OK && inner.at < inner.end) {
        void *element;
        if (!read_value(&inner, wire_type_of(field->type), &value))
            return pd_fail(w->err, PD_INVALID_ARGUMENT, "%s.%s: the list of numbers is truncated", type->short_name,
                           field->name);
        if ((element = add_element(w, field, message)) == NULL) return no_room(w);
        rc = put_value(w, type, field, &value, element);
    }
    return rc;
}

static int unpack_field(walk *w, const ProtobufCMessageDescriptor *type, uint64_t tag, uint8_t *message)
{
    const ProtobufCFieldDescriptor *field = find_field(type, (unsigned)(tag >> 3));
    wire_value value;
    void *member;

    if (!read_value(w, tag & 7, &value))
        return pd_fail(w->err, PD_INVALID_ARGUMENT, "%s: field %u is truncated or has an unknown wire type",
                       type->short_name, (unsigned)(tag >> 3));
    if (field == NULL) {
        if (++w->unknown <= PD_MAX_UNKNOWN) return PD_OK;
        return pd_fail(w->err, PD_INVALID_ARGUMENT, "%s: more than %d unknown fields", type->short_name,
                       PD_MAX_UNKNOWN);
    }
    if (field->label != PROTOBUF_C_LABEL_REPEATED) return put_value(w, type, field, &value, message + field->offset);
    if (value.type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED && wire_type_of(field->type) != value.type)
        return unpack_numbers(w, type, field, &value, message);
    if ((member = add_element(w, field, message)) == NULL) return no_room(w);
    return put_value(w, type, field, &value, member);
}

/* Unpacks a protobuf message, and the messages in it, into memory that has its initial values. The recursion ends,
 * because no message of the schema contains itself (a test checks this). */
static int unpack_into(walk *w, const ProtobufCMessageDescriptor *type, uint8_t *message)
{
    while (w->at < w->end) {
        uint64_t tag;
        if (!read_varint(w, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
            return pd_fail(w->err, PD_INVALID_ARGUMENT, "%s: malformed field", type->short_name);
        int rc = unpack_field(w, type, tag, message);
        if (rc != PD_OK) return rc;
    }
    return PD_OK;
}

int pd_message_unpack(pd_arena *arena, const ProtobufCMessageDescriptor *type, const uint8_t *at, size_t bytes,
                      void **out, pd_error *err)
{
    walk w = { .arena = arena, .err = err };
    void *message = NULL;
    int rc = put_message(&w, type, &(wire_value){ .body = at, .bytes = bytes }, &message);

    if (rc == PD_OK) memcpy(out, &message, sizeof message); /* callers pass (void **)&typed: see put_text */
    if (rc == PD_NO_MEMORY) return pd_fail(err, rc, "%s: out of memory", type->short_name);
    if (rc == PD_RESOURCE_EXHAUSTED)
        return pd_fail(err, rc, "%s: unpacking %zu bytes of header takes more than %zu: send fewer entries in a frame",
                       type->short_name, bytes, arena->budget);
    return rc;
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
