/* old_shards.c - finds a job in the state directories of the daemons that it was on. */
#include "old_shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "wal_files.h"

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory");
}

/* ---- directories ---- */

/* Checks that a directory is none of those before it. */
static int check_distinct(char *const *paths, size_t i, pd_error *err)
{
    struct stat own, other;

    if (stat(paths[i], &own) != 0) return PD_OK; /* pd_state_dir_open says why */
    for (size_t k = 0; k < i; k++)
        if (stat(paths[k], &other) == 0 && other.st_dev == own.st_dev && other.st_ino == own.st_ino)
            return pd_fail(err, PD_FAILED_PRECONDITION, "%.300s and %.300s are the same directory", paths[k], paths[i]);
    return PD_OK;
}

int pd_old_dirs_open(pd_old_dirs *out, char **paths, size_t n, pd_error *err)
{
    int rc = PD_OK;

    *out = (pd_old_dirs){ .path = paths, .lock = calloc(n, sizeof *out->lock) };
    if (out->lock == NULL) return no_memory(err);
    for (; rc == PD_OK && out->n < n; out->n += rc == PD_OK) {
        rc = check_distinct(paths, out->n, err);
        if (rc == PD_OK) rc = pd_state_dir_open(&out->lock[out->n], paths[out->n], false, err);
    }
    if (rc != PD_OK) pd_old_dirs_close(out);
    return rc;
}

void pd_old_dirs_close(pd_old_dirs *dirs)
{
    for (size_t i = 0; i < dirs->n; i++) pd_state_dir_close(&dirs->lock[i]);
    free(dirs->lock);
    *dirs = (pd_old_dirs){ 0 };
}

static bool is_checkpoint(const pd_step_entry *entry)
{
    return entry->kind == PD_STEP_CURRENT || entry->kind == PD_STEP_OLD;
}

/* Reads the newest intact manifest of a job's directory. Returns false if it has none. */
static bool read_newest(const char *job_dir, const pd_step_list *list, pd_manifest *manifest)
{
    char dir[PD_KEEP_PATH];

    for (size_t i = 0; i < list->n; i++) {
        if (!is_checkpoint(&list->at[i])) continue;
        pd_keep_join(dir, job_dir, list->at[i].name);
        if (pd_checkpoint_check(&pd_disk_posix, dir, manifest, NULL) == PD_OK) return true;
    }
    return false;
}

/* Takes the directory of a job, its checkpoints and the manifest of the newest. Returns an error to end the search. It
 * owns the list if it sets it to zeros. */
typedef int take_job(void *arg, const char *job_dir, pd_step_list *list, const pd_manifest *manifest, pd_error *err);

static int each_job(const char *root, take_job *take, void *arg, pd_error *err)
{
    char job_dir[PD_KEEP_PATH];
    pd_job_dirs jobs;
    pd_step_list list;
    pd_manifest manifest;
    int rc = pd_job_dirs_read(&jobs, &pd_disk_posix, root, err);

    if (rc != PD_OK) return rc;
    for (size_t i = 0; rc == PD_OK && i < jobs.n; i++) {
        pd_keep_join(job_dir, root, jobs.at[i]);
        if ((rc = pd_step_list_read(&list, &pd_disk_posix, job_dir, err)) != PD_OK) break;
        if (read_newest(job_dir, &list, &manifest)) rc = take(arg, job_dir, &list, &manifest, err);
        pd_step_list_free(&list);
    }
    pd_job_dirs_free(&jobs);
    return rc;
}

typedef struct names {
    char **at;
    size_t n;
} names;

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static int add_name(void *arg, const char *job_dir, pd_step_list *list, const pd_manifest *manifest, pd_error *err)
{
    names *all = arg;
    char **more;

    (void)job_dir;
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->at[i], manifest->job) == 0) return PD_OK;
    if (list->ended) return PD_OK;
    if ((more = realloc(all->at, (all->n + 1) * sizeof *more)) == NULL) return no_memory(err);
    all->at = more;
    if ((more[all->n] = strdup(manifest->job)) == NULL) return no_memory(err);
    all->n++;
    return PD_OK;
}

int pd_old_dirs_jobs(const pd_old_dirs *dirs, char ***jobs, size_t *n, pd_error *err)
{
    names all = { 0 };
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < dirs->n; i++) rc = each_job(dirs->path[i], add_name, &all, err);
    if (all.n > 0) qsort(all.at, all.n, sizeof *all.at, compare_names);
    *jobs = all.at;
    *n = all.n;
    return rc;
}

/* ---- a job ---- */

/* What is looked for in one directory. */
typedef struct search {
    const char *job;
    pd_old_shard *found;
    uint64_t written_ms; /* when its newest checkpoint was written; the latest job of the name counts, as in a daemon */
    bool any, ended;     /* a job of the name was found; one that has ended */
} search;

static int take_shard(void *arg, const char *job_dir, pd_step_list *list, const pd_manifest *manifest, pd_error *err)
{
    search *w = arg;

    (void)err;
    if (strcmp(manifest->job, w->job) != 0) return PD_OK;
    if (list->ended) {
        w->ended = true;
        return PD_OK;
    }
    if (w->any && manifest->about.written_ms <= w->written_ms) return PD_OK;
    if (w->any) pd_step_list_free(&w->found->steps);
    w->any = true;
    w->written_ms = manifest->about.written_ms;
    w->found->manifest = *manifest;
    w->found->steps = *list;
    *list = (pd_step_list){ 0 };
    snprintf(w->found->job_dir, sizeof w->found->job_dir, "%s", job_dir);
    return PD_OK;
}

static int find_in(pd_old_shard *out, const char *root, const char *job, pd_error *err)
{
    search w = { .job = job, .found = out };
    int rc = each_job(root, take_shard, &w, err);

    if (rc != PD_OK || w.any) return rc;
    if (w.ended)
        return pd_fail(
            err, PD_NOT_FOUND,
            "%.300s: job %.100s has ended there: paramctl restore %.300s --job %.100s --step STEP lets it go on", root,
            job, root, job);
    return pd_fail(
        err, PD_NOT_FOUND,
        "%.300s has no checkpoint of job %.100s: give the directories of all its daemons, and no others (--job "
        "chooses a job)",
        root, job);
}

/* Returns the newest checkpoint of a step; NULL: there is none. */
static const pd_step_entry *entry_of(const pd_old_shard *shard, uint64_t step)
{
    for (size_t i = 0; i < shard->steps.n; i++)
        if (shard->steps.at[i].step == step && is_checkpoint(&shard->steps.at[i])) return &shard->steps.at[i];
    return NULL;
}

static bool all_have(const pd_old_job *job, uint64_t step)
{
    for (size_t i = 0; i < job->n; i++)
        if (entry_of(&job->shard[i], step) == NULL) return false;
    return true;
}

/* Lists the steps of checkpoints of a shard, at most the newest four. */
static void list_steps(const pd_old_shard *shard, char *text, size_t size)
{
    size_t at = 0, n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < shard->steps.n && n < 4 && at < size; i++) {
        if (!is_checkpoint(&shard->steps.at[i])) continue;
        at += (size_t)snprintf(text + at, size - at, "%s%" PRIu64, n++ > 0 ? ", " : "", shard->steps.at[i].step);
    }
}

static int no_step(const pd_old_job *job, const pd_old_dirs *dirs, const char *name, bool has_step, uint64_t wanted,
                   pd_error *err)
{
    char steps[2][112];
    size_t other = job->n - 1;

    for (size_t i = 0; has_step && i < job->n; i++)
        if (entry_of(&job->shard[i], wanted) == NULL) {
            list_steps(&job->shard[i], steps[0], sizeof steps[0]);
            return pd_fail(err, PD_NOT_FOUND,
                           "%.300s has no checkpoint of step %" PRIu64 " of job %.100s; its newest are of %s",
                           dirs->path[i], wanted, name, steps[0]);
        }
    list_steps(&job->shard[0], steps[0], sizeof steps[0]);
    list_steps(&job->shard[other], steps[1], sizeof steps[1]);
    return pd_fail(err, PD_NOT_FOUND,
                   "job %.60s: the directories have no checkpoint of the same step (%.100s: %s; %.100s: %s): start the "
                   "daemons, and stop them with `paramctl shutdown', which writes one",
                   name, dirs->path[0], steps[0], dirs->path[other], steps[1]);
}

static int choose_step(pd_old_job *job, const pd_old_dirs *dirs, const char *name, bool has_step, uint64_t wanted,
                       pd_error *err)
{
    for (size_t i = 0; i < job->n; i++)
        for (size_t k = 0; k < job->shard[i].steps.n; k++)
            if (is_checkpoint(&job->shard[i].steps.at[k]) && job->shard[i].steps.at[k].step > job->newest)
                job->newest = job->shard[i].steps.at[k].step;
    for (size_t k = 0; k < job->shard[0].steps.n; k++) {
        job->step = has_step ? wanted : job->shard[0].steps.at[k].step;
        if (all_have(job, job->step)) return PD_OK;
    }
    return no_step(job, dirs, name, has_step, wanted, err);
}

/* Finds what the log of a shard has after its checkpoint. */
static int survey_log(pd_old_shard *shard, const char *dir, pd_error *err)
{
    pd_wal_about about;
    int rc = pd_checkpoint_check(&pd_disk_posix, dir, &shard->manifest, err);

    if (rc == PD_OK)
        rc = pd_wal_survey(&(pd_wal_source){ &pd_disk_posix, shard->job_dir, shard->manifest.creator, PD_WAL_STEPS,
                                             shard->manifest.place },
                           &about, err);
    if (rc == PD_OK && about.entries > 0) shard->logged = about.last;
    return rc;
}

int pd_old_job_find(pd_old_job *out, const pd_old_dirs *dirs, const char *job, bool has_step, uint64_t wanted,
                    pd_error *err)
{
    char dir[PD_KEEP_PATH];
    int rc = PD_OK;

    *out = (pd_old_job){ .shard = calloc(dirs->n, sizeof *out->shard), .n = dirs->n };
    out->sources = calloc(dirs->n, sizeof *out->sources);
    if (out->shard == NULL || out->sources == NULL) rc = no_memory(err);
    for (size_t i = 0; rc == PD_OK && i < out->n; i++) rc = find_in(&out->shard[i], dirs->path[i], job, err);
    if (rc == PD_OK) rc = choose_step(out, dirs, job, has_step, wanted, err);
    for (size_t i = 0; rc == PD_OK && i < out->n; i++) {
        pd_keep_join(dir, out->shard[i].job_dir, entry_of(&out->shard[i], out->step)->name);
        rc = survey_log(&out->shard[i], dir, err);
    }
    if (rc != PD_OK) pd_old_job_free(out);
    return rc;
}

/* Reads the records of decisions of a shard. */
static int read_decisions(void *arg, pd_reshard_take *take, void *to, pd_error *err)
{
    const pd_old_shard *shard = arg;
    pd_wal_about about;

    return pd_wal_read(&(pd_wal_source){ &pd_disk_posix, shard->job_dir, shard->manifest.creator, PD_WAL_DECISIONS,
                                         shard->manifest.place },
                       take, to, &about, err);
}

int pd_old_job_open(pd_old_job *job, const pd_old_dirs *dirs, size_t i, pd_error *err)
{
    pd_old_shard *shard = &job->shard[i];
    char dir[PD_KEEP_PATH];
    int rc;

    pd_keep_join(dir, shard->job_dir, entry_of(shard, job->step)->name);
    if ((rc = pd_checkpoint_pick(&shard->picker, &pd_disk_posix, dir, &shard->manifest, err)) != PD_OK) return rc;
    job->sources[i] = (pd_reshard_source){ .name = dirs->path[i],
                                           .image = pd_checkpoint_picked(shard->picker),
                                           .read_range = pd_checkpoint_pick_weights,
                                           .read_decisions = read_decisions,
                                           .decisions_arg = shard };
    return PD_OK;
}

void pd_old_job_free(pd_old_job *job)
{
    for (size_t i = 0; job->shard != NULL && i < job->n; i++) {
        pd_step_list_free(&job->shard[i].steps);
        pd_checkpoint_picker_free(job->shard[i].picker);
    }
    free(job->shard);
    free(job->sources);
    *job = (pd_old_job){ 0 };
}
