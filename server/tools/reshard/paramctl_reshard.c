/* paramctl_reshard.c - the program of `paramctl reshard`: writes the state directories of another number of daemons,
 * from those that a number of daemons has left. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "effects.h"
#include "format.h"
#include "old_shards.h"
#include "out_folder.h"
#include "programs.h"
#include "result.h"
#include "store.h"

/* What the command is to do, and what it has done. */
typedef struct resharding {
    const pd_line *line;
    uint32_t shards; /* number of daemons that there shall be */
    pd_old_dirs dirs;
    pd_out_folder out;
    char (*dir)[PD_KEEP_PATH]; /* the new state directories */
    pd_store *store;
    json_t *jobs;
} resharding;

/* ---- progress ---- */

enum { QUIET_S = 2 }; /* seconds between two lines about the progress, and before the first */

/* Tells people on standard error how far a long work is. */
typedef struct progress {
    struct timespec next;
    pd_checkpoint_image *image; /* the checkpoint that is being written */
    int (*read_state)(void *arg, uint32_t i, pd_error *err);
    int (*lend_weights)(void *arg, uint32_t i, pd_error *err);
    void *arg;
    uint64_t done, total; /* elements of weights and of states */
    uint32_t shard, shards;
} progress;

static bool is_time(progress *p)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (p->next.tv_sec != 0 && now.tv_sec < p->next.tv_sec) return false;
    p->next = now;
    p->next.tv_sec += QUIET_S;
    return true;
}

static void begin_progress(progress *p, uint32_t shards)
{
    *p = (progress){ .shards = shards };
    (void)is_time(p);
}

static void tell(progress *p, uint32_t i)
{
    p->done += (uint64_t)p->image->params[i].elements;
    if (is_time(p))
        pd_print_line(stderr, "paramctl: writing shard %u of %u: %u %%", p->shard, p->shards,
                      (unsigned)(100 * p->done / (p->total > 0 ? p->total : 1)));
}

static int read_state(void *arg, uint32_t i, pd_error *err)
{
    progress *p = arg;

    tell(p, i);
    return p->read_state(p->arg, i, err);
}

static int lend_weights(void *arg, uint32_t i, pd_error *err)
{
    progress *p = arg;

    tell(p, i);
    return p->lend_weights(p->arg, i, err);
}

/* Lets the checkpoint tell how far it is written. */
static void watch(progress *p, pd_checkpoint_image *image, uint32_t shard)
{
    p->image = image;
    p->read_state = image->read_state;
    p->lend_weights = image->lend_weights;
    p->arg = image->read_arg;
    p->shard = shard;
    p->done = p->total = 0;
    for (uint32_t i = 0; i < image->n_params; i++) p->total += 2 * (uint64_t)image->params[i].elements;
    image->read_state = read_state;
    image->lend_weights = lend_weights;
    image->read_arg = p;
}

/* ---- a job ---- */

/* Prints the warnings of the store, such as one of uneven loads. */
static void print_notes(resharding *r)
{
    for (pd_effect *effect = pd_store_effects(r->store), *next; effect != NULL; effect = next) {
        next = (pd_effect *)(void *)effect->mail.next;
        if (effect->kind == PD_EFF_LOG && effect->u.log.level <= PD_SAY_WARNING)
            pd_print_line(stderr, "paramctl: %s", effect->u.log.text);
        pd_effect_free(effect);
    }
}

/* Checks that nothing is lost that the logs have promised to keep. */
static int check_logs(const resharding *r, const pd_old_job *job, const char *name, pd_error *err)
{
    for (size_t i = 0; i < job->n; i++)
        if (job->shard[i].logged > job->step && !pd_line_has(r->line, "step") && !pd_line_has(r->line, "drop-log"))
            return pd_fail(
                err, PD_FAILED_PRECONDITION,
                "%.200s: the log of job %.60s goes to step %" PRIu64 ", its checkpoint to %" PRIu64
                ": start the daemons, and stop them with `paramctl shutdown', which makes a checkpoint of the "
                "last step; or drop the steps after it (--drop-log)",
                r->dirs.path[i], name, job->shard[i].logged, job->step);
    return PD_OK;
}

/* Returns the last step that a checkpoint or log of some directory has. */
static uint64_t last_step(const pd_old_job *job)
{
    uint64_t last = job->newest;

    for (size_t i = 0; i < job->n; i++)
        if (job->shard[i].logged > last) last = job->shard[i].logged;
    return last;
}

/* Reads and checks all files of the checkpoints. */
static int open_all(resharding *r, pd_old_job *job, progress *p, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < job->n; i++) {
        if (is_time(p)) pd_print_line(stderr, "paramctl: checking %s", r->dirs.path[i]);
        rc = pd_old_job_open(job, &r->dirs, i, err);
    }
    return rc;
}

/* Returns what the new checkpoints say of the software that has made them. */
static pd_checkpoint_about about_of(const pd_old_job *job)
{
    pd_checkpoint_about about = job->shard[0].manifest.about;
    struct timespec now;

    for (size_t i = 1; i < job->n; i++)
        if (strcmp(job->shard[i].manifest.about.blas, about.blas) != 0 ||
            strcmp(job->shard[i].manifest.about.cpu, about.cpu) != 0)
            pd_print_line(stderr,
                          "paramctl: %s: made with BLAS kernels %s and instructions %s, the first shard with %s and %s",
                          job->shard[i].job_dir, job->shard[i].manifest.about.blas, job->shard[i].manifest.about.cpu,
                          about.blas, about.cpu);
    snprintf(about.paramd, sizeof about.paramd, "%s", PD_VERSION);
    clock_gettime(CLOCK_REALTIME, &now);
    about.written_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    return about;
}

static int write_shards(resharding *r, pd_reshard *work, const pd_checkpoint_about *about, progress *p, uint64_t *bytes,
                        pd_error *err)
{
    int rc = PD_OK;

    for (uint32_t s = 0; rc == PD_OK && s < r->shards; s++) {
        pd_checkpoint_image *image;
        rc = pd_reshard_shard(work, s, &image, err);
        print_notes(r);
        if (rc != PD_OK) return rc;
        watch(p, image, s);
        rc = pd_checkpoint_put(&pd_disk_posix, r->dir[s], image, about, err);
        *bytes += image->bytes;
        pd_checkpoint_image_free(image);
    }
    return rc;
}

/* Adds to the result what was done. */
static int note_job(resharding *r, const pd_old_job *job, const char *name, uint64_t bytes, pd_error *err)
{
    json_t *entry = json_pack("{s:s, s:I, s:I, s:i, s:i, s:I}", "job", name, "step", (json_int_t)job->step, "dropped",
                              (json_int_t)(last_step(job) - job->step), "from", (int)job->n, "shards", (int)r->shards,
                              "bytes", (json_int_t)bytes);

    return json_array_append_new(r->jobs, entry) == 0 ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");
}

static int reshard_found(resharding *r, pd_old_job *job, const char *name, pd_error *err)
{
    pd_reshard *work = NULL;
    pd_checkpoint_about about;
    uint64_t bytes = 0;
    progress p;
    int rc = check_logs(r, job, name, err);

    begin_progress(&p, r->shards);
    if (rc == PD_OK) rc = open_all(r, job, &p, err);
    if (rc == PD_OK) rc = pd_store_reshard(&work, r->store, job->sources, (uint32_t)job->n, r->shards, err);
    if (rc == PD_OK) {
        about = about_of(job);
        rc = write_shards(r, work, &about, &p, &bytes, err);
    }
    pd_reshard_free(work);
    return rc == PD_OK ? note_job(r, job, name, bytes, err) : rc;
}

static int reshard_job(resharding *r, const char *name, pd_error *err)
{
    bool has_step = pd_line_has(r->line, "step");
    uint64_t step = has_step ? (uint64_t)pd_line_number(r->line, "step") : 0;
    pd_old_job job;
    int rc = pd_old_job_find(&job, &r->dirs, name, has_step, step, err);

    if (rc != PD_OK) return rc;
    rc = reshard_found(r, &job, name, err);
    pd_old_job_free(&job);
    return rc;
}

/* ---- the command ---- */

static int make_store(pd_store **out, pd_error *err)
{
    /* No limits: what the job takes is checked by the daemons that load it. Large chunks keep the records small. */
    const pd_store_config config = { .max_jobs = 1,
                                     .max_params = 1u << 22,
                                     .max_total_bytes = UINT64_MAX / 4,
                                     .ingest_bytes = UINT64_MAX / 4,
                                     .chunk_elements = UINT64_C(1) << 28,
                                     .threads = 1,
                                     .pool_threads = 1,
                                     .keeps = true,
                                     .batch_ns = 1e7 };
    return pd_store_new(out, &config, err);
}

static int begin_out(resharding *r, const char *path, pd_error *err)
{
    int rc = pd_out_folder_begin(&r->out, path, err);

    if (rc == PD_OK && (r->dir = calloc(r->shards, sizeof *r->dir)) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (uint32_t s = 0; rc == PD_OK && s < r->shards; s++) rc = pd_out_folder_add(&r->out, s, r->dir[s], err);
    return rc;
}

static int reshard_all(resharding *r, char **jobs, size_t n, pd_error *err)
{
    int rc = PD_OK;

    if (n == 0) return pd_fail(err, PD_NOT_FOUND, "%.300s: no job to reshard", r->dirs.path[0]);
    for (size_t i = 0; rc == PD_OK && i < n; i++) rc = reshard_job(r, jobs[i], err);
    return rc;
}

/* Reshards the job of --job, or all jobs. */
static int reshard(resharding *r, pd_error *err)
{
    char *only = (char *)(uintptr_t)pd_line_text(r->line, "job"), **jobs = NULL;
    size_t n = 0;
    int rc;

    if (only != NULL) return reshard_all(r, &only, 1, err);
    rc = pd_old_dirs_jobs(&r->dirs, &jobs, &n, err);
    if (rc == PD_OK) rc = reshard_all(r, jobs, n, err);
    for (size_t i = 0; i < n; i++) free(jobs[i]);
    free(jobs);
    return rc;
}

static int run(resharding *r, pd_error *err)
{
    int rc = make_store(&r->store, err);

    if (rc == PD_OK) rc = pd_old_dirs_open(&r->dirs, r->line->args + 1, (size_t)r->line->n_args - 1, err);
    if (rc == PD_OK) rc = begin_out(r, r->line->args[0], err);
    if (rc == PD_OK) rc = reshard(r, err);
    return rc == PD_OK ? pd_out_folder_end(&r->out, err) : rc;
}

static int print_result(resharding *r)
{
    size_t i;
    json_t *job;

    if (r->line->json) return pd_result_json(json_pack("{s:s, s:O}", "out", r->out.path, "jobs", r->jobs));
    json_array_foreach(r->jobs, i, job)
    {
        json_int_t dropped = json_integer_value(json_object_get(job, "dropped"));
        pd_print_line(stdout, "%s: step %lld of %zu daemon%s, for %u daemon%s",
                      json_string_value(json_object_get(job, "job")),
                      (long long)json_integer_value(json_object_get(job, "step")), r->dirs.n, r->dirs.n > 1 ? "s" : "",
                      r->shards, r->shards > 1 ? "s" : "");
        if (dropped > 0)
            pd_print_line(stdout, "  %lld later steps, which some daemons had, are left out", (long long)dropped);
    }
    pd_print_line(stdout, "state directories: %s/0 to %s/%u, one for each daemon in the order of the new list",
                  r->out.path, r->out.path, r->shards - 1);
    return PD_CTL_OK;
}

int main(int argc, char **argv)
{
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_RESHARD], argc, argv);
    resharding r = { .line = &line, .jobs = json_array() };
    pd_error err = { 0 };
    int status;

    pd_line_parse(&line);
    if (!pd_line_has(&line, "shards")) pd_line_refuse(&line, "expected --shards M, the new number of daemons");
    r.shards = (uint32_t)pd_line_number(&line, "shards");
    if ((int)r.shards == line.n_args - 1)
        pd_line_refuse(&line, "there are %u directories of %u daemons already: copy them instead", r.shards, r.shards);
    status = run(&r, &err) == PD_OK ? print_result(&r) : pd_result_fail_reached(line.json, &err);
    pd_out_folder_free(&r.out);
    pd_old_dirs_close(&r.dirs);
    pd_store_free(r.store);
    free(r.dir);
    json_decref(r.jobs);
    return status;
}
