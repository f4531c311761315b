/* checkpoint_write.c - writes checkpoints to a disk, so that a complete one is there at every moment, and removes old
 * ones. */
#include "checkpoint_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state_dir.h"
#include "state_bin.h"
#include "mutant.h"
#include "weights_file.h"

/* Bytes that a checkpoint needs on the disk besides its three large files: for the manifest, for directories, and for
 * the unused ends of disk blocks. */
enum { SPARE_BYTES = 256 << 10 };

/* An attempt to write a checkpoint. */
typedef struct attempt {
    const pd_disk *disk;
    const char *root;
    pd_checkpoint_image *kept;
    pd_manifest manifest;
    pd_file_writer writer;
    pd_step_list before;        /* the checkpoints in the job's directory before the attempt */
    char job_dir[PD_KEEP_PATH]; /* path of the job's directory */
    char tmp[PD_KEEP_PATH];     /* path of the checkpoint until it is complete */
    char final[PD_KEEP_PATH];   /* path of the complete checkpoint */
    char old[PD_KEEP_PATH];     /* new path of an earlier checkpoint of the same step */
    bool made, published;       /* the directory `tmp` was made; it was renamed to `final` */
    bool replaced;              /* an earlier checkpoint of the same step was renamed from `final` to `old` */
} attempt;

static void step_path(char out[PD_KEEP_PATH], const char *job_dir, pd_step_kind kind, uint64_t step)
{
    char name[PD_KEEP_NAME];

    pd_keep_step_name(name, kind, step);
    pd_keep_join(out, job_dir, name);
}

static int rename_dir(const pd_disk *disk, const char *from, const char *to, pd_error *err)
{
    int number = disk->rename(disk->arg, from, to);

    return number == 0 ? PD_OK : pd_disk_fail(err, number, "rename", from);
}

/* ---- preparing ---- */

void pd_checkpoint_job_dir(char out[PD_KEEP_PATH], const char *root, const pd_checkpoint_image *kept)
{
    char name[PD_KEEP_NAME];

    pd_keep_job_name(name, kept->job, kept->creator);
    pd_keep_join(out, root, name);
}

static void name_paths(attempt *a)
{
    pd_checkpoint_job_dir(a->job_dir, a->root, a->kept);
    step_path(a->tmp, a->job_dir, PD_STEP_TEMPORARY, a->kept->step);
    step_path(a->final, a->job_dir, PD_STEP_CURRENT, a->kept->step);
}

/* Makes the job's directory, if it does not exist, and syncs it and its parent. Syncs even if the directory existed: an
 * earlier attempt may have failed before the sync. Then the disk may have other names than the directory shows, and the
 * files of a temporary directory may have the name of a checkpoint there. So none is removed before the sync. */
static int make_job_dir(attempt *a, pd_error *err)
{
    int number = a->disk->make_dir(a->disk->arg, a->job_dir), rc;

    if (number != 0 && number != EEXIST) return pd_disk_fail(err, number, "make the directory", a->job_dir);
    rc = pd_disk_sync_dir(a->disk, a->root, err);
    return rc == PD_OK ? pd_disk_sync_dir(a->disk, a->job_dir, err) : rc;
}

/* Removes a checkpoint. Renames it to a temporary name first, so that a checkpoint that is removed only in part does
 * not look damaged. */
static void discard(const pd_disk *disk, const char *job_dir, const pd_step_entry *entry)
{
    char path[PD_KEEP_PATH], tmp[PD_KEEP_PATH];

    pd_keep_join(path, job_dir, entry->name);
    step_path(tmp, job_dir, PD_STEP_TEMPORARY, entry->step);
    if (entry->kind == PD_STEP_TEMPORARY || rename_dir(disk, path, tmp, NULL) == PD_OK)
        (void)pd_keep_remove_dir(disk, tmp, NULL);
}

/* Removes the temporary directories that earlier attempts have left. */
static int sweep(const attempt *a, pd_error *err)
{
    char path[PD_KEEP_PATH];
    int rc = PD_OK;

    for (size_t i = 0; PD_MUTANT(old_removed_first) && i < a->before.n; i++)
        discard(a->disk, a->job_dir, &a->before.at[i]);
    for (size_t i = 0; i < a->before.n && rc == PD_OK; i++) {
        if (a->before.at[i].kind != PD_STEP_TEMPORARY) continue;
        pd_keep_join(path, a->job_dir, a->before.at[i].name);
        rc = pd_keep_remove_dir(a->disk, path, err);
    }
    return rc;
}

static int check_space(const attempt *a, pd_error *err)
{
    uint64_t need = pd_weights_file_bytes(a->kept) + pd_state_bin_bytes(a->kept) + pd_notes_bin_bytes(a->kept), space;
    int number = a->disk->space(a->disk->arg, a->job_dir, &space);

    need += SPARE_BYTES;
    if (number != 0) return pd_disk_fail(err, number, "tell the free space", a->job_dir);
    if (space >= need) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "%.300s: a checkpoint needs %" PRIu64 " MiB, and %" PRIu64
                   " MiB are free: make room there, or lower the job's checkpoint_keep",
                   a->root, (need >> 20) + 1, space >> 20);
}

static int prepare(attempt *a, pd_error *err)
{
    int rc = pd_file_writer_init(&a->writer, a->disk, err);

    name_paths(a);
    if (rc == PD_OK) rc = make_job_dir(a, err);
    if (rc == PD_OK) rc = pd_step_list_read(&a->before, a->disk, a->job_dir, err);
    if (rc == PD_OK) rc = sweep(a, err);
    return rc == PD_OK ? check_space(a, err) : rc;
}

/* ---- filling the temporary directory ---- */

static int write_manifest(attempt *a, pd_error *err)
{
    pd_file_sum sum;
    char *text;
    size_t bytes;
    int rc;

    snprintf(a->manifest.job, sizeof a->manifest.job, "%s", a->kept->job);
    a->manifest.creator = a->kept->creator;
    a->manifest.step = a->kept->step;
    a->manifest.place = a->kept->place;
    a->manifest.together = a->kept->has_common;
    if ((rc = pd_manifest_text(&text, &bytes, &a->manifest, err)) != PD_OK) return rc;
    rc = pd_file_writer_open(&a->writer, a->tmp, PD_KEEP_MANIFEST, 0, err);
    if (rc == PD_OK) rc = pd_file_writer_put(&a->writer, text, bytes, err);
    if (rc == PD_OK) rc = pd_file_writer_close(&a->writer, &sum, err);
    free(text);
    a->kept->bytes = pd_manifest_bytes(&a->manifest) + bytes;
    return rc;
}

static int fill(attempt *a, pd_error *err)
{
    int number = a->disk->make_dir(a->disk->arg, a->tmp), rc;
    pd_file_sum *sum = a->manifest.file;

    if (number != 0) return pd_disk_fail(err, number, "make the directory", a->tmp);
    a->made = true;
    rc = pd_weights_file_write(&a->writer, a->tmp, a->kept, &sum[PD_KEEP_WEIGHTS], err);
    if (rc == PD_OK) rc = pd_state_bin_write(&a->writer, a->tmp, a->kept, &sum[PD_KEEP_STATE], err);
    if (rc == PD_OK) rc = pd_notes_bin_write(&a->writer, a->tmp, a->kept, &sum[PD_KEEP_NOTES], err);
    if (rc == PD_OK) rc = write_manifest(a, err);
    return rc == PD_OK ? pd_disk_sync_dir(a->disk, a->tmp, err) : rc;
}

/* ---- renaming the complete checkpoint ---- */

/* Chooses the new name of an earlier checkpoint of the same step: one with a larger number than the old checkpoints of
 * this step have. Those stay, because it is unknown which of them are intact: the job may have been restored from any
 * of them. */
static int choose_old_name(attempt *a, pd_error *err)
{
    char name[PD_KEEP_NAME];
    int number = 0;

    for (size_t i = 0; i < a->before.n; i++)
        for (int n = 1; a->before.at[i].kind == PD_STEP_OLD && n <= PD_KEEP_OLDS; n++) {
            pd_keep_old_name(name, a->kept->step, n);
            if (strcmp(name, a->before.at[i].name) == 0 && n > number) number = n;
        }
    pd_keep_old_name(name, a->kept->step, number + 1);
    pd_keep_join(a->old, a->job_dir, name);
    if (number < PD_KEEP_OLDS) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "%.300s: step %" PRIu64 " has %d old checkpoints already: remove those that `paramctl verify` calls "
                   "damaged",
                   a->job_dir, a->kept->step, number);
}

/* Renames an earlier checkpoint of the same step, so that the new one can have its name. */
static int step_aside(attempt *a, pd_error *err)
{
    int rc;

    if (!pd_step_list_has(&a->before, PD_STEP_CURRENT, a->kept->step)) return PD_OK;
    rc = choose_old_name(a, err);
    if (rc == PD_OK) rc = rename_dir(a->disk, a->final, a->old, err);
    a->replaced = rc == PD_OK;
    return rc;
}

/* Returns whether checkpoint i of the list is of the kind PD_STEP_OLD, and its step also has a newer checkpoint. */
static bool is_replaced(const pd_step_list *list, size_t i)
{
    const pd_step_entry *entry = &list->at[i];

    if (entry->kind != PD_STEP_OLD) return false;
    return pd_step_list_has(list, PD_STEP_CURRENT, entry->step) ||
           (i > 0 && list->at[i - 1].kind == PD_STEP_OLD && list->at[i - 1].step == entry->step);
}

/* Renames checkpoints of later steps than this one to temporary names. They were damaged when the job was restored, so
 * it continued from an earlier step, and differently. If a later restart could read them, it would restore steps that
 * this job has not taken. *any: there were such checkpoints. */
static int withdraw_later(attempt *a, bool *any, pd_error *err)
{
    char path[PD_KEEP_PATH], tmp[PD_KEEP_PATH];
    int rc = PD_OK;

    *any = false;
    for (size_t i = 0; i < a->before.n && rc == PD_OK && a->before.at[i].step > a->kept->step; i++) {
        const pd_step_entry *entry = &a->before.at[i];
        if (is_replaced(&a->before, i)) {
            pd_keep_join(path, a->job_dir, entry->name);
            rc = pd_keep_remove_dir(a->disk, path, err);
        } else if (entry->kind == PD_STEP_CURRENT || entry->kind == PD_STEP_OLD) {
            pd_keep_join(path, a->job_dir, entry->name);
            step_path(tmp, a->job_dir, PD_STEP_TEMPORARY, entry->step);
            rc = rename_dir(a->disk, path, tmp, err);
        }
        *any = true;
    }
    return rc;
}

static int publish(attempt *a, pd_error *err)
{
    bool any;
    int rc = step_aside(a, err);

    if (rc == PD_OK) rc = rename_dir(a->disk, a->tmp, a->final, err);
    a->published = rc == PD_OK;
    if (rc == PD_OK && !PD_MUTANT(rename_unsynced)) rc = pd_disk_sync_dir(a->disk, a->job_dir, err);
    if (rc == PD_OK) rc = withdraw_later(a, &any, err);
    return rc == PD_OK && any ? pd_disk_sync_dir(a->disk, a->job_dir, err) : rc;
}

/* ---- the end ---- */

/* Undoes an attempt that has failed: restores the name of an earlier checkpoint, and removes the new files once the
 * disk has that name. Before the sync the disk may have the new files under this name, and no name for the earlier
 * checkpoint. The next attempt removes the files that could not be removed. */
static void abandon(attempt *a)
{
    if (a->published && rename_dir(a->disk, a->final, a->tmp, NULL) != PD_OK) return;
    if (a->replaced) (void)rename_dir(a->disk, a->old, a->final, NULL);
    if ((a->published || a->replaced) && !PD_MUTANT(abandons_unsynced) &&
        pd_disk_sync_dir(a->disk, a->job_dir, NULL) != PD_OK)
        return;
    if (a->made) (void)pd_keep_remove_dir(a->disk, a->tmp, NULL);
}

/* Returns whether an entry of a job's directory is a checkpoint that counts: it has its name, and no newer one of the
 * same step replaces it. */
static bool counts(const pd_step_list *list, const pd_step_entry *entry)
{
    return entry->kind == PD_STEP_CURRENT ||
           (entry->kind == PD_STEP_OLD && !pd_step_list_has(list, PD_STEP_CURRENT, entry->step));
}

/* Counts the checkpoints of a job from the newest on, and says which of them stay. */
typedef struct selection {
    const pd_retention *retention;
    uint64_t n;  /* number of checkpoints so far */
    bool common; /* the newest one up to step retention->common was among them */
} selection;

/* Returns whether the next checkpoint, of step `step`, stays. */
static bool stays(selection *s, uint64_t step)
{
    const pd_retention *r = s->retention;
    uint64_t before = s->n++;
    bool first = r->has_common && !s->common && step <= r->common;

    if (first) s->common = true;
    if (before < (r->keep > 0 ? r->keep : 1) || first) return true;
    return r->has_common && !s->common && before + 1 < PD_KEPT_MOST;
}

void pd_checkpoint_tidy(const pd_disk *disk, const char *job_dir, const pd_retention *retention)
{
    selection chosen = { .retention = retention };
    pd_step_list list;

    if (pd_step_list_read(&list, disk, job_dir, NULL) != PD_OK) return;
    for (size_t i = 0; i < list.n; i++) {
        const pd_step_entry *entry = &list.at[i];
        if (entry->kind == PD_STEP_ASIDE) continue;
        if (PD_MUTANT(retention_takes_newest) && i == 0 && list.n > 1) {
            discard(disk, job_dir, entry);
            continue;
        }
        if (!counts(&list, entry) || !stays(&chosen, entry->step)) discard(disk, job_dir, entry);
    }
    pd_step_list_free(&list);
    (void)pd_disk_sync_dir(disk, job_dir, NULL);
}

/* Lists the steps to which the job can go back once pd_checkpoint_tidy has removed older checkpoints: the step of the
 * new checkpoint, and those before it. */
static void list_kept(attempt *a)
{
    const pd_retention retention = pd_checkpoint_retention(a->kept);
    selection chosen = { .retention = &retention };
    pd_kept_steps *kept = &a->kept->kept;

    *kept = (pd_kept_steps){ 0 };
    if (stays(&chosen, a->kept->step)) pd_kept_steps_add(kept, a->kept->step);
    for (size_t i = 0; i < a->before.n; i++) {
        const pd_step_entry *entry = &a->before.at[i];
        if (entry->step < a->kept->step && counts(&a->before, entry) && stays(&chosen, entry->step))
            pd_kept_steps_add(kept, entry->step);
    }
}

pd_retention pd_checkpoint_retention(const pd_checkpoint_image *kept)
{
    return (pd_retention){ kept->keep, kept->has_common, kept->common };
}

/* Writes the mark that a job has ended. Does nothing if the job has no directory, since a restart cannot restore it
 * then. */
static int mark_ended(const pd_disk *disk, const char *root, const pd_checkpoint_image *kept, pd_error *err)
{
    char dir[PD_KEEP_PATH], path[PD_KEEP_PATH];
    int number, file, rc = PD_OK;

    pd_checkpoint_job_dir(dir, root, kept);
    pd_keep_join(path, dir, PD_KEEP_ENDED);
    number = disk->create(disk->arg, path, 0, &file);
    if (number == ENOENT) return PD_OK;
    if (number != 0 && number != EEXIST) return pd_disk_fail(err, number, "create the file", path);
    if (number == 0) {
        if ((number = disk->sync_file(disk->arg, file)) != 0) rc = pd_disk_fail(err, number, "sync", path);
        disk->close(disk->arg, file);
    }
    return rc == PD_OK && !PD_MUTANT(end_unsynced) ? pd_disk_sync_dir(disk, dir, err) : rc;
}

int pd_checkpoint_put(const pd_disk *disk, const char *root, pd_checkpoint_image *kept,
                      const pd_checkpoint_about *about, pd_error *err)
{
    attempt *a;
    int rc = pd_keep_check_root(root, err);

    if (rc != PD_OK) return rc;
    if (kept->ended) return mark_ended(disk, root, kept, err);
    if ((a = calloc(1, sizeof *a)) == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    *a = (attempt){ .disk = disk, .root = root, .kept = kept, .manifest.about = *about };
    rc = prepare(a, err);
    if (rc == PD_OK) rc = fill(a, err);
    if (rc == PD_OK) rc = publish(a, err);
    pd_file_writer_free(&a->writer);
    if (rc == PD_OK)
        list_kept(a);
    else
        abandon(a);
    pd_step_list_free(&a->before);
    free(a);
    return rc;
}

int pd_checkpoint_write(const pd_disk *disk, const char *root, pd_checkpoint_image *kept,
                        const pd_checkpoint_about *about, pd_error *err)
{
    const pd_retention retention = pd_checkpoint_retention(kept);
    char job_dir[PD_KEEP_PATH];
    int rc = pd_checkpoint_put(disk, root, kept, about, err);

    if (rc != PD_OK || kept->ended) return rc;
    pd_checkpoint_job_dir(job_dir, root, kept);
    pd_checkpoint_tidy(disk, job_dir, &retention);
    return PD_OK;
}
