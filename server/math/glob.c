/* glob.c - compares names with globs. */
#include "glob.h"

#include <stddef.h>

/* Returns whether a set of characters in a glob, like [a-z], contains c. `set` is the byte after the '['. *end
 * becomes the byte after the closing ']'; NULL: there is none, and the '[' is an ordinary byte. */
static bool set_has(const char *set, unsigned char c, const char **end)
{
    bool negated = *set == '!' || *set == '^', found = false;
    const unsigned char *at = (const unsigned char *)set + negated;
    const unsigned char *first = at;

    for (; *at != '\0' && (*at != ']' || at == first); at++) {
        if (at[1] == '-' && at[2] != ']' && at[2] != '\0') {
            found = found || (at[0] <= c && c <= at[2]);
            at += 2;
        } else {
            found = found || *at == c;
        }
    }
    *end = *at == ']' ? (const char *)at + 1 : NULL;
    return found != negated;
}

/* Compares one byte of a name with one element of a glob (a byte, '?' or a set), but not '*'. If they match, moves
 * *glob to the next element. */
static bool element_matches(const char **glob, char c)
{
    const char *at = *glob, *end;

    if (*at == '\0') return false;
    if (*at == '[') {
        bool inside = set_has(at + 1, (unsigned char)c, &end);
        if (end != NULL) {
            *glob = end;
            return inside;
        }
    }
    if (*at == '\\' && at[1] != '\0')
        at++;
    else if (*at == '?')
        c = '?';
    *glob = at + 1;
    return *at == c;
}

bool pd_glob_match(const char *glob, const char *name)
{
    const char *after_star = NULL,
               /* `retry` is the first byte of the name after those that the last '*' stands for. If the rest of the
                * glob fails to match, the '*' takes one byte more. */
        *retry = NULL;

    while (*name != '\0') {
        const char *next = glob;
        if (*glob == '*') {
            after_star = ++glob;
            retry = name;
        } else if (element_matches(&next, *name)) {
            glob = next;
            name++;
        } else if (after_star != NULL) {
            glob = after_star;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*glob == '*') glob++;
    return *glob == '\0';
}
