/* override_command.c - handles an operator's command that sets hyperparameters of a job's parameters from a step on.
 * The command is checked as a whole, then applied as a whole.
 *
 * For each rule (which gives its parameters one optimizer), the command's values are read once, into a pd_override
 * that the rule's parameters share. Then, for each parameter, every combination of values is checked that it would
 * have at any later step. Only if all checks pass, the override is added to all parameters. */
#include "override_command.h"

#include "control.h"
#include "control_keeping.h"
#include "fixed_hyper.h"
#include "keeping.h"
#include "override.h"
#include "set_record.h"

#include "glob.h"
#include "printable.h"
#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAID = 16 }; /* most lines that one command writes to the log */

/* For each hyperparameter the override (an operator's command) that gives its value at some step. NULL: no override
 * does, so the value is the declared one of the optimizer rule. */
typedef struct state {
    const pd_override *from[PD_MAX_HYPERS];
} state;

/* One operator's command, as it applies to the parameters of one optimizer rule (a line by which the job gives
 * parameters their optimizer), and the values that were checked last for such a parameter. */
typedef struct reading {
    /* the command's values for the optimizer of this rule; NULL: the command matches no parameter to which the rule
     * applies */
    pd_override *override;
    /* index in result->at of the first change that the command makes to parameters of this optimizer rule */
    size_t first;
    /* For each value in `merged` the override (operator's command) that it came from. Most parameters of an optimizer
     * rule have the same overrides, so the same values need not be checked again. */
    state checked;
    /* Hyperparameters of this rule's optimizer, with the values that were checked last. `row`, which names the
     * optimizer, is NULL if no values were checked yet. */
    pd_hypers merged;
    /* first step for which the values in `merged` were checked; INT64_MAX: they were not checked for any step yet */
    int64_t count;
} reading;

typedef struct command {
    pd_job *job;
    pd_request *request;
    pd_param **params;
    uint32_t n; /* number of entries in `params`, which are the parameters that the command's pattern matches */
    /* how the command applies to the parameters of each optimizer rule, by the rule's index in the job */
    reading *readings;
    pd_set_result *result;
    uint64_t known; /* bit i: hyperparameter i of the command exists in the optimizer of some rule of the job */
} command;

static reading *reading_of(const command *c, const pd_param *param)
{
    return &c->readings[param->rule - c->job->steps.rules];
}

/* Returns the number of the first step that the parameter has not begun yet. */
static uint64_t next_step(const pd_param *param)
{
    return param->saved.step + (param->stage >= PD_BEGUN ? 2 : 1);
}

/* ---- which parameters the pattern matches ---- */

static size_t common_length(const char *a, const char *b)
{
    size_t n = 0;

    while (a[n] != '\0' && a[n] == b[n]) n++;
    return n;
}

static int none_matches(const pd_job *job, const char *pattern, pd_error *err)
{
    const pd_param *nearest = job->steps.params;

    if (job->steps.n_params == 0)
        return pd_fail(err, PD_NOT_FOUND, "job %.100s has no parameters yet: its workers have not declared them",
                       job->steps.name);
    for (uint32_t i = 1; i < job->steps.n_params; i++)
        if (common_length(job->steps.params[i].name, pattern) > common_length(nearest->name, pattern))
            nearest = &job->steps.params[i];
    return pd_fail(err, PD_NOT_FOUND,
                   "no parameter of job %.100s matches \"%.100s\"; it has %u, the nearest is %.160s "
                   "(`paramctl params %.256s` lists them)",
                   job->steps.name, pattern, job->steps.n_params, nearest->name, job->steps.name);
}

static int find_params(command *c, pd_error *err)
{
    const char *pattern = c->request->u.set.pattern;

    for (uint32_t i = 0; i < c->job->steps.n_params; i++)
        if (pd_glob_match(pattern, c->job->steps.params[i].name)) c->params[c->n++] = &c->job->steps.params[i];
    return c->n > 0 ? PD_OK : none_matches(c->job, pattern, err);
}

/* ---- reading the command's values for a rule ---- */

/* Reads one value of the command into the override. An empty value withdraws earlier overrides of the hyperparameter.
 * *mask gets the bits of the hyperparameters that it names. */
static int read_value(pd_override *override, const pd_option *option, uint64_t *mask, pd_error *err)
{
    if (option->value[0] == '\0' && (*mask = pd_hypers_bits(override->hypers.row, option->name)) != 0) {
        override->withdrawn |= *mask;
        return PD_OK;
    }
    return pd_hypers_set_which(&override->hypers, option->name, option->value, mask, err);
}

static int read_option(command *c, pd_override *override, size_t i, pd_error *err)
{
    const pd_option *option = &c->request->u.set.options[i];
    const char *fixed, *row = pd_row_name(override->hypers.row);
    uint64_t mask = 0;
    int rc = read_value(override, option, &mask, err);

    /* That this optimizer lacks the hyperparameter is no error: the optimizer of another rule may have this
     * hyperparameter. */
    if (rc == PD_NOT_FOUND) return PD_OK;
    c->known |= (uint64_t)1 << i;
    if (rc != PD_OK) return rc;
    if ((fixed = pd_fixed_hyper(override->hypers.row, mask)) != NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s is fixed while the job runs", fixed, row);
    if ((override->mask & mask) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.64s of %s is set twice", option->name, row);
    override->mask |= mask;
    return PD_OK;
}

/* Returns whether the override (an operator's command) does nothing but withdraw earlier ones, from the next step on.
 * Then no parameter stores it. */
static bool is_gone_at_once(const command *c, const pd_override *override)
{
    return override->mask == override->withdrawn && c->request->u.set.from_step == 0;
}

static int read_for(command *c, const pd_param *param, pd_error *err)
{
    reading *r = reading_of(c, param);
    pd_error why;

    if (r->override != NULL) return PD_OK;
    r->override =
        pd_override_new(&param->rule->hypers, c->request->u.set.pattern, c->request->u.set.by, &c->job->n_overrides);
    if (r->override == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for a setting");
    for (size_t i = 0; i < c->request->u.set.n; i++) {
        int rc = read_option(c, r->override, i, &why);
        if (rc != PD_OK) return pd_fail(err, rc, "%.160s: %.330s", param->name, why.text);
    }
    if (c->job->n_overrides <= PD_MAX_JOB_OVERRIDES || is_gone_at_once(c, r->override)) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s has %d settings: withdraw some", c->job->steps.name,
                   PD_MAX_JOB_OVERRIDES);
}

/* Refuses hyperparameter i of the command, which no optimizer of the matched parameters has. The error text is that
 * of the first parameter's optimizer. */
static int nobody_has(const command *c, size_t i, pd_error *err)
{
    pd_hypers hypers = c->params[0]->rule->hypers;
    uint64_t mask = 0;
    pd_error why = { 0 };

    pd_hypers_set_which(&hypers, c->request->u.set.options[i].name, "", &mask, &why);
    return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: %.330s", c->params[0]->name, why.text);
}

static int read_options(command *c, pd_error *err)
{
    for (uint32_t i = 0; i < c->n; i++) {
        int rc = read_for(c, c->params[i], err);
        if (rc != PD_OK) return rc;
    }
    for (size_t i = 0; i < c->request->u.set.n; i++)
        if ((c->known >> i & 1) == 0) return nobody_has(c, i, err);
    return PD_OK;
}

/* ---- checking the values that would apply ---- */

static int set_from(pd_hypers *merged, const pd_override *override, int h, pd_error *err)
{
    size_t count;

    if ((override->hypers.scheduled >> h & 1) != 0)
        return pd_hypers_set(merged, pd_row_hypers(merged->row, &count)[h].name,
                             pd_hypers_text(&override->hypers, h, NULL, 0), err);
    merged->value[h] = override->hypers.value[h];
    merged->scheduled &= ~((uint64_t)1 << h);
    return PD_OK;
}

static int check_at(const pd_hypers *declared, const pd_hypers *merged, int64_t count, pd_error *err)
{
    pd_hypers now = { .row = merged->row };

    pd_hypers_at(merged, count, now.value);
    return pd_hypers_check_step(declared, &now, err);
}

/* Checks that the values in r->merged are valid now, and at every later step at which one of their schedules changes.
 * Steps for which the same values were checked before are skipped. */
static int check_course(reading *r, const pd_hypers *declared, int64_t count, pd_error *err)
{
    int64_t corner;
    int rc = check_at(declared, &r->merged, count, err);

    for (const pd_schedule *s = r->merged.schedules; s != NULL && rc == PD_OK && count < r->count; s = s->next)
        for (size_t i = 0;
             rc == PD_OK && (r->merged.scheduled >> s->index & 1) != 0 && pd_schedule_corner(s, i, &corner); i++)
            if (corner > count && corner <= r->count) rc = check_at(declared, &r->merged, corner, err);
    if (count < r->count) r->count = count;
    return rc;
}

/* Checks that the values are valid together with hyperparameters that workers have sent with pushes of the open
 * round. A pushed value applies to each hyperparameter for which there is no override. */
static int check_pushed(const reading *r, const pd_param *param, int64_t count, pd_error *err)
{
    pd_hypers pushed = { .row = r->merged.row };

    pd_hypers_at(&r->merged, count, pushed.value);
    for (int h = 0; h < PD_MAX_HYPERS; h++)
        if ((param->pushed->mask >> h & 1) != 0 && r->checked.from[h] == NULL)
            pushed.value[h] = param->pushed->hypers.value[h];
    return pd_hypers_check_step(&param->rule->hypers, &pushed, err);
}

/* Fills r->merged with the values that come from the overrides (operators' values) in *now and from the declared
 * optimizer rule. Does nothing if r->merged has these values already. */
static int merge(reading *r, const pd_hypers *declared, const state *now, pd_error *err)
{
    int rc = PD_OK;

    if (r->merged.row != NULL && memcmp(now, &r->checked, sizeof *now) == 0) return PD_OK;
    pd_hypers_free(&r->merged);
    r->merged = *declared;
    r->checked = *now;
    r->count = INT64_MAX;
    for (int h = 0; h < PD_MAX_HYPERS && rc == PD_OK; h++)
        if (now->from[h] != NULL) rc = set_from(&r->merged, now->from[h], h, err);
    return rc;
}

static int check_state(reading *r, const pd_param *param, const state *now, bool with_pushed, pd_error *err)
{
    int64_t count = pd_optim_count(param->optim);
    int rc = merge(r, &param->rule->hypers, now, err);

    if (rc == PD_OK) rc = check_course(r, &param->rule->hypers, count, err);
    return rc == PD_OK && with_pushed ? check_pushed(r, param, count, err) : rc;
}

static void state_at(state *out, const pd_override_entry *entries, uint32_t n, uint64_t step)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < n && entries[i].from <= step; i++)
        for (int h = 0; h < PD_MAX_HYPERS; h++)
            if ((entries[i].mask >> h & 1) != 0)
                out->from[h] = (entries[i].override->withdrawn >> h & 1) != 0 ? NULL : entries[i].override;
}

/* Checks every combination of values that the parameter will have from the first step of `added` on, in case this
 * override is added. Overrides that are planned for later steps are included. */
static int check_param(command *c, const pd_param *param, pd_override_entry added, pd_error *err)
{
    pd_override_entry entries[PD_MAX_PARAM_OVERRIDES + 1];
    state now;
    uint32_t n, left = 0;
    int rc = PD_OK;

    for (uint32_t i = 0; i < param->n_overrides; i++) entries[i] = param->overrides[i];
    n = pd_overrides_insert(entries, param->n_overrides, added);
    for (uint32_t i = 0; i < n; i++) left += entries[i].mask != 0;
    if (left > PD_MAX_PARAM_OVERRIDES)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "it has %d settings, in force or planned: withdraw some",
                       PD_MAX_PARAM_OVERRIDES);
    for (uint32_t i = 0; i < n && rc == PD_OK; i++) {
        bool pushed = entries[i].from == param->saved.step + 1 && param->pushed != NULL && param->pushed->mask != 0;
        if (entries[i].from < added.from) continue;
        state_at(&now, entries, n, entries[i].from);
        rc = check_state(reading_of(c, param), param, &now, pushed, err);
    }
    return rc;
}

/* ---- changes that the answer reports ---- */

/* Returns the entry that the command adds to the parameter's list of overrides. The entry leaves out hyperparameters
 * that the command withdraws but that have no override. */
static pd_override_entry hold_for(const command *c, const pd_param *param)
{
    pd_override *override = reading_of(c, param)->override;
    uint64_t step = c->request->u.set.from_step;

    return (pd_override_entry){ override, step > 0 ? step : next_step(param),
                                override->mask & ~(override->withdrawn & ~pd_overrides_mask(param)) };
}

static const pd_hypers *source(const state *at, const pd_param *param, int h)
{
    return at->from[h] != NULL ? &at->from[h]->hypers : &param->rule->hypers;
}

static void add_change(pd_set_change *change, const pd_param *param, pd_override_entry added, int h)
{
    state before;
    char text[sizeof change->before];
    const pd_hypers *hypers = &added.override->hypers;

    state_at(&before, param->overrides, param->n_overrides, added.from);
    pd_overrides_text_at(source(&before, param, h), h, pd_optim_count(param->optim), text, sizeof text);
    if (change->params == 0) {
        size_t count;
        snprintf(change->optimizer, sizeof change->optimizer, "%s", pd_row_name(hypers->row));
        snprintf(change->name, sizeof change->name, "%s", pd_row_hypers(hypers->row, &count)[h].name);
        memcpy(change->before, text, sizeof text);
        pd_overrides_text_at(hypers, h, pd_optim_count(param->optim), change->value, sizeof change->value);
        change->withdrawn = (added.override->withdrawn >> h & 1) != 0;
        change->from_least = change->from_most = added.from;
    }
    if (strcmp(change->before, text) != 0) change->mixed = true;
    if (added.from < change->from_least) change->from_least = added.from;
    if (added.from > change->from_most) change->from_most = added.from;
    change->params++;
}

static void add_changes(command *c, const pd_param *param, pd_override_entry added)
{
    reading *r = reading_of(c, param);
    size_t at = r->first;

    for (int h = 0; h < PD_MAX_HYPERS; h++) {
        if ((added.override->mask >> h & 1) == 0) continue;
        if ((added.mask >> h & 1) != 0 && at < c->result->n) add_change(&c->result->at[at], param, added, h);
        at++;
    }
    c->result->params++;
}

/* Allocates memory for the changes that the answer reports: one for each hyperparameter of each optimizer rule, at most
 * as many as an answer has room for. */
static int make_result(command *c, pd_error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < c->job->steps.n_rules; i++) {
        c->readings[i].first = n;
        if (c->readings[i].override != NULL) n += (size_t)__builtin_popcountll(c->readings[i].override->mask);
    }
    c->result->n = n < PD_MAX_CHANGES ? n : PD_MAX_CHANGES;
    c->result->left_off = n - c->result->n;
    c->result->at = calloc(n + 1, sizeof *c->result->at);
    return c->result->at != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory for the answer");
}

static int prepare_param(command *c, pd_param *param, pd_error *err)
{
    pd_override_entry added = hold_for(c, param);
    pd_error why;
    int rc;

    if (added.mask == 0) return PD_OK;
    if (added.from < next_step(param))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.160s: step %llu has begun or is closed; the earliest it can be "
                       "is step %llu",
                       param->name, (unsigned long long)added.from, (unsigned long long)next_step(param));
    if ((rc = pd_overrides_reserve(param, err)) != PD_OK) return rc;
    if ((rc = check_param(c, param, added, &why)) != PD_OK)
        return pd_fail(err, rc, "%.160s: %.330s", param->name, why.text);
    add_changes(c, param, added);
    return PD_OK;
}

static int prepare(command *c, pd_error *err)
{
    for (uint32_t i = 0; i < c->n; i++) {
        int rc = prepare_param(c, c->params[i], err);
        if (rc != PD_OK) return rc;
    }
    if (c->result->params > 0) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "nothing to withdraw: no operator has set this for a parameter that "
                   "matches \"%.100s\"",
                   c->request->u.set.pattern);
}

/* ---- applying the command ---- */

static void take_param(command *c, pd_param *param)
{
    pd_override_entry added = hold_for(c, param);

    if (added.mask == 0) return;
    added.override->refs++;
    if (added.from > next_step(param)) added.override->planned = true;
    param->n_overrides = pd_overrides_insert(param->overrides, param->n_overrides, added);
    c->job->steps.changes++;
    pd_overrides_settle(c->job->steps.outbox, c->job->steps.name, param);
}

static void say(const command *c, const pd_set_change *change)
{
    char last[48] = "";

    if (change->from_most > change->from_least)
        snprintf(last, sizeof last, " (the last from %llu)", (unsigned long long)change->from_most);
    pd_say(c->job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = c->job->steps.name, .step = &change->from_least },
           "%.60s %s %s of %u parameters (%.60s): %.60s%s -> %.80s, from "
           "step %llu on%s",
           c->request->u.set.by, change->withdrawn ? "withdraws" : "sets", change->name, change->params,
           c->request->u.set.pattern, change->before, change->mixed ? " and others" : "", change->value,
           (unsigned long long)change->from_least, last);
}

/* Removes those changes from the command's result that apply to no parameter. */
static void sweep_changes(pd_set_result *result)
{
    size_t kept = 0;

    for (size_t i = 0; i < result->n; i++)
        if (result->at[i].params > 0) result->at[kept++] = result->at[i];
    result->n = kept;
}

/* Makes a record of the command for the job's control log. Returns false if there is none. */
static bool note(const command *c)
{
    const pd_request *request = c->request;
    pd_set_record record = { .pattern = request->u.set.pattern,
                             .by = request->u.set.by,
                             .options = request->u.set.options,
                             .n_options = request->u.set.n,
                             .from_step = request->u.set.from_step,
                             .next = calloc(c->n, sizeof *record.next),
                             .n_next = c->n };
    uint8_t *bytes = NULL;
    size_t n = 0;
    int rc = PD_NO_MEMORY;

    for (uint32_t i = 0; record.next != NULL && i < c->n; i++) record.next[i] = next_step(c->params[i]);
    if (record.next != NULL) rc = pd_set_record_write(&record, &bytes, &n, NULL);
    free(record.next);
    return rc == PD_OK && pd_control_note_command(&c->job->steps, bytes, n, c->job->keeping.control.copied);
}

static void take(command *c)
{
    sweep_changes(c->result);
    for (size_t i = 0; i < c->result->n && i < SAID; i++) say(c, &c->result->at[i]);
    for (uint32_t i = 0; i < c->n; i++) take_param(c, c->params[i]);
}

/* ---- the command ---- */

/* Checks that the command's pattern and values are printable text, since they stay with the job and other operators
 * see them. */
static int check_texts(const pd_request *request, pd_error *err)
{
    const char *pattern = request->u.set.pattern;
    char what[96];

    if (pattern[0] == '\0' || strlen(pattern) > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "the pattern for parameters has 1 to %d bytes; * is all of them",
                       PD_NAME_MAX);
    if (pd_text_check("the pattern for parameters", pattern, err) != PD_OK) return PD_INVALID_ARGUMENT;
    for (size_t i = 0; i < request->u.set.n; i++) {
        snprintf(what, sizeof what, "the value of %.64s", request->u.set.options[i].name);
        if (pd_text_check(what, request->u.set.options[i].value, err) != PD_OK) return PD_INVALID_ARGUMENT;
    }
    return PD_OK;
}

static int check_request(const pd_request *request, bool draining, pd_error *err)
{
    if (request->u.set.n == 0 || request->u.set.n > PD_MAX_OPTIONS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "1 to %d hyperparameters can be set at once, not %zu", PD_MAX_OPTIONS,
                       request->u.set.n);
    if (check_texts(request, err) != PD_OK) return PD_INVALID_ARGUMENT;
    return draining ? pd_fail(err, PD_UNAVAILABLE, "the server is draining: nothing is set any more") : PD_OK;
}

static int find_job(command *c, pd_job *job, pd_error *err)
{
    if (job == NULL) return pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", c->request->u.set.job_name);
    c->job = job;
    if (!pd_control_repeats(&job->steps)) return PD_OK;
    return pd_fail(
        err, PD_UNAVAILABLE,
        "job %.200s repeats steps after a restart, with the values that they had: set others when it has come "
        "to the step at which the server ended",
        job->steps.name);
}

static int make_room(command *c, pd_error *err)
{
    c->params = calloc(c->job->steps.n_params + 1, sizeof(pd_param *));
    c->readings = calloc(c->job->steps.n_rules, sizeof *c->readings);
    c->result = calloc(1, sizeof *c->result);
    return c->params != NULL && c->readings != NULL && c->result != NULL ? PD_OK
                                                                         : pd_fail(err, PD_NO_MEMORY,
                                                                                   "out of memory for a "
                                                                                   "setting");
}

static void end_command(command *c)
{
    for (size_t i = 0; c->readings != NULL && i < c->job->steps.n_rules; i++) {
        pd_override_drop(c->readings[i].override);
        pd_hypers_free(&c->readings[i].merged);
    }
    free(c->readings);
    free(c->params);
    pd_set_result_free(c->result);
}

void pd_job_set(pd_job *job, pd_effects *outbox, bool draining, pd_request *request, uint64_t now_ns)
{
    command c = { .request = request };
    pd_error err;
    bool noted;
    int rc = check_request(request, draining, &err);

    if (rc == PD_OK) rc = find_job(&c, job, &err);
    if (rc == PD_OK) rc = make_room(&c, &err);
    if (rc == PD_OK) rc = find_params(&c, &err);
    if (rc == PD_OK) rc = read_options(&c, &err);
    if (rc == PD_OK) rc = make_result(&c, &err);
    if (rc == PD_OK) rc = prepare(&c, &err);
    if (rc != PD_OK) {
        end_command(&c);
        pd_request_refuse(outbox, request, &err);
        return;
    }
    noted = pd_control_is_on(job) && note(&c);
    take(&c);
    request->u.set.result = c.result;
    c.result = NULL;
    end_command(&c);
    pd_control_answer(job, request, noted, now_ns);
}

/* ---- a command that came before a restart ---- */

/* Adds a record for each parameter that the command matches. */
static int add_records(command *c, const pd_set_record *set, pd_error *err)
{
    for (uint32_t i = 0; i < c->n; i++) {
        pd_control_record *record = pd_control_record_new(PD_CONTROL_SET, c->params[i]->index, set->next[i], 0);
        if (record == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for a setting");
        record->override = reading_of(c, c->params[i])->override;
        record->override->refs++;
        record->from = set->from_step > 0 ? set->from_step : set->next[i];
        pd_control_add(&c->job->steps, record);
    }
    return PD_OK;
}

int pd_job_set_again(pd_job *job, const uint8_t *bytes, size_t n, pd_error *err)
{
    pd_set_record set;
    pd_request request = { .kind = PD_REQ_SET };
    command c = { .job = job, .request = &request };
    int rc = pd_set_record_read(&set, bytes, n, err);

    request.u.set.pattern = set.pattern;
    request.u.set.by = set.by;
    request.u.set.options = set.options;
    request.u.set.n = set.n_options;
    request.u.set.from_step = set.from_step;
    if (rc == PD_OK) rc = check_request(&request, false, err);
    if (rc == PD_OK) rc = make_room(&c, err);
    if (rc == PD_OK) rc = find_params(&c, err);
    if (rc == PD_OK) rc = read_options(&c, err);
    if (rc == PD_OK && c.n != set.n_next)
        rc = pd_fail(err, PD_DATA_LOSS, "\"%.100s\" matches %u parameters, but matched %zu", set.pattern, c.n,
                     set.n_next);
    if (rc == PD_OK) rc = add_records(&c, &set, err);
    end_command(&c);
    pd_set_record_free(&set);
    return rc;
}
