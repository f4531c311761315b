/* Tests that tests and daemon compute with the instruction set that PARAMD_CPU chooses: a run on AVX2 proves nothing if
 * BLAS or our own loops use AVX-512 all the same. */
#include <strings.h>

#include "test.h"
#include "blascore.h"
#include "cpu.h"
#include "daemon_process.h"

/* Returns the set that the environment chooses, or the newest one. */
static const char *wanted_set(void)
{
    const char *name = getenv("PARAMD_CPU");

    return name != NULL ? name : pd_cpu_names[pd_cpu_newest()];
}

HOLDS(our_loops_use_the_set_that_the_environment_names, assert_string_equal(pd_cpu_names[pd_cpu_in_use], wanted_set()));

/* Checks that `core` are the kernels that OPENBLAS_CORETYPE names. Where it names none, any will do. */
static void expect_wanted_core(const char *core)
{
    const char *wanted = getenv("OPENBLAS_CORETYPE");

    assert_true(core[0] != '\0');
    if (wanted != NULL && strcasecmp(wanted, "auto") != 0 && strcasecmp(core, wanted) != 0)
        fail_msg("BLAS uses the kernels %s, expected %s", core, wanted);
}

HOLDS(blas_computes_with_the_kernels_that_the_environment_names, expect_wanted_core(pd_blas_core()));

typedef struct report {
    char set[64], core[64];
} report;

/* Reads the lines "CPU avx2 (...)" and "BLAS core Haswell (...)" of `paramd --version`, with that environment. */
static report version_of(const char *environment)
{
    report r = { "", "" };
    char command[1024], line[512];
    FILE *out;

    snprintf(command, sizeof command, "env %s %s/paramd --version", environment, getenv("PARAMD_BIN"));
    assert_non_null(out = popen(command, "r"));
    while (fgets(line, sizeof line, out) != NULL) {
        sscanf(line, "CPU %63[^ \n]", r.set);
        sscanf(line, "BLAS core %63[^ \n]", r.core);
    }
    assert_int_equal(pclose(out), 0);
    return r;
}

TEST(the_daemon_computes_with_them_too)
{
    report r = version_of("");

    assert_string_equal(r.set, wanted_set());
    expect_wanted_core(r.core);
}

#ifdef __x86_64__
/* Nothing but PARAMD_CPU says which kernels BLAS should take: the daemon starts itself again to choose them. */
TEST(an_older_set_brings_its_kernels_of_blas_along)
{
    report r;

    if (pd_cpu_newest() < PD_CPU_AVX2) skip();
    r = version_of("-u OPENBLAS_CORETYPE PARAMD_CPU=generic");
    assert_string_equal(r.set, "generic");
    assert_int_equal(strcasecmp(r.core, pd_cpu_blas_core(PD_CPU_GENERIC)), 0);
}
#endif

TEST(an_unknown_set_is_refused_with_the_choices)
{
    char text[1024];

    assert_int_equal(daemon_refuses((const char *const[]){ "--cpu", "avx3", NULL }, text, sizeof text), 2);
    assert_non_null(strstr(text, PD_CPU_CHOICES));
}

TEST(a_set_that_the_cpu_lacks_is_refused)
{
    char text[1024];

    if (pd_cpu_newest() == PD_CPU_AVX512) skip();
    assert_int_equal(daemon_refuses((const char *const[]){ "--cpu", "avx512", NULL }, text, sizeof text), 2);
    assert_non_null(strstr(text, "threads.cpu"));
}

/* The last test: it changes PARAMD_CPU. */
TEST(a_flag_goes_before_the_environment)
{
    char text[64];
    test_daemon *daemon;

    setenv("PARAMD_CPU", "generic", 1);
    daemon = daemon_start((const char *const[]){ "--cpu", "auto", NULL });
    snprintf(text, sizeof text, "CPU %s, BLAS core ", pd_cpu_names[pd_cpu_newest()]);
    assert_true(daemon_says(daemon, text, 10));
    assert_int_equal(daemon_stop(daemon, 10), 0);
}
