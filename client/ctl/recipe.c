#include "recipe.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry;
typedef int read_config(pd_hypers *hypers, const struct entry *entry, const json_t *config, pd_error *err);
static read_config read_by_name, read_average, read_google;

/* One entry a (system, optimizer) that can be replayed: add one where a row follows another upstream. */
static const struct entry {
    const char  *system;
    const char  *optimizer;         /* config's key `optimizer`; NULL: the system has one only */
    const char  *row;
    const char  *rate;
    read_config *read;
    const char  *execution[8];      /* keys that choose how upstream computes, not what: passed over; NULL at the end */
} table[] = {
    { "torch_optim",  "SGD", "sgd", "lr", read_by_name, { "optimizer", "foreach", "differentiable", "fused", "capturable", NULL } },
    { "trax_average", NULL,  "sgd", "lr", read_average, { NULL } },
    { "google_shampoo", NULL, "scalable_shampoo", "learning_rate", read_google,
      { "batch_axis_name", "num_devices_for_pjit", "replicas", "statistics_partition_spec", "preconditioner_partition_spec", NULL } },
};

static bool contains(const char *const *list, const char *word)
{
    for (; *list != NULL; list++) {
        if (strcmp(*list, word) == 0) return true;
    }
    return false;
}

bool pd_recipe_knows(const char *system)
{
    for (const struct entry *e = table; e < table + sizeof table / sizeof *table; e++) {
        if (strcmp(e->system, system) == 0) return true;
    }
    return false;
}

static int no_entry(const char *system, const char *optimizer, pd_error *err)
{
    char name[64] = "";

    if (!pd_recipe_knows(system) || optimizer == NULL) return pd_fail(err, PD_UNIMPLEMENTED, "system %.64s is not implemented", system);
    for (size_t i = 0; optimizer[i] != '\0' && i + 1 < sizeof name; i++) name[i] = (char)tolower((unsigned char)optimizer[i]);
    return pd_fail(err, PD_UNIMPLEMENTED, "optimizer %s is not implemented", name);
}

static const struct entry *find_entry(const char *system, const char *optimizer)
{
    for (const struct entry *e = table; e < table + sizeof table / sizeof *table; e++) {
        if (strcmp(e->system, system) != 0) continue;
        if (e->optimizer == NULL || (optimizer != NULL && strcmp(e->optimizer, optimizer) == 0)) return e;
    }
    return NULL;
}

/* A JSON scalar as pd_hypers_set reads it. NULL: not a scalar. */
static const char *scalar_text(const json_t *value, char *text, size_t size)
{
    switch (json_typeof(value)) {
    case JSON_TRUE:    return "yes";
    case JSON_FALSE:   return "no";
    case JSON_STRING:  return json_string_value(value);
    case JSON_INTEGER: snprintf(text, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); return text;
    case JSON_REAL:    snprintf(text, size, "%.17g", json_real_value(value)); return text;
    default:           return NULL;
    }
}

/* {"schedule": "linear_warmup", "peak": 0.1, "warmup_steps": 5} as pd_hypers_set reads it. Gives; NULL: out of memory. */
static char *schedule_text(const json_t *schedule)
{
    char *text = NULL, number[40];
    const char *key, *separator = "";
    size_t size;
    json_t *value;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) return NULL;
    fprintf(out, "%s(", json_string_value(json_object_get(schedule, "schedule")));
    json_object_foreach((json_t *)schedule, key, value) {
        const char *argument = scalar_text(value, number, sizeof number);
        if (strcmp(key, "schedule") == 0) continue;
        fprintf(out, "%s%s=%s", separator, key, argument != NULL ? argument : "");
        separator = ",";
    }
    fputc(')', out);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

static int set_schedule(pd_hypers *hypers, const char *name, const json_t *schedule, pd_error *err)
{
    char *text = schedule_text(schedule);
    int rc = text == NULL ? pd_fail(err, PD_NO_MEMORY, "out of memory") : pd_hypers_set(hypers, name, text, err);

    free(text);
    return rc;
}

/* Hyperparameters bear the upstream's own names, so what is in a configuration is set as it stands. */
static int read_by_name(pd_hypers *hypers, const struct entry *entry, const json_t *config, pd_error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)config, key, value) {
        char number[40];
        const char *text = scalar_text(value, number, sizeof number);
        int rc;

        if (contains(entry->execution, key)) continue;
        if (pd_hypers_find(hypers->row, key) < 0) {
            return pd_fail(err, PD_UNIMPLEMENTED, "hyperparameter %.64s of %s is not implemented", key, entry->row);
        }
        if (json_is_string(json_object_get(value, "schedule"))) rc = set_schedule(hypers, key, value, err);
        else if (text != NULL) rc = pd_hypers_set(hypers, key, text, err);
        else rc = pd_fail(err, PD_INVALID_ARGUMENT, "config: %.64s is neither number, word, flag nor schedule", key);
        if (rc != PD_OK) return rc;
    }
    return PD_OK;
}

/* A trace of averages: sgd with lr 1 turns weights 0 into minus the aggregate. */
static int read_average(pd_hypers *hypers, const struct entry *entry, const json_t *config, pd_error *err)
{
    const char *variant = json_string_value(json_object_get(config, "variant"));

    (void)entry;
    if (variant == NULL) return pd_fail(err, PD_UNIMPLEMENTED, "records no averages of gradients");
    if (json_is_true(json_object_get(config, "adasum"))) return pd_fail(err, PD_UNIMPLEMENTED, "aggregate adasum is not implemented");
    if (strncmp(variant, "mean", 4) != 0) return pd_fail(err, PD_UNIMPLEMENTED, "aggregate %.32s is not implemented", variant);
    if (json_integer_value(json_object_get(config, "N_WEIGHTS_SHARDS")) != 1) {
        return pd_fail(err, PD_UNIMPLEMENTED, "replicas that hold shards of the weights are not implemented");
    }
    return pd_hypers_set(hypers, "lr", "1", err);
}

/* Keys without a value mean that the option is off, as our defaults do. Upstream reduces the memory of statistics with an axis of replicas alone. In
 * its sharded mode a NaN root destroys the one before: a defect that a replay must have. */
static int read_google(pd_hypers *hypers, const struct entry *entry, const json_t *config, pd_error *err)
{
    json_t *given = json_object();
    const char *key;
    json_t *value;
    int rc = given == NULL ? pd_fail(err, PD_NO_MEMORY, "out of memory") : PD_OK;

    json_object_foreach((json_t *)config, key, value)
        if (rc == PD_OK && !json_is_null(value) && json_object_set(given, key, value) != 0) rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (rc == PD_OK) rc = read_by_name(hypers, entry, given, err);
    json_decref(given);
    if (rc == PD_OK && !json_is_string(json_object_get(config, "batch_axis_name"))) rc = pd_hypers_set(hypers, "memory_reduction_scope", "momentum", err);
    if (rc == PD_OK && json_is_true(json_object_get(config, "shard_optimizer_states"))) rc = pd_hypers_set(hypers, "nan_roots_leak", "yes", err);
    return rc;
}

int pd_recipe_read(pd_recipe *out, const char *system, const json_t *config, pd_error *err)
{
    const char *optimizer = json_string_value(json_object_get(config, "optimizer"));
    const struct entry *entry = find_entry(system, optimizer);
    const pd_row *row;
    int rc;

    memset(out, 0, sizeof *out);
    if (entry == NULL) return no_entry(system, optimizer, err);
    if ((row = pd_optim_find(entry->row)) == NULL) {
        return pd_fail(err, PD_UNIMPLEMENTED, "optimizer %s is not implemented", entry->row);
    }
    pd_hypers_init(&out->hypers, row);
    out->rate = entry->rate;
    rc = entry->read(&out->hypers, entry, config, err);
    return rc == PD_OK ? pd_hypers_check(&out->hypers, err) : rc;
}

void pd_recipe_free(pd_recipe *recipe)
{
    pd_hypers_free(&recipe->hypers);
}

char *pd_recipe_rule(const pd_recipe *recipe)
{
    size_t count, size;
    const pd_hyper *hyper = pd_row_hypers(recipe->hypers.row, &count);
    char *text = NULL, value[64];
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) return NULL;
    fprintf(out, "* %s", pd_row_name(recipe->hypers.row));
    for (size_t i = 0; i < count; i++) fprintf(out, " %s=%s", hyper[i].name, pd_hypers_text(&recipe->hypers, (int)i, value, sizeof value));
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}
