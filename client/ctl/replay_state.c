#include "replay_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_TEXT = 400, SLOT_TEXT = 64 };

/* One recorded tensor of state. */
typedef struct entry {
    const char *name;               /* in the file; of a quantized value that of its codes */
    int         length;             /* of the name, without /quantized */
    bool        quantized;
    int64_t     step;
    size_t      param;
    char        slot[SLOT_TEXT];
    int         number;             /* -1: none */
} entry;

struct pd_replay_state {
    const pd_trace *trace;
    entry          *entries;
    size_t          n;
    pd_verdict      verdict;
    const char     *worst;
};

/* ---- what was recorded ---- */

static bool ends_with(const char *text, int length, const char *suffix)
{
    int n = (int)strlen(suffix);

    return length > n && memcmp(text + length - n, suffix, (size_t)n) == 0;
}

/* The parameter that `text` begins with, a slash behind it: the longest, since a name may contain others. NULL: none. */
static const pd_trace_param *owner_of(const pd_trace *trace, const char *text, size_t *param)
{
    size_t n;
    const pd_trace_param *params = pd_trace_params(trace, &n), *best = NULL;

    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(params[i].name);
        if (strncmp(text, params[i].name, length) != 0 || text[length] != '/') continue;
        if (best != NULL && length < strlen(best->name)) continue;
        best = &params[i];
        *param = i;
    }
    return best;
}

/* "statistics/3" to name and number; false: too long for a slot. */
static bool split_field(entry *e, const char *field, int length)
{
    int digits = 0;

    while (digits < length && digits < 8 && field[length - digits - 1] >= '0' && field[length - digits - 1] <= '9') digits++;
    e->number = -1;
    if (digits > 0 && length > digits + 1 && field[length - digits - 1] == '/') {
        e->number = atoi(field + length - digits);
        length -= digits + 1;
    }
    if (length == 0 || length >= SLOT_TEXT) return false;
    memcpy(e->slot, field, (size_t)length);
    e->slot[length] = '\0';
    return true;
}

static int add_entry(pd_replay_state *state, const char *name, pd_error *err)
{
    entry *e = &state->entries[state->n];
    const pd_trace_param *owner = NULL;
    pd_shape shape;
    int step = 0, head = 0, length = (int)strlen(name);

    if (ends_with(name, length, "/bucket_size") || ends_with(name, length, "/diagonal")) return PD_OK;      /* read with the codes */
    if (sscanf(name, "state/%4d/%n", &step, &head) == 1 && head == (int)strlen("state/0000/")) owner = owner_of(state->trace, name + head, &e->param);
    if (owner == NULL || length >= NAME_TEXT) return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s belongs to no parameter", name);
    if (step < 1 || step > pd_trace_steps(state->trace)) {
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: the trace has %d steps", name, (int)pd_trace_steps(state->trace));
    }
    if (!pd_trace_tensor(state->trace, name, &shape)) return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: expected numbers", name);
    e->quantized = ends_with(name, length, "/quantized");
    e->length = length - (e->quantized ? (int)strlen("/quantized") : 0);
    e->name = name;
    e->step = step;
    head += (int)strlen(owner->name) + 1;
    if (!split_field(e, name + head, e->length - head)) return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s is no name of a slot", name);
    state->n++;
    return PD_OK;
}

int pd_replay_state_new(pd_replay_state **out, const pd_trace *trace, pd_error *err)
{
    pd_replay_state *state = calloc(1, sizeof *state);
    size_t most = 0;
    int rc = PD_OK;

    while (pd_trace_tensor_name(trace, most) != NULL) most++;
    if (state != NULL) state->entries = calloc(most + 1, sizeof *state->entries);
    if (state == NULL || state->entries == NULL) {
        free(state);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    state->trace = trace;
    for (size_t i = 0; rc == PD_OK && i < most; i++) {
        const char *name = pd_trace_tensor_name(trace, i);
        if (strncmp(name, "state/", strlen("state/")) == 0) rc = add_entry(state, name, err);
    }
    if (rc == PD_OK) *out = state;
    else pd_replay_state_free(state);
    return rc;
}

void pd_replay_state_free(pd_replay_state *state)
{
    if (state == NULL) return;
    free(state->entries);
    free(state);
}

const pd_verdict *pd_replay_state_verdict(const pd_replay_state *state) { return &state->verdict; }
const char       *pd_replay_state_worst(const pd_replay_state *state)   { return state->worst != NULL ? state->worst : ""; }

/* ---- values ---- */

/* A part of a quantized value, of n elements. Gives; NULL where there is none, which only PD_OK with `optional` means. */
static int take_part(const pd_replay_state *state, const entry *e, const char *part, int64_t n, bool optional, double **at, pd_error *err)
{
    char name[NAME_TEXT + 16];
    pd_shape shape;
    int64_t elements = -1;

    *at = NULL;
    snprintf(name, sizeof name, "%.*s/%s", e->length, e->name, part);
    if (!pd_trace_tensor(state->trace, name, &shape)) {
        return optional ? PD_OK : pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: missing, or its elements are no numbers", name);
    }
    (void)pd_shape_elements(&shape, &elements);
    if (elements != n) return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: expected %lld elements", name, (long long)n);
    if ((*at = calloc((size_t)n + 1, sizeof **at)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_trace_values(state->trace, name, *at);
    return PD_OK;
}

/* Codes to values: code * bucket of the column, and the diagonal. */
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
    if (rc == PD_OK && diagonal != NULL && cols != rows) rc = pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: a diagonal, and not square", e->name);
    for (int64_t i = 0; rc == PD_OK && i < n; i++) at[i] *= bucket[i % cols];
    for (int64_t i = 0; rc == PD_OK && diagonal != NULL && i < rows; i++) at[i * cols + i] += diagonal[i];
    free(bucket);
    free(diagonal);
    return rc;
}

/* A root's error is a difference of numbers near 1: that is its scale. */
static double scale_of(const entry *e)
{
    return strcmp(e->slot, "inverse_pth_root_errors") == 0 ? 1 : 0;
}

static void note(pd_replay_state *state, const entry *e, double error)
{
    int64_t compared = state->verdict.compared;
    double worst = state->verdict.error;

    pd_verdict_add(&state->verdict, e->param, e->step, error);
    if (compared == 0 || state->verdict.error > worst) state->worst = e->name;
}

static bool all_zero(const double *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (at[i] != 0) return false;
    }
    return true;
}

/* `recorded` and `ours` have room for n elements. */
static int compare(pd_replay_state *state, const entry *e, const pd_model *model, double *recorded, float *ours, int64_t n, pd_error *err)
{
    pd_error why = { 0 };
    int rc;

    pd_trace_values(state->trace, e->name, recorded);
    if (e->quantized && (rc = dequantize(state, e, recorded, n, err)) != PD_OK) return rc;
    rc = pd_model_read_slot(model, e->param, e->slot, e->number, ours, n, &why);
    if (rc == PD_NOT_FOUND && all_zero(recorded, n)) return PD_OK;
    if (rc != PD_OK) return pd_fail(err, rc, "%.256s: %.200s", e->name, why.text);
    note(state, e, pd_relative_error(ours, recorded, n, scale_of(e)));
    return PD_OK;
}

static int compare_entry(pd_replay_state *state, const entry *e, const pd_model *model, pd_error *err)
{
    pd_shape shape;
    int64_t n = 0;
    double *recorded;
    float *ours;
    int rc;

    (void)pd_trace_tensor(state->trace, e->name, &shape);
    if (pd_shape_elements(&shape, &n) != PD_OK) return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: too large", e->name);
    recorded = calloc((size_t)n + 1, sizeof *recorded);
    ours = calloc((size_t)n + 1, sizeof *ours);
    if (recorded != NULL && ours != NULL) rc = compare(state, e, model, recorded, ours, n, err);
    else rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    free(recorded);
    free(ours);
    return rc;
}

int pd_replay_state_compare(pd_replay_state *state, const pd_model *model, int64_t step, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < state->n; i++) {
        if (state->entries[i].step == step) rc = compare_entry(state, &state->entries[i], model, err);
    }
    return rc;
}
