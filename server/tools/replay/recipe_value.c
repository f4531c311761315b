/* recipe_value.c - turns the values in a recorded configuration into the values of hyperparameters. */
#include "recipe_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns a JSON number, string or flag as text for pd_hypers_set, which sets a hyperparameter. NULL: the value is
 * a list, an object or null. */
static const char *scalar_text(const json_t *value, char *text, size_t size)
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
        const char *argument = scalar_text(value, number, sizeof number);
        if (strcmp(key, "schedule") == 0) continue;
        fprintf(out, "%s%s=%s", separator, key, argument != NULL ? argument : "");
        separator = ",";
    }
    fputc(')', out);
}

/* Writes a list such as [0.9, 0.999] as text for pd_hypers_set: (0.9,0.999). */
static void print_list(FILE *out, const json_t *list)
{
    char number[40];
    json_t *value;
    size_t i;

    json_array_foreach(list, i, value)
    {
        const char *item = scalar_text(value, number, sizeof number);
        fprintf(out, "%s%s", i > 0 ? "," : "(", item != NULL ? item : "");
    }
    fputs(i > 0 ? ")" : "()", out);
}

/* Sets a hyperparameter whose JSON value is a list or an object: `print` writes it as text for pd_hypers_set. */
static int set_printed(pd_hypers *hypers, const char *name, const json_t *value,
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

int pd_recipe_set(pd_hypers *hypers, const char *name, const json_t *value, pd_error *err)
{
    char number[40];
    const char *text = scalar_text(value, number, sizeof number);

    if (!has(hypers->row, name)) {
        return pd_fail(err, PD_UNIMPLEMENTED, "hyperparameter %.64s of %s is not implemented", name,
                       pd_optimizer_name(hypers->row));
    }
    if (text != NULL) return pd_hypers_set(hypers, name, text, err);
    if (json_is_string(json_object_get(value, "schedule")))
        return set_printed(hypers, name, value, print_schedule, err);
    if (json_is_array(value)) return set_printed(hypers, name, value, print_list, err);
    return pd_fail(err, PD_INVALID_ARGUMENT, "config: %.64s is neither number, word, flag, list nor schedule", name);
}

/* Writes the key of a pair as text that pairs.h can read: between single quotes; a quote inside is doubled. */
static void print_key(FILE *out, const char *key)
{
    fputc('\'', out);
    for (; *key != '\0'; key++) fprintf(out, *key == '\'' ? "''" : "%c", *key);
    fputs("':", out);
}

/* Writes the value of a pair as text: a list like ["BATCH", "ROW"], a word like "HEURISTIC", or a flag. null
 * becomes "none". */
static void print_rule(FILE *out, const json_t *rule)
{
    char number[40];
    const char *word = json_is_array(rule) ? NULL : scalar_text(rule, number, sizeof number);

    if (json_is_array(rule))
        print_list(out, rule);
    else
        fputs(word != NULL ? word : "none", out);
}

/* Writes a map that is a list of pairs, [["regular expression", rule], ...], as text that pairs.h can read. */
static void print_rules(FILE *out, const json_t *rules)
{
    json_t *pair;
    size_t i;

    json_array_foreach(rules, i, pair)
    {
        const char *key = json_string_value(json_array_get(pair, 0));
        fputs(i > 0 ? "," : "[", out);
        print_key(out, key != NULL ? key : "");
        print_rule(out, json_array_get(pair, 1));
    }
    fputs(i > 0 ? "]" : "[]", out);
}

/* Writes a map from names of dimensions to rules, such as {"embed": "ROW", ...}, as text that pairs.h can read. */
static void print_axis_rules(FILE *out, const json_t *rules)
{
    const char *key, *separator = "[";
    json_t *rule;

    json_object_foreach((json_t *)rules, key, rule)
    {
        fputs(separator, out);
        print_key(out, key);
        print_rule(out, rule);
        separator = ",";
    }
    fputs(*separator == '[' ? "[]" : "]", out);
}

int pd_recipe_set_rules(pd_hypers *hypers, const char *name, const json_t *rules, pd_error *err)
{
    return set_printed(hypers, name, rules, print_rules, err);
}

int pd_recipe_set_axis_rules(pd_hypers *hypers, const char *name, const json_t *rules, pd_error *err)
{
    return set_printed(hypers, name, rules, print_axis_rules, err);
}
