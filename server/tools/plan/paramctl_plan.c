/* paramctl_plan.c - the program of `paramctl plan`: computes what a model's optimizer will cost, from the shapes of
 * its parameters and the rules. */
#include <stdlib.h>
#include <string.h>

#include "forecast.h"
#include "programs.h"
#include "result.h"

enum { MOST_TEXTS = 64 }; /* most rules on the command line (a worker may send as many), and most options of the job */

/* All values of a command-line option that may be repeated. */
typedef struct texts {
    char *at[MOST_TEXTS];
    size_t n;
} texts;

/* Sets the job's options from texts of the form KEY=VALUE. */
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
    job->logged = job->values.at[PD_JOB_KEY_DURABILITY] == PD_DURABLE_LOG;
    job->durable = job->logged || job->values.at[PD_JOB_KEY_DURABILITY] == PD_DURABLE_CHECKPOINT;
    return rc;
}

static int plan(const pd_line *line, pd_sizing *job, const texts *options, const texts *rules)
{
    pd_shapes shapes = { 0 };
    pd_forecast forecast = { 0 };
    pd_error err = { 0 };
    int status = PD_CTL_OK, rc = pd_shapes_read(&shapes, line->args[0], &err);
    bool usage = false; /* the error is in an option on the command line, not in the file */

    if (rc == PD_OK) {
        rc = set_options(job, options, &err);
        if (rc == PD_OK)
            rc =
                pd_forecast_make(&forecast, job, &shapes, (char *const *)rules->at, rules->n, pd_optimizer_table, &err);
        usage = rc != PD_OK && rc != PD_NO_MEMORY;
    }
    if (rc == PD_OK && !line->json) rc = pd_forecast_print(&forecast, pd_line_has(line, "verbose"), stdout, &err);
    if (rc != PD_OK) {
        status = pd_result_fail(line->json, &err);
        if (usage) status = PD_CTL_USAGE;
    } else if (line->json)
        status = pd_result_json(pd_forecast_json(&forecast));
    pd_forecast_free(&forecast);
    pd_shapes_free(&shapes);
    return status;
}

int main(int argc, char **argv)
{
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_PLAN], argc, argv);
    pd_sizing job = pd_forecast_job();
    texts rules, options;

    pd_line_parse(&line);
    rules.n = pd_line_texts(&line, "rule", rules.at, MOST_TEXTS);
    options.n = pd_line_texts(&line, "option", options.at, MOST_TEXTS);
    for (size_t i = 0; i < options.n; i++)
        if (strchr(options.at[i], '=') == NULL) pd_line_refuse(&line, "--option %s: expected KEY=VALUE", options.at[i]);
    job.world = (uint32_t)pd_line_number(&line, "workers");
    job.fragments = (uint32_t)pd_line_number(&line, "fragments");
    job.threads = (int)pd_line_number(&line, "threads");
    if (pd_dtype_parse(&job.pushed, pd_line_text(&line, "push-dtype")) != PD_OK) job.pushed = 0;
    job.pool_threads = (int)pd_line_number(&line, "pool-threads");
    return plan(&line, &job, &options, &rules);
}
