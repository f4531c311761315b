/* result.h - prints the result of a command: an error, an answer as JSON, or a table. */
#ifndef PD_RESULT_H
#define PD_RESULT_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "command_line.h"
#include "text_table.h"
#include "paramd/error.h"

/* Returns the exit status for an error code. */
int pd_result_status(int code);
/* Prints an error on standard error; if `json` is set, also as an object on standard output. Returns the exit
 * status for this error. */
int pd_result_fail(bool json, const pd_error *err);
/* Prints an error as pd_result_fail does, after the daemon was reached, or in a command that asks none. Returns the
 * exit status "failed", also for a disk that is not available and for a timeout: the other status of these errors
 * means that no daemon can be reached. */
int pd_result_fail_reached(bool json, const pd_error *err);
/* Prints an error as a JSON object if `json` is set, and nothing otherwise. Returns the exit status for this error. */
int pd_result_fail_quietly(bool json, const pd_error *err);
/* Prints `value` with indentation on standard output, and frees it. A `value` of NULL means out of memory. Returns
 * an exit status. */
int pd_result_json(json_t *value);
/* Prints a line that says what was done, or {"ok": true} if `json` is set. Returns an exit status. */
int pd_result_done(bool json, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a table, as wide as the terminal or with -o wide of any width, or the text `none` if it has no rows. Frees the
 * table; NULL means out of memory. Returns an exit status. */
int pd_result_table(const pd_line *line, pd_table *table, const char *none);

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
