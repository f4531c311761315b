/* Tests the heap of jobs by their next deadline. */
#include "test.h"
#include "jobs.h"

enum { JOBS = 50, CHANGES = 20000 };

static uint64_t earliest(const pd_job *jobs)
{
    uint64_t at = UINT64_MAX;

    for (int i = 0; i < JOBS; i++)
        if (jobs[i].deadline.is_set && jobs[i].deadline.at_ns < at) at = jobs[i].deadline.at_ns;
    return at;
}

TEST(the_first_job_has_the_earliest_deadline_whatever_changes)
{
    pd_job *jobs = calloc(JOBS, sizeof *jobs), *first = NULL;

    assert_non_null(jobs);
    srand(5);
    for (int i = 0; i < CHANGES; i++) {
        pd_job *job = rand() % 3 == 0 && first != NULL ? first : &jobs[rand() % JOBS];
        uint64_t at = rand() % 4 == 0 ? UINT64_MAX : (uint64_t)rand() % 100;
        pd_deadlines_set(&first, job, at);
        assert_true(at == UINT64_MAX ? !job->deadline.is_set : job->deadline.at_ns == at);
        assert_true((first != NULL ? first->deadline.at_ns : UINT64_MAX) == earliest(jobs));
    }
    for (uint64_t last = 0; first != NULL; pd_deadlines_set(&first, first, UINT64_MAX)) {
        assert_true(first->deadline.at_ns >= last);
        last = first->deadline.at_ns;
    }
    assert_true(earliest(jobs) == UINT64_MAX);
    free(jobs);
}
