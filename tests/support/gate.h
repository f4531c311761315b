/* gate.h - a gate that stops a thread of the code under test at a known place, until the test lets it go on. */
#ifndef GATE_H
#define GATE_H

#include <pthread.h>
#include <stdbool.h>

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

#endif
