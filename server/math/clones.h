/* clones.h - compiles one source for several instruction sets: put PD_CLONES before an element-wise function.
 *
 * gcc compiles the function three times (AVX-512, AVX2, plain) and the loader picks the best for the CPU. All give
 * the same bits: every operation is IEEE, none is fused (-ffp-contract=off), and sums have lanes of their own
 * (kernels.h). Off under sanitizers, which run before the loader can resolve such functions, and under compilers
 * without clones. PD_WITHOUT_AVX512 (CMake's PD_CPU=avx2) leaves the AVX-512 clone out, so that a machine with
 * AVX-512 tests the others. */
#ifndef PD_CLONES_H
#define PD_CLONES_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PD_HAS_CLONES
#ifdef PD_WITHOUT_AVX512
#define PD_CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define PD_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#else
#define PD_CLONES
#endif

/* Helpers of such a function must become part of each clone. */
#define PD_INLINE static inline __attribute__((always_inline))

#endif
