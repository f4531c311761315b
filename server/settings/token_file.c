/* token_file.c - reads a token from a file, and refuses files that others can read. */
#include "token_file.h"

#include <limits.h>
#include <string.h>

#include "credential.h"
#include "token.h"

/* LEAST_DIFFERENT: fewest different characters of a token. One of 16 random hexadecimal digits has fewer in one of 10^9
 * cases. */
enum { MOST = 256, LEAST_DIFFERENT = 4 };

static size_t different_characters(const char *token)
{
    size_t n = 0;

    for (size_t i = 0; token[i] != '\0'; i++) n += memchr(token, token[i], i) == NULL;
    return n;
}

static int check_token(const char *token, const char *path, const char *key, pd_error *err)
{
    size_t n = strlen(token);

    for (size_t i = 0; i < n; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return pd_fail(err, PD_INVALID_ARGUMENT, "%s: %.300s: the token has a blank or a byte that is not ASCII",
                           key, path);
    if (n >= PD_TOKEN_LEAST && n <= MOST && different_characters(token) >= LEAST_DIFFERENT) return PD_OK;
    if (n >= PD_TOKEN_LEAST && n <= MOST)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "%s: %.300s: the token is easy to guess, since it has fewer than %d different characters (openssl "
            "rand -hex 32 makes a token)",
            key, path, LEAST_DIFFERENT);
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%s: %.300s: the first line has %zu characters, expected %d to %d (openssl rand -hex 32 makes a "
                   "token)",
                   key, path, n, PD_TOKEN_LEAST, MOST);
}

int pd_token_read(char **out, const char *setting, const char *key, pd_error *err)
{
    char path[PATH_MAX], *text = NULL;
    int rc = pd_credential_path(path, key, setting, err);

    if (rc == PD_OK) rc = pd_secret_read(&text, path, key, err);
    if (rc != PD_OK) return rc;
    explicit_bzero(text + strcspn(text, "\r\n"), strlen(text + strcspn(text, "\r\n")));
    if ((rc = check_token(text, path, key, err)) == PD_OK && (*out = strdup(text)) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_secret_free(text);
    return rc;
}
