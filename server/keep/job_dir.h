/* job_dir.h - lists what is in the directory of a job, and in a state directory; removes checkpoints. */
#ifndef PD_JOB_DIR_H
#define PD_JOB_DIR_H

#include "disk.h"
#include "keep_names.h"

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

#endif
