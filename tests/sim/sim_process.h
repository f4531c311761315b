/* sim_process.h - a simulated process that uses the whole client library: its thread is a fiber (sim_fiber.h), and the
 * I/O threads of its handles (client/lib/io.h) are events.
 *
 * Where a call of the library waits, the fiber gives way. It also gives way at times before it locks a core, so that
 * I/O threads run between any two of its steps. Only one of all threads runs at a time. So locks need not exclude
 * anybody, and the same seed gives the same run. */
#ifndef SIM_PROCESS_H
#define SIM_PROCESS_H

#include "sim_fiber.h"
#include "sim.h"

typedef struct sim_process {
    sim *s;
    const char *identity; /* that its connections prove; NULL: none */
    fiber *fiber;
    bool killed, over; /* over: its function has returned */
    bool waits;        /* it has given way */
    uint64_t turn;     /* counts its waits: a wake-up is for one of them */
    uint64_t dead_ns;  /* a killed process's clock runs ahead, so that its waits end */
} sim_process;

/* Starts a process, which runs `body` at once, until it first waits. */
void sim_process_start(sim_process *p, sim *s, const char *identity, void (*body)(void *arg), void *arg);
/* Kills a process: its connections break, and all its calls end with an error. Its function must then return. */
void sim_process_kill(sim_process *p);
/* Called in a process: waits for so long. */
void sim_process_sleep(uint64_t ns);
/* Returns the link of the process to a server; NULL: it is not connected. */
sim_link *sim_process_link(const sim_process *p, uint32_t shard);
/* Writes what the process's threads are doing, for the end of a trace. */
void sim_process_describe(const sim_process *p);
/* Frees the fiber of a process that is over. */
void sim_process_end(sim_process *p);
/* Forgets the I/O threads of all processes, at the end of a run. */
void sim_threads_free(void);

/* Writes the address at which the client library reaches a server. */
void sim_address(uint32_t shard, char text[32]);

#endif
