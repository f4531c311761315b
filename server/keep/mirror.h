/* mirror.h - a second directory with the state of a daemon's jobs: copies what is durable in the state directory to it,
 * and makes a state directory from it.
 *
 * A mirror is a state directory (state_dir.h) at every moment. A checkpoint there has its name from the beginning, and
 * counts once its manifest, the last file, is intact. So a mirror may lie on a file system without renaming. Nothing
 * waits for a mirror: the state directory is its queue. A mirror that was away for a while gets what the state
 * directory has then. */
#ifndef PD_MIRROR_H
#define PD_MIRROR_H

#include "copy.h"
#include "disk.h"

#include <stdint.h>

/* ---- writing ---- */

typedef struct pd_mirror_writer pd_mirror_writer;

/* What the writer of a mirror tells. */
typedef struct pd_mirror_user {
    void *arg;
    /* The mirror has the state of a job up to `step`, which differs from what was told before, or is that of another
     * checkpoint. */
    void (*mirrored)(void *arg, const char *job, uint64_t creator, uint64_t step);
    /* Something that operators should know, and that is told once. */
    void (*remark)(void *arg, const pd_error *remark);
} pd_mirror_user;

/* Makes the writer of a mirror. pd_keep_check_root must have accepted both paths. The disks and *user are borrowed.
 * Opens no file. PD_NO_MEMORY. */
int pd_mirror_writer_new(pd_mirror_writer **out, const pd_disk *from, const char *root, const pd_disk *to,
                         const char *mirror, const pd_mirror_user *user, pd_error *err);
/* Remembers the newest checkpoint of each job in the state directory, before the daemon continues any. A job whose
 * mirror is ahead of that is left alone until the state directory has another newest checkpoint: it may be an old state
 * directory that was put in place by mistake. *n_jobs is the number of jobs. */
int pd_mirror_begin(pd_mirror_writer *writer, size_t *n_jobs, pd_error *err);
/* Copies what the mirror lacks, job by job: checkpoints, then both streams of the WAL. Then removes what the state
 * directory does not have any more. While a checkpoint is copied, the WALs' streams of steps go on.
 *
 * The newest checkpoint is copied first. Of a job on several servers, which go back to a step that all of them have,
 * those that are newer than the mirror's newest one come before it, the oldest first.
 *
 * Jobs that only the mirror has stay there. Returns the first error of a disk, and continues with the next job after
 * PD_RESOURCE_EXHAUSTED. A checkpoint that is damaged in the state directory, or is removed meanwhile, is no error. */
int pd_mirror_pass(pd_mirror_writer *writer, pd_error *err);
/* Frees the writer. Accepts NULL. */
void pd_mirror_writer_free(pd_mirror_writer *writer);
/* Sets *n to the number of jobs in a mirror that have not ended. 0: the directory does not exist. */
int pd_mirror_count(const pd_disk *disk, const char *mirror, size_t *n, pd_error *err);

/* ---- owners ---- */

/* In a cluster with an engine the owners of a shard copy to the same mirror, one after the other. An owner that slept
 * while another took its shard must not change what that one has copied, however late it wakes. So a mirror has a fence
 * (state_dir.h): the highest tenure of an owner that was replaced. Who takes a shard over raises the fence to the last
 * owner's tenure, before it reads the mirror; and an owner looks at the fence before every call that makes, opens for
 * writing, renames or removes a file of the mirror.
 *
 * A window remains: an owner that falls asleep between its look and the call, or while it writes into a file that it
 * has open, completes that call, or that file, when it wakes. Checkpoints count only with their manifest, which is a
 * later call; so at most one file is concerned: a manifest, records at the end of a segment, or a file that is removed.
 * Readers verify all bytes, and the new owner copies what then is missing from its next checkpoint on. */

/* Raises the fence of a mirror, and waits until its disk has it. A higher fence stays. PD_NOT_FOUND: there is no such
 * directory. */
int pd_mirror_fence(const pd_disk *disk, const char *mirror, uint64_t tenure, pd_error *err);

/* A disk by which an owner reaches its mirror. Once the owner is replaced, all calls that would change a name, or open
 * a file for writing, fail with ESTALE. One thread. */
typedef struct pd_fenced_disk {
    pd_disk_pass base;  /* must be the first member */
    const char *mirror; /* path of the mirror */
    /* Returns the owner's tenure, which may change: an owner whose lease has ended may get a new one. NULL: the mirror
     * has no owners, and no call fails. */
    uint64_t (*tenure)(void *arg);
    void *arg;
    pd_error why; /* why calls fail, from the first one that has failed on; its code is PD_OK if none has */
} pd_fenced_disk;

void pd_fenced_disk_init(pd_fenced_disk *disk, const pd_disk *below, const char *mirror, uint64_t (*tenure)(void *arg),
                         void *arg);

/* ---- reading ---- */

/* A job that was fetched. */
typedef struct pd_mirror_fetched {
    const char *job;
    uint64_t step;       /* step of its newest checkpoint that was fetched */
    uint64_t last;       /* number of the last record of its WAL that follows this checkpoint; its step if none does */
    uint64_t bytes;      /* bytes of its checkpoints */
    bool had;            /* the state directory has the same state already, and nothing was copied */
    size_t n_damaged;    /* number of newer checkpoints in the mirror that are damaged, and were left out */
    const pd_error *why; /* what is wrong with the first of these */
} pd_mirror_fetched;

/* Whom pd_mirror_fetch tells of each job. */
typedef struct pd_mirror_reader {
    void *arg;
    void (*fetched)(void *arg, const pd_mirror_fetched *job); /* may be NULL */
} pd_mirror_reader;

/* Makes a state directory from a mirror: copies the intact checkpoints and the WAL of each job that has not ended, and
 * verifies every byte. A job appears in the state directory complete, by a rename. A state of the same job that is
 * older is replaced. Locks the state directory meanwhile, and makes it if it does not exist. `user` may be NULL.
 *
 * PD_FAILED_PRECONDITION: the state directory has a job in a newer state than the mirror; nothing was changed.
 * PD_NOT_FOUND: the mirror has no job. PD_DATA_LOSS: no checkpoint of a job is intact. Also errors of
 * pd_state_dir_open. Jobs that were fetched before an error stay. */
int pd_mirror_fetch(const char *mirror, const char *state_dir, const pd_mirror_reader *user, pd_error *err);
/* Does the same between two disks, without locking and making the state directory. */
int pd_mirror_fetch_from(const pd_disk *from, const char *mirror, const pd_disk *to, const char *state_dir,
                         const pd_mirror_reader *user, pd_error *err);

#endif
