/* relaunch.h - launches the workers of a job in another number after a crash of the server and of all its workers. */
#ifndef SIM_RELAUNCH_H
#define SIM_RELAUNCH_H

#include "sim.h"

void sim_relaunch_begin(sim *s);
/* Frees the jobs as they were launched. Workers of the run must be gone. */
void sim_relaunch_free(sim *s);
/* Launches the job once more while its server lives: a process starts at each place, and half of the earlier ones live
 * on. The new processes are of a higher generation, and of another number if the plan has one. */
void sim_relaunch_again_beside(sim *s, const sim_job *job);
/* Returns the generation of the job's last launch, from 1. */
uint64_t sim_generation(const sim *s, const sim_job *job);
/* Returns the job as it was launched last: with its number of workers now. */
const sim_job *sim_job_now(const sim *s, const sim_job *job);
/* Returns the smallest number of workers that the job has had so far. */
uint32_t sim_least_world(const sim *s, const sim_job *job);
/* Kills, after a crash of the server, the workers of some jobs whose plan has another number of workers, and launches
 * the job with that number. `life`: how often the server was killed. */
void sim_relaunch_after_crash(sim *s, uint64_t life);
/* Kills all workers of a job and launches the job again with as many workers as now. */
void sim_relaunch(sim *s, const sim_job *job);
/* Launches all workers of a job again, when the server refuses one because of world_size: it was killed before a change
 * of world_size was on the disk, and expects the number from before. Returns false, and does nothing, if the job has
 * never changed its world_size: then the refusal is an error of the server. */
bool sim_relaunch_again(sim *s, const sim_job *job);

#endif
