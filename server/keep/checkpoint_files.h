/* checkpoint_files.h - writes, finds, verifies, reads and removes checkpoints on a disk.
 *
 * A checkpoint is a directory (state_dir.h). It is written under a temporary name, and renamed when all its files are
 * on the disk. So after a crash either the new checkpoint or the one before it is complete. No byte is trusted: the
 * manifest contains the size and XXH3 of each file, and its own XXH3.
 *
 * All functions may be called from any thread, but only one thread may write into a state directory (pd_state_dir_open
 * locks it). Functions also return errors that their comments do not name: PD_NO_MEMORY, and PD_UNAVAILABLE or
 * PD_RESOURCE_EXHAUSTED if the disk failed. */
#ifndef PD_CHECKPOINT_FILES_H
#define PD_CHECKPOINT_FILES_H

#include "disk.h"
#include "checkpoint_image.h"
#include "manifest.h"
#include "state_dir.h"

/* ---- writing ---- */

/* Writes a checkpoint. If kept->ended is set, writes only the mark that the job has ended. After PD_OK the checkpoint
 * survives a crash of the machine, kept->bytes is its size, and kept->kept lists the checkpoints that stay. Older ones
 * are not removed yet (see pd_checkpoint_tidy).
 *
 * After an error the new files are removed, and the older checkpoints are unchanged. If the removal fails, the next
 * call removes them. A file whose sync has failed is never used again: the next call writes new files.
 * PD_RESOURCE_EXHAUSTED: the disk has no room for one more checkpoint. Older ones are not removed first, because the
 * job needs them until the new one is complete. */
int pd_checkpoint_put(const pd_disk *disk, const char *root, pd_checkpoint_image *kept,
                      const pd_checkpoint_about *about, pd_error *err);
/* Says which checkpoints of a job stay: the members of pd_checkpoint_image with these names. */
typedef struct pd_retention {
    uint64_t keep; /* the newest ones, at least 1 */
    bool has_common;
    uint64_t common;
} pd_retention;
/* Returns what the checkpoint says of those that stay. */
pd_retention pd_checkpoint_retention(const pd_checkpoint_image *kept);
/* Removes all checkpoints of a job but those that stay. Ignores errors: the next call tries again. Removing large files
 * takes time, so report a new checkpoint as durable before. `job_dir` is the job's directory. */
void pd_checkpoint_tidy(const pd_disk *disk, const char *job_dir, const pd_retention *retention);
/* Writes a checkpoint (pd_checkpoint_put), then removes those that do not stay (pd_checkpoint_tidy). */
int pd_checkpoint_write(const pd_disk *disk, const char *root, pd_checkpoint_image *kept,
                        const pd_checkpoint_about *about, pd_error *err);
/* Writes the path of the job's directory to `out`. pd_keep_check_root must have accepted `root`. */
void pd_checkpoint_job_dir(char out[PD_KEEP_PATH], const char *root, const pd_checkpoint_image *kept);

/* ---- reading ---- */

/* Reads the manifest of the checkpoint in the directory `dir`, and compares the sizes of its files with it.
 * PD_DATA_LOSS: the checkpoint is damaged; the error names the file and says what is wrong. */
int pd_checkpoint_check(const pd_disk *disk, const char *dir, pd_manifest *manifest, pd_error *err);

/* Takes the result for one file of a checkpoint that is verified. `why` says what is wrong; its code is PD_OK if the
 * file is intact. */
typedef void pd_file_verdict(void *arg, const char *file, const pd_error *why);
/* Reads all files of a checkpoint, compares them with the manifest, and calls `verdict` for each. Then loads the
 * checkpoint, which checks what the files contain. Returns the first error. PD_DATA_LOSS: a file is damaged. */
int pd_checkpoint_verify(const pd_disk *disk, const char *dir, pd_file_verdict *verdict, void *arg, pd_error *err);

/* Loads a checkpoint. The caller frees *out with pd_checkpoint_image_free. PD_DATA_LOSS: the checkpoint is damaged.
 * PD_UNIMPLEMENTED: another version of paramd has written it. */
int pd_checkpoint_load(const pd_disk *disk, const char *dir, pd_checkpoint_image **out, pd_manifest *manifest,
                       pd_error *err);

/* Takes the directory of a checkpoint that was skipped, and why: it is damaged or cannot be read. */
typedef void pd_damage_report(void *arg, const char *dir, const pd_error *why);
/* Loads the newest intact checkpoint of a job, with the list of those before it; `job_dir` is the job's directory.
 * Calls `report` for each newer checkpoint, which was skipped. PD_NOT_FOUND: no checkpoint is intact. */
int pd_checkpoint_newest(const pd_disk *disk, const char *job_dir, pd_checkpoint_image **out, pd_manifest *manifest,
                         pd_damage_report *report, void *arg, pd_error *err);

/* The functions that pd_checkpoint_use_newest calls. */
typedef struct pd_checkpoint_user {
    void *arg;
    /* Uses a checkpoint, for example restores a job. The states of the parameters and the weights are still on the
     * disk: `use` reads them with kept->read_state and kept->read_weights. If they cannot be read, `use` must undo what
     * it has done, and is called again with an older checkpoint. */
    void (*use)(void *arg, pd_checkpoint_image *kept, const pd_manifest *manifest);
    pd_damage_report *report; /* called for each checkpoint that was skipped */
} pd_checkpoint_user;
/* Finds the newest intact checkpoint of a job, and calls user->use with it. *out becomes the checkpoint without the
 * states of its parameters and without weights. The caller frees it. PD_NOT_FOUND: no checkpoint is intact. */
int pd_checkpoint_use_newest(const pd_disk *disk, const char *job_dir, const pd_checkpoint_user *user,
                             pd_checkpoint_image **out, pd_manifest *manifest, pd_error *err);

/* A checkpoint whose states and weights are read in any order. */
typedef struct pd_checkpoint_picker pd_checkpoint_picker;
/* Compares all files of a checkpoint with the manifest, in little memory, and opens them. The errors are those of
 * pd_checkpoint_load. */
int pd_checkpoint_pick(pd_checkpoint_picker **out, const pd_disk *disk, const char *dir, pd_manifest *manifest,
                       pd_error *err);
/* Returns the checkpoint. Its read_state, with its read_arg, reads any state; for i = n_params it frees the memory of
 * the state that was read last. */
pd_checkpoint_image *pd_checkpoint_picked(const pd_checkpoint_picker *picker);
/* Reads elements [first, first + n) of the weights of parameter i; `arg` is the checkpoint's read_arg. */
int pd_checkpoint_pick_weights(void *arg, uint32_t i, int64_t first, int64_t n, float *to, pd_error *err);
void pd_checkpoint_picker_free(pd_checkpoint_picker *picker); /* accepts NULL */

/* ---- listing ---- */

/* Lists the steps of a job's checkpoints up to `step`. `list` has the names in the job's directory. */
void pd_checkpoint_list_kept(pd_kept_steps *kept, const pd_step_list *list, uint64_t step);
/* Fills in which other checkpoints the job has (image->kept), and which steps its WAL has (image->oldest_record and
 * ended_record). */
void pd_checkpoint_describe(pd_checkpoint_image *image, const pd_disk *disk, const char *job_dir,
                            const pd_step_list *list);

/* A checkpoint in a list. Its pointers are valid only during the call. */
typedef struct pd_checkpoint_entry {
    const char *dir;             /* path of its directory */
    const pd_manifest *manifest; /* zeros if it cannot be read */
    uint64_t step;               /* step of the checkpoint, from the name of its directory */
    bool ended;                  /* its job has ended */
    bool aside;                  /* paramctl restore has set it aside, so a restart does not use it */
    pd_error error; /* what is wrong with its manifest or with the sizes of its files; code PD_OK: nothing */
} pd_checkpoint_entry;

/* Calls `each` for all checkpoints in a state directory, job by job, the newest of a job first. */
int pd_checkpoint_list(const pd_disk *disk, const char *root, void (*each)(void *arg, const pd_checkpoint_entry *entry),
                       void *arg, pd_error *err);

/* ---- going back ---- */

/* Returns whether other BLAS kernels or another instruction set than those of `here` have made a checkpoint. */
bool pd_checkpoint_is_foreign(const pd_checkpoint_about *there, const pd_checkpoint_about *here);

/* Lets the next start of the daemon restore a job from its checkpoint of step `step`. Newer checkpoints of the job are
 * renamed to aside-STEP, and its WAL is set aside, so that later steps are not restored or replayed. The mark that the
 * job has ended is removed. *n_aside is the number of checkpoints that were set aside; *log_aside: the job had a stream
 * of steps. PD_DATA_LOSS: the checkpoint is damaged, and nothing has changed. PD_NOT_FOUND: there is no such job or
 * step. PD_INVALID_ARGUMENT: several jobs of that name have such a step; `creator` (0: any) chooses one. */
int pd_checkpoint_restore(const pd_disk *disk, const char *root, const char *job, uint64_t creator, uint64_t step,
                          size_t *n_aside, bool *log_aside, pd_error *err);

/* Carries out an order of a running job: reads the whole checkpoint of order->step into memory, which checks every
 * byte, and then lets the next start of the daemon restore the job from it. With order->replays it is the newest one
 * before this step, and the records up to the step are checked, too. Newer checkpoints are renamed: to names that the
 * checkpoint writer removes (order->removes), or to aside-STEP. The WAL stays: pd_wal_act.
 *
 * A crash of the machine at any time leaves either all newer checkpoints in use, or none. Fills in order->error and
 * order->image. After an error the newer checkpoints are in use as before. PD_NOT_FOUND: there is no checkpoint of this
 * step, or the WAL does not lead to it. PD_DATA_LOSS: it is damaged. PD_FAILED_PRECONDITION: order->exact, and the
 * checkpoint is foreign to `here`.
 *
 * With order->reads fills in order->error and order->records instead, and sets order->read to the last one that was
 * read. */
void pd_checkpoint_go_back(const pd_disk *disk, const char *root, const pd_checkpoint_about *here,
                           pd_go_back_order *order);

#endif
