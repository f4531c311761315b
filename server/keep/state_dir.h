/* state_dir.h - a state directory: locks it, makes and reads the names of directories and files in it, and lists it.
 *
 *     STATE_DIR/lock
 *     STATE_DIR/life                           number of this copy of the state, in a cluster with an engine
 *     STATE_DIR/fence                          of a mirror: the highest tenure of an owner that was replaced (mirror.h)
 *     STATE_DIR/speed                          exists only while the speed of the disk is measured
 *     STATE_DIR/JOB-CREATOR/                   a job: its name, and its creator (the nonce of the process that
 *                                              created it)
 *     STATE_DIR/JOB-CREATOR/ended              the job has ended: a restart does not restore it
 *     STATE_DIR/JOB-CREATOR/step-STEP/         a checkpoint: weights.safetensors, state.bin, notes.bin, manifest.json
 *     STATE_DIR/JOB-CREATOR/step-STEP.old[.N]/ an earlier checkpoint of that step, until it is removed; .old.2 is
 *                                              newer than .old, .old.3 newer than .old.2 ...
 *     STATE_DIR/JOB-CREATOR/tmp-STEP/          a checkpoint that is being written or removed
 *     STATE_DIR/JOB-CREATOR/aside-STEP[.N]/    a checkpoint that paramctl restore has set aside
 *     STATE_DIR/JOB-CREATOR/log/               the WAL's stream of steps (wal_files.h)
 *     STATE_DIR/JOB-CREATOR/log/segment-NUMBER             a segment: records, one after the other
 *     STATE_DIR/JOB-CREATOR/log/segment-NUMBER.to-STEP     a segment whose records after STEP do not count
 *     STATE_DIR/JOB-CREATOR/log-aside[.N]/     a stream of steps that paramctl restore has set aside
 *     STATE_DIR/JOB-CREATOR/control/           the WAL's stream of decisions, with segments as in log/
 *     STATE_DIR/JOB-CREATOR/control-aside[.N]/ a stream of decisions that paramctl restore has set aside
 */
#ifndef PD_STATE_DIR_H
#define PD_STATE_DIR_H

#include "disk.h"
#include "paramd/error.h"

#include <stdbool.h>
#include <stdint.h>

#define PD_KEEP_ROOT 3072 /* most bytes of the path of a state directory */
#define PD_KEEP_NAME 256  /* most bytes of a name in a state directory, including the final '\0' */
#define PD_KEEP_PATH 4096 /* most bytes of a path in a state directory, including the final '\0' */

/* The files of a checkpoint, in the order in which they are written. The manifest is written after them. */
enum { PD_KEEP_WEIGHTS, PD_KEEP_STATE, PD_KEEP_NOTES, PD_KEEP_FILES };
extern const char *const pd_keep_files[PD_KEEP_FILES];
#define PD_KEEP_MANIFEST "manifest.json"
#define PD_KEEP_ENDED "ended"
#define PD_KEEP_LOCK "lock"
#define PD_KEEP_SPEED "speed"
#define PD_KEEP_LIFE "life"
#define PD_KEEP_FENCE "fence"
#define PD_KEEP_STEPS "log"
#define PD_KEEP_STEPS_ASIDE "log-aside"
#define PD_KEEP_DECISIONS "control"
#define PD_KEEP_DECISIONS_ASIDE "control-aside"

/* Kinds of checkpoint directories, by their names. */
typedef enum pd_step_kind {
    PD_STEP_CURRENT,   /* step-STEP */
    PD_STEP_OLD,       /* step-STEP.old, step-STEP.old.N */
    PD_STEP_TEMPORARY, /* tmp-STEP */
    PD_STEP_ASIDE,     /* aside-STEP, aside-STEP.N */
    PD_STEP_NONE       /* the name is not that of a checkpoint */
} pd_step_kind;

/* Writes the name of a job's directory: the job's name, in which all bytes but letters, digits, '_' and '.' are
 * written as %XX, '-', and the creator in 16 hexadecimal digits. A long name is cut, and '~' and its hash follow. */
void pd_keep_job_name(char out[PD_KEEP_NAME], const char *job, uint64_t creator);
/* Writes the name of a checkpoint's directory. */
void pd_keep_step_name(char out[PD_KEEP_NAME], pd_step_kind kind, uint64_t step);
/* Writes the name of an earlier checkpoint of a step that also has a newer checkpoint: "step-STEP.old" for the number
 * 1, or "step-STEP.old.NUMBER" for the numbers 2 to PD_KEEP_OLDS. A larger number is a newer checkpoint. */
enum { PD_KEEP_OLDS = 9 };
void pd_keep_old_name(char out[PD_KEEP_NAME], uint64_t step, int number);
/* Reads the name of a checkpoint's directory. Returns its kind, and sets *step unless the kind is PD_STEP_NONE. */
pd_step_kind pd_keep_step_parse(const char *name, uint64_t *step);

/* Kinds of WAL segments, by the names of their files. */
typedef enum pd_segment_kind {
    PD_SEGMENT_WHOLE, /* segment-NUMBER */
    PD_SEGMENT_UP_TO, /* segment-NUMBER.to-STEP */
    PD_SEGMENT_NONE   /* the name is not that of a segment */
} pd_segment_kind;

/* Writes the name of a WAL segment. `step` is used only by PD_SEGMENT_UP_TO: the last step whose record counts. */
void pd_keep_segment_name(char out[PD_KEEP_NAME], pd_segment_kind kind, uint64_t number, uint64_t step);
/* Reads the name of a segment. Returns its kind. Unless the kind is PD_SEGMENT_NONE, sets *number, and *step to the
 * last step whose record counts (UINT64_MAX: all count). */
pd_segment_kind pd_keep_segment_parse(const char *name, uint64_t *number, uint64_t *step);

/* Writes "path/name". pd_keep_check_root must have accepted `path`, or this function must have made it. */
void pd_keep_join(char out[PD_KEEP_PATH], const char *path, const char *name);
/* Checks that the path of a state directory has 1 to PD_KEEP_ROOT bytes. */
int pd_keep_check_root(const char *root, pd_error *err);

/* The name of a checkpoint's directory, and what the name says. The files in the directory were not read. */
typedef struct pd_step_entry {
    uint64_t step;
    pd_step_kind kind;
    char name[64];
} pd_step_entry;

/* All checkpoints in the directory of a job, the largest step first. Of one step the newest checkpoint comes first:
 * that of the kind PD_STEP_CURRENT, then those of the kind PD_STEP_OLD. */
typedef struct pd_step_list {
    pd_step_entry *at;
    size_t n, room; /* number of checkpoints in `at`; number for which it has memory */
    bool ended;     /* the job has ended: a restart does not restore it */
    bool no_memory; /* memory was missing, so the list is incomplete */
} pd_step_list;

/* Lists the directory of a job. If it does not exist, the list is empty. After an error there is nothing to free. */
int pd_step_list_read(pd_step_list *list, const pd_disk *disk, const char *job_dir, pd_error *err);
void pd_step_list_free(pd_step_list *list);
/* Returns whether the list has an entry of this kind and step. */
bool pd_step_list_has(const pd_step_list *list, pd_step_kind kind, uint64_t step);

/* Names of the directories of all jobs in a state directory, in the order of strcmp. */
typedef struct pd_job_dirs {
    char **at;
    size_t n, room; /* number of names in `at`; number for which it has memory */
    bool no_memory; /* memory was missing, so the list is incomplete */
} pd_job_dirs;

/* Lists the directories of jobs in a state directory. After an error there is nothing to free. */
int pd_job_dirs_read(pd_job_dirs *jobs, const pd_disk *disk, const char *root, pd_error *err);
void pd_job_dirs_free(pd_job_dirs *jobs);

/* Removes a directory and the files in it. Removes the manifest first, so that what is left is no checkpoint. Does
 * nothing if there is no such directory. */
int pd_keep_remove_dir(const pd_disk *disk, const char *path, pd_error *err);

/* A state directory that this process has locked. */
typedef struct pd_state_dir {
    int lock; /* descriptor of the file "lock"; -1: not open */
} pd_state_dir;

/* Opens and locks a state directory. With `create`, a missing directory is made for its owner alone (mode 0700); its
 * parent must exist. The lock lasts until pd_state_dir_close, or the end of the process.
 *
 * PD_FAILED_PRECONDITION: the path is not a directory, belongs to another user, or other users may write in it, so they
 * could exchange the state of jobs. PD_UNAVAILABLE: another daemon or paramctl has locked it, or the disk failed.
 * PD_NOT_FOUND: there is no such directory. */
int pd_state_dir_open(pd_state_dir *dir, const char *path, bool create, pd_error *err);
void pd_state_dir_close(pd_state_dir *dir);

/* Reads a file that has one number. Sets *number to 0 if there is no such file. PD_DATA_LOSS: it has something else. */
int pd_keep_number_read(const pd_disk *disk, const char *path, uint64_t *number, pd_error *err);
/* Writes a file that has one number, anew, and waits until the disk has its contents. */
int pd_keep_number_write(const pd_disk *disk, const char *path, uint64_t number, pd_error *err);

/* Reads the number of the copy in a state directory. The first owner of a shard has drawn it; whoever takes the shard
 * over must have the same. Sets *life to 0 if the directory has none. PD_DATA_LOSS: the file with it is damaged. */
int pd_state_dir_life(const pd_disk *disk, const char *path, uint64_t *life, pd_error *err);
/* Gives a state directory, which the caller has locked, a number. After a crash it has the old one or the new one. */
int pd_state_dir_set_life(const pd_disk *disk, const char *path, uint64_t life, pd_error *err);

#endif
