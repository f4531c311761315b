/* journal.c - the journal thread: takes all entries that wait from its mailbox, and writes them together. */
#include "journal.h"

#include "log_files.h"
#include "writebehind.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Most entries that are written before the first of them comes back. */
enum { GROUP = 64 };

struct pd_journal {
    pd_write_behind *behind; /* the real disk; NULL: another one */
    pd_logs *logs;
    pd_mailbox *queue; /* effects that wait for the journal thread */
    pd_mailbox *done;
    pthread_t thread;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- journal thread ---- */

pd_request *pd_journal_refuse(pd_effect *effect)
{
    pd_logged *logged = effect->u.logged;

    pd_fail(&logged->error, PD_CANCELLED, "the server stops, so the entry of step %llu is not written",
            (unsigned long long)logged->step);
    return pd_effect_become_logged(effect);
}

/* Posts a request to the step thread. Its mailbox is closed only when the journal thread has ended. */
static void hand_back(pd_journal *journal, pd_request *request)
{
    request->mail.next = NULL;
    pd_mailbox_post(journal->done, &request->mail, &request->mail);
}

/* Writes entries together, and hands them back with the result. */
static void write_group(pd_journal *journal, pd_effect *const *effects, size_t n)
{
    pd_logged *entries[GROUP];
    uint64_t begun = now_ns(), ns;

    for (size_t i = 0; i < n; i++) entries[i] = effects[i]->u.logged;
    pd_logs_write(journal->logs, entries, n);
    ns = now_ns() - begun;
    for (size_t i = 0; i < n; i++) {
        entries[i]->ns = ns;
        hand_back(journal, pd_effect_become_logged(effects[i]));
    }
}

/* Writes a chain of entries, in groups. */
static void write_chain(pd_journal *journal, pd_mail *mail)
{
    pd_effect *effects[GROUP];
    size_t n;

    while (mail != NULL) {
        for (n = 0; mail != NULL && n < GROUP; mail = mail->next) effects[n++] = (pd_effect *)(void *)mail;
        write_group(journal, effects, n);
    }
}

static void *run(void *arg)
{
    pd_journal *journal = arg;
    bool closed = false;
    pd_mail *mail;

    while ((mail = pd_mailbox_wait(journal->queue, UINT64_MAX, &closed)) != NULL || !closed) write_chain(journal, mail);
    return NULL;
}

/* ---- functions for the step thread, and for the thread that starts it ---- */

void pd_journal_submit(pd_journal *journal, pd_effect *effect)
{
    effect->mail.next = NULL;
    if (pd_mailbox_post(journal->queue, &effect->mail, &effect->mail) != PD_OK)
        hand_back(journal, pd_journal_refuse(effect));
}

static void free_journal(pd_journal *journal)
{
    pd_logs_free(journal->logs);
    pd_write_behind_stop(journal->behind);
    pd_mailbox_free(journal->queue);
    free(journal);
}

static int open_journal(pd_journal *journal, const pd_journal_config *config, pd_error *err)
{
    const pd_disk *disk = config->disk;
    int rc = pd_keep_check_root(config->dir, err);

    if (rc != PD_OK) return rc;
    journal->done = config->done;
    if ((journal->queue = pd_mailbox_new(NULL, NULL)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (disk == NULL && (rc = pd_write_behind_start(&journal->behind, &pd_disk_posix, err)) != PD_OK) return rc;
    if (disk == NULL) disk = pd_write_behind_disk(journal->behind);
    return pd_logs_new(&journal->logs, disk, config->dir, PD_LOG_SEGMENT, err);
}

int pd_journal_start(pd_journal **out, const pd_journal_config *config, pd_error *err)
{
    pd_journal *journal = calloc(1, sizeof *journal);
    int rc;

    if (journal == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = open_journal(journal, config, err);
    if (rc == PD_OK && pthread_create(&journal->thread, NULL, run, journal) != 0)
        rc = pd_fail(err, PD_RESOURCE_EXHAUSTED, "the journal thread cannot be started");
    if (rc == PD_OK)
        *out = journal;
    else
        free_journal(journal);
    return rc;
}

void pd_journal_stop(pd_journal *journal)
{
    if (journal == NULL) return;
    pd_mailbox_close(journal->queue);
    pthread_join(journal->thread, NULL);
    free_journal(journal);
}
