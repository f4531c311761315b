/* pairs.h - lists of pairs as text, "[key:value,key:value]": what a rule says that has no fixed set of words.
 * Pure.
 *
 * A key that has blanks, commas, colons, brackets or quotes stands between two ', and '' in it is one ': no other
 * byte means anything there, so a regular expression stands as it is. Square brackets, and blanks around keys,
 * values and pairs, may be left out. Values are words, or words in () or []. */
#ifndef PD_PAIRS_H
#define PD_PAIRS_H

#include "paramd/error.h"

#include <stddef.h>

#define PD_MAX_PAIRS 256

typedef struct pd_pair {
    char *key;                  /* without quotes */
    char *value;                /* as it stands, never empty */
} pd_pair;

typedef struct pd_pairs {
    pd_pair *at;                /* in the order of the text */
    size_t   n;
    char    *memory;
} pd_pairs;

/* Fills *out; pd_pairs_free it, also after an error. PD_INVALID_ARGUMENT: not such a list, or of more than
 * PD_MAX_PAIRS. PD_NO_MEMORY. */
int  pd_pairs_read(pd_pairs *out, const char *text, pd_error *err);
void pd_pairs_free(pd_pairs *pairs);

#endif
