/* shampoo_task.c - computes inverse roots and bases of shampoo's factors, as tasks beside the step, and decides which
 * failures end a step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eigenbasis.h"
#include "kernels.h"
#include "linalg.h"
#include "root.h"
#include "root_types.h"
#include "shampoo_step.h"

/* Why a task gives no root: the root is not finite (NOT_FINITE), or the method failed (FAILED). */
enum { NOT_FINITE = PD_OUT_OF_RANGE, FAILED = PD_ABORTED };

static int dimension_of(const pd_task_view *task)
{
    return task->spec->block % task->plan->shape.rank;
}

/* Returns p of the inverse p-th root for the methods that compute only these. */
static int whole_root(const pd_plan *plan, const double *h, int d)
{
    return h[SEMANTICS] == RELEASE_2024 ? pd_shampoo_root_order(plan, h)
                                        : (int)fmax(1, round(1 / pd_shampoo_exponent(plan, h, d)));
}

/* The tolerance of an iteration and the most steps of it, unless the user gives them. */
static double tolerance_of(const double *h)
{
    if (h[ROOT_TOLERANCE] >= 0) return h[ROOT_TOLERANCE];
    return h[ROOT_METHOD] == ROOT_QR ? 0 : 1e-6;
}

static int iterations_of(const double *h)
{
    if (h[ROOT_ITERATIONS] > 0) return (int)h[ROOT_ITERATIONS];
    return h[ROOT_METHOD] == ROOT_QR ? 1 : 100;
}

static pd_root_want want_of(const pd_task_view *task)
{
    static const pd_root_method methods[] = { [ROOT_EIGEN] = PD_ROOT_EIGH,
                                              [ROOT_NEWTON] = PD_ROOT_COUPLED,
                                              [ROOT_HIGHER_ORDER] = PD_ROOT_HIGHER_ORDER,
                                              [ROOT_TRACKED] = PD_ROOT_TRACKED,
                                              [ROOT_QR] = PD_ROOT_QR };
    const double *h = task->hyper;
    int64_t side = pd_statistics_side(task->plan, task->spec->block);

    return (pd_root_want){ .method = methods[(int)h[ROOT_METHOD]],
                           .p = whole_root(task->plan, h, dimension_of(task)),
                           .exponent = pd_shampoo_exponent(task->plan, h, dimension_of(task)),
                           .epsilon = h[EPSILON],
                           .ridge = PD_RIDGE_SHIFTED,
                           .most_error = INFINITY,
                           .retries =
                               (int)h[ROOT_RETRIES] + (h[PROTECTED_EIGH] != 0 && h[ROOT_METHOD] == ROOT_EIGEN ? 1 : 0),
                           .q = 1,
                           .tolerance = tolerance_of(h),
                           .iterations = iterations_of(h),
                           .order = (int)h[ROOT_ITERATION_ORDER],
                           .pseudo = h[DEFICIENT] == PSEUDO_INVERSE,
                           .rank_rtol = h[RANK_RTOL] >= 0 ? h[RANK_RTOL] : (double)side * 0x1p-23,
                           .rank_atol = h[RANK_ATOL] };
}

/* Returns why a factor has no root: it has a NaN (PD_UNFIT_NAN), or infinities but no NaN (PD_UNFIT_INF). PD_FIT: it is
 * finite. A finite factor, the usual case, costs one fast scan. */
static pd_unfit unfit_of(const float *A, const double *wide, int64_t n)
{
    pd_unfit unfit = PD_FIT;

    if (wide != NULL ? pd_all_finite_f64(wide, n) : pd_all_finite(A, PD_F32, n)) return PD_FIT;
    for (int64_t i = 0; i < n; i++) {
        double a = wide != NULL ? wide[i] : (double)A[i];
        if (isnan(a)) return PD_UNFIT_NAN;
        if (isinf(a)) unfit = PD_UNFIT_INF;
    }
    return unfit;
}

/* Divides a factor by a power of its trace, in place. */
static void scale_by_trace(float *A, double *wide, int64_t side, const double *h)
{
    double trace = 0, by;

    for (int64_t i = 0; i < side; i++) trace += wide != NULL ? wide[i * side + i] : (double)A[i * side + i];
    by = pow(fmax(trace, h[EPSILON]), -h[TRACE_EXPONENT]);
    for (int64_t i = 0; i < side * side; i++) {
        if (wide != NULL)
            wide[i] *= by;
        else
            A[i] *= (float)by;
    }
}

/* Divides a factor by its bias correction, in place, and by a power of its trace if that is wanted. */
static void correct(const pd_task_view *task, float *A, double *wide, int64_t side)
{
    const double *h = task->hyper;
    int64_t n = side * side;
    float correction = pd_shampoo_factor_correction(h, task->count);

    for (int64_t i = 0; i < n; i++) {
        if (wide != NULL)
            wide[i] /= (double)correction;
        else
            A[i] /= correction;
    }
    if (h[TRACE_EXPONENT] != 0) scale_by_trace(A, wide, side, h);
}

/* Computes the inverse root of a factor. A float64 factor is rounded to float32 first, unless the method is
 * eigendecomposition. */
static int root_of(const pd_task_view *task, float *A, double *wide, int64_t side, pd_root_report *report)
{
    pd_root_want want = want_of(task);
    pd_mat X = pd_mat_dense(task->output[0], side, side), Q = { 0 };

    if (wide != NULL && want.method == PD_ROOT_EIGH) return pd_root_wide(X, wide, &want, report);
    for (int64_t i = 0; wide != NULL && i < side * side; i++) A[i] = (float)wide[i];
    if (task->spec->n_inputs > 1) {
        Q = pd_mat_dense(task->output[1], side, side);
        for (int64_t i = 0; i < side * side; i++) Q.at[i] = task->input[1][i];
    }
    return pd_root(X, Q, pd_mat_dense(A, side, side), &want, report);
}

/* Computes the eigenvectors of a factor, in the columns of the output, by ascending eigenvalue. */
static int basis_of(const pd_task_view *task, float *A, int64_t side, double *condition, double *error)
{
    const double *h = task->hyper;
    pd_mat Q = pd_mat_dense(task->output[0], side, side);
    float *values;
    int rc;

    if (h[ROOT_METHOD] == ROOT_EIGEN) {
        if ((rc = pd_eigenbasis(Q, pd_mat_dense(A, side, side), condition)) != PD_OK) return rc;
        for (int64_t i = 0; i < side; i++)
            for (int64_t j = 0; j < side / 2; j++) {
                float left = Q.at[i * side + j];
                Q.at[i * side + j] = Q.at[i * side + side - 1 - j];
                Q.at[i * side + side - 1 - j] = left;
            }
        return PD_OK;
    }
    if ((values = malloc((size_t)side * sizeof *values)) == NULL) return PD_NO_MEMORY;
    memcpy(Q.at, task->input[1], (size_t)(side * side) * sizeof *Q.at);
    rc = pd_eigenbasis_iterate(Q, values, pd_mat_dense(A, side, side), tolerance_of(h), iterations_of(h), error);
    free(values);
    return rc;
}

/* Computes the basis of a finite factor. A float64 factor is rounded to float32 first. */
static int corrected_task(pd_task_view *task, const double *wide, int64_t side)
{
    for (int64_t i = 0; wide != NULL && i < side * side; i++) task->input[0][i] = (float)wide[i];
    return basis_of(task, task->input[0], side, &task->condition, &task->error);
}

int pd_shampoo_task(pd_task_view *task)
{
    int64_t side = pd_statistics_side(task->plan, task->spec->block), n = side * side;
    double *wide = pd_shampoo_factors_are_wide(task->hyper) ? (double *)(void *)task->input[0] : NULL;
    pd_root_report report = { 0 };
    int rc;

    correct(task, task->input[0], wide, side);
    if ((task->unfit = unfit_of(task->input[0], wide, n)) != PD_FIT) {
        task->error = NAN;
        return PD_INVALID_ARGUMENT;
    }
    if (pd_shampoo_is_corrected(task->hyper)) return corrected_task(task, wide, side);
    /* A method that fails may leave the output unwritten, so the output is set to zeros first. */
    for (int64_t i = 0; i < n; i++) task->output[0][i] = 0;
    rc = root_of(task, task->input[0], wide, side, &report);
    task->error = rc == PD_OUT_OF_RANGE ? NAN : report.error;
    task->condition = report.condition;
    if (rc != PD_OUT_OF_RANGE) return rc;
    if (task->hyper[ROOT_METHOD] == ROOT_HIGHER_ORDER) return FAILED;
    return pd_all_finite(task->output[0], PD_F32, n) ? FAILED : NOT_FINITE;
}

/* Makes the step fail because a root failed, if the original implementation raises an exception in this case. If the
 * original only warns, the step continues with the last good root. */
int pd_shampoo_refusal(const pd_task_view *task, pd_error *err)
{
    int rank = task->plan->shape.rank, block = task->spec->block / rank, dim = dimension_of(task);

    if (task->unfit != PD_FIT && task->hyper[SEMANTICS] == RELEASE_2026)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "Encountered nan/inf values in factor matrix block_%d.%d! To mitigate, check if nan inputs are "
            "being passed into the network or nan gradients are being passed to the optimizer. Otherwise, in "
            "some cases, this may be due to divergence of the algorithm: try decreasing the learning rate or "
            "increasing grafting epsilon.",
            block, ((const shampoo_own *)task->plan->own)->place[dim]);
    if (task->unfit == PD_UNFIT_NAN)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "Encountered nan values in bias-corrected factor matrix block_%d.%d! To mitigate, check if nan "
                       "inputs are being "
                       "passed into the network or nan gradients are being passed to the optimizer.",
                       block, dim);
    if (task->unfit == PD_UNFIT_INF)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "Encountered inf values in bias-corrected factor matrix block_%d.%d! In some cases, this may be due to "
            "divergence of the algorithm. To mitigate, try decreasing the learning rate or increasing grafting "
            "epsilon.",
            block, dim);
    if (task->status == NOT_FINITE)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "Encountered nan or inf values in inverse factor matrix block_%d.%d! To mitigate, try increasing epsilon, "
            "starting later (start_preconditioning_step), or preconditioner_dtype=float64.",
            block, dim);
    if (task->status != PD_OK && task->hyper[PROTECTED_EIGH] == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "the inverse root of factor matrix block_%d.%d failed, and use_protected_eigh is off", block,
                       dim);
    return PD_OK;
}

static pd_root_method method_of(const double *h)
{
    return h[ROOT_METHOD] == ROOT_NEWTON         ? PD_ROOT_COUPLED
           : h[ROOT_METHOD] == ROOT_HIGHER_ORDER ? PD_ROOT_HIGHER_ORDER
           : h[ROOT_METHOD] == ROOT_TRACKED      ? PD_ROOT_TRACKED
           : h[ROOT_METHOD] == ROOT_QR           ? PD_ROOT_QR
           : pd_shampoo_factors_are_wide(h)      ? PD_ROOT_EIGH64
                                                 : PD_ROOT_EIGH;
}

static bool is_retried(const double *h)
{
    return h[ROOT_RETRIES] > 0 || (h[PROTECTED_EIGH] != 0 && h[ROOT_METHOD] == ROOT_EIGEN);
}

pd_task_spec pd_shampoo_task_spec(const pd_plan *plan, const shampoo_layout *slots, int64_t block, int d,
                                  const double *h)
{
    int64_t k = block * plan->shape.rank + d, side = pd_statistics_side(plan, k);
    bool has_basis = slots->each > 2, corrected = pd_shampoo_is_corrected(h);
    int p = corrected ? 1 : whole_root(plan, h, d);
    pd_task_spec task = { .block = (int)k, .n_inputs = 1, .n_outputs = 1 };

    task.input[0] = pd_shampoo_slot(plan, slots, block, d, FACTOR);
    task.output[0] = pd_shampoo_slot(plan, slots, block, d, INVERSE);
    if (has_basis)
        task.input[task.n_inputs++] = task.output[task.n_outputs++] = pd_shampoo_slot(plan, slots, block, d, BASIS);
    if (corrected && h[ROOT_METHOD] == ROOT_QR) task.input[task.n_inputs++] = task.output[0];
    task.cost = pd_root_flops(method_of(h), side, p);
    task.scratch = pd_root_scratch(method_of(h), is_retried(h), side, p);
    if (corrected && pd_eigenbasis_scratch(side) > task.scratch) task.scratch = pd_eigenbasis_scratch(side);
    if (!corrected)
        task.exponent =
            h[SEMANTICS] == RELEASE_2024 ? pd_shampoo_root_order(plan, h) : 1 / pd_shampoo_exponent(plan, h, d);
    return task;
}
