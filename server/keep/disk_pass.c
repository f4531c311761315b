/* disk_pass.c - a disk that passes all calls on to another one. */
#include "disk_pass.h"

#define PASS(function, parameters, ...)                                                                                \
    static int pass_##function parameters                                                                              \
    {                                                                                                                  \
        const pd_disk *below = ((const pd_disk_pass *)arg)->below;                                                     \
        return below->function(below->arg, __VA_ARGS__);                                                               \
    }
PASS(make_dir, (void *arg, const char *path), path)
PASS(create, (void *arg, const char *path, uint64_t bytes, int *file), path, bytes, file)
PASS(write, (void *arg, int file, const void *at, size_t bytes), file, at, bytes)
PASS(reopen, (void *arg, const char *path, uint64_t bytes, int *file), path, bytes, file)
PASS(write_at, (void *arg, int file, uint64_t offset, const void *at, size_t bytes), file, offset, at, bytes)
PASS(sync_file, (void *arg, int file), file)
PASS(sync_data, (void *arg, int file), file)
PASS(open, (void *arg, const char *path, int *file), path, file)
PASS(size, (void *arg, int file, uint64_t *bytes), file, bytes)
PASS(read, (void *arg, int file, uint64_t offset, void *at, size_t bytes), file, offset, at, bytes)
PASS(close, (void *arg, int file), file)
PASS(sync_dir, (void *arg, const char *path), path)
PASS(rename, (void *arg, const char *from, const char *to), from, to)
PASS(remove, (void *arg, const char *path), path)
PASS(list, (void *arg, const char *path, void (*each)(void *what, const char *name), void *what), path, each, what)
PASS(space, (void *arg, const char *path, uint64_t *bytes), path, bytes)

void pd_disk_pass_init(pd_disk_pass *disk, const pd_disk *below)
{
    *disk = (pd_disk_pass){ .functions = { .arg = disk,
                                           .any_memory = below->any_memory,
                                           .make_dir = pass_make_dir,
                                           .create = pass_create,
                                           .write = pass_write,
                                           .reopen = pass_reopen,
                                           .write_at = pass_write_at,
                                           .sync_file = pass_sync_file,
                                           .sync_data = pass_sync_data,
                                           .open = pass_open,
                                           .size = pass_size,
                                           .read = pass_read,
                                           .close = pass_close,
                                           .sync_dir = pass_sync_dir,
                                           .rename = pass_rename,
                                           .remove = pass_remove,
                                           .list = pass_list,
                                           .space = pass_space },
                            .below = below };
}
