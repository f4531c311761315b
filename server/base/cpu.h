/* cpu.h - chooses the instruction set for which our own loops run (PD_CLONES), and for which OpenBLAS chooses its
 * kernels. Any thread.
 *
 * When the program or library is loaded, it chooses the newest set that the CPU has. The environment variable
 * PARAMD_CPU chooses an older set, for tests, or to get the same results from BLAS as on another machine. Our loops
 * give the same bits with every set; products of matrices do not, since OpenBLAS has different kernels for each set.
 * (Small products, small_product.h, have the same bits with AVX2 and AVX-512.) */
#ifndef PD_CPU_H
#define PD_CPU_H

#include <stdbool.h>

#include "paramd/error.h"

/* The instruction sets, the oldest first, as X(suffix of the constant, name). "generic" is the basic code of an
 * architecture: SSE2 on x86-64, NEON on ARM64. AVX2 and AVX-512 mean all instructions of the levels x86-64-v3 and
 * x86-64-v4. */
#define PD_CPUS(X) X(GENERIC, "generic") X(AVX2, "avx2") X(AVX512, "avx512")

#define PD_CPU_CONSTANT(suffix, name) PD_CPU_##suffix,
typedef enum pd_cpu { PD_CPUS(PD_CPU_CONSTANT) PD_CPU_SETS } pd_cpu;
#undef PD_CPU_CONSTANT

/* The instruction sets that a user may choose, as the list of choices of a configuration key. Choice 0 is "auto", and
 * choice i + 1 is set i. */
#define PD_CPU_CHOICE(suffix, name) "|" name
#define PD_CPU_CHOICES "auto" PD_CPUS(PD_CPU_CHOICE)

extern const char *const pd_cpu_names[PD_CPU_SETS];

/* The instruction set in use. Set when the program is loaded, and by pd_cpu_use. */
extern pd_cpu pd_cpu_in_use;

/* Returns the newest instruction set that this CPU has. */
pd_cpu pd_cpu_newest(void);

/* Finds the instruction set of a given name; "auto" is the newest one. PD_INVALID_ARGUMENT: the name is unknown.
 * PD_UNAVAILABLE: this CPU lacks the set. */
int pd_cpu_find(const char *name, pd_cpu *set, pd_error *err);

/* Makes our loops use the instruction set of a given name from now on. Call it before other threads start. Errors are
 * those of pd_cpu_find; after an error nothing has changed. */
int pd_cpu_use(const char *name, pd_error *err);

/* Checks the value that PARAMD_CPU had when the program was loaded. Returns PD_OK if it was valid or not set, otherwise
 * the error of pd_cpu_find. After a wrong value the newest instruction set is in use, so programs call this function
 * before they compute. */
int pd_cpu_check(pd_error *err);

/* Returns the name of the OpenBLAS kernels for an instruction set, a value of the variable OPENBLAS_CORETYPE; NULL:
 * this architecture has no such names. OpenBLAS reads that variable once, when it is loaded. */
const char *pd_cpu_blas_core(pd_cpu set);

/* PD_CLONES defines a function that is compiled once for each instruction set; each call runs the variant for
 * pd_cpu_in_use. Every helper that such a function calls must be declared PD_INLINE, so that it is compiled into each
 * variant. */
#define PD_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PD_CLONES(result, name, params, args)                                                                          \
    PD_INLINE result name##_body params;                                                                               \
    __attribute__((noinline, target("arch=x86-64-v4"))) static result name##_avx512 params                             \
    {                                                                                                                  \
        return name##_body args;                                                                                       \
    }                                                                                                                  \
    __attribute__((noinline, target("arch=x86-64-v3"))) static result name##_avx2 params                               \
    {                                                                                                                  \
        return name##_body args;                                                                                       \
    }                                                                                                                  \
    static result name params                                                                                          \
    {                                                                                                                  \
        if (pd_cpu_in_use == PD_CPU_AVX512) return name##_avx512 args;                                                 \
        if (pd_cpu_in_use == PD_CPU_AVX2) return name##_avx2 args;                                                     \
        return name##_body args;                                                                                       \
    }                                                                                                                  \
    PD_INLINE result name##_body params
#else
#define PD_CLONES(result, name, params, args) static result name params
#endif

#endif
