/* mirror_thread.h - the thread that copies the state directory to its mirror (mirror.h). Nothing waits for it: a mirror
 * that is slow, full, gone or does not answer is reported, and gets the rest later. */
#ifndef PD_MIRROR_THREAD_H
#define PD_MIRROR_THREAD_H

#include "disk.h"
#include "mailbox.h"

typedef struct pd_mirror_thread pd_mirror_thread;

/* What pd_mirror_thread_start needs to know. */
typedef struct pd_mirror_thread_config {
    const char *state_dir, *mirror; /* paths of the two directories */
    /* the disk of both; borrowed, and must exist longer than the thread. NULL: the real file system. There the thread
     * makes the mirror's directory if it does not exist, checks it, and locks it until it ends (state_dir.h) */
    const pd_disk *disk;
    pd_mailbox *done; /* mailbox of the step thread, to which requests PD_REQ_MIRRORED are posted. After
                       * pd_mirror_thread_stop has returned false it must not be freed, only closed */
    /* in a cluster with an engine: this owner's tenure, which may change (mirror.h, "owners"); borrowed, and must exist
     * as long as `disk`. NULL: there is no engine */
    _Atomic uint64_t *tenure;
} pd_mirror_thread_config;

/* Starts the thread. Reads the state directory before that, so no job may have continued yet. Logs how to fetch jobs if
 * the state directory has none and the mirror has some. Fails with PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED, or an error of
 * the state directory; then nothing is left to free. */
int pd_mirror_thread_start(pd_mirror_thread **out, const pd_mirror_thread_config *config, pd_error *err);
/* Tells the thread that something became durable. Never waits. Accepts NULL. Any thread. */
void pd_mirror_thread_wake(pd_mirror_thread *mirror);
/* Returns whether the last attempt to copy has succeeded, and the mirror answers. Any thread. */
bool pd_mirror_thread_is_up(const pd_mirror_thread *mirror);
/* Logs once that the mirror does not answer. Called several times a second. Accepts NULL. Any thread. */
void pd_mirror_thread_tick(pd_mirror_thread *mirror);
/* Lets the thread copy what is left, for ten seconds at most and not beyond the monotonic time until_ns, and less if
 * the mirror is down. Then ends and frees it. Returns false if the mirror does not answer: then the thread is left
 * alone, and ends when it gets an answer. Accepts NULL. */
bool pd_mirror_thread_stop(pd_mirror_thread *mirror, uint64_t until_ns);

#endif
