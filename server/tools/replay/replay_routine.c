/* replay_routine.c - computes the recorded cases of a routine with the arithmetic library in this process, and compares
 * the results of each case with the recorded ones. */
#include "replay_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CASES = 1000 };

static const pd_routine routines[] = {
    { "google_shampoo", "matrix_inverse_pth_root", "cases", false, false, pd_judge_inverse_pth_root },
    { "google_shampoo", "power_iteration", "cases", false, false, pd_judge_power_iteration },
    { "google_shampoo", "quantized_value", "cases", false, false, pd_judge_quantized_value },
    { "google_shampoo", "symmetric_matrices", "cases", false, false, pd_judge_symmetric_matrices },
    { "meta_shampoo", "root_diagonal", "items", true, true, pd_judge_meta_root },
    { "meta_shampoo", "root_eigen", "items", true, true, pd_judge_meta_root },
    { "meta_shampoo", "root_eigen_hard", "items", true, true, pd_judge_meta_root },
    { "meta_shampoo", "root_eigen_multiplier", "items", true, true, pd_judge_meta_root },
    { "meta_shampoo", "root_higher_order", "items", true, true, pd_judge_meta_root },
    { "meta_shampoo", "root_newton", "items", true, true, pd_judge_meta_root },
    { "meta_shampoo", "root_retry_double", NULL, true, false, pd_judge_meta_retry },
    { "trax_average", "weighted_*", NULL, false, false, pd_judge_weighted_mean },
    { "distributed_kron", "norm_lower_bound", "in/****", true, false, pd_judge_kron_norm },
    { "distributed_kron", "single_update", "cases", true, false, pd_judge_kron_update },
    { "distributed_kron", "update_probability", "", true, false, pd_judge_kron_probability },
    { "distributed_kron", "jax_threefry", "uniform/*", true, false, pd_judge_jax_threefry },
};

static bool is_named(const char *name, const pd_routine *r)
{
    size_t n = strcspn(r->name, "*");

    return strncmp(name, r->name, n) == 0 && (r->name[n] == '*' || name[n] == '\0');
}

static const pd_routine *find_routine(const pd_trace *trace)
{
    for (const pd_routine *r = routines; r < routines + sizeof routines / sizeof *routines; r++)
        if (strcmp(r->system, trace->system) == 0 && is_named(trace->name, r)) return r;
    return NULL;
}

bool pd_replay_is_routine(const pd_trace *trace)
{
    return find_routine(trace) != NULL;
}

/* Returns the list of cases in the metadata `config` of the file. NULL: there is no list, because the config is the
 * only case, or each tensor with a certain name is a case. */
static const json_t *list_of(const pd_case *c)
{
    const char *list = c->routine->list;

    if (list == NULL || strchr(list, '*') != NULL) return NULL;
    return *list == '\0' ? c->config : json_object_get(c->config, list);
}

static size_t count_tensors(pd_case *c)
{
    size_t n = 0;

    for (c->index = 0; n <= MOST_CASES && pd_case_has(c, c->routine->list); c->index++) n++;
    return n;
}

static int count_cases(pd_case *c, size_t *n)
{
    const char *list = c->routine->list;

    if (list == NULL)
        *n = 1;
    else
        *n = strchr(list, '*') != NULL ? count_tensors(c) : json_array_size(list_of(c));
    if (*n >= 1 && *n <= MOST_CASES) return PD_OK;
    return pd_fail(c->err, PD_INVALID_ARGUMENT, "config: expected `%s`, a list of 1 to %d", list, MOST_CASES);
}

/* Returns the index of case number i, which is part of the names of its tensors. The index is i, or the key `index`
 * of the case's entry in the config, depending on the routine. -1: the entry has no valid index. */
static int index_of(const pd_case *c, size_t i)
{
    const json_t *index = json_object_get(c->entry, "index");

    if (c->routine->numbered || c->routine->list == NULL) return (int)i;
    return json_is_integer(index) && json_integer_value(index) >= 0 && json_integer_value(index) < MOST_CASES
               ? (int)json_integer_value(index)
               : -1;
}

static int begin_case(pd_case *c, pd_replay_result *out, size_t i)
{
    char name[32];

    c->entry = list_of(c) == NULL ? c->config : json_array_get(list_of(c), i);
    c->index = index_of(c, i);
    if (c->index < 0)
        return pd_fail(c->err, PD_INVALID_ARGUMENT, "config.%s: entry %d has no index below %d", c->routine->list,
                       (int)i, MOST_CASES);
    snprintf(name, sizeof name, "case %03d", c->index);
    if ((out->params[i] = strdup(name)) == NULL) return pd_fail(c->err, PD_NO_MEMORY, "out of memory");
    c->number = i;
    c->verdict = &out->verdicts[i];
    return PD_OK;
}

/* Reads the file's metadata `config`. If it is a list, *own is set to it, and the caller frees it. */
static int take_config(pd_case *c, pd_trace *trace, json_t **own)
{
    int rc;

    if (c->routine->list == NULL || *c->routine->list != '\0') return pd_trace_config(trace, &c->config, c->err);
    rc = pd_trace_json(trace, "config", JSON_ARRAY, own, c->err);
    c->config = *own;
    return rc;
}

static int judge_cases(pd_case *c, pd_replay_result *out)
{
    int rc = PD_OK;

    if (c->routine->own_tolerance) out->tolerance = 1;
    out->params = calloc(out->n, sizeof *out->params);
    out->verdicts = calloc(out->n, sizeof *out->verdicts);
    if (out->params == NULL || out->verdicts == NULL) return pd_fail(&out->why, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; rc == PD_OK && i < out->n; i++) {
        if ((rc = begin_case(c, out, i)) == PD_OK) rc = c->routine->judge(c);
        pd_case_release(c);
    }
    return rc;
}

int pd_replay_routine(pd_replay_result *out, pd_trace *trace)
{
    pd_case c = { .routine = find_routine(trace), .trace = trace, .err = &out->why };
    json_t *own = NULL;
    int rc = take_config(&c, trace, &own);

    if (rc == PD_OK) rc = count_cases(&c, &out->n);
    if (rc == PD_OK)
        rc = judge_cases(&c, out);
    else
        out->n = 0;
    json_decref(own);
    return rc;
}
