/* journal.c - the WAL thread: takes all entries that wait from its mailbox, and writes them together. */
#include "journal.h"

#include "diskthread.h"
#include "wal_files.h"

#include <stdlib.h>
#include <time.h>

/* Most entries that are written before the first of them comes back. */
enum { GROUP = 64 };

struct pd_journal {
    pd_disk_thread thread;
    pd_wal_writer *logs;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- WAL thread ---- */

pd_request *pd_journal_refuse(pd_effect *effect)
{
    pd_wal_record *record = effect->u.wal;

    pd_fail(&record->error, PD_CANCELLED, "the server stops, so the entry of step %llu is not written",
            (unsigned long long)record->step);
    return pd_effect_become_wal(effect);
}

/* Writes entries together, and hands them back with the result. */
static void write_group(pd_journal *journal, pd_effect *const *effects, size_t n)
{
    pd_wal_record *entries[GROUP];
    uint64_t begun = now_ns(), ns;

    for (size_t i = 0; i < n; i++) entries[i] = effects[i]->u.wal;
    pd_wal_write(journal->logs, entries, n);
    ns = now_ns() - begun;
    for (size_t i = 0; i < n; i++) {
        entries[i]->ns = ns;
        pd_disk_thread_hand_back(&journal->thread, pd_effect_become_wal(effects[i]));
    }
}

/* Writes a chain of entries, in groups. */
static void write_chain(void *arg, pd_mail *mail)
{
    pd_effect *effects[GROUP];
    size_t n;

    while (mail != NULL) {
        for (n = 0; mail != NULL && n < GROUP; mail = mail->next) effects[n++] = (pd_effect *)(void *)mail;
        write_group(arg, effects, n);
    }
}

/* ---- functions for the step thread, and for the thread that starts it ---- */

void pd_journal_submit(pd_journal *journal, pd_effect *effect)
{
    pd_disk_thread_submit(&journal->thread, effect);
}

static void free_journal(pd_journal *journal)
{
    pd_wal_writer_free(journal->logs);
    pd_disk_thread_close(&journal->thread);
    free(journal);
}

static int open_journal(pd_journal *journal, const pd_journal_config *config, pd_error *err)
{
    pd_disk_work work = { .name = "WAL thread", .chain = write_chain, .refuse = pd_journal_refuse, .arg = journal };
    int rc = pd_keep_check_root(config->dir, err);

    if (rc == PD_OK) rc = pd_disk_thread_open(&journal->thread, config->disk, config->done, err);
    if (rc == PD_OK)
        rc = pd_wal_writer_new(&journal->logs, journal->thread.disk, config->dir, PD_WAL_SEGMENT_BYTES, err);
    return rc == PD_OK ? pd_disk_thread_start(&journal->thread, &work, err) : rc;
}

int pd_journal_start(pd_journal **out, const pd_journal_config *config, pd_error *err)
{
    pd_journal *journal = calloc(1, sizeof *journal);
    int rc;

    if (journal == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = open_journal(journal, config, err);
    if (rc == PD_OK)
        *out = journal;
    else
        free_journal(journal);
    return rc;
}

int pd_journal_stop(pd_journal *journal, uint64_t until_ns, pd_error *err)
{
    if (journal == NULL) return PD_OK;
    if (!pd_disk_thread_end(&journal->thread, until_ns))
        return pd_fail(err, PD_DEADLINE_EXCEEDED,
                       "the disk does not answer: the last entries of the logs of jobs are not written");
    free_journal(journal);
    return PD_OK;
}
