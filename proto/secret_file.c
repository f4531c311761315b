/* secret_file.c - reads files with secrets, and refuses those that others can read. */
#define _DEFAULT_SOURCE /* explicit_bzero */
#include "secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 20 };

/* Checks an open file. systemd's credentials can be read by their group (the mask of an access list stands in its
 * place), so the group may read. */
static int check(int fd, const char *path, const char *what, size_t *bytes, pd_error *err)
{
    struct stat found;

    if (fstat(fd, &found) != 0) return pd_fail(err, PD_NOT_FOUND, "%s: %s: %s", what, path, strerror(errno));
    if (!S_ISREG(found.st_mode)) return pd_fail(err, PD_INVALID_ARGUMENT, "%s: %s is no regular file", what, path);
    if ((found.st_mode & (S_IRWXO | S_IWGRP)) != 0)
        return pd_fail(err, PD_PERMISSION_DENIED,
                       "%s: others can read or change %.200s, which has a secret: it has mode %03o, expected 600 or "
                       "640: chmod 600 %.200s",
                       what, path, (unsigned)found.st_mode & 0777, path);
    if (found.st_size > MOST_BYTES)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s: %s has %lld bytes, at most %d are possible", what, path,
                       (long long)found.st_size, MOST_BYTES);
    *bytes = (size_t)found.st_size;
    return PD_OK;
}

static int open_checked(int *fd, const char *path, const char *what, size_t *bytes, pd_error *err)
{
    int rc;

    /* O_NONBLOCK: a pipe that nobody writes to must not stop us here; it is refused as no regular file. */
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

/* Reads up to `most` bytes. Returns how many there were, or -1. */
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
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "%s: %s is no text: it has a NUL", what, path);
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
