/* new_file.c - writes a file that gets its name only when it is complete. Until then it has no name or a temporary
 * one. */
#include "new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *path, pd_error *err)
{
    return pd_fail(err, PD_FAILED_PRECONDITION, "%.300s: %s", path, strerror(errno));
}

static int exists(const char *path, pd_error *err)
{
    return pd_fail(err, PD_ALREADY_EXISTS, "%.300s: the file exists: choose another name, or --force replaces it",
                   path);
}

static int open_output(pd_new_file *out, pd_error *err)
{
    if (isatty(STDOUT_FILENO))
        return pd_fail(err, PD_FAILED_PRECONDITION, "standard output is a terminal: send it to a file or a pipe");
    out->fd = STDOUT_FILENO;
    return PD_OK;
}

/* Returns the path of the folder in which a file lies. The caller frees it. NULL: out of memory. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static int open_part(pd_new_file *out)
{
    char *folder = folder_of(out->path);

    out->fd = folder != NULL ? open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666) : -1;
    out->nameless = out->fd >= 0;
    free(folder);
    if (!out->nameless) out->fd = open(out->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return out->fd;
}

int pd_new_file_open(pd_new_file *out, const char *path, bool force, pd_error *err)
{
    *out = (pd_new_file){ .fd = -1, .path = path, .force = force };
    if (strcmp(path, "-") == 0) return open_output(out, err);
    if (!force && access(path, F_OK) == 0) return exists(path, err);
    if (asprintf(&out->part, "%s.%ld.part", path, (long)getpid()) < 0) {
        out->part = NULL;
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    return open_part(out) >= 0 ? PD_OK : fail(out->part, err);
}

int pd_new_file_write(pd_new_file *file, const void *at, size_t bytes, pd_error *err)
{
    const char *from = at;

    while (bytes > 0) {
        ssize_t n = write(file->fd, from, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(file->part != NULL ? file->part : "standard output", err);
        from += n;
        bytes -= (size_t)n;
    }
    return PD_OK;
}

/* Syncs the folder of a file, so that the file's new name is on the disk. Some file systems cannot do it, so errors
 * are ignored. */
static void sync_folder(const char *path)
{
    char *folder = folder_of(path);
    int fd = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
}

/* Renames the file from its temporary name to its final name. Without `force` an existing file is not replaced,
 * except on a file system that cannot rename in this way. */
static int give_name(const pd_new_file *file, pd_error *err)
{
    int rc = renameat2(AT_FDCWD, file->part, AT_FDCWD, file->path, file->force ? 0 : RENAME_NOREPLACE);

    if (rc != 0 && errno == EEXIST) return exists(file->path, err);
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) rc = rename(file->part, file->path);
    return rc == 0 ? PD_OK : fail(file->path, err);
}

/* Gives its temporary name to a file that was opened without a name. */
static int name_part(pd_new_file *file, pd_error *err)
{
    char self[64];

    if (!file->nameless) return PD_OK;
    snprintf(self, sizeof self, "/proc/self/fd/%d", file->fd);
    if (linkat(AT_FDCWD, self, AT_FDCWD, file->part, AT_SYMLINK_FOLLOW) != 0) return fail(file->part, err);
    file->nameless = false;
    return PD_OK;
}

int pd_new_file_commit(pd_new_file *file, pd_error *err)
{
    int rc;

    if (file->part == NULL) return PD_OK;
    if (fsync(file->fd) != 0) return fail(file->part, err);
    if ((rc = name_part(file, err)) != PD_OK) return rc;
    rc = close(file->fd);
    file->fd = -1;
    if (rc != 0) return fail(file->part, err);
    if ((rc = give_name(file, err)) != PD_OK) return rc;
    sync_folder(file->path);
    free(file->part);
    file->part = NULL;
    return PD_OK;
}

void pd_new_file_drop(pd_new_file *file)
{
    if (file->part == NULL) return;
    if (file->fd >= 0) close(file->fd);
    if (!file->nameless) unlink(file->part);
    free(file->part);
    *file = (pd_new_file){ .fd = -1 };
}
