/* trusted_files.c - reads roles, tokens, and the files of tls:// addresses. Refuses files that other users could have
 * written or read. */
#include "trusted_files.h"

#include "address.h"
#include "token.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIABLE "CREDENTIALS_DIRECTORY"

/* Copies a path to `to`, and replaces ${CREDENTIALS_DIRECTORY} at its beginning by the value of that environment
 * variable. `setting` names the configuration key that has the path, for errors. PD_INVALID_ARGUMENT: the variable is
 * not set, or the path is too long. */
static int resolve_path(char to[PATH_MAX], const char *setting, const char *path, pd_error *err)
{
    const char *folder = getenv(VARIABLE);
    size_t n = strlen("${" VARIABLE "}");
    int length;

    if (strncmp(path, "${" VARIABLE "}", n) != 0) {
        folder = "";
        n = 0;
    } else if (folder == NULL) {
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s = %s: " VARIABLE " is not set; systemd sets it for a unit with LoadCredential=", setting,
                       path);
    }
    length = snprintf(to, PATH_MAX, "%s%s", folder, path + n);
    if (length >= 0 && length < PATH_MAX) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s: the path is longer than %d bytes", setting, PATH_MAX - 1);
}

static int cannot_read(const char *path, pd_error *err)
{
    return pd_fail(err, PD_NOT_FOUND, "%.300s: the roles cannot be read: %s", path, strerror(errno));
}

/* Checks that the file belongs to root or to this process's user, and that only its owner may write to it. */
static int check_owner(int fd, const char *path, pd_error *err)
{
    struct stat found;

    if (fstat(fd, &found) != 0) return cannot_read(path, err);
    if (!S_ISREG(found.st_mode))
        return pd_fail(err, PD_PERMISSION_DENIED, "%.300s: the file of roles is not a regular file", path);
    if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return pd_fail(err, PD_PERMISSION_DENIED, "%.200s: other users can write to this file: run chmod go-w %.200s",
                       path, path);
    if (found.st_uid == 0 || found.st_uid == geteuid()) return PD_OK;
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "%.300s: the roles belong to user %u, expected root or this process's user, %u", path,
                   (unsigned)found.st_uid, (unsigned)geteuid());
}

/* Reads up to PD_ROLES_BYTES + 1 bytes of a file; the last byte shows that the file is too long. Returns the number of
 * bytes, or -1 after an error. */
static ssize_t read_all(int fd, char *text)
{
    size_t n = 0;
    ssize_t got = 1;

    while (got > 0 && n <= PD_ROLES_BYTES) {
        got = read(fd, text + n, PD_ROLES_BYTES + 1 - n);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            n += (size_t)got;
    }
    return got < 0 ? -1 : (ssize_t)n;
}

static int read_roles(pd_roles **out, int fd, const char *path, pd_error *err)
{
    char *text = malloc(PD_ROLES_BYTES + 1);
    ssize_t n;
    int rc;

    if (text == NULL) return pd_fail(err, PD_NO_MEMORY, "%.300s: out of memory for the roles", path);
    n = read_all(fd, text);
    rc = n < 0 ? cannot_read(path, err) : pd_roles_parse(out, text, (size_t)n, path, err);
    free(text);
    return rc;
}

int pd_roles_file_read(pd_roles **out, const char *path, pd_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), rc;

    if (fd < 0) return cannot_read(path, err);
    if ((rc = check_owner(fd, path, err)) == PD_OK) rc = read_roles(out, fd, path, err);
    close(fd);
    return rc;
}

/* MOST: largest length of a token. LEAST_DIFFERENT: smallest number of different characters in it. Of tokens of 16
 * random hexadecimal digits, one in 10^9 has fewer. */
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
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s: %.300s: the token is easy to guess, since it has fewer than %d different characters "
                       "(openssl rand -hex 32 makes a token)",
                       key, path, LEAST_DIFFERENT);
    return pd_fail(
        err, PD_INVALID_ARGUMENT,
        "%s: %.300s: the first line has %zu characters, expected %d to %d (openssl rand -hex 32 makes a token)", key,
        path, n, PD_TOKEN_LEAST, MOST);
}

int pd_password_read(char **out, const char *setting, const char *key, pd_error *err)
{
    char path[PATH_MAX], *text = NULL;
    int rc = resolve_path(path, key, setting, err);

    if (rc == PD_OK) rc = pd_secret_read(&text, path, key, err);
    if (rc != PD_OK) return rc;
    explicit_bzero(text + strcspn(text, "\r\n"), strlen(text + strcspn(text, "\r\n")));
    *out = text;
    return PD_OK;
}

int pd_token_read(char **out, const char *setting, const char *key, pd_error *err)
{
    char path[PATH_MAX], *text;
    int rc = resolve_path(path, key, setting, err);

    if (rc == PD_OK) rc = pd_password_read(&text, setting, key, err);
    if (rc != PD_OK) return rc;
    if ((rc = check_token(text, path, key, err)) == PD_OK && (*out = strdup(text)) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_secret_free(text);
    return rc;
}

/* Reads a file that everybody may read. */
static int read_public(char **out, const char *path, const char *key, pd_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t n = -1;

    if (fd < 0) return pd_fail(err, PD_NOT_FOUND, "%s: %.300s: %s", key, path, strerror(errno));
    if ((*out = malloc(PD_ROLES_BYTES + 1)) != NULL) n = read_all(fd, *out);
    close(fd);
    if (n >= 0 && n <= PD_ROLES_BYTES) {
        (*out)[n < PD_ROLES_BYTES ? n : PD_ROLES_BYTES] = '\0';
        return PD_OK;
    }
    free(*out);
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s: %.300s: expected a file of at most %d bytes", key, path,
                   (int)PD_ROLES_BYTES);
}

int pd_pem_read(char **out, const char *setting, const char *key, bool secret, pd_error *err)
{
    char path[PATH_MAX];
    int rc = resolve_path(path, key, setting, err);

    if (rc != PD_OK) return rc;
    return secret ? pd_secret_read(out, path, key, err) : read_public(out, path, key, err);
}

static int read_files(pd_tls_context **out, const pd_tls_files *files, pd_error *err)
{
    char certificate[PATH_MAX], key[PATH_MAX], ca[PATH_MAX], tokens[PATH_MAX], crl[PATH_MAX];
    const pd_tls_files all = { certificate, key, ca, tokens, crl };
    int rc = resolve_path(certificate, "tls.certificate", files->certificate, err);

    if (rc == PD_OK) rc = resolve_path(key, "tls.key", files->key, err);
    if (rc == PD_OK) rc = resolve_path(ca, "tls.client_ca", files->ca, err);
    if (rc == PD_OK) rc = resolve_path(tokens, "tls.tokens", files->tokens, err);
    if (rc == PD_OK) rc = resolve_path(crl, "tls.crl", files->crl, err);
    return rc == PD_OK ? pd_tls_server(out, &all, err) : rc;
}

static int has_secure(bool *secure, const char *listen, pd_error *err)
{
    pd_address *addresses;
    size_t n;
    int rc;

    *secure = false;
    if (listen[0] == '\0') return PD_OK;
    if ((rc = pd_addresses_parse(&addresses, &n, listen, PD_TO_LISTEN, err)) != PD_OK) return rc;
    for (size_t i = 0; i < n; i++) *secure |= addresses[i].secure;
    free(addresses);
    return PD_OK;
}

int pd_tls_setup(pd_tls_context **out, const char *listen, bool given, const pd_tls_files *files, pd_error *err)
{
    bool secure;
    int rc = has_secure(&secure, listen, err);

    *out = NULL;
    if (rc != PD_OK || (!secure && !given)) return rc;
    if (given && files->certificate[0] == '\0' && files->key[0] == '\0' && files->tokens[0] == '\0')
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "the service manager has passed a socket named tls (LISTEN_FDNAMES), which needs tls.tokens, or "
                       "tls.certificate and tls.key: set them, or remove FileDescriptorName=tls");
    return read_files(out, files, err);
}
