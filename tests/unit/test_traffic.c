/* Tests the bytes that the loop thread counts for each job, from the welcome to the end of the job. */
#include "test.h"
#include "figures.h"

static void assert_bytes(pd_traffic *jobs, uint32_t job, uint64_t in, uint64_t out)
{
    uint64_t read_in, read_out;

    pd_traffic_read(jobs, job, &read_in, &read_out);
    assert_int_equal(read_in, in);
    assert_int_equal(read_out, out);
}

TEST(each_job_has_its_own_count)
{
    pd_traffic *jobs = NULL;

    pd_traffic_add(&jobs, 1);
    pd_traffic_add(&jobs, 2);
    pd_traffic_count(jobs, 1, 10, 0);
    pd_traffic_count(jobs, 2, 0, 5);
    pd_traffic_add(&jobs, 1); /* another worker of job 1 joins */
    pd_traffic_count(jobs, 1, 10, 1);
    assert_bytes(jobs, 1, 20, 1);
    assert_bytes(jobs, 2, 0, 5);
    pd_traffic_free(&jobs);
}

TEST(connections_without_a_job_count_for_none)
{
    pd_traffic *jobs = NULL;

    pd_traffic_count(jobs, 0, 10, 10);
    pd_traffic_add(&jobs, 1);
    pd_traffic_count(jobs, 0, 10, 10);
    assert_bytes(jobs, 1, 0, 0);
    pd_traffic_free(&jobs);
}

TEST(bytes_of_a_job_that_has_ended_are_forgotten)
{
    pd_traffic *jobs = NULL;

    pd_traffic_add(&jobs, 1);
    pd_traffic_count(jobs, 1, 10, 0);
    pd_traffic_remove(&jobs, 1);
    pd_traffic_count(jobs, 1, 10, 0); /* bytes of a connection that is not closed yet */
    assert_null(jobs);
    assert_bytes(jobs, 1, 0, 0);
}
