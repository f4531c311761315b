/* roles_file.c - reads the file of roles, unless somebody else could have written it. */
#include "roles_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot_read(const char *path, pd_error *err)
{
    return pd_fail(err, PD_NOT_FOUND, "%.300s: the roles cannot be read: %s", path, strerror(errno));
}

/* Checks that only the owner of the file, who is root or this process's user, may write to it. */
static int check_owner(int fd, const char *path, pd_error *err)
{
    struct stat found;

    if (fstat(fd, &found) != 0) return cannot_read(path, err);
    if (!S_ISREG(found.st_mode))
        return pd_fail(err, PD_PERMISSION_DENIED, "%.300s: the roles are not in a regular file", path);
    if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return pd_fail(err, PD_PERMISSION_DENIED,
                       "%.200s: others can write to this file, and give themselves roles: run chmod go-w %.200s", path,
                       path);
    if (found.st_uid == 0 || found.st_uid == geteuid()) return PD_OK;
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "%.300s: the roles belong to user %u, expected root or this process's user, %u", path,
                   (unsigned)found.st_uid, (unsigned)geteuid());
}

/* Reads a file up to one byte more than roles may have. Returns the number of bytes, or -1. */
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
