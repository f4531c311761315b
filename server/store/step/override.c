/* override.c - a parameter's list of overrides, sorted by the step from which each applies. */
#include "override.h"

#include "effects.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 4 }; /* number of entries for which memory is allocated first */

pd_override *pd_override_new(const pd_hypers *declared, const char *pattern, const char *by, uint32_t *alive)
{
    pd_override *override = calloc(1, sizeof *override);

    if (override == NULL) return NULL;
    if ((override->pattern = strdup(pattern)) == NULL) {
        free(override);
        return NULL;
    }
    pd_text_print(override->by, sizeof override->by, by);
    override->hypers = *declared;
    override->refs = 1;
    override->alive = alive;
    ++*alive;
    return override;
}

void pd_override_drop(pd_override *override)
{
    if (override == NULL || --override->refs > 0) return;
    --*override->alive;
    pd_hypers_free(&override->hypers);
    free(override->pattern);
    free(override);
}

int pd_overrides_reserve(pd_param *param, pd_error *err)
{
    uint32_t room = param->overrides.room == 0 ? FEW : 2 * param->overrides.room;
    pd_override_entry *entries;

    if (param->overrides.n < param->overrides.room) return PD_OK;
    if ((entries = realloc(param->overrides.at, room * sizeof *entries)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "%.160s: out of memory for a setting", param->name);
    param->overrides.at = entries;
    param->overrides.room = room;
    return PD_OK;
}

uint32_t pd_overrides_insert(pd_override_entry *entries, uint32_t n, pd_override_entry added)
{
    uint32_t at = n;

    for (uint32_t i = 0; i < n; i++)
        if (entries[i].from >= added.from) entries[i].mask &= ~added.mask;
    for (; at > 0 && entries[at - 1].from > added.from; at--) entries[at] = entries[at - 1];
    entries[at] = added;
    return n + 1;
}

static void say_begun(pd_effects *outbox, const char *job, const pd_param *param, pd_override_entry *entry)
{
    const pd_hyper *hypers;
    char what[160] = "", value[64];
    size_t count, used = 0;

    if (!entry->override->planned || entry->mask == 0 || entry->from > param->saved.step + 1) return;
    entry->override->planned = false;
    hypers = pd_optimizer_hypers(entry->override->hypers.row, &count);
    for (size_t h = 0; h < count && used < sizeof what; h++) {
        if ((entry->mask >> h & 1) == 0) continue;
        pd_overrides_text(&entry->override->hypers, (int)h, value, sizeof value);
        used +=
            (size_t)snprintf(what + used, sizeof what - used, "%s%s = %s", used > 0 ? ", " : "", hypers[h].name, value);
    }
    pd_say(outbox, PD_SAY_INFO, (pd_log_facts){ .job = job, .step = &entry->from },
           "from step %llu on %s for %.100s, set by %.60s", (unsigned long long)entry->from, what,
           entry->override->pattern, entry->override->by);
}

void pd_overrides_settle(pd_effects *outbox, const char *job, pd_param *param)
{
    uint64_t later = 0;
    uint32_t kept = 0;

    for (uint32_t i = param->overrides.n; i-- > 0;) {
        pd_override_entry *entry = &param->overrides.at[i];
        if (entry->from > param->saved.step + 1) continue;
        say_begun(outbox, job, param, entry);
        entry->mask &= ~later;
        later |= entry->mask;
        /* A hyperparameter whose override was withdrawn has its declared value again, so no entry is needed. */
        entry->mask &= ~entry->override->withdrawn;
    }
    for (uint32_t i = 0; i < param->overrides.n; i++) {
        if (param->overrides.at[i].mask != 0)
            param->overrides.at[kept++] = param->overrides.at[i];
        else
            pd_override_drop(param->overrides.at[i].override);
    }
    param->overrides.n = kept;
}

void pd_overrides_clear(pd_param *param)
{
    for (uint32_t i = 0; i < param->overrides.n; i++) pd_override_drop(param->overrides.at[i].override);
    free(param->overrides.at);
    param->overrides.at = NULL;
    param->overrides.n = param->overrides.room = 0;
}

uint64_t pd_overrides_mask(const pd_param *param)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < param->overrides.n; i++)
        mask |= param->overrides.at[i].mask & ~param->overrides.at[i].override->withdrawn;
    return mask;
}

/* Relies on pd_overrides_settle: after it, no two entries that apply to the next step have the same hyperparameter, and
 * none of them withdraws one. */
uint64_t pd_overrides_next(const pd_param *param, double *value)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < param->overrides.n && param->overrides.at[i].from <= param->saved.step + 1; i++) {
        double own[PD_MAX_HYPERS];
        pd_hypers_at(&param->overrides.at[i].override->hypers, pd_optim_count(param->optim), own);
        for (int h = 0; h < PD_MAX_HYPERS; h++)
            if ((param->overrides.at[i].mask >> h & 1) != 0) value[h] = own[h];
        mask |= param->overrides.at[i].mask;
    }
    return mask;
}

static void say_overruled(pd_effects *outbox, const char *job, const pd_param *param, uint64_t pushed)
{
    size_t count;
    uint64_t step = param->saved.step + 1;
    const pd_hyper *hypers = pd_optimizer_hypers(param->rule->hypers.row, &count);

    for (uint32_t i = 0; i < param->overrides.n && param->overrides.at[i].from <= param->saved.step + 1; i++) {
        pd_override *override = param->overrides.at[i].override;
        uint64_t both = param->overrides.at[i].mask & pushed;
        if (both == 0 || override->overruled) continue;
        override->overruled = true;
        pd_say(outbox, PD_SAY_INFO, (pd_log_facts){ .job = job, .step = &step },
               "workers push %s for %.100s with step %llu; the override by %.60s takes precedence",
               hypers[__builtin_ctzll(both)].name, param->name, (unsigned long long)step, override->by);
    }
}

uint64_t pd_overrides_begin(pd_effects *outbox, const char *job, const pd_param *param, double *value)
{
    uint64_t pushed = param->pushed != NULL ? param->pushed->mask : 0, set;

    if (pushed != 0) memcpy(value, param->pushed->hypers.value, sizeof param->pushed->hypers.value);
    set = pd_overrides_next(param, value);
    if ((set & pushed) != 0) say_overruled(outbox, job, param, pushed);
    return pushed | set;
}

char *pd_overrides_text(const pd_hypers *hypers, int index, char *text, size_t size)
{
    char number[64];
    const char *value = pd_hypers_text(hypers, index, number, sizeof number);
    size_t length = strlen(value);

    if (length < size)
        snprintf(text, size, "%s", value);
    else
        strcat(pd_text_print(text, size - 3, value), "...");
    return text;
}

char *pd_overrides_text_at(const pd_hypers *hypers, int index, int64_t count, char *text, size_t size)
{
    double now[PD_MAX_HYPERS];
    size_t used = strlen(pd_overrides_text(hypers, index, text, size - 24));

    if ((hypers->scheduled >> index & 1) == 0) return text;
    pd_hypers_at(hypers, count, now);
    snprintf(text + used, size - used, ", now %.6g", now[index]);
    return text;
}

const char *pd_fixed_hyper(const pd_optimizer_ops *row, uint64_t mask)
{
    size_t count;
    const pd_hyper *hypers = pd_optimizer_hypers(row, &count);

    for (size_t i = 0; i < count; i++)
        if ((mask >> i & 1) != 0 && !hypers[i].per_step) return hypers[i].name;
    return NULL;
}
