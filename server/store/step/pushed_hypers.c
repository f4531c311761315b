/* pushed_hypers.c - reads, checks and keeps hyperparameters that are sent with pushes. */
#include "pushed_hypers.h"

#include "mutant.h"

#include "fragment_ranks.h"
#include "override.h"
#include "schedule.h"

#include <stdlib.h>
#include <string.h>

/* What one rank has sent with its push. */
typedef struct pd_pushed_row {
    uint64_t mask; /* bit h: hyperparameter h was sent */
    double value[PD_MAX_HYPERS];
} pd_pushed_row;

/* ---- reading ---- */

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
    /* Not an error yet: the optimizer of another parameter may have this hyperparameter (pd_pushed_check_known). */
    if (rc == PD_NOT_FOUND) return PD_OK;
    *known = true;
    if (rc != PD_OK) return pd_fail(err, PD_INVALID_ARGUMENT, "%.400s", why.text);
    if ((fixed = pd_fixed_hyper(row, mask)) != NULL) return cannot_be_sent(row, fixed, err);
    if ((rule->pushed_mask & mask) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.64s of %s is in the push twice", option->name,
                       pd_optimizer_name(row));
    rule->pushed_mask |= mask;
    return PD_OK;
}

/* Reads the hyperparameters of a frame into rule->pushed. Does nothing if the rule has read frame `number` already.
 * Sets bit i of *known if the rule's optimizer has hyperparameter i of the frame. */
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

static bool some_rule_has(const pd_steps *steps, const char *name)
{
    for (size_t i = 0; i < steps->n_rules; i++)
        if (pd_hypers_bits(steps->rules[i].hypers.row, name) != 0) return true;
    return false;
}

int pd_pushed_check_known(const pd_steps *steps, const pd_request *frame, uint64_t known, pd_error *err)
{
    for (size_t i = 0; i < frame->u.data.n_hypers; i++)
        if ((known >> i & 1) == 0 && !some_rule_has(steps, frame->u.data.hypers[i].name))
            return pd_fail(err, PD_INVALID_ARGUMENT, "no optimizer of job %.100s has a hyperparameter %.64s",
                           steps->name, frame->u.data.hypers[i].name);
    return PD_OK;
}

/* ---- memory ---- */

static int make_rows(pd_steps *steps, pd_param *param, pd_error *err)
{
    uint64_t bytes = steps->members.ranks * sizeof(pd_pushed_row);
    const pd_budget *budget = pd_account_budget(&steps->account, bytes);

    if (!pd_budget_fits(budget, bytes))
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%.160s: pushed hyperparameters need %llu bytes; of %llu allowed for %.100s, %llu are in use "
                       "(%s)",
                       param->name, (unsigned long long)bytes, (unsigned long long)budget->limit, budget->whose,
                       (unsigned long long)budget->used, budget->key);
    if ((param->pushed->rows = calloc(steps->members.ranks, sizeof(pd_pushed_row))) == NULL) return PD_NO_MEMORY;
    pd_account_take(&steps->account, bytes);
    return PD_OK;
}

/* Allocates memory for the hyperparameters of pushes, if the parameter has none. */
static int make_room(pd_steps *steps, pd_param *param, pd_error *err)
{
    int rc = PD_OK;

    if (param->pushed == NULL && (param->pushed = calloc(1, sizeof *param->pushed)) == NULL) rc = PD_NO_MEMORY;
    if (rc == PD_OK && param->round.together && param->pushed->rows == NULL) rc = make_rows(steps, param, err);
    return rc == PD_NO_MEMORY ? pd_fail(err, rc, "%.160s: out of memory for pushed hyperparameters", param->name) : rc;
}

void pd_pushed_free(pd_pushed *pushed)
{
    if (pushed == NULL) return;
    free(pushed->rows);
    free(pushed);
}

/* ---- checks ---- */

/* Says that hyperparameter h has the value `before` in the push of rank `other`, and another one in this push. */
static int differs(const pd_param *param, uint32_t other, const pd_hypers *before, int h, uint32_t rank, uint64_t step,
                   pd_error *err)
{
    size_t count;
    const pd_hyper *hypers = pd_optimizer_hypers(param->rule->hypers.row, &count);
    char a[64], b[64];

    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%.160s: rank %u sent %s = %s for step %llu, rank %u sends %s: all ranks of a round send the same",
                   param->name, other, hypers[h].name, pd_hypers_text(before, h, a, sizeof a), (unsigned long long)step,
                   rank, pd_hypers_text(&param->rule->pushed, h, b, sizeof b));
}

/* Checks that the hyperparameters of a push have the values that were sent for the same round before: by any rank or,
 * if they are kept by rank, by this one. PD_INVALID_ARGUMENT: a value differs. */
static int compare(const pd_param *param, const pd_request *frame, pd_error *err)
{
    const pd_rule *rule = param->rule;
    const pd_pushed *pushed = param->pushed;
    const pd_pushed_row *row = pushed->rows != NULL ? &pushed->rows[frame->rank] : NULL;
    uint64_t both = (row != NULL ? row->mask : pushed->mask) & rule->pushed_mask;
    pd_hypers before = pushed->hypers;

    if (row != NULL) {
        before.row = rule->hypers.row;
        memcpy(before.value, row->value, sizeof before.value);
    }
    for (int h = 0; both != 0; h++, both >>= 1)
        if ((both & 1) != 0 && before.value[h] != rule->pushed.value[h])
            return differs(param, row != NULL ? frame->rank : pushed->rank[h], &before, h, frame->rank,
                           frame->u.data.step, err);
    return PD_OK;
}

static void overlay(pd_hypers *hypers, const double *value, uint64_t mask)
{
    for (int h = 0; h < PD_MAX_HYPERS; h++)
        if (mask >> h & 1) hypers->value[h] = value[h];
}

/* Returns the hyperparameters that the parameter's next step would use without overrides: the declared or scheduled
 * values, except where the open round has a pushed value. */
static pd_hypers present(const pd_param *param)
{
    const pd_hypers *declared = &param->rule->hypers;
    pd_hypers hypers = { .row = declared->row };

    pd_hypers_at(declared, pd_optim_count(param->optim), hypers.value);
    overlay(&hypers, param->pushed->hypers.value, param->pushed->mask);
    return hypers;
}

/* Returns these hyperparameters with the values of the push that was read last. */
static pd_hypers with_push(const pd_param *param)
{
    pd_hypers hypers = present(param);

    overlay(&hypers, param->rule->pushed.value, param->rule->pushed_mask);
    return hypers;
}

static int check_together(const pd_param *param, pd_hypers merged, pd_error *err)
{
    pd_error why;

    /* An operator's override takes precedence over a pushed value. */
    pd_overrides_next(param, merged.value);
    if (pd_hypers_check_step(&param->rule->hypers, &merged, &why) == PD_OK) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: %.300s", param->name, why.text);
}

int pd_pushed_check(pd_steps *steps, pd_param *param, const pd_request *frame, uint64_t number, uint64_t *known,
                    pd_error *err)
{
    int rc = read_hypers(param->rule, frame, number, known, err);

    if (rc != PD_OK || param->rule->pushed_mask == 0 ||
        pd_param_admit(steps, param, frame->rank, frame->u.data.step) != PD_ADMIT_NEW)
        return rc;
    if ((rc = make_room(steps, param, err)) != PD_OK) return rc;
    if ((rc = compare(param, frame, err)) != PD_OK) return rc;
    return check_together(param, with_push(param), err);
}

/* ---- keeping ---- */

static void keep_row(pd_pushed_row *row, const pd_rule *rule)
{
    for (int h = 0; h < PD_MAX_HYPERS; h++)
        if (rule->pushed_mask >> h & 1) row->value[h] = rule->pushed.value[h];
    row->mask |= rule->pushed_mask;
}

void pd_pushed_keep(pd_param *param, uint32_t rank)
{
    uint64_t news = param->rule->pushed_mask;

    if (news == 0) return;
    if (param->pushed->rows != NULL) {
        keep_row(&param->pushed->rows[rank], param->rule);
        return;
    }
    param->pushed->hypers = with_push(param);
    for (int h = 0; h < PD_MAX_HYPERS; h++)
        if ((news & ~param->pushed->mask) >> h & 1) param->pushed->rank[h] = rank;
    param->pushed->mask |= news;
}

static void say_left_out(const pd_steps *steps, uint32_t rank, uint64_t step, const pd_error *why)
{
    pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &step, .code = why->code },
           "hyperparameters that rank %u has pushed are not used in step %llu: %.300s", rank, (unsigned long long)step,
           why->text);
}

/* Takes those values of a rank that no lower rank has sent. */
static void take(const pd_steps *steps, pd_param *param, uint32_t rank)
{
    const pd_pushed_row *row = &param->pushed->rows[rank];
    uint64_t news = row->mask & ~param->pushed->mask;
    pd_hypers hypers = present(param);
    pd_error why;

    if (news == 0) return;
    overlay(&hypers, row->value, news);
    if (check_together(param, hypers, &why) != PD_OK) {
        say_left_out(steps, rank, param->saved.step + 1, &why);
        return;
    }
    param->pushed->hypers = hypers;
    for (int h = 0; h < PD_MAX_HYPERS; h++)
        if (news >> h & 1) param->pushed->rank[h] = rank;
    param->pushed->mask |= news;
}

void pd_pushed_fixed(const pd_steps *steps, pd_param *param)
{
    if (param->pushed == NULL || param->pushed->rows == NULL) return;
    for (uint32_t rank = 0; rank < pd_round_ranks(&param->round); rank++)
        if (pd_round_counts(&param->round, rank) || PD_MUTANT(hyper_of_excluded)) take(steps, param, rank);
}

void pd_pushed_forget(pd_param *param, uint32_t rank)
{
    if (param->pushed != NULL && param->pushed->rows != NULL) param->pushed->rows[rank].mask = 0;
}

void pd_pushed_close(pd_param *param)
{
    if (param->pushed == NULL) return;
    param->pushed->mask = 0;
    for (uint32_t rank = 0; param->pushed->rows != NULL && rank < pd_round_ranks(&param->round); rank++)
        if (pd_round_counts(&param->round, rank)) param->pushed->rows[rank].mask = 0;
}
