/* pattern.h - regular expressions that come from peers, searched for in names. Pure.
 *
 * An expression is found as Python's re.search finds it: anywhere, case-sensitive, in UTF-8. The syntax is PCRE2's, which has Python's but for a few
 * rare forms ({,n} is {0,n} only there). What a search costs is bounded in steps and memory, whatever the expression. */
#ifndef PD_PATTERN_H
#define PD_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "paramd/error.h"

#define PD_MAX_PATTERN 1024     /* bytes */

/* Is it found in one of the n texts? Gives *found. PD_INVALID_ARGUMENT: no regular expression, or one of more than PD_MAX_PATTERN bytes.
 * PD_RESOURCE_EXHAUSTED: the search takes too many steps or too much memory. PD_NO_MEMORY. */
int pd_pattern_find(const char *pattern, const char *const *texts, size_t n, bool *found, pd_error *err);

#endif
