/* triad.h - what figures of bandwidth are held against: a[i] = b[i] + s c[i] over long vectors. */
#ifndef PD_TRIAD_H
#define PD_TRIAD_H

#include <stdint.h>

/* n numbers between -size and size in large pages, the same ones each time; ends the program where there is no memory. */
float *triad_floats(int64_t n, float size);
/* Milliseconds that one takes on so many threads. It moves 12 n bytes. */
double triad_ms(float *a, const float *b, const float *c, int64_t n, int threads);

#endif
