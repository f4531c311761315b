/* sgemm.h - what a machine's sgemm reaches, which steps of matrix optimizers are measured against. */
#ifndef PD_SGEMM_H
#define PD_SGEMM_H

#include <stdint.h>

/* Uniform on [-size, size), the same every time. */
void   sgemm_fill(float *at, int64_t n, float size);
/* So many of them. Gives: free() them; ends the program where there is no memory. */
float *sgemm_random(int64_t n, float size);

/* Floating-point operations a millisecond of all threads together, that multiply matrices of side 1024, each on its own. */
double sgemm_peak(int threads);

#endif
