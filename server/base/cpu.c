/* cpu.c - finds the instruction sets of this CPU and chooses one of them. Knows newer sets for x86-64 only. */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>

#define NAME(suffix, name) name,
const char *const pd_cpu_names[PD_CPU_SETS] = { PD_CPUS(NAME) };
#undef NAME

pd_cpu pd_cpu_in_use;

static pd_error wrong_value; /* the error about the value of PARAMD_CPU; its code is PD_OK if the value is right */

pd_cpu pd_cpu_newest(void)
{
/* With clang, PD_CLONES compiles no variants of our loops for newer instruction sets, so only the basic set can be
 * used. */
#if defined(__x86_64__) && !defined(__clang__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) return PD_CPU_AVX512;
    if (__builtin_cpu_supports("x86-64-v3")) return PD_CPU_AVX2;
#endif
    return PD_CPU_GENERIC;
}

int pd_cpu_find(const char *name, pd_cpu *set, pd_error *err)
{
    pd_cpu newest = pd_cpu_newest(), found = PD_CPU_GENERIC;

    if (strcmp(name, "auto") == 0) {
        *set = newest;
        return PD_OK;
    }
    while (found < PD_CPU_SETS && strcmp(name, pd_cpu_names[found]) != 0) found++;
    if (found == PD_CPU_SETS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "instruction set \"%s\": expected %s", name, PD_CPU_CHOICES);
    if (found > newest)
        return pd_fail(err, PD_UNAVAILABLE, "instruction set %s is not available: the newest one of this CPU is %s",
                       name, pd_cpu_names[newest]);
    *set = found;
    return PD_OK;
}

int pd_cpu_use(const char *name, pd_error *err)
{
    return pd_cpu_find(name, &pd_cpu_in_use, err);
}

/* Chooses the instruction set when the program or library is loaded, before other threads exist. */
__attribute__((constructor)) static void choose(void)
{
    const char *name = getenv("PARAMD_CPU");

    pd_cpu_in_use = pd_cpu_newest();
    if (name != NULL) pd_cpu_use(name, &wrong_value);
}

int pd_cpu_check(pd_error *err)
{
    if (wrong_value.code == PD_OK) return PD_OK;
    return pd_fail(err, wrong_value.code, "PARAMD_CPU: %s", wrong_value.text);
}

const char *pd_cpu_blas_core(pd_cpu set)
{
#ifdef __x86_64__
    static const char *const cores[PD_CPU_SETS] = { "Prescott", "Haswell", "SkylakeX" };
    return cores[set];
#else
    (void)set;
    return NULL;
#endif
}
