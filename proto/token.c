/* token.c - parses and makes tokens, and reads files with secrets. */
#define _DEFAULT_SOURCE /* explicit_bzero */
#include "token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORM "expected ID:KEY-ID:SECRET with a secret of 64 hexadecimal digits, as `paramctl token new ID` prints it"
/* KEYS_OF_ID: most keys of one id. LEAST_BYTES: a secret with fewer different bytes is refused. A random secret has
 * fewer with a probability below 10^-30. */
enum { KEY_ID = 8, KEYS_OF_ID = 2, LEAST_BYTES = 8 };

static bool is_letter_of_id(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("._@-", c) != NULL);
}

/* Returns how many characters of an id the text begins with. */
static size_t id_length(const char *text)
{
    size_t n = 0;

    while (is_letter_of_id(text[n])) n++;
    return n;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Returns how many hexadecimal digits the text begins with. */
static size_t digits(const char *text)
{
    size_t n = 0;

    while (digit(text[n]) >= 0) n++;
    return n;
}

static void read_secret(uint8_t *secret, const char *hex)
{
    for (size_t i = 0; i < PD_TOKEN_BYTES; i++) secret[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
}

/* Parses a line of n bytes. Returns false if the line is not a token. */
static bool read_line(pd_token *token, const char *line, size_t n)
{
    size_t id = id_length(line);
    const char *hex = line + id + 1 + KEY_ID + 1;

    if (id == 0 || id > PD_TOKEN_ID || n != id + 1 + KEY_ID + 1 + (size_t)2 * PD_TOKEN_BYTES) return false;
    if (line[id] != ':' || digits(line + id + 1) != KEY_ID || hex[-1] != ':') return false;
    if (digits(hex) != (size_t)2 * PD_TOKEN_BYTES) return false;
    memcpy(token->name, line, id + 1 + KEY_ID);
    token->name[id + 1 + KEY_ID] = '\0';
    read_secret(token->secret, hex);
    return true;
}

/* Returns how many different bytes a secret has. */
static unsigned different_bytes(const uint8_t *secret)
{
    bool seen[256] = { false };
    unsigned n = 0;

    for (size_t i = 0; i < PD_TOKEN_BYTES; i++) {
        n += !seen[secret[i]];
        seen[secret[i]] = true;
    }
    explicit_bzero(seen, sizeof seen);
    return n;
}

static int check_line(const pd_token *token, const char *what, uint32_t line, pd_error *err)
{
    if (different_bytes(token->secret) >= LEAST_BYTES) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%s:%u: weak secret with fewer than %d different bytes: make a new token with "
                   "`paramctl token new ID`",
                   what, line, LEAST_BYTES);
}

static size_t count_lines(const char *text)
{
    size_t n = 1;

    for (; *text != '\0'; text++) n += *text == '\n';
    return n;
}

/* Compares two names "ID:KEY-ID": the ids by their characters, and if they are the same, the KEY-IDs by their value, so
 * that upper and lower case are the same. */
static int compare_names(const char *a, const char *b)
{
    size_t n = id_length(a), m = id_length(b);
    int order = memcmp(a, b, n < m ? n : m);

    if (order != 0) return order;
    return n != m ? (n < m ? -1 : 1) : strcasecmp(a + n, b + n);
}

static int by_name(const void *a, const void *b)
{
    return compare_names(((const pd_token *)a)->name, ((const pd_token *)b)->name);
}

/* Returns whether two tokens are keys of the same id. */
static bool same_id(const pd_token *a, const pd_token *b)
{
    size_t n = id_length(a->name);

    return id_length(b->name) == n && memcmp(a->name, b->name, n) == 0;
}

static int check_names(const pd_token *sorted, size_t n, const char *what, pd_error *err)
{
    char id[PD_TOKEN_NAME];

    for (size_t i = 1; i < n; i++)
        if (compare_names(sorted[i - 1].name, sorted[i].name) == 0)
            return pd_fail(err, PD_INVALID_ARGUMENT, "%s:%u: duplicate key %s", what,
                           sorted[i].line > sorted[i - 1].line ? sorted[i].line : sorted[i - 1].line, sorted[i].name);
    for (size_t i = KEYS_OF_ID; i < n; i++)
        if (same_id(&sorted[i - KEYS_OF_ID], &sorted[i])) {
            pd_token_id(&sorted[i], id);
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "%s: %s has more than %d keys: remove those that no worker uses any more", what, id,
                           KEYS_OF_ID);
        }
    return PD_OK;
}

static int read_lines(pd_tokens *out, const char *text, const char *what, pd_error *err)
{
    uint32_t line = 1;
    int rc;

    for (; *text != '\0'; line++) {
        size_t n = strcspn(text, "\n"), used = n > 0 && text[n - 1] == '\r' ? n - 1 : n;
        if (used > 0 && text[0] != '#') {
            if (!read_line(&out->at[out->n], text, used))
                return pd_fail(err, PD_INVALID_ARGUMENT, "%s:%u: " FORM, what, line);
            if ((rc = check_line(&out->at[out->n], what, line, err)) != PD_OK) return rc;
            out->at[out->n++].line = line;
        }
        text += n + (text[n] == '\n');
    }
    if (out->n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "%s: no token found: " FORM, what);
    return PD_OK;
}

int pd_tokens_parse(pd_tokens *out, const char *text, const char *what, pd_error *err)
{
    int rc;

    *out = (pd_tokens){ .at = calloc(count_lines(text), sizeof *out->at) };
    if (out->at == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = read_lines(out, text, what, err);
    if (rc == PD_OK) {
        qsort(out->at, out->n, sizeof *out->at, by_name);
        rc = check_names(out->at, out->n, what, err);
    }
    if (rc != PD_OK) pd_tokens_free(out);
    return rc;
}

const pd_token *pd_tokens_first(const pd_tokens *tokens)
{
    const pd_token *first = tokens->at;

    for (size_t i = 1; i < tokens->n; i++)
        if (tokens->at[i].line < first->line) first = &tokens->at[i];
    return first;
}

const pd_token *pd_tokens_find(const pd_tokens *tokens, const void *name, size_t n)
{
    pd_token wanted;

    if (n >= sizeof wanted.name || memchr(name, '\0', n) != NULL) return NULL;
    memcpy(wanted.name, name, n);
    wanted.name[n] = '\0';
    return bsearch(&wanted, tokens->at, tokens->n, sizeof *tokens->at, by_name);
}

void pd_token_id(const pd_token *token, char *id)
{
    size_t n = id_length(token->name);

    memcpy(id, token->name, n);
    id[n] = '\0';
}

void pd_tokens_free(pd_tokens *tokens)
{
    if (tokens->at != NULL) explicit_bzero(tokens->at, tokens->n * sizeof *tokens->at);
    free(tokens->at);
    *tokens = (pd_tokens){ 0 };
}

static char *write_hex(char *to, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) to += sprintf(to, "%02x", bytes[i]);
    return to;
}

int pd_token_new(char line[PD_TOKEN_LINE], const char *id, pd_error *err)
{
    uint8_t random[KEY_ID / 2 + PD_TOKEN_BYTES];
    size_t n = id_length(id);

    if (n == 0 || n > PD_TOKEN_ID || id[n] != '\0')
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "\"%.80s\" is not a token id: expected 1 to %d letters, digits or . _ @ -, such as alice", id,
                       PD_TOKEN_ID);
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return pd_fail(err, PD_INTERNAL, "no random numbers from the system");
    memcpy(line, id, n);
    line[n] = ':';
    line = write_hex(line + n + 1, random, KEY_ID / 2);
    *line = ':';
    write_hex(line + 1, random + KEY_ID / 2, PD_TOKEN_BYTES);
    explicit_bzero(random, sizeof random);
    return PD_OK;
}

enum { MOST_BYTES = 1 << 20 };

/* Checks that an open file is a regular file of at most 1 MiB, which only its owner can change, and only its owner and
 * group can read. The group may read because systemd gives each credential an access list, whose mask looks like the
 * permissions of the group. */
static int check(int fd, const char *path, const char *what, size_t *bytes, pd_error *err)
{
    struct stat found;

    if (fstat(fd, &found) != 0) return pd_fail(err, PD_NOT_FOUND, "%s: %s: %s", what, path, strerror(errno));
    if (!S_ISREG(found.st_mode)) return pd_fail(err, PD_INVALID_ARGUMENT, "%s: %s is not a regular file", what, path);
    if ((found.st_mode & (S_IRWXO | S_IWGRP)) != 0)
        return pd_fail(err, PD_PERMISSION_DENIED,
                       "%s: others can read or change the secret in %.200s: it has mode %03o, expected 600 or "
                       "640: chmod 600 %.200s",
                       what, path, (unsigned)found.st_mode & 0777, path);
    if (found.st_size > MOST_BYTES)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s: %s has %lld bytes: at most %d", what, path,
                       (long long)found.st_size, MOST_BYTES);
    *bytes = (size_t)found.st_size;
    return PD_OK;
}

static int open_checked(int *fd, const char *path, const char *what, size_t *bytes, pd_error *err)
{
    int rc;

    /* O_NONBLOCK: opening a pipe that nobody writes to must not block. check() then refuses the pipe. */
    if ((*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0)
        return pd_fail(err, PD_NOT_FOUND, "%s: %s cannot be read: %s", what, path, strerror(errno));
    if ((rc = check(*fd, path, what, bytes, err)) != PD_OK) close(*fd);
    return rc;
}

int pd_secret_check(const char *path, const char *what, pd_error *err)
{
    size_t bytes;
    int fd, rc = open_checked(&fd, path, what, &bytes, err);

    if (rc == PD_OK) close(fd);
    return rc;
}

/* Reads up to `most` bytes. Returns their number, or -1 after an error, which errno names. */
static ssize_t read_all(int fd, char *to, size_t most)
{
    size_t n = 0;
    ssize_t got;

    do {
        got = read(fd, to + n, most - n);
        if (got > 0) n += (size_t)got;
    } while ((got > 0 && n < most) || (got < 0 && errno == EINTR));
    return got < 0 ? -1 : (ssize_t)n;
}

int pd_secret_read(char **text, const char *path, const char *what, pd_error *err)
{
    size_t bytes = 0;
    int fd, rc = open_checked(&fd, path, what, &bytes, err);
    char *all = rc == PD_OK ? calloc(1, bytes + 1) : NULL;
    ssize_t n = all != NULL ? read_all(fd, all, bytes) : 0;

    if (rc != PD_OK) return rc;
    if (all == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    else if (n < 0)
        rc = pd_fail(err, PD_NOT_FOUND, "%s: %s cannot be read: %s", what, path, strerror(errno));
    else if (strlen(all) != (size_t)n)
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "%s: %s is not text: it contains a NUL", what, path);
    close(fd);
    if (rc == PD_OK)
        *text = all;
    else
        pd_secret_free(all);
    return rc;
}

void pd_secret_free(char *text)
{
    if (text != NULL) explicit_bzero(text, strlen(text));
    free(text);
}
