/* nearest.h - finds the word that a mistyped word was probably meant to be. Pure functions. */
#ifndef PD_NEAREST_H
#define PD_NEAREST_H

#include <stddef.h>

/* The state of a search for the known word that is nearest to a mistyped one, `word`. The known words (candidates) are
 * offered one by one. */
typedef struct pd_nearest {
    const char *word;
    size_t n;
    const char *best; /* the nearest candidate so far; NULL: no candidate is near enough */
    size_t distance;  /* Levenshtein distance from `word` to `best`; at most 1 if `best` begins with `word` */
} pd_nearest;

pd_nearest pd_nearest_begin(const char *word, size_t n);
/* Compares the mistyped word `word` with one candidate. A candidate is near enough if it begins with `word`, or if at
 * most half of the letters differ. Of two candidates that are equally near the shorter one wins. */
void pd_nearest_offer(pd_nearest *search, const char *candidate);

#endif
