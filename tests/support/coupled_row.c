/* coupled_row.c - an optimizer for tests that uses everything that the interface pd_optimizer_ops offers. */
#include "coupled_row.h"

#include <math.h>

#include "partition.h"

static const pd_hyper coupled_hypers[] = {
    [COUPLED_LR] = { "lr", PD_REAL, 0.1, 0, INFINITY, NULL, "learning rate", true },
    [COUPLED_BLOCK_SIZE] = { "block_size", PD_INT, 3, 1, 1 << 20, NULL, "largest dimension of a block", false },
    [COUPLED_INTERVAL] = { "interval", PD_INT, 1, 1, 1 << 20, NULL, "steps from one root to the next", false },
    [COUPLED_ROOT_DELAY] = { "root_delay", PD_INT, 0, PD_ROOT_READY, 1 << 20, NULL,
                             "steps until a root is used; -1: when it is ready", false },
    [COUPLED_RANGE] = { "range", PD_INT, 4, 1, 1 << 20, NULL, "elements of a range unit", false },
    [COUPLED_SPOIL] = { "spoil", PD_CHOICE, 0, 0, 0, "none|error|nan", "what goes wrong with the roots of one step",
                        false },
    [COUPLED_SPOIL_AT] = { "spoil_at", PD_INT, 0, 0, 1 << 20, NULL, "count of that step", false },
    { .name = NULL },
};

static const pd_model_stat coupled_stats[] = { { "largest_block", PD_FOLD_MAX }, { NULL, PD_FOLD_MAX } };

enum { SLOT_DIRECTION, SLOT_TALLY, SLOT_FIRST_BLOCK }; /* the slots of each block follow, as the next enum lists them */
enum { STATISTICS, ROOT, SLOTS_OF_A_BLOCK };

static int slot_of(int64_t block, int which)
{
    return SLOT_FIRST_BLOCK + (int)block * SLOTS_OF_A_BLOCK + which;
}

static void coupled_prepass(const pd_declaration *declaration, double *stats)
{
    pd_block first = { 0 };
    int64_t elements = 0;

    (void)pd_shape_elements(&declaration->shape, &elements);
    if (elements > 0)
        first = pd_partition_block(&declaration->shape, (int64_t)declaration->hypers.value[COUPLED_BLOCK_SIZE], 0);
    stats[0] = elements > 0 ? (double)pd_block_elements(&first, declaration->shape.rank) : 0;
}

static int plan_block(pd_plan *plan, int b)
{
    pd_slot_spec statistics = { .name = "statistics", .number = b, .shape = { .rank = plan->shape.rank } };
    pd_slot_spec root = { .name = "root", .number = b, .fill = 1 };
    pd_task_spec task = {
        .block = b, .n_inputs = 1, .n_outputs = 1, .input = { slot_of(b, STATISTICS) }, .output = { slot_of(b, ROOT) }
    };

    for (int d = 0; d < plan->shape.rank; d++) statistics.shape.dim[d] = plan->blocks[b].size[d];
    root.shape = statistics.shape;
    task.exponent = 2;
    task.cost = 4.0 * (double)pd_block_elements(&plan->blocks[b], plan->shape.rank);
    if (pd_plan_slot(plan, &statistics) < 0 || pd_plan_slot(plan, &root) < 0 || pd_plan_task(plan, &task) < 0)
        return PD_NO_MEMORY;
    return PD_OK;
}

static int coupled_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;

    (void)stats;
    (void)err;
    if (pd_plan_blocks(plan, (int64_t)h[COUPLED_BLOCK_SIZE]) != PD_OK) return PD_NO_MEMORY;
    if (pd_plan_slot(plan,
                     &(pd_slot_spec){ .name = "direction", .number = -1, .shape = plan->shape, .temporary = true }) < 0)
        return PD_NO_MEMORY;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "tally", .number = -1 }) < 0) return PD_NO_MEMORY;
    for (size_t b = 0; b < plan->n_blocks; b++)
        if (plan_block(plan, (int)b) != PD_OK) return PD_NO_MEMORY;
    plan->range_elements = (int64_t)h[COUPLED_RANGE];
    plan->root_delay = (int)h[COUPLED_ROOT_DELAY];
    if (plan->n_blocks > 0)
        plan->scratch_floats =
            (size_t)pd_block_elements(&plan->blocks[0], plan->shape.rank); /* no block is larger than block 0 */
    return PD_OK;
}

static void update_statistics(const pd_unit *unit)
{
    float *S = unit->slot[slot_of(unit->index, STATISTICS)], *G = unit->scratch;
    int64_t n = pd_block_elements(unit->block, unit->plan->shape.rank);

    pd_block_gather(G, unit->gradient, &unit->plan->shape, unit->block);
    for (int64_t i = 0; i < n; i++) S[i] = S[i] / 2 + G[i] * G[i];
}

static bool coupled_due(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    (void)plan, (void)slot;
    return count % (int64_t)hyper[COUPLED_INTERVAL] == 0;
}

static int coupled_task(pd_task_view *task)
{
    int64_t n = pd_block_elements(&task->plan->blocks[task->spec->block], task->plan->shape.rank);
    const float *S = task->input[0];
    bool spoiled = task->count == (int64_t)task->hyper[COUPLED_SPOIL_AT];
    float *R = task->output[0];
    float sum = 0;

    if (spoiled && task->hyper[COUPLED_SPOIL] == COUPLED_SPOIL_ERROR) return PD_INTERNAL;
    for (int64_t i = 0; i < n; i++) sum += S[i];
    for (int64_t i = 0; i < n; i++) R[i] = 1 / (1 + sqrtf(S[i] + sum / (float)n));
    if (spoiled && task->hyper[COUPLED_SPOIL] == COUPLED_SPOIL_NAN) R[n - 1] = NAN;
    task->error = (double)task->count;
    return PD_OK;
}

static void precondition(const pd_unit *unit)
{
    float *D = unit->scratch;
    const float *R = unit->slot[slot_of(unit->index, ROOT)];
    int64_t n = pd_block_elements(unit->block, unit->plan->shape.rank);

    pd_block_gather(D, unit->gradient, &unit->plan->shape, unit->block);
    for (int64_t i = 0; i < n; i++) {
        D[i] = D[i] * R[i];
        unit->partial[0] += (double)D[i] * (double)D[i];
        if (fabs((double)D[i]) > unit->partial[1]) unit->partial[1] = fabs((double)D[i]);
    }
    pd_block_scatter(unit->slot[SLOT_DIRECTION], D, &unit->plan->shape, unit->block);
}

enum { PHASE_STATISTICS, PHASE_PRECONDITION, PHASE_MOVE, PHASE_TALLY };

static void move(const pd_unit *unit)
{
    const double *total = unit->total[PHASE_PRECONDITION];
    float scale = (float)(unit->hyper[COUPLED_LR] / (sqrt(total[0]) + total[1] + unit->stats[0]));
    const float *D = unit->slot[SLOT_DIRECTION];

    for (int64_t i = unit->first; i < unit->first + unit->n; i++) unit->after[i] = unit->before[i] - scale * D[i];
}

static void tally(const pd_unit *unit)
{
    *unit->slot[SLOT_TALLY] += (float)sqrt(unit->total[PHASE_PRECONDITION][0]);
}

static bool even(const pd_plan *plan, const double *hyper, int64_t count)
{
    (void)plan;
    (void)hyper;
    return count % 2 == 0;
}

const pd_optimizer_ops coupled_row = {
    .name   = "coupled",
    .about  = "for tests: blocks, roots, norms and facts",
    .hypers = coupled_hypers,
    .stats  = coupled_stats, .prepass = coupled_prepass,
    .plan   = coupled_plan,
    .phases = {
        [PHASE_STATISTICS]   = { .name = "statistics", .kind = PD_BLOCKS, .run = update_statistics },
        [PHASE_PRECONDITION] = { .name = "precondition", .kind = PD_BLOCKS, .run = precondition,
                                 .fold = { PD_FOLD_SUM, PD_FOLD_MAX } },
        [PHASE_MOVE]         = { .name = "move", .kind = PD_RANGES, .run = move },
        [PHASE_TALLY]        = { .name = "tally", .kind = PD_WHOLE, .run = tally, .skip = even },
    },
    .capture_phase = PHASE_PRECONDITION, .adopt_phase = PHASE_PRECONDITION,
    .due    = coupled_due,
    .task   = coupled_task,
};
