/* checkpoint_back.c - makes an earlier checkpoint of a job its newest one: for a running job, and before a start of the
 * daemon. */
#include "checkpoint_files.h"
#include "state_dir.h"
#include "wal_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pd_checkpoint_is_foreign(const pd_checkpoint_about *there, const pd_checkpoint_about *here)
{
    return strcmp(here->blas, there->blas) != 0 || strcmp(here->cpu, there->cpu) != 0;
}

/* ---- renaming later checkpoints ---- */

/* A checkpoint that was renamed. */
typedef struct renamed {
    char from[PD_KEEP_NAME], to[PD_KEEP_NAME];
} renamed;

/* The checkpoints of a job that are later than a step, while they are renamed. */
typedef struct withdrawal {
    const pd_disk *disk;
    const char *job_dir; /* path of the job's directory */
    uint64_t step;       /* step of the last checkpoint that stays in use */
    bool removes;        /* the new names are those of temporary directories, which the checkpoint writer removes */
    renamed *at;         /* the checkpoints that have new names */
    size_t n;
} withdrawal;

static int rename_entry(const withdrawal *w, const char *old, const char *new)
{
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH];

    pd_keep_join(from, w->job_dir, old);
    pd_keep_join(to, w->job_dir, new);
    return w->disk->rename(w->disk->arg, from, to);
}

/* Renames a checkpoint to the first free name of aside-STEP, aside-STEP.2 ... A daemon that starts ignores these
 * names. Returns the error number. */
static int set_aside(const withdrawal *w, const pd_step_entry *entry, char name[PD_KEEP_NAME])
{
    int number = EEXIST;

    pd_keep_step_name(name, PD_STEP_ASIDE, entry->step);
    for (int i = 2; i < 1000 && (number = rename_entry(w, entry->name, name)) != 0; i++) {
        if (number != EEXIST && number != ENOTEMPTY) break;
        pd_keep_step_name(name, PD_STEP_ASIDE, entry->step);
        snprintf(name + strlen(name), PD_KEEP_NAME - strlen(name), ".%d", i);
    }
    return number;
}

/* Renames a checkpoint to tmp-STEP, after it has removed what has this name. Returns the error number. */
static int make_temporary(const withdrawal *w, const pd_step_entry *entry, char name[PD_KEEP_NAME])
{
    char path[PD_KEEP_PATH];

    pd_keep_step_name(name, PD_STEP_TEMPORARY, entry->step);
    pd_keep_join(path, w->job_dir, name);
    (void)pd_keep_remove_dir(w->disk, path, NULL); /* if that fails, so does renaming */
    return rename_entry(w, entry->name, name);
}

static int withdraw_one(withdrawal *w, const pd_step_entry *entry, pd_error *err)
{
    renamed *to = &w->at[w->n];
    int number = w->removes ? make_temporary(w, entry, to->to) : set_aside(w, entry, to->to);

    if (number != 0) return pd_disk_fail(err, number, "rename", entry->name);
    snprintf(to->from, sizeof to->from, "%s", entry->name);
    w->n++;
    return PD_OK;
}

static bool is_later(const withdrawal *w, const pd_step_entry *entry)
{
    return entry->step > w->step && (entry->kind == PD_STEP_CURRENT || entry->kind == PD_STEP_OLD);
}

/* Gives the renamed checkpoints their names back. Returns false if the disk refuses that. */
static bool undo(withdrawal *w)
{
    bool good = true;

    while (w->n > 0) {
        w->n--;
        good &= rename_entry(w, w->at[w->n].to, w->at[w->n].from) == 0;
    }
    return pd_disk_sync_dir(w->disk, w->job_dir, NULL) == PD_OK && good;
}

/* Renames the later checkpoints: the newest one last, after the other new names are on the disk. While it has its name,
 * a restart uses it. So a crash never makes a restart use one in between. The first sync is for names that a failed
 * attempt to write a checkpoint has left unsynced: make_temporary removes its files. */
static int rename_all(withdrawal *w, const pd_step_list *list, pd_error *err)
{
    size_t newest = list->n;
    int rc = pd_disk_sync_dir(w->disk, w->job_dir, err);

    for (size_t i = list->n; i-- > 0;)
        if (is_later(w, &list->at[i])) newest = i;
    for (size_t i = list->n; i-- > 0 && rc == PD_OK;) {
        if (!is_later(w, &list->at[i]) || i == newest) continue;
        rc = withdraw_one(w, &list->at[i], err);
    }
    if (rc == PD_OK && w->n > 0) rc = pd_disk_sync_dir(w->disk, w->job_dir, err);
    if (rc == PD_OK && newest < list->n) rc = withdraw_one(w, &list->at[newest], err);
    return rc == PD_OK && w->n > 0 ? pd_disk_sync_dir(w->disk, w->job_dir, err) : rc;
}

/* Lets restarts ignore the checkpoints in the list that are later than w->step. After an error all of them have their
 * names again, or the error says that they have not. */
static int withdraw(withdrawal *w, const pd_step_list *list, size_t *n, pd_error *err)
{
    pd_error why = { 0 };
    int rc;

    *n = 0;
    if ((w->at = calloc(list->n + 1, sizeof *w->at)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    rc = rename_all(w, list, &why);
    *n = w->n;
    if (rc != PD_OK)
        pd_fail(err, rc, "%.400s%s", why.text,
                undo(w) ? "" : "; later checkpoints could not get their names back, so a restart may not use them");
    free(w->at);
    return rc;
}

/* ---- a running job ---- */

/* Loads the checkpoint of the order's step, or the newest one before it if the WAL has the step. If the step has
 * several, loads the newest intact one. */
static int load_step(const pd_disk *disk, const char *job_dir, const pd_step_list *list, const pd_go_back_order *order,
                     pd_checkpoint_image **out, pd_manifest *manifest, pd_error *err)
{
    char dir[PD_KEEP_PATH];
    int rc = pd_fail(err, PD_NOT_FOUND, "%.300s: there is no checkpoint of step %" PRIu64, job_dir, order->step);

    for (size_t i = 0; i < list->n && rc != PD_OK && rc != PD_NO_MEMORY; i++) {
        const pd_step_entry *entry = &list->at[i];
        if (order->replays ? entry->step > order->step : entry->step != order->step) continue;
        if (entry->kind != PD_STEP_CURRENT && entry->kind != PD_STEP_OLD) continue;
        pd_keep_join(dir, job_dir, entry->name);
        rc = pd_checkpoint_load(disk, dir, out, manifest, err);
    }
    return rc;
}

/* Checks that a checkpoint that was loaded is one of the job, and that the job may continue from it here. */
static int check_image(const pd_go_back_order *order, pd_checkpoint_image *image, const pd_checkpoint_about *there,
                       const pd_checkpoint_about *here, pd_error *err)
{
    if (strcmp(image->job, order->job) != 0 || image->creator != order->creator)
        return pd_fail(err, PD_DATA_LOSS, "the checkpoint of step %" PRIu64 " belongs to another job", order->step);
    image->foreign = pd_checkpoint_is_foreign(there, here);
    if (!image->foreign || !order->exact) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "the checkpoint of step %" PRIu64 " was made with BLAS kernels %s and instructions %s, here are %s "
                   "and %s: later steps may differ in their last bits, which exact = yes refuses",
                   order->step, there->blas, there->cpu, here->blas, here->cpu);
}

static int stop_after(void *arg, const pd_wal_record *record, pd_error *err)
{
    const pd_go_back_order *order = arg;

    if (record->step <= order->step) return PD_OK;
    return pd_fail(err, PD_CANCELLED, "step %" PRIu64 " is the last", order->step);
}

/* Checks every byte of the records that lead from the checkpoint to the order's step. */
static int check_records(const pd_disk *disk, const char *job_dir, const pd_checkpoint_image *image,
                         pd_go_back_order *order, pd_error *err)
{
    const pd_wal_source from = { disk, job_dir, order->creator, PD_WAL_STEPS, image->place };
    pd_wal_about about;
    int rc;

    if (!order->replays) return PD_OK;
    rc = pd_wal_read(&from, stop_after, order, &about, err);
    if (rc != PD_OK && rc != PD_CANCELLED) return rc;
    if (about.last >= order->step) return PD_OK;
    return pd_fail(err, PD_NOT_FOUND,
                   "the WAL leads from the checkpoint of step %" PRIu64 " to step %" PRIu64 "%s%.300s", image->step,
                   about.last, about.damage.code != PD_OK ? ": " : "", about.damage.text);
}

static int go_back(const pd_disk *disk, const char *job_dir, const pd_checkpoint_about *here, const pd_step_list *list,
                   pd_go_back_order *order, pd_error *err)
{
    withdrawal w = { .disk = disk, .job_dir = job_dir, .step = order->step, .removes = order->removes };
    pd_checkpoint_image *image = NULL;
    pd_manifest manifest;
    size_t n;
    int rc = load_step(disk, job_dir, list, order, &image, &manifest, err);

    if (rc != PD_OK) return rc;
    rc = check_image(order, image, &manifest.about, here, err);
    if (rc == PD_OK) rc = check_records(disk, job_dir, image, order, err);
    if (rc == PD_OK) rc = withdraw(&w, list, &n, err);
    if (rc == PD_OK) {
        pd_checkpoint_describe(image, disk, job_dir, list);
        order->image = image;
    } else {
        pd_checkpoint_image_free(image);
    }
    return rc;
}

/* Reads the next records of a job that has gone back. */
static int read_records(const pd_disk *disk, const char *job_dir, pd_go_back_order *order, pd_error *err)
{
    const pd_wal_source from = { disk, job_dir, order->creator, PD_WAL_STEPS, order->read };
    int rc = pd_wal_read_some(&from, order->step, &order->records, err);

    for (const pd_wal_record *record = order->records; record != NULL; record = record->next)
        order->read = record->step;
    if (rc != PD_OK || order->records != NULL) return rc;
    return pd_fail(err, PD_DATA_LOSS, "the WAL has no record of step %" PRIu64 " any more", order->read + 1);
}

void pd_checkpoint_go_back(const pd_disk *disk, const char *root, const pd_checkpoint_about *here,
                           pd_go_back_order *order)
{
    char job_dir[PD_KEEP_PATH], name[PD_KEEP_NAME];
    pd_step_list list;

    order->error = (pd_error){ 0 };
    if (pd_keep_check_root(root, &order->error) != PD_OK) return;
    pd_keep_job_name(name, order->job, order->creator);
    pd_keep_join(job_dir, root, name);
    if (order->reads) {
        if (read_records(disk, job_dir, order, &order->error) == PD_OK) order->error = (pd_error){ 0 };
        return;
    }
    if (pd_step_list_read(&list, disk, job_dir, &order->error) != PD_OK) return;
    if (go_back(disk, job_dir, here, &list, order, &order->error) == PD_OK) order->error = (pd_error){ 0 };
    pd_step_list_free(&list);
}

/* ---- before a start of the daemon ---- */

/* A search for the directory of a job that has a checkpoint of a step. */
typedef struct search {
    const char *job;
    uint64_t creator, step;
    size_t found;           /* number of jobs that have such a checkpoint */
    char dir[PD_KEEP_PATH]; /* path of the checkpoint's directory */
} search;

static void look(void *arg, const pd_checkpoint_entry *entry)
{
    search *s = arg;

    if (entry->aside || entry->step != s->step || strcmp(entry->manifest->job, s->job) != 0) return;
    if (s->creator != 0 && s->creator != entry->manifest->creator) return;
    /* step-STEP and step-STEP.old of a job come one after the other: only the first counts */
    if (s->found > 0 && strncmp(s->dir, entry->dir, strlen(s->dir)) == 0) return;
    s->found++;
    snprintf(s->dir, sizeof s->dir, "%s", entry->dir);
}

static int find(search *s, const pd_disk *disk, const char *root, pd_error *err)
{
    int rc = pd_checkpoint_list(disk, root, look, s, err);

    if (rc != PD_OK || s->found == 1) return rc;
    if (s->found > 1)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%.300s: %zu jobs named %.100s have a checkpoint of step %" PRIu64 ": name the creator too",
                       root, s->found, s->job, s->step);
    return pd_fail(err, PD_NOT_FOUND, "%.300s: job %.100s has no checkpoint of step %" PRIu64 " with a manifest", root,
                   s->job, s->step);
}

static int set_newer_aside(const pd_disk *disk, const char *job_dir, uint64_t step, size_t *n_aside, pd_error *err)
{
    withdrawal w = { .disk = disk, .job_dir = job_dir, .step = step };
    pd_step_list list;
    int rc = pd_step_list_read(&list, disk, job_dir, err);

    *n_aside = 0;
    if (rc != PD_OK) return rc;
    rc = withdraw(&w, &list, n_aside, err);
    pd_step_list_free(&list);
    return rc;
}

/* Removes the mark that the job has ended, if there is one. */
static int revive(const pd_disk *disk, const char *job_dir, pd_error *err)
{
    char path[PD_KEEP_PATH];
    int number;

    pd_keep_join(path, job_dir, PD_KEEP_ENDED);
    number = disk->remove(disk->arg, path);
    if (number != 0 && number != ENOENT) return pd_disk_fail(err, number, "remove", path);
    number = disk->sync_dir(disk->arg, job_dir);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "sync the directory", job_dir);
}

static void ignore_verdict(void *arg, const char *file, const pd_error *why)
{
    (void)arg, (void)file, (void)why;
}

int pd_checkpoint_restore(const pd_disk *disk, const char *root, const char *job, uint64_t creator, uint64_t step,
                          size_t *n_aside, bool *log_aside, pd_error *err)
{
    search s = { .job = job, .creator = creator, .step = step };
    int rc = find(&s, disk, root, err);

    *log_aside = false;
    if (rc == PD_OK) rc = pd_checkpoint_verify(disk, s.dir, ignore_verdict, NULL, err);
    if (rc != PD_OK) return rc;
    *strrchr(s.dir, '/') = '\0'; /* from here on it is the job's directory */
    rc = set_newer_aside(disk, s.dir, step, n_aside, err);
    if (rc == PD_OK) rc = pd_wal_set_aside(disk, s.dir, log_aside, err);
    return rc == PD_OK ? revive(disk, s.dir, err) : rc;
}
