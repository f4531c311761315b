/* Reads any bytes as the header of any method. The header is refused; or protobuf-c reads the same from it, and the
 * message can be packed and read again. Memory stays within its budget. Input: a byte for the message (methods, then
 * replies, then Error), a byte for the sizes of handles, then the header. */
#include "message.h"
#include "pieces.h"
#include "paramd/tensor.h"

#include "seed.h"

#include <string.h>

enum { N_MESSAGES = 2 * PD_METHODS + 1, CHUNK = 64 };

static pd_arena *arena, *other;

static const ProtobufCMessageDescriptor *descriptor_of(uint8_t index)
{
    const ProtobufCMethodDescriptor *methods = paramd__paramd__descriptor.methods;
    unsigned i = index % N_MESSAGES;

    if (i == 2 * PD_METHODS) return &paramd__error__descriptor;
    return i < PD_METHODS ? methods[i].input : methods[i - PD_METHODS].output;
}

/* Runs the daemon's check of pieces. Checks that accepted pieces lie within their parameter and the payload, and
 * that no piece comes twice. */
static void check_pieces(Paramd__Piece *const *pieces, size_t n, uint8_t size)
{
    const pd_handle_facts handles[] = {
        { 0, size, "a" }, { 7, 3 * CHUNK + 1, "b" }, { 0, 0, "c" }, { 0, INT64_MAX / 8, "d" }
    };
    uint64_t payload = n > 0 ? pd_piece_end(pieces[n - 1]->offset,
                                            pd_dtype_bytes((pd_dtype)pieces[n - 1]->dtype, pieces[n - 1]->count))
                             : 0;
    pd_error err;

    if (pd_pieces_check(pieces, n, handles, 4, CHUNK, payload, &err) != PD_OK) {
        MUST(err.code < 0 && err.text[0] != '\0');
        return;
    }
    for (size_t i = 0; i < n; i++) {
        MUST(pieces[i]->handle < 4);
        MUST(pieces[i]->absent || pieces[i]->first >= (uint64_t)handles[pieces[i]->handle].start);
        MUST(pieces[i]->first + pieces[i]->count <= (uint64_t)handles[pieces[i]->handle].end);
        MUST(pieces[i]->offset % PD_PAYLOAD_ALIGN == 0 && pieces[i]->offset + pieces[i]->count / 2 <= payload);
        for (size_t k = 0; k < i && n < 100; k++)
            MUST(pieces[i]->handle != pieces[k]->handle || pieces[i]->first != pieces[k]->first);
    }
}

static size_t element_bytes(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_UINT64: return 8;
    default: return 4;
    }
}

static void same_message(const ProtobufCMessageDescriptor *type, const uint8_t *a, const uint8_t *b);

static const void *pointer_at(const uint8_t *member)
{
    const void *at;

    memcpy(&at, member, sizeof at);
    return at;
}

static void same_bytes(const void *a, const void *b)
{
    const ProtobufCBinaryData *x = a, *y = b;

    MUST(x->len == y->len && (x->len == 0 || memcmp(x->data, y->data, x->len) == 0));
}

static void same_value(const ProtobufCFieldDescriptor *field, const uint8_t *a, const uint8_t *b)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: MUST(strcmp(pointer_at(a), pointer_at(b)) == 0); break;
    case PROTOBUF_C_TYPE_BYTES: same_bytes(a, b); break;
    case PROTOBUF_C_TYPE_MESSAGE:
        MUST((pointer_at(a) == NULL) == (pointer_at(b) == NULL));
        if (pointer_at(a) != NULL) same_message(field->descriptor, pointer_at(a), pointer_at(b));
        break;
    default: MUST(memcmp(a, b, element_bytes(field)) == 0);
    }
}

/* Compares two messages field by field. The fields that the schema does not have are not compared. */
static void same_message(const ProtobufCMessageDescriptor *type, const uint8_t *a, const uint8_t *b)
{
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        const uint8_t *x = a + field->offset, *y = b + field->offset;
        size_t n = 1, m = 1;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            memcpy(&n, a + field->quantifier_offset, sizeof n);
            memcpy(&m, b + field->quantifier_offset, sizeof m);
            x = pointer_at(x);
            y = pointer_at(y);
        }
        MUST(n == m);
        for (size_t k = 0; k < n; k++) same_value(field, x + k * element_bytes(field), y + k * element_bytes(field));
    }
}

/* Reads the header with protobuf-c, which must read the same. */
static void read_beside(const ProtobufCMessageDescriptor *type, const uint8_t *at, size_t bytes, const void *message)
{
    ProtobufCMessage *beside = protobuf_c_message_unpack(type, NULL, bytes, at);

    MUST(beside != NULL);
    same_message(type, message, (const uint8_t *)beside);
    protobuf_c_message_free_unpacked(beside, NULL);
}

static void read_again(const ProtobufCMessageDescriptor *type, const ProtobufCMessage *message)
{
    uint8_t *frame;
    size_t bytes;
    void *copy;

    pd_arena_reset(other);
    if (pd_frame_pack(&frame, &bytes, 0, 0, 0, message, NULL, 0, 0) != PD_OK)
        return; /* the message may be packed with a longer encoding of numbers, and then exceed 64 KiB */
    MUST(pd_message_unpack(other, type, frame + PD_PREFIX_BYTES, bytes - PD_PREFIX_BYTES, &copy, NULL) == PD_OK);
    MUST(protobuf_c_message_get_packed_size(copy) == bytes - PD_PREFIX_BYTES);
    free(frame);
}

static void seed_message(const char *folder, const char *name, uint8_t index, const ProtobufCMessage *message)
{
    uint8_t bytes[4096] = { index, 200 };
    size_t n = protobuf_c_message_pack(message, bytes + 2);

    write_seed(folder, name, bytes, n + 2);
}

static void seed_hello(const char *folder)
{
    Paramd__Option option = PARAMD__OPTION__INIT, *options[] = { &option };
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    char *rules[] = { (char *)"* sgd lr=0.1" };

    option.name = (char *)"nonfinite";
    option.value = (char *)"skip";
    hello.protocol = 1;
    hello.job = (char *)"größe";
    hello.world_size = 4;
    hello.nonce = 0x0123456789abcdef;
    hello.options = options;
    hello.rules = rules;
    hello.n_options = hello.n_rules = 1;
    seed_message(folder, "hello", PD_HELLO, &hello.base);
}

static void seed_push(const char *folder)
{
    Paramd__Piece piece[3] = { PARAMD__PIECE__INIT, PARAMD__PIECE__INIT, PARAMD__PIECE__INIT },
                  *pieces[] = { &piece[0], &piece[1], &piece[2] };
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;

    for (uint32_t i = 0; i < 3; i++) piece[i].dtype = 1;
    piece[0].handle = piece[1].handle = 1;
    piece[0].count = CHUNK;
    piece[1].first = 3 * CHUNK;
    piece[1].count = 1;
    piece[1].offset = 4 * CHUNK;
    piece[2].absent = true;
    push.step = 1;
    push.weight = 32;
    push.pieces = pieces;
    push.n_pieces = 3;
    seed_message(folder, "push", PD_PUSH, &push.base);
}

/* Writes two seeds: a message with many small pieces, and a header whose message needs more memory than its budget. */
static void seed_large(const char *folder)
{
    enum { MANY = 100, HOSTILE = 60000 };
    Paramd__Piece piece[MANY], *pieces[MANY];
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;
    uint8_t *wants = malloc(HOSTILE);

    for (uint32_t i = 0; i < MANY; i++) {
        paramd__piece__init(pieces[i] = &piece[i]);
        piece[i].handle = 3;
        piece[i].dtype = 2;
        piece[i].first = (uint64_t)(MANY - i) * CHUNK;
        piece[i].count = CHUNK;
        piece[i].offset = 2ull * CHUNK * i;
    }
    init.pieces = pieces;
    init.n_pieces = MANY;
    init.replaces = UINT64_MAX;
    init.step = 7;
    init.whole = MANY;
    seed_message(folder, "init", PD_INIT, &init.base);
    for (size_t i = 0; i < HOSTILE; i += 2)
        memcpy(wants + i, i == 0 ? (const uint8_t[]){ PD_PULL, 1 } : (const uint8_t[]){ 0x12, 0 }, 2);
    write_seed(folder, "empty_wants", wants, HOSTILE);
    free(wants);
}

static void make_seeds(const char *folder)
{
    Paramd__Error error = PARAMD__ERROR__INIT;
    Paramd__StatusReply status = PARAMD__STATUS_REPLY__INIT;
    double busy[] = { 0.1, 0.2 };

    error.code = 3;
    error.text = (char *)"expected this, got that";
    status.loop_busy_ms = busy;
    status.n_loop_busy_ms = 2;
    seed_message(folder, "error", 2 * PD_METHODS, &error.base);
    seed_message(folder, "status", PD_METHODS + PD_STATUS, &status.base);
    seed_hello(folder);
    seed_push(folder);
    seed_large(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    arena = pd_arena_new(PD_ARENA_BUDGET);
    other = pd_arena_new(PD_ARENA_BUDGET);
    return seed_if_asked(make_seeds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size - 2 > PD_MAX_HEADER_BYTES) return 0;
    const ProtobufCMessageDescriptor *type = descriptor_of(data[0]);
    pd_error err;
    void *message;

    pd_arena_reset(arena);
    int rc = pd_message_unpack(arena, type, data + 2, size - 2, &message, &err);
    MUST(pd_arena_bytes(arena) <= PD_ARENA_BUDGET);
    if (rc != PD_OK) {
        MUST(rc == err.code && (rc == PD_INVALID_ARGUMENT || rc == PD_RESOURCE_EXHAUSTED) && err.text[0] != '\0');
        return 0;
    }
    read_beside(type, data + 2, size - 2, message);
    read_again(type, message);
    if (type == &paramd__error__descriptor) MUST(pd_message_error(arena, data + 2, size - 2, &err, NULL) < 0);
    if (type == &paramd__push_request__descriptor)
        check_pieces(((Paramd__PushRequest *)message)->pieces, ((Paramd__PushRequest *)message)->n_pieces, data[1]);
    if (type == &paramd__init_request__descriptor)
        check_pieces(((Paramd__InitRequest *)message)->pieces, ((Paramd__InitRequest *)message)->n_pieces, data[1]);
    return 0;
}
