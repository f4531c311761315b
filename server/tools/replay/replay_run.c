/* replay_run.c - makes the declared parts, weights and gradients of a recorded run, and compares weights and the ends
 * of steps with the recorded ones. */
#include "replay_run.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"

static void add(pd_recovered *out, pd_shape shape, int64_t offset)
{
    assert(out->n < PD_MAX_RECOVERED);
    out->at[out->n].shape = shape;
    out->at[out->n].offset = offset;
    out->n++;
}

/* Returns the shape of a block that has `count` indices of dimension d and all indices of the later dimensions. */
static pd_shape box_of(const pd_shape *shape, int d, int64_t count)
{
    pd_shape box = { .rank = shape->rank - d, .dim = { count } };

    for (int k = d + 1; k < shape->rank; k++) box.dim[k - d] = shape->dim[k];
    return box;
}

/* Cuts elements [start, end) of the flat tensor into blocks, beginning with dimension d, and adds the blocks to `out`.
 * If d > 0, all elements of the range have the same index in dimension d - 1. */
static void recover(pd_recovered *out, const pd_shape *shape, int d, int64_t start, int64_t end)
{
    int64_t each = 1, low, high;

    if (start == end) return;
    if (d >= shape->rank - 1) {
        add(out, (pd_shape){ .rank = 1, .dim = { end - start } }, start);
        return;
    }
    for (int k = d + 1; k < shape->rank; k++) each *= shape->dim[k];
    low = start + (each - start % each) % each;
    high = end - end % each;
    if (low > high) {
        recover(out, shape, d + 1, start, end);
        return;
    }
    recover(out, shape, d + 1, start, low);
    if (low < high) add(out, box_of(shape, d, (high - low) / each), low);
    recover(out, shape, d + 1, high, end);
}

int pd_recover_blocks(pd_recovered *out, const pd_shape *shape, int64_t start, int64_t end, pd_error *err)
{
    int64_t elements;
    char text[192];

    *out = (pd_recovered){ 0 };
    if (pd_shape_elements(shape, &elements) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "expected a shape of at most 8 dimensions, none negative, whose elements fit 64 bits");
    if (start < 0 || start > end || end > elements)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "elements %lld to %lld are not a range of shape %s, which has %lld elements: expected 0 <= "
                       "start <= end <= %lld",
                       (long long)start, (long long)end, pd_shape_text(shape, text, sizeof text), (long long)elements,
                       (long long)elements);
    recover(out, shape, 0, start, end);
    return PD_OK;
}

/* State of the search for the declared parts of a trace. */
typedef struct search {
    const pd_recipe *recipe;
    const pd_trace_param *params;
    size_t n;
    /* JSON list with an object for each rank, from a parameter's name to the rank's range [start, end] of it. NULL:
     * no parameter is sharded. */
    json_t *shards;
    pd_replay_parts *parts;
    size_t room;
    pd_error *err;
} search;

/* Returns the name of a declared part: of a whole parameter, or of a block of it that begins at element `offset`. The
 * caller frees the name. NULL: out of memory. */
static char *declared_name(const pd_recipe *recipe, size_t group, const char *name, bool whole, int64_t offset)
{
    char of_group[32] = "", of_block[32] = "", *text = NULL;

    if (recipe->members != NULL) snprintf(of_group, sizeof of_group, "%zu/", group);
    if (!whole) snprintf(of_block, sizeof of_block, "@%lld", (long long)offset);
    return asprintf(&text, "%s%s%s", of_group, name, of_block) < 0 ? NULL : text;
}

static int add_part(search *s, size_t param, bool whole, int64_t offset, const pd_shape *shape)
{
    pd_replay_parts *parts = s->parts;
    size_t group = pd_recipe_group(s->recipe, s->params[param].name);

    if (pd_grow((void **)&parts->at, &s->room, parts->n + 1, sizeof *parts->at) != PD_OK)
        return pd_fail(s->err, PD_NO_MEMORY, "out of memory");
    parts->at[parts->n] =
        (pd_replay_part){ .recorded = s->params[param].name,
                          .name = declared_name(s->recipe, group, s->params[param].name, whole, offset),
                          .param = param,
                          .offset = offset,
                          .shape = *shape,
                          .group = group,
                          .axes = pd_recipe_axes(s->recipe, whole ? s->params[param].name : "", shape->rank) };
    parts->n++;
    return parts->at[parts->n - 1].name != NULL && parts->at[parts->n - 1].axes != NULL
               ? PD_OK
               : pd_fail(s->err, PD_NO_MEMORY, "out of memory");
}

static int read_range(const search *s, size_t param, const json_t *range, int64_t *start, int64_t *end)
{
    const json_t *from = json_array_get(range, 0), *to = json_array_get(range, 1);

    if (json_array_size(range) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return pd_fail(s->err, PD_INVALID_ARGUMENT, "metadata shards: expected [start, end] of %.200s",
                       s->params[param].name);
    *start = json_integer_value(from);
    *end = json_integer_value(to);
    return PD_OK;
}

/* Adds the blocks of one rank's range [start, end) of a parameter. The reference optimizer cuts the range into the same
 * blocks. */
static int add_shard(search *s, size_t param, int64_t start, int64_t end)
{
    pd_recovered blocks;
    int rc = pd_recover_blocks(&blocks, &s->params[param].shape, start, end, s->err);

    for (int i = 0; rc == PD_OK && i < blocks.n; i++)
        rc = add_part(s, param, false, blocks.at[i].offset, &blocks.at[i].shape);
    return rc;
}

/* Adds the blocks of all ranks' shards of a parameter. Checks that these ranges, in the order of the ranks, follow each
 * other and cover the parameter. A rank's range may be empty. Sets *found to whether any rank has a shard of the
 * parameter. */
static int add_shards(search *s, size_t param, bool *found)
{
    int64_t at = 0;
    json_t *rank;
    size_t i;

    *found = false;
    json_array_foreach(s->shards, i, rank)
    {
        const json_t *range = json_object_get(rank, s->params[param].name);
        int64_t start = 0, end = 0;
        int rc;
        if (range == NULL) continue;
        *found = true;
        if ((rc = read_range(s, param, range, &start, &end)) != PD_OK) return rc;
        if (start == end) continue;
        if (start != at || end < start || end > s->params[param].elements)
            return pd_fail(
                s->err, PD_INVALID_ARGUMENT,
                "metadata shards: %.200s: expected a range from %lld on within %lld elements, got %lld to %lld",
                s->params[param].name, (long long)at, (long long)s->params[param].elements, (long long)start,
                (long long)end);
        if ((rc = add_shard(s, param, start, end)) != PD_OK) return rc;
        at = end;
    }
    if (!*found || at == s->params[param].elements) return PD_OK;
    return pd_fail(s->err, PD_INVALID_ARGUMENT, "metadata shards: those of %.200s end at element %lld of %lld",
                   s->params[param].name, (long long)at, (long long)s->params[param].elements);
}

static int find_all(search *s)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < s->n; i++) {
        bool sharded = false;
        if (s->shards != NULL) rc = add_shards(s, i, &sharded);
        if (rc == PD_OK && !sharded) rc = add_part(s, i, true, 0, &s->params[i].shape);
    }
    return rc;
}

bool pd_replay_is_sharded(const pd_trace *trace)
{
    return pd_trace_meta(trace, "shards") != NULL;
}

int pd_replay_parts_find(pd_replay_parts *out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err)
{
    search s = { .recipe = recipe, .parts = out, .err = err };
    int rc;

    *out = (pd_replay_parts){ 0 };
    s.params = trace->params;
    s.n = trace->n;
    rc = pd_trace_json(trace, "shards", JSON_ARRAY, &s.shards, err);
    if (rc == PD_OK) rc = find_all(&s);
    json_decref(s.shards);
    return rc;
}

void pd_replay_parts_free(pd_replay_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++) {
        free(parts->at[i].name);
        free(parts->at[i].axes);
    }
    free(parts->at);
}

/* Allocates n floats set to 0, and one more, because a parameter may have no elements. */
static float *new_floats(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(float));
}

int pd_replay_tensors_new(pd_replay_tensors *out, const pd_trace *trace, pd_error *err)
{
    const pd_trace_param *params = trace->params;
    size_t n = trace->n;

    *out = (pd_replay_tensors){ .trace = trace, .params = params, .n = n };
    out->weights = calloc(n, sizeof *out->weights);
    out->gradient = calloc(n, sizeof *out->gradient);
    out->present = calloc(n, sizeof *out->present);
    out->recorded = calloc((size_t)trace->most_elements + 1, sizeof *out->recorded);
    if (!out->weights || !out->gradient || !out->present || !out->recorded)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        out->weights[i] = new_floats(params[i].elements);
        out->gradient[i] = new_floats(params[i].elements);
        if (out->weights[i] == NULL || out->gradient[i] == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
        pd_trace_initial(trace, i, out->weights[i]);
    }
    return pd_replay_net_wanted(trace) ? pd_replay_net_open(&out->net, trace, err) : PD_OK;
}

void pd_replay_tensors_free(pd_replay_tensors *t)
{
    for (size_t i = 0; i < t->n; i++) {
        if (t->weights != NULL) free(t->weights[i]);
        if (t->gradient != NULL) free(t->gradient[i]);
    }
    free(t->weights);
    free(t->gradient);
    free(t->present);
    free(t->recorded);
    pd_replay_net_close(t->net);
}

void pd_replay_tensors_fill(pd_replay_tensors *t, int64_t step, int replica)
{
    if (t->net != NULL) t->loss = pd_replay_net_differentiate(t->net, step, t->weights, t->gradient);
    for (size_t i = 0; i < t->n; i++) {
        int64_t own = t->params[i].step > 0 ? t->params[i].step : step;
        t->present[i] = t->net != NULL || pd_trace_gradient(t->trace, own, replica, i, t->gradient[i]);
        if (t->present[i] || !t->zeros) continue;
        memset(t->gradient[i], 0, (size_t)t->params[i].elements * sizeof *t->gradient[i]);
        t->present[i] = true;
    }
}

void pd_replay_tensors_judge(const pd_replay_tensors *t, int64_t step, pd_verdict *verdicts)
{
    if (t->net != NULL) pd_verdict_add(&verdicts[t->n], t->n, step, pd_replay_net_error(t->net, step, t->loss));
    for (size_t i = 0; t->net == NULL && i < t->n; i++) {
        if (!pd_trace_weights(t->trace, step, i, t->recorded)) continue;
        pd_verdict_add(&verdicts[i], i, step, pd_relative_error(t->weights[i], t->recorded, t->params[i].elements, 0));
    }
}

/* Returns true if the code is one with which an optimizer refuses a step; false for others, such as PD_NO_MEMORY. */
static bool refuses(int rc)
{
    return rc == PD_FAILED_PRECONDITION || rc == PD_INVALID_ARGUMENT || rc == PD_OUT_OF_RANGE;
}

int pd_replay_judge_step(const pd_trace *trace, int64_t step, int rc, const pd_error *ours, pd_error *err)
{
    const char *recorded = trace->error[step];

    if (recorded == NULL || (rc != PD_OK && !refuses(rc))) {
        if (rc != PD_OK && err != NULL) *err = *ours;
        return rc;
    }
    if (rc == PD_OK) return pd_fail(err, PD_FAILED_PRECONDITION, "step %d was recorded to fail and did not", (int)step);
    if (pd_says_alike(ours->text, recorded)) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "step %d was recorded to fail with \"%.128s\", and failed with \"%.192s\"", (int)step, recorded,
                   ours->text);
}

bool pd_replay_always_fails(const pd_trace *trace)
{
    for (int64_t step = 1; step <= trace->steps; step++)
        if (trace->error[step] == NULL) return false;
    return true;
}

static bool all_nan(const double *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isnan(at[i])) return false;
    return true;
}

/* Returns true if all recorded weights are NaN after every step. */
static bool leaves_nan_alone(const pd_trace *trace)
{
    double *at = calloc((size_t)trace->most_elements + 1, sizeof *at);
    bool so = at != NULL && trace->steps > 0 && !trace->averages;
    const pd_trace_param *params = trace->params;
    size_t n = trace->n;

    for (int64_t step = 1; so && step <= trace->steps; step++)
        for (size_t i = 0; so && i < n; i++)
            so = pd_trace_weights(trace, step, i, at) && all_nan(at, params[i].elements);
    free(at);
    return so;
}

bool pd_replay_is_refusal(const pd_trace *trace, int rc)
{
    return refuses(rc) && (pd_replay_always_fails(trace) || leaves_nan_alone(trace));
}

void pd_replay_refused(const pd_trace *trace, float *const *weights)
{
    const pd_trace_param *params = trace->params;
    size_t n = trace->n;

    if (!leaves_nan_alone(trace)) return;
    for (size_t i = 0; i < n; i++)
        for (int64_t k = 0; k < params[i].elements; k++) weights[i][k] = NAN;
}

bool pd_replay_rate(const pd_trace *trace, const pd_recipe *recipe, int64_t step, double *rate)
{
    return pd_trace_rate(trace, step, rate) || pd_recipe_rate(recipe, step, rate);
}
