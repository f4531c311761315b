/* replay_average.c - computes averages of gradients with the arithmetic library, and compares them with recorded
 * averages and recorded weighted means. */
#include "replay_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adasum.h"
#include "kernels.h"
#include "replay_run.h"

/* A trace of averages, and buffers to compute its averages again. */
typedef struct averaging {
    const pd_trace *trace;
    const pd_recipe *recipe;
    const pd_trace_param *params;
    /* Buffers for the gradients of the replicas that have the same shard of the weights. */
    float *gradient[PD_TRACE_MAX_REPLICAS];
    float *scratch[PD_TRACE_MAX_REPLICAS], *ours;
    double *recorded;
} averaging;

static void free_averaging(averaging *a)
{
    for (int r = 0; r < PD_TRACE_MAX_REPLICAS; r++) {
        free(a->gradient[r]);
        free(a->scratch[r]);
    }
    free(a->ours);
    free(a->recorded);
}

/* Allocates buffers with room for the largest parameter and one element more: all parameters may be empty, and
 * malloc(0) may return NULL. */
static int allocate(averaging *a, pd_error *err)
{
    size_t n = (size_t)a->trace->most_elements + 1;
    bool whole =
        (a->ours = malloc(n * sizeof *a->ours)) != NULL && (a->recorded = malloc(n * sizeof *a->recorded)) != NULL;

    for (int r = 0; whole && r < a->trace->replicas; r++) {
        a->gradient[r] = malloc(n * sizeof **a->gradient);
        a->scratch[r] = malloc(n * sizeof **a->scratch);
        whole = a->gradient[r] != NULL && a->scratch[r] != NULL;
    }
    return whole ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");
}

static int take_adasum(averaging *a, pd_adasum_form form, int k, int64_t n, pd_error *err)
{
    pd_vector_run sources[PD_TRACE_MAX_REPLICAS];
    pd_vectors vectors = { k, 1, &n, sources };
    pd_adasum *adasum;

    for (int r = 0; r < k; r++) sources[r] = (pd_vector_run){ .at = a->gradient[r], .dtype = PD_F32 };
    if (pd_adasum_begin(&adasum, form, &vectors, n, a->ours, a->scratch) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (; pd_adasum_units(adasum) > 0; pd_adasum_turn(adasum))
        for (int64_t unit = 0; unit < pd_adasum_units(adasum); unit++) pd_adasum_unit(adasum, unit);
    pd_adasum_end(adasum);
    return PD_OK;
}

static int take_average(averaging *a, int k, int64_t n, pd_error *err)
{
    pd_addend addends[PD_TRACE_MAX_REPLICAS];

    if (strcmp(a->recipe->aggregate, "adasum") == 0) return take_adasum(a, PD_ADASUM_TREE, k, n, err);
    if (strcmp(a->recipe->aggregate, "adasum_vdot") == 0) return take_adasum(a, PD_ADASUM_VDOT, k, n, err);
    for (int r = 0; r < k; r++) addends[r] = (pd_addend){ { .at = a->gradient[r], .dtype = PD_F32 }, 1 };
    (void)pd_accumulate(a->ours, n, false, addends, k, (float)k);
    return PD_OK;
}

/* Averages the gradients of parameter i over the replicas that have this shard of the weights. Compares the result with
 * the recorded average of each of these replicas. */
static int play_group(averaging *a, size_t i, int shard, pd_verdict *verdict, pd_error *err)
{
    const pd_trace_param *param = &a->params[i];
    int shards = a->recipe->shards, k = a->trace->replicas / shards, rc;
    double largest = 0;

    for (int r = 0; r < k; r++) {
        pd_trace_gradient(a->trace, param->step, shard + r * shards, i, a->gradient[r]);
        largest = fmax(largest, pd_finite_norm(a->gradient[r], param->elements));
    }
    if ((rc = take_average(a, k, param->elements, err)) != PD_OK) return rc;
    for (int r = 0; r < k; r++) {
        pd_trace_average(a->trace, param->step, shard + r * shards, i, a->recorded);
        pd_verdict_add(verdict, i, param->step, pd_relative_error(a->ours, a->recorded, param->elements, largest));
    }
    return PD_OK;
}

int pd_replay_check_replicas(const pd_trace *trace, const pd_recipe *recipe, pd_error *err)
{
    int replicas = trace->replicas, k = replicas / recipe->shards;

    if (replicas % recipe->shards != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "expected gradients of a multiple of %d replicas, got %d",
                       recipe->shards, replicas);
    if (strcmp(recipe->aggregate, "adasum") == 0 && !pd_adasum_is_exact(k))
        return pd_fail(err, PD_INVALID_ARGUMENT, "adasum of %d replicas: expected 1, 2, 4, 8 or another power of two",
                       k);
    return PD_OK;
}

int pd_replay_average(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_error *err)
{
    averaging a = { .trace = trace, .recipe = recipe, .params = trace->params };
    int rc = pd_replay_check_replicas(trace, recipe, err);

    if (rc == PD_OK) rc = allocate(&a, err);
    for (size_t i = 0; rc == PD_OK && i < trace->n; i++)
        for (int shard = 0; rc == PD_OK && shard < recipe->shards; shard++)
            rc = play_group(&a, i, shard, &verdicts[i], err);
    free_averaging(&a);
    return rc;
}

/* Sums over the examples of each replica. values: of value times weight of an example; weights: of its weight. */
typedef struct weighing {
    int n;
    float values[PD_TRACE_MAX_REPLICAS], weights[PD_TRACE_MAX_REPLICAS];
} weighing;

static int weigh(pd_case *c, weighing *w, int replica)
{
    char field[32];
    pd_case_tensor values, weights;
    double sum = 0;
    int rc;

    snprintf(field, sizeof field, "values/r%02d", replica);
    if ((rc = pd_case_take(c, field, &values)) != PD_OK) return rc;
    snprintf(field, sizeof field, "weights/r%02d", replica);
    if ((rc = pd_case_take(c, field, &weights)) != PD_OK) return rc;
    if (weights.n != values.n) return pd_case_refuse(c, field, "not as many as there are values");
    for (int64_t i = 0; i < weights.n; i++) sum += (double)weights.at[i];
    w->values[replica] = (float)pd_dot(values.at, weights.at, values.n);
    w->weights[replica] = (float)sum;
    return PD_OK;
}

/* Adds up the numbers of n replicas, of[0] ... of[n - 1], and divides the sum by `divisor`, as the daemon does with
 * gradients. */
static float sum_over(const float *of, int n, float divisor)
{
    pd_addend addends[PD_TRACE_MAX_REPLICAS];
    float sum;

    for (int r = 0; r < n; r++) addends[r] = (pd_addend){ { .at = &of[r], .dtype = PD_F32 }, 1 };
    (void)pd_accumulate(&sum, 1, false, addends, n, divisor);
    return sum;
}

/* Compares three results with the recorded ones: the mean weight of the replicas, the loss of each replica, and the
 * mean of these losses.
 *
 * The recorded loss of a replica is the weighted sum over its examples, divided by the mean weight of the replicas. So
 * the mean of all recorded losses is the weighted sum over all examples, divided by the sum of all weights. The daemon
 * computes the mean in this way. */
static int judge_replicas(pd_case *c, const weighing *w)
{
    float per_core = sum_over(w->weights, w->n, (float)w->n), all = sum_over(w->weights, w->n, 1);
    float mean = sum_over(w->values, w->n, all);
    int rc = PD_OK;

    for (int r = 0; rc == PD_OK && r < w->n; r++) {
        float own = w->values[r] / per_core;
        char field[40];
        snprintf(field, sizeof field, "n_weights_per_core/r%02d", r);
        if ((rc = pd_case_judge(c, field, &per_core, 1)) != PD_OK) break;
        snprintf(field, sizeof field, "weighted_mean/r%02d", r);
        rc = pd_case_judge(c, field, &own, 1);
        pd_case_release(c);
    }
    return rc == PD_OK ? pd_case_judge(c, "mean_of_replicas", &mean, 1) : rc;
}

int pd_judge_weighted_mean(pd_case *c)
{
    json_int_t n = json_integer_value(json_object_get(c->entry, "n_devices"));
    weighing w = { .n = (int)n };
    int rc = PD_OK;

    if (n < 1 || n > PD_TRACE_MAX_REPLICAS)
        return pd_fail(c->err, PD_INVALID_ARGUMENT, "config: expected n_devices, 1 to %d", PD_TRACE_MAX_REPLICAS);
    for (int r = 0; rc == PD_OK && r < w.n; r++) {
        rc = weigh(c, &w, r);
        pd_case_release(c);
    }
    return rc == PD_OK ? judge_replicas(c, &w) : rc;
}
