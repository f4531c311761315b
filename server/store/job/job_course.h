/* job_course.h - the course of a job's steps: a number that tells workers whether the server has, or will repeat, the
 * steps that they have seen.
 *
 * Step thread. Only in jobs whose sets of ranks are open. A course is counted up when steps after a restart of the
 * server cannot be those from before it (repeats.h), and images have it. If the disk fails and the job goes on, its
 * steps have a passing course until the disk has them (step/withheld.h): another one in each life of the server, which
 * no image has. So after a restart nobody waits for sets of ranks that only the lost records had: workers that have
 * seen these steps go back. While the server lives it knows both its courses, and no worker goes back. */
#ifndef PD_JOB_COURSE_H
#define PD_JOB_COURSE_H

#include "job.h"

/* Returns the job's passing course in this life of the server, whether it has begun or not. */
uint64_t pd_course_passing(const pd_job *job);
/* Returns the job's present course, which its next answers name. */
uint64_t pd_course_now(const pd_job *job);
/* Returns whether the server has all steps that a worker can have seen which knows this course, or will repeat them. */
bool pd_course_is_known(const pd_job *job, uint64_t course);

#endif
