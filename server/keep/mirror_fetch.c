/* mirror_fetch.c - makes a state directory from a mirror. */
#include "mirror.h"

#include "checkpoint_files.h"
#include "state_dir.h"
#include "wal_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The names of a job's directory while it is copied, and of the state that it replaces until that is removed. They are
 * no names of jobs, so a daemon ignores them. */
#define FETCHED ".fetch"
#define REPLACED ".replaced"

/* A state of a job, in the mirror or in the state directory. */
typedef struct state {
    bool exists, ended;
    char name[PD_KEEP_NAME]; /* name of the job's directory */
    pd_manifest manifest;    /* of the newest checkpoint whose files have their sizes */
    uint64_t last;           /* number of the last record of the WAL that follows it; its place if none does */
} state;

/* A fetch, and the job at which it is. */
typedef struct fetch {
    pd_copier copier;
    const char *mirror, *root;
    const pd_mirror_reader *user;
    state job, own; /* in the mirror; in the state directory */
    pd_error why;   /* why a checkpoint of the mirror was left out */
    size_t n_damaged;
    uint64_t bytes, newest;                   /* bytes of the checkpoints that were copied; step of the newest */
    char from[PD_KEEP_PATH];                  /* the job's directory in the mirror */
    char tmp[PD_KEEP_PATH], to[PD_KEEP_PATH]; /* its directory in the state directory, until it is complete, and then */
} fetch;

/* ---- what is there ---- */

/* Reads what a directory says of a job: its newest checkpoint, and how far its WAL leads. */
static int read_state(state *out, const pd_disk *disk, const char *root, const char *name, pd_error *err)
{
    char dir[PD_KEEP_PATH], path[PD_KEEP_PATH];
    pd_wal_source wal = { .disk = disk, .job_dir = dir, .stream = PD_WAL_STEPS };
    pd_step_list list;
    pd_wal_about about;
    int rc;

    *out = (state){ 0 };
    snprintf(out->name, sizeof out->name, "%s", name);
    pd_keep_join(dir, root, name);
    if ((rc = pd_step_list_read(&list, disk, dir, err)) != PD_OK) return rc;
    out->ended = list.ended;
    for (size_t i = 0; i < list.n && !out->exists; i++) {
        if (list.at[i].kind != PD_STEP_CURRENT && list.at[i].kind != PD_STEP_OLD) continue;
        pd_keep_join(path, dir, list.at[i].name);
        out->exists = pd_checkpoint_check(disk, path, &out->manifest, NULL) == PD_OK;
    }
    pd_step_list_free(&list);
    if (!out->exists) return PD_OK;
    wal.creator = out->manifest.creator;
    wal.base = out->manifest.place;
    rc = pd_wal_survey(&wal, &about, err);
    out->last = about.last;
    return rc;
}

/* Returns whether a state of the state directory must not be replaced by, or used beside, one of the mirror. */
static bool is_newer(const state *own, const state *job)
{
    if (!own->exists || own->ended) return false;
    if (strcmp(own->name, job->name) == 0) return own->last > job->last;
    return strcmp(own->manifest.job, job->manifest.job) == 0 &&
           own->manifest.about.written_ms > job->manifest.about.written_ms;
}

/* Compares a job of the mirror with all jobs of the state directory. */
static int check_job(fetch *f, const pd_job_dirs *owns, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; i < owns->n && rc == PD_OK; i++) {
        state *own = &f->own;
        rc = read_state(own, f->copier.to, f->root, owns->at[i], err);
        if (rc != PD_OK || !is_newer(own, &f->job)) continue;
        rc = pd_fail(err, PD_FAILED_PRECONDITION,
                     "%.300s has job %.100s in a newer state (step %" PRIu64 ") than the mirror %.300s (step %" PRIu64
                     "): start the daemon with what is there, or choose an empty state directory",
                     f->root, own->manifest.job, own->last, f->mirror, f->job.last);
    }
    return rc;
}

/* ---- copying a job ---- */

/* Removes a directory of a job with all that is in it. Does nothing if it does not exist. */
static int remove_job(const pd_disk *disk, const char *dir, pd_error *err)
{
    static const char *const streams[] = { PD_KEEP_STEPS, PD_KEEP_DECISIONS };
    char path[PD_KEEP_PATH];
    pd_step_list list;
    int rc = pd_step_list_read(&list, disk, dir, err);

    if (rc != PD_OK) return rc;
    for (size_t i = 0; i < list.n && rc == PD_OK; i++) {
        pd_keep_join(path, dir, list.at[i].name);
        rc = pd_keep_remove_dir(disk, path, err);
    }
    pd_step_list_free(&list);
    for (int i = 0; i < 2 && rc == PD_OK; i++) {
        pd_keep_join(path, dir, streams[i]);
        rc = pd_keep_remove_dir(disk, path, err);
    }
    return rc == PD_OK ? pd_keep_remove_dir(disk, dir, err) : rc;
}

/* Copies a checkpoint. One that is damaged in the mirror is left out. */
static int copy_checkpoint(fetch *f, const char *name, pd_error *err)
{
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH], step[PD_KEEP_NAME];
    pd_manifest manifest;
    pd_error why = { 0 };
    int rc;

    pd_keep_join(from, f->from, name);
    if ((rc = pd_checkpoint_check(f->copier.from, from, &manifest, &why)) == PD_OK) {
        pd_keep_step_name(step, PD_STEP_CURRENT, manifest.step);
        pd_keep_join(to, f->tmp, step);
        rc = pd_copy_checkpoint(&f->copier, from, to, &manifest, &why);
        if (rc == PD_OK) {
            f->bytes += pd_manifest_bytes(&manifest);
            if (f->newest < manifest.step || f->newest == UINT64_MAX) f->newest = manifest.step;
            return PD_OK;
        }
        if (!f->copier.of_source || pd_keep_remove_dir(f->copier.to, to, NULL) != PD_OK)
            return pd_fail(err, rc, "%s", why.text);
    }
    if (f->newest == UINT64_MAX && f->n_damaged++ == 0) f->why = why;
    return rc == PD_DATA_LOSS || rc == PD_NOT_FOUND ? PD_OK : pd_fail(err, rc, "%s", why.text);
}

static int copy_checkpoints(fetch *f, pd_error *err)
{
    pd_step_list list;
    int rc = pd_step_list_read(&list, f->copier.from, f->from, err);
    uint64_t step = UINT64_MAX; /* of the checkpoint that was copied last */

    if (rc != PD_OK) return rc;
    for (size_t i = 0; i < list.n && rc == PD_OK; i++) {
        uint64_t newest = f->newest, bytes = f->bytes;
        if (list.at[i].kind != PD_STEP_CURRENT && list.at[i].kind != PD_STEP_OLD) continue;
        if (list.at[i].step == step) continue;
        rc = copy_checkpoint(f, list.at[i].name, err);
        if (f->bytes > bytes || f->newest != newest) step = list.at[i].step;
    }
    pd_step_list_free(&list);
    if (rc != PD_OK || f->newest != UINT64_MAX) return rc;
    return pd_fail(err, PD_DATA_LOSS, "%.300s: no checkpoint of job %.100s is intact: %.300s", f->mirror,
                   f->job.manifest.job, f->why.text);
}

static int copy_wal(fetch *f, pd_error *err)
{
    pd_wal_copy what = { f->from, f->tmp, f->job.manifest.creator, PD_WAL_STEPS, NULL, NULL };
    pd_wal_copied copied = { 0 };
    int rc = pd_wal_copy_new(&f->copier, &what, &copied, err);

    if (rc != PD_OK) return rc;
    copied = (pd_wal_copied){ 0 };
    what.stream = PD_WAL_DECISIONS;
    return pd_wal_copy_new(&f->copier, &what, &copied, err);
}

static int rename_dir(const pd_disk *disk, const char *from, const char *to, pd_error *err)
{
    int number = disk->rename(disk->arg, from, to);

    return number == 0 ? PD_OK : pd_disk_fail(err, number, "rename", from);
}

/* Gives the complete copy the name of the job's directory. An older state there gets another name until then. */
static int take_place(fetch *f, pd_error *err)
{
    const pd_disk *disk = f->copier.to;
    char old[PD_KEEP_PATH], name[PD_KEEP_NAME + sizeof REPLACED];
    int number, rc;

    snprintf(name, sizeof name, "%s" REPLACED, f->job.name);
    pd_keep_join(old, f->root, name);
    if ((rc = remove_job(disk, old, err)) != PD_OK) return rc;
    number = disk->rename(disk->arg, f->to, old);
    if (number != 0 && number != ENOENT) return pd_disk_fail(err, number, "rename", f->to);
    rc = rename_dir(disk, f->tmp, f->to, err);
    if (rc == PD_OK) rc = pd_disk_sync_dir(disk, f->root, err);
    if (rc != PD_OK) return rc;
    (void)remove_job(disk, old, NULL);
    return PD_OK;
}

static int copy_job(fetch *f, pd_error *err)
{
    const pd_disk *disk = f->copier.to;
    int number, rc = remove_job(disk, f->tmp, err); /* what an earlier attempt has left */

    if (rc != PD_OK) return rc;
    if ((number = disk->make_dir(disk->arg, f->tmp)) != 0)
        return pd_disk_fail(err, number, "make the directory", f->tmp);
    rc = copy_checkpoints(f, err);
    if (rc == PD_OK) rc = copy_wal(f, err);
    if (rc == PD_OK) rc = pd_disk_sync_dir(disk, f->tmp, err);
    if (rc == PD_OK) rc = take_place(f, err);
    if (rc != PD_OK) (void)remove_job(disk, f->tmp, NULL);
    return rc;
}

/* ---- all jobs ---- */

static void tell(const fetch *f, bool had)
{
    const pd_mirror_fetched job = { .job = f->job.manifest.job,
                                    .step = had ? f->job.manifest.step : f->newest,
                                    .last = had || f->newest == f->job.manifest.step ? f->job.last : f->newest,
                                    .bytes = f->bytes,
                                    .had = had,
                                    .n_damaged = f->n_damaged,
                                    .why = f->n_damaged > 0 ? &f->why : NULL };

    if (f->user != NULL && f->user->fetched != NULL) f->user->fetched(f->user->arg, &job);
}

static void name_paths(fetch *f)
{
    char name[PD_KEEP_NAME + sizeof FETCHED];

    snprintf(name, sizeof name, "%s" FETCHED, f->job.name);
    pd_keep_join(f->from, f->mirror, f->job.name);
    pd_keep_join(f->tmp, f->root, name);
    pd_keep_join(f->to, f->root, f->job.name);
}

static int fetch_job(fetch *f, pd_error *err)
{
    int rc = read_state(&f->own, f->copier.to, f->root, f->job.name, err);

    if (rc != PD_OK) return rc;
    f->n_damaged = 0;
    f->bytes = 0;
    f->newest = UINT64_MAX;
    name_paths(f);
    if (f->own.exists && !f->own.ended && f->own.last == f->job.last) {
        tell(f, true);
        return PD_OK;
    }
    rc = copy_job(f, err);
    if (rc == PD_OK) tell(f, false);
    return rc;
}

/* Does something with each job of the mirror that has not ended. *n: how many there are. */
static int each_job(fetch *f, const pd_job_dirs *jobs, const pd_job_dirs *owns, bool copies, size_t *n, pd_error *err)
{
    int rc = PD_OK;

    *n = 0;
    for (size_t i = 0; i < jobs->n && rc == PD_OK; i++) {
        rc = read_state(&f->job, f->copier.from, f->mirror, jobs->at[i], err);
        if (rc != PD_OK || f->job.ended || !f->job.exists) continue;
        rc = copies ? fetch_job(f, err) : check_job(f, owns, err);
        *n += 1;
    }
    return rc;
}

static int fetch_all(fetch *f, pd_error *err)
{
    pd_job_dirs jobs = { 0 }, owns = { 0 };
    size_t n = 0;
    int rc = pd_job_dirs_read(&jobs, f->copier.from, f->mirror, err);

    if (rc == PD_OK) rc = pd_job_dirs_read(&owns, f->copier.to, f->root, err);
    if (rc == PD_OK) rc = each_job(f, &jobs, &owns, false, &n, err);
    if (rc == PD_OK && n == 0)
        rc = pd_fail(err, PD_NOT_FOUND, "%.300s: expected a mirror with jobs: there is no job that has not ended",
                     f->mirror);
    if (rc == PD_OK) rc = each_job(f, &jobs, &owns, true, &n, err);
    pd_job_dirs_free(&jobs);
    pd_job_dirs_free(&owns);
    return rc;
}

int pd_mirror_fetch_from(const pd_disk *from, const char *mirror, const pd_disk *to, const char *state_dir,
                         const pd_mirror_reader *user, pd_error *err)
{
    fetch *f = calloc(1, sizeof *f);
    int rc;

    if (f == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for the mirror");
    f->mirror = mirror;
    f->root = state_dir;
    f->user = user;
    rc = pd_keep_check_root(mirror, err);
    if (rc == PD_OK) rc = pd_copier_init(&f->copier, from, to, err);
    if (rc == PD_OK) rc = fetch_all(f, err);
    pd_copier_free(&f->copier);
    free(f);
    return rc;
}

int pd_mirror_fetch(const char *mirror, const char *state_dir, const pd_mirror_reader *user, pd_error *err)
{
    pd_state_dir dir;
    int rc = pd_state_dir_open(&dir, state_dir, true, err);

    if (rc != PD_OK) return rc;
    rc = pd_mirror_fetch_from(&pd_disk_posix, mirror, &pd_disk_posix, state_dir, user, err);
    pd_state_dir_close(&dir);
    return rc;
}
