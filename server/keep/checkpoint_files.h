/* checkpoint_files.h - checkpoints on a disk: writes them, finds them again, and reads them.
 *
 * A checkpoint is a directory (keep_names.h). It is written under a temporary name and gets its own name when all of
 * its files are on the disk. So whenever the power fails, either the new checkpoint is there as a whole, or the one
 * before it is. No byte is trusted: the manifest has the size and XXH3 of each file, and its own.
 *
 * All functions may be called from any thread, but only one thread may write into a state directory (state_dir.h locks
 * it). Errors that are not named: PD_NO_MEMORY, and those of the disk, PD_UNAVAILABLE and PD_RESOURCE_EXHAUSTED. */
#ifndef PD_CHECKPOINT_FILES_H
#define PD_CHECKPOINT_FILES_H

#include "disk.h"
#include "checkpoint_image.h"
#include "manifest.h"

/* ---- writing ---- */

/* Writes a checkpoint, or if kept->ended is set the mark that the job has ended. After PD_OK it survives a crash of the
 * machine, and kept->bytes is its size. Nothing is removed: see pd_checkpoint_tidy.
 *
 * After an error the disk has what it had before: what was written is removed. If even that fails, the next call
 * removes it. A file whose sync has failed is never used again: the next call writes new files.
 * PD_RESOURCE_EXHAUSTED: the disk has not enough room for one more checkpoint; older ones are not removed first, since
 * they are all that there is until this one is complete. */
int pd_checkpoint_put(const pd_disk *disk, const char *root, pd_checkpoint_image *kept,
                      const pd_checkpoint_about *about, pd_error *err);
/* Removes all checkpoints of a job but the last `keep`. Errors do not matter: the next call tries again. Removing large
 * files takes time, so whoever waits for a checkpoint should be told before. `job_dir` is the job's directory. */
void pd_checkpoint_tidy(const pd_disk *disk, const char *job_dir, uint64_t keep);
/* Does both: of the job's checkpoints the last kept->keep are left. */
int pd_checkpoint_write(const pd_disk *disk, const char *root, pd_checkpoint_image *kept,
                        const pd_checkpoint_about *about, pd_error *err);
/* Writes the path of a job's directory. pd_keep_check_root has accepted `root`. */
void pd_checkpoint_job_dir(char out[PD_KEEP_PATH], const char *root, const pd_checkpoint_image *kept);

/* ---- reading ---- */

/* Reads the manifest of a checkpoint, whose directory is `dir`, and compares the sizes of its files. PD_DATA_LOSS: the
 * checkpoint is damaged; the error names the file and says what is wrong. */
int pd_checkpoint_check(const pd_disk *disk, const char *dir, pd_manifest *manifest, pd_error *err);

/* Called with each file of a checkpoint that is verified, and what is wrong with it (code PD_OK: nothing). */
typedef void pd_file_verdict(void *arg, const char *file, const pd_error *why);
/* Reads all bytes of a checkpoint and compares them with the manifest; then loads it, which checks the rest. Returns
 * PD_DATA_LOSS, or the first other error, if a file is damaged. */
int pd_checkpoint_verify(const pd_disk *disk, const char *dir, pd_file_verdict *verdict, void *arg, pd_error *err);

/* Loads a checkpoint. The caller frees *out with pd_checkpoint_image_free. PD_DATA_LOSS: it is damaged.
 * PD_UNIMPLEMENTED: a newer version has written it. */
int pd_checkpoint_load(const pd_disk *disk, const char *dir, pd_checkpoint_image **out, pd_manifest *manifest,
                       pd_error *err);

/* Called with a checkpoint that was passed over, and what is wrong with it. */
typedef void pd_damage_report(void *arg, const char *dir, const pd_error *why);
/* Loads the newest checkpoint of a job that is whole; `job_dir` is the job's directory. Those that are newer and
 * damaged are reported. PD_NOT_FOUND: there is none. */
int pd_checkpoint_newest(const pd_disk *disk, const char *job_dir, pd_checkpoint_image **out, pd_manifest *manifest,
                         pd_damage_report *report, void *arg, pd_error *err);

/* What becomes of the newest checkpoint. */
typedef struct pd_checkpoint_user {
    void *arg;
    /* Uses a checkpoint, whose states of parameters and weights are still on the disk (pd_checkpoint_image.read_state
     * and read_weights). If they cannot be read, it leaves everything as it was, and is called with an older
     * checkpoint. */
    void (*use)(void *arg, pd_checkpoint_image *kept, const pd_manifest *manifest);
    pd_damage_report *report;
} pd_checkpoint_user;
/* Uses the newest checkpoint of a job that is whole, as pd_checkpoint_newest loads it. *out is the checkpoint without
 * the states of its parameters and without weights. */
int pd_checkpoint_use_newest(const pd_disk *disk, const char *job_dir, const pd_checkpoint_user *user,
                             pd_checkpoint_image **out, pd_manifest *manifest, pd_error *err);

/* ---- listing ---- */

/* A checkpoint in a list. Pointers are borrowed for the call. */
typedef struct pd_checkpoint_entry {
    const char *dir;             /* path of its directory */
    const pd_manifest *manifest; /* zeros if it cannot be read */
    uint64_t step;               /* by the name of its directory */
    bool ended;                  /* its job has ended */
    bool aside;                  /* it was set aside, so a restart does not use it */
    pd_error error;              /* what is wrong with its manifest, or the sizes of its files; code PD_OK: nothing */
} pd_checkpoint_entry;

/* Calls `each` with all checkpoints in a state directory: job by job, the newest first. */
int pd_checkpoint_list(const pd_disk *disk, const char *root, void (*each)(void *arg, const pd_checkpoint_entry *entry),
                       void *arg, pd_error *err);

/* Makes the checkpoint of a step the one that the next start of the daemon loads: newer ones of the job are set aside
 * under another name (aside-STEP), and so is the job's log, which would lead on from there. The mark that the job has
 * ended is removed. *n_aside is the number of checkpoints that were set aside, *log_aside tells whether there was a
 * log. Fails if the checkpoint is damaged. PD_NOT_FOUND: there is no such job or step. PD_INVALID_ARGUMENT: several
 * jobs of that name have such a step; `creator` (0: any) chooses one. */
int pd_checkpoint_restore(const pd_disk *disk, const char *root, const char *job, uint64_t creator, uint64_t step,
                          size_t *n_aside, bool *log_aside, pd_error *err);

#endif
