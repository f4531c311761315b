/* verdict.c - measures how far the results of a replay are from the recorded ones, and keeps the worst error. */
#include "verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool coincide(double ours, double recorded)
{
    if (isnan(recorded)) return isnan(ours);
    return isinf(ours) && isinf(recorded) && (ours > 0) == (recorded > 0);
}

/* Returns the relative error of paramd's numbers against the recorded ones. paramd's numbers are in `narrow`
 * (float32); if that is NULL, in `wide` (float64). */
static double relative_error(const float *narrow, const double *wide, const double *recorded, int64_t n, double scale)
{
    double distance = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        double ours = narrow != NULL ? (double)narrow[i] : wide[i];
        if (isfinite(ours) && isfinite(recorded[i])) {
            double apart = ours - recorded[i];
            distance += apart * apart;
            size += recorded[i] * recorded[i];
        } else if (!coincide(ours, recorded[i]))
            return INFINITY;
    }
    scale = fmax(sqrt(size), scale);
    return scale > 0 ? sqrt(distance) / scale : sqrt(distance);
}

double pd_relative_error(const float *ours, const double *recorded, int64_t n, double scale)
{
    return relative_error(ours, NULL, recorded, n, scale);
}

double pd_relative_error_f64(const double *ours, const double *recorded, int64_t n)
{
    return relative_error(NULL, ours, recorded, n, 0);
}

double pd_finite_norm(const float *at, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        if (isfinite(at[i])) sum += at[i] * at[i];
    return sqrt(sum);
}

bool pd_says_alike(const char *ours, const char *recorded)
{
    static const char *const causes[] = { "nan values", "inf values" };

    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        if (strstr(recorded, causes[i]) != NULL && strstr(ours, causes[i]) == NULL) return false;
    return true;
}

void pd_verdict_add(pd_verdict *verdict, size_t param, int64_t step, double error)
{
    /* NaN: the recorded values are too large to square. The error counts as infinite. */
    if (isnan(error)) error = INFINITY;
    if (verdict->compared++ > 0 && error <= verdict->error) return;
    verdict->error = error;
    verdict->param = param;
    verdict->step = step;
}

void pd_verdict_fold(pd_verdict *verdict, const pd_verdict *other)
{
    int64_t compared = verdict->compared + other->compared;

    if (other->compared > 0 && (verdict->compared == 0 || other->error > verdict->error)) *verdict = *other;
    verdict->compared = compared;
}

bool pd_verdict_holds(const pd_verdict *verdict, double tolerance)
{
    return verdict->compared > 0 && verdict->error <= tolerance;
}

bool pd_replay_updates_fail(const pd_replay_result *r)
{
    return r->update.compared > 0 && !pd_verdict_holds(&r->update, r->update_tolerance);
}

bool pd_replay_state_fails(const pd_replay_result *r)
{
    return r->state.compared > 0 && !(r->state.error <= r->state.tolerance);
}

void pd_replay_result_free(pd_replay_result *result)
{
    for (size_t i = 0; result->params != NULL && i < result->n; i++) free(result->params[i]);
    free(result->params);
    free(result->verdicts);
}
