/* keep_names.h - the names of directories and files in a state directory:
 *
 *     STATE_DIR/lock
 *     STATE_DIR/JOB-CREATOR/                   a job: its name, and the nonce of the process that created it
 *     STATE_DIR/JOB-CREATOR/ended              the job has ended: a restart does not bring it back
 *     STATE_DIR/JOB-CREATOR/step-STEP/         a checkpoint: weights.safetensors, state.bin, notes.bin, manifest.json
 *     STATE_DIR/JOB-CREATOR/step-STEP.old/     one of the same step, until the new one has its name
 *     STATE_DIR/JOB-CREATOR/tmp-STEP/          a checkpoint that is being written or removed
 *     STATE_DIR/JOB-CREATOR/aside-STEP[.N]/    a checkpoint that paramctl restore has set aside
 */
#ifndef PD_KEEP_NAMES_H
#define PD_KEEP_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "paramd/error.h"

#define PD_KEEP_ROOT 3072 /* most bytes of the path of a state directory */
#define PD_KEEP_NAME 256  /* most bytes of a name within it, with the final '\0' */
#define PD_KEEP_PATH 4096 /* room for any path within it */

/* The files of a checkpoint, in the order in which they are written; the manifest is the last. */
enum { PD_KEEP_WEIGHTS, PD_KEEP_STATE, PD_KEEP_NOTES, PD_KEEP_FILES };
extern const char *const pd_keep_files[PD_KEEP_FILES];
#define PD_KEEP_MANIFEST "manifest.json"
#define PD_KEEP_ENDED "ended"
#define PD_KEEP_LOCK "lock"

typedef enum pd_step_kind {
    PD_STEP_CURRENT, /* step-STEP */
    PD_STEP_OLD,     /* step-STEP.old */
    PD_STEP_TEMPORARY,
    PD_STEP_ASIDE,
    PD_STEP_NONE /* no such name */
} pd_step_kind;

/* Writes the name of a job's directory: the job's name, in which all bytes but letters, digits, '_' and '.' are
 * written as %XX, '-', and the creator in 16 hexadecimal digits. A long name is cut, and its hash follows '~'. */
void pd_keep_job_name(char out[PD_KEEP_NAME], const char *job, uint64_t creator);
/* Writes the name of a checkpoint's directory. */
void pd_keep_step_name(char out[PD_KEEP_NAME], pd_step_kind kind, uint64_t step);
/* Reads the name of a checkpoint's directory. Returns its kind, and sets *step unless that is PD_STEP_NONE. */
pd_step_kind pd_keep_step_parse(const char *name, uint64_t *step);
/* Joins a path and a name in it. The path was checked by pd_keep_check_root, or made by this function. */
void pd_keep_join(char out[PD_KEEP_PATH], const char *path, const char *name);
/* Checks that the path of a state directory is not too long. */
int pd_keep_check_root(const char *root, pd_error *err);

#endif
