/* nearest.c - finds the word that a mistyped word was probably meant to be. */
#include "nearest.h"

#include <string.h>

enum { LONGEST = 32 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns how many letters must be inserted, deleted or replaced to turn one word into the other (Levenshtein
 * distance). Both words have at most LONGEST letters. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t row[LONGEST + 1];

    for (size_t k = 0; k <= nb; k++) row[k] = k;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t k = 1; k <= nb; k++) {
            size_t replaced = diagonal + (a[i - 1] != b[k - 1]);
            diagonal = row[k];
            row[k] = least(replaced, least(row[k], row[k - 1]) + 1);
        }
    }
    return row[nb];
}

pd_nearest pd_nearest_begin(const char *word, size_t n)
{
    return (pd_nearest){ .word = word, .n = n, .distance = (size_t)-1 };
}

void pd_nearest_offer(pd_nearest *search, const char *candidate)
{
    size_t n = strlen(candidate), d;

    if (search->n == 0 || search->n > LONGEST || n > LONGEST) return;
    d = distance(search->word, search->n, candidate, n);
    if (strncmp(candidate, search->word, search->n) == 0)
        d = least(d, 1); /* a candidate that begins with the word counts as near: for "import", "import-state" wins
                          * over "export" */
    else if (2 * d > least(n, search->n))
        return;
    if (d > search->distance || (d == search->distance && strlen(search->best) <= n)) return;
    search->best = candidate;
    search->distance = d;
}
