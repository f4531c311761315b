/* whole_file.h - reads a whole recorded file into memory. */
#ifndef PD_WHOLE_FILE_H
#define PD_WHOLE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

/* Reads a whole file of at most `most` bytes into *out. The caller frees *out, also after an error. PD_NOT_FOUND:
 * the file cannot be opened. PD_INVALID_ARGUMENT: it is not a regular file. PD_RESOURCE_EXHAUSTED: it has more than
 * `most` bytes. PD_DATA_LOSS: reading fails. PD_NO_MEMORY: out of memory. */
int pd_whole_file_read(uint8_t **out, size_t *bytes, const char *path, long long most, pd_error *err);

#endif
