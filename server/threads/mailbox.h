/* mailbox.h - passes mail from any thread to the one thread that owns the mailbox. The loop thread and the step thread
 * share no locks but those of mailboxes.
 *
 * A thread holds a mailbox's lock only while it changes a few pointers, never during arithmetic or I/O. Each mail is
 * owned by one thread at a time. */
#ifndef PD_MAILBOX_H
#define PD_MAILBOX_H

#include "request.h"

typedef struct pd_mailbox pd_mailbox;

/* Makes a mailbox. After each post into the empty mailbox, the posting thread calls wake(arg), which wakes the owner.
 * `wake` may be NULL. Returns NULL if out of memory. */
pd_mailbox *pd_mailbox_new(void (*wake)(void *arg), void *arg);
/* Frees a mailbox, which must be empty. Accepts NULL. */
void pd_mailbox_free(pd_mailbox *box);

/* Posts the chain of mail first..last, linked by next, into the mailbox, in this order. The mail then
 * belongs to the thread that takes it. Never waits. Any thread. PD_UNAVAILABLE: the mailbox is closed, and the mail is
 * still the caller's. */
int pd_mailbox_post(pd_mailbox *box, pd_mail *first, pd_mail *last);
/* Takes all mail out of the mailbox, oldest first. Returns NULL if there is none. Never waits. Called by the
 * thread that owns the mailbox. */
pd_mail *pd_mailbox_take(pd_mailbox *box);
/* Takes all mail out of the mailbox, oldest first. Waits until there is mail, the mailbox is closed, or the
 * monotonic clock reaches deadline_ns (UINT64_MAX: no deadline). Returns NULL if the deadline has passed, or if the
 * mailbox is closed and empty. Sets *closed to whether it is closed. Called by the thread that owns the mailbox. */
pd_mail *pd_mailbox_wait(pd_mailbox *box, uint64_t deadline_ns, bool *closed);
/* Closes the mailbox: later posts fail, and pd_mailbox_wait returns if a thread waits in it. Any thread. */
void pd_mailbox_close(pd_mailbox *box);

#endif
