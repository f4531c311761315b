/* checkpoint_list.c - lists the checkpoints of a state directory, and chooses the one that the next start loads. */
#include "checkpoint_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "job_dir.h"
#include "wal_files.h"

/* ---- listing ---- */

static void tell(const pd_disk *disk, const char *job_dir, const pd_step_list *list, size_t i,
                 void (*each)(void *arg, const pd_checkpoint_entry *entry), void *arg)
{
    char dir[PD_KEEP_PATH];
    pd_manifest manifest;
    pd_checkpoint_entry entry = { .dir = dir,
                                  .manifest = &manifest,
                                  .step = list->at[i].step,
                                  .ended = list->ended,
                                  .aside = list->at[i].kind == PD_STEP_ASIDE };

    pd_keep_join(dir, job_dir, list->at[i].name);
    (void)pd_checkpoint_check(disk, dir, &manifest, &entry.error);
    each(arg, &entry);
}

int pd_checkpoint_list(const pd_disk *disk, const char *root, void (*each)(void *arg, const pd_checkpoint_entry *entry),
                       void *arg, pd_error *err)
{
    char job_dir[PD_KEEP_PATH];
    pd_job_dirs jobs;
    pd_step_list list;
    int rc = pd_keep_check_root(root, err);

    if (rc != PD_OK || (rc = pd_job_dirs_read(&jobs, disk, root, err)) != PD_OK) return rc;
    for (size_t j = 0; j < jobs.n && rc == PD_OK; j++) {
        pd_keep_join(job_dir, root, jobs.at[j]);
        if ((rc = pd_step_list_read(&list, disk, job_dir, err)) != PD_OK) break;
        for (size_t i = 0; i < list.n; i++)
            if (list.at[i].kind != PD_STEP_TEMPORARY) tell(disk, job_dir, &list, i, each, arg);
        pd_step_list_free(&list);
    }
    pd_job_dirs_free(&jobs);
    return rc;
}

/* ---- restoring ---- */

/* A search for the directory of a job that has a checkpoint of a step. */
typedef struct search {
    const char *job;
    uint64_t creator, step;
    size_t found;
    char dir[PD_KEEP_PATH]; /* of the checkpoint */
} search;

static void look(void *arg, const pd_checkpoint_entry *entry)
{
    search *s = arg;

    if (entry->aside || entry->step != s->step || strcmp(entry->manifest->job, s->job) != 0) return;
    if (s->creator != 0 && s->creator != entry->manifest->creator) return;
    /* STEP and STEP.old of the same job come one after the other: the first counts */
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

/* Gives a checkpoint a name that no start of the daemon looks at: the first that is free. */
static int set_aside(const pd_disk *disk, const char *job_dir, const pd_step_entry *entry, pd_error *err)
{
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH], name[PD_KEEP_NAME];
    int number = EEXIST;

    pd_keep_join(from, job_dir, entry->name);
    pd_keep_step_name(name, PD_STEP_ASIDE, entry->step);
    for (int i = 2; i < 1000 && (number == EEXIST || number == ENOTEMPTY); i++) {
        pd_keep_join(to, job_dir, name);
        number = disk->rename(disk->arg, from, to);
        pd_keep_step_name(name, PD_STEP_ASIDE, entry->step);
        snprintf(name + strlen(name), sizeof name - strlen(name), ".%d", i);
    }
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "rename", from);
}

static int set_newer_aside(const pd_disk *disk, const char *job_dir, uint64_t step, size_t *n_aside, pd_error *err)
{
    pd_step_list list;
    int rc = pd_step_list_read(&list, disk, job_dir, err);

    *n_aside = 0;
    if (rc != PD_OK) return rc;
    for (size_t i = 0; i < list.n && rc == PD_OK; i++) {
        if (list.at[i].step <= step || (list.at[i].kind != PD_STEP_CURRENT && list.at[i].kind != PD_STEP_OLD)) continue;
        rc = set_aside(disk, job_dir, &list.at[i], err);
        *n_aside += rc == PD_OK;
    }
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
