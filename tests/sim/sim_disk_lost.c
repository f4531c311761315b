/* sim_disk_lost.c - the disk of a server whose state another server has taken: each call fails, as on a file system
 * that has given away the lock of a machine which was silent for too long. */
#include "sim_disk.h"

#include <errno.h>

static int lost_path(void *arg, const char *path)
{
    (void)arg, (void)path;
    return EIO;
}

static int lost_create(void *arg, const char *path, uint64_t bytes, int *file)
{
    (void)arg, (void)path, (void)bytes, (void)file;
    return EIO;
}

static int lost_open(void *arg, const char *path, int *file)
{
    (void)arg, (void)path, (void)file;
    return EIO;
}

static int lost_file(void *arg, int file)
{
    (void)arg, (void)file;
    return EIO;
}

static int lost_write(void *arg, int file, const void *at, size_t bytes)
{
    (void)arg, (void)file, (void)at, (void)bytes;
    return EIO;
}

static int lost_write_at(void *arg, int file, uint64_t offset, const void *at, size_t bytes)
{
    (void)arg, (void)file, (void)offset, (void)at, (void)bytes;
    return EIO;
}

static int lost_read(void *arg, int file, uint64_t offset, void *at, size_t bytes)
{
    (void)arg, (void)file, (void)offset, (void)at, (void)bytes;
    return EIO;
}

static int lost_size(void *arg, int file, uint64_t *bytes)
{
    (void)arg, (void)file;
    *bytes = 0;
    return EIO;
}

static int lost_rename(void *arg, const char *from, const char *to)
{
    (void)arg, (void)from, (void)to;
    return EIO;
}

static int lost_list(void *arg, const char *path, void (*each)(void *what, const char *name), void *what)
{
    (void)arg, (void)path, (void)each, (void)what;
    return EIO;
}

static int lost_space(void *arg, const char *path, uint64_t *bytes)
{
    (void)arg, (void)path;
    *bytes = 0;
    return EIO;
}

const pd_disk sim_disk_lost = { .make_dir = lost_path,
                                .create = lost_create,
                                .write = lost_write,
                                .reopen = lost_create,
                                .write_at = lost_write_at,
                                .sync_file = lost_file,
                                .sync_data = lost_file,
                                .open = lost_open,
                                .size = lost_size,
                                .read = lost_read,
                                .close = lost_file,
                                .sync_dir = lost_path,
                                .rename = lost_rename,
                                .remove = lost_path,
                                .list = lost_list,
                                .space = lost_space };
