/* pattern.h - regular expressions that come from peers, searched for in names. Pure.
 *
 * An expression is found as Python's re.search finds it: anywhere, case-sensitive, in UTF-8. The syntax is
 * PCRE2's, which has Python's but for a few rare forms; {,n} is {0,n} and a [ inside of [] stands for itself, as
 * there.
 *
 * What searches cost is counted in steps, and those of a pd_search all draw on one budget, whatever the
 * expressions. A step is about 20 ns at most: an item of the expression that is tried at a place of the text is
 * one and some more by what it may run over, a search at least 8, compiling by its result. */
#ifndef PD_PATTERN_H
#define PD_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

#define PD_MAX_PATTERN 1024     /* bytes */

typedef struct pd_search  pd_search;    /* a budget, and what searches work with: of one thread */
typedef struct pd_pattern pd_pattern;   /* an expression, compiled when it is first searched for */

/* NULL: out of memory. */
pd_search *pd_search_new(int64_t steps);
void       pd_search_free(pd_search *search);               /* accepts NULL */
int64_t    pd_search_left(const pd_search *search);         /* steps; below 0: the last one wanted more */

/* NULL: out of memory. It belongs to the search, which must outlive it, but for the text, which is copied. */
pd_pattern *pd_pattern_new(pd_search *search, const char *text);
void        pd_pattern_free(pd_pattern *pattern);           /* accepts NULL */

/* Is it found in the text? Gives *found. PD_INVALID_ARGUMENT: no regular expression, or one of more than
 * PD_MAX_PATTERN bytes. PD_RESOURCE_EXHAUSTED: the budget is used up, or this takes too much memory. PD_NO_MEMORY. */
int pd_pattern_find(pd_pattern *pattern, const char *text, bool *found, pd_error *err);

#endif
