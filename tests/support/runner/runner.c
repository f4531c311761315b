/* runner.c - the main of a folder's test program: calls the test file that its argument names, for instance `unit_tests
 * kron`. */
#include <stdio.h>
#include <string.h>

#include "cpu.h"

#define TEST_FILE(name) int test_##name##_main(void);
#include "test_files.def"
#undef TEST_FILE

static const struct test_file {
    const char *name;
    int (*run)(void);
} files[] = {
#define TEST_FILE(name) { #name, test_##name##_main },
#include "test_files.def"
#undef TEST_FILE
};
enum { FILES = sizeof files / sizeof files[0] };

static int list_files(const char *program)
{
    fprintf(stderr, "Usage: %s NAME, where NAME is one of:\n", program);
    for (int i = 0; i < FILES; i++) fprintf(stderr, "  %s\n", files[i].name);
    return 2;
}

/* The status by which ctest knows that a test was skipped. */
enum { SKIPPED = 77 };

int main(int argc, char **argv)
{
    pd_error err;

    if (pd_cpu_check(&err) != PD_OK) {
        fprintf(stderr, "%s\n", err.text);
        return err.code == PD_UNAVAILABLE ? SKIPPED : 2;
    }
    for (int i = 0; argc == 2 && i < FILES; i++) {
        if (strcmp(files[i].name, argv[1]) == 0) return files[i].run();
    }
    return list_files(argv[0]);
}
