/* state_dir.c - opens and locks a state directory. */
#include "state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"
#include "keep_names.h"

/* Checks that nobody but the owner, who must be this user or root, can write into the directory. Root may use that of
 * any user, as paramctl does when an operator restores a checkpoint. */
static int check_owner(const char *path, pd_error *err)
{
    struct stat about;

    if (stat(path, &about) != 0) return pd_disk_fail(err, errno, "look at the state directory", path);
    if (!S_ISDIR(about.st_mode)) return pd_fail(err, PD_FAILED_PRECONDITION, "%.300s: expected a directory", path);
    if (about.st_uid != geteuid() && about.st_uid != 0 && geteuid() != 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.300s: it belongs to user %ld, expected %ld: chown it, or choose another state directory",
                       path, (long)about.st_uid, (long)geteuid());
    if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.300s: other users may write in it (mode %04o): chmod it to 0700, since they could exchange "
                       "the state of jobs",
                       path, (unsigned)(about.st_mode & 07777));
    return PD_OK;
}

/* Writes the number of this process into the lock file, for people who find the directory locked. */
static void note_process(int lock)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());

    if (ftruncate(lock, 0) == 0 && pwrite(lock, text, (size_t)n, 0) < 0) return; /* for information only */
}

/* Says who has the lock. */
static int held(int lock, const char *path, pd_error *err)
{
    char text[32] = "";
    ssize_t n = pread(lock, text, sizeof text - 1, 0);

    text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
    return pd_fail(err, PD_UNAVAILABLE, "%.300s: in use by another process (%s): stop it, or choose another directory",
                   path, text[0] != '\0' ? text : "?");
}

int pd_state_dir_open(pd_state_dir *dir, const char *path, bool create, pd_error *err)
{
    char name[PD_KEEP_PATH];
    int rc = pd_keep_check_root(path, err), number;

    dir->lock = -1;
    if (rc != PD_OK) return rc;
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST)
        return pd_disk_fail(err, errno, "make the state directory", path);
    if ((rc = check_owner(path, err)) != PD_OK) return rc;
    pd_keep_join(name, path, PD_KEEP_LOCK);
    dir->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (dir->lock < 0) return pd_disk_fail(err, errno, "open", name);
    if (flock(dir->lock, LOCK_EX | LOCK_NB) == 0) {
        note_process(dir->lock);
        return PD_OK;
    }
    number = errno;
    rc = number == EWOULDBLOCK ? held(dir->lock, path, err) : pd_disk_fail(err, number, "lock", name);
    pd_state_dir_close(dir);
    return rc;
}

void pd_state_dir_close(pd_state_dir *dir)
{
    if (dir->lock >= 0) close(dir->lock);
    dir->lock = -1;
}
