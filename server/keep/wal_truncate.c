/* wal_truncate.c - makes a log end with the step to which its job has come back; sets a log aside, and removes it. */
#include "wal_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "job_dir.h"
#include "wal_index.h"

static int sync_dir(const pd_disk *disk, const char *path, pd_error *err)
{
    int number = disk->sync_dir(disk->arg, path);

    return number == 0 ? PD_OK : pd_disk_fail(err, number, "sync the directory", path);
}

/* ---- cutting ---- */

/* Returns whether a file has one of the entries from step base + 1 to `step`, which follow each other. */
static bool is_on_path(const pd_wal_index *index, size_t file, uint64_t base, uint64_t step)
{
    size_t spot = pd_wal_index_find(index, base + 1);

    for (; spot != PD_WAL_NOWHERE && index->spots[spot].header.step <= step; spot = index->spots[spot].next)
        if (index->spots[spot].file == file) return true;
    return false;
}

/* Lets a file end with a step by its name. */
static int limit(const pd_wal_index *index, size_t file, uint64_t step, pd_error *err)
{
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH], name[PD_KEEP_NAME];
    int number;

    pd_wal_index_path(from, index, file);
    pd_keep_segment_name(name, PD_SEGMENT_UP_TO, index->files[file].number, step);
    pd_keep_join(to, index->dir, name);
    number = index->disk->rename(index->disk->arg, from, to);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "rename", from);
}

/* Waits until the disk has a file: a daemon that was killed may have written entries without that. */
static int settle(const pd_wal_index *index, size_t file, pd_error *err)
{
    const pd_disk *disk = index->disk;
    char path[PD_KEEP_PATH];
    int handle, number;

    pd_wal_index_path(path, index, file);
    if ((number = disk->reopen(disk->arg, path, 0, &handle)) != 0) return pd_disk_fail(err, number, "open", path);
    number = disk->sync_data(disk->arg, handle);
    disk->close(disk->arg, handle);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "sync", path);
}

static int cut_file(const pd_wal_index *index, size_t i, uint64_t base, uint64_t step, pd_error *err)
{
    const pd_wal_file *file = &index->files[i];
    int rc;

    if (!is_on_path(index, i, base, step)) return file->up_to > 0 ? limit(index, i, 0, err) : PD_OK;
    rc = settle(index, i, err);
    return rc == PD_OK && file->last > step ? limit(index, i, step, err) : rc;
}

/* Makes the log that was read end with a step. Frees the index. */
static int cut(pd_wal_index *index, uint64_t base, uint64_t step, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; i < index->n_files && rc == PD_OK; i++) rc = cut_file(index, i, base, step, err);
    if (rc == PD_OK && index->n_files > 0) rc = sync_dir(index->disk, index->dir, err);
    pd_wal_index_free(index);
    return rc;
}

int pd_wal_truncate(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t base, uint64_t step,
                    pd_error *err)
{
    pd_wal_index index;
    int rc = pd_wal_index_read(&index, disk, job_dir, PD_KEEP_STEPS, creator, false, err);

    return rc == PD_OK ? cut(&index, base, step, err) : rc;
}

int pd_control_cut(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t number, pd_error *err)
{
    pd_wal_index index;
    int rc = pd_wal_index_read(&index, disk, job_dir, PD_KEEP_DECISIONS, creator, false, err);

    return rc == PD_OK ? cut(&index, pd_wal_index_base(&index), number, err) : rc;
}

/* ---- setting aside, removing ---- */

/* Gives the directory `old` of a job the name `new`, or the first free one of new.2, new.3 ... */
static int set_aside(const pd_disk *disk, const char *job_dir, const char *old, const char *new, bool *was_there,
                     pd_error *err)
{
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH], name[PD_KEEP_NAME];
    int number = EEXIST;

    snprintf(name, sizeof name, "%s", new);
    pd_keep_join(from, job_dir, old);
    for (int i = 2; i < 1000 && (number == EEXIST || number == ENOTEMPTY); i++) {
        pd_keep_join(to, job_dir, name);
        number = disk->rename(disk->arg, from, to);
        snprintf(name, sizeof name, "%s.%d", new, i);
    }
    *was_there = number == 0;
    if (number == ENOENT) return PD_OK;
    return number == 0 ? sync_dir(disk, job_dir, err) : pd_disk_fail(err, number, "rename", from);
}

int pd_wal_set_aside(const pd_disk *disk, const char *job_dir, bool *was_there, pd_error *err)
{
    bool control;
    int rc = set_aside(disk, job_dir, PD_KEEP_STEPS, PD_KEEP_STEPS_ASIDE, was_there, err);

    return rc == PD_OK ? set_aside(disk, job_dir, PD_KEEP_DECISIONS, PD_KEEP_DECISIONS_ASIDE, &control, err) : rc;
}

int pd_wal_remove(const pd_disk *disk, const char *job_dir, pd_error *err)
{
    char dir[PD_KEEP_PATH];

    pd_keep_join(dir, job_dir, PD_KEEP_STEPS);
    return pd_keep_remove_dir(disk, dir, err);
}

int pd_control_remove(const pd_disk *disk, const char *job_dir, pd_error *err)
{
    char dir[PD_KEEP_PATH];

    pd_keep_join(dir, job_dir, PD_KEEP_DECISIONS);
    return pd_keep_remove_dir(disk, dir, err);
}
