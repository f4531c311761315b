/* token_file.h - reads a token from a file that only its owner may read. Main thread. */
#ifndef PD_TOKEN_FILE_H
#define PD_TOKEN_FILE_H

#include "paramd/error.h"

#define PD_TOKEN_LEAST 16 /* fewest characters of a token */

/* Reads the first line of a file into *out, which the caller frees. `key` names the setting that has the path, for
 * errors. The path may begin with ${CREDENTIALS_DIRECTORY} (credential.h).
 *
 *   PD_NOT_FOUND          the file cannot be read
 *   PD_PERMISSION_DENIED  users besides its owner and its group may read it, or the group may write it
 *   PD_INVALID_ARGUMENT   ${CREDENTIALS_DIRECTORY} is not set; or the line has fewer than PD_TOKEN_LEAST characters,
 *                         more than 256, or others than printable ASCII without blanks, or it repeats so few that it
 *                         can be guessed
 *   PD_NO_MEMORY */
int pd_token_read(char **out, const char *setting, const char *key, pd_error *err);

#endif
