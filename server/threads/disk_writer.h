/* disk_writer.h - starts and stops the two threads that write to the state directory in place of the step thread: the
 * checkpoint writer and the WAL thread. Here "writer" means either.
 *
 * The step thread hands effects (PD_EFF_WRITE_CHECKPOINT, PD_EFF_GO_BACK, PD_EFF_WAL) to a writer. The writer returns
 * each effect exactly once, in the same order, as a request with the result (PD_REQ_CHECKPOINT_WRITTEN,
 * PD_REQ_WENT_BACK, PD_REQ_WAL). The checkpoint
 * writer writes one checkpoint after the other, with a lower priority than steps. The WAL thread writes waiting records
 * together, and syncs them once. They are two threads because writing a checkpoint may take many seconds. */
#ifndef PD_DISK_WRITER_H
#define PD_DISK_WRITER_H

#include "manifest.h"
#include "disk.h"
#include "mailbox.h"
#include "state_dir.h"

typedef struct pd_disk_writer pd_disk_writer;

typedef enum pd_disk_writer_kind { PD_WRITES_CHECKPOINTS, PD_WRITES_WAL } pd_disk_writer_kind;

/* What pd_disk_writer_start needs to know. */
typedef struct pd_disk_writer_config {
    pd_disk_writer_kind kind;
    const char *dir; /* path of the state directory. The checkpoint writer locks it, so it is started before the WAL
                      * thread */
    /* the disk to write to; borrowed, and must exist longer than the writer. NULL: the real file system. There the
     * checkpoint writer creates the state directory if it does not exist, checks it, and locks it until the writer is
     * stopped (state_dir.h) */
    const pd_disk *disk;
    /* the checkpoint writer: a lock of the state directory that the caller has taken already, and hands over; NULL, or
     * not open: the checkpoint writer takes it */
    pd_state_dir *lock;
    /* mailbox of the step thread, to which the writer posts the requests; borrowed, and must exist longer than the
     * writer */
    pd_mailbox *done;
    /* called on the writer's thread after something became durable, or steps were taken back; must not wait. NULL:
     * nothing is called */
    void (*wrote)(void *arg);
    void *arg;
} pd_disk_writer_config;

/* Starts a checkpoint writer or a WAL thread. Fails with PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED, or an error of
 * pd_state_dir_open; then nothing is left to free. */
int pd_disk_writer_start(pd_disk_writer **out, const pd_disk_writer_config *config, pd_error *err);
/* Hands a checkpoint or a WAL record, as an effect, to the writer of that kind, and takes the effect over. Never fails,
 * because the request that returns the effect reuses its memory. Never waits. If `writer` is NULL because it was
 * stopped, the request with the error PD_CANCELLED is posted to `done` at once. Step thread. */
void pd_disk_writer_submit(pd_disk_writer *writer, pd_mailbox *done, pd_effect *effect);
/* Ends the thread and frees the writer. Before that, finishes the checkpoint that is being written, and writes the
 * marks of ended jobs and the waiting WAL records. Waiting checkpoints are returned with PD_CANCELLED. After success,
 * all requests are in the mailbox `done`. Accepts NULL. PD_DEADLINE_EXCEEDED: the disk has not answered by the
 * monotonic time until_ns. Then the writer is not freed, its thread may still write, and the mailbox `done` must not be
 * freed. */
int pd_disk_writer_stop(pd_disk_writer *writer, uint64_t until_ns, pd_error *err);

/* Returns the version of paramd, the BLAS kernels and the instruction set of this process, for the manifests of
 * checkpoints. The time is left 0. */
pd_checkpoint_about pd_checkpoint_about_here(void);

#endif
