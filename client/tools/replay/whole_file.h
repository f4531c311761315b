/* whole_file.h - reads a recorded file into memory. */
#ifndef PD_WHOLE_FILE_H
#define PD_WHOLE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

/* Sets *out, which the caller frees, also after an error. PD_NOT_FOUND; PD_INVALID_ARGUMENT: not a file;
 * PD_RESOURCE_EXHAUSTED: more than `most` bytes; PD_DATA_LOSS: cannot be read; PD_NO_MEMORY. */
int pd_whole_file_read(uint8_t **out, size_t *bytes, const char *path, long long most, pd_error *err);

#endif
