/* recover.c - brings back the jobs of a state directory when the daemon starts. */
#include "recover.h"

#include "job_dir.h"
#include "log.h"
#include "notify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Microseconds that loading one job may take, as the service manager is told: 1 TB from a slow disk. */
#define LOADING_US "3600000000"

typedef struct candidate {
    char path[PD_KEEP_PATH]; /* directory of the job */
    uint64_t written_ms;     /* time of its newest checkpoint; 0: it cannot be read */
} candidate;

typedef struct recovery {
    pd_store *store;
    const pd_disk *disk;
    const pd_kept_about *here;
    pd_recovery *out;
} recovery;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void put(int level, pd_log_facts facts, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void put(int level, pd_log_facts facts, const char *format, ...)
{
    pd_log_entry entry;
    va_list args;

    va_start(args, format);
    pd_log_entry_make(&entry, level, facts, format, args);
    va_end(args);
    pd_log_put(&entry);
}

/* ---- which jobs ---- */

/* Looks into the directory of a job. Returns false if the job has ended or has no checkpoint. */
static bool look(const pd_disk *disk, candidate *job)
{
    char path[PD_KEEP_PATH];
    pd_step_list list;
    pd_manifest manifest;
    bool lives;

    if (pd_step_list_read(&list, disk, job->path, NULL) != PD_OK) return true; /* loading it will say what is wrong */
    lives = !list.ended && list.n > 0;
    for (size_t i = 0; lives && job->written_ms == 0 && i < list.n; i++) {
        if (list.at[i].kind != PD_STEP_CURRENT && list.at[i].kind != PD_STEP_OLD) continue;
        pd_keep_join(path, job->path, list.at[i].name);
        if (pd_checkpoint_check(disk, path, &manifest, NULL) == PD_OK) job->written_ms = manifest.about.written_ms;
    }
    pd_step_list_free(&list);
    return lives;
}

static int newest_first(const void *left, const void *right)
{
    const candidate *a = left, *b = right;

    if (a->written_ms != b->written_ms) return a->written_ms < b->written_ms ? 1 : -1;
    return strcmp(a->path, b->path);
}

/* Lists the directories of jobs that have not ended, those first that were written last. */
static int list_jobs(candidate **out, size_t *n, const pd_disk *disk, const char *root, pd_error *err)
{
    pd_job_dirs dirs;
    int rc = pd_job_dirs_read(&dirs, disk, root, err);

    *n = 0;
    if (rc != PD_OK) return rc;
    if ((*out = calloc(dirs.n + 1, sizeof **out)) == NULL) rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; rc == PD_OK && i < dirs.n; i++) {
        pd_keep_join((*out)[*n].path, root, dirs.at[i]);
        if (look(disk, &(*out)[*n]))
            ++*n;
        else
            (*out)[*n] = (candidate){ .written_ms = 0 };
    }
    pd_job_dirs_free(&dirs);
    if (rc == PD_OK) qsort(*out, *n, sizeof **out, newest_first);
    return rc;
}

/* ---- one job ---- */

static void report_damage(void *arg, const char *dir, const pd_error *why)
{
    (void)arg;
    put(LOG_WARNING, (pd_log_facts){ .code = why->code }, "checkpoint %.200s is passed over: %.240s", dir, why->text);
}

/* Tells the service manager to wait while a job is loaded. */
static void announce(const candidate *job)
{
    char text[PD_KEEP_PATH + 80];

    snprintf(text, sizeof text, "STATUS=loading %s\nEXTEND_TIMEOUT_USEC=" LOADING_US, job->path);
    pd_notify(text);
}

static bool is_foreign(const pd_kept_about *here, const pd_kept_about *there)
{
    return strcmp(here->blas, there->blas) != 0 || strcmp(here->cpu, there->cpu) != 0;
}

static void report_foreign(const recovery *r, const pd_kept *kept, const pd_kept_about *there)
{
    put(LOG_WARNING, (pd_log_facts){ .job = kept->job, .step = &kept->step },
        "its checkpoint was made with BLAS core %s and CPU %s, and goes on with %s and %s: later steps may differ in "
        "their last bits (job key exact = yes refuses that)",
        there->blas, there->cpu, r->here->blas, r->here->cpu);
}

static void report_refusal(const recovery *r, const candidate *job, const pd_kept *kept, const pd_manifest *manifest,
                           const pd_error *why)
{
    pd_log_facts facts = { .job = kept->job, .step = &kept->step, .code = why->code };

    r->out->left++;
    if (why->code == PD_ALREADY_EXISTS)
        put(LOG_ERR, facts, "another job of this name was written later and is restored; this one stays in %.200s",
            job->path);
    else if (kept->foreign && why->code == PD_FAILED_PRECONDITION)
        put(LOG_ERR, facts,
            "not restored, because it says exact = yes, and its checkpoint was made with BLAS core %s and CPU %s, not "
            "%s "
            "and %s: start paramd on such a machine or with threads.cpu = %s. It stays in %.120s",
            manifest->about.blas, manifest->about.cpu, r->here->blas, r->here->cpu, manifest->about.cpu, job->path);
    else
        put(LOG_ERR, facts, "not restored, and stays in %.140s: %.280s", job->path, why->text);
}

static void restore(const recovery *r, const candidate *job, pd_kept *kept, const pd_manifest *manifest,
                    uint64_t since_ns)
{
    pd_error why;

    kept->foreign = is_foreign(r->here, &manifest->about);
    if (pd_store_restore(r->store, kept, now_ns(), &why) != PD_OK) {
        report_refusal(r, job, kept, manifest, &why);
        return;
    }
    r->out->restored++;
    if (kept->foreign) report_foreign(r, kept, &manifest->about);
    put(LOG_NOTICE, (pd_log_facts){ .job = kept->job, .step = &kept->step },
        "restored from the checkpoint of step %" PRIu64 ": %" PRIu64 " bytes in %" PRIu64 " ms", kept->step,
        pd_manifest_bytes(manifest), (now_ns() - since_ns) / 1000000);
}

static void recover_job(const recovery *r, const candidate *job)
{
    uint64_t since_ns = now_ns();
    pd_manifest manifest;
    pd_kept *kept = NULL;
    pd_error why;
    int rc;

    announce(job);
    rc = pd_checkpoint_newest(r->disk, job->path, &kept, &manifest, report_damage, NULL, &why);
    if (rc == PD_OK) {
        restore(r, job, kept, &manifest, since_ns);
        pd_kept_free(kept);
        return;
    }
    r->out->left++;
    put(LOG_ERR, (pd_log_facts){ .code = rc }, "the job in %.200s is not restored: %.240s", job->path, why.text);
}

int pd_recover(pd_recovery *out, pd_store *store, const pd_disk *disk, const char *root, const pd_kept_about *here,
               pd_error *err)
{
    recovery r = { .store = store, .disk = disk, .here = here, .out = out };
    candidate *jobs = NULL;
    size_t n;
    int rc = list_jobs(&jobs, &n, disk, root, err);

    *out = (pd_recovery){ 0 };
    for (size_t i = 0; rc == PD_OK && i < n; i++) recover_job(&r, &jobs[i]);
    if (rc == PD_OK && n > 0) pd_notify("STATUS=");
    free(jobs);
    return rc;
}
