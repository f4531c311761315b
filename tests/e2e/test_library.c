/* The shared library as another program sees it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const public_functions[] = {
    "pd_client_barrier", "pd_client_close", "pd_client_close_step", "pd_client_count", "pd_client_declare", "pd_client_init", "pd_client_leave", "pd_client_must_init", "pd_client_normal",
    "pd_client_open", "pd_client_pull", "pd_client_push", "pd_client_push_pull", "pd_client_ready", "pd_client_restart", "pd_client_step", "pd_client_wait",
    "pd_client_note", "pd_client_uniform", "pd_client_welcome",
    "pd_code_name", "pd_code_text", "pd_fail",
    "pd_axes_check", "pd_dtype_name", "pd_dtype_parse", "pd_dtype_size", "pd_range_piece", "pd_shape_elements", "pd_shape_equal", "pd_shape_text",
};
enum { N_PUBLIC = sizeof public_functions / sizeof public_functions[0] };

static bool is_public(const char *name)
{
    for (int i = 0; i < N_PUBLIC; i++)
        if (strcmp(name, public_functions[i]) == 0) return true;
    return false;
}

/* Names that sanitizers and the linker add begin with "__" or "_". */
static void exports_exactly_the_public_functions(void **state)
{
    char command[4096], name[256];
    int found = 0;
    FILE *nm;
    (void)state;

    snprintf(command, sizeof command, "nm -D --defined-only --format=posix '%s/../lib/libparamd.so'", getenv("PARAMD_BIN"));
    nm = popen(command, "r");
    assert_non_null(nm);
    while (fscanf(nm, "%255s%*[^\n]", name) == 1) {
        if (name[0] == '_') continue;
        if (!is_public(name)) fail_msg("%s is exported and not a public function", name);
        found++;
    }
    assert_int_equal(pclose(nm), 0);
    assert_int_equal(found, N_PUBLIC);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(exports_exactly_the_public_functions) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
