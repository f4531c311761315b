/* whole_file.c - reads a whole file into memory, if it is not too large. */
#include "whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int load(uint8_t **out, size_t *bytes, int fd, const char *path, long long most, pd_error *err)
{
    struct stat st;
    size_t have = 0;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.300s: not a file", path);
    if (st.st_size > most)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%.300s: %lld bytes; a trace may have %lld", path,
                       (long long)st.st_size, most);
    *bytes = (size_t)st.st_size;
    if ((*out = malloc(*bytes + 1)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "%.300s: no memory for %zu bytes", path, *bytes);
    while (have < *bytes) {
        ssize_t n = read(fd, *out + have, *bytes - have);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return pd_fail(err, PD_DATA_LOSS, "%.300s: cannot be read: %s", path,
                           n < 0 ? strerror(errno) : "it became shorter");
        have += (size_t)n;
    }
    return PD_OK;
}

int pd_whole_file_read(uint8_t **out, size_t *bytes, const char *path, long long most, pd_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

    *out = NULL;
    if (fd < 0) return pd_fail(err, PD_NOT_FOUND, "%.300s: %s", path, strerror(errno));
    rc = load(out, bytes, fd, path, most, err);
    close(fd);
    return rc;
}
