/* replay_routine.c - recorded cases of single routines, computed by the arithmetic library in this process and judged one by one. */
#include "replay_routine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"

enum { MOST_CASES = 1000 };

/* ---- memory and tensors ---- */

static int make_room(pd_sitting *s)
{
    size_t room = 2 * s->room + 16;
    void **more;

    if (s->n_held < s->room) return PD_OK;
    if ((more = realloc(s->held, room * sizeof *more)) == NULL) return pd_fail(s->err, PD_NO_MEMORY, "out of memory");
    s->held = more;
    s->room = room;
    return PD_OK;
}

int pd_sitting_hold(pd_sitting *s, void **out, size_t bytes)
{
    int rc = make_room(s);

    *out = NULL;
    if (rc != PD_OK) return rc;
    if ((*out = pd_pages_new(bytes)) == NULL) return pd_fail(s->err, PD_NO_MEMORY, "no memory for %zu bytes", bytes);
    s->held[s->n_held++] = *out;
    return PD_OK;
}

int pd_sitting_floats(pd_sitting *s, float **out, int64_t n)
{
    void *memory = NULL;
    int rc = pd_sitting_hold(s, &memory, (size_t)n * sizeof(float));

    if (rc == PD_OK) memset(memory, 0, (size_t)n * sizeof(float));
    *out = memory;
    return rc;
}

void pd_sitting_let_go(pd_sitting *s)
{
    while (s->n_held > 0) free(s->held[--s->n_held]);
    free(s->held);
    s->held = NULL;
    s->room = 0;
}

/* A tensor's name. */
static const char *name_of(const pd_sitting *s, const char *field, char name[64])
{
    int before = (int)strcspn(field, "*"), stars = (int)strspn(field + before, "*");

    if (stars > 0) snprintf(name, 64, "%.*s%0*d%s", before, field, stars, s->index, field + before + stars);
    else if (s->routine->numbered) snprintf(name, 64, "%s/%04d", field, s->index);
    else if (s->routine->list == NULL) snprintf(name, 64, "%s", field);
    else snprintf(name, 64, "%03d/%s", s->index, field);
    return name;
}

int pd_sitting_refuse(const pd_sitting *s, const char *field, const char *what)
{
    char name[64];

    return pd_fail(s->err, PD_INVALID_ARGUMENT, "%s: %s", name_of(s, field, name), what);
}

bool pd_sitting_has(const pd_sitting *s, const char *field)
{
    pd_shape shape;
    char name[64];

    return pd_trace_tensor(s->trace, name_of(s, field, name), &shape);
}

int pd_sitting_doubles(pd_sitting *s, const char *field, double **at, pd_shape *shape, int64_t *n)
{
    char name[64];
    void *memory;
    int rc;

    if (!pd_trace_tensor(s->trace, name_of(s, field, name), shape)) return pd_sitting_refuse(s, field, "missing, or its elements are no numbers");
    if (pd_shape_elements(shape, n) != PD_OK) return pd_sitting_refuse(s, field, "too large");
    if ((rc = pd_sitting_hold(s, &memory, (size_t)*n * sizeof **at)) != PD_OK) return rc;
    pd_trace_values(s->trace, name, *at = memory);
    return PD_OK;
}

int pd_sitting_take(pd_sitting *s, const char *field, pd_piece *out)
{
    double *values = NULL;
    int rc = pd_sitting_doubles(s, field, &values, &out->shape, &out->n);

    if (rc == PD_OK) rc = pd_sitting_floats(s, &out->at, out->n);
    for (int64_t i = 0; rc == PD_OK && i < out->n; i++) out->at[i] = (float)values[i];
    return rc;
}

int pd_sitting_mat(pd_sitting *s, const char *field, pd_mat *out)
{
    pd_piece p;
    int rc = pd_sitting_take(s, field, &p);

    if (rc == PD_OK && p.shape.rank != 2) rc = pd_sitting_refuse(s, field, "expected a matrix");
    if (rc == PD_OK) *out = pd_mat_dense(p.at, p.shape.dim[0], p.shape.dim[1]);
    return rc;
}

int pd_sitting_vector(pd_sitting *s, const char *field, int64_t n, float **out)
{
    pd_piece p;
    int rc = pd_sitting_take(s, field, &p);

    if (rc == PD_OK && p.n != n) rc = pd_sitting_refuse(s, field, "not as long as the matrix has rows");
    if (rc == PD_OK) *out = p.at;
    return rc;
}

/* ---- judging ---- */

int pd_sitting_error(pd_sitting *s, const char *field, const float *ours, int64_t n, double scale, double *error)
{
    double *recorded = NULL;
    pd_shape shape;
    int64_t recorded_n;
    int rc = pd_sitting_doubles(s, field, &recorded, &shape, &recorded_n);

    if (rc == PD_OK && recorded_n != n) rc = pd_sitting_refuse(s, field, "not of the size that the input calls for");
    if (rc == PD_OK) *error = pd_relative_error(ours, recorded, n, scale);
    return rc;
}

int pd_sitting_judge(pd_sitting *s, const char *field, const float *ours, int64_t n)
{
    double error = 0;
    int rc = pd_sitting_error(s, field, ours, n, 0, &error);

    if (rc == PD_OK) pd_verdict_add(s->verdict, s->number, 0, error);
    return rc;
}

int pd_sitting_judge_equal(pd_sitting *s, const char *field, const float *ours, int64_t n)
{
    double error = 0;
    int rc = pd_sitting_error(s, field, ours, n, 0, &error);

    if (rc == PD_OK) pd_sitting_expect(s, error == 0);
    return rc;
}

void pd_sitting_expect(pd_sitting *s, bool holds)
{
    pd_verdict_add(s->verdict, s->number, 0, holds ? 0 : (double)INFINITY);
}

/* ---- the table ---- */

static const pd_routine routines[] = {
    { "google_shampoo", "matrix_inverse_pth_root", "cases", false, false, pd_judge_inverse_pth_root },
    { "google_shampoo", "power_iteration",         "cases", false, false, pd_judge_power_iteration },
    { "google_shampoo", "quantized_value",         "cases", false, false, pd_judge_quantized_value },
    { "google_shampoo", "symmetric_matrices",      "cases", false, false, pd_judge_symmetric_matrices },
    { "meta_shampoo",   "root_diagonal",           "items", true,  true,  pd_judge_meta_root },
    { "meta_shampoo",   "root_eigen",              "items", true,  true,  pd_judge_meta_root },
    { "meta_shampoo",   "root_eigen_hard",         "items", true,  true,  pd_judge_meta_root },
    { "meta_shampoo",   "root_eigen_multiplier",   "items", true,  true,  pd_judge_meta_root },
    { "meta_shampoo",   "root_higher_order",       "items", true,  true,  pd_judge_meta_root },
    { "meta_shampoo",   "root_newton",             "items", true,  true,  pd_judge_meta_root },
    { "meta_shampoo",   "root_retry_double",       NULL,    true,  false, pd_judge_meta_retry },
    { "trax_average",   "weighted_*",              NULL,    false, false, pd_judge_weighted_mean },
    { "distributed_kron", "norm_lower_bound",      "in/****", true, false, pd_judge_kron_norm },
    { "distributed_kron", "single_update",         "cases", true,  false, pd_judge_kron_update },
    { "distributed_kron", "update_probability",    "",      true,  false, pd_judge_kron_probability },
    { "distributed_kron", "jax_threefry",          "uniform/*", true, false, pd_judge_jax_threefry },
};

static bool is_named(const char *name, const pd_routine *r)
{
    size_t n = strcspn(r->name, "*");

    return strncmp(name, r->name, n) == 0 && (r->name[n] == '*' || name[n] == '\0');
}

static const pd_routine *find_routine(const pd_trace *trace)
{
    for (const pd_routine *r = routines; r < routines + sizeof routines / sizeof *routines; r++) {
        if (strcmp(r->system, pd_trace_system(trace)) == 0 && is_named(pd_trace_case(trace), r)) return r;
    }
    return NULL;
}

bool pd_replay_is_routine(const pd_trace *trace)
{
    return find_routine(trace) != NULL;
}

/* ---- cases ---- */

/* NULL: there is no list, but one case, or tensors. */
static const json_t *list_of(const pd_sitting *s)
{
    const char *list = s->routine->list;

    if (list == NULL || strchr(list, '*') != NULL) return NULL;
    return *list == '\0' ? s->config : json_object_get(s->config, list);
}

static size_t count_tensors(pd_sitting *s)
{
    size_t n = 0;

    for (s->index = 0; n <= MOST_CASES && pd_sitting_has(s, s->routine->list); s->index++) n++;
    return n;
}

static int count_cases(pd_sitting *s, size_t *n)
{
    const char *list = s->routine->list;

    if (list == NULL) *n = 1;
    else *n = strchr(list, '*') != NULL ? count_tensors(s) : json_array_size(list_of(s));
    if (*n >= 1 && *n <= MOST_CASES) return PD_OK;
    return pd_fail(s->err, PD_INVALID_ARGUMENT, "config: expected `%s`, a list of 1 to %d", list, MOST_CASES);
}

/* Where tensors are numbered by place the entry has no index. */
static int index_of(const pd_sitting *s, size_t i)
{
    const json_t *index = json_object_get(s->entry, "index");

    if (s->routine->numbered || s->routine->list == NULL) return (int)i;
    return json_is_integer(index) && json_integer_value(index) >= 0 && json_integer_value(index) < MOST_CASES ? (int)json_integer_value(index) : -1;
}

static int begin_case(pd_sitting *s, pd_replay_result *out, size_t i)
{
    char name[32];

    s->entry = list_of(s) == NULL ? s->config : json_array_get(list_of(s), i);
    s->index = index_of(s, i);
    if (s->index < 0) return pd_fail(s->err, PD_INVALID_ARGUMENT, "config.%s: entry %d has no index below %d", s->routine->list, (int)i, MOST_CASES);
    snprintf(name, sizeof name, "case %03d", s->index);
    if ((out->params[i] = strdup(name)) == NULL) return pd_fail(s->err, PD_NO_MEMORY, "out of memory");
    s->number = i;
    s->verdict = &out->verdicts[i];
    return PD_OK;
}

/* A config that is a list is the caller's own: *own. */
static int take_config(pd_sitting *s, pd_trace *trace, json_t **own)
{
    int rc;

    if (s->routine->list == NULL || *s->routine->list != '\0') return pd_trace_config(trace, &s->config, s->err);
    rc = pd_trace_json(trace, "config", JSON_ARRAY, own, s->err);
    s->config = *own;
    return rc;
}

static int judge_cases(pd_sitting *s, pd_replay_result *out)
{
    int rc = PD_OK;

    if (s->routine->own_tolerance) out->tolerance = 1;
    out->params = calloc(out->n, sizeof *out->params);
    out->verdicts = calloc(out->n, sizeof *out->verdicts);
    if (out->params == NULL || out->verdicts == NULL) return pd_fail(&out->why, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; rc == PD_OK && i < out->n; i++) {
        if ((rc = begin_case(s, out, i)) == PD_OK) rc = s->routine->judge(s);
        pd_sitting_let_go(s);
    }
    return rc;
}

int pd_replay_routine(pd_replay_result *out, pd_trace *trace)
{
    pd_sitting s = { .routine = find_routine(trace), .trace = trace, .err = &out->why };
    json_t *own = NULL;
    int rc = take_config(&s, trace, &own);

    if (rc == PD_OK) rc = count_cases(&s, &out->n);
    if (rc == PD_OK) rc = judge_cases(&s, out);
    else out->n = 0;
    json_decref(own);
    return rc;
}
