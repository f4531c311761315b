/* replay_case.c - provides memory, recorded tensors and comparisons for one case of a routine. */
#include "replay_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "pages.h"

int pd_case_memory(pd_case *c, void **out, size_t bytes)
{
    *out = NULL;
    if (pd_grow((void **)&c->held, &c->room, c->n_held + 1, sizeof *c->held) != PD_OK)
        return pd_fail(c->err, PD_NO_MEMORY, "out of memory");
    if ((*out = pd_pages_new(bytes)) == NULL) return pd_fail(c->err, PD_NO_MEMORY, "no memory for %zu bytes", bytes);
    c->held[c->n_held++] = *out;
    return PD_OK;
}

int pd_case_floats(pd_case *c, float **out, int64_t n)
{
    void *memory = NULL;
    int rc = pd_case_memory(c, &memory, (size_t)n * sizeof(float));

    if (rc == PD_OK) memset(memory, 0, (size_t)n * sizeof(float));
    *out = memory;
    return rc;
}

void pd_case_release(pd_case *c)
{
    while (c->n_held > 0) free(c->held[--c->n_held]);
    free(c->held);
    c->held = NULL;
    c->room = 0;
}

/* Writes the name that tensor FIELD of the case has in the file, such as 012/FIELD. Returns `name`. */
static const char *name_of(const pd_case *c, const char *field, char name[64])
{
    int before = (int)strcspn(field, "*"), stars = (int)strspn(field + before, "*");

    if (stars > 0)
        snprintf(name, 64, "%.*s%0*d%s", before, field, stars, c->index, field + before + stars);
    else if (c->routine->numbered)
        snprintf(name, 64, "%s/%04d", field, c->index);
    else if (c->routine->list == NULL)
        snprintf(name, 64, "%s", field);
    else
        snprintf(name, 64, "%03d/%s", c->index, field);
    return name;
}

int pd_case_refuse(const pd_case *c, const char *field, const char *what)
{
    char name[64];

    return pd_fail(c->err, PD_INVALID_ARGUMENT, "%s: %s", name_of(c, field, name), what);
}

bool pd_case_has(const pd_case *c, const char *field)
{
    pd_shape shape;
    char name[64];

    return pd_trace_tensor(c->trace, name_of(c, field, name), &shape);
}

int pd_case_doubles(pd_case *c, const char *field, double **at, pd_shape *shape, int64_t *n)
{
    char name[64];
    void *memory;
    int rc;

    if (!pd_trace_tensor(c->trace, name_of(c, field, name), shape))
        return pd_case_refuse(c, field, "missing, or not numeric");
    if (pd_shape_elements(shape, n) != PD_OK) return pd_case_refuse(c, field, "too large");
    if ((rc = pd_case_memory(c, &memory, (size_t)*n * sizeof **at)) != PD_OK) return rc;
    pd_trace_values(c->trace, name, *at = memory);
    return PD_OK;
}

int pd_case_take(pd_case *c, const char *field, pd_case_tensor *out)
{
    double *values = NULL;
    int rc = pd_case_doubles(c, field, &values, &out->shape, &out->n);

    if (rc == PD_OK) rc = pd_case_floats(c, &out->at, out->n);
    for (int64_t i = 0; rc == PD_OK && i < out->n; i++) out->at[i] = (float)values[i];
    return rc;
}

int pd_case_mat(pd_case *c, const char *field, pd_mat *out)
{
    pd_case_tensor p;
    int rc = pd_case_take(c, field, &p);

    if (rc == PD_OK && p.shape.rank != 2) rc = pd_case_refuse(c, field, "expected a matrix");
    if (rc == PD_OK) *out = pd_mat_dense(p.at, p.shape.dim[0], p.shape.dim[1]);
    return rc;
}

int pd_case_vector(pd_case *c, const char *field, int64_t n, float **out)
{
    pd_case_tensor p;
    int rc = pd_case_take(c, field, &p);

    if (rc == PD_OK && p.n != n) rc = pd_case_refuse(c, field, "expected as many elements as the matrix has rows");
    if (rc == PD_OK) *out = p.at;
    return rc;
}

int pd_case_error(pd_case *c, const char *field, const float *ours, int64_t n, double scale, double *error)
{
    double *recorded = NULL;
    pd_shape shape;
    int64_t recorded_n;
    int rc = pd_case_doubles(c, field, &recorded, &shape, &recorded_n);

    if (rc == PD_OK && recorded_n != n) rc = pd_case_refuse(c, field, "unexpected size");
    if (rc == PD_OK) *error = pd_relative_error(ours, recorded, n, scale);
    return rc;
}

int pd_case_judge(pd_case *c, const char *field, const float *ours, int64_t n)
{
    double error = 0;
    int rc = pd_case_error(c, field, ours, n, 0, &error);

    if (rc == PD_OK) pd_verdict_add(c->verdict, c->number, 0, error);
    return rc;
}

int pd_case_judge_equal(pd_case *c, const char *field, const float *ours, int64_t n)
{
    double error = 0;
    int rc = pd_case_error(c, field, ours, n, 0, &error);

    if (rc == PD_OK) pd_case_expect(c, error == 0);
    return rc;
}

void pd_case_expect(pd_case *c, bool holds)
{
    pd_verdict_add(c->verdict, c->number, 0, holds ? 0 : (double)INFINITY);
}
