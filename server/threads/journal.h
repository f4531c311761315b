/* journal.h - the WAL thread: writes entries of logs to the disk (keep/wal_files.h).
 *
 * The step thread hands it entries as effects (PD_EFF_WAL). They come back as requests (PD_REQ_WAL) with the
 * result, in the order of their jobs' steps, each exactly once. All entries that wait are written together, and then
 * the thread waits for the disk once. It is another thread than the keeper, because writing a checkpoint may take many
 * seconds, and outranks the preconditioner pool, because the log's speed is that of its wake-ups. */
#ifndef PD_JOURNAL_H
#define PD_JOURNAL_H

#include "disk.h"
#include "mailbox.h"

typedef struct pd_journal pd_journal;

typedef struct pd_journal_config {
    const char *dir; /* path of the state directory, which the keeper has opened and locked */
    /* functions of the disk; borrowed, and must exist longer than the journal. NULL: the real file system */
    const pd_disk *disk;
    /* mailbox of the step thread, to which entries come back; borrowed, and must exist longer than the journal */
    pd_mailbox *done;
} pd_journal_config;

/* Starts the WAL thread. Fails with PD_NO_MEMORY or PD_RESOURCE_EXHAUSTED. */
int pd_journal_start(pd_journal **out, const pd_journal_config *config, pd_error *err);
/* Hands an entry, which an effect PD_EFF_WAL contains, to the WAL thread. Takes the effect over; its memory
 * becomes that of the request, so this cannot fail. Never waits. Step thread. */
void pd_journal_submit(pd_journal *journal, pd_effect *effect);
/* Ends the WAL thread when all entries that wait are written, and have been posted to the mailbox `done`. Accepts
 * NULL. PD_DEADLINE_EXCEEDED: at the monotonic time until_ns the disk has not answered. Then the journal is not freed,
 * its thread may still write, and the mailbox `done` must stay. */
int pd_journal_stop(pd_journal *journal, uint64_t until_ns, pd_error *err);

/* Makes a request PD_REQ_WAL of an effect PD_EFF_WAL, in the same memory: the entry was not written, because
 * there is no WAL thread any more. */
pd_request *pd_journal_refuse(pd_effect *effect);

#endif
