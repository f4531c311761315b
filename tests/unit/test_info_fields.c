/* Tests the tables of the fields that lists for operators contain: every field of a list entry in paramd.proto has a
 * table row with its name and its size in bytes. */
#include <strings.h>

#include "test.h"
#include "info.h"
#include "message.h"

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *type, const char *name)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(type, name);

    if (field == NULL) fail_msg("%s has no field %s", type->name, name);
    return field;
}

static const ProtobufCMessageDescriptor *type_of(const pd_info_list *list)
{
    return field_of(&paramd__list_reply__descriptor, list->name)->descriptor;
}

static size_t count_fields(const pd_info_list *list)
{
    size_t n = 0;

    while (list->fields[n].name != NULL) n++;
    return n;
}

static bool fits(const ProtobufCFieldDescriptor *field, const pd_info_field *row)
{
    bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;

    switch (row->kind) {
    case PD_INFO_FLAG: return field->type == PROTOBUF_C_TYPE_BOOL && !repeated;
    case PD_INFO_TEXT:
    case PD_INFO_WORD: return field->type == PROTOBUF_C_TYPE_STRING && !repeated;
    case PD_INFO_SHAPE: return field->type == PROTOBUF_C_TYPE_UINT64 && repeated;
    case PD_INFO_FOLLOWS: return field->type == PROTOBUF_C_TYPE_SINT32 && repeated;
    case PD_INFO_SCALARS: return field->descriptor == &paramd__scalar__descriptor && repeated;
    case PD_INFO_NUMBER: break;
    }
    if (repeated) return false;
    if (field->type == PROTOBUF_C_TYPE_UINT32 || field->type == PROTOBUF_C_TYPE_INT32) return row->bytes == 4;
    return (field->type == PROTOBUF_C_TYPE_UINT64 || field->type == PROTOBUF_C_TYPE_FIXED64 ||
            field->type == PROTOBUF_C_TYPE_DOUBLE) &&
           row->bytes == 8;
}

TEST(every_field_of_a_message_has_a_row_that_fits)
{
    const pd_info_list *list;

    for (uint32_t what = 1; (list = pd_info_list_of(what)) != NULL; what++) {
        const ProtobufCMessageDescriptor *type = type_of(list);
        assert_int_equal(count_fields(list), type->n_fields);
        assert_in_range(count_fields(list), 1, PD_MOST_FIELDS);
        for (const pd_info_field *row = list->fields; row->name != NULL; row++)
            if (!fits(field_of(type, row->name), row))
                fail_msg("%s.%s: kind %d of %zu bytes", list->name, row->name, row->kind, row->bytes);
    }
}

TEST(no_field_has_two_rows)
{
    const pd_info_list *list;

    for (uint32_t what = 0; (list = pd_info_list_of(what)) != NULL; what++)
        for (const pd_info_field *a = list->fields; a->name != NULL; a++)
            for (const pd_info_field *b = list->fields; b != a; b++) assert_string_not_equal(a->name, b->name);
}

TEST(lists_have_the_numbers_of_the_protocol)
{
    const ProtobufCEnumDescriptor *kinds = &paramd__list_kind__descriptor;

    assert_null(pd_info_list_of(kinds->n_values));
    for (uint32_t what = 1; what < kinds->n_values; what++) {
        const char *name = protobuf_c_enum_descriptor_get_value(kinds, (int)what)->name;
        assert_int_equal(strncasecmp(name, "LIST_", 5), 0);
        if (strcasecmp(name + 5, pd_info_list_of(what)->name) != 0)
            fail_msg("list %u is %s, not %s", what, name, pd_info_list_of(what)->name);
    }
}
