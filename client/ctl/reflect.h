/* reflect.h - reads protobuf messages by their descriptors: --json and the tables cannot fall behind paramd.proto. */
#ifndef PD_REFLECT_H
#define PD_REFLECT_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* Any message as a JSON object with the field names of paramd.proto; fixed64 (nonces) as hexadecimal text. Gives; NULL:
 * out of memory. */
json_t *pd_message_json(const ProtobufCMessage *message);
/* A field that the message has, by its name. */
const ProtobufCFieldDescriptor *pd_message_field(const ProtobufCMessage *message, const char *name);
/* Where the message holds the field: the value, or of a repeated field the pointer to the values. */
const void *pd_message_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
/* The number of values of a repeated field. */
size_t pd_message_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

#endif
