/* clones.h - compiles one function for several instruction sets of the CPU, and calls the variant for the set in use
 * (cpu.h).
 *
 *     PD_CLONES(void, scale, (float *x, float by, int64_t n), (x, by, n))
 *     {
 *         for (int64_t i = 0; i < n; i++) x[i] *= by;
 *     }
 *
 * defines the static function scale(x, by, n). The arguments of the macro are: type of the result, name, parameters,
 * and the parameters' names once more.
 *
 * All instruction sets give the same bits. Every operation is IEEE, products and sums are not fused
 * (-ffp-contract=off), and long sums have an order that does not depend on the registers (lanes.h). Compilers other
 * than gcc and CPUs other than x86-64 get one plain function. */
#ifndef PD_CLONES_H
#define PD_CLONES_H

#include "cpu.h"

/* Put PD_INLINE before each helper that a function made by PD_CLONES calls. The helper is then compiled into every
 * variant of that function, for its instruction set. */
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
