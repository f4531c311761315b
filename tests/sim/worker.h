/* worker.h - cooperating workers: processes that train with the real client core, and never break the protocol. */
#ifndef SIM_WORKER_H
#define SIM_WORKER_H

#include "sim.h"

typedef struct sim_worker sim_worker;

/* Starts a process of the job at a rank, after `delay`. */
void sim_worker_start(sim *s, const sim_job *job, uint32_t rank, uint64_t delay_ns);
/* Does the same, also if the place has a process already. */
void sim_worker_start_beside(sim *s, const sim_job *job, uint32_t place, uint64_t delay_ns);
/* Returns the generation of the process with this nonce; 0: there is none. */
uint64_t sim_worker_generation(const sim *s, uint64_t nonce);
/* Returns the living process of a job that has this place: its rank, unless the server chooses ranks. NULL: none. */
sim_worker *sim_worker_at(sim *s, uint32_t job, uint32_t place);
/* Returns whether the process with this nonce is at its barrier, or has ended. */
bool sim_worker_waits(const sim *s, uint64_t nonce);
/* Returns the place of the process with this nonce; SIM_WORLD: there is none. */
uint32_t sim_worker_place(const sim *s, uint64_t nonce);
/* Returns whether a living process of the job which `creator` has begun has seen this step of this course: the process
 * with this nonce, or, if `nonce` is 0, any. */
bool sim_worker_knows(const sim *s, uint32_t job, uint64_t creator, uint64_t course, uint32_t fragment, uint64_t step,
                      uint64_t nonce);
/* Returns whether the living process of a rank is sending its push for this step, or still keeps it in its window and
 * sends it again. */
bool sim_worker_repeats(const sim *s, uint32_t job, uint64_t creator, uint32_t rank, uint64_t step);
/* Kills the process: its connection ends without a Leave. */
void sim_worker_kill(sim_worker *w);
/* Lets the process leave the job in the middle of its work, and end. */
void sim_worker_leave(sim_worker *w);
/* Stops the process for a while: it reads and sends nothing, and then goes on. */
void sim_worker_stop(sim_worker *w, uint64_t ns);
sim_link *sim_worker_link(sim_worker *w); /* returns the link of the process's connection; NULL: it is not connected */
/* Notes that an operator drops the job. Its processes may then end with an error, and other processes begin the job
 * anew. */
void sim_worker_note_drop(sim *s, uint32_t job);
/* Returns whether all processes have ended, or will never end because the server stops. */
bool sim_workers_done(const sim *s);
/* Checks that no request of a process waits for too long. */
void sim_workers_check(sim *s);
/* Prints for each process which request it waits for. */
void sim_workers_describe(const sim *s);
void sim_workers_free(sim *s);

#endif
