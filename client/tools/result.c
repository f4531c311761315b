/* result.c - prints the result of a command, and converts protobuf messages to JSON by their descriptors. */
#include "result.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "format.h"

const ProtobufCFieldDescriptor *pd_message_field(const ProtobufCMessage *message, const char *name)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);

    assert(field != NULL);
    return field;
}

const void *pd_message_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return (const char *)message + field->offset;
}

size_t pd_message_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return *(const size_t *)((const char *)message + field->quantifier_offset);
}

static json_t *hexadecimal(uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

/* Returns one value of a message's field as JSON; `at` points to the value. NULL: JSON cannot express the value. */
static json_t *value_json(const ProtobufCFieldDescriptor *field, const void *at)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL: return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_INT32: return json_integer(*(const int32_t *)at);
    case PROTOBUF_C_TYPE_UINT32: return json_integer(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_UINT64: return json_integer((json_int_t) * (const uint64_t *)at);
    case PROTOBUF_C_TYPE_FIXED64: return hexadecimal(*(const uint64_t *)at);
    /* json_real returns NULL if the number is NaN or infinite. */
    case PROTOBUF_C_TYPE_DOUBLE: return json_real(*(const double *)at);
    case PROTOBUF_C_TYPE_STRING: return json_string(*(char *const *)at);
    case PROTOBUF_C_TYPE_MESSAGE: return pd_message_json(*(ProtobufCMessage *const *)at);
    default: return json_null();
    }
}

static size_t value_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_UINT32: return 4;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return 8;
    default: return sizeof(void *);
    }
}

static json_t *or_null(json_t *value)
{
    return value != NULL ? value : json_null();
}

static json_t *field_json(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const char *member = pd_message_at(message, field);
    json_t *list;

    if (field->label != PROTOBUF_C_LABEL_REPEATED) return or_null(value_json(field, member));
    if ((list = json_array()) == NULL) return NULL;
    for (size_t i = 0; i < pd_message_count(message, field); i++)
        json_array_append_new(list, or_null(value_json(field, *(const char *const *)member + i * value_size(field))));
    return list;
}

json_t *pd_message_json(const ProtobufCMessage *message)
{
    json_t *object = json_object();

    if (object == NULL || message == NULL) return object;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        json_object_set_new(object, field->name, field_json(message, field));
    }
    return object;
}

int pd_result_status(int code)
{
    if (code == PD_OK) return PD_CTL_OK;
    return code == PD_UNAVAILABLE || code == PD_DEADLINE_EXCEEDED ? PD_CTL_UNREACHABLE : PD_CTL_FAILED;
}

int pd_result_fail_quietly(bool json, const pd_error *err)
{
    if (json) pd_result_json(json_pack("{s:{s:s, s:s}}", "error", "code", pd_code_name(err->code), "text", err->text));
    return pd_result_status(err->code);
}

int pd_result_fail(bool json, const pd_error *err)
{
    pd_print_line(stderr, "paramctl: %s", err->text[0] != '\0' ? err->text : pd_code_text(err->code));
    return pd_result_fail_quietly(json, err);
}

int pd_result_fail_reached(bool json, const pd_error *err)
{
    (void)pd_result_fail(json, err);
    return PD_CTL_FAILED;
}

int pd_result_json(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_INDENT(2)) : NULL;

    json_decref(value);
    if (text == NULL) {
        fprintf(stderr, "paramctl: out of memory\n");
        return PD_CTL_FAILED;
    }
    pd_print_json(stdout, text);
    fputc('\n', stdout);
    free(text);
    return PD_CTL_OK;
}

int pd_result_done(bool json, const char *format, ...)
{
    char text[512];
    va_list args;

    if (json) return pd_result_json(json_pack("{s:b}", "ok", 1));
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pd_print_line(stdout, "%s", text);
    return PD_CTL_OK;
}

int pd_result_table(const pd_line *line, pd_table *table, const char *none)
{
    pd_table_limit(table, line->wide ? 0 : pd_table_default_limit());
    return pd_table_print(table, stdout, none) == PD_OK ? PD_CTL_OK : PD_CTL_FAILED;
}
