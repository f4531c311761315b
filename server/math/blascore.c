#include "blascore.h"

#include <cblas.h>
#include <stddef.h>
#include <strings.h>

const char *pd_blas_core(void)
{
    return openblas_get_corename();
}

bool pd_blas_uses_openmp(void)
{
    return openblas_get_parallel() == OPENBLAS_OPENMP;
}

const char *pd_blas_judge(const char *core, bool has_avx2)
{
    /* x86 kernels that know no AVX2. */
    static const char *const old[] = {
        "Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Core2", "Penryn", "Dunnington", "Nehalem", "Athlon", "Opteron",
        "Opteron_SSE3", "Barcelona", "Bobcat", "Atom", "Nano", "Sandybridge", "Bulldozer", "Piledriver", "Steamroller",
    };

    if (!has_avx2) return NULL;
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++)
        if (strcasecmp(core, old[i]) == 0) return "this CPU has AVX2, but OpenBLAS chose kernels from before AVX2; OPENBLAS_CORETYPE=auto makes it choose by CPU features";
    return NULL;
}

const char *pd_blas_poor_choice(void)
{
#ifdef __x86_64__
    return pd_blas_judge(pd_blas_core(), __builtin_cpu_supports("avx2"));
#else
    return NULL;
#endif
}
