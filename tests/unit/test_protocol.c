/* Tests that proto/PROTOCOL.md agrees with the code: its example bytes, methods, messages, fields and codes. */
#include <ctype.h>

#include "test.h"
#include "handlers.h"
#include "message.h"
#include "pieces.h"
#include "paramd/tensor.h"
#include "request.h"

static char page[256 * 1024];

static int read_page(void **state)
{
    FILE *from = fopen(PD_SOURCE_DIR "/proto/PROTOCOL.md", "r");
    (void)state;

    if (from == NULL) return -1;
    page[fread(page, 1, sizeof page - 1, from)] = '\0';
    fclose(from);
    return page[0] == '\0';
}

static void assert_says(const char *where, const char *line)
{
    if (strstr(where, line) == NULL) fail_msg("PROTOCOL.md lacks: %s", line);
}

/* Returns the value of the two hex digits at `at`, or -1 if there are none. */
static int hex_pair(const char *at)
{
    char pair[3] = { at[0], at[0] != '\0' ? at[1] : '\0', '\0' };
    return isxdigit((unsigned char)pair[0]) && isxdigit((unsigned char)pair[1]) ? (int)strtol(pair, NULL, 16) : -1;
}

/* Appends the bytes of one line of a hex dump to `out`. A line has pairs of hex digits and quoted texts, one space
 * apart, and ends at two spaces. Returns the new number of bytes. */
static size_t read_line(const char *at, uint8_t *out, size_t bytes, size_t most)
{
    for (;; at++) {
        if (*at == '"') {
            for (at++; *at != '"'; at++) {
                assert_true(bytes < most);
                out[bytes++] = (uint8_t)*at;
            }
            at++;
        } else {
            assert_true(hex_pair(at) >= 0 && bytes < most);
            out[bytes++] = (uint8_t)hex_pair(at);
            at += 2;
        }
        if (at[0] != ' ' || at[1] == ' ') return bytes;
    }
}

/* Reads the first hex dump in PROTOCOL.md that has the title `title`. A line of the dump is an offset, two spaces
 * and bytes. A line `*` repeats the eight bytes above it. Returns the number of bytes. */
static size_t read_dump(const char *title, uint8_t *out, size_t most)
{
    char fence[64];
    size_t bytes = 0;

    snprintf(fence, sizeof fence, "```\n%s\n0000  ", title);
    assert_says(page, fence);
    for (const char *at = strstr(page, fence) + strlen(fence) - 6; *at != '`'; at = strchr(at, '\n') + 1) {
        if (*at == '*') continue;
        size_t offset = strtoul(at, NULL, 16);
        for (; bytes < offset; bytes++) {
            assert_true(at[-2] == '*' && bytes < most);
            out[bytes] = out[bytes - 8];
        }
        assert_int_equal(offset, bytes);
        bytes = read_line(at + 6, out, bytes, most);
    }
    return bytes;
}

static void assert_dump(const char *title, const uint8_t *frame, size_t bytes)
{
    uint8_t said[1024];
    size_t length = read_dump(title, said, sizeof said);

    if (length == bytes && memcmp(said, frame, bytes) == 0) return;
    for (size_t i = 0; i < bytes; i++)
        printf("%s%02x%s", i % 16 == 0 ? "# " : "", frame[i], i % 16 == 15 || i + 1 == bytes ? "\n" : " ");
    fail_msg("the block \"%s\" of PROTOCOL.md is not the %zu bytes above", title, bytes);
}

static Paramd__Piece piece_of(uint32_t handle, uint32_t dtype, uint64_t count, uint64_t offset)
{
    Paramd__Piece piece = PARAMD__PIECE__INIT;

    piece.handle = handle;
    piece.dtype = dtype;
    piece.count = count;
    piece.offset = offset;
    return piece;
}

TEST(the_example_push_is_what_the_code_packs)
{
    static const float kernel[] = { 0.5f, -1.5f }, bias[] = { 2.0f };
    static const uint8_t padding[PD_PAYLOAD_ALIGN - sizeof kernel];
    Paramd__Piece piece[] = { piece_of(0, PD_F32, 2, 0), piece_of(1, PD_F32, 1, 64), piece_of(2, 0, 0, 0) };
    Paramd__Piece *pieces[] = { &piece[0], &piece[1], &piece[2] };
    struct iovec payload[] = { { (void *)(uintptr_t)kernel, sizeof kernel },
                               { (void *)(uintptr_t)padding, sizeof padding },
                               { (void *)(uintptr_t)bias, sizeof bias } };
    const pd_handle_facts facts[] = { { 0, 2, "kernel" }, { 0, 1, "bias" }, { 0, 1, "scale" } };
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    uint8_t *frame;
    size_t bytes;

    piece[2].absent = true;
    push.step = 1;
    push.weight = 32;
    push.pieces = pieces;
    push.n_pieces = 3;
    assert_int_equal(pd_pieces_check(pieces, 3, facts, 3, 1 << 20, 68, NULL), PD_OK);
    assert_int_equal(pd_frame_pack(&frame, &bytes, PD_PUSH, PD_FLAG_CHECKSUM, 7, &push.base, payload, 3, 68), PD_OK);
    frame = realloc(frame, bytes + 68);
    memcpy(frame + bytes, kernel, sizeof kernel);
    memcpy(frame + bytes + sizeof kernel, padding, sizeof padding);
    memcpy(frame + bytes + 64, bias, sizeof bias);
    assert_dump("→ Push", frame, bytes + 68);
    free(frame);
}

TEST(the_example_answer_is_what_the_code_packs)
{
    Paramd__Outcome outcome[] = { PARAMD__OUTCOME__INIT, PARAMD__OUTCOME__INIT, PARAMD__OUTCOME__INIT };
    Paramd__Outcome *outcomes[] = { &outcome[0], &outcome[1], &outcome[2] };
    Paramd__DataReply reply = PARAMD__DATA_REPLY__INIT;
    uint8_t *frame;
    size_t bytes;

    for (int i = 0; i < 3; i++) outcome[i].step = 1;
    outcome[0].outcome = outcome[1].outcome = 1;
    outcome[0].version = outcome[1].version = 1;
    outcome[2].outcome = 3;
    reply.outcomes = outcomes;
    reply.n_outcomes = 3;
    assert_int_equal(
        pd_frame_pack(&frame, &bytes, PD_PUSH, PD_FLAG_REPLY | PD_FLAG_CHECKSUM, 7, &reply.base, NULL, 0, 0), PD_OK);
    assert_dump("← DataReply", frame, bytes);
    free(frame);
}

TEST(the_example_error_is_what_the_code_packs)
{
    uint8_t *frame;
    size_t bytes;

    assert_int_equal(pd_frame_pack_error(&frame, &bytes, PD_PUSH, 0, 9, PD_INVALID_ARGUMENT,
                                         "push for step 0: the first step is 1", 1),
                     PD_OK);
    assert_dump("← Error", frame, bytes);
    free(frame);
}

TEST(every_method_stands_with_its_number_and_messages)
{
    const ProtobufCServiceDescriptor *service = &paramd__paramd__descriptor;
    char line[256];

    for (unsigned i = 0; i < service->n_methods; i++) {
        const ProtobufCMethodDescriptor *method = &service->methods[i];
        snprintf(line, sizeof line, "| %u | %s | `%s` | `%s` |", i, method->name, method->input->short_name,
                 method->output->short_name);
        assert_says(page, line);
    }
}

static const char *type_name(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32: return "int32";
    case PROTOBUF_C_TYPE_SINT32: return "sint32";
    case PROTOBUF_C_TYPE_UINT32: return "uint32";
    case PROTOBUF_C_TYPE_UINT64: return "uint64";
    case PROTOBUF_C_TYPE_FIXED64: return "fixed64";
    case PROTOBUF_C_TYPE_DOUBLE: return "double";
    case PROTOBUF_C_TYPE_BOOL: return "bool";
    case PROTOBUF_C_TYPE_STRING: return "string";
    case PROTOBUF_C_TYPE_BYTES: return "bytes";
    case PROTOBUF_C_TYPE_MESSAGE: return ((const ProtobufCMessageDescriptor *)field->descriptor)->short_name;
    default: return "?";
    }
}

/* Checks that PROTOCOL.md has a section for the message type, with a table row for each field. The types of its
 * message fields are checked too. */
static void assert_described(const ProtobufCMessageDescriptor *type)
{
    char line[256], section[16 * 1024];

    snprintf(line, sizeof line, "\n### `%s`\n", type->short_name);
    assert_says(page, line);
    snprintf(section, sizeof section, "%s", strstr(page, line) + 5);
    char *next = strstr(section, "\n##");
    if (next != NULL) *next = '\0';
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        snprintf(line, sizeof line, "| %u | `%s` | %s%s |", field->id, field->name,
                 field->label == PROTOBUF_C_LABEL_REPEATED ? "repeated " : "", type_name(field));
        assert_says(section, line);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) assert_described(field->descriptor);
    }
}

TEST(every_message_stands_with_its_fields_numbers_and_types)
{
    for (unsigned i = 0; i < PD_METHODS; i++) {
        assert_described(paramd__paramd__descriptor.methods[i].input);
        assert_described(paramd__paramd__descriptor.methods[i].output);
    }
    assert_described(&paramd__error__descriptor);
}

TEST(every_error_code_stands_with_its_number)
{
    char line[128];

#define ASSERT_CODE(name, value, text)                                                                                 \
    snprintf(line, sizeof line, "| %d | %s |", -(value), #name);                                                       \
    assert_says(page, line);
    PD_ERRORS(ASSERT_CODE)
}

TEST(the_limits_are_the_codes)
{
    char line[128];

    assert_int_equal(PD_PROTOCOL_VERSION, 1);
    assert_says(page, "Protocol version: **1**");
    assert_int_equal(PD_MAX_HEADER_BYTES, 65536);
    assert_says(page, "at most 65,536");
    assert_int_equal(PD_PREFIX_BYTES, 40);
    assert_says(page, "a prefix of 40 bytes");
    assert_int_equal(PD_ARENA_BUDGET, 2 << 20);
    assert_says(page, "takes more than 2 MiB");
    snprintf(line, sizeof line, "more than %d fields", PD_MAX_UNKNOWN);
    assert_says(page, line);
    snprintf(line, sizeof line, "next multiple of %d", PD_PAYLOAD_ALIGN);
    assert_says(page, line);
}

/* Checks that PROTOCOL.md has the text `format` with the number n in it, written with commas, as in 16,384. */
static void assert_number(const char *format, unsigned n)
{
    char number[32], line[128];

    if (n >= 1000000)
        snprintf(number, sizeof number, "%u,%03u,%03u", n / 1000000, n / 1000 % 1000, n % 1000);
    else if (n >= 1000)
        snprintf(number, sizeof number, "%u,%03u", n / 1000, n % 1000);
    else
        snprintf(number, sizeof number, "%u", n);
    snprintf(line, sizeof line, format, number);
    assert_says(page, line);
}

TEST(the_limits_of_requests_and_names_are_the_codes)
{
    assert_number("%s requests may be under way", PD_MAX_PENDING);
    assert_number("%s pieces and wants in them", PD_MAX_WAITING);
    assert_number("most %s parameters", PD_MAX_DECLARE);
    assert_number("Hello has at most %s options", PD_MAX_OPTIONS);
    assert_number("options and %s rules", PD_MAX_RULES);
    assert_number("A push has at most %s.", PD_MAX_OPTIONS);
    assert_number("parameters have 1 to %s bytes", PD_NAME_MAX);
    assert_number("names of scalars 1 to %s.", PD_PUSH_SCALAR_NAME);
    assert_number("at most %s names from all", PD_PUSH_SCALARS);
}

/* Writes the row of a method in the table of roles in section 6. */
static void role_row(char *row, size_t size, const pd_method_entry *m)
{
    const pd_may *may = &m->may;

    if (may->server > PD_ROLE_NONE)
        snprintf(row, size, "| %s | %s | the server |", m->name, pd_role_name(may->server));
    else if (may->job_at > 0)
        snprintf(row, size, "| %s | %s | the job that it names |", m->name, pd_role_name(may->named));
    else if ((m->needs & PD_NEEDS_WORKER) != 0)
        snprintf(row, size, "| %s | push | the worker's job |", m->name);
    else
        snprintf(row, size, "| %s | any | some job |", m->name);
}

TEST(every_method_stands_with_its_role)
{
    char row[128];

    for (unsigned i = 0; i < PD_METHODS; i++) {
        role_row(row, sizeof row, &pd_methods[i]);
        assert_says(page, row);
    }
}

GROUP(read_page, NULL);
