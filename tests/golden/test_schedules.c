/* Compares the learning rates of upstream's own schedules with ours, step by step, for every trace below. Rates that
 * upstream computes in float32 agree to one unit in the last place, and rates in float64 to four. */
#include <float.h>

#include "test.h"
#include "golden.h"
#include "schedule.h"
#include "trace.h"

typedef struct recorded {
    const char *file;
    const char *name;   /* upstream's name of the schedule */
    const char *format; /* our schedule as a printf format; `key` lists the recorded values to insert */
    const char *key[3];
    double tolerance;
} recorded;

#define WARMUP_LINEAR                                                                                                  \
    "warmup_linear", "warmup_linear(peak=%.17g,warmup_steps=%.17g,steps=%.17g)", { "peak", "warmup", "total" },        \
        FLT_EPSILON
#define RSQRT "rsqrt", "rsqrt(base=%.17g,warmup_steps=%.17g)", { "base", "warmup_steps", NULL }, 4 * DBL_EPSILON

static const recorded files[] = {
    { "google_shampoo/schedule.safetensors",
      "linear_warmup",
      "linear_warmup(peak=%.17g,warmup_steps=%.17g)",
      { "peak", "warmup_steps", NULL },
      FLT_EPSILON },
    { "distributed_kron/lr_schedule.safetensors", WARMUP_LINEAR },
    { "distributed_kron/wd_callable_schedule.safetensors", WARMUP_LINEAR },
    { "t5x_adafactor/schedule_1.safetensors", RSQRT },
    { "t5x_adafactor/schedule_2.safetensors", RSQRT },
};
enum { FILES = sizeof files / sizeof *files };

static pd_schedule *schedule_of(const recorded *it, pd_trace *trace)
{
    const json_t *config, *given;
    pd_schedule *schedule = NULL;
    double arg[3] = { 0 };
    char text[256];
    pd_error err;

    if (pd_trace_config(trace, &config, &err) != PD_OK) fail_msg("%s", err.text);
    given = json_object_get(config, "learning_rate");
    assert_string_equal(json_string_value(json_object_get(given, "schedule")), it->name);
    for (int i = 0; i < 3 && it->key[i] != NULL; i++) {
        assert_true(json_is_number(json_object_get(given, it->key[i])));
        arg[i] = json_number_value(json_object_get(given, it->key[i]));
    }
    snprintf(text, sizeof text, it->format, arg[0], arg[1], arg[2]);
    if (pd_schedule_read(&schedule, text, &err) != PD_OK) fail_msg("%s", err.text);
    return schedule;
}

static void gives_the_recorded_rates(void **state)
{
    const recorded *it = *state;
    pd_schedule *schedule;
    pd_trace *trace;
    pd_error err;
    const char *path = golden_path(it->file);

    if (pd_trace_open(&trace, path, &err) != PD_OK || pd_trace_check(trace, &err) != PD_OK)
        fail_msg("%s: %s", path, err.text);
    schedule = schedule_of(it, trace);
    assert_true(trace->steps > 2);
    for (int64_t step = 1; step <= trace->steps; step++) {
        double rate = pd_schedule_at(schedule, step - 1), theirs = NAN;
        assert_true(pd_trace_rate(trace, step, &theirs));
        if (!(fabs(rate - theirs) <= it->tolerance * fabs(theirs)))
            fail_msg("step %d: %.17g, recorded is %.17g", (int)step, rate, theirs);
    }
    pd_schedule_free(schedule);
    pd_trace_close(trace);
}

TEST_PROGRAM(all_schedules)
{
    struct CMUnitTest tests[FILES];

    for (int i = 0; i < FILES; i++)
        tests[i] = (struct CMUnitTest){ .name = files[i].file,
                                        .test_func = gives_the_recorded_rates,
                                        .initial_state = (void *)&files[i] };
    return _cmocka_run_group_tests("recorded schedules", tests, FILES, NULL, NULL);
}
