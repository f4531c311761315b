/* Tests the bytes that the loop thread counts for each job, from the welcome to the end of the job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "figures.h"

static void assert_bytes(pd_traffic *jobs, uint32_t job, uint64_t in, uint64_t out)
{
    uint64_t read_in, read_out;

    pd_traffic_read(jobs, job, &read_in, &read_out);
    assert_int_equal(read_in, in);
    assert_int_equal(read_out, out);
}

static void each_job_has_its_own_count(void **state)
{
    pd_traffic *jobs = NULL;

    (void)state;
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

static void connections_without_a_job_count_for_none(void **state)
{
    pd_traffic *jobs = NULL;

    (void)state;
    pd_traffic_count(jobs, 0, 10, 10);
    pd_traffic_add(&jobs, 1);
    pd_traffic_count(jobs, 0, 10, 10);
    assert_bytes(jobs, 1, 0, 0);
    pd_traffic_free(&jobs);
}

static void bytes_of_a_job_that_has_ended_are_forgotten(void **state)
{
    pd_traffic *jobs = NULL;

    (void)state;
    pd_traffic_add(&jobs, 1);
    pd_traffic_count(jobs, 1, 10, 0);
    pd_traffic_remove(&jobs, 1);
    pd_traffic_count(jobs, 1, 10, 0); /* bytes of a connection that is not closed yet */
    assert_null(jobs);
    assert_bytes(jobs, 1, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_job_has_its_own_count),
        cmocka_unit_test(connections_without_a_job_count_for_none),
        cmocka_unit_test(bytes_of_a_job_that_has_ended_are_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
