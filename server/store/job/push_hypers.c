/* push_hypers.c - reads the hyperparameters that a push brings, compares them with those of other ranks, and keeps
 * them for the round that the push contributes to. */
#include "push_hypers.h"

#include "fixed_hyper.h"
#include "override.h"
#include "schedule.h"

#include <stdlib.h>

static int cannot_be_sent(const pd_optimizer_ops *row, const char *fixed, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s is fixed while the job runs: it cannot be sent with a push",
                   fixed, pd_optimizer_name(row));
}

static int read_hyper(pd_rule *rule, const pd_option *option, bool *known, pd_error *err)
{
    const pd_optimizer_ops *row = rule->hypers.row;
    const char *fixed;
    uint64_t mask = 0;
    pd_error why;
    int rc;

    if ((fixed = pd_fixed_hyper(row, pd_hypers_bits(row, option->name))) != NULL)
        return cannot_be_sent(row, fixed, err);
    if (pd_schedule_is_text(option->value))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s: a push brings a plain value, not a schedule: \"%.64s\"",
                       option->name, pd_optimizer_name(row), option->value);
    rc = pd_hypers_set_which(&rule->pushed, option->name, option->value, &mask, &why);
    /* That this optimizer lacks the hyperparameter is no error yet: the optimizer of another parameter may have this
     * hyperparameter. */
    if (rc == PD_NOT_FOUND) return PD_OK;
    *known = true;
    if (rc != PD_OK) return pd_fail(err, PD_INVALID_ARGUMENT, "%.400s", why.text);
    if ((fixed = pd_fixed_hyper(row, mask)) != NULL) return cannot_be_sent(row, fixed, err);
    if ((rule->pushed_mask & mask) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.64s of %s stands twice in one push: give it one value",
                       option->name, pd_optimizer_name(row));
    rule->pushed_mask |= mask;
    return PD_OK;
}

/* Reads the hyperparameters that a frame brings into an optimizer rule. Does nothing if the rule has read this
 * frame before. *known gets bit i if the rule's optimizer has hyperparameter i of the frame. */
static int read_hypers(pd_rule *rule, const pd_request *frame, uint64_t number, uint64_t *known, pd_error *err)
{
    if (rule->pushed_by == number) return PD_OK;
    rule->pushed_by = number;
    rule->pushed_mask = 0;
    rule->pushed = rule->hypers;
    for (size_t i = 0; i < frame->u.data.n_hypers; i++) {
        bool has = false;
        int rc = read_hyper(rule, &frame->u.data.hypers[i], &has, err);
        if (rc != PD_OK) return rc;
        if (has) *known |= (uint64_t)1 << i;
    }
    return PD_OK;
}

/* Checks that the hyperparameters which a push brings have the values that other ranks have sent for the same round.
 * PD_INVALID_ARGUMENT. */
static int compare_hypers(const pd_param *param, uint32_t rank, pd_error *err)
{
    const pd_pushed *before = param->pushed;
    const pd_rule *rule = param->rule;
    size_t count;
    const pd_hyper *hypers = pd_optimizer_hypers(rule->hypers.row, &count);
    uint64_t both = before->mask & rule->pushed_mask;
    char a[64], b[64];

    for (int h = 0; both != 0; h++, both >>= 1) {
        if ((both & 1) == 0 || before->hypers.value[h] == rule->pushed.value[h]) continue;
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%.160s: rank %u sent %s = %s for step %llu, rank %u sends %s: all "
                       "ranks of a round send the same",
                       param->name, before->rank[h], hypers[h].name, pd_hypers_text(&before->hypers, h, a, sizeof a),
                       (unsigned long long)param->saved.step + 1, rank, pd_hypers_text(&rule->pushed, h, b, sizeof b));
    }
    return PD_OK;
}

/* Returns the hyperparameters that the parameter's next step would use without overrides: the declared or scheduled
 * values, replaced by values that earlier pushes of the round sent, and by those of this push. */
static pd_hypers merged_hypers(const pd_param *param)
{
    const pd_hypers *declared = &param->rule->hypers;
    pd_hypers merged = { .row = declared->row };

    pd_hypers_at(declared, pd_optim_count(param->optim), merged.value);
    for (int h = 0; h < PD_MAX_HYPERS; h++) {
        if (param->pushed->mask >> h & 1) merged.value[h] = param->pushed->hypers.value[h];
        if (param->rule->pushed_mask >> h & 1) merged.value[h] = param->rule->pushed.value[h];
    }
    return merged;
}

int pd_push_hypers_check(pd_param *param, const pd_request *frame, uint64_t number, uint64_t *known, pd_error *err)
{
    pd_error why;
    pd_hypers merged;
    int rc = read_hypers(param->rule, frame, number, known, err);

    if (rc != PD_OK || param->rule->pushed_mask == 0 ||
        pd_param_admit(param, frame->rank, frame->u.data.step) != PD_ADMIT_NEW)
        return rc;
    if (param->pushed == NULL && (param->pushed = calloc(1, sizeof *param->pushed)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "%.160s: out of memory for pushed hyperparameters", param->name);
    if ((rc = compare_hypers(param, frame->rank, err)) != PD_OK) return rc;
    merged = merged_hypers(param);
    /* An operator's override takes precedence over a value that is sent with a push. */
    pd_overrides_next(param, merged.value);
    if (pd_hypers_check_step(&param->rule->hypers, &merged, &why) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: %.300s", param->name, why.text);
    return PD_OK;
}

void pd_push_hypers_keep(pd_param *param, uint32_t rank)
{
    uint64_t news = param->rule->pushed_mask;

    if (news == 0) return;
    param->pushed->hypers = merged_hypers(param);
    for (int h = 0; h < PD_MAX_HYPERS; h++)
        if ((news & ~param->pushed->mask) >> h & 1) param->pushed->rank[h] = rank;
    param->pushed->mask |= news;
}

int pd_push_hypers_all_known(const pd_request *frame, uint64_t known, pd_error *err)
{
    for (size_t i = 0; i < frame->u.data.n_hypers; i++)
        if ((known >> i & 1) == 0)
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "no optimizer of this push's parameters has a hyperparameter "
                           "%.64s",
                           frame->u.data.hypers[i].name);
    return PD_OK;
}
