/* disk_posix.c - pd_disk_posix, the disk of the real file system, and pd_disk_pass, which calls another disk. */
#define _GNU_SOURCE /* O_DIRECT */
#include "disk.h"
#include "mutant.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Files of at least so many bytes are written without the page cache (O_DIRECT), which takes half the time and leaves
 * the cache to others. */
#define DIRECT_BYTES (1u << 20)
/* A read of at least AHEAD_LEAST bytes lets the kernel read at least the next AHEAD_BYTES bytes in advance, by requests
 * of AHEAD_PIECE bytes. */
#define AHEAD_BYTES ((uint64_t)16 << 20)
#define AHEAD_PIECE ((uint64_t)256 << 10)
#define AHEAD_LEAST ((size_t)256 << 10)

int pd_disk_fail(pd_error *err, int number, const char *action, const char *path)
{
    int code = PD_UNAVAILABLE;

    if (number == ENOSPC || number == EDQUOT) code = PD_RESOURCE_EXHAUSTED;
    if (number == ENOMEM) code = PD_NO_MEMORY;
    if (number == ENOENT) code = PD_NOT_FOUND;
    return pd_fail(err, code, "%.300s: cannot %s: %s", path, action, strerror(number));
}

int pd_disk_sync_dir(const pd_disk *disk, const char *path, pd_error *err)
{
    int number = PD_MUTANT(dir_sync_left_out) ? 0 : disk->sync_dir(disk->arg, path);

    return number == 0 ? PD_OK : pd_disk_fail(err, number, "sync the directory", path);
}

/* Returns the error number of a system call with the result `rc`; 0: it succeeded. */
static int number_of(int rc)
{
    return rc < 0 ? errno : 0;
}

static int make_dir(void *arg, const char *path)
{
    (void)arg;
    return number_of(mkdir(path, 0700));
}

/* Creates a file. Does not reserve space: writes into reserved space take half as long again on ext4. */
static int create_file(void *arg, const char *path, uint64_t bytes, int *file)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, direct = bytes >= DIRECT_BYTES ? O_DIRECT : 0;
    (void)arg;

    *file = open(path, flags | direct, 0600);
    if (*file < 0 && errno == EINVAL && direct != 0) { /* the file system has no direct writes */
        unlink(path);                                  /* some systems have created the file nevertheless */
        *file = open(path, flags, 0600);
    }
    return number_of(*file);
}

/* Removes O_DIRECT from a file, because the next write is not aligned or the file system refuses direct writes. */
static int write_through_cache(int file)
{
    int flags = fcntl(file, F_GETFL);

    return flags < 0 ? errno : number_of(fcntl(file, F_SETFL, flags & ~O_DIRECT));
}

static bool is_aligned(const void *at, size_t bytes)
{
    return ((uintptr_t)at | bytes) % PD_DISK_BLOCK == 0;
}

static int reopen_file(void *arg, const char *path, uint64_t bytes, int *file)
{
    int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW, direct = bytes >= DIRECT_BYTES ? O_DIRECT : 0;
    (void)arg;

    *file = open(path, flags | direct);
    if (*file < 0 && errno == EINVAL && direct != 0) *file = open(path, flags);
    return number_of(*file);
}

/* Writes bytes at `offset` in a file; if it is -1, after the bytes that were written last. */
static int put(int file, off_t offset, const void *at, size_t bytes)
{
    const uint8_t *from = at;
    int number;

    while (bytes > 0) {
        if (!is_aligned(from, bytes) && (number = write_through_cache(file)) != 0) return number;
        ssize_t n = offset < 0 ? write(file, from, bytes) : pwrite(file, from, bytes, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EINVAL && (fcntl(file, F_GETFL) & O_DIRECT) != 0) {
            if ((number = write_through_cache(file)) != 0) return number;
            continue;
        }
        if (n < 0) return errno;
        if (n == 0) return EIO;
        from += n;
        bytes -= (size_t)n;
        if (offset >= 0) offset += n;
    }
    return 0;
}

static int write_file(void *arg, int file, const void *at, size_t bytes)
{
    (void)arg;
    return put(file, -1, at, bytes);
}

static int write_file_at(void *arg, int file, uint64_t offset, const void *at, size_t bytes)
{
    (void)arg;
    return put(file, (off_t)offset, at, bytes);
}

static int sync_file(void *arg, int file)
{
    (void)arg;
    return number_of(fsync(file));
}

static int sync_data(void *arg, int file)
{
    (void)arg;
    return number_of(fdatasync(file));
}

static int open_file(void *arg, const char *path, int *file)
{
    struct stat about;
    (void)arg;

    *file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*file < 0) return errno;
    if (fstat(*file, &about) == 0 && S_ISREG(about.st_mode)) {
        (void)posix_fadvise(*file, 0, 0, POSIX_FADV_SEQUENTIAL);
        return 0;
    }
    close(*file);
    return EINVAL; /* reading from a pipe or a device might block forever */
}

static int size_of_file(void *arg, int file, uint64_t *bytes)
{
    struct stat about;
    (void)arg;

    if (fstat(file, &about) != 0) return errno;
    *bytes = (uint64_t)about.st_size;
    return 0;
}

/* Lets the kernel read the bytes after this read, while the caller uses those that it has. At the beginning of a file
 * requests 2 * AHEAD_BYTES, and AHEAD_BYTES more whenever a read passes a multiple of AHEAD_BYTES. The kernel cuts
 * large requests, so each request is of AHEAD_PIECE bytes. */
static void read_ahead(int file, uint64_t offset, size_t bytes)
{
    uint64_t passed = (offset + bytes) / AHEAD_BYTES * AHEAD_BYTES;
    uint64_t from = offset == 0 ? 0 : passed + AHEAD_BYTES, to = passed + 2 * AHEAD_BYTES;

    if (offset > 0 && passed <= offset) return;
    for (; from < to; from += AHEAD_PIECE) (void)posix_fadvise(file, (off_t)from, AHEAD_PIECE, POSIX_FADV_WILLNEED);
}

static int read_file(void *arg, int file, uint64_t offset, void *at, size_t bytes)
{
    uint8_t *to = at;
    (void)arg;

    if (bytes >= AHEAD_LEAST) read_ahead(file, offset, bytes);
    while (bytes > 0) {
        ssize_t n = pread(file, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        if (n == 0) return ENODATA;
        to += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int close_file(void *arg, int file)
{
    (void)arg;
    return number_of(close(file));
}

static int sync_dir(void *arg, const char *path)
{
    int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), number;
    (void)arg;

    if (file < 0) return errno;
    number = number_of(fsync(file));
    close(file);
    return number;
}

static int rename_path(void *arg, const char *from, const char *to)
{
    (void)arg;
    return number_of(rename(from, to));
}

static int remove_path(void *arg, const char *path)
{
    (void)arg;
    return number_of(remove(path));
}

static int list_dir(void *arg, const char *path, void (*each)(void *what, const char *name), void *what)
{
    int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), number; /* ThreadSanitizer does not follow opendir */
    DIR *dir = file >= 0 ? fdopendir(file) : NULL;
    const struct dirent *entry;
    (void)arg;

    if (dir == NULL) {
        number = errno;
        if (file >= 0) close(file);
        return number;
    }
    while (errno = 0, (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) each(what, entry->d_name);
    number = errno;
    closedir(dir);
    return number;
}

static int space_of_disk(void *arg, const char *path, uint64_t *bytes)
{
    struct statvfs about;
    (void)arg;

    if (statvfs(path, &about) != 0) return errno;
    *bytes = (uint64_t)about.f_bavail * about.f_frsize;
    return 0;
}

const pd_disk pd_disk_posix = {
    .make_dir = make_dir,
    .create = create_file,
    .write = write_file,
    .reopen = reopen_file,
    .write_at = write_file_at,
    .sync_file = sync_file,
    .sync_data = sync_data,
    .open = open_file,
    .size = size_of_file,
    .read = read_file,
    .close = close_file,
    .sync_dir = sync_dir,
    .rename = rename_path,
    .remove = remove_path,
    .list = list_dir,
    .space = space_of_disk,
};

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
