/* gated_disk.h - a disk in memory at which a thread of the code under test can be made to wait, and the mailbox to
 * which that thread hands its results. For tests of the keeper and journal threads. */
#ifndef GATED_DISK_H
#define GATED_DISK_H

#include "mailbox.h"
#include "mem_disk.h"
#include <pthread.h>
#include <stdbool.h>

/* A gate that stops a thread of the code under test at a known place, until the test lets it go on. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut, stands;
    unsigned passes; /* how often a thread has come to the gate */
} gate;

/* Makes an open gate. */
void gate_init(gate *g);
void gate_free(gate *g);
/* Called by the thread under test: waits while the gate is shut. */
void gate_pass(gate *g);
/* Shuts the gate, or opens it. */
void gate_shut(gate *g, bool is_shut);
/* Waits until a thread stands before the gate. Fails the test if none comes. */
void gate_await(gate *g);
/* Returns how often a thread has come to the gate. */
unsigned gate_passes(gate *g);

typedef struct gated_disk {
    mem_disk *memory;
    pd_disk real, disk; /* without the gate, and with it */
    pd_mailbox *done;
    pd_mail *mail; /* taken out of `done`, and not looked at yet */
    gate gate;
} gated_disk;

/* The functions of the disk that can have the gate. */
typedef enum gate_place { GATE_AT_MAKE_DIR, GATE_AT_SYNC_DATA } gate_place;

/* Makes an empty disk, whose gate is open. Only one exists at a time. */
gated_disk *gated_disk_new(gate_place place);
/* Frees it. All that came back must have been taken. */
void gated_disk_free(gated_disk *d);
/* Takes the next request that has come back, in order; waits up to a minute for it. Checks its kind and its job, which
 * is 9. */
pd_request *gated_disk_take(gated_disk *d, pd_request_kind kind);
/* Calls `stop`, which waits for the thread at the gate, on a thread of its own; then opens the gate and waits until
 * `stop` has returned. */
void gated_disk_stop(gated_disk *d, void (*stop)(void *arg), void *arg);

#endif
