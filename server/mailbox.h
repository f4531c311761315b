/* mailbox.h - hands mail from any thread to one thread. The only lock between the loop and the step thread.
 *
 * The lock is held for a pointer swap, never for arithmetic or I/O. Mail is owned by one side at a time. */
#ifndef PD_MAILBOX_H
#define PD_MAILBOX_H

#include "request.h"

typedef struct pd_mailbox pd_mailbox;

/* Makes a mailbox. `wake` (may be NULL) is called on the posting thread after a post that found the box empty. NULL:
 * out of memory. */
pd_mailbox *pd_mailbox_new(void (*wake)(void *arg), void *arg);
/* Frees an empty mailbox. Accepts NULL. */
void        pd_mailbox_free(pd_mailbox *box);

/* Posts the chain first..last (linked by next) and takes it; the order is kept. Never waits. Any thread.
 * PD_UNAVAILABLE: the box is closed, and the mail is still the caller's. */
int      pd_mailbox_post(pd_mailbox *box, pd_mail *first, pd_mail *last);
/* Gives all mail, oldest first; NULL: none. Never waits. Owner thread. */
pd_mail *pd_mailbox_take(pd_mailbox *box);
/* Gives all mail, like take, but waits until there is some, the box is closed, or the monotonic clock reads deadline_ns
 * (UINT64_MAX: for ever). NULL: the deadline has passed, or the box is closed and empty; then *closed is true. Owner
 * thread. */
pd_mail *pd_mailbox_wait(pd_mailbox *box, uint64_t deadline_ns, bool *closed);
/* Closes the box: later posts are refused, and a waiting thread wakes. Any thread. */
void     pd_mailbox_close(pd_mailbox *box);

#endif
