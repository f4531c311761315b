/* striped_row.c - an optimizer for tests: Newton-Schulz iterations whose threads share one matrix in stripes of
 * rows. */
#include "striped_row.h"

#include <math.h>

static const pd_hyper hypers[] = {
    { "stripes", PD_INT, 1, 1, 1 << 20, NULL, "units of each striped phase", false, false },
    { .name = NULL },
};

/* The optimizer's own part of a plan: indices of its slots. */
typedef struct striped_own {
    int x[2], a, b;
} striped_own;

static int temporary(pd_plan *plan, const char *name, int64_t cols)
{
    return pd_plan_slot(
        plan,
        &(pd_slot_spec){ .name = name, .number = -1, .shape = { 2, { plan->shape.dim[0], cols } }, .temporary = true });
}

static int plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    striped_own *own = plan->own;
    int64_t rows = plan->shape.dim[0], cols = plan->shape.dim[1];

    (void)stats, (void)err;
    plan->stripes = (int64_t)declaration->hypers.value[0];
    plan->flops = 1e8; /* amount of work that is enough to wake the other threads */
    if (pd_plan_blocks(plan, 0) != PD_OK) return PD_NO_MEMORY;
    own->x[0] = temporary(plan, "x0", cols);
    own->x[1] = temporary(plan, "x1", cols);
    own->a = temporary(plan, "a", rows);
    own->b = temporary(plan, "b", rows);
    return own->x[0] < 0 || own->x[1] < 0 || own->a < 0 || own->b < 0 ? PD_NO_MEMORY : PD_OK;
}

enum { PHASE_NORM, PHASE_SCALE, PHASE_ITERATE, PHASE_MOVE };

static void norm(const pd_unit *unit)
{
    for (int64_t i = 0; i < unit->plan->elements; i++)
        unit->partial[0] += (double)unit->gradient[i] * (double)unit->gradient[i];
}

static void scale(const pd_unit *unit)
{
    const striped_own *own = unit->plan->own;
    int64_t rows = unit->block->size[0], cols = unit->block->size[1];
    float length = (float)sqrt(unit->total[PHASE_NORM][0]);

    for (int64_t i = pd_stripe_row(unit, rows, 0) * cols; i < pd_stripe_row(unit, rows, 1) * cols; i++)
        unit->slot[own->x[0]][i] = unit->gradient[i] / length;
}

/* Computes row i of A B or A B'. A is (rows, inner). `turned`: B is transposed. */
static void row_of_product(float *to, const float *A, const float *B, int64_t i, int64_t inner, int64_t cols,
                           bool turned)
{
    for (int64_t j = 0; j < cols; j++) {
        float sum = 0;
        for (int64_t k = 0; k < inner; k++) sum += A[i * inner + k] * (turned ? B[j * inner + k] : B[k * cols + j]);
        to[i * cols + j] = sum;
    }
}

static void iterate(const pd_unit *unit)
{
    const striped_own *own = unit->plan->own;
    int64_t n = unit->block->size[0], cols = unit->block->size[1], turn = unit->round / 3;
    float *X = unit->slot[own->x[turn % 2]], *next = unit->slot[own->x[1 - turn % 2]], *A = unit->slot[own->a],
          *B = unit->slot[own->b];

    for (int64_t i = pd_stripe_row(unit, n, 0); i < pd_stripe_row(unit, n, 1); i++) {
        if (unit->round % 3 == 0)
            row_of_product(A, X, X, i, cols, n, true);
        else if (unit->round % 3 == 1)
            row_of_product(B, A, A, i, n, n, false);
        else
            row_of_product(next, B, X, i, n, cols, false);
        for (int64_t j = 0; unit->round % 3 == 1 && j < n; j++)
            B[i * n + j] = STRIPED_B * A[i * n + j] + STRIPED_C * B[i * n + j];
        for (int64_t j = i * cols; unit->round % 3 == 2 && j < (i + 1) * cols; j++) {
            next[j] += STRIPED_A * X[j];
            if (fabs((double)next[j]) > unit->partial[0]) unit->partial[0] = fabs((double)next[j]);
        }
    }
}

static int64_t rounds(const pd_plan *plan, const double *hyper)
{
    (void)plan, (void)hyper;
    return 3 * STRIPED_ITERATIONS;
}

static void move(const pd_unit *unit)
{
    const striped_own *own = unit->plan->own;
    const float *X = unit->slot[own->x[STRIPED_ITERATIONS % 2]];

    for (int64_t i = unit->first; i < unit->first + unit->n; i++)
        unit->after[i] = unit->before[i] - X[i] / (1 + (float)unit->total[PHASE_ITERATE][0]);
}

const pd_optimizer_ops striped_row = {
    .name = "striped", .hypers = hypers, .plan = plan, .own_bytes = sizeof(striped_own),
    .phases = {
        [PHASE_NORM]    = { .name = "norm", .kind = PD_WHOLE, .run = norm, .fold = { PD_FOLD_SUM } },
        [PHASE_SCALE]   = { .name = "scale", .kind = PD_STRIPES, .run = scale },
        [PHASE_ITERATE] = { .name = "iterate", .kind = PD_STRIPES, .run = iterate, .rounds = rounds,
                            .fold = { PD_FOLD_MAX } },
        [PHASE_MOVE]    = { .name = "move", .kind = PD_RANGES, .run = move },
    },
};
