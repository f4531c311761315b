/* mailbox.h - hands mail from any thread to one thread. The only lock between the loop and the step thread.
 *
 * The lock is held for a pointer swap, never for arithmetic or I/O. What crosses is owned by one side at a time. */
#ifndef PD_MAILBOX_H
#define PD_MAILBOX_H

#include "request.h"

typedef struct pd_mailbox pd_mailbox;

/* `wake` (may be NULL) is called after a post that found the box empty, on the posting thread: for the loop, uv_async_send. */
pd_mailbox *pd_mailbox_new(void (*wake)(void *arg), void *arg);        /* NULL: out of memory */
void        pd_mailbox_free(pd_mailbox *box);                          /* must be empty; accepts NULL */

/* Any thread. Takes the chain first..last (linked by next); order is kept. Never waits. PD_UNAVAILABLE: closed, the mail is still the caller's. */
int      pd_mailbox_post(pd_mailbox *box, pd_mail *first, pd_mail *last);
/* Owner thread. Gives all that has come, oldest first; NULL: nothing. Never waits. */
pd_mail *pd_mailbox_take(pd_mailbox *box);
/* Owner thread. As take, but waits until something has come, the box is closed or the monotonic clock reads deadline_ns
 * (UINT64_MAX: for ever). NULL: the deadline, or closed and empty (*closed tells which). */
pd_mail *pd_mailbox_wait(pd_mailbox *box, uint64_t deadline_ns, bool *closed);
/* Any thread. Later posts are refused; a waiter wakes. */
void     pd_mailbox_close(pd_mailbox *box);

#endif
