/* job_dir.c - lists what is in the directory of a job, and in a state directory; removes checkpoints. */
#include "job_dir.h"

#include "keep_array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the checkpoints of a job ---- */

static void add_step(void *what, const char *name)
{
    pd_step_list *list = what;
    pd_step_entry entry;
    void *at = list->at;

    if (strcmp(name, PD_KEEP_ENDED) == 0) list->ended = true;
    entry.kind = pd_keep_step_parse(name, &entry.step);
    if (entry.kind == PD_STEP_NONE || strlen(name) >= sizeof entry.name) return;
    snprintf(entry.name, sizeof entry.name, "%s", name);
    if (!pd_keep_grow(&at, &list->room, list->n, sizeof *list->at)) {
        list->no_memory = true;
        return;
    }
    list->at = at;
    list->at[list->n++] = entry;
}

static int compare_steps(const void *left, const void *right)
{
    const pd_step_entry *a = left, *b = right;

    if (a->step != b->step) return a->step > b->step ? -1 : 1;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    /* of several old ones of a step, the name of the newest is the last */
    return a->kind == PD_STEP_OLD ? strcmp(b->name, a->name) : strcmp(a->name, b->name);
}

int pd_step_list_read(pd_step_list *list, const pd_disk *disk, const char *job_dir, pd_error *err)
{
    int number, rc = PD_OK;

    *list = (pd_step_list){ 0 };
    number = disk->list(disk->arg, job_dir, add_step, list);
    if (number != 0 && number != ENOENT) rc = pd_disk_fail(err, number, "list", job_dir);
    if (list->no_memory) rc = pd_fail(err, PD_NO_MEMORY, "the list of checkpoints: out of memory");
    if (rc != PD_OK) pd_step_list_free(list);
    if (list->n > 0) qsort(list->at, list->n, sizeof *list->at, compare_steps);
    return rc;
}

void pd_step_list_free(pd_step_list *list)
{
    free(list->at);
    *list = (pd_step_list){ 0 };
}

bool pd_step_list_has(const pd_step_list *list, pd_step_kind kind, uint64_t step)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].kind == kind && list->at[i].step == step) return true;
    return false;
}

/* ---- the jobs of a state directory, and names in any directory ---- */

static void add_name(void *what, const char *name)
{
    pd_job_dirs *jobs = what;
    void *at = jobs->at;

    if (strlen(name) >= PD_KEEP_NAME) return;
    if (pd_keep_grow(&at, &jobs->room, jobs->n, sizeof *jobs->at)) {
        jobs->at = at;
        if ((jobs->at[jobs->n] = strdup(name)) != NULL) {
            jobs->n++;
            return;
        }
    }
    jobs->no_memory = true;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static int list_names(pd_job_dirs *names, const pd_disk *disk, const char *path, pd_error *err)
{
    int number, rc = PD_OK;

    *names = (pd_job_dirs){ 0 };
    if ((number = disk->list(disk->arg, path, add_name, names)) != 0) rc = pd_disk_fail(err, number, "list", path);
    if (names->no_memory) rc = pd_fail(err, PD_NO_MEMORY, "the list of a directory: out of memory");
    if (rc != PD_OK) pd_job_dirs_free(names);
    if (names->n > 0) qsort(names->at, names->n, sizeof *names->at, compare_names);
    return rc;
}

/* Tells whether a name is that of a job's directory: it ends with '-' and 16 hexadecimal digits. */
static bool is_job(const char *name)
{
    size_t n = strlen(name);

    return n > 17 && name[n - 17] == '-' && strspn(name + n - 16, "0123456789abcdef") == 16;
}

int pd_job_dirs_read(pd_job_dirs *jobs, const pd_disk *disk, const char *root, pd_error *err)
{
    size_t n = 0;
    int rc = list_names(jobs, disk, root, err);

    for (size_t i = 0; rc == PD_OK && i < jobs->n; i++) {
        if (is_job(jobs->at[i]))
            jobs->at[n++] = jobs->at[i];
        else
            free(jobs->at[i]);
    }
    jobs->n = n;
    return rc;
}

void pd_job_dirs_free(pd_job_dirs *jobs)
{
    for (size_t i = 0; i < jobs->n; i++) free(jobs->at[i]);
    free(jobs->at);
    *jobs = (pd_job_dirs){ 0 };
}

/* ---- removing ---- */

int pd_keep_remove_dir(const pd_disk *disk, const char *path, pd_error *err)
{
    char file[PD_KEEP_PATH];
    pd_job_dirs names;
    int number, rc = list_names(&names, disk, path, err);

    if (rc != PD_OK) return rc == PD_NOT_FOUND ? PD_OK : rc;
    pd_keep_join(file, path, PD_KEEP_MANIFEST);
    number = disk->remove(disk->arg, file);
    if (number == ENOENT) number = 0;
    for (size_t i = 0; i < names.n && number == 0; i++) {
        if (strcmp(names.at[i], PD_KEEP_MANIFEST) == 0) continue;
        pd_keep_join(file, path, names.at[i]);
        number = disk->remove(disk->arg, file);
    }
    pd_job_dirs_free(&names);
    if (number == 0) number = disk->remove(disk->arg, path);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "remove", path);
}
