/* root_report.c - chooses which failures of roots are logged, and fills the operators' list of roots. */
#include "root_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 3 }; /* most log lines about the matrix roots of one parameter in one step */

/* What the log has reported of one root, to decide what is logged next. */
typedef struct pd_root_log {
    int64_t failed; /* number of times that the root had failed when pd_roots_watch last looked */
    /* the log has reported that the root has failed, and not yet that it is good again */
    bool failing;
} pd_root_log;

static size_t count_roots(const pd_param *param)
{
    return pd_optim_plan(param->optim)->n_tasks;
}

/* Returns a slot with the name and shape of the root that a preconditioner task computes: the task's first output, such
 * as "preconditioners.3". If the slot stacks the roots of all blocks, the name has the block, too: "block_2.Q.0". */
static pd_slot_spec root_of(const pd_param *param, size_t task)
{
    const pd_plan *plan = pd_optim_plan(param->optim);
    pd_slot_spec root = plan->slots[plan->tasks[task].output[0]];

    if (root.share == PD_SHARE_WHOLE) return root;
    root.of_block = true;
    root.block = plan->tasks[task].block;
    if (root.share == PD_SHARE_ITEM) {
        memmove(root.shape.dim, root.shape.dim + 1, (size_t)--root.shape.rank * sizeof root.shape.dim[0]);
    } else {
        root.shape = plan->shape;
        memcpy(root.shape.dim, plan->blocks[root.block].size, (size_t)root.shape.rank * sizeof root.shape.dim[0]);
    }
    return root;
}

int pd_roots_prepare(pd_param *param)
{
    size_t n = count_roots(param);

    if (n == 0) return PD_OK;
    return (param->roots.log = calloc(n, sizeof *param->roots.log)) != NULL ? PD_OK : PD_NO_MEMORY;
}

/* Returns whether a power of two is above `from` and at most `to`. */
static bool passes_power_of_two(int64_t from, int64_t to)
{
    for (int64_t power = 1; power <= to && power > 0; power *= 2)
        if (power > from) return true;
    return false;
}

typedef enum news { NO_NEWS, FAILED, GOOD_AGAIN } news;

static news news_of(pd_root_log *log, const pd_root_state *root)
{
    bool worth_it = passes_power_of_two(log->failed, root->failed);

    log->failed = root->failed;
    if (root->failing && worth_it) {
        log->failing = true;
        return FAILED;
    }
    if (root->failing || !log->failing) return NO_NEWS;
    log->failing = false;
    return GOOD_AGAIN;
}

static void say(pd_steps *steps, const pd_param *param, size_t task, news what, const pd_root_state *root)
{
    char name[128], shape[192];
    pd_slot_spec spec = root_of(param, task);
    uint64_t step = param->saved.step + 1;

    pd_slot_name(&spec, name, sizeof name);
    pd_shape_text(&spec.shape, shape, sizeof shape);
    if (what == FAILED)
        pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &step },
               "root %s of %.160s, size %s, failed by step %llu (%lld times so far), error %.3g: the last good root "
               "stays in use",
               name, param->name, shape, (unsigned long long)step, (long long)root->failed, root->error);
    else
        pd_say(steps->outbox, PD_SAY_INFO, (pd_log_facts){ .job = steps->name, .step = &step },
               "root %s of %.160s, size %s, recovered at step %llu, error %.3g", name, param->name, shape,
               (unsigned long long)step, root->error);
}

void pd_roots_watch(pd_steps *steps, pd_param *param)
{
    pd_root_stats stats = pd_optim_root_stats(param->optim);
    size_t lines = 0;

    if (stats.adopted + stats.failed == param->roots.looked_at) return;
    param->roots.looked_at = stats.adopted + stats.failed;
    for (size_t i = 0; i < count_roots(param); i++) {
        pd_root_state root = pd_optim_root(param->optim, i);
        news what = news_of(&param->roots.log[i], &root);
        if (what != NO_NEWS && ++lines <= MOST_LINES) say(steps, param, i, what, &root);
    }
    if (lines > MOST_LINES)
        pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name },
               "%zu more roots of %.160s failed or recovered, too (`paramctl roots %.256s`)", lines - MOST_LINES,
               param->name, steps->name);
}

static double kept_error(const pd_param *param, size_t task)
{
    int slot = pd_optim_plan(param->optim)->errors_slot;

    return slot < 0 ? -1 : (double)pd_optim_slot(param->optim, (size_t)slot).at[task];
}

void pd_roots_fill(pd_root_info *info, const pd_param *param, size_t task)
{
    pd_root_state root = pd_optim_root(param->optim, task);
    pd_slot_spec spec = root_of(param, task);

    snprintf(info->param, sizeof info->param, "%s", param->name);
    pd_slot_name(&spec, info->root, sizeof info->root);
    info->shape = spec.shape;
    info->condition = root.condition;
    info->error = root.error;
    info->kept_error = kept_error(param, task);
    info->age = (uint64_t)(pd_optim_count(param->optim) - root.count);
    info->ms = root.ms;
    info->adopted = (uint64_t)root.adopted;
    info->failed = (uint64_t)root.failed;
    info->failing = root.failing;
}

void pd_roots_of_param(pd_param_info *info, const pd_param *param)
{
    pd_root_stats stats = pd_optim_root_stats(param->optim);

    info->roots = count_roots(param);
    info->roots_failed = (uint64_t)stats.failed;
    info->root_waits = (uint64_t)stats.waits;
    for (size_t i = 0; i < info->roots; i++) {
        pd_root_state root = pd_optim_root(param->optim, i);
        double kept = kept_error(param, i), error = kept < 0 ? root.error : kept;
        info->roots_failing += root.failing;
        if (isfinite(error) && error > info->root_error) info->root_error = error;
    }
}
