/* diskthread.c - a thread that waits for the disk in place of the step thread. */
#include "diskthread.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- disk thread ---- */

static void *run(void *arg)
{
    pd_disk_thread *t = arg;
    id_t self = (id_t)syscall(SYS_gettid);
    bool closed = false;
    pd_mail *mail;

    if (t->work.nicer != 0) setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + t->work.nicer);
    while ((mail = pd_mailbox_wait(t->queue, UINT64_MAX, &closed)) != NULL || !closed)
        if (mail != NULL) t->work.chain(t->work.arg, mail);
    pd_mailbox_close(t->ended);
    return NULL;
}

void pd_disk_thread_hand_back(pd_disk_thread *t, pd_request *request)
{
    request->mail.next = NULL;
    pd_mailbox_post(t->done, &request->mail, &request->mail);
}

/* ---- functions for the step thread, and for the thread that starts it ---- */

int pd_disk_thread_open(pd_disk_thread *t, const pd_disk *disk, pd_mailbox *done, pd_error *err)
{
    int rc;

    t->done = done;
    t->disk = disk;
    t->queue = pd_mailbox_new(NULL, NULL);
    t->ended = pd_mailbox_new(NULL, NULL);
    if (t->queue == NULL || t->ended == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (disk != NULL) return PD_OK;
    if ((rc = pd_write_behind_start(&t->behind, &pd_disk_posix, err)) != PD_OK) return rc;
    t->disk = pd_write_behind_disk(t->behind);
    return PD_OK;
}

int pd_disk_thread_start(pd_disk_thread *t, const pd_disk_work *work, pd_error *err)
{
    t->work = *work;
    return pd_thread_start(&t->thread, run, t, work->name, err);
}

void pd_disk_thread_submit(pd_disk_thread *t, pd_effect *effect)
{
    effect->mail.next = NULL;
    if (pd_mailbox_post(t->queue, &effect->mail, &effect->mail) != PD_OK)
        pd_disk_thread_hand_back(t, t->work.refuse(effect));
}

bool pd_disk_thread_end(pd_disk_thread *t, uint64_t until_ns)
{
    bool ended;

    pd_mailbox_close(t->queue);
    (void)pd_mailbox_wait(t->ended, until_ns, &ended);
    if (ended) pthread_join(t->thread, NULL);
    return ended;
}

void pd_disk_thread_close(pd_disk_thread *t)
{
    pd_write_behind_stop(t->behind);
    pd_mailbox_free(t->queue);
    pd_mailbox_free(t->ended);
}
