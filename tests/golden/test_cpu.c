/* Do tests and daemon compute with the instruction set that this build is for? A build with PD_CPU=avx2 proves nothing if BLAS, or our own code,
 * uses AVX-512 all the same. */
#define _GNU_SOURCE         /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

#include "blascore.h"
#include "convert.h"
#include "clones.h"
#include "golden.h"

/* A function of ours that has clones, so that this program contains them: the linker takes what is used. */
static void use_a_clone(void)
{
    float from[4] = { 1, 2, 3, 4 }, to[4];

    pd_convert(to, PD_F32, from, PD_F32, 4);
    assert_true(to[3] == 4);
}

/* Counts the symbols of this program whose name has the suffix that gcc gives to the clones of x86-64-v`level`. The suffix is made here, lest
 * it is found as this function's own text. */
static int clones_of_level(int level)
{
    char suffix[32];
    size_t n;
    char *bytes = golden_read("/proc/self/exe", &n);
    int found = 0, length = snprintf(suffix, sizeof suffix, ".arch_x86_%d_v%d", 64, level);

    for (char *at = bytes; (at = memmem(at, n - (size_t)(at - bytes), suffix, (size_t)length)) != NULL; at++) found++;
    free(bytes);
    return found;
}

static void clones_for_avx512_are_there_unless_the_build_leaves_them_out(void **state)
{
    (void)state;
    use_a_clone();
#if defined(PD_WITHOUT_AVX512)
    assert_true(clones_of_level(3) > 0);
    assert_int_equal(clones_of_level(4), 0);
#elif defined(PD_HAS_CLONES)
    assert_true(clones_of_level(3) > 0);
    assert_true(clones_of_level(4) > 0);
#else
    assert_int_equal(clones_of_level(3), 0);
#endif
}

/* Returns the name of the kernels that OPENBLAS_CORETYPE wants; NULL: it names none. A build for AVX2 must name Haswell. */
static const char *wanted_core(void)
{
    const char *core = getenv("OPENBLAS_CORETYPE");

#ifdef PD_WITHOUT_AVX512
    assert_non_null(core);
    assert_string_equal(core, "Haswell");
#endif
    return core != NULL && strcasecmp(core, "auto") != 0 ? core : NULL;
}

static void blas_computes_with_the_kernels_that_the_environment_names(void **state)
{
    const char *core = wanted_core();

    (void)state;
    print_message("BLAS core %s\n", pd_blas_core());
    if (core != NULL) assert_int_equal(strcasecmp(pd_blas_core(), core), 0);
    else assert_true(pd_blas_core()[0] != '\0');
}

/* The daemon starts itself anew with OPENBLAS_CORETYPE=auto where the choice is poor; not where the environment names one. */
static void the_daemon_computes_with_them_too(void **state)
{
    const char *core = wanted_core();
    char command[1024], line[512], used[64] = "";
    FILE *out;

    (void)state;
    snprintf(command, sizeof command, "%s/paramd --version", getenv("PARAMD_BIN"));
    assert_non_null(out = popen(command, "r"));
    while (fgets(line, sizeof line, out) != NULL) {
        const char *at = strstr(line, "BLAS core ");
        if (at != NULL) sscanf(at, "BLAS core %63[^ ,;\n]", used);
    }
    assert_int_equal(pclose(out), 0);
    assert_true(used[0] != '\0');
    if (core != NULL) assert_int_equal(strcasecmp(used, core), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clones_for_avx512_are_there_unless_the_build_leaves_them_out),
        cmocka_unit_test(blas_computes_with_the_kernels_that_the_environment_names),
        cmocka_unit_test(the_daemon_computes_with_them_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
