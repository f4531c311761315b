/* repeats.h - lets the steps after a restart of the server count the same ranks as before it, or tells workers that
 * they cannot.
 *
 * Step thread. For jobs with checkpoints whose sets of ranks are open, unless durability is log: there no worker has
 * seen a step that is not on the disk. A step that workers have seen closed has a decision (step/wal.h), or all ranks
 * have counted in it with contributions to this very step. A worker's Hello says how many steps its process has seen.
 *
 *     before all ranks have said Hello, for reconnect_grace at most: only sets of decisions, and whole ones, are fixed
 *     up to the last step that a worker has seen: so, too
 *     a rank of such a set has left, has another process, has been gone for reconnect_grace, or sends nothing (more)
 *     for so long although it keeps its pushes (it did not count, and the disk had failed when the set was told; or
 *     part of its push had ended with an error, and is not kept): the set cannot be repeated. Decisions from its step
 *     on are dropped, and the job takes another course:
 *     pd_job_saved.course + 1
 *
 * A worker learns the course with the answers to Hello. If it knows another one, it goes back to the job's step, as if
 * the server had gone back to a checkpoint. Connections of workers that have seen steps of the course that has ended
 * are ended, so that they say Hello again.
 * A worker that names a passing course of an earlier life of the server (job/job_course.h) does so, too. */
#ifndef PD_REPEATS_H
#define PD_REPEATS_H

#include "job.h"

/* Begins to wait for the workers of a job that was restored. */
void pd_repeats_begin(pd_job *job, uint64_t now_ns);
/* Lets the job take another course, since it goes back to a checkpoint on purpose: steps that workers have seen are not
 * repeated. `course`: larger than those that workers know. Call it after pd_repeats_begin. Does nothing if all ranks
 * count in each step. */
void pd_repeats_leave(pd_job *job, uint64_t course);
/* Notes what a worker has seen. Call it before the worker gets the rank that its Hello names. If the worker has seen a
 * step that was taken otherwise since, the job's course changes. */
void pd_repeats_joins(pd_job *job, const pd_request *hello, uint64_t now_ns);
/* Looks whether sets can still be repeated. Call it at pd_repeats_next, and when a rank was lost, left or joined. */
void pd_repeats_look(pd_job *job, uint64_t now_ns);
/* Returns the time at which pd_repeats_look must be called; UINT64_MAX: at none. */
uint64_t pd_repeats_next(const pd_job *job);

#endif
