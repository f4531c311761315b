/* override_values.c - reads the values of an operator's command, checks the values that a parameter would then have at
 * each later step at which they change, and describes the changes. */
#include "override_values.h"

#include "job.h"
#include "schedule.h"

#include <stdio.h>
#include <string.h>

/* Reads one value of the command into the override. An empty value withdraws earlier overrides of the hyperparameter.
 * Sets in *mask the bits of the hyperparameters that the option names. PD_NOT_FOUND: the optimizer has none of this
 * name. */
static int read_value(pd_override *override, const pd_option *option, uint64_t *mask, pd_error *err)
{
    if (option->value[0] == '\0' && (*mask = pd_hypers_bits(override->hypers.row, option->name)) != 0) {
        override->withdrawn |= *mask;
        return PD_OK;
    }
    return pd_hypers_set_which(&override->hypers, option->name, option->value, mask, err);
}

static int read_option(const pd_request *request, pd_override *override, size_t i, uint64_t *known, pd_error *err)
{
    const pd_option *option = &request->u.set.options[i];
    const char *fixed, *row = pd_optimizer_name(override->hypers.row);
    uint64_t mask = 0;
    int rc = read_value(override, option, &mask, err);

    /* Not an error: the optimizer of another rule may have this hyperparameter. */
    if (rc == PD_NOT_FOUND) return PD_OK;
    *known |= (uint64_t)1 << i;
    if (rc != PD_OK) return rc;
    if ((fixed = pd_fixed_hyper(override->hypers.row, mask)) != NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s is fixed while the job runs", fixed, row);
    if ((override->mask & mask) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.64s of %s is set twice", option->name, row);
    override->mask |= mask;
    return PD_OK;
}

/* Returns whether the override only withdraws earlier ones, from the next step on. Then no parameter stores it. */
static bool is_gone_at_once(const pd_request *request, const pd_override *override)
{
    return override->mask == override->withdrawn && request->u.set.from_step == 0;
}

int pd_override_read(pd_override_reading *r, pd_job *job, const pd_request *request, const pd_param *param,
                     uint64_t *known, pd_error *err)
{
    pd_error why;

    if (r->override != NULL) return PD_OK;
    r->override =
        pd_override_new(&param->rule->hypers, request->u.set.pattern, request->u.set.by, &job->counts.overrides);
    if (r->override == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for a setting");
    for (size_t i = 0; i < request->u.set.n; i++) {
        int rc = read_option(request, r->override, i, known, &why);
        if (rc != PD_OK) return pd_fail(err, rc, "%.160s: %.330s", param->name, why.text);
    }
    if (job->counts.overrides <= PD_MAX_JOB_OVERRIDES || is_gone_at_once(request, r->override)) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s has %d settings: withdraw some", job->steps.name,
                   PD_MAX_JOB_OVERRIDES);
}

/* Returns the hyperparameters that hyperparameter h of the parameter takes its value from: those of an override, or
 * those of the optimizer rule. */
static const pd_hypers *source_of(const pd_override_state *at, const pd_param *param, int h)
{
    return at->from[h] != NULL ? &at->from[h]->hypers : &param->rule->hypers;
}

/* Estimated nanoseconds to merge values, and more for each byte of a schedule; to check values at a step, and more for
 * each schedule. */
#define MERGE_NS 500.0
#define LETTER_NS 20.0
#define CHECK_NS 200.0
#define SCHEDULE_NS 50.0

static int set_from(pd_hypers *merged, const pd_override *override, int h, pd_error *err)
{
    size_t count;

    if ((override->hypers.scheduled >> h & 1) != 0)
        return pd_hypers_set(merged, pd_optimizer_hypers(merged->row, &count)[h].name,
                             pd_hypers_text(&override->hypers, h, NULL, 0), err);
    merged->value[h] = override->hypers.value[h];
    merged->scheduled &= ~((uint64_t)1 << h);
    return PD_OK;
}

static int check_at(pd_override_reading *r, const pd_hypers *declared, int64_t count, pd_error *err)
{
    pd_hypers now = { .row = r->merged.row };

    r->cost_ns += CHECK_NS + SCHEDULE_NS * __builtin_popcountll(r->merged.scheduled);
    pd_hypers_at(&r->merged, count, now.value);
    return pd_hypers_check_step(declared, &now, err);
}

/* Checks that the values in r->merged are valid at step `count` and at every later step at which one of their schedules
 * changes. Skips steps for which the same values were checked before. PD_INVALID_ARGUMENT. */
static int check_course(pd_override_reading *r, const pd_hypers *declared, int64_t count, pd_error *err)
{
    int64_t corner;
    int rc = check_at(r, declared, count, err);

    for (const pd_schedule *s = r->merged.schedules; s != NULL && rc == PD_OK && count < r->count; s = s->next)
        for (size_t i = 0;
             rc == PD_OK && (r->merged.scheduled >> s->index & 1) != 0 && pd_schedule_corner(s, i, &corner); i++)
            if (corner > count && corner <= r->count) rc = check_at(r, declared, corner, err);
    if (count < r->count) r->count = count;
    return rc;
}

/* Checks that the values in r->merged are valid together with the hyperparameters that pushes have brought for the open
 * round. A pushed value replaces that of each hyperparameter without an override. PD_INVALID_ARGUMENT. */
static int check_pushed(const pd_override_reading *r, const pd_param *param, int64_t count, pd_error *err)
{
    pd_hypers pushed = { .row = r->merged.row };

    pd_hypers_at(&r->merged, count, pushed.value);
    for (int h = 0; h < PD_MAX_HYPERS; h++)
        if ((param->pushed->mask >> h & 1) != 0 && r->checked.from[h] == NULL)
            pushed.value[h] = param->pushed->hypers.value[h];
    return pd_hypers_check_step(&param->rule->hypers, &pushed, err);
}

/* Fills r->merged with the values from the overrides in *now and, where there are none, from the declared optimizer
 * rule. Does nothing if r->merged has these values already. */
static int merge(pd_override_reading *r, const pd_hypers *declared, const pd_override_state *now, pd_error *err)
{
    int rc = PD_OK;

    if (r->merged.row != NULL && memcmp(now, &r->checked, sizeof *now) == 0) return PD_OK;
    pd_hypers_free(&r->merged);
    r->merged = *declared;
    r->checked = *now;
    r->count = INT64_MAX;
    r->cost_ns += MERGE_NS;
    for (int h = 0; h < PD_MAX_HYPERS && rc == PD_OK; h++) {
        if (now->from[h] == NULL) continue;
        rc = set_from(&r->merged, now->from[h], h, err);
        if ((r->merged.scheduled >> h & 1) != 0)
            r->cost_ns += LETTER_NS * (double)strlen(pd_hypers_text(&now->from[h]->hypers, h, NULL, 0));
    }
    return rc;
}

static int check_state(pd_override_reading *r, const pd_param *param, const pd_override_state *now, bool with_pushed,
                       pd_error *err)
{
    int64_t count = pd_optim_count(param->optim);
    int rc = merge(r, &param->rule->hypers, now, err);

    if (rc == PD_OK) rc = check_course(r, &param->rule->hypers, count, err);
    return rc == PD_OK && with_pushed ? check_pushed(r, param, count, err) : rc;
}

void pd_override_state_at(pd_override_state *out, const pd_override_entry *entries, uint32_t n, uint64_t step)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < n && entries[i].from <= step; i++)
        for (int h = 0; h < PD_MAX_HYPERS; h++)
            if ((entries[i].mask >> h & 1) != 0)
                out->from[h] = (entries[i].override->withdrawn >> h & 1) != 0 ? NULL : entries[i].override;
}

int pd_override_check(pd_override_reading *r, const pd_param *param, pd_override_entry added, pd_error *err)
{
    pd_override_entry entries[PD_MAX_PARAM_OVERRIDES + 1];
    pd_override_state now;
    uint32_t n, left = 0;
    int rc = PD_OK;

    for (uint32_t i = 0; i < param->overrides.n; i++) entries[i] = param->overrides.at[i];
    n = pd_overrides_insert(entries, param->overrides.n, added);
    for (uint32_t i = 0; i < n; i++) left += entries[i].mask != 0;
    if (left > PD_MAX_PARAM_OVERRIDES)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "it has %d settings, in force or planned: withdraw some",
                       PD_MAX_PARAM_OVERRIDES);
    for (uint32_t i = 0; i < n && rc == PD_OK; i++) {
        bool pushed = entries[i].from == param->saved.step + 1 && param->pushed != NULL && param->pushed->mask != 0;
        if (entries[i].from < added.from) continue;
        pd_override_state_at(&now, entries, n, entries[i].from);
        rc = check_state(r, param, &now, pushed, err);
    }
    return rc;
}

/* Compares the parameter's value before the change with the former value that the change shows, that of its first
 * parameter. If they differ, marks the change as mixed. Most parameters have the same overrides, so a text from the
 * same values is not written again. */
static void compare_before(pd_set_change *change, pd_override_shown *last, const pd_param *param,
                           const pd_hypers *before, int h)
{
    int64_t count = (before->scheduled >> h & 1) != 0 ? pd_optim_count(param->optim) : 0;
    char text[sizeof change->before];

    if (last->hypers != before || last->count != count) {
        pd_overrides_text_at(before, h, pd_optim_count(param->optim), text, sizeof text);
        if (change->params == 0) memcpy(change->before, text, sizeof text);
        *last = (pd_override_shown){ before, count, strcmp(change->before, text) == 0 };
    }
    if (!last->same) change->mixed = true;
}

void pd_override_add_change(pd_set_change *change, pd_override_shown *last, const pd_param *param,
                            const pd_override_state *before, pd_override_entry added, int h)
{
    const pd_hypers *hypers = &added.override->hypers;

    compare_before(change, last, param, source_of(before, param, h), h);
    if (change->params == 0) {
        size_t count;
        snprintf(change->optimizer, sizeof change->optimizer, "%s", pd_optimizer_name(hypers->row));
        snprintf(change->name, sizeof change->name, "%s", pd_optimizer_hypers(hypers->row, &count)[h].name);
        pd_overrides_text_at(hypers, h, pd_optim_count(param->optim), change->value, sizeof change->value);
        change->withdrawn = (added.override->withdrawn >> h & 1) != 0;
        change->from_least = change->from_most = added.from;
    }
    if (added.from < change->from_least) change->from_least = added.from;
    if (added.from > change->from_most) change->from_most = added.from;
    change->params++;
}
