/* replay_meta.c - computes recorded inverse roots of Meta's Shampoo, and compares them with the recorded results.
 *
 * A recorded case has a matrix A, its root X computed in float32, its root X64 computed in float64, and the relative
 * distance of the two roots, called the noise. The rules of comparison:
 *   - paramd's root must be within 3 times the noise + 1e-6 of X. If the noise is above 1e-2, X has no correct digit,
 *     and the digits are not compared.
 *   - If X is not finite, paramd must find no root.
 *   - An iterative method must end for the same reason as the recorded one, after a number of iterations between those
 *     of the float32 and the float64 run. If its tolerance is below what float32 can reach, only one thing is compared:
 *     whether it ended at the limit of iterations.
 *   - If the recorded iteration diverged, paramd's must not converge. */
#include "replay_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "root.h"
#include "root_types.h"

static const double most_noise = 1e-2; /* if a recorded matrix root has a larger noise, its digits are not compared */
/* The iteration for a root makes a matrix M converge to I, and stops when max |M - I| is below its tolerance. Below
 * this tolerance, rounding alone decides when it stops. */
static const double least_tolerance = 1e-7;

/* Reads the order p/q of a recorded matrix root, which is a whole number p or a text "p/q". Returns false if it is
 * neither. */
static bool read_root(const json_t *root, int *p, int *q)
{
    const char *text = json_string_value(root);
    char rest;

    *q = 1;
    *p = json_is_integer(root) && json_integer_value(root) <= 1000 ? (int)json_integer_value(root) : 0;
    if (text != NULL && sscanf(text, "%4d/%4d%c", p, q, &rest) != 2) return false;
    return *p >= 1 && *p <= 1000 && *q >= 1 && *q <= 1000;
}

static bool read_method(const pd_case *c, pd_root_method *out)
{
    const char *method = json_string_value(json_object_get(c->entry, "method"));

    *out = PD_ROOT_EIGH;
    if (method == NULL) return false;
    if (strcmp(method, "newton") == 0)
        *out = PD_ROOT_COUPLED;
    else if (strcmp(method, "higher_order") == 0)
        *out = PD_ROOT_HIGHER_ORDER;
    else if (strcmp(method, "eigen") != 0 && strcmp(method, "diagonal") != 0)
        return false;
    return true;
}

static bool within(double x, double least, double most)
{
    return x >= least && x <= most;
}

static int read_want(const pd_case *c, pd_root_want *want)
{
    const json_t *multiplier = json_object_get(c->entry, "exponent_multiplier");
    double eta = multiplier != NULL ? json_number_value(multiplier) : 1;
    json_int_t order = json_integer_value(json_object_get(c->entry, "order")),
               steps = json_integer_value(json_object_get(c->entry, "max_iterations"));

    *want = (pd_root_want){ .ridge = PD_RIDGE_SHIFTED,
                            .epsilon = json_number_value(json_object_get(c->entry, "epsilon")),
                            .most_error = INFINITY,
                            .tolerance = json_number_value(json_object_get(c->entry, "tolerance")) };
    if (!read_root(json_object_get(c->entry, "root"), &want->p, &want->q) || !within(want->epsilon, 0, 1e6) ||
        !within(eta, -100, 100))
        return pd_fail(c->err, PD_INVALID_ARGUMENT,
                       "case %03d: expected a root of 1 to 1000, or \"p/q\" of such, an epsilon from 0 on and an "
                       "exponent_multiplier of at most 100",
                       c->index);
    want->exponent = eta * want->q / want->p;
    if (c->routine->list == NULL) return PD_OK;
    if (!read_method(c, &want->method))
        return pd_fail(c->err, PD_UNIMPLEMENTED,
                       "case %03d: expected a method of eigen, diagonal, newton, higher_order", c->index);
    if (want->method == PD_ROOT_EIGH) return PD_OK;
    want->order = (int)order, want->iterations = (int)steps;
    if (want->method == PD_ROOT_HIGHER_ORDER && !within((double)order, 2, 64))
        return pd_fail(c->err, PD_INVALID_ARGUMENT, "case %03d: expected an order of 2 to 64", c->index);
    if (eta != 1 || (want->method == PD_ROOT_COUPLED && want->q != 1))
        return pd_fail(c->err, PD_UNIMPLEMENTED,
                       "case %03d: an iteration has no exponent_multiplier, and newton no p/q", c->index);
    if (!within((double)steps, 1, 10000) || !(want->tolerance >= 0))
        return pd_fail(c->err, PD_INVALID_ARGUMENT,
                       "case %03d: expected max_iterations of 1 to 10000 and a tolerance from 0 on", c->index);
    return PD_OK;
}

static int take_square(pd_case *c, pd_mat *A, pd_mat *X)
{
    float *root = NULL;
    int rc = pd_case_mat(c, "A", A);

    if (rc == PD_OK && (A->rows != A->cols || A->rows == 0)) rc = pd_case_refuse(c, "A", "expected a square matrix");
    if (rc == PD_OK) rc = pd_case_floats(c, &root, A->rows * A->rows);
    if (rc == PD_OK) *X = pd_mat_dense(root, A->rows, A->rows);
    return rc;
}

/* Computes the inverse root X of A. Sets *there to false if A has no root, which is no error. Iterative methods are
 * called directly: pd_root would take a shortcut for a diagonal matrix, which the reference optimizer's iterations
 * do not have. */
static int compute(pd_case *c, pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report, bool *there)
{
    int rc;

    if (A.rows > 1 && want->method == PD_ROOT_COUPLED)
        rc = pd_root_coupled(X, A, want, report);
    else if (A.rows > 1 && want->method == PD_ROOT_HIGHER_ORDER)
        rc = pd_root_higher_order(X, A, want, report);
    else
        rc = pd_root(X, (pd_mat){ 0 }, A, want, report);
    *there = rc == PD_OK;
    if (rc == PD_OK || rc == PD_OUT_OF_RANGE) return PD_OK;
    return pd_fail(c->err, rc, "case %03d: %s", c->index, pd_code_text(rc));
}

/* Compares a computed matrix root with the recorded one, and adds the error to the verdict as a multiple of the case's
 * tolerance. */
static int judge_digits(pd_case *c, const char *field, pd_mat X, double tolerance)
{
    double error = 0;
    int rc = pd_case_error(c, field, X.at, X.rows * X.cols, 0, &error);

    if (rc == PD_OK) pd_verdict_add(c->verdict, c->number, 0, error / tolerance);
    return rc;
}

static bool is_between(json_int_t x, json_int_t a, json_int_t b)
{
    return x >= (a < b ? a : b) && x <= (a < b ? b : a);
}

/* Returns true if the iteration for a matrix root ended for the same reason as the recorded one, and its number of
 * steps is between those of the recorded float32 and float64 runs. If no reason was recorded, there is nothing to
 * compare, and the result is true. */
static bool ends_alike(const json_t *entry, const pd_root_want *want, const pd_root_report *report)
{
    static const char *const flags[] = { "CONVERGED", "REACHED_MAX_ITERS", "EARLY_STOP" };
    const char *flag = json_string_value(json_object_get(entry, "flag"));
    const json_t *wide = json_object_get(json_object_get(entry, "float64"), "iterations");
    json_int_t steps = json_integer_value(json_object_get(entry, "iterations"));

    if (flag == NULL) return true;
    if (want->tolerance < least_tolerance)
        return (report->ended == PD_ENDED_LIMIT) == (strcmp(flag, flags[PD_ENDED_LIMIT]) == 0);
    return strcmp(flag, flags[report->ended]) == 0 &&
           is_between(report->iterations, steps, wide != NULL ? json_integer_value(wide) : steps);
}

/* Checks a recorded case in which the reference optimizer found no root and raised an error. paramd must find no
 * root either. If the reference optimizer succeeded in float64, only rounding caused the error: then a root of
 * paramd is also right if it agrees with the float64 root. */
static int judge_refusal(pd_case *c, pd_mat X, bool there)
{
    if (there && pd_case_has(c, "X64")) return judge_digits(c, "X64", X, c->trace->tolerance);
    pd_case_expect(c, !there);
    return PD_OK;
}

/* Returns true if the recorded iteration for a matrix root diverged: its error is not a finite number. */
static bool diverged(const json_t *entry)
{
    const json_t *error = json_object_get(entry, "error");

    return error != NULL && !(json_is_number(error) && isfinite(json_number_value(error)));
}

static int judge(pd_case *c, pd_mat X, const pd_root_want *want, const pd_root_report *report, bool there)
{
    const json_t *noise = json_object_get(c->entry, "noise");

    if (json_object_get(c->entry, "raises") != NULL) return judge_refusal(c, X, there);
    if (diverged(c->entry)) {
        pd_case_expect(c, !there || report->ended != PD_ENDED_CONVERGED);
        return PD_OK;
    }
    if (json_is_true(json_object_get(c->entry, "nonfinite"))) {
        pd_case_expect(c, !there);
        return PD_OK;
    }
    pd_case_expect(c, there && ends_alike(c->entry, want, report));
    if (!there || (json_is_number(noise) && json_number_value(noise) > most_noise)) return PD_OK;
    if (!json_is_number(noise) || !(json_number_value(noise) >= 0))
        return pd_fail(c->err, PD_INVALID_ARGUMENT, "case %03d: expected a noise from 0 on", c->index);
    return judge_digits(c, "X", X, 3 * json_number_value(noise) + 1e-6);
}

int pd_judge_meta_root(pd_case *c)
{
    pd_root_want want;
    pd_root_report report = { 0 };
    pd_mat A, X;
    bool there = false;
    int rc = read_want(c, &want);

    if (rc == PD_OK) rc = take_square(c, &A, &X);
    if (rc == PD_OK) rc = compute(c, X, A, &want, &report, &there);
    return rc == PD_OK ? judge(c, X, &want, &report, there) : rc;
}

/* Computes a case of a retry and compares it with the recorded result. While it was recorded, the reference optimizer's
 * decomposition of a matrix in float32 was made to fail, so it was repeated in float64. paramd's first retry does the
 * same. */
int pd_judge_meta_retry(pd_case *c)
{
    pd_root_want want;
    pd_root_report report = { 0 };
    pd_mat A, X;
    bool there = false;
    int rc = read_want(c, &want);

    want.method = PD_ROOT_EIGH64;
    if (rc == PD_OK) rc = take_square(c, &A, &X);
    if (rc == PD_OK) rc = compute(c, X, A, &want, &report, &there);
    if (rc == PD_OK) pd_case_expect(c, there);
    if (rc == PD_OK && there) rc = pd_case_judge(c, "X", X.at, A.rows * A.rows);
    if (rc == PD_OK && there) rc = pd_case_judge(c, "X_without_failure", X.at, A.rows * A.rows);
    return rc;
}
