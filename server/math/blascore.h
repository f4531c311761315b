/* blascore.h - tells which kernels OpenBLAS uses in this process, and whether they suit the CPU. Limits BLAS to one
 * thread. Any thread.
 *
 * OpenBLAS chooses its kernels once, when it is loaded, from a table of CPU models. On a CPU that is newer than the
 * table it may use its oldest kernels, which are 4 to 5 times slower. OPENBLAS_CORETYPE=auto in the environment makes
 * it choose by CPU features instead. */
#ifndef PD_BLASCORE_H
#define PD_BLASCORE_H

#include <stdbool.h>

/* Returns the name of the BLAS kernels in use, such as "SkylakeX". Results of different kernels may differ in their
 * last bits. */
const char *pd_blas_core(void);
/* Returns whether OpenBLAS was built for OpenMP. Only then it uses this program's OpenMP threads; otherwise it has a
 * thread pool of its own. */
bool pd_blas_uses_openmp(void);
/* Returns a sentence that says why the kernels in use are a poor choice for the instruction set in use (cpu.h), or NULL
 * if they are a good choice. */
const char *pd_blas_poor_choice(void);

/* Returns the value of OPENBLAS_CORETYPE with which this program should start itself again to get better kernels; NULL:
 * it should not.
 *
 *   - If the environment already names kernels, returns NULL. ("auto" names none.)
 *   - If the environment variable PARAMD_CPU or the configuration chose an older instruction set than the CPU's newest
 *     one, returns the kernels for the older set.
 *   - If OPENBLAS_CORETYPE is not set, and OpenBLAS made a poor choice, returns "auto". */
const char *pd_blas_wanted_core(void);

/* Makes BLAS calls of this thread, and of each thread of its parallel regions, run on one thread from now on. So the
 * bits of a result do not depend on the number of threads. OPENBLAS_NUM_THREADS does not help here: an OpenBLAS that
 * was built for OpenMP takes the number of threads from OpenMP. */
void pd_blas_one_thread(void);

/* Returns a sentence that says why the OpenBLAS kernels with the name `core` are a poor choice for a CPU with these
 * features, or NULL if they are a good choice. pd_blas_poor_choice calls this function for the CPU of this machine. */
const char *pd_blas_judge(const char *core, bool has_avx2, bool has_avx512);

#endif
