/* old_shards.h - the state directories of the daemons that a job was on: finds the job in each, and a step of which all
 * have a checkpoint. */
#ifndef PD_OLD_SHARDS_H
#define PD_OLD_SHARDS_H

#include "checkpoint_files.h"
#include "reshard.h"
#include "state_dir.h"

/* State directories that this process has locked. */
typedef struct pd_old_dirs {
    char **path; /* borrowed */
    pd_state_dir *lock;
    size_t n;
} pd_old_dirs;

/* Locks n state directories. PD_UNAVAILABLE: a daemon has one. PD_FAILED_PRECONDITION: a directory is given twice, or
 * is none of this user. After an error there is nothing to close. */
int pd_old_dirs_open(pd_old_dirs *out, char **paths, size_t n, pd_error *err);
void pd_old_dirs_close(pd_old_dirs *dirs);
/* Lists the names of all jobs that have checkpoints in the directories and have not ended, in the order of strcmp. The
 * caller frees each, and the list. */
int pd_old_dirs_jobs(const pd_old_dirs *dirs, char ***jobs, size_t *n, pd_error *err);

/* The checkpoint of a job in one of the directories. */
typedef struct pd_old_shard {
    char job_dir[PD_KEEP_PATH];
    pd_step_list steps;
    uint64_t logged; /* last step that its log has; 0: no log, or nothing after the checkpoint */
    pd_manifest manifest;
    pd_checkpoint_picker *picker;
} pd_old_shard;

/* A job and its checkpoints of one step, of all directories. */
typedef struct pd_old_job {
    pd_old_shard *shard; /* in the order of the directories */
    size_t n;
    uint64_t step;
    uint64_t newest; /* the newest step of which some directory has a checkpoint */
    pd_reshard_source *sources;
} pd_old_job;

/* Finds a job in all directories, and the newest step of which all have a checkpoint, or step `wanted` if `has_step`.
 * Then finds what the logs have after it. PD_NOT_FOUND: a directory has no such job, or there is no such step. */
int pd_old_job_find(pd_old_job *out, const pd_old_dirs *dirs, const char *job, bool has_step, uint64_t wanted,
                    pd_error *err);
/* Compares all files of checkpoint `i` with its manifest, and opens it. PD_DATA_LOSS: a file is damaged. */
int pd_old_job_open(pd_old_job *job, const pd_old_dirs *dirs, size_t i, pd_error *err);
void pd_old_job_free(pd_old_job *job);

#endif
