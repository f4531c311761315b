/* sim_twin.c - drives the undisturbed twin of a job. */
#include "sim_twin.h"

#include "sim_judge.h"

#include <stdio.h>
#include <string.h>

/* Returns whether the twin does not have an option of the job: it has no disk, and its ranks count in every step. Those
 * that did not count say that they have no gradient. */
static bool is_left_out(const char *option)
{
    static const char *const names[] = {
        "durability", "rounds", "quorum", "grace", "staleness", "on_stale", "damping"
    };
    bool any = false;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        any = any || strncmp(option, names[i], strlen(names[i])) == 0;
    return any;
}

/* Returns an option of the twin. A mean of contributions some of which are old is a weighted mean there. */
static const char *twin_option(const sim_job *job, uint32_t o)
{
    bool mean = job->open.damping != SIM_UNDAMPED && strcmp(job->options[o], "aggregate=mean") == 0;

    return mean ? "aggregate=weighted_mean" : job->options[o];
}

static void join_options(const sim_job *job, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t o = 0; o < job->n_options; o++)
        if (!is_left_out(job->options[o]))
            used += (size_t)snprintf(text + used, size - used, "%s%s", o > 0 ? " " : "", twin_option(job, o));
}

static void declare_twin(rig *r, const sim_job *job, uint32_t rank)
{
    const char *names[SIM_PARAMS];
    pd_shape shapes[SIM_PARAMS];
    rig_range ranges[SIM_PARAMS];
    bool states[SIM_PARAMS];

    for (uint32_t p = 0; p < job->n_params; p++) {
        const sim_param *param = &job->params[p];
        names[p] = param->name;
        shapes[p] = param->shape;
        states[p] = param->model_state;
        ranges[p] = (rig_range){ -1, 0 };
        if (param->ranged) sim_range(job, param, rank, &ranges[p].start, &ranges[p].end);
    }
    r->ranges = ranges;
    r->states = states;
    if (rig_declare(r, r->job, rank, 1 + rank, names, shapes, NULL, job->n_params, PD_F32) != PD_OK)
        sim_fail("harness", "the twin refuses Declare: %s", r->error.text);
    r->ranges = NULL;
    r->states = NULL;
}

void sim_twin_send(rig *r, pd_request_kind kind, const sim_job *job, uint32_t rank, uint64_t step, double weight,
                   const char *lr, uint32_t p, const float *values, uint32_t whole)
{
    rig_frame *frame = rig_frame_new(r, kind, r->job, rank, 1 + rank, step);
    int64_t start, end;

    if (kind == PD_REQ_PUSH) rig_replaces(frame, sim_replaces(job, step - 1), 0);
    if (whole > 0) rig_replaces(frame, sim_replaces(job, step), whole);
    if (lr != NULL) rig_hyper(frame, "lr", lr);

    sim_range(job, &job->params[p], rank, &start, &end);
    rig_weight(frame, weight, false);
    for (int64_t at = start, stop; at < end; at = stop) {
        stop = (at / r->chunk + 1) * r->chunk;
        if (stop > end) stop = end;
        rig_piece(frame, p, PD_F32, at, stop - at, values + (at - start));
    }
    if (rig_send(r, frame) != PD_OK) sim_fail("harness", "the twin refuses a frame: %s", r->error.text);
    rig_work(r);
}

void sim_twin_skip(rig *r, const sim_job *job, uint32_t rank, uint64_t step, uint32_t p)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, 1 + rank, step);

    rig_replaces(frame, sim_replaces(job, step - 1), 0);
    rig_absent(frame, p);
    rig_send(r, frame);
    rig_work(r);
}

void sim_twin_begin(rig *r, const sim_job *job, uint64_t chunk)
{
    pd_store_config config = rig_config();
    char options[SIM_OPTIONS * 48];

    config.chunk_elements = chunk;
    rig_new(r, &config);
    join_options(job, options, sizeof options);
    for (uint32_t rank = 0; rank < job->world; rank++) {
        if (rig_hello(r, job->name, rank, job->world, 1 + rank, 1 + rank, options, job->rule) != PD_OK)
            sim_fail("harness", "the twin refuses Hello: %s", r->error.text);
        declare_twin(r, job, rank);
    }
}
