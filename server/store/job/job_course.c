/* job_course.c - the course of a job's steps. */
#include "job_course.h"

/* Passing courses have this bit. The others, which are counted from 0, do not. */
#define PASSING (UINT64_C(1) << 63)

uint64_t pd_course_passing(const pd_job *job)
{
    return PASSING | job->restart.since_ns;
}

uint64_t pd_course_now(const pd_job *job)
{
    return job->steps.withheld.passing > 0 ? job->steps.withheld.passing : job->saved.course;
}

bool pd_course_is_known(const pd_job *job, uint64_t course)
{
    return course == job->saved.course || course == pd_course_passing(job);
}
