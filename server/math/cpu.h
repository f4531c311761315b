/* cpu.h - the instruction set that our own loops use. Any thread.
 *
 * When the program or library is loaded, it chooses the newest set that the CPU has. PARAMD_CPU in the environment
 * names an older one: to test it, or to get the bits of BLAS that another machine gets. Our loops give the same bits
 * with every set; OpenBLAS has kernels of its own for each, whose sums differ in the last bits. */
#ifndef PD_CPU_H
#define PD_CPU_H

#include "paramd/error.h"

/* The sets, the oldest first: X(suffix of the constant, name). "generic" is the plain code of an architecture: SSE2 on
 * x86-64, NEON on ARM64. AVX2 and AVX-512 mean all instructions of the levels x86-64-v3 and x86-64-v4. */
#define PD_CPUS(X) X(GENERIC, "generic") X(AVX2, "avx2") X(AVX512, "avx512")

#define PD_CPU_CONSTANT(suffix, name) PD_CPU_##suffix,
typedef enum pd_cpu { PD_CPUS(PD_CPU_CONSTANT) PD_CPU_SETS } pd_cpu;
#undef PD_CPU_CONSTANT

/* What a user may choose, as a list of choices of a configuration key. Choice i + 1 is set i. */
#define PD_CPU_CHOICE(suffix, name) "|" name
#define PD_CPU_CHOICES "auto" PD_CPUS(PD_CPU_CHOICE)

extern const char *const pd_cpu_names[PD_CPU_SETS];

/* The set in use. Written when the program is loaded, and by pd_cpu_use. */
extern pd_cpu pd_cpu_in_use;

/* Returns the newest set that this CPU has. */
pd_cpu pd_cpu_newest(void);

/* Finds the set of that name; "auto" is the newest one. PD_INVALID_ARGUMENT: the name is unknown. PD_UNAVAILABLE: this
 * CPU lacks the set. */
int pd_cpu_find(const char *name, pd_cpu *set, pd_error *err);

/* Makes our loops use the set of that name from now on. Call it before other threads start. Errors are those of
 * pd_cpu_find; then nothing has changed. */
int pd_cpu_use(const char *name, pd_error *err);

/* Returns the error of pd_cpu_find for the value that PARAMD_CPU had when the program was loaded. The newest set is in
 * use then, so programs check this before they compute. PD_OK: the value is right, or the variable was not set. */
int pd_cpu_check(pd_error *err);

/* Returns the name of OpenBLAS's kernels for the set, as OPENBLAS_CORETYPE names them; NULL: none on this architecture.
 * OpenBLAS reads that variable once, when it is loaded. */
const char *pd_cpu_blas_core(pd_cpu set);

#endif
