/* Tests how headers of messages are read, and that a hostile header has no effect. */
#include "test.h"
#include "message.h"

static const uint8_t *bytes_of(const char *text)
{
    return (const uint8_t *)text;
}

/* Checks that unpacking `bytes` as a request of `method` fails with `code` and an error text that contains `names`. */
static void assert_refuses(pd_arena *arena, unsigned method, const void *bytes, size_t n, int code, const char *names)
{
    void *out = NULL;
    pd_error err;

    assert_int_equal(pd_request_unpack(arena, method, bytes, n, &out, &err), code);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.text, names));
    assert_null(out);
}

OBJECT(pd_arena_new(PD_ARENA_BUDGET), pd_arena_free);

TEST(methods_are_numbered_as_the_service_lists_them)
{
    static const char *const names[PD_METHODS] = { [PD_HELLO] = "Hello",
                                                   [PD_DECLARE] = "Declare",
                                                   [PD_INIT] = "Initialise",
                                                   [PD_PUSH] = "Push",
                                                   [PD_PULL] = "Pull",
                                                   [PD_PUSH_PULL] = "PushPull",
                                                   [PD_BARRIER] = "Barrier",
                                                   [PD_HEARTBEAT] = "Heartbeat",
                                                   [PD_LEAVE] = "Leave",
                                                   [PD_STATUS] = "Status",
                                                   [PD_LIST] = "List",
                                                   [PD_OPTIMIZERS] = "Optimizers",
                                                   [PD_DROP] = "Drop",
                                                   [PD_DRAIN] = "Drain",
                                                   [PD_SHUTDOWN] = "Shutdown",
                                                   [PD_SET] = "Set",
                                                   [PD_IMPORT] = "Import",
                                                   [PD_EXPORT] = "Export",
                                                   [PD_SHARE] = "Share",
                                                   [PD_RELEASE] = "Release",
                                                   [PD_NOTE] = "Note",
                                                   [PD_RECALL] = "Recall",
                                                   [PD_CHECKPOINT] = "Checkpoint",
                                                   [PD_KICK] = "Kick",
                                                   [PD_SETTLE] = "Settle",
                                                   [PD_GO_BACK] = "GoBack",
                                                   [PD_SHARDS] = "Shards" };

    assert_int_equal(paramd__paramd__descriptor.n_methods, PD_METHODS);
    for (unsigned i = 0; i < PD_METHODS; i++) assert_string_equal(pd_method_name(i), names[i]);
    assert_string_equal(pd_method_name(PD_METHODS), "?");
}

/* Fails if message types are nested more than a few levels deep below `type`. A type that contains itself would have
 * no end. */
static void assert_shallow(const ProtobufCMessageDescriptor *type, int levels)
{
    assert_true(levels < 8);
    for (unsigned i = 0; i < type->n_fields; i++)
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE) assert_shallow(type->fields[i].descriptor, levels + 1);
}

TEST(no_message_holds_itself)
{
    for (unsigned i = 0; i < PD_METHODS; i++) {
        assert_shallow(paramd__paramd__descriptor.methods[i].input, 0);
        assert_shallow(paramd__paramd__descriptor.methods[i].output, 0);
    }
}

TEST(unpacks_the_frame_it_packs, void *arena)
{
    Paramd__Option option = PARAMD__OPTION__INIT, *options[] = { &option };
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    pd_prefix prefix;
    uint8_t *frame;
    size_t bytes;
    void *out;

    option.name = (char *)"nonfinite";
    option.value = (char *)"reject";
    hello.job = (char *)"größe";
    hello.nonce = UINT64_MAX;
    hello.options = options;
    hello.n_options = 1;
    assert_int_equal(pd_frame_pack(&frame, &bytes, PD_HELLO, 0, 77, &hello.base, NULL, 0, 1234), PD_OK);
    assert_int_equal(pd_prefix_read(&prefix, frame, 1234, NULL), PD_OK);
    assert_int_equal(prefix.version, PD_PROTOCOL_VERSION);
    assert_int_equal(prefix.request, 77);
    assert_int_equal(prefix.payload_bytes, 1234);
    assert_int_equal(prefix.header_bytes, bytes - PD_PREFIX_BYTES);
    assert_int_equal(pd_request_unpack(arena, prefix.method, frame + PD_PREFIX_BYTES, prefix.header_bytes, &out, NULL),
                     PD_OK);
    const Paramd__HelloRequest *read = out;
    assert_string_equal(read->job, "größe");
    assert_int_equal(read->nonce, UINT64_MAX);
    assert_int_equal(read->n_options, 1);
    assert_string_equal(read->options[0]->value, "reject");
    assert_string_equal(read->label, ""); /* not sent */
    free(frame);
}

/* Returns zeroed bytes that nobody frees: they last as long as the program. */
static void *memory(size_t bytes)
{
    static _Alignas(16) uint8_t all[4 << 20];
    static size_t used;
    uint8_t *at = all + used;

    used += (bytes + 15) / 16 * 16;
    assert_true(used <= sizeof all);
    return at;
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 20 >> (*state >> 8 & 31);
}

static void *draw_message(const ProtobufCMessageDescriptor *type, uint64_t *state);

/* Returns the bytes of a value of this type, and stores one in `at`. Fails for a type that no field has had so far. */
static size_t draw_value(const ProtobufCFieldDescriptor *field, uint64_t *state, void *at)
{
    uint64_t number = draw(state);
    ProtobufCBinaryData *data = at;
    void *made;

    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL: *(protobuf_c_boolean *)at = number & 1; return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_ENUM: *(uint32_t *)at = (uint32_t)number; return sizeof(uint32_t);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: *(uint64_t *)at = number; return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_BYTES:
        *data = (ProtobufCBinaryData){ number % 9, memory(9) };
        memset(data->data, 0xff, data->len);
        return sizeof *data;
    case PROTOBUF_C_TYPE_STRING: memset(made = memory(10), 'a', number % 10); break;
    case PROTOBUF_C_TYPE_MESSAGE: made = draw_message(field->descriptor, state); break;
    default: fail_msg("%s: the decoder does not know this type", field->name); return 0;
    }
    memcpy(at, &made, sizeof made);
    return sizeof made;
}

static void *draw_message(const ProtobufCMessageDescriptor *type, uint64_t *state)
{
    uint8_t *message = memory(type->sizeof_message);

    type->message_init((ProtobufCMessage *)(void *)message);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        size_t n = draw(state) % 6, used = 0;
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            draw_value(field, state, message + field->offset);
            continue;
        }
        uint8_t *list = memory(n * sizeof(ProtobufCBinaryData) + 1);
        for (size_t k = 0; k < n; k++) used += draw_value(field, state, list + used);
        memcpy(message + field->offset, &list, sizeof list);
        memcpy(message + field->quantifier_offset, &n, sizeof n);
    }
    return message;
}

/* Packs a message as protobuf-c does, unpacks that, and packs what was read. Checks that the bytes are the same. */
static void assert_travels(pd_arena *arena, const ProtobufCMessageDescriptor *type, uint64_t *state)
{
    const ProtobufCMessage *message = draw_message(type, state);
    size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *at = memory(bytes + 1), *again = memory(bytes + 1);
    void *read;

    protobuf_c_message_pack(message, at);
    pd_arena_reset(arena);
    assert_int_equal(pd_message_unpack(arena, type, at, bytes, &read, NULL), PD_OK);
    assert_int_equal(protobuf_c_message_get_packed_size(read), bytes);
    protobuf_c_message_pack(read, again);
    assert_memory_equal(again, at, bytes);
}

TEST(reads_every_field_that_protobuf_c_writes, void *arena)
{
    const ProtobufCMethodDescriptor *methods = paramd__paramd__descriptor.methods;
    uint64_t state = 1;

    for (unsigned i = 0; i < PD_METHODS; i++)
        for (int times = 0; times < 3; times++) {
            assert_travels(arena, methods[i].input, &state);
            assert_travels(arena, methods[i].output, &state);
        }
}

/* PullRequest has the fields 1, a number, and 2, a list of messages; Want has the fields 1, 2 and 3. */
TEST(reads_entries_of_a_list_with_other_fields_between_them, void *arena)
{
    void *out;

    assert_int_equal(
        pd_request_unpack(arena, PD_PULL, bytes_of("\x12\x02\x08\x05\x08\x07\x12\x02\x08\x06"), 10, &out, NULL), PD_OK);
    const Paramd__PullRequest *read = out;
    assert_int_equal(read->min_step, 7);
    assert_int_equal(read->n_wants, 2);
    assert_int_equal(read->wants[0]->handle, 5);
    assert_int_equal(read->wants[1]->handle, 6);
}

TEST(reads_numbers_of_a_list_one_by_one_too, void *arena)
{
    void *out;

    assert_int_equal(
        pd_message_unpack(arena, &paramd__parameter__descriptor, bytes_of("\x10\x05\x12\x02\x06\x07"), 6, &out, NULL),
        PD_OK);
    const Paramd__Parameter *read = out;
    assert_int_equal(read->n_shape, 3);
    assert_int_equal(read->shape[0] * 100 + read->shape[1] * 10 + read->shape[2], 567);
}

TEST(refuses_a_number_of_more_than_64_bits, void *arena)
{
    assert_refuses(arena, PD_PULL, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, PD_INVALID_ARGUMENT,
                   "PullRequest: field 1");
}

TEST(checksum_covers_header_then_payload)
{
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    struct iovec parts[] = { { (void *)(uintptr_t) "pay", 3 }, { (void *)(uintptr_t) "load", 4 } };
    struct iovec whole = { (void *)(uintptr_t) "payload", 7 };
    uint64_t expected;
    pd_prefix prefix;
    uint8_t *frame;
    size_t bytes;

    push.step = 5;
    assert_int_equal(pd_frame_pack(&frame, &bytes, PD_PUSH, PD_FLAG_CHECKSUM, 1, &push.base, parts, 2, 7), PD_OK);
    assert_int_equal(pd_prefix_read(&prefix, frame, 7, NULL), PD_OK);
    assert_int_equal(pd_frame_checksum(&expected, frame + PD_PREFIX_BYTES, prefix.header_bytes, &whole, 1), PD_OK);
    assert_int_equal(prefix.checksum, expected);
    free(frame);
}

TEST(refuses_to_pack_a_header_over_64_kib)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    uint8_t *frame = NULL;
    size_t bytes;

    hello.credentials.len = PD_MAX_HEADER_BYTES;
    hello.credentials.data = calloc(1, PD_MAX_HEADER_BYTES);
    assert_int_equal(pd_frame_pack(&frame, &bytes, PD_HELLO, 0, 1, &hello.base, NULL, 0, 0), PD_OUT_OF_RANGE);
    assert_null(frame);
    free(hello.credentials.data);
}

static int unpack_error_frame(pd_arena *arena, int code, const char *text, pd_error *err)
{
    uint8_t *frame;
    size_t bytes;

    assert_int_equal(pd_frame_pack_error(&frame, &bytes, PD_PUSH, 0, 9, code, text, 0), PD_OK);
    assert_int_equal(frame[5], PD_FLAG_REPLY | PD_FLAG_ERROR);
    int rc = pd_message_error(arena, frame + PD_PREFIX_BYTES, bytes - PD_PREFIX_BYTES, err, NULL);
    free(frame);
    return rc;
}

TEST(errors_travel_with_code_and_text, void *arena)
{
    pd_error err;

    for (int code = PD_CANCELLED; code >= PD_UNAUTHENTICATED; code--) {
        assert_int_equal(unpack_error_frame(arena, code, "w: expected this, got that", &err), code);
        assert_int_equal(err.code, code);
        assert_string_equal(err.text, "w: expected this, got that");
    }
}

HOLDS_FOR(void *arena, out_of_memory_travels_as_resource_exhausted,
          assert_int_equal(unpack_error_frame(arena, PD_NO_MEMORY, "out of memory", NULL), PD_RESOURCE_EXHAUSTED));

TEST(a_text_cut_inside_a_character_still_travels, void *arena)
{
    pd_error err;

    assert_int_equal(unpack_error_frame(arena, PD_NOT_FOUND, "caf\xc3", &err), PD_NOT_FOUND);
    assert_string_equal(err.text, "caf");
}

TEST(a_code_that_is_not_on_the_list_is_unknown, void *arena)
{
    pd_error err;

    assert_int_equal(pd_message_error(arena, bytes_of("\x08\x63"), 2, &err, NULL), PD_UNKNOWN);
    assert_int_equal(pd_message_error(arena, bytes_of(""), 0, &err, NULL), PD_UNKNOWN);
    assert_int_equal(pd_message_error(arena, bytes_of("\x08\x80\x80\x80\x80\xf8\xff\xff\xff\xff\x01"), 11, &err, NULL),
                     PD_UNKNOWN); /* INT32_MIN */
}

TEST(an_error_text_is_one_line_whatever_came, void *arena)
{
    pd_error err;

    assert_int_equal(pd_message_error(arena,
                                      bytes_of("\x08\x05\x12\x03"
                                               "a\nb"),
                                      7, &err, NULL),
                     PD_NOT_FOUND);
    assert_string_equal(err.text, "a?b");
}

TEST(refuses_a_method_that_is_none, void *arena)
{
    assert_refuses(arena, PD_METHODS, "", 0, PD_UNIMPLEMENTED, "method 27");
    assert_int_equal(pd_reply_unpack(arena, 65535, bytes_of(""), 0, &(void *){ NULL }, NULL), PD_UNIMPLEMENTED);
}

TEST(refuses_bytes_that_are_no_message, void *arena)
{
    assert_refuses(arena, PD_HELLO, "\xff", 1, PD_INVALID_ARGUMENT, "HelloRequest");
    assert_refuses(arena, PD_HELLO,
                   "\x12\x05"
                   "ab",
                   4, PD_INVALID_ARGUMENT, "field 2"); /* the length field claims five bytes of text, two follow */
    assert_refuses(arena, PD_HELLO, "\x12\xff\xff\xff\xff\x0f", 6, PD_INVALID_ARGUMENT, "field 2");
    assert_refuses(arena, PD_HELLO, "\x00\x00", 2, PD_INVALID_ARGUMENT, "HelloRequest"); /* field number 0 */
    assert_refuses(arena, PD_HELLO, "\x0b", 1, PD_INVALID_ARGUMENT, "field 1");          /* a group */
    assert_refuses(arena, PD_HELLO, "\x10\x01", 2, PD_INVALID_ARGUMENT,
                   "wrong wire type"); /* a number in a text field */
}

TEST(refuses_text_that_is_not_utf8, void *arena)
{
    assert_refuses(arena, PD_HELLO,
                   "\x12\x02"
                   "a\xff",
                   4, PD_INVALID_ARGUMENT, "HelloRequest.job: not UTF-8 at byte 1");
    assert_refuses(arena, PD_HELLO, "\x12\x02\xc0\x80", 4, PD_INVALID_ARGUMENT, "job"); /* overlong encoding of NUL */
    assert_refuses(arena, PD_HELLO, "\x12\x03\xed\xa0\x80", 5, PD_INVALID_ARGUMENT,
                   "job"); /* half of a surrogate pair */
    assert_refuses(arena, PD_HELLO, "\x12\x04\xf4\x90\x80\x80", 6, PD_INVALID_ARGUMENT, "job"); /* past U+10FFFF */
    assert_refuses(arena, PD_HELLO, "\x12\x02\xe2\x82", 4, PD_INVALID_ARGUMENT, "job");         /* cut */
    assert_refuses(arena, PD_HELLO, "\x4a\x01\x80", 3, PD_INVALID_ARGUMENT, "rules"); /* bad UTF-8 in repeated field */
}

TEST(refuses_text_with_a_nul_at_any_depth, void *arena)
{
    assert_refuses(arena, PD_HELLO,
                   "\x12\x03"
                   "a\0b",
                   5, PD_INVALID_ARGUMENT, "HelloRequest.job: a NUL at byte 1");
    assert_refuses(arena, PD_HELLO,
                   "\x42\x05\x12\x03"
                   "a\0b",
                   7, PD_INVALID_ARGUMENT, "Option.value: a NUL");
}

TEST(takes_a_few_unknown_fields_and_no_more, void *arena)
{
    uint8_t bytes[3 * (PD_MAX_UNKNOWN + 1)];
    void *out;

    for (size_t i = 0; i < sizeof bytes; i += 3) memcpy(bytes + i, "\xf8\x07\x01", 3); /* unknown field 127 = 1 */
    assert_int_equal(pd_request_unpack(arena, PD_HEARTBEAT, bytes, sizeof bytes - 3, &out, NULL), PD_OK);
    assert_refuses(arena, PD_HEARTBEAT, bytes, sizeof bytes, PD_INVALID_ARGUMENT, "more than 16 unknown fields");
}

/* Ok has the fields 1, a number, and 100, a list of texts. */
TEST(finds_fields_by_number_and_not_by_place, void *arena)
{
    pd_error err = { 0 };
    void *out;

    assert_int_equal(pd_reply_unpack(arena, PD_HEARTBEAT, bytes_of("\x12\x01\x80"), 3, &out, &err), PD_OK);
    assert_int_equal(pd_reply_unpack(arena, PD_HEARTBEAT, bytes_of("\xa2\x06\x01\x80"), 4, &out, &err),
                     PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "Ok.remarks: not UTF-8"));
}

TEST(counts_unknown_fields_over_all_levels, void *arena)
{
    uint8_t bytes[5 * (PD_MAX_UNKNOWN + 1)];

    for (size_t i = 0; i < sizeof bytes; i += 5)
        memcpy(bytes + i, "\x12\x03\xf8\x07\x01", 5); /* an unknown field inside the submessage `wants` */
    assert_int_equal(pd_request_unpack(arena, PD_PULL, bytes, sizeof bytes - 5, &(void *){ NULL }, NULL), PD_OK);
    assert_refuses(arena, PD_PULL, bytes, sizeof bytes, PD_INVALID_ARGUMENT, "more than 16 unknown fields");
}

TEST(empty_submessages_cannot_make_it_hold_more_than_the_budget, void *arena)
{
    uint8_t *bytes = malloc(PD_MAX_HEADER_BYTES);

    for (size_t i = 0; i < PD_MAX_HEADER_BYTES; i += 2) memcpy(bytes + i, "\x12\x00", 2); /* 32,768 wants */
    assert_refuses(arena, PD_PULL, bytes, PD_MAX_HEADER_BYTES, PD_RESOURCE_EXHAUSTED, "PullRequest");
    assert_true(pd_arena_bytes(arena) <= PD_ARENA_BUDGET);
    free(bytes);
}

enum { PIECES = 2000 };

/* Packs a Push request with about as many pieces as a header may hold. Returns the frame. */
static uint8_t *pack_large_push(size_t *bytes)
{
    Paramd__Piece *pieces = calloc(PIECES, sizeof *pieces), *list[PIECES];
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    uint8_t *frame;

    for (uint32_t i = 0; i < PIECES; i++) {
        list[i] = &pieces[i];
        paramd__piece__init(list[i]);
        pieces[i].handle = i;
        pieces[i].dtype = 1;
        pieces[i].count = 1024;
        pieces[i].offset = 4096ull * i;
    }
    push.pieces = list;
    push.n_pieces = PIECES;
    assert_int_equal(pd_frame_pack(&frame, bytes, PD_PUSH, 0, 1, &push.base, NULL, 0, 4096ull * PIECES), PD_OK);
    free(pieces);
    return frame;
}

TEST(no_budget_is_ever_exceeded)
{
    size_t bytes;
    uint8_t *frame = pack_large_push(&bytes);
    bool fits = false;

    for (size_t budget = 0; !fits; budget = budget * 5 / 4 + 1) {
        pd_arena *small = pd_arena_new(budget);
        void *out;
        int rc = pd_request_unpack(small, PD_PUSH, frame + PD_PREFIX_BYTES, bytes - PD_PREFIX_BYTES, &out, NULL);
        fits = rc == PD_OK;
        assert_true(fits || rc == PD_RESOURCE_EXHAUSTED);
        assert_true(pd_arena_bytes(small) <= budget);
        pd_arena_reset(small);
        assert_true(pd_arena_bytes(small) <= budget);
        pd_arena_free(small);
    }
    free(frame);
}

TEST(a_large_push_fits_the_budget, void *arena)
{
    size_t bytes;
    uint8_t *frame = pack_large_push(&bytes);
    void *out;

    for (int again = 0; again < 3; again++) {
        pd_arena_reset(arena);
        assert_int_equal(
            pd_request_unpack(arena, PD_PUSH, frame + PD_PREFIX_BYTES, bytes - PD_PREFIX_BYTES, &out, NULL), PD_OK);
        const Paramd__PushRequest *read = out;
        assert_int_equal(read->n_pieces, PIECES);
        assert_int_equal(read->pieces[PIECES - 1]->offset, 4096ull * (PIECES - 1));
    }
    free(frame);
}

/* Builds the answer to a declaration of as many parameters as PROTOCOL.md allows. The job is at step 1,000,000, so
 * that each step number takes several bytes. */
TEST(the_largest_declaration_fits_header_and_budget, void *arena)
{
    enum { PARAMETERS = 8192 };
    Paramd__Declared declared = PARAMD__DECLARED__INIT, **list = calloc(PARAMETERS, sizeof *list);
    Paramd__DeclareReply reply = PARAMD__DECLARE_REPLY__INIT;
    uint8_t *frame;
    size_t bytes;
    void *out;

    declared.step = 1000000;
    declared.initialised = true;
    for (int i = 0; i < PARAMETERS; i++) list[i] = &declared;
    reply.parameters = list;
    reply.n_parameters = PARAMETERS;
    assert_int_equal(pd_frame_pack(&frame, &bytes, PD_DECLARE, PD_FLAG_REPLY, 1, &reply.base, NULL, 0, 0), PD_OK);
    assert_int_equal(pd_reply_unpack(arena, PD_DECLARE, frame + PD_PREFIX_BYTES, bytes - PD_PREFIX_BYTES, &out, NULL),
                     PD_OK);
    free(frame);
    free(list);
}

TEST(headers_like_the_last_one_need_no_memory, void *arena)
{
    size_t bytes;
    uint8_t *frame = pack_large_push(&bytes);
    void *out;

    assert_int_equal(pd_request_unpack(arena, PD_PUSH, frame + PD_PREFIX_BYTES, bytes - PD_PREFIX_BYTES, &out, NULL),
                     PD_OK);
    pd_arena_reset(arena);
    int64_t before = oom_allocations();
    assert_int_equal(pd_request_unpack(arena, PD_PUSH, frame + PD_PREFIX_BYTES, bytes - PD_PREFIX_BYTES, &out, NULL),
                     PD_OK);
    assert_int_equal(oom_allocations(), before);
    free(frame);
}

TEST(out_of_memory_is_told_and_passes)
{
    size_t bytes;
    uint8_t *frame = pack_large_push(&bytes);
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        pd_arena *fresh = pd_arena_new(PD_ARENA_BUDGET);
        void *out;
        pd_error err;
        oom_arm(n);
        int rc = pd_request_unpack(fresh, PD_PUSH, frame + PD_PREFIX_BYTES, bytes - PD_PREFIX_BYTES, &out, &err);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        oom_arm(0);
        pd_arena_reset(fresh);
        oom_disarm();
        assert_int_equal(
            pd_request_unpack(fresh, PD_PUSH, frame + PD_PREFIX_BYTES, bytes - PD_PREFIX_BYTES, &out, &err), PD_OK);
        pd_arena_free(fresh);
    }
    free(frame);
}

TEST(without_memory_nothing_is_packed)
{
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    uint8_t *frame = NULL;
    size_t bytes;

    oom_arm(0);
    int rc = pd_frame_pack(&frame, &bytes, PD_PUSH, PD_FLAG_CHECKSUM, 1, &push.base, NULL, 0, 0);
    assert_true(oom_disarm());
    assert_int_equal(rc, PD_NO_MEMORY);
    assert_null(frame);
    oom_arm(0);
    pd_arena *none = pd_arena_new(PD_ARENA_BUDGET);
    assert_true(oom_disarm());
    assert_null(none);
}

HOLDS_FOR(void *arena, an_idle_arena_holds_a_few_kib, assert_true(pd_arena_bytes(arena) <= 4096));

TEST_STATE(an_arena_goes_on_after_a_refusal)
{
    void *out;

    empty_submessages_cannot_make_it_hold_more_than_the_budget(*state);
    pd_arena_reset(*state);
    assert_int_equal(pd_request_unpack(*state, PD_PULL, bytes_of("\x08\x01"), 2, &out, NULL), PD_OK);
    assert_int_equal(((Paramd__PullRequest *)out)->min_step, 1);
}
