/* out_folder.c - makes a folder of state directories under a temporary name, and renames it when it is complete. */
#include "out_folder.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes the path of the folder that contains `path`. */
static void parent_of(char out[PD_KEEP_PATH], const char *path)
{
    char *slash;

    snprintf(out, PD_KEEP_PATH, "%s", path);
    slash = strrchr(out, '/');
    if (slash == NULL)
        strcpy(out, ".");
    else
        slash[slash == out] = '\0';
}

int pd_out_folder_begin(pd_out_folder *out, const char *path, pd_error *err)
{
    struct stat about;
    size_t n = strlen(path);
    int rc = pd_keep_check_root(path, err), number;

    *out = (pd_out_folder){ .made = false };
    if (rc != PD_OK) return rc;
    while (n > 1 && path[n - 1] == '/') n--;
    snprintf(out->path, sizeof out->path, "%.*s", (int)n, path);
    snprintf(out->temporary, sizeof out->temporary, "%.*s.part", (int)n, path);
    if (lstat(out->path, &about) == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION, "%.300s exists: choose another name, or remove it", out->path);
    number = pd_disk_posix.make_dir(pd_disk_posix.arg, out->temporary);
    if (number == EEXIST)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "%.300s exists: another reshard writes it, or one has left it that was interrupted; then remove it",
            out->temporary);
    if (number != 0) return pd_disk_fail(err, number, "make the directory", out->temporary);
    out->made = true;
    return PD_OK;
}

int pd_out_folder_add(const pd_out_folder *out, size_t i, char dir[PD_KEEP_PATH], pd_error *err)
{
    char name[24];
    int number;

    snprintf(name, sizeof name, "%zu", i);
    pd_keep_join(dir, out->temporary, name);
    number = pd_disk_posix.make_dir(pd_disk_posix.arg, dir);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "make the directory", dir);
}

int pd_out_folder_end(pd_out_folder *out, pd_error *err)
{
    char parent[PD_KEEP_PATH];
    int number, rc = pd_disk_sync_dir(&pd_disk_posix, out->temporary, err);

    if (rc != PD_OK) return rc;
    if ((number = pd_disk_posix.rename(pd_disk_posix.arg, out->temporary, out->path)) != 0)
        return pd_disk_fail(err, number, "rename", out->temporary);
    out->made = false;
    parent_of(parent, out->path);
    return pd_disk_sync_dir(&pd_disk_posix, parent, err);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about, (void)kind, (void)where;
    return remove(path);
}

void pd_out_folder_free(pd_out_folder *out)
{
    if (out->made) (void)nftw(out->temporary, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    out->made = false;
}
