/* blascore.c - reports which BLAS kernels this process uses, and whether they suit its processor. */
#include "blascore.h"

#include <cblas.h>
#include <stddef.h>
#include <stdlib.h>
#include <strings.h>

#include "cpu.h"

#ifdef _OPENMP
#include <omp.h>
#endif

const char *pd_blas_core(void)
{
    return openblas_get_corename();
}

void pd_blas_one_thread(void)
{
#ifdef _OPENMP
    omp_set_num_threads(1);
#else
    openblas_set_num_threads(1); /* overrides the thread count that the OpenBLAS library has set itself */
#endif
}

bool pd_blas_uses_openmp(void)
{
    return openblas_get_parallel() == OPENBLAS_OPENMP;
}

static bool is_among(const char *core, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcasecmp(core, *names) == 0) return true;
    return false;
}

const char *pd_blas_judge(const char *core, bool has_avx2, bool has_avx512)
{
    static const char *const before_avx2[] = { "Katmai",  "Coppermine",   "Northwood",  "Prescott",   "Banias",
                                               "Core2",   "Penryn",       "Dunnington", "Nehalem",    "Athlon",
                                               "Opteron", "Opteron_SSE3", "Barcelona",  "Bobcat",     "Atom",
                                               "Nano",    "Sandybridge",  "Bulldozer",  "Piledriver", "Steamroller",
                                               NULL };
    static const char *const before_avx512[] = { "Haswell", "Zen", "Excavator", NULL };

    if (has_avx2 && is_among(core, before_avx2))
        return "this CPU has AVX2, but OpenBLAS chose kernels from before it; OPENBLAS_CORETYPE=auto makes it choose "
               "by CPU features";
    if (has_avx512 && is_among(core, before_avx512))
        return "this CPU has AVX-512, but OpenBLAS chose kernels without it; OPENBLAS_CORETYPE=auto makes it choose by "
               "CPU features";
    return NULL;
}

const char *pd_blas_poor_choice(void)
{
    return pd_blas_judge(pd_blas_core(), pd_cpu_in_use >= PD_CPU_AVX2, pd_cpu_in_use >= PD_CPU_AVX512);
}

const char *pd_blas_wanted_core(void)
{
    const char *given = getenv("OPENBLAS_CORETYPE");

    if (given != NULL && strcasecmp(given, "auto") != 0) return NULL;
    if (pd_cpu_in_use < pd_cpu_newest()) return pd_cpu_blas_core(pd_cpu_in_use);
    return given == NULL && pd_blas_poor_choice() != NULL ? "auto" : NULL;
}
