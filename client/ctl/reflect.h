/* reflect.h - reads protobuf messages by their descriptors: --json and the tables cannot fall behind paramd.proto. */
#ifndef PD_REFLECT_H
#define PD_REFLECT_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* Returns any message as a JSON object with the field names of paramd.proto; fixed64 (nonces) as hexadecimal text. The
 * caller frees. NULL: out of memory. */
json_t *pd_message_json(const ProtobufCMessage *message);
/* Returns the field of that name, which the message has. */
const ProtobufCFieldDescriptor *pd_message_field(const ProtobufCMessage *message, const char *name);
/* Returns the address of the value, or, for a repeated field, the address of the pointer to the values. */
const void *pd_message_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
/* Returns the number of values of a repeated field. */
size_t pd_message_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

#endif
