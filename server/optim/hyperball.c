/* hyperball.c - keeps the norm of a matrix, and turns the matrix in each step: phases around an optimizer's own.
 *
 * The slot `radius` has the norm R; it is below 0 until the first step. The temporary slot `turn` has the weights that
 * the optimizer's phases see: 0 before them, -U after them. */
#include "hyperball.h"

#include <stdio.h>
#include <string.h>

#include "first_order.h"
#include "kernels.h"

/* Phases report sums of squares of what they write (SQUARES). The first one reports the squares of the weights, if
 * there is no radius yet, and the radius (RADIUS). */
enum { PREPARE, MEASURE, TURN, RESCALE };
enum { SQUARES, RADIUS };
/* number of elements computed at a time, so that what was written is still in the cache when it is squared */
enum { TILE = 1024 };
static const float least_norm = 1e-15f; /* a smaller norm counts as 0 */

int pd_hyperball_plan(pd_plan *plan, const pd_declaration *declaration, pd_hyperball_use use)
{
    const double *h = declaration->hypers.value;
    bool borrowed = declaration->hypers.row->refusal != NULL; /* a refused step must leave the new weights alone */
    int rc;

    if (h[use.hyperball] == 0 || declaration->shape.rank < 2 || plan->elements == 0) return PD_OK;
    for (size_t i = 0; i < plan->n_slots; i++) borrowed |= plan->slots[i].in_after;
    if ((rc = pd_plan_number(plan, "radius", -1)) != PD_OK) return rc;
    plan->radius = (int)plan->n_slots - 1;
    plan->turn = pd_plan_slot(
        plan,
        &(pd_slot_spec){
            .name = "turn", .number = -1, .shape = declaration->shape, .temporary = true, .in_after = !borrowed });
    if (plan->turn < 0) return PD_NO_MEMORY;
    plan->hyperball = true;
    plan->lr = use.lr;
    if (h[use.decay] != 0 && h[use.decay] != declaration->hypers.row->hypers[use.decay].preset && plan->note[0] == '\0')
        snprintf(plan->note, sizeof plan->note, "hyperball keeps its norm, so that weight_decay has no effect");
    return PD_OK;
}

static void prepare(const pd_unit *unit)
{
    const float radius = unit->slot[unit->plan->radius][0];

    memset(unit->slot[unit->plan->turn] + unit->first, 0, (size_t)unit->n * sizeof(float));
    if (unit->index == 0) unit->partial[RADIUS] = (double)radius;
    if (radius < 0) unit->partial[SQUARES] = pd_sum_squares(unit->before + unit->first, unit->n);
}

static void measure(const pd_unit *unit)
{
    unit->partial[SQUARES] = pd_sum_squares(unit->slot[unit->plan->turn] + unit->first, unit->n);
}

static float radius_of(const pd_unit *unit)
{
    const double *first = unit->total[PREPARE];

    return first[RADIUS] >= 0 ? (float)first[RADIUS] : (float)sqrt(first[SQUARES]);
}

/* Returns the factor that brings something with this sum of squares to the norm `radius`; 0 if its norm is 0. */
static float factor_to(float radius, double squares)
{
    const float norm = (float)sqrt(squares);

    return norm < least_norm ? 0 : radius / norm;
}

PD_CLONES(void, turn_tile, (float *after, const float *before, const float *turn, int64_t n, float scale, float lr),
          (after, before, turn, n, scale, lr))
{
#pragma GCC ivdep /* the arrays are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < n; i++) after[i] = before[i] + lr * (scale * turn[i]);
}

static void turn(const pd_unit *unit)
{
    const pd_run r = pd_run_of(unit);
    const float *by = unit->slot[unit->plan->turn] + unit->first, lr = (float)unit->hyper[unit->plan->lr],
                scale = factor_to(radius_of(unit), unit->total[MEASURE][SQUARES]);

    for (int64_t i = 0; i < r.n; i += TILE) {
        int64_t n = r.n - i < TILE ? r.n - i : TILE;
        turn_tile(r.after + i, r.before + i, by + i, n, scale, lr);
        unit->partial[SQUARES] += pd_sum_squares(r.after + i, n);
    }
}

PD_CLONES(void, scale, (float *x, float by, int64_t n), (x, by, n))
{
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}

static void rescale(const pd_unit *unit)
{
    const float radius = radius_of(unit);

    scale(unit->after + unit->first, factor_to(radius, unit->total[TURN][SQUARES]), unit->n);
    if (unit->index == 0) unit->slot[unit->plan->radius][0] = radius;
}

#define SUMS                                                                                                           \
    {                                                                                                                  \
        PD_FOLD_SUM, PD_FOLD_SUM                                                                                       \
    }
const pd_phase pd_hyperball_phases[] = {
    [PREPARE] = { .name = "prepare", .kind = PD_RANGES, .run = prepare, .fold = SUMS },
    [MEASURE] = { .name = "measure", .kind = PD_RANGES, .run = measure, .fold = SUMS },
    [TURN] = { .name = "turn", .kind = PD_RANGES, .run = turn, .fold = SUMS },
    [RESCALE] = { .name = "rescale", .kind = PD_RANGES, .run = rescale },
};
