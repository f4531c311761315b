/* checkpoint_read.c - reads and verifies checkpoints, finds the newest intact one, and lists all checkpoints of a state
 * directory. */
#include "checkpoint_files.h"
#include "file_io.h"
#include "state_dir.h"
#include "state_bin.h"
#include "wal_files.h"
#include "weights_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the manifest ---- */

/* Returns the name after the last '/' of a path. */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Checks that the name of a checkpoint's directory and the manifest have the same step. */
static int check_name(const pd_file_reader *file, const char *dir, const pd_manifest *manifest, pd_error *err)
{
    uint64_t step;

    if (pd_keep_step_parse(last_part(dir), &step) == PD_STEP_NONE || step == manifest->step) return PD_OK;
    return pd_file_reader_damaged(file, err, "it tells of another step than the name of its directory");
}

static int parse_manifest(pd_file_reader *file, const char *dir, pd_manifest *manifest, pd_error *err)
{
    size_t bytes = (size_t)file->bytes;
    pd_error why = { 0 };
    char *text;
    int rc;

    if (file->bytes > PD_MANIFEST_MOST) return pd_file_reader_damaged(file, err, "it is longer than a manifest can be");
    if ((text = malloc(bytes + 1)) == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    rc = pd_file_reader_take(file, text, bytes, err);
    if (rc == PD_OK && (rc = pd_manifest_parse(manifest, text, bytes, &why)) != PD_OK)
        pd_fail(err, rc, "%.300s: %s", dir, why.text);
    free(text);
    return rc == PD_OK ? check_name(file, dir, manifest, err) : rc;
}

static int read_manifest(const pd_disk *disk, const char *dir, pd_manifest *manifest, pd_error *err)
{
    pd_file_reader file;
    int rc = pd_file_reader_open(&file, disk, dir, PD_KEEP_MANIFEST, NULL, err);

    *manifest = (pd_manifest){ 0 };
    if (rc != PD_OK) return rc == PD_NOT_FOUND ? pd_fail(err, PD_DATA_LOSS, "%.300s: it has no manifest", dir) : rc;
    rc = parse_manifest(&file, dir, manifest, err);
    return pd_file_reader_close(&file, rc, err);
}

/* Opens a file of a checkpoint, which checks its size. With `all` also reads it, and checks its hash. */
static int check_file(const pd_disk *disk, const char *dir, const pd_manifest *manifest, int which, bool all,
                      pd_error *err)
{
    pd_file_reader file;
    int rc = pd_file_reader_open(&file, disk, dir, pd_keep_files[which], &manifest->file[which], err);

    if (rc == PD_NOT_FOUND) return pd_fail(err, PD_DATA_LOSS, "%.300s/%s: it is missing", dir, pd_keep_files[which]);
    if (rc != PD_OK) return rc;
    if (all) return pd_file_reader_close(&file, pd_file_reader_skip(&file, err), err);
    (void)pd_file_reader_close(&file, PD_CANCELLED, NULL);
    return PD_OK;
}

/* Reads a whole file, and checks its hash. If state.bin is damaged, the error names the parameter. */
static int prove_file(const pd_disk *disk, const char *dir, const pd_manifest *manifest, int which, pd_error *err)
{
    pd_checkpoint_image *kept;
    int rc;

    if (which != PD_KEEP_STATE) return check_file(disk, dir, manifest, which, true, err);
    if ((kept = calloc(1, sizeof *kept)) == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    rc = check_file(disk, dir, manifest, which, false, err);
    if (rc == PD_OK) rc = pd_state_bin_read(disk, dir, &manifest->file[which], kept, err);
    pd_checkpoint_image_free(kept);
    return rc;
}

int pd_checkpoint_check(const pd_disk *disk, const char *dir, pd_manifest *manifest, pd_error *err)
{
    int rc = pd_keep_check_root(dir, err);

    if (rc == PD_OK) rc = read_manifest(disk, dir, manifest, err);
    for (int i = 0; i < PD_KEEP_FILES && rc == PD_OK; i++) rc = check_file(disk, dir, manifest, i, false, err);
    return rc;
}

/* ---- loading ---- */

/* Checks that state.bin and the manifest have the same job and step. Takes the place from the manifest. */
static int agree(const char *dir, const pd_manifest *manifest, pd_checkpoint_image *kept, pd_error *err)
{
    kept->place = manifest->place;
    if (strcmp(kept->job, manifest->job) == 0 && kept->creator == manifest->creator && kept->step == manifest->step)
        return PD_OK;
    return pd_fail(err, PD_DATA_LOSS, "%.300s: state.bin is that of another job or step than the manifest", dir);
}

static int load_files(const pd_disk *disk, const char *dir, const pd_manifest *manifest, pd_checkpoint_image *kept,
                      pd_error *err)
{
    const pd_file_sum *sum = manifest->file;
    int rc = pd_state_bin_read(disk, dir, &sum[PD_KEEP_STATE], kept, err);

    if (rc == PD_OK) rc = agree(dir, manifest, kept, err);
    if (rc == PD_OK) rc = pd_weights_file_read(disk, dir, &sum[PD_KEEP_WEIGHTS], kept, err);
    if (rc == PD_OK) rc = pd_notes_bin_read(disk, dir, &sum[PD_KEEP_NOTES], kept, err);
    return rc;
}

int pd_checkpoint_load(const pd_disk *disk, const char *dir, pd_checkpoint_image **out, pd_manifest *manifest,
                       pd_error *err)
{
    pd_checkpoint_image *kept;
    int rc = pd_keep_check_root(dir, err);

    if (rc != PD_OK || (rc = read_manifest(disk, dir, manifest, err)) != PD_OK) return rc;
    if ((kept = calloc(1, sizeof *kept)) == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    if ((rc = load_files(disk, dir, manifest, kept, err)) != PD_OK) {
        pd_checkpoint_image_free(kept);
        return rc;
    }
    kept->bytes = pd_manifest_bytes(manifest);
    *out = kept;
    return PD_OK;
}

/* ---- verifying ---- */

int pd_checkpoint_verify(const pd_disk *disk, const char *dir, pd_file_verdict *verdict, void *arg, pd_error *err)
{
    pd_manifest manifest;
    pd_checkpoint_image *kept = NULL;
    pd_error why = { 0 };
    int rc = pd_keep_check_root(dir, err), worst;

    if (rc != PD_OK) return rc;
    worst = read_manifest(disk, dir, &manifest, &why);
    verdict(arg, PD_KEEP_MANIFEST, &why);
    if (worst != PD_OK) return pd_fail(err, worst, "%s", why.text);
    for (int i = 0; i < PD_KEEP_FILES; i++) {
        why = (pd_error){ 0 };
        rc = prove_file(disk, dir, &manifest, i, &why);
        verdict(arg, pd_keep_files[i], &why);
        if (rc != PD_OK && worst == PD_OK) worst = pd_fail(err, rc, "%s", why.text);
    }
    if (worst == PD_OK) worst = pd_checkpoint_load(disk, dir, &kept, &manifest, err);
    pd_checkpoint_image_free(kept);
    return worst;
}

/* ---- the newest ---- */

/* Checks that a checkpoint lies in the directory of its own job. */
static int check_home(const char *job_dir, const char *dir, const pd_manifest *manifest, pd_error *err)
{
    char name[PD_KEEP_NAME];

    pd_keep_job_name(name, manifest->job, manifest->creator);
    if (strcmp(last_part(job_dir), name) == 0) return PD_OK;
    return pd_fail(err, PD_DATA_LOSS, "%.300s: it belongs to another job, whose directory is %.200s", dir, name);
}

/* Tries one checkpoint: loads it (try_load), or lets `user` use it (try_use). */
typedef int attempt(const pd_disk *disk, const char *job_dir, const char *dir, const pd_step_list *list,
                    const pd_checkpoint_user *user, pd_checkpoint_image **out, pd_manifest *manifest, pd_error *err);

/* Calls `try` with the checkpoints of a job, the newest first, until it succeeds. */
static int try_all(const pd_disk *disk, const char *job_dir, attempt *try, const pd_checkpoint_user *user,
                   pd_checkpoint_image **out, pd_manifest *manifest, pd_error *err)
{
    char dir[PD_KEEP_PATH];
    pd_step_list list;
    pd_error why = { 0 };
    int rc = pd_step_list_read(&list, disk, job_dir, err);

    if (rc != PD_OK) return rc;
    rc = PD_NOT_FOUND;
    for (size_t i = 0; i < list.n && rc != PD_OK && rc != PD_NO_MEMORY; i++) {
        if (list.at[i].kind != PD_STEP_CURRENT && list.at[i].kind != PD_STEP_OLD) continue;
        pd_keep_join(dir, job_dir, list.at[i].name);
        rc = try(disk, job_dir, dir, &list, user, out, manifest, &why);
        if (rc != PD_OK && rc != PD_NO_MEMORY) user->report(user->arg, dir, &why);
    }
    pd_step_list_free(&list);
    if (rc == PD_OK) return rc;
    if (rc == PD_NO_MEMORY) return pd_fail(err, rc, "%s", why.text);
    return pd_fail(err, PD_NOT_FOUND, "%.300s: it has no checkpoint that is whole", job_dir);
}

static int try_load(const pd_disk *disk, const char *job_dir, const char *dir, const pd_step_list *list,
                    const pd_checkpoint_user *user, pd_checkpoint_image **out, pd_manifest *manifest, pd_error *err)
{
    int rc = pd_checkpoint_load(disk, dir, out, manifest, err);

    (void)user;
    if (rc != PD_OK) return rc;
    if ((rc = check_home(job_dir, dir, manifest, err)) == PD_OK)
        pd_checkpoint_describe(*out, disk, job_dir, list);
    else
        pd_checkpoint_image_free(*out);
    return rc;
}

int pd_checkpoint_newest(const pd_disk *disk, const char *job_dir, pd_checkpoint_image **out, pd_manifest *manifest,
                         pd_damage_report *report, void *arg, pd_error *err)
{
    const pd_checkpoint_user user = { .arg = arg, .report = report };

    return try_all(disk, job_dir, try_load, &user, out, manifest, err);
}

/* ---- using the newest while it is read ---- */

/* A checkpoint whose states of parameters and weights are still on the disk. */
typedef struct using
{
    const pd_disk *disk;
    const char *dir;
    const pd_manifest *manifest;
    pd_state_bin *state; /* the open state.bin; NULL: it is closed */
    pd_checkpoint_image *kept;
    pd_error error; /* why a state or the weights could not be read; code PD_OK: no read has failed */
}
using;

static int read_state(void *arg, uint32_t i, pd_error *err)
{
    using *u = arg;
    int rc;

    if (i < u->kept->n_params) {
        rc = pd_state_bin_next(u->state, i, err);
    } else {
        rc = pd_state_bin_close(u->state, PD_OK, err);
        u->state = NULL;
    }
    if (rc != PD_OK) u->error = *err;
    return rc;
}

static int read_weights(void *arg, float *const *to, pd_error *err)
{
    using *u = arg;
    int rc = pd_weights_file_read_to(u->disk, u->dir, &u->manifest->file[PD_KEEP_WEIGHTS], u->kept, to, err);

    if (rc != PD_OK) u->error = *err;
    return rc;
}

/* Opens a checkpoint, and reads everything but the states of its parameters and the weights. */
static int open_files(using *u, const char *job_dir, pd_manifest *manifest, pd_error *err)
{
    const pd_file_sum *sum = manifest->file;
    int rc = read_manifest(u->disk, u->dir, manifest, err);

    if (rc == PD_OK) rc = check_home(job_dir, u->dir, manifest, err);
    if (rc == PD_OK) rc = pd_state_bin_open(&u->state, u->disk, u->dir, &sum[PD_KEEP_STATE], u->kept, err);
    if (rc == PD_OK) rc = agree(u->dir, manifest, u->kept, err);
    return rc == PD_OK ? pd_notes_bin_read(u->disk, u->dir, &sum[PD_KEEP_NOTES], u->kept, err) : rc;
}

/* Calls user->use with the checkpoint. Returns the error of a read that has failed. */
static int use(using *u, const pd_checkpoint_user *user, pd_error *err)
{
    u->kept->bytes = pd_manifest_bytes(u->manifest);
    u->kept->read_state = read_state;
    u->kept->read_weights = read_weights;
    u->kept->read_arg = u;
    user->use(user->arg, u->kept, u->manifest);
    u->kept->read_state = NULL;
    u->kept->read_weights = NULL;
    if (u->error.code != PD_OK && err != NULL) *err = u->error;
    return u->error.code;
}

static int try_use(const pd_disk *disk, const char *job_dir, const char *dir, const pd_step_list *list,
                   const pd_checkpoint_user *user, pd_checkpoint_image **out, pd_manifest *manifest, pd_error *err)
{
    using u = { .disk = disk, .dir = dir, .manifest = manifest, .kept = calloc(1, sizeof *u.kept) };
    int rc = pd_keep_check_root(dir, err);

    if (u.kept == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    if (rc == PD_OK) rc = open_files(&u, job_dir, manifest, err);
    if (rc == PD_OK) pd_checkpoint_describe(u.kept, disk, job_dir, list);
    if (rc == PD_OK) rc = use(&u, user, err);
    (void)pd_state_bin_close(u.state, PD_CANCELLED, NULL);
    if (rc == PD_OK)
        *out = u.kept;
    else
        pd_checkpoint_image_free(u.kept);
    return rc;
}

int pd_checkpoint_use_newest(const pd_disk *disk, const char *job_dir, const pd_checkpoint_user *user,
                             pd_checkpoint_image **out, pd_manifest *manifest, pd_error *err)
{
    return try_all(disk, job_dir, try_use, user, out, manifest, err);
}

/* ---- reading in any order ---- */

struct pd_checkpoint_picker {
    pd_checkpoint_image *kept;
    pd_state_bin *state;
    pd_weights_file *weights;
};

static int pick_state(void *arg, uint32_t i, pd_error *err)
{
    pd_checkpoint_picker *p = arg;

    if (i < p->kept->n_params) return pd_state_bin_pick(p->state, i, err);
    pd_state_bin_release(p->state);
    return PD_OK;
}

int pd_checkpoint_pick_weights(void *arg, uint32_t i, int64_t first, int64_t n, float *to, pd_error *err)
{
    pd_checkpoint_picker *p = arg;

    return pd_weights_file_pick(p->weights, i, first, n, to, err);
}

static int open_picker(pd_checkpoint_picker *p, const pd_disk *disk, const char *dir, pd_manifest *manifest,
                       pd_error *err)
{
    const pd_file_sum *sum = manifest->file;
    int rc = pd_checkpoint_check(disk, dir, manifest, err);

    for (int i = 0; i < PD_KEEP_FILES && rc == PD_OK; i++) rc = check_file(disk, dir, manifest, i, true, err);
    if (rc == PD_OK) rc = pd_state_bin_open(&p->state, disk, dir, &sum[PD_KEEP_STATE], p->kept, err);
    if (rc == PD_OK) pd_state_bin_release(p->state);
    if (rc == PD_OK) rc = agree(dir, manifest, p->kept, err);
    if (rc == PD_OK) rc = pd_notes_bin_read(disk, dir, &sum[PD_KEEP_NOTES], p->kept, err);
    return rc == PD_OK ? pd_weights_file_open(&p->weights, disk, dir, &sum[PD_KEEP_WEIGHTS], p->kept, err) : rc;
}

int pd_checkpoint_pick(pd_checkpoint_picker **out, const pd_disk *disk, const char *dir, pd_manifest *manifest,
                       pd_error *err)
{
    pd_checkpoint_picker *p = *out = calloc(1, sizeof *p);
    int rc;

    if (p != NULL) p->kept = calloc(1, sizeof *p->kept);
    if (p == NULL || p->kept == NULL) {
        pd_checkpoint_picker_free(p);
        *out = NULL;
        return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    }
    if ((rc = open_picker(p, disk, dir, manifest, err)) != PD_OK) {
        pd_checkpoint_picker_free(p);
        *out = NULL;
        return rc;
    }
    p->kept->bytes = pd_manifest_bytes(manifest);
    p->kept->read_state = pick_state;
    p->kept->read_arg = p;
    return PD_OK;
}

pd_checkpoint_image *pd_checkpoint_picked(const pd_checkpoint_picker *p)
{
    return p->kept;
}

void pd_checkpoint_picker_free(pd_checkpoint_picker *p)
{
    if (p == NULL) return;
    pd_weights_file_close(p->weights);
    (void)pd_state_bin_close(p->state, PD_CANCELLED, NULL);
    pd_checkpoint_image_free(p->kept);
    free(p);
}

/* ---- listing ---- */

void pd_checkpoint_list_kept(pd_kept_steps *kept, const pd_step_list *list, uint64_t step)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].step <= step && (list->at[i].kind == PD_STEP_CURRENT || list->at[i].kind == PD_STEP_OLD))
            pd_kept_steps_add(kept, list->at[i].step);
}

void pd_checkpoint_describe(pd_checkpoint_image *image, const pd_disk *disk, const char *job_dir,
                            const pd_step_list *list)
{
    image->kept.n = 0;
    pd_checkpoint_list_kept(&image->kept, list, image->step);
    image->oldest_record = pd_wal_oldest(disk, job_dir, image->creator, image->place);
    if (image->oldest_record == image->place)
        image->ended_record = pd_wal_ended(disk, job_dir, image->creator, image->place, &image->oldest_record);
}

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
