/* sim_expected.c - checks at the end of a run the published weights against the contributions: by arithmetic, and by an
 * undisturbed twin of each job. */
#include "optimizer.h"
#include "sim_history.h"
#include "sim_judge.h"
#include "sim_quantized.h"
#include "sim_readouts.h"
#include "sim_sets.h"
#include "sim_twin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Collects the values and weights that the ranks contribute to one element of a parameter. Returns their number. */
static int values_of(const sim_history *h, uint32_t p, uint64_t step, int64_t i, double *value, double *weight)
{
    const sim_job *job = h->job;
    int n = 0;

    for (uint32_t rank = 0; rank < job->world; rank++) {
        uint64_t of = sim_sets_push(h, p, step, rank);
        int64_t start, end;
        sim_range(job, &job->params[p], rank, &start, &end);
        if (of == 0 || i < start || i >= end || !sim_has_gradient(job, rank, of, p)) continue;
        value[n] = sim_is_quantized(job, p) ? sim_quantized_of(h, rank, of, p)[i - start]
                                            : sim_gradient_at(job, rank, of, p, i);
        if (!job->rejects && i == start + (end - start) / 2 && sim_gradient_is_infinite(job, rank, of, p))
            value[n] = INFINITY;
        weight[n++] = sim_weight(job, rank, of) * (job->params[p].model_state ? 1 : sim_sets_damp(h, p, step, rank));
    }
    return n;
}

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static double middle(double *value, int n, int trim)
{
    double sum = 0;

    qsort(value, (size_t)n, sizeof *value, by_value);
    for (int k = trim; k < n - trim; k++) sum += value[k];
    return sum / (n - 2 * trim);
}

/* `single`: the weight of the first contribution, if it were not old. */
static double aggregate(const sim_job *job, bool values, double *value, const double *weight, int n, double single)
{
    double sum = 0, weights = 0;
    int most = (n - 1) / 2;

    for (int k = 0; k < n; k++) {
        double w = job->how == PD_WEIGHTED_MEAN || job->open.damping != SIM_UNDAMPED ? weight[k] : 1;
        sum += w * value[k];
        weights += w;
    }
    if (!values && job->how == PD_SUM) return sum;
    if (!values && job->how == PD_MEDIAN) return middle(value, n, most);
    if (!values && job->how == PD_TRIMMED_MEAN) return middle(value, n, most < 1 ? most : 1);
    return n == 1 && job->open.damping != SIM_UNDAMPED && !values ? sum / single : sum / weights;
}

/* Returns the weight that the push of the lowest rank with a gradient has given. */
static double single_weight(const sim_history *h, uint32_t p, uint64_t step)
{
    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        uint64_t of = sim_sets_push(h, p, step, rank);
        if (of > 0 && sim_has_gradient(h->job, rank, of, p)) return sim_weight(h->job, rank, of);
    }
    return 1;
}

/* Checks a step of sgd with lr=1, which subtracts the aggregate. Model state becomes the aggregate. */
static void check_arithmetic(const sim_history *h, uint32_t p, uint64_t step, const float *before, const float *after)
{
    const sim_job *job = h->job;
    double value[SIM_WORLD], weight[SIM_WORLD];
    uint64_t lr_step = sim_sets_lr_step(h, step, p);
    double lr = lr_step > 0 ? sim_sets_lr(lr_step) : 1;
    int64_t stride = job->params[p].n > 32 ? 7 : 1;

    for (int64_t i = 0; i < job->params[p].n; i += stride) {
        int n = values_of(h, p, step, i, value, weight);
        bool state = job->params[p].model_state;
        double moved = aggregate(job, state, value, weight, n, single_weight(h, p, step)),
               expected = state ? moved : before[i] - lr * moved;
        if (n == 0 || fabs(after[i] - expected) > 1e-3)
            sim_fail("exactly once", "%s %s: step %llu takes element %lld from %g to %g, expected %g", job->name,
                     job->params[p].name, (unsigned long long)step, (long long)i, (double)before[i], (double)after[i],
                     expected);
    }
}

static void check_plain(const sim_history *h)
{
    for (uint32_t p = 0; p < h->job->n_params; p++) {
        const float *before = h->params[p].weights[0];
        for (uint64_t step = 1; before != NULL && step <= h->params[p].step; step++) {
            const float *after = h->params[p].weights[step], *replaced = h->params[p].replaced[step - 1];
            if (replaced != NULL) before = replaced;
            if (after == NULL) continue;
            check_arithmetic(h, p, step, before, after);
            before = after;
        }
    }
}

static void init_twin(rig *r, const sim_history *h)
{
    for (uint32_t p = 0; p < h->job->n_params; p++)
        for (uint32_t rank = 0; rank < h->job->world; rank++) {
            float initial[SIM_ELEMENTS];
            int64_t start, end;
            const float *weights = h->params[p].weights[0];
            if (weights == NULL || (rank > 0 && !h->job->params[p].ranged && !h->job->mean_init)) continue;
            sim_range(h->job, &h->job->params[p], rank, &start, &end);
            sim_initial(h->job, rank, 0, p, initial);
            sim_twin_send(r, PD_REQ_INIT, h->job, rank, 0, 1, NULL, p, h->job->mean_init ? initial : weights + start,
                          0);
        }
}

/* Returns how many ranks bring a gradient of the parameter in a step. */
static uint32_t count_given(const sim_history *h, uint32_t p, uint64_t step)
{
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        uint64_t of = sim_sets_push(h, p, step, rank);
        n += of > 0 && sim_has_gradient(h->job, rank, of, p);
    }
    return n;
}

/* Writes what counts of a rank's push: a gradient, or the values that quantizing it has made. */
static void contribution(const sim_history *h, uint32_t rank, uint64_t of, uint32_t p, float *out)
{
    int64_t start, end;

    sim_range(h->job, &h->job->params[p], rank, &start, &end);
    if (sim_is_quantized(h->job, p))
        memcpy(out, sim_quantized_of(h, rank, of, p), (size_t)(end - start) * sizeof *out);
    else
        sim_gradient(h->job, rank, of, p, h->job->rejects, out);
}

/* Pushes what the rank contributes to a parameter, with the weight that it has although it may be old. If it is the
 * only contribution, its gradient is damped itself, since a mean of one would undo what is done to its weight. */
static void push_twin(rig *r, const sim_history *h, uint32_t rank, uint64_t step, uint32_t p, const char *lr)
{
    float gradient[SIM_ELEMENTS];
    uint64_t of = sim_sets_push(h, p, step, rank);
    double damp = h->job->params[p].model_state ? 1 : sim_sets_damp(h, p, step, rank);
    bool alone = count_given(h, p, step) == 1;

    contribution(h, rank, of, p, gradient);
    for (int64_t i = 0; alone && damp != 1 && i < h->job->params[p].n; i++) gradient[i] *= (float)damp;
    sim_twin_send(r, PD_REQ_PUSH, h->job, rank, step, sim_weight(h->job, rank, of) * (alone ? 1 : damp), lr, p,
                  gradient, 0);
}

/* Returns whether it is not known what the rank would contribute to the step, since it has not pushed: the server was
 * told to stop when other parameters had taken the step. */
static bool is_unknown(const sim_history *h, uint32_t rank, uint64_t of, uint32_t p, uint64_t step)
{
    return h->params[p].step < step && sim_is_quantized(h->job, p) && !sim_quantized_is_sent(h, rank, of, p);
}

static void step_twin(rig *r, const sim_history *h, uint64_t step)
{
    for (uint32_t rank = 0; rank < h->job->world; rank++)
        for (uint32_t p = 0; p < h->job->n_params; p++) {
            uint64_t of = sim_sets_push(h, p, step, rank), lr_step = sim_sets_lr_step(h, step, p);
            char text[24];
            if (h->params[p].weights[0] == NULL) continue;
            sim_sets_lr_text(lr_step, text, sizeof text);
            if (of > 0 && sim_has_gradient(h->job, rank, of, p)) {
                if (is_unknown(h, rank, of, p, step)) continue;
                push_twin(r, h, rank, step, p, lr_step > 0 ? text + 3 : NULL);
            } else {
                sim_twin_skip(r, h->job, rank, step, p);
            }
        }
    rig_work(r);
}

static void compare_twin(rig *r, const sim_history *h, uint64_t step)
{
    for (uint32_t p = 0; p < h->job->n_params; p++) {
        const sim_published *pub = &h->params[p];
        const rig_entry *twin = rig_versions(r, r->job, p);
        if (pub->weights[0] == NULL || pub->step < step) continue;
        if (twin->step != step || (step > 0 && twin->outcome != pub->outcome[step]))
            sim_fail("exactly once", "%s %s: step %llu has outcome %d, the undisturbed twin %d (at step %llu)",
                     h->job->name, h->job->params[p].name, (unsigned long long)step, (int)pub->outcome[step],
                     (int)twin->outcome, (unsigned long long)twin->step);
        if (pub->weights[step] == NULL) continue;
        if (memcmp(pub->weights[step], rig_weights(r, r->job, p), (size_t)h->job->params[p].n * sizeof(float)) != 0)
            sim_fail("exactly once",
                     "%s %s: the weights of step %llu have other bits than those of the undisturbed twin", h->job->name,
                     h->job->params[p].name, (unsigned long long)step);
    }
}

/* Replaces the weights of the twin as the workers do after this step. */
static void replace_twin(rig *r, const sim_history *h, uint64_t step)
{
    float weights[SIM_ELEMENTS];
    uint32_t whole = 0;

    for (uint32_t p = 0; p < h->job->n_params; p++)
        whole += h->params[p].weights[0] != NULL && sim_is_replaced(h->job, step, p);
    for (uint32_t p = 0; p < h->job->n_params; p++) {
        if (h->params[p].weights[0] == NULL || !sim_is_replaced(h->job, step, p)) continue;
        sim_replacement(h->job, step, p, weights);
        sim_twin_send(r, PD_REQ_INIT, h->job, 0, step, 1, NULL, p, weights, whole);
    }
}

/* Writes the weights that the twin has to evaluate with, if the job's optimizer has others than it trains. Of a job
 * that has taken some steps twice it is not known from which course those are that somebody got. */
static void read_out_twin(rig *r, const sim_history *h, float (*out)[SIM_ELEMENTS])
{
    for (uint32_t p = 0; sim_averages(h->job) && !h->loose && p < h->job->n_params; p++)
        if (h->params[p].weights[0] != NULL) sim_readouts_of_twin(r, h->job, p, out[p]);
}

static void compare_readouts(const sim_history *h, uint64_t step, float (*stepped)[SIM_ELEMENTS],
                             float (*replaced)[SIM_ELEMENTS])
{
    for (uint32_t p = 0; sim_averages(h->job) && !h->loose && p < h->job->n_params; p++)
        if (h->params[p].weights[0] != NULL && h->params[p].step >= step)
            sim_readouts_check(h, p, step, stepped[p], replaced[p]);
}

static void check_twin(const sim *s, const sim_history *h, uint64_t last)
{
    static float stepped[SIM_PARAMS][SIM_ELEMENTS], replaced[SIM_PARAMS][SIM_ELEMENTS];
    static rig r;

    sim_twin_begin(&r, h->job, s->plan->chunk);
    init_twin(&r, h);
    for (uint64_t step = 0; step <= last; step++) {
        if (step > 0) step_twin(&r, h, step);
        compare_twin(&r, h, step);
        read_out_twin(&r, h, stepped);
        replace_twin(&r, h, step);
        read_out_twin(&r, h, replaced);
        compare_readouts(h, step, stepped, replaced);
    }
    rig_free(&r);
}

static bool all_begun(const sim_history *h, uint64_t *last)
{
    bool all = true;

    *last = 0;
    for (uint32_t p = 0; p < h->job->n_params; p++) {
        all = all && h->params[p].begun;
        if (h->params[p].step > *last) *last = h->params[p].step;
    }
    return all;
}

void sim_judge_all(sim *s)
{
    uint64_t last;

    for (const sim_history *h = s->histories; h != NULL; h = h->next) {
        if (h->job == NULL || !all_begun(h, &last) || last == 0) continue;
        if (h->job->plain && !h->job->clips && !pd_is_merged((pd_aggregation)h->job->how)) check_plain(h);
        if (!h->job->ready && (h->job->plain || sim_averages(h->job) || sim_failed_allocations() == 0))
            /* A root that fails for lack of memory changes the weights. So a job with roots is compared with its
             * undisturbed twin only if no allocation has failed. */
            check_twin(s, h, last);
    }
}
