/* blascore.h - which BLAS this process computes with, and whether it chose well for the CPU. Any thread.
 *
 * OpenBLAS chooses its kernels once, when it is loaded, from a table of CPU models; for a CPU newer than the table
 * it may fall back to its oldest kernels, 4 to 5 times slower. OPENBLAS_CORETYPE=auto in the environment makes it
 * choose by CPU features instead. */
#ifndef PD_BLASCORE_H
#define PD_BLASCORE_H

#include <stdbool.h>

/* Name of the kernels in use: "SkylakeX". Results differ in bits between two of them. */
const char *pd_blas_core(void);
/* The library is the OpenMP flavour, the only one that shares our threads instead of adding a pool of its own. */
bool pd_blas_uses_openmp(void);
/* Why the kernels in use are a poor choice for this CPU, as a sentence; NULL: they are not. */
const char *pd_blas_poor_choice(void);

/* From here on BLAS that the calling thread (in a parallel region: this region's part of it) asks for is computed
 * by it alone. One thread everywhere: bits then do not depend on how many there are. OPENBLAS_NUM_THREADS does not
 * do it: the OpenMP flavour asks OpenMP. */
void pd_blas_one_thread(void);

/* The judgement behind it, for any core and CPU. */
const char *pd_blas_judge(const char *core, bool has_avx2, bool has_avx512);

#endif
