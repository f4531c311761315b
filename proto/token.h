/* token.h - tokens, keys that a worker and the daemon both have, by which each proves to the other who it is; and the
 * reading of files with secrets.
 *
 * A file of tokens has a line for each key, "ID:KEY-ID:SECRET", such as
 *
 *     alice:5f3a9c01:0f1e...   (64 hexadecimal digits)
 *
 * KEY-ID and SECRET are numbers: upper and lower case of their digits are the same.
 *
 * Empty lines and lines that begin with # are skipped. The daemon's file has the keys of all workers. A worker's file
 * has its own key: only the first one is used. Two keys of one id may be valid at the same time, so that a key is
 * replaced without a gap: the new line is added to the daemon's file, then put into the worker's file, then the old
 * line is removed.
 *
 * ID and KEY-ID travel in clear text, the secret never does. Any thread may call these functions. */
#ifndef PD_TOKEN_H
#define PD_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

enum {
    PD_TOKEN_BYTES = 32,    /* bytes of a secret */
    PD_TOKEN_ID = 64,       /* most characters of an ID */
    PD_TOKEN_NAME = 64 + 10 /* bytes of the longest "ID:KEY-ID" with its terminating zero */
};

/* One key: a line of a file of tokens. */
typedef struct pd_token {
    char name[PD_TOKEN_NAME]; /* "ID:KEY-ID": by this name the worker tells the daemon which key it uses */
    uint8_t secret[PD_TOKEN_BYTES];
    uint32_t line; /* number of the line in the file, from 1 */
} pd_token;

/* All keys of a file of tokens. */
typedef struct pd_tokens {
    pd_token *at; /* sorted by name */
    size_t n;
} pd_tokens;

/* Reads the lines of a file of tokens; `what` names the file in errors. PD_INVALID_ARGUMENT: a line is wrong, a secret
 * has so few different bytes that it can be guessed, two lines have the same name, an id has more than two keys, or the
 * file has no token; the error names the line, and never quotes a secret. PD_NO_MEMORY: out of memory. After an error
 * *out is empty. */
int pd_tokens_parse(pd_tokens *out, const char *text, const char *what, pd_error *err);
/* Returns the token that comes first in the file. A worker uses this one. */
const pd_token *pd_tokens_first(const pd_tokens *tokens);
/* Returns the token whose name is the n bytes at `name`; NULL: there is none. */
const pd_token *pd_tokens_find(const pd_tokens *tokens, const void *name, size_t n);
/* Copies the id of a token to `id`, which has PD_TOKEN_NAME bytes. */
void pd_token_id(const pd_token *token, char *id);
/* Overwrites the secrets and frees the memory. Accepts zeroed memory. */
void pd_tokens_free(pd_tokens *tokens);

/* Bytes of a line of a file of tokens, with a terminating zero. */
enum { PD_TOKEN_LINE = PD_TOKEN_NAME + 1 + 2 * PD_TOKEN_BYTES };
/* Makes a new random key for an id, as a line without newline. PD_INVALID_ARGUMENT: the text is not a valid id.
 * PD_INTERNAL: the system gives no random numbers. */
int pd_token_new(char line[PD_TOKEN_LINE], const char *id, pd_error *err);

/* Files with secrets. A secret is never an argument or in the environment, where other processes see it: a setting
 * names its file. These functions may block on the disk.
 *
 * Checks that a file with a secret can be read by us, and by nobody but its owner and its group. `what` names the
 * setting in errors, such as "tls.key". PD_NOT_FOUND: the file cannot be opened. PD_PERMISSION_DENIED: others can read
 * or change it; the error has the command that repairs it. PD_INVALID_ARGUMENT: it is not a regular file, or larger
 * than 1 MiB. */
int pd_secret_check(const char *path, const char *what, pd_error *err);
/* Reads a file after the same checks. *text gets its bytes with a terminating zero. PD_INVALID_ARGUMENT: the file has a
 * NUL. PD_NO_MEMORY. */
int pd_secret_read(char **text, const char *path, const char *what, pd_error *err);
/* Overwrites and frees what pd_secret_read has returned. Accepts NULL. */
void pd_secret_free(char *text);

#endif
