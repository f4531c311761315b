/* pattern.c - searches names with regular expressions. A budget limits how long all searches together may take. The
 * only file that uses PCRE2 (the library of regular expressions). */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 1000, HEAP_KIB = 1024 };
enum { START = 8 }; /* budget that each search uses up before it tries the first item of the expression */

/* Options with which an expression is compiled. If both the text and the expression are ASCII, characters are treated
 * as single bytes, which makes a search many times faster. In both modes PCRE2 calls the function `count` before each
 * item of the expression. */
enum { ASCII, UTF8, MODES };
static const uint32_t options[MODES] = {
    [ASCII] = PCRE2_AUTO_CALLOUT | PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF | PCRE2_NEVER_UCP,
    [UTF8] = PCRE2_AUTO_CALLOUT | PCRE2_NEVER_BACKSLASH_C | PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF,
};

struct pd_search {
    pcre2_general_context *general;
    pcre2_compile_context *compile;
    pcre2_match_context *match;
    pcre2_match_data *data;
    int64_t left;
    int64_t least;  /* searches end when less than this is left: pd_search_limit */
    int64_t weight; /* how much of the search budget one matching step of the current expression uses */
};

struct pd_pattern {
    pd_search *search;
    char *text;
    char *ours; /* the regular expression in PCRE2's syntax; NULL: the expression is too long */
    bool ascii;
    pcre2_code *code[MODES]; /* the compiled expression for each mode (ASCII, UTF-8); NULL: not compiled yet */
    int64_t weight[MODES];
};

/* Allocates with malloc, as the rest of the project does, instead of PCRE2's default allocator. */
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

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory for a regular expression");
}

/* ---- the budget ---- */

/* Subtracts one matching step from the search budget. PCRE2 calls this function before each item of the expression. An
 * item that is longer than one byte may scan the rest of the text, and compare each character with the whole item, so
 * such an item costs more. */
static int count(pcre2_callout_block *at, void *arg)
{
    pd_search *search = arg;
    int64_t over = at->next_item_length > 1
                       ? (int64_t)(at->next_item_length * (at->subject_length - at->current_position)) / 32
                       : 0;

    search->left -= search->weight * (1 + over);
    return search->left >= search->least ? 0 : PCRE2_ERROR_CALLOUT;
}

pd_search *pd_search_new(int64_t steps)
{
    pd_search *search = calloc(1, sizeof *search);

    if (search == NULL) return NULL;
    search->left = steps;
    if ((search->general = pcre2_general_context_create(get, put, NULL)) != NULL) {
        search->compile = pcre2_compile_context_create(search->general);
        search->match = pcre2_match_context_create(search->general);
        search->data = pcre2_match_data_create(1, search->general);
    }
    if (search->compile == NULL || search->match == NULL || search->data == NULL) {
        pd_search_free(search);
        return NULL;
    }
    pcre2_set_depth_limit(search->match, DEPTH);
    pcre2_set_heap_limit(search->match, HEAP_KIB);
    pcre2_set_callout(search->match, count, search);
    return search;
}

void pd_search_free(pd_search *search)
{
    if (search == NULL) return;
    pcre2_match_data_free(search->data);
    pcre2_match_context_free(search->match);
    pcre2_compile_context_free(search->compile);
    pcre2_general_context_free(search->general);
    free(search);
}

int64_t pd_search_left(const pd_search *search)
{
    return search->left;
}

void pd_search_limit(pd_search *search, int64_t steps)
{
    search->least = search->left > steps ? search->left - steps : 0;
}

/* ---- expressions ---- */

static bool is_ascii(const char *text)
{
    while ((signed char)*text > 0) text++;
    return *text == '\0';
}

/* Returns whether the expression has "{,n}" or "{,}" at `at`. Python reads these repetitions as {0,n} and {0,}, but
 * PCRE2 does not. */
static bool has_no_least(const char *at)
{
    return at[0] == '{' && at[1] == ',' && at[2 + strspn(at + 2, "0123456789")] == '}';
}

/* Copies a character class of a regular expression, "[...]", and escapes each '[' inside it. A ']' directly after the
 * opening bracket is an ordinary character. Moves *from to the closing ']', or to the end of the text. Returns the end
 * of the copy. */
static char *copy_class(char *to, const char **from)
{
    const char *at = *from;

    *to++ = *at++;
    if (*at == '^') *to++ = *at++;
    if (*at == ']') *to++ = *at++;
    for (; *at != '\0' && *at != ']'; at++) {
        if (*at == '[') *to++ = '\\';
        *to++ = *at;
        if (*at == '\\' && at[1] != '\0') *to++ = *++at;
    }
    *from = at;
    return to;
}

/* Translates a regular expression from Python's syntax to PCRE2's. The result is at most twice as long. */
static void respell(char *to, const char *from)
{
    while (*from != '\0') {
        if (*from == '[') to = copy_class(to, &from);
        if (*from == '\0') break;
        *to++ = *from;
        if (*from == '\\' && from[1] != '\0')
            *to++ = *++from;
        else if (has_no_least(from))
            *to++ = '0';
        from++;
    }
    *to = '\0';
}

pd_pattern *pd_pattern_new(pd_search *search, const char *text)
{
    pd_pattern *pattern = calloc(1, sizeof *pattern);
    size_t n = strlen(text);

    if (pattern == NULL) return NULL;
    pattern->search = search;
    pattern->ascii = is_ascii(text);
    pattern->text = strdup(text);
    if (n <= PD_MAX_PATTERN && (pattern->ours = malloc(2 * n + 1)) != NULL) respell(pattern->ours, text);
    if (pattern->text != NULL && (pattern->ours != NULL || n > PD_MAX_PATTERN)) return pattern;
    pd_pattern_free(pattern);
    return NULL;
}

void pd_pattern_free(pd_pattern *pattern)
{
    if (pattern == NULL) return;
    for (int mode = 0; mode < MODES; mode++) pcre2_code_free(pattern->code[mode]);
    free(pattern->ours);
    free(pattern->text);
    free(pattern);
}

/* Sets how much of the search budget one matching step of a compiled expression uses. Capture groups raise this cost,
 * because each step copies their positions. Also subtracts the cost of the compilation from the budget. */
static void weigh(pd_pattern *pattern, int mode)
{
    uint32_t groups = 0;
    size_t size = 0;

    (void)pcre2_pattern_info(pattern->code[mode], PCRE2_INFO_CAPTURECOUNT, &groups);
    (void)pcre2_pattern_info(pattern->code[mode], PCRE2_INFO_SIZE, &size);
    pattern->weight[mode] = (mode == UTF8 ? 4 : 1) * (1 + (int64_t)groups / 16);
    pattern->search->left -= (int64_t)size / 4;
    pattern->search->least -= (int64_t)size / 4;
    if (pattern->search->least < 0) pattern->search->least = 0;
}

static int compile(pd_pattern *pattern, int mode, pd_error *err)
{
    PCRE2_UCHAR words[160] = "";
    size_t at = 0;
    int code = 0;

    if (pattern->ours == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "the regular expression \"%.64s...\" has %zu bytes; expected at most %d", pattern->text,
                       strlen(pattern->text), PD_MAX_PATTERN);
    pattern->code[mode] = pcre2_compile((PCRE2_SPTR)pattern->ours, PCRE2_ZERO_TERMINATED, options[mode], &code, &at,
                                        pattern->search->compile);
    if (pattern->code[mode] != NULL) {
        weigh(pattern, mode);
        return PD_OK;
    }
    if (code == PCRE2_ERROR_HEAP_FAILED) return no_memory(err);
    (void)pcre2_get_error_message(code, words, sizeof words);
    return pd_fail(err, PD_INVALID_ARGUMENT, "\"%.128s\" is not a regular expression: %s at byte %zu", pattern->ours,
                   (const char *)words, at);
}

/* ---- searches ---- */

int pd_pattern_find(pd_pattern *pattern, const char *text, bool *found, pd_error *err)
{
    pd_search *search = pattern->search;
    int mode = pattern->ascii && is_ascii(text) ? ASCII : UTF8, rc;

    *found = false;
    if (pattern->code[mode] == NULL && (rc = compile(pattern, mode, err)) != PD_OK) return rc;
    search->weight = pattern->weight[mode];
    search->left -= START * search->weight;
    rc = search->left < search->least
             ? PCRE2_ERROR_CALLOUT
             : pcre2_match(pattern->code[mode], (PCRE2_SPTR)text, strlen(text), 0, 0, search->data, search->match);
    *found = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return PD_OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return no_memory(err);
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "searching \"%.128s\" for the regular expression \"%.128s\" takes too %s: simplify the expression",
                   text, pattern->text,
                   rc == PCRE2_ERROR_CALLOUT ? "long, together with all earlier searches" : "much memory");
}
