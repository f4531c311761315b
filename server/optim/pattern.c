#define PCRE2_CODE_UNIT_WIDTH 8

#include "pattern.h"

#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 1000000, LEAST_STEPS = 1000 };       /* of a search from all starts together; from one start */
enum { DEPTH = 1000, HEAP_KIB = 1024 };

#define OPTIONS (PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C)

typedef struct search {
    pcre2_general_context *general;
    pcre2_compile_context *compile;
    pcre2_match_context   *match;
    pcre2_match_data      *data;
    pcre2_code            *code;
} search;

/* Our own calls, as all of the project's. */
static void *get(size_t size, void *nothing)
{
    (void)nothing;
    return malloc(size);
}

static void put(void *at, void *nothing)
{
    (void)nothing;
    free(at);
}

static void close_search(search *s)
{
    pcre2_code_free(s->code);
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->match);
    pcre2_compile_context_free(s->compile);
    pcre2_general_context_free(s->general);
}

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory for a regular expression");
}

static int open_search(search *s, pd_error *err)
{
    if ((s->general = pcre2_general_context_create(get, put, NULL)) == NULL) return no_memory(err);
    s->compile = pcre2_compile_context_create(s->general);
    s->match = pcre2_match_context_create(s->general);
    s->data = pcre2_match_data_create(1, s->general);
    if (s->compile == NULL || s->match == NULL || s->data == NULL) return no_memory(err);
    pcre2_set_max_pattern_length(s->compile, PD_MAX_PATTERN);
    pcre2_set_depth_limit(s->match, DEPTH);
    pcre2_set_heap_limit(s->match, HEAP_KIB);
    return PD_OK;
}

static int compile(search *s, const char *pattern, pd_error *err)
{
    PCRE2_UCHAR words[160] = "";
    size_t at = 0;
    int code = 0;

    s->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, OPTIONS, &code, &at, s->compile);
    if (s->code != NULL) return PD_OK;
    if (code == PCRE2_ERROR_HEAP_FAILED) return no_memory(err);
    (void)pcre2_get_error_message(code, words, sizeof words);
    if (code == PCRE2_ERROR_PATTERN_STRING_TOO_LONG)
        return pd_fail(err, PD_INVALID_ARGUMENT, "the regular expression \"%.64s...\" has %zu bytes; it may have %d", pattern, strlen(pattern), PD_MAX_PATTERN);
    return pd_fail(err, PD_INVALID_ARGUMENT, "\"%.128s\" is not a regular expression: %s at byte %zu", pattern, (const char *)words, at);
}

/* The limit counts anew from each start. */
static int find(search *s, const char *pattern, const char *text, bool *found, pd_error *err)
{
    size_t length = strlen(text), steps = STEPS / (length + 1);
    int rc;

    pcre2_set_match_limit(s->match, (uint32_t)(steps > LEAST_STEPS ? steps : LEAST_STEPS));
    rc = pcre2_match(s->code, (PCRE2_SPTR)text, length, 0, 0, s->data, s->match);
    *found = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return PD_OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return no_memory(err);
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "the regular expression \"%.128s\" takes too long or too much memory to be searched for in \"%.128s\": make it simpler",
                   pattern, text);
}

int pd_pattern_find(const char *pattern, const char *const *texts, size_t n, bool *found, pd_error *err)
{
    search s = { 0 };
    int rc = open_search(&s, err);

    *found = false;
    if (rc == PD_OK) rc = compile(&s, pattern, err);
    for (size_t i = 0; rc == PD_OK && !*found && i < n; i++) rc = find(&s, pattern, texts[i], found, err);
    close_search(&s);
    return rc;
}
