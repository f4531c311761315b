/* sgemm.h - measures the machine's peak of sgemm, to which figures compare the steps of matrix optimizers. */
#ifndef PD_SGEMM_H
#define PD_SGEMM_H

#include <stdint.h>

/* Fills `at` with pseudo-random numbers, uniform on [-size, size). They are the same every time. */
void sgemm_fill(float *at, int64_t n, float size);
/* Returns n numbers as sgemm_fill makes them. The caller frees them. Ends the program if there is no memory. */
float *sgemm_random(int64_t n, float size);

/* Returns the floating-point operations per millisecond of all threads together. Each thread multiplies its own
 * matrices of side 1024. */
double sgemm_peak(int threads);

#endif
