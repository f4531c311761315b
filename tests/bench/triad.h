/* triad.h - measures the bandwidth of a triad, a[i] = b[i] + s c[i], over long vectors, to which figures of
 * bandwidth are compared. */
#ifndef PD_TRIAD_H
#define PD_TRIAD_H

#include <stdint.h>

/* Returns n numbers between -size and size in large pages, the same ones each time. Ends the program if there is no
 * memory. */
float *triad_floats(int64_t n, float size);
/* Runs one triad on `threads` threads. Returns its time in milliseconds. The triad moves 12 n bytes. */
double triad_ms(float *a, const float *b, const float *c, int64_t n, int threads);

#endif
