/* hypers.c - sets the hyperparameters of an optimizer from text, checks their values and prints them. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hyper_text.h"
#include "optimizer_ops.h"
#include "schedule.h"

_Static_assert(PD_MAX_HYPERS <= 64, "a bit each");

/* The value of a hyperparameter of type PD_TEXT: a node of the list pd_hypers.texts. A node in the list never changes,
 * so that copies of the pd_hypers may share it. */
struct pd_hyper_text {
    const pd_hyper_text *next;
    const pd_hypers *owner; /* the struct pd_hypers in which the text was set, and which frees it */
    int index;              /* index of the hyperparameter that has the text */
    char text[];
};

static uint64_t bit(int index)
{
    return (uint64_t)1 << index;
}

int pd_hypers_find(const pd_optimizer_ops *ops, const char *name)
{
    for (int i = 0; ops->hypers[i].name != NULL; i++)
        if (strcmp(ops->hypers[i].name, name) == 0) return i;
    return -1;
}

void pd_hypers_init(pd_hypers *hypers, const pd_optimizer_ops *ops)
{
    memset(hypers, 0, sizeof *hypers);
    hypers->row = ops;
    for (int i = 0; ops->hypers[i].name != NULL; i++) hypers->value[i] = ops->hypers[i].preset;
}

static int parse_flag(const char *text, double *value)
{
    static const char *const words[][2] = { { "no", "yes" }, { "false", "true" }, { "0", "1" } };

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        for (int flag = 0; flag < 2; flag++)
            if (strcasecmp(text, words[i][flag]) == 0) {
                *value = flag;
                return PD_OK;
            }
    return PD_INVALID_ARGUMENT;
}

/* Returns where word number `index` of a text like "none|sgd|adam" begins, and its length in *length. NULL: the text
 * has fewer words. */
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
        if (strlen(text) == length && strncasecmp(text, choice, length) == 0) {
            *value = i;
            return PD_OK;
        }
    return PD_INVALID_ARGUMENT;
}

/* Returns whether `text` is the word that users may write in place of a hyperparameter's least value, for instance
 * "ready" in place of -1. */
static bool is_the_word(const pd_hyper *hyper, const char *text)
{
    return hyper->choices != NULL && strcasecmp(text, hyper->choices) == 0;
}

static int parse(const pd_hyper *hyper, const char *text, double *value)
{
    switch (hyper->type) {
    case PD_REAL:
    case PD_INT:
        *value = hyper->least;
        if (is_the_word(hyper, text)) return PD_OK;
        return hyper->type == PD_REAL ? pd_number_read(text, value) : pd_number_read_whole(text, value);
    case PD_FLAG: return parse_flag(text, value);
    case PD_CHOICE: return parse_choice(text, hyper->choices, value);
    case PD_TEXT: break; /* set_text handles these hyperparameters */
    }
    return PD_INVALID_ARGUMENT;
}

/* Return the least and the largest number that a hyperparameter may have. Optimizers compute in float32, so a real
 * number must be finite in float32. In the table, the least value may be infinite if a word stands for it. */
static double least_of(const pd_hyper *hyper)
{
    return hyper->type == PD_REAL && hyper->least < -FLT_MAX ? -(double)FLT_MAX : hyper->least;
}

static double most_of(const pd_hyper *hyper)
{
    return hyper->type == PD_REAL && hyper->most > FLT_MAX ? (double)FLT_MAX : hyper->most;
}

/* Returns whether a number is outside the hyperparameter's range. The value that its word stands for is inside. */
static bool is_outside(const pd_hyper *hyper, double value)
{
    if (hyper->type == PD_CHOICE || (hyper->choices != NULL && value == hyper->least)) return false;
    return value < least_of(hyper) || value > most_of(hyper);
}

/* Writes the range of values that a hyperparameter may have, such as "0 to 100, or ready". Returns `text`. */
static const char *range_text(const pd_hyper *hyper, char *text, size_t size)
{
    double least = least_of(hyper), most = most_of(hyper);

    if (hyper->choices == NULL)
        snprintf(text, size, "%.17g to %.17g", least, most);
    else
        snprintf(text, size, "%.17g to %.17g, or %.40s", least + (hyper->type == PD_INT), most, hyper->choices);
    return text;
}

static const char *wanted(const pd_hyper *hyper, char *text, size_t size)
{
    const char *number = hyper->type == PD_INT ? "a whole number" : "a finite number";
    char range[128];

    switch (hyper->type) {
    case PD_REAL:
    case PD_INT:
        if (hyper->choices == NULL) return number;
        snprintf(text, size, "%s from %s", number, range_text(hyper, range, sizeof range));
        return text;
    case PD_FLAG: return "yes or no";
    case PD_CHOICE: return hyper->choices;
    case PD_TEXT: return "text";
    }
    return "";
}

/* Returns the hyperparameter that replaces `name`, a hyperparameter of the optimizer's original implementation: the one
 * whose help text names it, for instance "(upstream: scanned_layers)". NULL: no help text names it. */
static const pd_hyper *instead_of(const pd_optimizer_ops *ops, const char *name)
{
    char words[96];

    snprintf(words, sizeof words, "(upstream: %.64s)", name);
    for (const pd_hyper *hyper = ops->hypers; hyper->name != NULL; hyper++)
        if (strstr(hyper->help, words) != NULL) return hyper;
    return NULL;
}

/* Writes the error that an optimizer has no hyperparameter `name`, and returns PD_NOT_FOUND. The error lists the names
 * of the optimizer's hyperparameters, as many as fit. The caller puts the user's text in front of the error. */
static int no_such_hyper(const pd_optimizer_ops *ops, const char *name, pd_error *err)
{
    static const char more[] = ", ...";
    const pd_hyper *instead = instead_of(ops, name);
    char list[180] = "none";
    size_t used = 0;

    if (instead != NULL)
        return pd_fail(err, PD_NOT_FOUND, "%s has no hyperparameter %.64s; set %s: %s", ops->name, name, instead->name,
                       instead->help);
    for (int i = 0; ops->hypers[i].name != NULL; i++) {
        bool fits = used + strlen(", ") + strlen(ops->hypers[i].name) + sizeof more <= sizeof list;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", fits && i > 0 ? ", " : "",
                                 fits ? ops->hypers[i].name : more);
        if (!fits) break;
    }
    return pd_fail(err, PD_NOT_FOUND, "%s has no hyperparameter %.64s; it has: %s (paramctl optimizers %s)", ops->name,
                   name, list, ops->name);
}

/* Returns whether pd_optimizer_ops.check refuses a value that is out of the hyperparameter's range. If so, *err has the
 * error text of the optimizer's original implementation. */
static bool refused_by_row(const pd_optimizer_ops *ops, int index, double value, pd_error *err)
{
    pd_hypers alone;

    if (!ops->words_ranges) return false;
    pd_hypers_init(&alone, ops);
    alone.value[index] = value;
    return ops->check(&alone, &alone, err) != PD_OK;
}

static int set_number(pd_hypers *hypers, int index, const char *text, pd_error *err)
{
    const pd_hyper *hyper = &hypers->row->hypers[index];
    const char *row = hypers->row->name;
    double number;
    char words[192];

    if (parse(hyper, text, &number) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s: expected %s, got \"%.64s\"", hyper->name, row,
                       wanted(hyper, words, sizeof words), text);
    if (is_outside(hyper, number)) {
        if (refused_by_row(hypers->row, index, number, err)) return PD_OUT_OF_RANGE;
        return pd_fail(err, PD_OUT_OF_RANGE, "%s of %s: %.64s is outside its range, %s", hyper->name, row, text,
                       range_text(hyper, words, sizeof words));
    }
    hypers->value[index] = number;
    hypers->scheduled &= ~bit(index);
    return PD_OK;
}

static double scheduled_value(const pd_hyper *hyper, const pd_schedule *schedule, int64_t count)
{
    double value = pd_schedule_at(schedule, count);

    return hyper->type == PD_REAL ? value : rint(value);
}

/* Returns how far a value lies outside the range of a hyperparameter. A result of 0 or below means that it lies inside
 * the range. */
static double excess(const pd_hyper *hyper, double value)
{
    return fmax(least_of(hyper) - value, value - most_of(hyper));
}

/* Checks that all values of a schedule lie in the hyperparameter's range. The error text has the value that is furthest
 * outside. */
static int check_values(const pd_optimizer_ops *ops, const pd_hyper *hyper, const pd_schedule *schedule, pd_error *err)
{
    char number[PD_NUMBER_TEXT], words[192];
    double worst = 0;
    int64_t count, at = 0;

    for (size_t i = 0; pd_schedule_corner(schedule, i, &count); i++) {
        double plain = pd_schedule_at(schedule, count), value = scheduled_value(hyper, schedule, count);
        if (pd_schedule_is_list(schedule) && plain != value)
            return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s: expected whole numbers, got %s in %.64s", hyper->name,
                           ops->name, pd_number_text(plain, number, sizeof number), schedule->text);
        if (excess(hyper, value) <= worst) continue;
        worst = excess(hyper, value);
        at = count;
    }
    if (worst == 0) return PD_OK;
    return pd_fail(err, PD_OUT_OF_RANGE, "%s of %s: %.64s is %s at count %lld, outside its range, %s", hyper->name,
                   ops->name, schedule->text,
                   pd_number_text(scheduled_value(hyper, schedule, at), number, sizeof number), (long long)at,
                   range_text(hyper, words, sizeof words));
}

static int set_schedule(pd_hypers *hypers, int index, const char *text, pd_error *err)
{
    const pd_hyper *hyper = &hypers->row->hypers[index];
    pd_schedule *schedule;
    pd_error why;
    int rc;

    if (!hyper->per_step || hyper->type == PD_CHOICE)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s takes no schedule: it %s", hyper->name, hypers->row->name,
                       hyper->per_step ? "is a word" : "is fixed while the job runs");
    if ((rc = pd_schedule_read(&schedule, text, &why)) != PD_OK)
        return pd_fail(err, rc, "%s of %s: %.440s", hyper->name, hypers->row->name, why.text);
    if ((rc = check_values(hypers->row, hyper, schedule, err)) != PD_OK) {
        pd_schedule_free(schedule);
        return rc;
    }
    schedule->index = index;
    schedule->owner = hypers;
    schedule->next = hypers->schedules;
    hypers->schedules = schedule;
    hypers->scheduled |= bit(index);
    hypers->value[index] = scheduled_value(hyper, schedule, 0);
    return PD_OK;
}

static int set_text(pd_hypers *hypers, int index, const char *text, pd_error *err)
{
    const char *name = hypers->row->hypers[index].name, *row = hypers->row->name;
    size_t length = strnlen(text, PD_MAX_TEXT + 1);
    pd_hyper_text *node;

    if (length > PD_MAX_TEXT)
        return pd_fail(err, PD_OUT_OF_RANGE, "%s of %s: expected a text of at most %d bytes, got %zu", name, row,
                       PD_MAX_TEXT, strlen(text));
    if (length > 0) {
        if ((node = malloc(sizeof *node + length + 1)) == NULL)
            return pd_fail(err, PD_NO_MEMORY, "%s of %s: out of memory for its text", name, row);
        *node = (pd_hyper_text){ .next = hypers->texts, .owner = hypers, .index = index };
        memcpy(node->text, text, length + 1);
        hypers->texts = node;
    }
    hypers->value[index] = length > 0;
    return PD_OK;
}

/* Returns the text of hyperparameter number `index`: the first node with this index in the list of texts. NULL: the
 * hyperparameter has no text, for instance because only the numbers were copied into this struct. */
static const pd_hyper_text *text_of(const pd_hypers *hypers, int index)
{
    const pd_hyper_text *text = hypers->texts;

    while (text != NULL && text->index != index) text = text->next;
    return hypers->value[index] != 0 ? text : NULL;
}

const char *pd_hypers_given_text(const pd_hypers *hypers, int index)
{
    const pd_hyper_text *text = text_of(hypers, index);
    return text != NULL ? text->text : "";
}

/* Sets one hyperparameter from what a user wrote: a text, a schedule or a number. Sets the hyperparameter's bit in
 * *mask. */
static int set_one(pd_hypers *hypers, int index, const char *value, uint64_t *mask, pd_error *err)
{
    int rc;

    if (hypers->row->hypers[index].type == PD_TEXT)
        rc = set_text(hypers, index, value, err);
    else
        rc = pd_schedule_is_text(value) ? set_schedule(hypers, index, value, err)
                                        : set_number(hypers, index, value, err);
    if (rc == PD_OK) *mask |= bit(index);
    return rc;
}

/* Finds the entries of a hyperparameter that is a list, such as betas: they are hyperparameters of their own, NAME[0],
 * NAME[1] and so on. Returns the index of NAME[0] and sets *n to the number of entries; -1: NAME is no list. */
static int find_list(const pd_optimizer_ops *ops, const char *name, int *n)
{
    char entry[96];
    int first;

    snprintf(entry, sizeof entry, "%.64s[0]", name);
    if ((first = pd_hypers_find(ops, entry)) < 0) return -1;
    for (*n = 1; ops->hypers[first + *n].name != NULL; ++*n) {
        snprintf(entry, sizeof entry, "%.64s[%d]", name, *n);
        if (strcmp(ops->hypers[first + *n].name, entry) != 0) break;
    }
    return first;
}

static int no_list(const pd_optimizer_ops *ops, const char *name, int n, bool spreads, const char *text, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%.64s of %s: expected %s%d numbers with commas between them, got \"%.64s\"", name, ops->name,
                   spreads ? "a number, or at most " : "", n, text);
}

/* Sets all numbers of a hyperparameter that is a list, such as betas, from a text like "0.9,0.999", also in () or [].
 * `items` is a copy of the text inside the brackets, which the function cuts into items. If `items` is NULL, the text
 * is a single number. */
static int set_list(pd_hypers *hypers, int first, int n, const char *name, const char *text, char *items,
                    uint64_t *mask, pd_error *err)
{
    const pd_hyper *hyper = &hypers->row->hypers[first];
    bool whole = items == NULL; /* whether the text of a list is a single number, without brackets and commas */
    int i = 0, rc = PD_OK;

    for (int k = 0; whole && hyper->spreads && k < n; k++)
        if ((rc = set_one(hypers, first + k, text, mask, err)) != PD_OK) return rc;
    if (whole) return hyper->spreads ? PD_OK : no_list(hypers->row, name, n, false, text, err);
    for (char *item; (item = pd_text_item(&items)) != NULL; i++) {
        if (i == n) return no_list(hypers->row, name, n, hyper->spreads, text, err);
        if ((rc = set_one(hypers, first + i, item, mask, err)) != PD_OK) return rc;
    }
    if (i < n && !hyper->spreads) return no_list(hypers->row, name, n, false, text, err);
    for (; i < n; i++) { /* entries of the list that the text leaves out get their defaults */
        hypers->value[first + i] = hypers->row->hypers[first + i].preset;
        hypers->scheduled &= ~bit(first + i);
        *mask |= bit(first + i);
    }
    return PD_OK;
}

static bool has_members(const pd_optimizer_ops *ops, const char *name)
{
    size_t length = strlen(name);

    for (int i = 0; ops->hypers[i].name != NULL; i++)
        if (strncmp(ops->hypers[i].name, name, length) == 0 && ops->hypers[i].name[length] == '.') return true;
    return false;
}

uint64_t pd_hypers_bits(const pd_optimizer_ops *ops, const char *name)
{
    int n = 1, first = pd_hypers_find(ops, name);
    uint64_t mask = 0;

    if (first < 0 && (first = find_list(ops, name, &n)) < 0) return 0;
    for (int i = 0; i < n; i++) mask |= bit(first + i);
    return mask;
}

/* Sets a hyperparameter that is a choice with options, from a text like "Adam(beta2=0.999,epsilon=1e-8)". The choice
 * NAME becomes the word before the bracket, and its options NAME.beta2 and NAME.epsilon get their values. `members` is
 * a copy of the text inside the brackets, which the function cuts into options. */
static int set_members(pd_hypers *hypers, int index, const char *name, const char *text, char *members, uint64_t *mask,
                       pd_error *err)
{
    char word[64], entry[160];
    int rc;

    snprintf(word, sizeof word, "%.*s", (int)strcspn(text, "("), text);
    if ((rc = set_one(hypers, index, word, mask, err)) != PD_OK) return rc;
    for (char *member; (member = pd_text_item(&members)) != NULL;) {
        char *equals = strchr(member, '=');
        int at;
        if (equals == NULL)
            return pd_fail(err, PD_INVALID_ARGUMENT, "%.64s of %s: expected word(name=value,...), got \"%.64s\"", name,
                           hypers->row->name, text);
        *equals = '\0';
        snprintf(entry, sizeof entry, "%.64s.%.64s", name, member);
        if ((at = pd_hypers_find(hypers->row, entry)) < 0) return no_such_hyper(hypers->row, entry, err);
        if ((rc = set_one(hypers, at, equals + 1, mask, err)) != PD_OK) return rc;
    }
    return PD_OK;
}

static int set_named(pd_hypers *hypers, const char *name, const char *value, uint64_t *mask, pd_error *err)
{
    int n = 0, index = pd_hypers_find(hypers->row, name), list = index < 0 ? find_list(hypers->row, name, &n) : -1, rc;
    char *inside;

    if (index < 0 && list < 0) return no_such_hyper(hypers->row, name, err);
    if (index >= 0 &&
        (hypers->row->hypers[index].type == PD_TEXT || strchr(value, '(') == NULL || !has_members(hypers->row, name)))
        return set_one(hypers, index, value, mask, err);
    if ((rc = pd_text_inside(&inside, value)) != PD_OK) return pd_fail(err, rc, "out of memory");
    if (index >= 0)
        rc = set_members(hypers, index, name, value, inside == NULL ? (char[]){ "" } : inside, mask, err);
    else
        rc = set_list(hypers, list, n, name, value, inside, mask, err);
    free(inside);
    return rc;
}

/* Frees the schedules that were set in this struct, from the head of the list up to the schedule `keep`, which stays.
 * If `keep` is NULL, all schedules that were set in this struct are freed. Schedules borrowed from a copied struct
 * stay. */
static void drop_schedules(pd_hypers *hypers, const pd_schedule *keep)
{
    while (hypers->schedules != keep && hypers->schedules->owner == hypers) {
        pd_schedule *mine = (pd_schedule *)hypers->schedules;
        hypers->schedules = mine->next;
        pd_schedule_free(mine);
    }
}

static void drop_texts(pd_hypers *hypers, const pd_hyper_text *keep)
{
    while (hypers->texts != keep && hypers->texts->owner == hypers) {
        pd_hyper_text *mine = (pd_hyper_text *)hypers->texts;
        hypers->texts = mine->next;
        free(mine);
    }
}

int pd_hypers_set_which(pd_hypers *hypers, const char *name, const char *value, uint64_t *mask, pd_error *err)
{
    const pd_schedule *schedules = hypers->schedules;
    const pd_hyper_text *texts = hypers->texts;
    uint64_t scheduled = hypers->scheduled, set = 0;
    double before[PD_MAX_HYPERS];
    int rc;

    memcpy(before, hypers->value, sizeof before);
    if ((rc = set_named(hypers, name, value, &set, err)) == PD_OK) {
        *mask |= set;
        return PD_OK;
    }
    /* undoes the changes that were made before the error, for instance in a list of values */
    drop_schedules(hypers, schedules);
    drop_texts(hypers, texts);
    memcpy(hypers->value, before, sizeof before);
    hypers->scheduled = scheduled;
    return rc;
}

int pd_hypers_set(pd_hypers *hypers, const char *name, const char *value, pd_error *err)
{
    uint64_t mask = 0;
    return pd_hypers_set_which(hypers, name, value, &mask, err);
}

void pd_hypers_free(pd_hypers *hypers)
{
    drop_schedules(hypers, NULL);
    hypers->schedules = NULL;
    hypers->scheduled = 0;
    drop_texts(hypers, NULL);
    hypers->texts = NULL;
}

/* Returns the schedule of hyperparameter number `index`: the first node with this index in the list of schedules. The
 * hyperparameter must have a schedule. */
static const pd_schedule *schedule_of(const pd_hypers *hypers, int index)
{
    const pd_schedule *schedule = hypers->schedules;

    while (schedule->index != index) schedule = schedule->next;
    return schedule;
}

/* Writes the values that follow a schedule. */
static void put_scheduled(const pd_hypers *hypers, int64_t count, double *value)
{
    uint64_t left = hypers->scheduled;

    for (const pd_schedule *schedule = hypers->schedules; left != 0; schedule = schedule->next) {
        int i = schedule->index;
        if ((left & bit(i)) != 0) value[i] = scheduled_value(&hypers->row->hypers[i], schedule, count);
        left &= ~bit(i);
    }
}

void pd_hypers_at(const pd_hypers *hypers, int64_t count, double *value)
{
    memcpy(value, hypers->value, sizeof hypers->value);
    put_scheduled(hypers, count, value);
}

void pd_hypers_put(const pd_hypers *hypers, int64_t count, double *value)
{
    for (int i = 0; hypers->row->hypers[i].name != NULL; i++) value[i] = hypers->value[i];
    put_scheduled(hypers, count, value);
}

static int check_corners(const pd_hypers *hypers, const pd_schedule *schedule, pd_error *err)
{
    pd_hypers now = *hypers;
    pd_error why;
    int64_t count;

    for (size_t i = 0; pd_schedule_corner(schedule, i, &count); i++) {
        int rc;
        pd_hypers_at(hypers, count, now.value);
        if ((rc = hypers->row->check(hypers, &now, &why)) != PD_OK)
            return pd_fail(err, rc, "%.440s, at count %lld of a schedule", why.text, (long long)count);
    }
    return PD_OK;
}

int pd_hypers_check(const pd_hypers *hypers, pd_error *err)
{
    int rc;

    if (hypers->row->check == NULL) return PD_OK;
    rc = hypers->row->check(hypers, hypers, err);
    for (int i = 0; rc == PD_OK && hypers->row->hypers[i].name != NULL; i++)
        if ((hypers->scheduled & bit(i)) != 0) rc = check_corners(hypers, schedule_of(hypers, i), err);
    return rc;
}

/* Returns whether hyperparameter number `index`, a text, has another text in `now` than in `declared`. If `now` has
 * numbers only, its texts count as unchanged. */
static bool is_another_text(const pd_hypers *declared, const pd_hypers *now, int index)
{
    const pd_hyper_text *text = text_of(now, index);
    return text != NULL && strcmp(text->text, pd_hypers_given_text(declared, index)) != 0;
}

int pd_hypers_check_step(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const pd_optimizer_ops *ops = declared->row;
    char was[64], is[64];

    for (int i = 0; ops->hypers[i].name != NULL; i++)
        if (!ops->hypers[i].per_step && (declared->value[i] != now->value[i] || is_another_text(declared, now, i)))
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "%s of %s cannot change while the job runs: it is %.64s, a step asks for %.64s",
                           ops->hypers[i].name, ops->name, pd_hypers_text(declared, i, was, sizeof was),
                           pd_hypers_text(now, i, is, sizeof is));
    return ops->check == NULL ? PD_OK : ops->check(declared, now, err);
}

static void number_text(const pd_hyper *hyper, double value, char *text, size_t size)
{
    if (hyper->choices != NULL && value == hyper->least)
        snprintf(text, size, "%s", hyper->choices);
    else if (hyper->type == PD_INT)
        snprintf(text, size, "%lld", (long long)value);
    else
        pd_number_text(value, text, size);
}

const char *pd_hypers_text(const pd_hypers *hypers, int index, char *text, size_t size)
{
    const pd_hyper *hyper = &hypers->row->hypers[index];
    double value = hypers->value[index];
    const char *choice = "?";
    size_t length = 1;

    if ((hypers->scheduled & bit(index)) != 0) return schedule_of(hypers, index)->text;
    switch (hyper->type) {
    case PD_REAL:
    case PD_INT: number_text(hyper, value, text, size); break;
    case PD_FLAG: snprintf(text, size, "%s", value != 0 ? "yes" : "no"); break;
    case PD_CHOICE:
        choice = choice_at(hyper->choices, (int)value, &length);
        snprintf(text, size, "%.*s", choice == NULL ? 0 : (int)length, choice == NULL ? "" : choice);
        break;
    case PD_TEXT: return pd_hypers_given_text(hypers, index);
    }
    return text;
}
