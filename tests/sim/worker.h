/* worker.h - cooperating workers: processes that train with the real client core, and never break the protocol. */
#ifndef SIM_WORKER_H
#define SIM_WORKER_H

#include "sim.h"

typedef struct sim_worker sim_worker;

/* Starts a process of the job at a rank, as soon as the run comes to `delay`. */
void sim_worker_start(sim *s, const sim_job *job, uint32_t rank, uint64_t delay_ns);
/* The living process at that rank. NULL: none. */
sim_worker *sim_worker_at(sim *s, uint32_t job, uint32_t rank);
/* The process dies: its connection ends, and nobody says good-bye. */
void sim_worker_kill(sim_worker *w);
/* The process leaves the job in the middle of its work, then ends. */
void sim_worker_leave(sim_worker *w);
sim_link *sim_worker_link(sim_worker *w);       /* NULL: it is not connected */
/* The job is dropped by an operator: its processes end with an error, and others begin it anew. */
void sim_worker_note_drop(sim *s, uint32_t job);
/* All processes have ended, or will never end because the server stops. */
bool sim_workers_done(const sim *s);
/* No request waits for too long. */
void sim_workers_check(sim *s);
/* Prints what each process waits for. */
void sim_workers_describe(const sim *s);
void sim_workers_free(sim *s);

#endif
