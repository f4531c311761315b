/* pair.c - measures two jobs of one daemon that take blocks of steps in turn. */
#include "pair.h"

#include "bench_team.h"
#include "figure.h"

static team *start(const pd_child *daemon, const char *job, const pair_options *o, const char *const *options)
{
    int64_t *elements = figure_alloc((size_t)o->params * sizeof *elements);
    team *t;

    for (int i = 0; i < o->params; i++) elements[i] = (int64_t)o->side * o->side;
    t = team_start(&(team_options){ .url = daemon->local,
                                    .job = job,
                                    .workers = 2,
                                    .elements = elements,
                                    .n = (size_t)o->params,
                                    .square = true,
                                    .rule = o->rule,
                                    .options = options });
    free(elements);
    return t;
}

/* Reads the durable step of the job "with", and the size of its last checkpoint. */
static void read_durable(const pd_child *daemon, pair_result *out)
{
    pd_operator op;
    const Paramd__StatusReply *status = figure_status(daemon->url, &op);

    for (size_t i = 0; i < status->n_jobs; i++) {
        if (strcmp(status->jobs[i]->name, "with") != 0) continue;
        out->durable = status->jobs[i]->durable_step;
        out->checkpoint_mb = (double)status->jobs[i]->checkpoint_bytes / 1e6;
        if (status->jobs[i]->checkpoint_error[0] != '\0') figure_stop("%s", status->jobs[i]->checkpoint_error);
    }
    pd_operator_close(&op);
}

static double median(const double *at, int n)
{
    double *copy = figure_alloc((size_t)n * sizeof *copy), value;

    memcpy(copy, at, (size_t)n * sizeof *copy);
    value = figure_quantile(copy, (size_t)n, 0.5);
    free(copy);
    return value;
}

static void compare(pair_result *out, const pair_options *o)
{
    double *ratio = figure_alloc((size_t)o->blocks * sizeof *ratio), last = 0;

    for (int i = 0; i < o->blocks; i++) {
        double with = median(out->with + i * o->block, o->block),
               without = median(out->without + i * o->block, o->block);
        double change = i == 0 ? 1 : without > last ? without / last : last / without;
        ratio[i] = with / without;
        if (change > out->noise) out->noise = change;
        last = without;
    }
    out->ratio = figure_quantile(ratio, (size_t)o->blocks, 0.5);
    out->least = ratio[0]; /* figure_quantile has sorted them */
    out->most = ratio[o->blocks - 1];
    free(ratio);
}

/* Takes the blocks of both jobs. */
static void take_turns(team *with, team *without, const pair_options *o, pair_result *out)
{
    team_steps(with, o->before, NULL);
    team_steps(without, o->before, NULL);
    for (int i = 0; i < o->blocks; i++) {
        bool first = i % 2 == 0; /* alternates which job begins a pair of blocks */
        team_steps(first ? with : without, o->block, (first ? out->with : out->without) + i * o->block);
        team_steps(first ? without : with, o->block, (first ? out->without : out->with) + i * o->block);
    }
}

void pair_measure(pair_result *out, const pair_options *options)
{
    char folder[] = "/var/tmp/paramd-figure.XXXXXX";
    pd_child daemon;
    team *with, *without;

    *out = (pair_result){ .steps = options->block * options->blocks };
    out->with = figure_alloc((size_t)out->steps * sizeof *out->with);
    out->without = figure_alloc((size_t)out->steps * sizeof *out->without);
    figure_folder(folder);
    figure_daemon(&daemon);
    with = start(&daemon, "with", options, options->with);
    without = start(&daemon, "without", options, options->without);
    take_turns(with, without, options, out);
    read_durable(&daemon, out);
    compare(out, options);
    team_end(with);
    team_end(without);
    pd_child_stop(&daemon);
    figure_remove(folder);
}

void pair_free(pair_result *result)
{
    free(result->with);
    free(result->without);
}
