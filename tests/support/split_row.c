/* split_row.c - two optimizers for tests: one adopts its roots between two phases, the other captures its tasks
 * after the last phase. */
#include "split_row.h"

static const pd_hyper hypers[] = {
    { "root_delay", PD_INT, 0, PD_ROOT_READY, 1 << 20, NULL, "steps until a root is used; -1: when it is ready", false,
      false },
    { .name = NULL },
};

static int plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    pd_slot_spec statistics = { .name = "statistics", .number = -1, .shape = plan->shape };
    pd_slot_spec root = { .name = "root", .number = -1, .shape = plan->shape, .fill = 1 };
    pd_task_spec task = { .n_inputs = 1, .n_outputs = 1, .input = { SPLIT_STATISTICS }, .output = { SPLIT_ROOT } };

    (void)stats, (void)err;
    plan->root_delay = (int)declaration->hypers.value[0];
    plan->range_elements = 3;
    plan->flops = 1e8; /* amount of work that is enough to wake the other threads */
    if (pd_plan_slot(plan, &statistics) < 0 || pd_plan_slot(plan, &root) < 0) return PD_NO_MEMORY;
    return pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

static void update(const pd_unit *unit)
{
    float *S = unit->slot[SPLIT_STATISTICS];

    for (int64_t i = unit->first; i < unit->first + unit->n; i++)
        S[i] = S[i] / 2 + unit->gradient[i] * unit->gradient[i];
}

static void blur(const pd_unit *unit)
{
    for (int64_t i = unit->first; i < unit->first + unit->n; i++) unit->slot[SPLIT_STATISTICS][i] += 1;
}

static void move(const pd_unit *unit)
{
    const float *R = unit->slot[SPLIT_ROOT];

    for (int64_t i = unit->first; i < unit->first + unit->n; i++)
        unit->after[i] = unit->before[i] - unit->gradient[i] * R[i];
}

static bool always(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    (void)plan, (void)hyper, (void)count, (void)slot;
    return true;
}

static int make_root(pd_task_view *task)
{
    int64_t n = task->plan->elements;
    float sum = 0;

    for (int64_t i = 0; i < n; i++) sum += task->input[0][i];
    for (int64_t i = 0; i < n; i++) task->output[0][i] = 1 / (1 + task->input[0][i] + sum / (float)n);
    return PD_OK;
}

#define PHASES                                                                                                         \
    {                                                                                                                  \
        { .name = "statistics", .kind = PD_RANGES, .run = update },                                                    \
            { .name = "blur", .kind = PD_RANGES, .run = blur },                                                        \
        {                                                                                                              \
            .name = "move", .kind = PD_RANGES, .run = move                                                             \
        }                                                                                                              \
    }

const pd_optimizer_ops split_between = { .name = "split_between",
                                         .hypers = hypers,
                                         .plan = plan,
                                         .phases = PHASES,
                                         .capture_phase = 1,
                                         .adopt_phase = 2,
                                         .due = always,
                                         .task = make_root };
const pd_optimizer_ops split_after = { .name = "split_after",
                                       .hypers = hypers,
                                       .plan = plan,
                                       .phases = PHASES,
                                       .capture_phase = 3,
                                       .adopt_phase = 0,
                                       .due = always,
                                       .task = make_root };
