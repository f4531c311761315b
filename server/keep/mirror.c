/* mirror.c - copies what is durable in a state directory to its mirror, and removes there what the state directory does
 * not have any more. */
#include "mirror.h"

#include "checkpoint_files.h"
#include "grow.h"
#include "mutant.h"
#include "state_dir.h"
#include "wal_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that a checkpoint needs on the mirror's disk besides its files. */
enum { SPARE_BYTES = 256 << 10 };

/* Tells a checkpoint of a job from its others. */
typedef struct mark {
    uint64_t step, written_ms; /* both 0: no checkpoint */
} mark;

/* A job of the state directory. */
typedef struct mirrored {
    char name[PD_KEEP_NAME]; /* name of its directory */
    char job[512];           /* its own name; "": not known yet */
    uint64_t creator;
    mark begun;      /* its newest checkpoint when the daemon began */
    bool moved;      /* the state directory has had another newest checkpoint since */
    bool told_ahead; /* a remark said that the mirror is ahead */
    bool ended;      /* the mirror has the mark that the job has ended */
    mark damaged;    /* a checkpoint that is damaged in the state directory */
    mark newest;     /* newest checkpoint of the mirror, if has_newest */
    uint64_t place;  /* its number in the WAL */
    bool has_newest;
    uint64_t n_steps; /* number of checkpoints when the mirror last had all of them; 0: not known */
    bool told;        /* the user was told of `last` */
    uint64_t last;    /* step up to which the mirror has the job */
    pd_wal_copied steps, decisions;
} mirrored;

struct pd_mirror_writer {
    pd_copier copier;
    char root[PD_KEEP_PATH], mirror[PD_KEEP_PATH];
    const pd_mirror_user *user;
    mirrored **jobs;
    size_t n, room;
};

/* A job during a pass: what both directories have. */
typedef struct visit {
    pd_mirror_writer *w;
    mirrored *job;
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH]; /* paths of the job's directories */
    pd_step_list source, target;
    pd_manifest newest; /* of the newest checkpoint in the state directory */
    bool late;          /* a checkpoint was removed in the state directory before it was copied */
} visit;

static mark mark_of(const pd_manifest *manifest)
{
    return (mark){ manifest->step, manifest->about.written_ms };
}

static bool is_of(mark m, const pd_manifest *manifest)
{
    return m.step == manifest->step && m.written_ms == manifest->about.written_ms;
}

int pd_mirror_writer_new(pd_mirror_writer **out, const pd_disk *from, const char *root, const pd_disk *to,
                         const char *mirror, const pd_mirror_user *user, pd_error *err)
{
    pd_mirror_writer *w = calloc(1, sizeof *w);
    int rc = PD_NO_MEMORY;

    if (w == NULL || (rc = pd_copier_init(&w->copier, from, to, err)) != PD_OK) {
        free(w);
        return pd_fail(err, rc, "out of memory for the mirror");
    }
    w->user = user;
    snprintf(w->root, sizeof w->root, "%s", root);
    snprintf(w->mirror, sizeof w->mirror, "%s", mirror);
    *out = w;
    return PD_OK;
}

void pd_mirror_writer_free(pd_mirror_writer *w)
{
    if (w == NULL) return;
    for (size_t i = 0; i < w->n; i++) free(w->jobs[i]);
    free(w->jobs);
    pd_copier_free(&w->copier);
    free(w);
}

static int find_job(pd_mirror_writer *w, const char *name, mirrored **out, pd_error *err)
{
    void *at = w->jobs;

    for (size_t i = 0; i < w->n; i++) {
        *out = w->jobs[i];
        if (strcmp((*out)->name, name) == 0) return PD_OK;
    }
    if (pd_grow(&at, &w->room, w->n + 1, sizeof *w->jobs) == PD_OK) {
        w->jobs = at;
        if ((*out = calloc(1, sizeof **out)) != NULL) {
            snprintf((*out)->name, sizeof(*out)->name, "%s", name);
            w->jobs[w->n++] = *out;
            return PD_OK;
        }
    }
    return pd_fail(err, PD_NO_MEMORY, "out of memory for the mirror");
}

/* ---- checkpoints of the state directory ---- */

/* Returns whether entry i of a list is a checkpoint that a restart could use: the newest of its step. */
static bool counts(const pd_step_list *list, size_t i)
{
    if (list->at[i].kind == PD_STEP_CURRENT) return true;
    return list->at[i].kind == PD_STEP_OLD && (i == 0 || list->at[i - 1].step != list->at[i].step);
}

/* Reads the manifest of the newest checkpoint whose files have their sizes. Returns false if there is none. */
static bool find_newest(const pd_disk *disk, const char *dir, const pd_step_list *list, pd_manifest *manifest)
{
    char path[PD_KEEP_PATH];

    for (size_t i = 0; i < list->n; i++) {
        if (!counts(list, i)) continue;
        pd_keep_join(path, dir, list->at[i].name);
        if (pd_checkpoint_check(disk, path, manifest, NULL) == PD_OK) return true;
    }
    return false;
}

int pd_mirror_begin(pd_mirror_writer *w, size_t *n_jobs, pd_error *err)
{
    char dir[PD_KEEP_PATH];
    pd_step_list list;
    pd_manifest newest;
    pd_job_dirs jobs;
    mirrored *job;
    int rc = pd_job_dirs_read(&jobs, w->copier.from, w->root, err);

    *n_jobs = 0;
    if (rc != PD_OK) return rc;
    *n_jobs = jobs.n;
    for (size_t i = 0; i < jobs.n && rc == PD_OK; i++) {
        pd_keep_join(dir, w->root, jobs.at[i]);
        if ((rc = find_job(w, jobs.at[i], &job, err)) != PD_OK) break;
        if ((rc = pd_step_list_read(&list, w->copier.from, dir, err)) != PD_OK) break;
        if (find_newest(w->copier.from, dir, &list, &newest)) job->begun = mark_of(&newest);
        pd_step_list_free(&list);
    }
    pd_job_dirs_free(&jobs);
    return rc;
}

/* ---- the WAL ---- */

/* Returns whether the newest checkpoint of the state directory is still the one that the mirror has. */
static bool has_newest(void *arg)
{
    const visit *v = arg;
    pd_step_list list;
    pd_manifest newest;
    bool same;

    if (pd_step_list_read(&list, v->w->copier.from, v->from, NULL) != PD_OK) return false;
    same =
        v->job->has_newest && find_newest(v->w->copier.from, v->from, &list, &newest) && is_of(v->job->newest, &newest);
    pd_step_list_free(&list);
    return same;
}

static int copy_steps(pd_mirror_writer *w, mirrored *job, const char *from, const char *to, pd_error *err)
{
    const pd_wal_copy what = { from, to, job->creator, PD_WAL_STEPS, NULL, NULL };

    return pd_wal_copy_new(&w->copier, &what, &job->steps, err);
}

/* Copies the records of steps of all jobs whose checkpoints the mirror has, while a checkpoint is copied. An error
 * shows itself again in the pass. */
static void copy_all_steps(void *arg)
{
    pd_mirror_writer *w = arg;
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH];

    for (size_t i = 0; i < w->n; i++) {
        mirrored *job = w->jobs[i];
        if (!job->has_newest || job->ended) continue;
        pd_keep_join(from, w->root, job->name);
        pd_keep_join(to, w->mirror, job->name);
        if (copy_steps(w, job, from, to, NULL) != PD_OK) return;
    }
}

/* Copies both streams. Records of decisions come last: those that follow from steps are never missing beside them. */
static int copy_wal(visit *v, pd_error *err)
{
    pd_wal_copy what = { v->from, v->to, v->job->creator, PD_WAL_DECISIONS, has_newest, v };
    int rc = copy_steps(v->w, v->job, v->from, v->to, err);

    if (rc == PD_OK) rc = pd_wal_copy_new(&v->w->copier, &what, &v->job->decisions, err);
    if (rc == PD_OK) rc = pd_wal_copy_tidy(&v->w->copier, &what, err);
    what.stream = PD_WAL_STEPS;
    return rc == PD_OK ? pd_wal_copy_tidy(&v->w->copier, &what, err) : rc;
}

/* Tells the user up to which step the mirror has the job, if that has changed. */
static void tell(pd_mirror_writer *w, mirrored *job)
{
    uint64_t step = job->newest.step;

    if (!job->has_newest) return;
    if (job->place == step && job->steps.before <= step && job->steps.last > step) step = job->steps.last;
    if (job->told && step == job->last) return;
    job->told = true;
    job->last = step;
    w->user->mirrored(w->user->arg, job->job, job->creator, step);
}

/* ---- checkpoints of the mirror ---- */

static void target_path(char out[PD_KEEP_PATH], const visit *v, uint64_t step)
{
    char name[PD_KEEP_NAME];

    pd_keep_step_name(name, PD_STEP_CURRENT, step);
    pd_keep_join(out, v->to, name);
}

/* Removes a checkpoint of the mirror. If it can be renamed, no reader takes what is left of it for a damaged one. */
static int discard(const visit *v, const pd_step_entry *entry, pd_error *err)
{
    const pd_disk *disk = v->w->copier.to;
    char path[PD_KEEP_PATH], tmp[PD_KEEP_PATH], name[PD_KEEP_NAME];

    pd_keep_join(path, v->to, entry->name);
    pd_keep_step_name(name, PD_STEP_TEMPORARY, entry->step);
    pd_keep_join(tmp, v->to, name);
    if (entry->kind != PD_STEP_TEMPORARY && disk->rename(disk->arg, path, tmp) == 0) memcpy(path, tmp, sizeof path);
    return pd_keep_remove_dir(disk, path, err);
}

static bool source_counts(const visit *v, uint64_t step)
{
    for (size_t i = 0; i < v->source.n; i++)
        if (counts(&v->source, i) && v->source.at[i].step == step) return true;
    return false;
}

static int list_target(visit *v, pd_error *err)
{
    pd_step_list_free(&v->target);
    return pd_step_list_read(&v->target, v->w->copier.to, v->to, err);
}

/* Removes the mirror's checkpoints that the state directory does not have: those of later steps than `after`. The
 * newest one comes last, so a crash between makes nobody read an older one of the steps that were taken back. */
static int withdraw(visit *v, uint64_t after, pd_error *err)
{
    int rc = list_target(v, err);

    for (size_t i = v->target.n; i-- > 0 && rc == PD_OK;) {
        const pd_step_entry *entry = &v->target.at[i];
        bool stays = entry->kind == PD_STEP_CURRENT && source_counts(v, entry->step);
        if (entry->step > after && !stays && entry->kind != PD_STEP_ASIDE) rc = discard(v, entry, err);
    }
    return rc;
}

/* Removes what the mirror has beyond the state directory. */
static int tidy(visit *v, pd_error *err)
{
    int rc = list_target(v, err);

    for (size_t i = v->target.n; i-- > 0 && rc == PD_OK;) {
        const pd_step_entry *entry = &v->target.at[i];
        bool stays = entry->kind == PD_STEP_CURRENT && source_counts(v, entry->step);
        if (!stays && entry->kind != PD_STEP_ASIDE) rc = discard(v, entry, err);
    }
    return rc;
}

static int check_space(const visit *v, const pd_manifest *manifest, pd_error *err)
{
    const pd_disk *disk = v->w->copier.to;
    uint64_t need = pd_manifest_bytes(manifest) + SPARE_BYTES, space;
    int number = disk->space(disk->arg, v->to, &space);

    if (number != 0) return pd_disk_fail(err, number, "tell the free space", v->to);
    if (space >= need) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "%.300s: a checkpoint needs %" PRIu64 " MiB, and %" PRIu64 " MiB are free", v->w->mirror,
                   (need >> 20) + 1, space >> 20);
}

/* Waits until the mirror's disk has a checkpoint that was there before: an earlier attempt may have failed, or the
 * daemon was killed, before it had been synced. */
static int settle_checkpoint(const visit *v, const char *path, pd_error *err)
{
    const pd_disk *disk = v->w->copier.to;
    char manifest[PD_KEEP_PATH];
    int file, number, rc;

    pd_keep_join(manifest, path, PD_KEEP_MANIFEST);
    if (disk->reopen(disk->arg, manifest, 0, &file) == 0) {
        number = disk->sync_file(disk->arg, file);
        disk->close(disk->arg, file);
        if (number != 0) return pd_disk_fail(err, number, "sync", manifest);
    }
    rc = pd_copy_sync_dir(disk, path, err);
    return rc == PD_OK ? pd_copy_sync_dir(disk, v->to, err) : rc;
}

/* Gives an earlier checkpoint of the same step in the mirror another name, or removes it where that is not possible.
 * The disk has it under its name before an older one is removed, and under the other name before files of the new one
 * are written or removed: else a power cut could leave none of them. An attempt before may have failed to sync either
 * name. */
static int step_aside(const visit *v, const char *path, uint64_t step, pd_error *err)
{
    const pd_disk *disk = v->w->copier.to;
    char old[PD_KEEP_PATH], name[PD_KEEP_NAME];
    pd_manifest there;
    int number, rc;

    pd_keep_old_name(name, step, 1);
    pd_keep_join(old, v->to, name);
    if (pd_checkpoint_check(disk, path, &there, NULL) == PD_OK) {
        if ((rc = settle_checkpoint(v, path, err)) != PD_OK) return rc;
        (void)pd_keep_remove_dir(disk, old, NULL);
        number = disk->rename(disk->arg, path, old);
        if (number == 0 || number == ENOENT) return pd_copy_sync_dir(disk, v->to, err);
    } else if ((rc = pd_copy_sync_dir(disk, v->to, err)) != PD_OK) {
        return rc;
    }
    return pd_keep_remove_dir(disk, path, err);
}

/* Copies a checkpoint that the mirror lacks. *again: the state directory does not have it any more, so it is listed
 * again. */
static int copy_checkpoint(visit *v, const char *from, const pd_manifest *manifest, bool *again, pd_error *err)
{
    char to[PD_KEEP_PATH];
    pd_copier *copier = &v->w->copier;
    pd_error why = { 0 };
    int rc = check_space(v, manifest, err);

    target_path(to, v, manifest->step);
    if (rc == PD_OK) rc = step_aside(v, to, manifest->step, err);
    if (rc != PD_OK) return rc;
    copier->between = copy_all_steps;
    copier->arg = v->w;
    rc = pd_copy_checkpoint(copier, from, to, manifest, &why);
    copier->between = NULL;
    if (rc == PD_OK) return pd_copy_sync_dir(copier->to, v->to, err);
    if (pd_keep_remove_dir(copier->to, to, NULL) == PD_OK && copier->of_source) {
        *again = true;
        if (rc == PD_DATA_LOSS) {
            v->job->damaged = mark_of(manifest);
            v->w->user->remark(v->w->user->arg, &why);
        }
        return PD_OK;
    }
    return pd_fail(err, rc, "%s", why.text);
}

/* Copies checkpoint i of the state directory, unless the mirror has it. */
static int mirror_checkpoint(visit *v, size_t i, bool *again, pd_error *err)
{
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH];
    pd_manifest manifest, there;
    int rc;

    pd_keep_join(from, v->from, v->source.at[i].name);
    if (pd_checkpoint_check(v->w->copier.from, from, &manifest, NULL) != PD_OK) return PD_OK;
    if (is_of(v->job->damaged, &manifest)) return PD_OK;
    target_path(to, v, manifest.step);
    if (pd_checkpoint_check(v->w->copier.to, to, &there, NULL) == PD_OK && pd_copy_is_same(&manifest, &there))
        rc = settle_checkpoint(v, to, err);
    else
        rc = copy_checkpoint(v, from, &manifest, again, err);
    if (rc != PD_OK || *again) return rc;
    if (!v->job->has_newest || manifest.step > v->job->newest.step || manifest.step == v->newest.step) {
        if (!is_of(v->job->newest, &manifest)) v->job->told = false; /* the job may have gone back meanwhile */
        v->job->has_newest = true;
        v->job->newest = mark_of(&manifest);
        v->job->place = manifest.place;
        tell(v->w, v->job);
    }
    return PD_OK;
}

/* Copies the checkpoints from step `first` on, the oldest first. */
static int mirror_newer(visit *v, uint64_t first, bool *again, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = v->source.n; i-- > 0 && rc == PD_OK && !*again;)
        if (v->source.at[i].step >= first && counts(&v->source, i)) rc = mirror_checkpoint(v, i, again, err);
    return rc;
}

/* Copies the checkpoints that the mirror lacks, the newest first. After each, looks again what the newest one is.
 * *again: the list has changed meanwhile.
 *
 * Servers that share a job go back to a step that all of them have. There those that are newer than the mirror's newest
 * one come before, the oldest first: the mirror has every step up to the one that it tells. The state directory keeps
 * them meanwhile, as other servers do, until the mirror lacks PD_MIRROR_LACKS. Once one is removed before it is copied,
 * the newest one is copied first, since the oldest might be removed each time. */
static int mirror_checkpoints(visit *v, bool *again, pd_error *err)
{
    bool ordered = v->newest.together && !v->late && !PD_MUTANT(mirror_newest_first);
    uint64_t first = UINT64_MAX;
    pd_manifest there;
    int rc = PD_OK;

    *again = false;
    if (ordered) first = find_newest(v->w->copier.to, v->to, &v->target, &there) ? there.step : 0;
    if (ordered) rc = mirror_newer(v, first, again, err);
    for (size_t i = 0; i < v->source.n && rc == PD_OK && !*again; i++)
        if (v->source.at[i].step < first && counts(&v->source, i)) rc = mirror_checkpoint(v, i, again, err);
    v->late = *again;
    return rc;
}

/* ---- a job ---- */

/* Returns whether the mirror has the job in a later state than the state directory had from the beginning on. */
static bool is_ahead(visit *v)
{
    mirrored *job = v->job;
    pd_manifest there;
    pd_error remark;

    if (!is_of(job->begun, &v->newest)) job->moved = true;
    if (job->moved || !find_newest(v->w->copier.to, v->to, &v->target, &there)) return false;
    if (there.step <= v->newest.step) return false;
    if (!job->told_ahead) {
        pd_fail(&remark, PD_FAILED_PRECONDITION,
                "mirror: %.300s has job %.100s at step %" PRIu64 ", the state directory has step %" PRIu64
                ": it stays so until the job has a new checkpoint; stop the daemon and run `paramctl mirror fetch` to "
                "continue from the mirror",
                v->w->mirror, v->newest.job, there.step, v->newest.step);
        v->w->user->remark(v->w->user->arg, &remark);
    }
    job->told_ahead = true;
    return true;
}

static int write_mark(const visit *v, const char *path, pd_error *err)
{
    const pd_disk *disk = v->w->copier.to;
    int file, number = disk->create(disk->arg, path, 0, &file);

    if (number == ENOENT || number == EEXIST) return PD_OK; /* the mirror does not have the job, or the mark is there */
    if (number != 0) return pd_disk_fail(err, number, "create the file", path);
    number = disk->sync_file(disk->arg, file);
    disk->close(disk->arg, file);
    return number == 0 ? pd_copy_sync_dir(disk, v->to, err) : pd_disk_fail(err, number, "sync", path);
}

/* Makes or removes the mark that the job has ended. */
static int mirror_mark(visit *v, pd_error *err)
{
    const pd_disk *disk = v->w->copier.to;
    char path[PD_KEEP_PATH];
    int number;

    pd_keep_join(path, v->to, PD_KEEP_ENDED);
    if (v->source.ended) {
        int rc = write_mark(v, path, err);
        v->job->ended = rc == PD_OK;
        return rc;
    }
    if (!v->target.ended) return PD_OK;
    number = disk->remove(disk->arg, path);
    if (number != 0 && number != ENOENT) return pd_disk_fail(err, number, "remove", path);
    return pd_copy_sync_dir(disk, v->to, err);
}

static int make_dir(const visit *v, pd_error *err)
{
    const pd_disk *disk = v->w->copier.to;
    int number = disk->make_dir(disk->arg, v->to);

    if (number != 0 && number != EEXIST) return pd_disk_fail(err, number, "make the directory", v->to);
    return pd_copy_sync_dir(disk, v->w->mirror, err);
}

static uint64_t count_steps(const pd_step_list *list)
{
    uint64_t n = 0;

    for (size_t i = 0; i < list->n; i++) n += counts(list, i);
    return n;
}

/* Returns whether the mirror had all checkpoints of the state directory at the end of an earlier pass. */
static bool is_settled(const visit *v)
{
    const mirrored *job = v->job;

    return job->n_steps > 0 && is_of(job->newest, &v->newest) && job->n_steps == count_steps(&v->source);
}

/* Mirrors the checkpoints and the WAL of a job that has an intact checkpoint. */
static int mirror_state(visit *v, bool *again, pd_error *err)
{
    mirrored *job = v->job;
    bool settled = is_settled(v);
    int rc = PD_OK;

    snprintf(job->job, sizeof job->job, "%s", v->newest.job);
    job->creator = v->newest.creator;
    if (!settled) {
        job->n_steps = 0;
        rc = make_dir(v, err);
        if (rc == PD_OK) rc = list_target(v, err);
        if (rc == PD_OK) rc = mirror_mark(v, err);
        if (rc == PD_OK && is_ahead(v)) return PD_OK;
        if (rc == PD_OK) rc = withdraw(v, v->newest.step, err);
        if (rc == PD_OK) rc = mirror_checkpoints(v, again, err);
        if (rc == PD_OK && !*again) rc = tidy(v, err);
        if (rc == PD_OK && !*again) job->n_steps = count_steps(&v->source);
    }
    if (rc == PD_OK && !*again) rc = copy_wal(v, err);
    tell(v->w, job);
    return rc;
}

static int visit_job(visit *v, bool *again, pd_error *err)
{
    pd_mirror_writer *w = v->w;
    int rc = pd_step_list_read(&v->source, w->copier.from, v->from, NULL);

    *again = false;
    if (rc != PD_OK) return PD_OK; /* the state directory's disk has its own watch */
    if (v->source.ended)
        rc = mirror_mark(v, err);
    else if (find_newest(w->copier.from, v->from, &v->source, &v->newest))
        rc = mirror_state(v, again, err);
    pd_step_list_free(&v->source);
    pd_step_list_free(&v->target);
    return rc;
}

/* Copies what the mirror lacks of a job. Begins again a few times if checkpoints were replaced meanwhile; after that
 * the next pass goes on. */
static int mirror_job(pd_mirror_writer *w, const char *name, pd_error *err)
{
    enum { TRIES = 4 };
    visit v = { .w = w };
    bool again = true;
    int rc = find_job(w, name, &v.job, err);

    if (rc != PD_OK || v.job->ended) return rc;
    pd_keep_join(v.from, w->root, name);
    pd_keep_join(v.to, w->mirror, name);
    for (int i = 0; i < TRIES && rc == PD_OK && again; i++) rc = visit_job(&v, &again, err);
    if (rc != PD_OK) v.job->n_steps = 0;
    return rc;
}

int pd_mirror_pass(pd_mirror_writer *w, pd_error *err)
{
    pd_job_dirs jobs;
    pd_error why = { 0 };
    int rc, worst = PD_OK;

    if (pd_job_dirs_read(&jobs, w->copier.from, w->root, NULL) != PD_OK) return PD_OK;
    for (size_t i = 0; i < jobs.n && (worst == PD_OK || worst == PD_RESOURCE_EXHAUSTED); i++) {
        rc = mirror_job(w, jobs.at[i], &why);
        if (rc == PD_OK) continue;
        if (worst == PD_OK && err != NULL) *err = why;
        worst = rc;
    }
    pd_job_dirs_free(&jobs);
    return worst;
}

int pd_mirror_count(const pd_disk *disk, const char *mirror, size_t *n, pd_error *err)
{
    char dir[PD_KEEP_PATH];
    pd_step_list list;
    pd_job_dirs jobs;
    int rc = pd_job_dirs_read(&jobs, disk, mirror, err);

    *n = 0;
    if (rc != PD_OK) return rc == PD_NOT_FOUND ? PD_OK : rc;
    for (size_t i = 0; i < jobs.n && rc == PD_OK; i++) {
        pd_keep_join(dir, mirror, jobs.at[i]);
        if ((rc = pd_step_list_read(&list, disk, dir, err)) != PD_OK) break;
        *n += !list.ended && list.n > 0;
        pd_step_list_free(&list);
    }
    pd_job_dirs_free(&jobs);
    return rc;
}
