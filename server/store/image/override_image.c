/* override_image.c - writes or reads a job's overrides, and the
 * lists by which parameters refer to them. */
#include "override_image.h"

#include "override.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PATTERN = PD_NAME_MAX, MOST_VALUE = 4096 };

/* An override as a record of the image (the saved state of a
 * job). */
typedef struct record {
    uint32_t rule;
    uint64_t mask, withdrawn, scheduled;
    double value[PD_MAX_HYPERS]; /* values of the hyperparameters that do not follow a schedule */
    char *pattern;
    char by[128];
    bool planned, overruled;
} record;

static const pd_field record_fields[] = { PD_FIELD(record, rule),      PD_FIELD(record, mask),
                                          PD_FIELD(record, withdrawn), PD_FIELD(record, scheduled),
                                          PD_FIELD(record, value),     PD_FIELD_IN(record, pattern, 0, MOST_PATTERN),
                                          PD_FIELD(record, by),        PD_FIELD(record, planned),
                                          PD_FIELD(record, overruled), { 0 } };
static const pd_table record_table = { "override", sizeof(record), record_fields };

typedef struct entry {
    uint32_t number;
    uint64_t from, mask;
} entry;
static const pd_field entry_fields[] = { PD_FIELD(entry, number), PD_FIELD(entry, from), PD_FIELD(entry, mask), { 0 } };
static const pd_table entry_table = { "entry", sizeof(entry), entry_fields };

typedef struct schedule_text {
    char *text;
} schedule_text;
static const pd_field schedule_fields[] = { PD_FIELD_IN(schedule_text, text, 0, MOST_VALUE), { 0 } };
static const pd_table schedule_table = { "schedule", sizeof(schedule_text), schedule_fields };

/* ---- writing the overrides ---- */

/* Gives each override of the job a number, in the order of the parameters that use it, and
 * returns how many there are. If `all` is not NULL, all[i] becomes override i, and rules[i] the index of the optimizer
 * rule whose parameters use it. */
static size_t number_all(pd_job *job, pd_override **all, uint32_t *rules)
{
    size_t n = 0;

    for (uint32_t i = 0; i < job->steps.n_params; i++)
        for (uint32_t k = 0; k < job->steps.params[i].overrides.n; k++)
            job->steps.params[i].overrides.at[k].override->number = UINT32_MAX;
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        for (uint32_t k = 0; k < job->steps.params[i].overrides.n; k++) {
            pd_override *override = job->steps.params[i].overrides.at[k].override;
            if (override->number != UINT32_MAX) continue;
            override->number = (uint32_t)n;
            if (all != NULL) {
                all[n] = override;
                rules[n] = (uint32_t)(job->steps.params[i].rule - job->steps.rules);
            }
            n++;
        }
    return n;
}

static void write_one(pd_archive *archive, const pd_override *override, uint32_t rule)
{
    uint64_t scheduled = override->mask & ~override->withdrawn & override->hypers.scheduled;
    record r = { .rule = rule,
                 .mask = override->mask,
                 .withdrawn = override->withdrawn,
                 .scheduled = scheduled,
                 .pattern = override->pattern,
                 .planned = override->planned,
                 .overruled = override->overruled };

    memcpy(r.value, override->hypers.value, sizeof r.value);
    memcpy(r.by, override->by, sizeof r.by);
    pd_archive_fields(archive, &record_table, &r);
    for (int h = 0; h < PD_MAX_HYPERS; h++) {
        schedule_text s = { NULL };
        if ((scheduled >> h & 1) == 0) continue;
        s.text = (char *)(uintptr_t)pd_hypers_text(&override->hypers, h, NULL, 0);
        pd_archive_fields(archive, &schedule_table, &s);
    }
}

static void write_all(pd_archive *archive, pd_job *job, size_t n)
{
    pd_override **all = calloc(n + 1, sizeof *all);
    uint32_t *rules = calloc(n + 1, sizeof *rules);

    if (all == NULL || rules == NULL) {
        pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for %zu overrides", n);
    } else {
        number_all(job, all, rules);
        for (size_t i = 0; i < n; i++) write_one(archive, all[i], rules[i]);
    }
    free(all);
    free(rules);
}

/* ---- reading the overrides ---- */

static int set_schedule(pd_archive *archive, pd_override *override, int h)
{
    const pd_hyper *hypers;
    schedule_text s = { NULL };
    pd_error err;
    size_t count;
    int rc;

    hypers = pd_optimizer_hypers(override->hypers.row, &count);
    pd_archive_fields(archive, &schedule_table, &s);
    if ((rc = pd_archive_status(archive)) == PD_OK && ((size_t)h >= count || s.text == NULL))
        rc = pd_archive_fail(archive, PD_DATA_LOSS, "no hyperparameter %d", h);
    if (rc == PD_OK && (rc = pd_hypers_set(&override->hypers, hypers[h].name, s.text, &err)) != PD_OK)
        pd_archive_fail(archive, rc, "%s", err.text);
    free(s.text);
    return rc;
}

static int set_values(pd_archive *archive, pd_override *override, const record *r)
{
    for (int h = 0; h < PD_MAX_HYPERS; h++) {
        uint64_t bit = (uint64_t)1 << h;
        if ((r->mask & ~r->withdrawn & bit) == 0) continue;
        if ((r->scheduled & bit) == 0) {
            override->hypers.value[h] = r->value[h];
            override->hypers.scheduled &= ~bit;
        } else if (set_schedule(archive, override, h) != PD_OK) {
            return pd_archive_status(archive);
        }
    }
    return PD_OK;
}

/* Reads the record of an override from an image and
 * makes the override, with one reference. Returns NULL after an error, which the archive remembers. */
static pd_override *read_one(pd_archive *archive, pd_job *job)
{
    record r = { 0 };
    pd_override *override = NULL;

    pd_archive_fields(archive, &record_table, &r);
    if (pd_archive_status(archive) == PD_OK && (r.rule >= job->steps.n_rules || r.pattern == NULL))
        pd_archive_fail(archive, PD_DATA_LOSS, "an override of rule %u of %zu", r.rule, job->steps.n_rules);
    if (pd_archive_status(archive) == PD_OK) {
        override = pd_override_new(&job->steps.rules[r.rule].hypers, r.pattern, r.by, &job->n_overrides);
        if (override == NULL) pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for an override");
    }
    free(r.pattern);
    if (override == NULL) return NULL;
    override->mask = r.mask;
    override->withdrawn = r.withdrawn;
    override->planned = r.planned;
    override->overruled = r.overruled;
    if (set_values(archive, override, &r) == PD_OK) return override;
    pd_override_drop(override);
    return NULL;
}

/* ---- the entries by which a parameter refers to overrides ---- */

static void write_entries(pd_archive *archive, const pd_param *param)
{
    for (uint32_t k = 0; k < param->overrides.n; k++) {
        const pd_override_entry *from = &param->overrides.at[k];
        entry e = { from->override->number, from->from, from->mask };
        pd_archive_fields(archive, &entry_table, &e);
    }
}

static void read_entries(pd_archive *archive, pd_param *param, size_t n, pd_override *const *all, size_t n_all)
{
    for (size_t k = 0; k < n && pd_archive_status(archive) == PD_OK; k++) {
        entry e = { 0 };
        pd_error err;
        pd_archive_fields(archive, &entry_table, &e);
        if (pd_archive_status(archive) != PD_OK) return;
        if (e.number >= n_all || all[e.number]->hypers.row != param->rule->hypers.row)
            pd_archive_fail(archive, PD_DATA_LOSS, "%.160s: override %u does not fit", param->name, e.number);
        else if (pd_overrides_reserve(param, &err) != PD_OK)
            pd_archive_fail(archive, err.code, "%s", err.text);
        else {
            all[e.number]->refs++;
            param->overrides.n = pd_overrides_insert(param->overrides.at, param->overrides.n,
                                                     (pd_override_entry){ all[e.number], e.from, e.mask });
        }
    }
}

static void visit_entries(pd_archive *archive, pd_job *job, pd_override *const *all, size_t n_all)
{
    for (uint32_t i = 0; i < job->steps.n_params && pd_archive_status(archive) == PD_OK; i++) {
        pd_param *param = &job->steps.params[i];
        size_t n = param->overrides.n;
        pd_archive_count(archive, &n, PD_MAX_PARAM_OVERRIDES, 1);
        if (pd_archive_is_reading(archive))
            read_entries(archive, param, n, all, n_all);
        else
            write_entries(archive, param);
    }
}

/* ---- overrides and entries of a job ---- */

static void read_all(pd_archive *archive, pd_job *job, size_t n)
{
    pd_override **all = calloc(n + 1, sizeof *all);
    size_t made = 0;

    if (all == NULL) pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for %zu overrides", n);
    while (all != NULL && made < n && (all[made] = read_one(archive, job)) != NULL) made++;
    if (made == n) visit_entries(archive, job, all, n);
    for (size_t i = 0; i < made; i++) pd_override_drop(all[i]);
    free(all);
}

void pd_overrides_visit(pd_archive *archive, pd_job *job)
{
    size_t n = number_all(job, NULL, NULL);

    pd_archive_enter(archive, "overrides");
    pd_archive_count(archive, &n, PD_MAX_JOB_OVERRIDES, 1);
    if (pd_archive_is_reading(archive)) {
        read_all(archive, job, n);
    } else {
        write_all(archive, job, n);
        visit_entries(archive, job, NULL, 0);
    }
    pd_archive_leave(archive);
}
