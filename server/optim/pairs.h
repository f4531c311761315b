/* pairs.h - reads lists of pairs, "[key:value,key:value]", for optimizer rules that need more than a fixed set of
 * words. Pure functions.
 *
 * A key with blanks, commas, colons, brackets or quotes stands between two single quotes ('). In such a key two single
 * quotes stand for one, and every other byte stands for itself, so a regular expression needs no escapes. Square
 * brackets, and blanks around keys, values and pairs, may be left out. Values are words, or words in () or []. */
#ifndef PD_PAIRS_H
#define PD_PAIRS_H

#include "paramd/error.h"

#include <stddef.h>

#define PD_MAX_PAIRS 256

typedef struct pd_pair {
    char *key;   /* the key of the pair, without quotes */
    char *value; /* the value as it stands in the text; never empty */
} pd_pair;

typedef struct pd_pairs {
    pd_pair *at; /* the pairs, in the order of the text */
    size_t n;
    char *memory;
} pd_pairs;

/* Reads a list of key:value pairs into *out. Free it with pd_pairs_free, also after an error. PD_INVALID_ARGUMENT: the
 * text is not such a list, or has more than PD_MAX_PAIRS pairs. PD_NO_MEMORY: out of memory. */
int pd_pairs_read(pd_pairs *out, const char *text, pd_error *err);
void pd_pairs_free(pd_pairs *pairs);

#endif
