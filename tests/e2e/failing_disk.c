/* failing_disk.c - a library for LD_PRELOAD that makes a program's disk fail: reads, writes, fsyncs and renames below
 * one folder.
 *
 * FAILING_DISK_FOLDER is the folder. FAILING_DISK is a file with one line, "CALL ENOSPC|EIO|HANG COUNT", where CALL is
 * read, write, fsync or rename: the first COUNT calls of this kind succeed, all later ones fail with that error, or do
 * not return as long as the file says so. The file is read at each call, so a test changes the disk while the program
 * runs. No file, or an empty one: the disk is well. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef struct trouble {
    char call[16], code[16];
    unsigned long after; /* calls that succeed before the first one fails */
} trouble;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_text[64]; /* the line that was read last; a new line counts calls from 0 */
static unsigned long calls;

enum { HANGS = -1 };

static int code_of(const char *name)
{
    return strcmp(name, "HANG") == 0 ? HANGS : strcmp(name, "ENOSPC") == 0 ? ENOSPC : EIO;
}

/* Reads the line that says what fails. Uses no call that this library replaces. Returns false if the disk is well. */
static bool read_trouble(char *text, size_t size)
{
    const char *path = getenv("FAILING_DISK");
    int fd = path != NULL ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : 0;

    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Returns the error that this call must have; 0: none, HANGS: it must not return. */
static int next_error(const char *call)
{
    char text[sizeof last_text];
    trouble t;
    int code = 0;

    pthread_mutex_lock(&lock);
    if (read_trouble(text, sizeof text) && sscanf(text, "%15s %15s %lu", t.call, t.code, &t.after) == 3) {
        if (strcmp(text, last_text) != 0) calls = 0;
        strcpy(last_text, text);
        if (strcmp(t.call, call) == 0 && ++calls > t.after) code = code_of(t.code);
    } else {
        last_text[0] = '\0';
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* Returns the error that this call must have; 0: none. Does not return while the disk hangs. */
static int error_of(const char *call)
{
    int code;

    while ((code = next_error(call)) == HANGS) nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    return code;
}

static bool path_is_ours(const char *path)
{
    const char *folder = getenv("FAILING_DISK_FOLDER");

    return folder != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

static bool file_is_ours(int fd)
{
    char link[64], path[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return path_is_ours(path);
}

/* Returns whether a call on a descriptor fails now, with errno set. */
static bool fails(const char *call, int fd)
{
    int before = errno, code = file_is_ours(fd) ? error_of(call) : 0;

    errno = code != 0 ? code : before;
    return code != 0;
}

/* Returns the function of the next library, by which this library replaces it. */
#define NEXT(function) ((__typeof__(&(function)))(uintptr_t)dlsym(RTLD_NEXT, #function))

ssize_t pread(int fd, void *at, size_t n, off_t offset)
{
    return fails("read", fd) ? -1 : NEXT(pread)(fd, at, n, offset);
}

ssize_t pread64(int fd, void *at, size_t n, off64_t offset)
{
    return fails("read", fd) ? -1 : NEXT(pread64)(fd, at, n, offset);
}

ssize_t write(int fd, const void *at, size_t n)
{
    return fails("write", fd) ? -1 : NEXT(write)(fd, at, n);
}

ssize_t pwrite(int fd, const void *at, size_t n, off_t offset)
{
    return fails("write", fd) ? -1 : NEXT(pwrite)(fd, at, n, offset);
}

ssize_t pwrite64(int fd, const void *at, size_t n, off64_t offset)
{
    return fails("write", fd) ? -1 : NEXT(pwrite64)(fd, at, n, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int n)
{
    return fails("write", fd) ? -1 : NEXT(writev)(fd, parts, n);
}

ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t offset)
{
    return fails("write", fd) ? -1 : NEXT(pwritev)(fd, parts, n, offset);
}

int fsync(int fd)
{
    return fails("fsync", fd) ? -1 : NEXT(fsync)(fd);
}

int fdatasync(int fd)
{
    return fails("fsync", fd) ? -1 : NEXT(fdatasync)(fd);
}

/* Returns whether a rename from or to a path fails now, with errno set. A path that is not absolute is taken to be
 * below the folder. */
static bool rename_fails(const char *from, const char *to)
{
    bool ours = path_is_ours(from) || path_is_ours(to) || from[0] != '/';
    int before = errno, code = ours ? error_of("rename") : 0;

    errno = code != 0 ? code : before;
    return code != 0;
}

int rename(const char *from, const char *to)
{
    return rename_fails(from, to) ? -1 : NEXT(rename)(from, to);
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    return rename_fails(from, to) ? -1 : NEXT(renameat)(from_at, from, to_at, to);
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    return rename_fails(from, to) ? -1 : NEXT(renameat2)(from_at, from, to_at, to, flags);
}
