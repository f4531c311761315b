/* sim_readouts.c - keeps the weights to evaluate with that workers and operators get, and compares them at the end of a
 * run with those of the job's twin. */
#include "sim_readouts.h"

#include "optimizer.h"
#include "sim_sets.h"
#include "store_inside.h"

#include <stdlib.h>
#include <string.h>

/* Returns the only history of a job; NULL: it was begun never, or more than once. */
static sim_history *only_history(sim *s, const sim_job *job)
{
    sim_history *only = NULL;

    for (sim_history *h = s->histories; h != NULL; h = h->next) {
        if (h->job == NULL || h->job->number != job->number) continue;
        if (only != NULL) return NULL;
        only = h;
    }
    return only;
}

void sim_readouts_keep(sim *s, const sim_job *job, uint64_t creator, uint32_t param, uint64_t step,
                       const float *weights, int64_t first, int64_t n)
{
    sim_history *h = creator != 0 ? sim_sets_history(s, job, creator) : only_history(s, job);
    int64_t chunk = (int64_t)s->plan->chunk;
    sim_readout *readout;

    /* With open sets a step closes without this worker, so the chunks of one answer may be of several steps. */
    if (h == NULL || n == 0 || (job->open.on && first / chunk != (first + n - 1) / chunk)) return;
    readout = sim_must(malloc(sizeof *readout + (size_t)n * sizeof *weights));
    *readout = (sim_readout){ .next = h->readouts, .param = param, .step = step, .first = first, .n = n };
    memcpy(readout->at, weights, (size_t)n * sizeof *weights);
    h->readouts = readout;
}

void sim_readouts_of_twin(rig *twin, const sim_job *job, uint32_t param, float *out)
{
    const pd_optim *optim = inside_job(twin->store, twin->job)->steps.params[param].optim;
    const float *weights = rig_weights(twin, twin->job, param);

    if (pd_optim_has_readout(optim))
        pd_optim_read_out(optim, weights, out, 0, job->params[param].n);
    else
        memcpy(out, weights, (size_t)job->params[param].n * sizeof *out);
}

void sim_readouts_check(const sim_history *h, uint32_t param, uint64_t step, const float *stepped,
                        const float *replaced)
{
    for (const sim_readout *readout = h->readouts; readout != NULL; readout = readout->next)
        for (int64_t i = 0; readout->param == param && readout->step == step && i < readout->n; i++) {
            const float *a = &stepped[readout->first + i], *b = &replaced[readout->first + i];
            if (memcmp(a, &readout->at[i], sizeof *a) == 0 || memcmp(b, &readout->at[i], sizeof *b) == 0) continue;
            sim_fail("evaluation",
                     "%s %s: after step %llu somebody got %g to evaluate element %lld with, the undisturbed twin has "
                     "%g",
                     h->job->name, h->job->params[param].name, (unsigned long long)step, (double)readout->at[i],
                     (long long)(readout->first + i), (double)*a);
        }
}

void sim_readouts_free(sim_history *h)
{
    while (h->readouts != NULL) {
        sim_readout *next = h->readouts->next;
        free(h->readouts);
        h->readouts = next;
    }
}
