/* paramctl_plan.c - the program behind `paramctl plan`: what a model's optimizer will cost, from its shapes and rules
 * alone. */
#include <stdlib.h>
#include <string.h>

#include "forecast_json.h"
#include "forecast_text.h"
#include "programs.h"
#include "result.h"

enum { MOST_RULES = 64, MOST_OPTIONS = 64 };    /* as many rules as a Hello may have */

typedef struct texts {
    char  *at[64];
    size_t n;
} texts;

static void take_rule(const pd_line_option *option, char *rule, struct argp_state *state)
{
    texts *rules = option->to;

    if (rules->n == MOST_RULES) argp_error(state, "more than %d rules", MOST_RULES);
    rules->at[rules->n++] = rule;
}

static void take_option(const pd_line_option *option, char *text, struct argp_state *state)
{
    texts *options = option->to;

    if (options->n == MOST_OPTIONS) argp_error(state, "more than %d options", MOST_OPTIONS);
    if (strchr(text, '=') == NULL) argp_error(state, "--option %s: expected KEY=VALUE", text);
    options->at[options->n++] = text;
}

/* Sets the job's options, "key=value" each. */
static int set_options(pd_sizing *job, const texts *options, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; i < options->n && rc == PD_OK; i++) {
        const char *option = options->at[i], *value = strchr(option, '=') + 1;
        char *name = strndup(option, (size_t)(value - option) - 1);
        rc = name == NULL ? pd_fail(err, PD_NO_MEMORY, "out of memory")
                          : pd_job_values_set(&job->values, name, value, err);
        free(name);
    }
    return rc;
}

static int plan(const pd_line *line, pd_sizing *job, const texts *options, const texts *rules, bool verbose)
{
    pd_shapes shapes = { 0 };
    pd_forecast forecast = { 0 };
    pd_error err = { 0 };
    int status = PD_EXIT_OK, rc = set_options(job, options, &err);

    if (rc == PD_OK) rc = pd_shapes_read(&shapes, line->args[0], &err);
    if (rc == PD_OK) rc = pd_forecast_make(&forecast, job, &shapes, rules->at, rules->n, pd_rows, &err);
    if (rc == PD_OK && !line->json) rc = pd_forecast_print(&forecast, verbose, stdout, &err);
    if (rc != PD_OK) status = pd_result_fail(line->json, &err);
    else if (line->json) status = pd_result_json(pd_forecast_json(&forecast));
    pd_forecast_free(&forecast);
    pd_shapes_free(&shapes);
    return status;
}

int main(int argc, char **argv)
{
    int64_t world = 1, threads = 1, pool_threads = 1;
    bool verbose = false;
    texts rules = { 0 }, job_options = { 0 };
    const pd_line_option options[] = {
        { "rule", 0, "RULE", "\"GLOB OPTIMIZER name=value ...\", as a job gives it; may be repeated, the first that "
          "matches wins (default \"* sgd\")", take_rule, &rules, 0, 0 },
        { "workers", 0, "W", "Workers of the job (default 1)", pd_take_number, &world, 0, UINT32_MAX },
        { "option", 0, "KEY=VALUE", "Of the job, as its workers give it: aggregate=median, say; may be repeated",
          take_option, &job_options, 0, 0 },
        { "threads", 0, "T", "Threads of the daemon that take optimizer steps, its step_threads (default 1)",
          pd_take_number, &threads, 1, 1024 },
        { "pool-threads", 0, "P", "Threads of the daemon that compute roots, its pool_threads (default 1)",
          pd_take_number, &pool_threads, 1, 60 },
        { "verbose", 'v', NULL, "List every parameter, slot and task; without it those that are alike share a line",
          pd_take_flag, &verbose, 0, 0 },
        { 0 }
    };
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_PLAN], argc, argv);
    pd_sizing job = pd_forecast_job();

    pd_line_parse(&line, options);
    job.world = (uint32_t)world;
    job.threads = (int)threads;
    job.pool_threads = (int)pool_threads;
    return plan(&line, &job, &job_options, &rules, verbose);
}
