/* state_dir.h - a state directory: its lock, the names of directories and files in it, and what is there.
 *
 *     STATE_DIR/lock
 *     STATE_DIR/speed                          only for the moment in which the disk is measured
 *     STATE_DIR/JOB-CREATOR/                   a job: its name, and the nonce of the process that created it
 *     STATE_DIR/JOB-CREATOR/ended              the job has ended: a restart does not bring it back
 *     STATE_DIR/JOB-CREATOR/step-STEP/         a checkpoint: weights.safetensors, state.bin, notes.bin, manifest.json
 *     STATE_DIR/JOB-CREATOR/step-STEP.old[.N]/ one of the same step, until the new one has its name; .2 is newer than
 *                                              none, .3 newer than .2 ...
 *     STATE_DIR/JOB-CREATOR/tmp-STEP/          a checkpoint that is being written or removed
 *     STATE_DIR/JOB-CREATOR/aside-STEP[.N]/    a checkpoint that paramctl restore has set aside
 *     STATE_DIR/JOB-CREATOR/log/               the log: steps that follow a checkpoint (wal_files.h)
 *     STATE_DIR/JOB-CREATOR/log/segment-NUMBER             entries, one after the other
 *     STATE_DIR/JOB-CREATOR/log/segment-NUMBER.to-STEP     entries up to a step; what else it has does not count
 *     STATE_DIR/JOB-CREATOR/log-aside[.N]/     a log that paramctl restore has set aside
 *     STATE_DIR/JOB-CREATOR/control/           the control log: the course of steps that follow a checkpoint; its files
 *                                              have the names of a log's
 *     STATE_DIR/JOB-CREATOR/control-aside[.N]/ a control log that paramctl restore has set aside
 */
#ifndef PD_STATE_DIR_H
#define PD_STATE_DIR_H

#include "disk.h"
#include "paramd/error.h"

#include <stdbool.h>
#include <stdint.h>

#define PD_KEEP_ROOT 3072 /* most bytes of the path of a state directory */
#define PD_KEEP_NAME 256  /* most bytes of a name within it, with the final '\0' */
#define PD_KEEP_PATH 4096 /* room for any path within it */

/* The files of a checkpoint, in the order in which they are written; the manifest is the last. */
enum { PD_KEEP_WEIGHTS, PD_KEEP_STATE, PD_KEEP_NOTES, PD_KEEP_FILES };
extern const char *const pd_keep_files[PD_KEEP_FILES];
#define PD_KEEP_MANIFEST "manifest.json"
#define PD_KEEP_ENDED "ended"
#define PD_KEEP_LOCK "lock"
#define PD_KEEP_SPEED "speed"
#define PD_KEEP_STEPS "log"
#define PD_KEEP_STEPS_ASIDE "log-aside"
#define PD_KEEP_DECISIONS "control"
#define PD_KEEP_DECISIONS_ASIDE "control-aside"

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
/* Writes the name of a checkpoint that has given its name to one of the same step: "step-STEP.old", or with the number
 * 2 to PD_KEEP_OLDS "step-STEP.old.NUMBER". A larger number is a newer checkpoint. */
enum { PD_KEEP_OLDS = 9 };
void pd_keep_old_name(char out[PD_KEEP_NAME], uint64_t step, int number);
/* Reads the name of a checkpoint's directory. Returns its kind, and sets *step unless that is PD_STEP_NONE. */
pd_step_kind pd_keep_step_parse(const char *name, uint64_t *step);

typedef enum pd_segment_kind {
    PD_SEGMENT_WHOLE, /* segment-NUMBER */
    PD_SEGMENT_UP_TO, /* segment-NUMBER.to-STEP */
    PD_SEGMENT_NONE   /* no such name */
} pd_segment_kind;

/* Writes the name of a segment of a log. `step` is that of PD_SEGMENT_UP_TO. */
void pd_keep_segment_name(char out[PD_KEEP_NAME], pd_segment_kind kind, uint64_t number, uint64_t step);
/* Reads the name of a segment. Returns its kind, and sets *number and *step (UINT64_MAX: no limit) unless that is
 * PD_SEGMENT_NONE. */
pd_segment_kind pd_keep_segment_parse(const char *name, uint64_t *number, uint64_t *step);

/* Joins a path and a name in it. The path was checked by pd_keep_check_root, or made by this function. */
void pd_keep_join(char out[PD_KEEP_PATH], const char *path, const char *name);
/* Checks that the path of a state directory is not too long. */
int pd_keep_check_root(const char *root, pd_error *err);

/* A checkpoint's directory, by its name alone: what is in it was not looked at. */
typedef struct pd_step_entry {
    uint64_t step;
    pd_step_kind kind;
    char name[64];
} pd_step_entry;

/* All checkpoints in the directory of a job: the newest first; of one step that of the kind PD_STEP_CURRENT first. */
typedef struct pd_step_list {
    pd_step_entry *at;
    size_t n, room;
    bool ended; /* the job has ended: a restart does not bring it back */
    bool no_memory;
} pd_step_list;

/* Lists the directory of a job. A directory that is not there is empty. After an error there is nothing to free. */
int pd_step_list_read(pd_step_list *list, const pd_disk *disk, const char *job_dir, pd_error *err);
void pd_step_list_free(pd_step_list *list);
/* Returns whether the list has an entry of this kind and step. */
bool pd_step_list_has(const pd_step_list *list, pd_step_kind kind, uint64_t step);

/* Names of the directories of all jobs in a state directory, in the order of strcmp. */
typedef struct pd_job_dirs {
    char **at;
    size_t n, room;
    bool no_memory;
} pd_job_dirs;

int pd_job_dirs_read(pd_job_dirs *jobs, const pd_disk *disk, const char *root, pd_error *err);
void pd_job_dirs_free(pd_job_dirs *jobs);

/* Removes a directory and the files in it, the manifest first. */
int pd_keep_remove_dir(const pd_disk *disk, const char *path, pd_error *err);

typedef struct pd_state_dir {
    int lock; /* descriptor of the file "lock"; -1: not open */
} pd_state_dir;

/* Opens and locks a state directory. With `create` it is made if it is not there, for its owner alone (mode 0700); its
 * parent must exist. The lock lasts until pd_state_dir_close, or the end of the process.
 *
 * PD_FAILED_PRECONDITION: it is no directory, or other users may write in it, so they could exchange the state of jobs.
 * PD_UNAVAILABLE: another daemon, or a paramctl, has locked it; or the disk failed. PD_NOT_FOUND: it is not there. */
int pd_state_dir_open(pd_state_dir *dir, const char *path, bool create, pd_error *err);
void pd_state_dir_close(pd_state_dir *dir);

#endif
