/* paramctl_plan.c - the program of `paramctl plan`: computes what a model's optimizer will cost, from the shapes of
 * its parameters and the rules. */
#include <stdlib.h>
#include <string.h>

#include "forecast.h"
#include "most_shards.h"
#include "programs.h"
#include "result.h"
#include "shard_plan.h"

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

/* The numbers of daemons that the user asks about. */
typedef struct counts {
    uint32_t at[PD_MOST_SHARD_PLANS];
    size_t n;
} counts;

/* Reads the option --shards, such as "1,4,16". Ends the program if it is wrong. */
static counts read_counts(const pd_line *line)
{
    const char *text = pd_line_text(line, "shards"), *at = text;
    counts out = { .n = 0 };

    while (at != NULL) {
        char *end;
        unsigned long many = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || many < 1 || many > PD_MAX_SHARDS || (*end != ',' && *end != '\0') ||
            out.n == PD_MOST_SHARD_PLANS)
            pd_line_refuse(line, "--shards %s: expected at most %d numbers from 1 to %d, such as 1,4,16", text,
                           PD_MOST_SHARD_PLANS, PD_MAX_SHARDS);
        out.at[out.n++] = (uint32_t)many;
        at = *end == ',' ? end + 1 : NULL;
    }
    return out;
}

/* Forecasts the model on each of the numbers of daemons, and prints it as text, or adds it to *json. */
static int spread(const pd_line *line, const pd_forecast *f, json_t *json, pd_error *err)
{
    counts many = read_counts(line);
    pd_speeds speeds = { (double)pd_line_number(line, "rate") * 1e6, (double)pd_line_number(line, "gflops") * 1e9 };
    pd_shard_plan spreads[PD_MOST_SHARD_PLANS];
    pd_shard_plan_uncut uncut = { 0 }, largest = { 0 };
    int rc = PD_OK;

    for (size_t i = 0; i < many.n && rc == PD_OK; i++) {
        rc = pd_shard_plan_make(&spreads[i], &uncut, f, many.at[i], &speeds, err);
        if (uncut.elements > largest.elements) largest = uncut;
    }
    if (rc != PD_OK || many.n == 0) return rc;
    if (json == NULL) return pd_shard_plan_print(spreads, many.n, &largest, f, &speeds, stdout, err);
    return json_object_update_new(json, pd_shard_plan_json(spreads, many.n, &largest)) == 0
               ? PD_OK
               : pd_fail(err, PD_NO_MEMORY, "out of memory");
}

static bool gives(const texts *options, const char *key)
{
    size_t n = strlen(key);

    for (size_t i = 0; i < options->n; i++)
        if (strncmp(options->at[i], key, n) == 0 && options->at[i][n] == '=') return true;
    return false;
}

/* Lets all parameters of a job on several daemons take their steps together, as jobs of Python do, unless the user says
 * otherwise: only then are large parameters cut. */
static int assume_whole_steps(const pd_line *line, pd_sizing *job, const texts *options, pd_error *err)
{
    if (!pd_line_has(line, "shards") || gives(options, "nonfinite_scope")) return PD_OK;
    return pd_job_values_set(&job->values, "nonfinite_scope", "job", err);
}

static int plan(const pd_line *line, pd_sizing *job, const texts *options, const texts *rules)
{
    json_t *json = NULL;
    pd_shapes shapes = { 0 };
    pd_forecast forecast = { 0 };
    pd_error err = { 0 };
    int status = PD_CTL_OK, rc = pd_shapes_read(&shapes, line->args[0], &err);
    bool usage = false; /* the error is in an option on the command line, not in the file */

    if (rc == PD_OK) {
        rc = assume_whole_steps(line, job, options, &err);
        if (rc == PD_OK) rc = set_options(job, options, &err);
        if (rc == PD_OK)
            rc =
                pd_forecast_make(&forecast, job, &shapes, (char *const *)rules->at, rules->n, pd_optimizer_table, &err);
        usage = rc != PD_OK && rc != PD_NO_MEMORY;
    }
    if (rc == PD_OK && line->json)
        json = pd_forecast_json(&forecast);
    else if (rc == PD_OK && !pd_line_has(line, "shards"))
        rc = pd_forecast_print(&forecast, pd_line_has(line, "verbose"), stdout, &err);
    if (rc == PD_OK) rc = spread(line, &forecast, json, &err);
    if (rc != PD_OK) {
        status = pd_result_fail(line->json, &err);
        if (usage) status = PD_CTL_USAGE;
    } else if (line->json)
        status = pd_result_json(json_incref(json));
    json_decref(json);
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
    (void)read_counts(&line);
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
