/* diskthread.h - a thread that waits for the disk in place of the step thread: takes effects out of a mailbox, works on
 * them, and hands them back as requests. The checkpoint writer and the WAL thread are such threads. */
#ifndef PD_DISKTHREAD_H
#define PD_DISKTHREAD_H

#include "disk.h"
#include "mailbox.h"
#include "thread.h"
#include "overlapped.h"

/* What a disk thread does. */
typedef struct pd_disk_work {
    const char *name; /* of the thread, for errors */
    int nicer;        /* added to the daemon's nice value in this thread */
    /* Works on a chain of effects, and hands each of them back with pd_disk_thread_hand_back. Disk thread. */
    void (*chain)(void *arg, pd_mail *first);
    /* Makes the request that an effect comes back as if nobody worked on it. Any thread. */
    pd_request *(*refuse)(pd_effect *effect);
    void *arg; /* first argument of chain */
} pd_disk_work;

typedef struct pd_disk_thread {
    const pd_disk *disk; /* functions of the disk that the work is done on */
    pd_disk_work work;
    pd_write_behind *behind; /* the real disk; NULL: another one */
    pd_mailbox *queue;       /* effects that wait for the thread */
    pd_mailbox *done;
    pd_mailbox *ended; /* is closed when the thread has nothing more to do */
    pthread_t thread;
} pd_disk_thread;

/* Makes what the thread needs. `disk` is borrowed; NULL: the real file system, whose writes a thread of their own
 * makes (writebehind.h). `done` is the mailbox to which effects come back; it is borrowed. *t must be zero.
 * PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED: pd_disk_thread_close frees what was made. */
int pd_disk_thread_open(pd_disk_thread *t, const pd_disk *disk, pd_mailbox *done, pd_error *err);
/* Starts the thread. PD_RESOURCE_EXHAUSTED: it cannot be started. */
int pd_disk_thread_start(pd_disk_thread *t, const pd_disk_work *work, pd_error *err);
/* Hands an effect to the thread. Takes the effect over; its memory becomes that of the request, so this cannot fail.
 * Never waits. Step thread. */
void pd_disk_thread_submit(pd_disk_thread *t, pd_effect *effect);
/* Posts a request to the step thread, whose mailbox is closed only when the disk thread has ended. Disk thread. */
void pd_disk_thread_hand_back(pd_disk_thread *t, pd_request *request);
/* Ends the thread when it has worked on all effects that wait. Returns false if it has not done so at the monotonic
 * time until_ns, because the disk does not answer: then the thread exists, and all that it uses must. */
bool pd_disk_thread_end(pd_disk_thread *t, uint64_t until_ns);
/* Frees what pd_disk_thread_open has made. The thread was not started, or has ended. */
void pd_disk_thread_close(pd_disk_thread *t);

#endif
