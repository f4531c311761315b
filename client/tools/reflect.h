/* reflect.h - reads protobuf messages by their descriptors, so that a new field of paramd.proto appears in --json
 * without further code. */
#ifndef PD_REFLECT_H
#define PD_REFLECT_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* Returns any protobuf message as a JSON object with the field names of paramd.proto. A field of type fixed64, such
 * as a nonce, becomes hexadecimal text. The caller frees the object. NULL: out of memory. */
json_t *pd_message_json(const ProtobufCMessage *message);
/* Returns the descriptor of the message's field with this name, which must exist. */
const ProtobufCFieldDescriptor *pd_message_field(const ProtobufCMessage *message, const char *name);
/* Returns the address of the value of a message's field. For a repeated field, this is the address of the pointer
 * to its values. */
const void *pd_message_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
/* Returns the number of values of a message's repeated field. */
size_t pd_message_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

#endif
