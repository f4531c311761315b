/* replay_state.c - compares the optimizer state of a model in a replay with the recorded state. */
#include "replay_state.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "optimizer.h"
#include "plan.h"
#include "root_bound.h"

enum { NAME_TEXT = 400, SLOT_TEXT = 64 };

#define COUNTER "update_counter"

/* One recorded tensor of optimizer state. */
typedef struct entry {
    const char *name; /* name of the tensor in the file; of a quantized tensor, name of its codes */
    int length;       /* length of the tensor's name without "/quantized" */
    bool quantized;
    int64_t step;
    size_t param;
    char slot[SLOT_TEXT];
    bool apart;        /* the optimizer keeps the tensor's distance from the weights */
    int number, block; /* number: as in "statistics/3"; block: as in "block_2."; -1: the name has none */
    /* true: the value is not a tensor of the file, but comes from the list in the metadata `update_counter`. */
    bool listed;
    double value; /* with `listed`: the number in `update_counter` */
    bool compared;
    double error, noise; /* error: relative error of paramd's tensor. noise: largest relative distance between paramd's
                          * tensor and those of the shaken models */
    /* For an inverse root: the largest relative error that rounding can cause. For other tensors: 0. */
    double bound;
    /* The largest relative rounding error (unit roundoff) of the type in which the optimizer stores the tensor, such as
     * 2^-8 for bfloat16; 0: float32 or finer. */
    double unit;
} entry;

struct pd_replay_state {
    const pd_trace *trace;
    const pd_recipe *recipe;
    entry *entries;
    size_t n;
    double tolerance; /* largest error that a tensor may have: from the metadata noise_state; without it, the weights'
                       * tolerance */
    double way_tolerance; /* largest error that moving averages may have, from the metadata noise_bc32_displacement;
                           * negative: not recorded */
    bool measured;        /* the trace has neither noise_state nor noise_bc32_displacement, so the noise of each slot is
                    * measured with shaken models */
    /* Number of steps from the copying of statistics to the use of the matrix roots that are computed from the
     * copies. */
    int64_t delay;
};

/* Returns true for a recorded tensor that changes when the optimizer begins to use a new matrix root. */
static bool is_of_roots(const entry *e)
{
    static const char *const slots[] = { "preconditioners", "inverse_pth_root_errors", "inv_factor_matrices" };

    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (strcmp(e->slot, slots[i]) == 0) return true;
    return false;
}

/* Returns true for a recorded inverse root, for whose error a bound is known (root_bound.h). No bound is known for
 * a quantized root, since its codes add rounding of their own. */
static bool is_bounded(const entry *e)
{
    return strcmp(e->slot, "inv_factor_matrices") == 0 || (strcmp(e->slot, "preconditioners") == 0 && !e->quantized);
}

/* Returns true for a recorded moving average of gradients or update directions. Its rounding errors add up like
 * those of the weights' distance from their initial values. */
static bool is_of_the_way(const entry *e)
{
    return strcmp(e->slot, "momentum") == 0 || strcmp(e->slot, "filtered_grad") == 0;
}

static bool ends_with(const char *text, int length, const char *suffix)
{
    int n = (int)strlen(suffix);

    return length > n && memcmp(text + length - n, suffix, (size_t)n) == 0;
}

/* Finds the parameter of a recorded tensor. `text` is the parameter's name, a slash and a slot's name. If several
 * parameter names fit, the longest one is taken. Names of slots do not begin with a digit, so with parameters w and
 * w/Q the text "w/Q/0" belongs to w. NULL: no parameter fits. */
static const pd_trace_param *owner_of(const pd_trace *trace, const char *text, size_t *param)
{
    const pd_trace_param *params = trace->params, *best = NULL;

    for (size_t i = 0; i < trace->n; i++) {
        size_t length = strlen(params[i].name);
        if (strncmp(text, params[i].name, length) != 0 || text[length] != '/' ||
            isdigit((unsigned char)text[length + 1]))
            continue;
        if (best != NULL && length < strlen(best->name)) continue;
        best = &params[i];
        *param = i;
    }
    return best;
}

/* Skips a prefix such as "block_3." of a slot's name and returns its number; -1: the name has no such prefix. */
static int take_block(const char **field, int *length)
{
    int block = -1, n = 0;

    if (sscanf(*field, "block_%6d.%n", &block, &n) != 1 || n == 0 || n > *length || block < 0) return -1;
    *field += n;
    *length -= n;
    return block;
}

/* Splits the name of recorded state, such as "statistics/3" or "block_2.factor_matrices.1", into slot name, number
 * and block. Returns false if the name is too long for a slot. */
static bool split_field(entry *e, const char *field, int length)
{
    int digits = 0;

    e->block = take_block(&field, &length);
    while (digits < length && digits < 8 && field[length - digits - 1] >= '0' && field[length - digits - 1] <= '9')
        digits++;
    e->number = -1;
    if (digits > 0 && length > digits + 1 && strchr("/.", field[length - digits - 1]) != NULL) {
        e->number = atoi(field + length - digits);
        length -= digits + 1;
    }
    if (length == 0 || length >= SLOT_TEXT) return false;
    memcpy(e->slot, field, (size_t)length);
    e->slot[length] = '\0';
    if ((e->apart = strcmp(e->slot, "z") == 0)) snprintf(e->slot, sizeof e->slot, "z_minus_y");
    return true;
}

/* Renames slots of Meta's Shampoo of 2026, which keeps the second moment of every graft under the name of its base
 * class. */
static void rename_slot(entry *e, const pd_hypers *hypers)
{
    bool shampoo = strcmp(pd_optimizer_name(hypers->row), "shampoo") == 0;

    if (shampoo && strcmp(e->slot, "adagrad") == 0) snprintf(e->slot, sizeof e->slot, "grafting_second_moment");
    if (shampoo && strcmp(e->slot, "momentum_buffer") == 0) snprintf(e->slot, sizeof e->slot, "momentum");
    if (!shampoo || strcmp(e->slot, "weight_buffer") != 0) return;
    e->apart = true;
    snprintf(e->slot, sizeof e->slot, "z_minus_y");
}

/* Returns true for a recorded root of the parameter `param`, if it has no gradient in the step of the root. Such roots
 * are not compared: one release of Meta's Shampoo computes them anew, the others do not. */
static bool is_idle_root(const pd_replay_state *state, const entry *e, const char *param)
{
    char gradient[NAME_TEXT];
    pd_shape shape;

    snprintf(gradient, sizeof gradient, "grad/%04d/%s", (int)e->step, param);
    return strcmp(e->slot, "inv_factor_matrices") == 0 && !pd_trace_tensor(state->trace, gradient, &shape);
}

/* Returns the value of a hyperparameter as text; "" if the optimizer has no hyperparameter of that name. */
static const char *text_of(const pd_hypers *hypers, const char *name, char *text, size_t size)
{
    int i = pd_hypers_find(hypers->row, name);

    return i >= 0 ? pd_hypers_text(hypers, i, text, size) : "";
}

/* Returns the largest relative rounding error (unit roundoff) of the type in which a slot is stored; 0: float32 or
 * finer. A root counts as a 16-bit value even if only the statistics from which it is computed are stored in 16
 * bits. */
static double unit_of(const pd_hypers *hypers, const char *slot)
{
    static const struct {
        const char *slot, *hyper;
    } stored[] = {
        { "factor_matrices", "precision_config.factor_matrix_dtype" },
        { "inv_factor_matrices", "precision_config.factor_matrix_dtype" },
        { "inv_factor_matrices", "precision_config.inv_factor_matrix_dtype" },
        { "mu", "mu_dtype" },
        { "Q", "precond_dtype" },
        { "m", "dtype_momentum" },
        { "filtered_grad", "precision_config.filtered_grad_dtype" },
        { "momentum", "precision_config.momentum_dtype" },
        { "grafting_second_moment", "precision_config.grafting_state_dtype" },
    };
    char text[64];

    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++) {
        const char *dtype = "";
        if (strcmp(slot, stored[i].slot) == 0) dtype = text_of(hypers, stored[i].hyper, text, sizeof text);
        if (strcmp(dtype, "bfloat16") == 0) return 0x1p-8;
        if (strcmp(dtype, "float16") == 0) return 0x1p-11;
    }
    return 0;
}

static int add_entry(pd_replay_state *state, const char *name, pd_error *err)
{
    entry *e = &state->entries[state->n];
    const pd_trace_param *owner = NULL;
    pd_shape shape;
    int step = 0, head = 0, length = (int)strlen(name);

    /* Bucket sizes and diagonals of quantized tensors are no entries: they are read together with the codes. */
    if (ends_with(name, length, "/bucket_size") || ends_with(name, length, "/diagonal")) return PD_OK;
    if (sscanf(name, "state/%4d/%n", &step, &head) == 1 && head == (int)strlen("state/0000/"))
        owner = owner_of(state->trace, name + head, &e->param);
    if (owner == NULL || length >= NAME_TEXT)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s belongs to no parameter", name);
    if (step < 1 || step > state->trace->steps)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: the trace has %d steps", name, (int)state->trace->steps);
    if (!pd_trace_tensor(state->trace, name, &shape))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: expected numbers", name);
    e->quantized = ends_with(name, length, "/quantized");
    e->length = length - (e->quantized ? (int)strlen("/quantized") : 0);
    e->name = name;
    e->step = step;
    head += (int)strlen(owner->name) + 1;
    if (!split_field(e, name + head, e->length - head))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: invalid slot name", name);
    if (is_idle_root(state, e, owner->name)) return PD_OK;
    rename_slot(e, &state->recipe->groups[pd_recipe_group(state->recipe, owner->name)]);
    e->unit = unit_of(&state->recipe->groups[pd_recipe_group(state->recipe, owner->name)], e->slot);
    state->n++;
    return PD_OK;
}

/* Adds the metadata list `update_counter` to the recorded state. The list has a number for each step; each becomes one
 * entry for every parameter. */
static void add_counters(pd_replay_state *state, const json_t *list, size_t params)
{
    json_t *value;
    size_t step;

    json_array_foreach(list, step, value)
    {
        for (size_t i = 0; i < params; i++) {
            state->entries[state->n++] = (entry){ .name = COUNTER,
                                                  .length = (int)strlen(COUNTER),
                                                  .step = (int64_t)step + 1,
                                                  .param = i,
                                                  .slot = COUNTER,
                                                  .number = -1,
                                                  .block = -1,
                                                  .listed = true,
                                                  .value = json_number_value(value) };
        }
    }
}

/* Sorts recorded tensors by slot, because the noise of rounding is measured for each slot. */
static int by_slot(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->slot, ((const entry *)b)->slot);
}

/* Returns the value of a hyperparameter; 0 if the optimizer has no hyperparameter of that name. */
static double value_of(const pd_hypers *hypers, const char *name)
{
    int i = pd_hypers_find(hypers->row, name);

    return i >= 0 ? hypers->value[i] : 0;
}

int pd_replay_state_new(pd_replay_state **out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err)
{
    const pd_hypers *hypers = &recipe->groups[0];
    pd_replay_state *state = NULL;
    json_t *counters = NULL;
    size_t most = 0;
    int rc = pd_trace_json(trace, COUNTER, JSON_ARRAY, &counters, err);

    if (rc != PD_OK) return rc;
    while (pd_trace_tensor_name(trace, most) != NULL) most++;
    if ((state = calloc(1, sizeof *state)) != NULL)
        state->entries = calloc(most + 1 + json_array_size(counters) * trace->n, sizeof *state->entries);
    if (state == NULL || state->entries == NULL) {
        free(state);
        json_decref(counters);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    state->trace = trace;
    state->recipe = recipe;
    state->tolerance = trace->state_tolerance;
    state->way_tolerance = trace->way_tolerance;
    state->measured = state->tolerance < 0 && state->way_tolerance < 0;
    if (state->tolerance < 0) state->tolerance = trace->tolerance;
    state->delay = (int64_t)fmax(value_of(hypers, "root_delay"), value_of(hypers, "shard_optimizer_states"));
    for (size_t i = 0; rc == PD_OK && i < most; i++) {
        const char *name = pd_trace_tensor_name(trace, i);
        if (strncmp(name, "state/", strlen("state/")) == 0) rc = add_entry(state, name, err);
    }
    if (rc == PD_OK) add_counters(state, counters, trace->n);
    json_decref(counters);
    qsort(state->entries, state->n, sizeof *state->entries, by_slot);
    if (rc == PD_OK)
        *out = state;
    else
        pd_replay_state_free(state);
    return rc;
}

void pd_replay_state_free(pd_replay_state *state)
{
    if (state == NULL) return;
    free(state->entries);
    free(state);
}

bool pd_replay_state_wants_noise(const pd_replay_state *state)
{
    return state->n > 0 && state->measured;
}

/* What decides the tolerance of a slot: the largest noise, and the largest unit roundoff of a stored type (entry.unit),
 * over all parameters and steps. */
typedef struct spread {
    double noise, unit;
} spread;

static spread spread_of(const entry *from, const entry *to)
{
    spread slot = { 0 };

    for (const entry *e = from; e < to; e++) {
        slot.noise = fmax(slot.noise, e->noise);
        slot.unit = fmax(slot.unit, e->unit);
    }
    return slot;
}

/* Returns the largest error that a recorded tensor may have. An infinite error of a matrix root fails always: its bound
 * is ignored, because rounding cannot explain such an error. */
static double tolerance_of(const pd_replay_state *state, const entry *e, const spread *slot)
{
    double tolerance = fmax(state->tolerance, slot->unit);

    if (is_bounded(e)) return isfinite(e->error) ? fmax(tolerance, e->bound) : tolerance;
    if (is_of_the_way(e)) tolerance = fmax(tolerance, state->way_tolerance);
    return state->measured ? fmax(tolerance, 10 * slot->noise + 1e-6) : tolerance;
}

/* Counts a comparison, and stores the tensor as the worst one if its error, relative to its tolerance, is the largest
 * so far. */
static void note(pd_state_verdict *v, const entry *e, double tolerance)
{
    if (v->compared++ > 0 && e->error / tolerance <= v->error / v->tolerance) return;
    v->error = e->error;
    v->tolerance = tolerance;
    snprintf(v->worst, sizeof v->worst, "%s", e->name);
}

pd_state_verdict pd_replay_state_verdict(const pd_replay_state *state)
{
    const entry *end = state->entries + state->n, *next;
    pd_state_verdict verdict = { 0 };

    for (const entry *e = state->entries; e < end; e = next) {
        spread slot;
        for (next = e; next < end && strcmp(next->slot, e->slot) == 0; next++) {}
        slot = spread_of(e, next);
        for (; e < next; e++)
            if (e->compared) note(&verdict, e, tolerance_of(state, e, &slot));
    }
    return verdict;
}

/* Reads the tensor `part` of a quantized one, such as its bucket sizes. It must have n elements. The caller frees *at.
 * If there is no such tensor, *at is NULL, and the result is PD_INVALID_ARGUMENT unless `optional` is set. */
static int take_part(const pd_replay_state *state, const entry *e, const char *part, int64_t n, bool optional,
                     double **at, pd_error *err)
{
    char name[NAME_TEXT + 16];
    pd_shape shape;
    int64_t elements = -1;

    *at = NULL;
    snprintf(name, sizeof name, "%.*s/%s", e->length, e->name, part);
    if (!pd_trace_tensor(state->trace, name, &shape))
        return optional ? PD_OK : pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: missing, or not numeric", name);
    (void)pd_shape_elements(&shape, &elements);
    if (elements != n) return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: expected %lld elements", name, (long long)n);
    if ((*at = calloc((size_t)n + 1, sizeof **at)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_trace_values(state->trace, name, *at);
    return PD_OK;
}

/* Turns the codes of a quantized tensor into numbers: multiplies each code by the bucket size of its column, and
 * adds the diagonal. */
static int dequantize(const pd_replay_state *state, const entry *e, double *at, int64_t n, pd_error *err)
{
    double *bucket = NULL, *diagonal = NULL;
    int64_t rows, cols;
    pd_shape shape;
    int rc;

    (void)pd_trace_tensor(state->trace, e->name, &shape);
    rows = shape.rank > 0 ? shape.dim[0] : 0;
    cols = rows > 0 ? n / rows : 0;
    if (rows == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: expected codes of a vector or matrix", e->name);
    rc = take_part(state, e, "bucket_size", cols, false, &bucket, err);
    if (rc == PD_OK) rc = take_part(state, e, "diagonal", rows, true, &diagonal, err);
    if (rc == PD_OK && diagonal != NULL && cols != rows)
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: has a diagonal, but is not square", e->name);
    for (int64_t i = 0; rc == PD_OK && i < n; i++) at[i] *= bucket[i % cols];
    for (int64_t i = 0; rc == PD_OK && diagonal != NULL && i < rows; i++) at[i * cols + i] += diagonal[i];
    free(bucket);
    free(diagonal);
    return rc;
}

/* Returns the relative error of `ours` (paramd's numbers) against `other`. Elements that are NaN or infinite in
 * both arrays count as equal: both are set to 0. */
static double distance(double *ours, double *other, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(ours[i]) && !isfinite(other[i])) ours[i] = 0, other[i] = 0;
    return pd_relative_error_f64(ours, other, n);
}

/* Returns true for a basis that upstream's program has made NaN. A task that fails leaves the last good basis in use
 * here, so the two are not compared. */
static bool is_lost_basis(const pd_replay_state *state, const entry *e, const double *recorded, int64_t n)
{
    if (strcmp(e->slot, "Q") != 0 || pd_trace_meta(state->trace, "first_gradient") == NULL) return false;
    for (int64_t i = 0; i < n; i++)
        if (!isnan(recorded[i])) return false;
    return true;
}

/* Turns the columns of our basis so that they point to the same side as the recorded ones: the sign of an eigenvector
 * is arbitrary. */
static void turn_vectors(const entry *e, double *ours, const double *recorded, int64_t n)
{
    int64_t side = (int64_t)lrint(sqrt((double)n));

    if (strcmp(e->slot, "factor_matrices_eigenvectors") != 0 || side * side != n) return;
    for (int64_t j = 0; j < side; j++) {
        double product = 0;
        for (int64_t i = j; i < n; i += side) product += ours[i] * recorded[i];
        for (int64_t i = j; product < 0 && i < n; i += side) ours[i] = -ours[i];
    }
}

/* Returns true for eigenvectors of a step in which factors had no full rank (metadata `inject_steps`), so that some of
 * the vectors are arbitrary. */
static bool is_arbitrary(const pd_replay_state *state, const entry *e)
{
    json_t *steps = NULL, *step;
    bool found = false;
    pd_error err;
    size_t i;

    if (strcmp(e->slot, "factor_matrices_eigenvectors") != 0 ||
        pd_trace_json(state->trace, "inject_steps", JSON_ARRAY, &steps, &err) != PD_OK)
        return false;
    json_array_foreach(steps, i, step) found = found || json_integer_value(step) == e->step;
    json_decref(steps);
    return found;
}

static bool all_zero(const double *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (at[i] != 0) return false;
    return true;
}

/* Measures the noise of a tensor: the largest relative distance between `ours` and the shaken models' tensors.
 * Overwrites `room`, which has n elements, and elements of `ours` that are not finite. */
static int find_noise(entry *e, const pd_model *const *shaken, double *room, double *ours, int64_t n, pd_error *err)
{
    int rc = PD_OK;

    for (int i = 0; rc == PD_OK && i < PD_REPLAY_SHAKEN; i++) {
        double noise;
        if ((rc = pd_model_read_part(shaken[i], e->param, e->slot, e->number, e->block, room, n, err)) != PD_OK) break;
        noise = distance(ours, room, n);
        if (isfinite(noise)) e->noise = fmax(e->noise, noise);
    }
    return rc;
}

/* A root is taken of a matrix B, which has a rounding error E (root_bound.h). most_units: largest |E| / |B|, in
 * multiples of float32's unit roundoff. A few multiples come from the decomposition and a few from the sums in B, both
 * in the reference optimizer and in paramd. */
static const double most_units = 10, unit_of_float32 = 0x1p-24;
/* If the bound of a matrix root's error is above 1, no digit of the root is certain, so nothing is compared. */
static const double most_bound = 1;

/* Returns p if the recorded tensor is a root B^(-1/p). The optimizer's plan knows p from the task that computes the
 * root. 0: no task computes the tensor. */
static double order_of(const pd_plan *plan, const entry *e)
{
    pd_part part;

    if (!pd_plan_part(plan, e->slot, e->number, e->block, &part)) return 0;
    for (size_t i = 0; i < plan->n_tasks; i++)
        if (plan->tasks[i].n_outputs > 0 && (size_t)plan->tasks[i].output[0] == part.slot)
            return plan->tasks[i].exponent;
    return 0;
}

/* Sets *exponent to e if the recorded tensor is a root B^-e; 0: no task of the optimizer's plan computes the tensor. */
static int find_exponent(const pd_replay_state *state, const entry *e, double *exponent, pd_error *err)
{
    const pd_trace_param *param = &state->trace->params[e->param];
    pd_declaration declaration = { .name = param->name,
                                   .shape = param->shape,
                                   .hypers = state->recipe->groups[pd_recipe_group(state->recipe, param->name)] };
    pd_plan plan;
    double p;
    int rc = pd_plan_make(&plan, &declaration, NULL, err);

    if (rc != PD_OK) return rc;
    p = order_of(&plan, e);
    pd_plan_free(&plan);
    *exponent = p > 0 ? 1 / p : 0;
    if (pd_hypers_find(declaration.hypers.row, "exponent_multiplier") >= 0)
        *exponent *= value_of(&declaration.hypers, "exponent_multiplier");
    return PD_OK;
}

/* Sets e->bound to the largest error that rounding can cause in a recorded matrix root; does nothing if the tensor is
 * not square. `room` is scratch memory for n elements. */
static int find_bound(const pd_replay_state *state, entry *e, double *room, int64_t n, pd_error *err)
{
    int64_t side = (int64_t)lrint(sqrt((double)n));
    double exponent;
    int rc;

    if (side == 0 || side * side != n) return PD_OK;
    if ((rc = find_exponent(state, e, &exponent, err)) != PD_OK) return rc;
    pd_trace_values(state->trace, e->name, room);
    e->bound = most_units * unit_of_float32 * pd_root_magnification(room, side, exponent);
    if (e->bound > most_bound) e->bound = (double)INFINITY;
    return PD_OK;
}

/* Returns true for a recorded tensor that is the number of counted steps. The model has no slot for it. */
static bool is_count(const entry *e, int64_t n)
{
    return n == 1 && e->block < 0 && e->number < 0 && strcmp(e->slot, "step") == 0;
}

/* Adds the recorded weights of the same step to a tensor that the optimizer keeps as the distance from the weights. */
static void add_weights(const pd_replay_state *state, const entry *e, double *ours, int64_t n)
{
    double *weights = calloc((size_t)n + 1, sizeof *weights);

    if (weights != NULL && pd_trace_weights(state->trace, e->step, e->param, weights))
        for (int64_t i = 0; i < n; i++) ours[i] += weights[i];
    free(weights);
}

/* Compares one recorded tensor with the model's, and stores its error. `recorded` and `ours` are scratch memory for n
 * elements. */
static int compare(const pd_replay_state *state, entry *e, const pd_model *model, const pd_model *const *shaken,
                   double *recorded, double *ours, int64_t n, pd_error *err)
{
    pd_error why = { 0 };
    int rc;

    if (e->listed)
        recorded[0] = e->value;
    else
        pd_trace_values(state->trace, e->name, recorded);
    if (e->quantized && (rc = dequantize(state, e, recorded, n, err)) != PD_OK) return rc;
    rc = pd_model_read_part(model, e->param, e->slot, e->number, e->block, ours, n, &why);
    if (rc == PD_NOT_FOUND && is_count(e, n)) {
        ours[0] = (double)pd_model_count(model, e->param);
        e->error = distance(ours, recorded, n);
        e->compared = true;
        return PD_OK;
    }
    if (e->apart && n != state->trace->params[e->param].elements) return PD_OK; /* of one block of several */
    if (rc == PD_OK && e->apart) add_weights(state, e, ours, n);
    if (rc == PD_NOT_FOUND && all_zero(recorded, n)) return PD_OK;
    if (rc == PD_OK && (is_lost_basis(state, e, recorded, n) || is_arbitrary(state, e))) return PD_OK;
    if (rc != PD_OK) return pd_fail(err, rc, "%.256s: %.200s", e->name, why.text);
    turn_vectors(e, ours, recorded, n);
    e->error = distance(ours, recorded, n);
    /* An error of NaN means that the recorded values are too large to square. It counts as infinite, so the tensor
     * fails. */
    if (isnan(e->error)) e->error = (double)INFINITY;
    e->compared = true;
    if (is_bounded(e)) return find_bound(state, e, recorded, n, err);
    return shaken[0] != NULL ? find_noise(e, shaken, recorded, ours, n, err) : PD_OK;
}

static int compare_entry(const pd_replay_state *state, entry *e, const pd_model *model, const pd_model *const *shaken,
                         pd_error *err)
{
    pd_shape shape;
    int64_t n = 0;
    double *recorded, *ours;
    int rc;

    if (e->listed)
        shape = (pd_shape){ 0 };
    else
        (void)pd_trace_tensor(state->trace, e->name, &shape);
    if (pd_shape_elements(&shape, &n) != PD_OK) return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: too large", e->name);
    recorded = calloc((size_t)n + 1, sizeof *recorded);
    ours = calloc((size_t)n + 1, sizeof *ours);
    if (recorded != NULL && ours != NULL)
        rc = compare(state, e, model, shaken, recorded, ours, n, err);
    else
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    free(recorded);
    free(ours);
    return rc;
}

int pd_replay_state_compare(pd_replay_state *state, const pd_model *model, const pd_model *const *shaken, int64_t step,
                            pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < state->n; i++) {
        entry *e = &state->entries[i];
        if (e->step + (is_of_roots(e) ? state->delay : 0) == step) rc = compare_entry(state, e, model, shaken, err);
    }
    return rc;
}

/* Returns bit number i of a pseudo-random sequence. Each `way` has another sequence. */
static bool drawn(uint64_t way, int64_t i)
{
    uint64_t x = (way + (uint64_t)i * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;

    return (((x ^ (x >> 31)) * 0x94d049bb133111ebu) >> 63) != 0;
}

void pd_replay_shake(float *at, int64_t n, uint64_t way)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = pd_f32_bits(at[i]);
        if (isfinite(at[i]) && at[i] != 0 && (way == 0 || drawn(way, i))) at[i] = pd_f32_from_bits(bits ^ 1);
    }
}
