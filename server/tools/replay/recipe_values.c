/* recipe_values.c - sets hyperparameters from the JSON values of a recorded run's configuration. */
#include "recipe_values.h"

#include <stdlib.h>
#include <string.h>

const char *pd_recipe_scalar(const json_t *value, char *text, size_t size)
{
    switch (json_typeof(value)) {
    case JSON_TRUE: return "yes";
    case JSON_FALSE: return "no";
    case JSON_STRING: return json_string_value(value);
    case JSON_INTEGER: snprintf(text, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); return text;
    case JSON_REAL: snprintf(text, size, "%.17g", json_real_value(value)); return text;
    default: return NULL;
    }
}

/* Writes a schedule such as {"schedule": "linear_warmup", "peak": 0.1} as text for pd_hypers_set:
 * linear_warmup(peak=0.1). */
static void print_schedule(FILE *out, const json_t *schedule)
{
    const char *key, *separator = "";
    char number[40];
    json_t *value;

    fprintf(out, "%s(", json_string_value(json_object_get(schedule, "schedule")));
    json_object_foreach((json_t *)schedule, key, value)
    {
        const char *argument = pd_recipe_scalar(value, number, sizeof number);
        if (strcmp(key, "schedule") == 0) continue;
        fprintf(out, "%s%s=%s", separator, key, argument != NULL ? argument : "");
        separator = ",";
    }
    fputc(')', out);
}

void pd_recipe_print_list(FILE *out, const json_t *list)
{
    char number[40];
    json_t *value;
    size_t i;

    json_array_foreach(list, i, value)
    {
        const char *item = pd_recipe_scalar(value, number, sizeof number);
        fprintf(out, "%s%s", i > 0 ? "," : "(", item != NULL ? item : "");
    }
    fputs(i > 0 ? ")" : "()", out);
}

int pd_recipe_set_printed(pd_hypers *hypers, const char *name, const json_t *value,
                          void (*print)(FILE *out, const json_t *value), pd_error *err)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    int rc;

    if (out == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    print(out, value);
    rc = fclose(out) != 0 ? pd_fail(err, PD_NO_MEMORY, "out of memory") : pd_hypers_set(hypers, name, text, err);
    free(text);
    return rc;
}

/* Returns true if the optimizer has a hyperparameter of this name, or a list of them ("betas" for "betas[0]"). */
static bool has(const pd_optimizer_ops *row, const char *name)
{
    char first[96];

    snprintf(first, sizeof first, "%.64s[0]", name);
    return pd_hypers_find(row, name) >= 0 || pd_hypers_find(row, first) >= 0;
}

int pd_recipe_set_value(pd_hypers *hypers, const char *name, const json_t *value, pd_error *err)
{
    char number[40];
    const char *text = pd_recipe_scalar(value, number, sizeof number);

    if (!has(hypers->row, name))
        return pd_fail(err, PD_UNIMPLEMENTED, "hyperparameter %.64s of %s is not implemented", name,
                       pd_optimizer_name(hypers->row));
    if (text != NULL) return pd_hypers_set(hypers, name, text, err);
    if (json_is_string(json_object_get(value, "schedule")))
        return pd_recipe_set_printed(hypers, name, value, print_schedule, err);
    if (json_is_array(value)) return pd_recipe_set_printed(hypers, name, value, pd_recipe_print_list, err);
    return pd_fail(err, PD_INVALID_ARGUMENT, "config: %.64s is neither number, word, flag, list nor schedule", name);
}

int pd_recipe_set_members(pd_hypers *hypers, const char *name, const json_t *object, pd_error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        bool choice = strcmp(key, "type") == 0;
        char member[160];
        int rc;
        if (json_is_null(value)) continue;
        snprintf(member, sizeof member, "%.64s%s%.64s", name, choice ? "" : ".", choice ? "" : key);
        if ((rc = pd_recipe_set_value(hypers, member, value, err)) != PD_OK) return rc;
    }
    return PD_OK;
}
