#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "row.h"

const pd_row *pd_optim_at(size_t index)
{
    for (size_t i = 0; pd_rows[i] != NULL; i++)
        if (i == index) return pd_rows[i];
    return NULL;
}

const pd_row *pd_optim_find(const char *name)
{
    for (size_t i = 0; pd_rows[i] != NULL; i++)
        if (strcmp(pd_rows[i]->name, name) == 0) return pd_rows[i];
    return NULL;
}

const char *pd_row_name(const pd_row *row)  { return row->name; }
const char *pd_row_about(const pd_row *row) { return row->about; }

const pd_hyper *pd_row_hypers(const pd_row *row, size_t *count)
{
    size_t n = 0;

    while (row->hypers[n].name != NULL) n++;
    *count = n;
    return row->hypers;
}

int pd_hypers_find(const pd_row *row, const char *name)
{
    for (int i = 0; row->hypers[i].name != NULL; i++)
        if (strcmp(row->hypers[i].name, name) == 0) return i;
    return -1;
}

void pd_hypers_init(pd_hypers *hypers, const pd_row *row)
{
    memset(hypers, 0, sizeof *hypers);
    hypers->row = row;
    for (int i = 0; row->hypers[i].name != NULL; i++) hypers->value[i] = row->hypers[i].preset;
}

/* ---- text to value: PD_OK or PD_INVALID_ARGUMENT ---- */

static bool starts_a_number(const char *text)
{
    return *text != '\0' && !isspace((unsigned char)*text);
}

static int parse_real(const char *text, double *value)
{
    char *end;

    if (!starts_a_number(text)) return PD_INVALID_ARGUMENT;
    *value = strtod(text, &end);
    return *end == '\0' && isfinite(*value) ? PD_OK : PD_INVALID_ARGUMENT;
}

static int parse_int(const char *text, double *value)
{
    char *end;
    long long number;

    if (!starts_a_number(text)) return PD_INVALID_ARGUMENT;
    errno = 0;
    number = strtoll(text, &end, 10);
    *value = (double)number;
    return *end == '\0' && errno == 0 ? PD_OK : PD_INVALID_ARGUMENT;
}

static int parse_flag(const char *text, double *value)
{
    static const char *const words[][2] = { { "no", "yes" }, { "false", "true" }, { "0", "1" } };

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        for (int flag = 0; flag < 2; flag++)
            if (strcmp(text, words[i][flag]) == 0) {
                *value = flag;
                return PD_OK;
            }
    return PD_INVALID_ARGUMENT;
}

/* The index-th of "none|sgd|adam": its start, and its length; NULL: there are not so many. */
static const char *choice_at(const char *choices, int index, size_t *length)
{
    for (; index > 0; index--) {
        choices = strchr(choices, '|');
        if (choices == NULL) return NULL;
        choices++;
    }
    *length = strcspn(choices, "|");
    return choices;
}

static int parse_choice(const char *text, const char *choices, double *value)
{
    const char *choice;
    size_t length;

    for (int i = 0; (choice = choice_at(choices, i, &length)) != NULL; i++)
        if (strlen(text) == length && memcmp(text, choice, length) == 0) {
            *value = i;
            return PD_OK;
        }
    return PD_INVALID_ARGUMENT;
}

static int parse(const pd_hyper *hyper, const char *text, double *value)
{
    switch (hyper->type) {
    case PD_REAL:   return parse_real(text, value);
    case PD_INT:    return parse_int(text, value);
    case PD_FLAG:   return parse_flag(text, value);
    case PD_CHOICE: return parse_choice(text, hyper->choices, value);
    }
    return PD_INVALID_ARGUMENT;
}

/* ---- setting ---- */

static const char *wanted(const pd_hyper *hyper)
{
    switch (hyper->type) {
    case PD_REAL:   return "a finite number";
    case PD_INT:    return "a whole number";
    case PD_FLAG:   return "yes or no";
    case PD_CHOICE: return hyper->choices;
    }
    return "";
}

static int no_such_hyper(const pd_row *row, const char *name, pd_error *err)
{
    char list[384] = "";
    size_t used = 0;

    for (int i = 0; row->hypers[i].name != NULL && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, i > 0 ? ", %s" : "%s", row->hypers[i].name);
    return pd_fail(err, PD_NOT_FOUND, "%s has no hyperparameter %.64s; it has: %s", row->name, name, list);
}

int pd_hypers_set(pd_hypers *hypers, const char *name, const char *value, pd_error *err)
{
    int index = pd_hypers_find(hypers->row, name);
    const pd_hyper *hyper = &hypers->row->hypers[index < 0 ? 0 : index];
    double number;

    if (index < 0) return no_such_hyper(hypers->row, name, err);
    if (parse(hyper, value, &number) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s: expected %s, got \"%.64s\"", name, hypers->row->name, wanted(hyper), value);
    if ((hyper->type == PD_REAL || hyper->type == PD_INT) && (number < hyper->least || number > hyper->most))
        return pd_fail(err, PD_OUT_OF_RANGE, "%s of %s: %.64s is outside its range, %.17g to %.17g",
                       name, hypers->row->name, value, hyper->least, hyper->most);
    hypers->value[index] = number;
    return PD_OK;
}

int pd_hypers_check(const pd_hypers *hypers, pd_error *err)
{
    return hypers->row->check == NULL ? PD_OK : hypers->row->check(hypers, hypers, err);
}

int pd_hypers_check_step(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const pd_row *row = declared->row;
    char was[64], is[64];

    for (int i = 0; row->hypers[i].name != NULL; i++)
        if (!row->hypers[i].per_step && declared->value[i] != now->value[i])
            return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s cannot change while the job runs: it is %s, a step asks for %s", row->hypers[i].name,
                           row->name, pd_hypers_text(declared, i, was, sizeof was), pd_hypers_text(now, i, is, sizeof is));
    return row->check == NULL ? PD_OK : row->check(declared, now, err);
}

/* ---- value to text ---- */

static void real_text(double value, char *text, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return;
    }
}

char *pd_hypers_text(const pd_hypers *hypers, int index, char *text, size_t size)
{
    const pd_hyper *hyper = &hypers->row->hypers[index];
    double value = hypers->value[index];
    const char *choice = "?";
    size_t length = 1;

    switch (hyper->type) {
    case PD_REAL: real_text(value, text, size); break;
    case PD_INT:  snprintf(text, size, "%lld", (long long)value); break;
    case PD_FLAG: snprintf(text, size, "%s", value != 0 ? "yes" : "no"); break;
    case PD_CHOICE:
        choice = choice_at(hyper->choices, (int)value, &length);
        snprintf(text, size, "%.*s", choice == NULL ? 0 : (int)length, choice == NULL ? "" : choice);
        break;
    }
    return text;
}
