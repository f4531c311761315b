/* disk_writer.h - a thread that writes to the state directory in place of the step thread. A daemon has two: the
 * checkpoint writer and the WAL thread.
 *
 * The step thread hands a writer effects (PD_EFF_WRITE_CHECKPOINT, PD_EFF_WAL). They come back as requests
 * (PD_REQ_CHECKPOINT_WRITTEN, PD_REQ_WAL) with the result, in the same order, each exactly once. The checkpoint writer
 * writes one checkpoint after the other, with a lower priority than steps. The WAL thread writes all records that wait
 * together, and then waits for the disk once. They are two threads because writing a checkpoint may take many
 * seconds. */
#ifndef PD_DISK_WRITER_H
#define PD_DISK_WRITER_H

#include "manifest.h"
#include "disk.h"
#include "mailbox.h"

typedef struct pd_disk_writer pd_disk_writer;

typedef enum pd_disk_writer_kind { PD_WRITES_CHECKPOINTS, PD_WRITES_WAL } pd_disk_writer_kind;

typedef struct pd_disk_writer_config {
    pd_disk_writer_kind kind;
    const char *dir; /* path of the state directory, which the checkpoint writer locks: start it first, stop it last */
    /* functions of the disk; borrowed, and must exist longer than the writer. NULL: the real file system, where the
     * checkpoint writer makes the state directory if need be, checks it, and locks it until it is stopped
     * (state_dir.h) */
    const pd_disk *disk;
    /* mailbox of the step thread, to which effects come back; borrowed, and must exist longer than the writer */
    pd_mailbox *done;
} pd_disk_writer_config;

/* Starts the thread. Fails with PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED, or an error of pd_state_dir_open. */
int pd_disk_writer_start(pd_disk_writer **out, const pd_disk_writer_config *config, pd_error *err);
/* Hands an effect of its kind to the writer. Takes the effect over; its memory becomes that of the request, so this
 * cannot fail. Never waits. NULL: there is no writer any more, so the effect comes back to `done` refused. Step
 * thread. */
void pd_disk_writer_submit(pd_disk_writer *writer, pd_mailbox *done, pd_effect *effect);
/* Ends the thread. The checkpoint that is being written is finished, and so are marks of jobs that have ended;
 * checkpoints that wait come back with PD_CANCELLED. Records that wait are written. Then all have been posted to the
 * mailbox `done`. Accepts NULL. PD_DEADLINE_EXCEEDED: at the monotonic time until_ns the disk has not answered. Then
 * the writer is not freed, its thread may still write, and the mailbox `done` must stay. */
int pd_disk_writer_stop(pd_disk_writer *writer, uint64_t until_ns, pd_error *err);

/* Returns what software and hardware this process is, for manifests; the time is not filled in. */
pd_checkpoint_about pd_checkpoint_about_here(void);

#endif
