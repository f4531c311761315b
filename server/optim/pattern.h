/* pattern.h - searches names for regular expressions that come from peers. Pure functions.
 *
 * A search works as Python's re.search does: it looks for the expression anywhere in the text, case-sensitive, in
 * UTF-8. The syntax is that of the library PCRE2. It includes Python's syntax except a few rare forms. As in Python,
 * {,n} means {0,n}, and a [ inside of [] stands for itself.
 *
 * The cost of searches is counted in steps, and all searches of a pd_search share one budget. A step takes at most
 * about 20 ns. Trying an item of the expression at a place of the text costs one step, and more if the item can run
 * over more text. A search costs at least 8 steps. Compiling an expression costs steps in proportion to the size of the
 * result. */
#ifndef PD_PATTERN_H
#define PD_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

#define PD_MAX_PATTERN 1024 /* longest regular expression, in bytes */

typedef struct pd_search pd_search;   /* budget and work memory for searches; for use by one thread */
typedef struct pd_pattern pd_pattern; /* a regular expression; it is compiled when it is used for the first time */

/* Makes a search whose budget is `steps` matching steps. NULL: out of memory. */
pd_search *pd_search_new(int64_t steps);
void pd_search_free(pd_search *search); /* accepts NULL */
/* Returns how many matching steps are left of the budget; below 0: the last search needed more than there were. */
int64_t pd_search_left(const pd_search *search);

/* Lets the searches from now on use at most `steps` matching steps of what is left of the budget. Compiling does not
 * count here. */
void pd_search_limit(pd_search *search, int64_t steps);

/* Makes a pattern from the text of a regular expression, which is copied. The pattern uses the budget of `search`, and
 * must be freed before `search` is. NULL: out of memory. */
pd_pattern *pd_pattern_new(pd_search *search, const char *text);
void pd_pattern_free(pd_pattern *pattern); /* accepts NULL */

/* Searches `text` for the pattern and sets *found. PD_INVALID_ARGUMENT: the pattern is not a regular expression, or has
 * more than PD_MAX_PATTERN bytes. PD_RESOURCE_EXHAUSTED: the budget for all searches is used up, or this search needs
 * too much memory. PD_NO_MEMORY: out of memory. */
int pd_pattern_find(pd_pattern *pattern, const char *text, bool *found, pd_error *err);

#endif
