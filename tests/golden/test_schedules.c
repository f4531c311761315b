/* Computes the learning rates that upstream's own schedules gave, step by step: every trace of $PARAMD_GOLDEN below. Those of float32 programs to
 * one unit in the last place, those in double to 4. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "schedule.h"
#include "trace.h"

typedef struct recorded {
    const char *file;
    const char *name;                   /* upstream's of the schedule */
    const char *format;                 /* ours, and what goes in it: */
    const char *key[3];
    double      tolerance;
} recorded;

#define WARMUP_LINEAR "warmup_linear", "warmup_linear(peak=%.17g,warmup_steps=%.17g,steps=%.17g)", { "peak", "warmup", "total" }, FLT_EPSILON
#define RSQRT         "rsqrt", "rsqrt(base=%.17g,warmup_steps=%.17g)", { "base", "warmup_steps", NULL }, 4 * DBL_EPSILON

static const recorded files[] = {
    { "google_shampoo/schedule", "linear_warmup", "linear_warmup(peak=%.17g,warmup_steps=%.17g)", { "peak", "warmup_steps", NULL }, FLT_EPSILON },
    { "distributed_kron/lr_schedule", WARMUP_LINEAR },
    { "distributed_kron/wd_callable_schedule", WARMUP_LINEAR },
    { "t5x_adafactor/schedule_1", RSQRT },
    { "t5x_adafactor/schedule_2", RSQRT },
};
enum { FILES = sizeof files / sizeof *files };

static void path_of(const recorded *it, char *path, size_t size)
{
    snprintf(path, size, "%s/%s.safetensors", getenv("PARAMD_GOLDEN"), it->file);
}

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
    char path[1024];

    path_of(it, path, sizeof path);
    if (pd_trace_open(&trace, path, &err) != PD_OK || pd_trace_check(trace, &err) != PD_OK) fail_msg("%s: %s", path, err.text);
    schedule = schedule_of(it, trace);
    assert_true(pd_trace_steps(trace) > 2);
    for (int64_t step = 1; step <= pd_trace_steps(trace); step++) {
        double rate = pd_schedule_at(schedule, step - 1), theirs = NAN;
        assert_true(pd_trace_rate(trace, step, &theirs));
        if (!(fabs(rate - theirs) <= it->tolerance * fabs(theirs))) fail_msg("step %d: %.17g, recorded is %.17g", (int)step, rate, theirs);
    }
    pd_schedule_free(schedule);
    pd_trace_close(trace);
}

int main(void)
{
    struct CMUnitTest tests[FILES];
    char path[1024];

    for (int i = 0; i < FILES; i++) {
        if (getenv("PARAMD_GOLDEN") != NULL) path_of(&files[i], path, sizeof path);
        if (getenv("PARAMD_GOLDEN") == NULL || access(path, R_OK) != 0) {
            printf("skipped: there is no %s in PARAMD_GOLDEN\n", files[i].file);
            return 77;
        }
        tests[i] = (struct CMUnitTest){ .name = files[i].file, .test_func = gives_the_recorded_rates, .initial_state = (void *)&files[i] };
    }
    return _cmocka_run_group_tests("recorded schedules", tests, FILES, NULL, NULL);
}
