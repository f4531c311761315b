/* blascore.h - which BLAS this process computes with, and whether it chose well for the CPU. Functions for any thread.
 *
 * OpenBLAS chooses its kernels once, when it is loaded, from a table of CPU models; for a CPU newer than the table it
 * may fall back to its oldest kernels, 4 to 5 times slower. OPENBLAS_CORETYPE=auto in the environment makes it choose
 * by CPU features instead. */
#ifndef PD_BLASCORE_H
#define PD_BLASCORE_H

#include <stdbool.h>

/* Returns the name of the BLAS kernels in use, such as "SkylakeX". Results of different kernels may differ in their
 * last bits. */
const char *pd_blas_core(void);
/* Returns whether OpenBLAS was built for OpenMP. Only that build shares this program's threads instead of adding a
 * thread pool of its own. */
bool pd_blas_uses_openmp(void);
/* Returns a sentence that says why the kernels in use are a poor choice for the instruction set in use (cpu.h). NULL:
 * they are a good choice. */
const char *pd_blas_poor_choice(void);

/* Returns the name of the kernels that a new start of this program should choose by OPENBLAS_CORETYPE; NULL: the
 * kernels in use are right.
 *
 *   - If the environment already names kernels, returns NULL. ("auto" names none.)
 *   - If PARAMD_CPU or the configuration chose an older instruction set than the CPU's newest one, returns the kernels
 *     for the older set.
 *   - If OPENBLAS_CORETYPE is not set, and OpenBLAS made a poor choice, returns "auto". */
const char *pd_blas_wanted_core(void);

/* Makes BLAS compute on the calling thread alone from here on; in a parallel region, on each of its threads alone. So
 * the bits of a result do not depend on the number of threads. OPENBLAS_NUM_THREADS does not help here: an OpenBLAS
 * that was built for OpenMP takes the number of threads from OpenMP. */
void pd_blas_one_thread(void);

/* Returns why the OpenBLAS kernels with the name `core` are a poor choice for a CPU with these features; NULL: they are
 * a good choice. pd_blas_poor_choice calls it for the CPU of this machine. */
const char *pd_blas_judge(const char *core, bool has_avx2, bool has_avx512);

#endif
