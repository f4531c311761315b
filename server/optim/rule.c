/* rule.c - reads the optimizer rules of a job ("glob optimizer name=value ..."), and finds the first rule whose glob
 * matches a parameter's name. */
#include "rule.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "optimizer_ops.h"
#include "hyper_text.h"

static const pd_optimizer_ops *find_row(const pd_optimizer_ops *const *rows, const char *name)
{
    for (; *rows != NULL; rows++)
        if (strcmp(pd_optimizer_name(*rows), name) == 0) return *rows;
    return NULL;
}

static int unknown_optimizer(const char *rule, const char *name, const pd_optimizer_ops *const *rows, pd_error *err)
{
    char list[256] = "";

    for (size_t i = 0; rows[i] != NULL; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", pd_optimizer_name(rows[i]));
    }
    return pd_fail(err, PD_INVALID_ARGUMENT, "rule \"%.100s\": there is no optimizer %.40s; there are: %s", rule, name,
                   list);
}

static int set_hyper(pd_rule *rule, char *word, pd_error *err)
{
    char *equals = strchr(word, '=');
    pd_error why;
    int rc;

    if (equals == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "rule \"%.100s\": expected name=value, got \"%.60s\"", rule->text,
                       word);
    *equals = '\0';
    rc = pd_hypers_set(&rule->hypers, word, equals + 1, &why);
    if (rc == PD_OK) return PD_OK;
    return pd_fail(err, rc == PD_NO_MEMORY ? rc : PD_INVALID_ARGUMENT, "rule \"%.100s\": %.300s", rule->text, why.text);
}

/* Reads an optimizer rule from `words`, a copy of its text, which the function cuts into words. */
static int parse_words(pd_rule *rule, char *words, const pd_optimizer_ops *const *rows, pd_error *err)
{
    static const char blank[] = " \t";
    char *rest = NULL, *glob = strtok_r(words, blank, &rest), *name = strtok_r(NULL, blank, &rest), *word;
    const pd_optimizer_ops *ops;
    pd_error why;

    if (name == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "rule \"%.100s\": expected \"glob optimizer name=value ...\"",
                       rule->text);
    if ((ops = find_row(rows, name)) == NULL) return unknown_optimizer(rule->text, name, rows, err);
    if ((rule->glob = pd_glob_new(glob)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for a rule");
    pd_hypers_init(&rule->hypers, ops);
    while ((word = pd_text_word(&rest)) != NULL) {
        int rc = set_hyper(rule, word, err);
        if (rc != PD_OK) return rc;
    }
    if (pd_hypers_check(&rule->hypers, &why) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "rule \"%.100s\": %.300s", rule->text, why.text);
    return PD_OK;
}

static int parse_rule(pd_rule *rule, const char *text, const pd_optimizer_ops *const *rows, pd_error *err)
{
    char *words = strdup(text);
    int rc;

    rule->text = strdup(text);
    if (words == NULL || rule->text == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory for a rule");
    else
        rc = parse_words(rule, words, rows, err);
    free(words);
    return rc;
}

/* Makes a job's rule for model state: parameters that are averaged but not trained. The rule's empty glob matches no
 * parameter's name, since names are never empty. */
static int make_state_rule(pd_rule *rule, pd_error *err)
{
    rule->text = strdup("model_state");
    rule->glob = pd_glob_new("");
    pd_hypers_init(&rule->hypers, &pd_model_state);
    return rule->text != NULL && rule->glob != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory for a rule");
}

static int parse(pd_rule **out, size_t *n_out, char *const *rules, size_t n, const pd_optimizer_ops *const *rows,
                 bool with_state, pd_error *err)
{
    static char *const preset[] = { (char *)"* sgd" };
    pd_rule *parsed;
    int rc = PD_OK;

    if (n == 0) {
        rules = preset;
        n = 1;
    }
    if ((parsed = calloc(n + 1, sizeof *parsed)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for rules");
    for (size_t i = 0; i < n && rc == PD_OK; i++) rc = parse_rule(&parsed[i], rules[i], rows, err);
    if (rc == PD_OK && with_state) rc = make_state_rule(&parsed[n], err);
    if (rc != PD_OK) {
        pd_rules_free(parsed, n + 1);
        return rc;
    }
    *out = parsed;
    *n_out = n + with_state;
    return PD_OK;
}

int pd_rules_parse(pd_rule **out, size_t *n_out, char *const *rules, size_t n, const pd_optimizer_ops *const *rows,
                   pd_error *err)
{
    return parse(out, n_out, rules, n, rows, false, err);
}

int pd_rules_of_job(pd_rule **out, size_t *n_out, char *const *rules, size_t n, const pd_optimizer_ops *const *rows,
                    pd_error *err)
{
    return parse(out, n_out, rules, n, rows, true, err);
}

pd_rule *pd_rules_of_state(pd_rule *rules, size_t n)
{
    return &rules[n - 1];
}

void pd_rules_free(pd_rule *rules, size_t n)
{
    for (size_t i = 0; rules != NULL && i < n; i++) {
        free(rules[i].text);
        pd_glob_free(rules[i].glob);
        pd_hypers_free(&rules[i].hypers);
    }
    free(rules);
}

pd_rule *pd_rules_match(pd_rule *rules, size_t n, const char *name, double *cost_ns)
{
    size_t length = strlen(name);
    double ns = 0;
    pd_rule *found = NULL;

    for (size_t i = 0; i < n && found == NULL; i++) {
        ns += pd_glob_ns(rules[i].glob, length);
        if (pd_glob_match(rules[i].glob, name)) found = &rules[i];
    }
    if (cost_ns != NULL) *cost_ns += ns;
    return found;
}
