/* secret_file.h - reads files with secrets, and refuses those that others can read.
 *
 * A secret never comes by argument or in the environment, where other processes see it: a setting names its file. May
 * block on the disk. */
#ifndef PD_SECRET_FILE_H
#define PD_SECRET_FILE_H

#include "paramd/error.h"

/* Checks that a file with a secret can be read by us, and by nobody but its owner and its group. `what` names the
 * setting in errors, such as "tls.key". PD_NOT_FOUND: the file cannot be opened. PD_PERMISSION_DENIED: others can read
 * or change it; the error has the command that repairs it. PD_INVALID_ARGUMENT: it is no regular file, or larger than 1
 * MiB. */
int pd_secret_check(const char *path, const char *what, pd_error *err);
/* Reads a file after the same checks. *text gets its bytes with a terminating zero. PD_INVALID_ARGUMENT: the file has a
 * NUL. PD_NO_MEMORY. */
int pd_secret_read(char **text, const char *path, const char *what, pd_error *err);
/* Overwrites and frees what pd_secret_read has returned. Accepts NULL. */
void pd_secret_free(char *text);

#endif
