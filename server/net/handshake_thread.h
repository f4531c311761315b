/* handshake_thread.h - a thread that computes the arithmetic of TLS handshakes, at lower priority than steps: a
 * handshake may be late, but a step may not. Called by the loop thread. */
#ifndef PD_HANDSHAKE_THREAD_H
#define PD_HANDSHAKE_THREAD_H

#include "uvloop.h"

enum { PD_MOST_COMPUTED = 2 }; /* tasks that the thread has at a time: the one that it runs, and the next */

typedef struct pd_handshake_thread pd_handshake_thread;

/* Starts the thread. Returns NULL if that is impossible. */
pd_handshake_thread *pd_handshake_thread_new(pd_uvloop *loop);
/* Ends the thread after the tasks that it has, calls their `done`, and frees it. Accepts NULL. */
void pd_handshake_thread_free(pd_handshake_thread *thread);
/* Gives the thread a task: `run` is called there, then `done` on the loop thread. The caller sees to it that the thread
 * never has more than PD_MOST_COMPUTED. */
void pd_handshake_thread_post(pd_handshake_thread *thread, pd_background *work);

#endif
