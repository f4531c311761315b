/* recover.c - restores jobs from a state directory when the daemon starts. */
#include "recover.h"

#include "checkpoint_files.h"
#include "disk.h"
#include "disk_writer.h"
#include "log.h"
#include "notify.h"
#include "state_dir.h"
#include "thread.h"
#include "wal_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Microseconds that loading one job may take at most; told to the service manager. */
#define LOADING_US "3600000000"

/* A job that may be restored. */
typedef struct candidate {
    char dir[PD_KEEP_PATH]; /* path of the job's directory */
    char job[512];          /* name of the job; "": no manifest could be read */
    uint64_t written_ms;    /* when (ms since 1970) its newest checkpoint with an intact manifest was written */
} candidate;

/* The state of pd_recover, which restores all jobs of a state directory. pd_recover owns it. */
typedef struct recovery {
    pd_disk_pass base;   /* a disk whose reads fail when the daemon has to stop; must be the first member */
    const pd_disk *disk; /* the functions of `base`. To truncate the WAL, base.below is used, whose reads do not fail */
    const pd_recover_user *user;
    candidate *at; /* jobs to restore; the job with the latest checkpoint is the first */
    size_t n;
} recovery;

static bool stops(const recovery *r)
{
    return r->user->stops != NULL && atomic_load(r->user->stops);
}

/* Reads from a file. If the daemon has to stop, the read fails with ECANCELED, so that loading ends soon. */
static int read_file(void *arg, int file, uint64_t offset, void *at, size_t bytes)
{
    const recovery *r = arg;

    return stops(r) ? ECANCELED : r->base.below->read(r->base.below->arg, file, offset, at, bytes);
}

/* Returns PD_CANCELLED if the daemon has to stop: then reads may have failed, and their results must not be used. */
static int check_running(const recovery *r, pd_error *err)
{
    return stops(r) ? pd_fail(err, PD_CANCELLED, "daemon stopped before its jobs were loaded") : PD_OK;
}

/* Fills in the name of a job and when its newest checkpoint was written, from the newest intact manifest. */
static void describe(const pd_disk *disk, candidate *c, const pd_step_list *list)
{
    char dir[PD_KEEP_PATH];
    pd_manifest manifest;

    for (size_t i = 0; i < list->n && c->job[0] == '\0'; i++) {
        if (list->at[i].kind != PD_STEP_CURRENT && list->at[i].kind != PD_STEP_OLD) continue;
        pd_keep_join(dir, c->dir, list->at[i].name);
        if (pd_checkpoint_check(disk, dir, &manifest, NULL) != PD_OK) continue;
        memcpy(c->job, manifest.job, sizeof c->job);
        c->written_ms = manifest.about.written_ms;
    }
}

static bool has_checkpoints(const pd_step_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].kind == PD_STEP_CURRENT || list->at[i].kind == PD_STEP_OLD) return true;
    return false;
}

static int add_candidate(recovery *r, const char *root, const char *name, pd_error *err)
{
    candidate *c = &r->at[r->n];
    pd_step_list list;
    int rc;

    pd_keep_join(c->dir, root, name);
    if ((rc = pd_step_list_read(&list, r->disk, c->dir, err)) != PD_OK) return rc;
    if (!list.ended && has_checkpoints(&list)) {
        describe(r->disk, c, &list);
        r->n++;
    }
    pd_step_list_free(&list);
    return PD_OK;
}

/* Sorts jobs by the time of their checkpoints, the latest first. */
static int compare(const void *left, const void *right)
{
    const candidate *a = left, *b = right;

    if (a->written_ms != b->written_ms) return a->written_ms > b->written_ms ? -1 : 1;
    return strcmp(a->dir, b->dir);
}

static int find_candidates(recovery *r, const char *root, pd_error *err)
{
    pd_job_dirs jobs;
    int rc = pd_job_dirs_read(&jobs, r->disk, root, err);

    if (rc != PD_OK) return rc;
    r->at = calloc(jobs.n + 1, sizeof *r->at);
    if (r->at == NULL) rc = pd_fail(err, PD_NO_MEMORY, "out of memory for the list of jobs to restore");
    for (size_t i = 0; i < jobs.n && rc == PD_OK; i++) rc = add_candidate(r, root, jobs.at[i], err);
    pd_job_dirs_free(&jobs);
    if (rc == PD_OK && r->n > 0) qsort(r->at, r->n, sizeof *r->at, compare);
    return rc;
}

static uint64_t now_ms(void)
{
    return pd_clock_ns() / 1000000;
}

/* Logs a line about a checkpoint of a job. */
static void say(int level, const pd_checkpoint_image *kept, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say(int level, const pd_checkpoint_image *kept, const char *format, ...)
{
    pd_log_entry entry;
    va_list args;

    va_start(args, format);
    pd_log_entry_make(&entry, level, (pd_log_facts){ .job = kept->job, .step = &kept->step }, format, args);
    va_end(args);
    pd_log_put(&entry);
}

/* Tells the service manager to wait longer, because a job is being loaded. */
static void announce(const candidate *c)
{
    char text[PD_KEEP_PATH + 80];

    snprintf(text, sizeof text, "STATUS=loading %s\nEXTEND_TIMEOUT_USEC=" LOADING_US, c->dir);
    pd_notify(text);
}

/* Returns whether a job of the same name has a later checkpoint. */
static bool is_outdated(const recovery *r, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (r->at[i].job[0] != '\0' && strcmp(r->at[k].job, r->at[i].job) == 0) return true;
    return false;
}

/* Handles a job that user->restore has refused. If the reason is that the job has exact = yes and other hardware has
 * written its checkpoint, logs it and returns PD_OK: the job stays on the disk, and the daemon starts. Otherwise
 * returns the error. */
static int refuse(const candidate *c, const pd_checkpoint_image *kept, const pd_checkpoint_about *there,
                  const pd_error *why, pd_error *err)
{
    pd_checkpoint_about here = pd_checkpoint_about_here();

    if (!kept->foreign || why->code != PD_FAILED_PRECONDITION)
        return pd_fail(err, why->code, "%.300s; to start without this job, move %.150s away", why->text, c->dir);
    say(LOG_ERR, kept,
        "not restored, because it says exact = yes: BLAS kernels %s and instructions %s made the checkpoint, here are "
        "%s and %s. Start paramd on such a machine, or with threads.cpu = %s; the job stays in %.120s",
        there->blas, there->cpu, here.blas, here.cpu, there->cpu, c->dir);
    return PD_OK;
}

static void report(const pd_checkpoint_image *kept, const pd_manifest *manifest, uint64_t ms)
{
    pd_checkpoint_about here = pd_checkpoint_about_here();

    say(LOG_NOTICE, kept, "is back at step %" PRIu64 ": a checkpoint of %" PRIu64 " bytes was read in %" PRIu64 " ms",
        kept->step, pd_manifest_bytes(manifest), ms);
    if (kept->foreign)
        say(LOG_WARNING, kept,
            "BLAS kernels %s and instructions %s made the checkpoint, here are %s and %s: later steps may differ in "
            "their last bits (exact = yes refuses that)",
            manifest->about.blas, manifest->about.cpu, here.blas, here.cpu);
}

/* The result of user->restore for the newest intact checkpoint of a job. */
typedef struct outcome {
    const recovery *r;
    int rc;       /* what user->restore has returned */
    pd_error why; /* why the job was not restored */
} outcome;

static void use(void *arg, pd_checkpoint_image *kept, const pd_manifest *manifest)
{
    outcome *o = arg;
    pd_checkpoint_about here = pd_checkpoint_about_here();

    kept->foreign = pd_checkpoint_is_foreign(&manifest->about, &here);
    o->why = (pd_error){ 0 };
    o->rc = o->r->user->restore(o->r->user->arg, kept, &o->why);
}

static void log_damage(void *arg, const char *dir, const pd_error *why)
{
    const outcome *o = arg;

    (void)dir;
    if (!stops(o->r)) pd_log(LOG_WARNING, "skipped a checkpoint: %s", why->text);
}

/* Calls user->restore with the newest intact checkpoint of a job, and sets *o to the result. Returns an error if there
 * is no such checkpoint, or the disk failed. */
static int load(outcome *o, const candidate *c, pd_checkpoint_image **out, pd_manifest *manifest, pd_error *err)
{
    const pd_checkpoint_user user = { o, use, log_damage };

    return pd_checkpoint_use_newest(o->r->disk, c->dir, &user, out, manifest, err);
}

/* The WAL of a job that was restored from a checkpoint, while it is replayed. */
typedef struct replay {
    const recovery *r;
    const pd_checkpoint_image *kept;
    uint64_t until; /* number of the last record to replay */
    pd_error why;   /* why user->replay has refused a record; code PD_OK: it has refused none */
} replay;

static pd_wal_source source_of(const pd_disk *disk, const candidate *c, const pd_checkpoint_image *kept,
                               pd_wal_stream stream)
{
    return (pd_wal_source){ disk, c->dir, kept->creator, stream, kept->place };
}

static int replay_record(void *arg, const pd_wal_record *record, pd_error *err)
{
    replay *p = arg;

    if (record->step > p->until) return pd_fail(err, PD_CANCELLED, "step %" PRIu64 " is the last", p->until);
    if (p->r->user->replay(p->r->user->arg, record, &p->why) == PD_OK) return PD_OK;
    return pd_fail(err, PD_CANCELLED, "%s", p->why.text);
}

/* Restores a job again after a failed replay of a step has made it unusable: loads its checkpoint of step `step`, and
 * replays the records up to step `until`. */
static int try_again(const recovery *r, const candidate *c, uint64_t step, uint64_t until, pd_error *err)
{
    outcome o = { .r = r };
    pd_wal_source from;
    pd_wal_about about;
    pd_manifest manifest;
    pd_checkpoint_image *kept = NULL;
    int rc = load(&o, c, &kept, &manifest, err);
    replay p = { .r = r, .kept = kept, .until = until };

    if (rc != PD_OK) return rc;
    from = source_of(r->disk, c, kept, PD_WAL_STEPS);
    if (o.rc != PD_OK)
        rc = pd_fail(err, o.rc, "%.400s", o.why.text);
    else if (kept->step != step)
        rc = pd_fail(err, PD_DATA_LOSS,
                     "the disk returns the checkpoint of step %" PRIu64 ", before that of step %" PRIu64, kept->step,
                     step);
    else
        rc = pd_wal_read(&from, replay_record, &p, &about, err);
    pd_checkpoint_image_free(kept);
    return rc == PD_CANCELLED && p.why.code == PD_OK ? PD_OK : rc;
}

/* Logs how many steps were replayed, and why later records of steps could not be used. */
static void report_steps(const replay *p, const pd_wal_about *about, uint64_t ms)
{
    if (about->entries > 0)
        say(LOG_NOTICE, p->kept,
            "is back at step %" PRIu64 ": replayed %" PRIu64 " steps, of %" PRIu64 " bytes, from the WAL in %" PRIu64
            " ms",
            about->last, about->entries, about->bytes, ms);
    if (p->why.code != PD_OK)
        say(LOG_ERR, p->kept,
            "cannot replay the record of step %" PRIu64 " in the WAL, so the job continues from step %" PRIu64
            ": %.300s",
            about->last + 1, about->last, p->why.text);
    else if (about->damage.code != PD_OK)
        say(LOG_ERR, p->kept, "damaged WAL, so the job continues from step %" PRIu64 ": %.600s", about->last,
            about->damage.text);
}

/* Logs why records of decisions could not be used. */
static void report_decisions(const replay *p, const pd_wal_about *about)
{
    const pd_error *why = p->why.code != PD_OK ? &p->why : &about->damage;

    if (why->code == PD_OK) return;
    say(LOG_WARNING, p->kept,
        "%s of the decision records is not used, so repeated steps may take other roots or values than before: %.500s",
        p->why.code != PD_OK ? "nothing" : "the end", why->text);
}

/* Replays one stream of the WAL of a job. Sets *last to the number of the last record that was used; 0: no record of
 * decisions was used. */
static int replay_stream(const recovery *r, const candidate *c, const pd_checkpoint_image *kept, pd_wal_stream stream,
                         uint64_t *last, pd_error *err)
{
    replay p = { .r = r, .kept = kept, .until = UINT64_MAX };
    pd_wal_source from = source_of(r->disk, c, kept, stream);
    pd_wal_about about;
    pd_error why = { 0 };
    uint64_t begun = now_ms();
    int rc = pd_wal_read(&from, replay_record, &p, &about, &why);

    if (rc == PD_CANCELLED && p.why.code != PD_OK && p.why.code != PD_NO_MEMORY) rc = PD_OK;
    if (rc == PD_OK && p.why.code == PD_ABORTED) rc = try_again(r, c, kept->step, about.last, &why);
    if (check_running(r, err) != PD_OK) return PD_CANCELLED;
    if (rc != PD_OK) return pd_fail(err, rc, "%.300s; to start without this job, move %.150s away", why.text, c->dir);
    *last = stream == PD_WAL_STEPS || p.why.code == PD_OK ? about.last : 0;
    if (stream == PD_WAL_STEPS)
        report_steps(&p, &about, now_ms() - begun);
    else
        report_decisions(&p, &about);
    return PD_OK;
}

/* Replays both streams of the WAL of a job. Then truncates each stream after the last record that was used. */
static int replay_wal(const recovery *r, const candidate *c, const pd_checkpoint_image *kept, pd_error *err)
{
    pd_wal_source from;
    uint64_t last[2];
    int rc = replay_stream(r, c, kept, PD_WAL_STEPS, &last[PD_WAL_STEPS], err);

    if (rc == PD_OK) rc = replay_stream(r, c, kept, PD_WAL_DECISIONS, &last[PD_WAL_DECISIONS], err);
    for (int stream = PD_WAL_STEPS; rc == PD_OK && stream <= PD_WAL_DECISIONS; stream++) {
        from = source_of(r->base.below, c, kept, (pd_wal_stream)stream);
        rc = pd_wal_truncate(&from, last[stream], err);
    }
    return rc;
}

static int restore_job(recovery *r, const candidate *c, pd_error *err)
{
    outcome o = { .r = r };
    pd_manifest manifest;
    pd_checkpoint_image *kept = NULL;
    uint64_t begun = now_ms();
    int rc;

    announce(c);
    rc = load(&o, c, &kept, &manifest, err);
    if (check_running(r, err) != PD_OK) {
        pd_checkpoint_image_free(kept);
        return PD_CANCELLED;
    }
    if (rc == PD_NOT_FOUND) {
        pd_log(LOG_ERR, "%.300s: no intact checkpoint: job lost", c->dir);
        return PD_OK;
    }
    if (rc != PD_OK) return rc;
    if (o.rc == PD_OK) {
        report(kept, &manifest, now_ms() - begun);
        if (r->user->replay != NULL) rc = replay_wal(r, c, kept, err);
    } else {
        rc = refuse(c, kept, &manifest.about, &o.why, err);
    }
    pd_checkpoint_image_free(kept);
    return rc;
}

int pd_recover(const pd_disk *disk, const char *root, const pd_recover_user *user, pd_error *err)
{
    recovery r = { .user = user };
    int rc = pd_keep_check_root(root, err);

    pd_disk_pass_init(&r.base, disk);
    r.base.functions.read = read_file;
    r.disk = &r.base.functions;
    if (rc == PD_OK) rc = find_candidates(&r, root, err);
    for (size_t i = 0; i < r.n && rc == PD_OK; i++) {
        if (is_outdated(&r, i))
            pd_log(LOG_WARNING, "%.300s: a later job %.100s was restored: this one stays on the disk", r.at[i].dir,
                   r.at[i].job);
        else
            rc = restore_job(&r, &r.at[i], err);
    }
    if (r.n > 0) pd_notify("STATUS=");
    free(r.at);
    return rc;
}
