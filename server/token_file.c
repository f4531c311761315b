/* token_file.c - reads a token from a file, and refuses files that others can read. */
#include "token_file.h"

#include "credential.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST = 256 };

static int check_mode(FILE *file, const char *path, const char *key, pd_error *err)
{
    struct stat found;

    if (fstat(fileno(file), &found) != 0)
        return pd_fail(err, PD_NOT_FOUND, "%s: %.300s: %s", key, path, strerror(errno));
    if ((found.st_mode & (S_IRWXO | S_IWGRP)) == 0) return PD_OK;
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "%s: %.300s has mode %03o, so others can read or change it: expected 600 or 640 (chmod 600)", key,
                   path, (unsigned)found.st_mode & 0777);
}

static int check_token(const char *token, const char *path, const char *key, pd_error *err)
{
    size_t n = strlen(token);

    for (size_t i = 0; i < n; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return pd_fail(err, PD_INVALID_ARGUMENT, "%s: %.300s: the token has a blank or a byte that is not ASCII",
                           key, path);
    if (n >= PD_TOKEN_LEAST && n <= MOST) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%s: %.300s: the first line has %zu characters, expected %d to %d (openssl rand -hex 32 makes a "
                   "token)",
                   key, path, n, PD_TOKEN_LEAST, MOST);
}

static int read_line(char **out, FILE *file, const char *path, const char *key, pd_error *err)
{
    char line[MOST + 3];
    int rc = check_mode(file, path, key, err);

    if (rc != PD_OK) return rc;
    if (fgets(line, sizeof line, file) == NULL) line[0] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    if ((rc = check_token(line, path, key, err)) == PD_OK && (*out = strdup(line)) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    explicit_bzero(line, sizeof line);
    return rc;
}

int pd_token_read(char **out, const char *setting, const char *key, pd_error *err)
{
    char path[PATH_MAX];
    int rc = pd_credential_path(path, key, setting, err);
    FILE *file = rc == PD_OK ? fopen(path, "re") : NULL;

    if (rc != PD_OK) return rc;
    if (file == NULL) return pd_fail(err, PD_NOT_FOUND, "%s: %.300s: %s", key, path, strerror(errno));
    rc = read_line(out, file, path, key, err);
    fclose(file);
    return rc;
}
