/* Tests the rows of `paramctl top`: their order and their cells. */
#include "test.h"
#include "top_sample.h"

static pd_top_job jobs[] = {
    { .name = "b",
      .durable = "40 (12.0 s)",
      .speed = 1,
      .memory = 300,
      .in_per_s = 5,
      .connected = 1,
      .world_size = 2,
      .waits_for = "1",
      .waits_ms = 4200 },
    { .name = "a",
      .durable = "-",
      .speed = 2,
      .memory = 200,
      .has_roots = true,
      .roots_behind = 3,
      .roots_failing = 1 },
    { .name = "c", .durable = "none", .speed = 3, .memory = 100, .out_per_s = 9, .has_loss = true, .loss = 0.25 },
};

static void assert_order(pd_top_order order, const char *names)
{
    pd_top_sample sample = { .jobs = jobs, .n = 3 };

    pd_top_sort(&sample, order);
    for (size_t i = 0; i < 3; i++) assert_int_equal(jobs[i].name[0], names[i]);
}

TEST(jobs_are_ordered_by_name_or_the_largest_first)
{
    assert_order(PD_TOP_SPEED, "cab");
    assert_order(PD_TOP_MEMORY, "bac");
    assert_order(PD_TOP_TRAFFIC, "cba");
    assert_order(PD_TOP_NAME, "abc");
}

TEST(a_row_has_roots_loss_traffic_the_durable_step_and_waits)
{
    pd_top_sample sample = { .jobs = jobs, .n = 3 };
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    pd_top_sort(&sample, PD_TOP_NAME);
    pd_table_print(pd_top_table(&sample, 100), out, "no jobs");
    fclose(out);
    assert_string_equal(text, "JOB  WORKERS  STEP  STEPS/S  LOSS  ROOTS  MEMORY  IN/S  OUT/S  DURABLE      WAITS FOR\n"
                              "a        0/0     0     2.00     -    3/1   200 B   0 B    0 B  -            -\n"
                              "b        1/2     0     1.00     -      -   300 B   5 B    0 B  40 (12.0 s)  1 for 4 s\n"
                              "c        0/0     0     3.00  0.25      -   100 B   0 B    9 B  none         -\n");
    free(text);
}

TEST(the_headline_counts_jobs_and_traffic)
{
    pd_top_sample sample = {
        .server = "paramd 1", .uptime_ms = 5000, .connections = 4, .n = 1, .in_per_s = 2048, .draining = true
    };
    char text[256];

    pd_top_headline(&sample, text, sizeof text);
    assert_string_equal(text,
                        "paramd 1 (draining), up 5.0 s, 1 job, 4 connections, 0 B resident, 2.0 KiB/s in, 0 B/s out");
}
