/* log_cut.c - makes a log end with the step to which its job has come back; sets a log aside, and removes it. */
#include "log_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "job_dir.h"
#include "log_index.h"

static int sync_dir(const pd_disk *disk, const char *path, pd_error *err)
{
    int number = disk->sync_dir(disk->arg, path);

    return number == 0 ? PD_OK : pd_disk_fail(err, number, "sync the directory", path);
}

/* ---- cutting ---- */

/* Returns whether a file has one of the entries from step base + 1 to `step`, which follow each other. */
static bool is_on_path(const pd_log_index *index, size_t file, uint64_t base, uint64_t step)
{
    size_t spot = pd_log_index_find(index, base + 1);

    for (; spot != PD_LOG_NOWHERE && index->spots[spot].header.step <= step; spot = index->spots[spot].next)
        if (index->spots[spot].file == file) return true;
    return false;
}

/* Lets a file end with a step by its name. */
static int limit(const pd_log_index *index, size_t file, uint64_t step, pd_error *err)
{
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH], name[PD_KEEP_NAME];
    int number;

    pd_log_index_path(from, index, file);
    pd_keep_segment_name(name, PD_SEGMENT_UP_TO, index->files[file].number, step);
    pd_keep_join(to, index->dir, name);
    number = index->disk->rename(index->disk->arg, from, to);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "rename", from);
}

/* Waits until the disk has a file: a daemon that was killed may have written entries without that. */
static int settle(const pd_log_index *index, size_t file, pd_error *err)
{
    const pd_disk *disk = index->disk;
    char path[PD_KEEP_PATH];
    int handle, number;

    pd_log_index_path(path, index, file);
    if ((number = disk->reopen(disk->arg, path, 0, &handle)) != 0) return pd_disk_fail(err, number, "open", path);
    number = disk->sync_data(disk->arg, handle);
    disk->close(disk->arg, handle);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "sync", path);
}

static int cut_file(const pd_log_index *index, size_t i, uint64_t base, uint64_t step, pd_error *err)
{
    const pd_log_file *file = &index->files[i];
    int rc;

    if (!is_on_path(index, i, base, step)) return file->up_to > 0 ? limit(index, i, 0, err) : PD_OK;
    rc = settle(index, i, err);
    return rc == PD_OK && file->last > step ? limit(index, i, step, err) : rc;
}

int pd_log_cut(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t base, uint64_t step, pd_error *err)
{
    pd_log_index index;
    int rc = pd_log_index_read(&index, disk, job_dir, creator, false, err);

    if (rc != PD_OK) return rc;
    for (size_t i = 0; i < index.n_files && rc == PD_OK; i++) rc = cut_file(&index, i, base, step, err);
    if (rc == PD_OK && index.n_files > 0) rc = sync_dir(disk, index.dir, err);
    pd_log_index_free(&index);
    return rc;
}

/* ---- setting aside, removing ---- */

int pd_log_set_aside(const pd_disk *disk, const char *job_dir, bool *was_there, pd_error *err)
{
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH], name[PD_KEEP_NAME] = PD_KEEP_LOG_ASIDE;
    int number = EEXIST;

    pd_keep_join(from, job_dir, PD_KEEP_LOG);
    for (int i = 2; i < 1000 && (number == EEXIST || number == ENOTEMPTY); i++) {
        pd_keep_join(to, job_dir, name);
        number = disk->rename(disk->arg, from, to);
        snprintf(name, sizeof name, PD_KEEP_LOG_ASIDE ".%d", i);
    }
    *was_there = number == 0;
    if (number == ENOENT) return PD_OK;
    return number == 0 ? sync_dir(disk, job_dir, err) : pd_disk_fail(err, number, "rename", from);
}

int pd_log_remove(const pd_disk *disk, const char *job_dir, pd_error *err)
{
    char dir[PD_KEEP_PATH];

    pd_keep_join(dir, job_dir, PD_KEEP_LOG);
    return pd_keep_remove_dir(disk, dir, err);
}
