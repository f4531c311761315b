/* hello.c - checks a Hello request by itself, without looking at any job. */
#include "hello.h"

#include "glob.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

static int check_name(const char *name, pd_error *err)
{
    if (name == NULL || name[0] == '\0' || strlen(name) > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a job's name has 1 to %d bytes", PD_NAME_MAX);
    return pd_text_check("the job's name", name, err);
}

/* Checks an option or rule. Its text may appear in errors of other workers, so it must be printable; only tabs between
 * the words of a rule are allowed. */
static int check_option(const pd_option *option, size_t i, pd_error *err)
{
    char what[48];

    snprintf(what, sizeof what, "the name of option %zu", i);
    if (pd_text_check(what, option->name, err) != PD_OK) return PD_INVALID_ARGUMENT;
    snprintf(what, sizeof what, "the value of option %zu", i);
    return pd_text_check(what, option->value, err);
}

static int check_rule(const char *rule, size_t i, pd_error *err)
{
    size_t n = strlen(rule), at = pd_text_printable(rule, n);
    uint32_t point = 0;

    while (rule[at] == '\t') at += 1 + pd_text_printable(rule + at + 1, n - at - 1);
    if (at == n) return PD_OK;
    if (pd_utf8_next(rule + at, n - at, &point) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "rule %zu is not UTF-8 at byte %zu: \"%.200s\"", i, at, rule);
    return pd_fail(err, PD_INVALID_ARGUMENT, "rule %zu has a control character at byte %zu, U+%04X: \"%.200s\"", i, at,
                   (unsigned)point, rule);
}

static int check_texts(const pd_request *request, pd_error *err)
{
    const char *run = request->u.hello.run;
    int rc = check_name(request->u.hello.job_name, err);

    if (rc == PD_OK && run != NULL && strlen(run) > PD_RUN_MAX)
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "the run of job %.100s has %zu bytes, at most %d are allowed",
                     request->u.hello.job_name, strlen(run), PD_RUN_MAX);
    if (rc == PD_OK && run != NULL) rc = pd_text_check("the run", run, err);

    for (size_t i = 0; rc == PD_OK && i < request->u.hello.n_options; i++)
        rc = check_option(&request->u.hello.options[i], i, err);
    for (size_t i = 0; rc == PD_OK && i < request->u.hello.n_rules; i++)
        rc = check_rule(request->u.hello.rules[i], i, err);
    return rc;
}

int pd_hello_check(const pd_request *request, pd_error *err)
{
    int rc = check_texts(request, err);

    if (rc != PD_OK) return rc;
    if (request->u.hello.world_size == 0 || request->u.hello.world_size > PD_MAX_WORLD)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a job has 1 to %d workers, not %u", PD_MAX_WORLD,
                       request->u.hello.world_size);
    if (request->rank >= request->u.hello.world_size)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a job of %u workers has ranks 0 to %u, not %u",
                       request->u.hello.world_size, request->u.hello.world_size - 1, request->rank);
    return PD_OK;
}

int pd_hello_check_globs(const pd_request *request, pd_error *err)
{
    static const char blanks[] = " \t";

    for (size_t i = 0; i < request->u.hello.n_rules; i++) {
        const char *glob = request->u.hello.rules[i] + strspn(request->u.hello.rules[i], blanks);
        size_t n = strcspn(glob, blanks);
        if (n > PD_GLOB_MAX)
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "rule %zu: its glob \"%.80s...\" has %zu bytes; expected at most %d: use * for a part of it",
                           i, glob, n, PD_GLOB_MAX);
    }
    return PD_OK;
}
