#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "config.h"
#include "flags.h"
#include "host.h"
#include "oom.h"

static int set_up(void **state)
{
    *state = pd_config_new();
    return *state != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    pd_config_free(*state);
    return 0;
}

/* ---- values ---- */

static void defaults_serve_without_a_file(void **state)
{
    pd_config *c = *state;
    pd_error err;

    assert_int_equal(pd_config_check(c, &err), PD_OK);
    assert_string_equal(c->listen, "127.0.0.1:7070");
    assert_false(c->insecure);
    assert_int_equal(c->ingest_bytes, 256 << 20);
    assert_int_equal(c->chunk_bytes, 4 << 20);
    assert_int_equal(c->max_payload, c->chunk_bytes);
    assert_int_equal(c->handshake_timeout, 5000);
    assert_true(c->step_threads >= 1 && c->pool_threads >= 1);
    assert_true(c->max_total_bytes > 0);
}

static void holds(pd_config *c, const char *section, const char *name, const char *value, const uint64_t *at, uint64_t expected)
{
    pd_error err;

    if (pd_config_set(c, section, name, value, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(*at, expected);
}

static void sizes_and_durations_take_units(void **state)
{
    pd_config *c = *state;

    holds(c, "limits", "ingest_bytes", "100000", &c->ingest_bytes, 100000);
    holds(c, "limits", "ingest_bytes", "64KiB", &c->ingest_bytes, 64 << 10);
    holds(c, "limits", "ingest_bytes", "3 GiB", &c->ingest_bytes, (uint64_t)3 << 30);
    holds(c, "limits", "ingest_bytes", "1TiB", &c->ingest_bytes, (uint64_t)1 << 40);
    holds(c, "server", "read_timeout", "250ms", &c->read_timeout, 250);
    holds(c, "server", "read_timeout", "90s", &c->read_timeout, 90000);
    holds(c, "server", "read_timeout", "2min", &c->read_timeout, 120000);
    holds(c, "server", "read_timeout", "1h", &c->read_timeout, 3600000);
}

static void expect_refusal(pd_config *c, const char *section, const char *name, const char *value, int code, const char *part)
{
    pd_error err = { 0 };

    assert_int_equal(pd_config_set(c, section, name, value, &err), code);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void what_is_no_value_is_refused_with_what_would_be(void **state)
{
    pd_config *c = *state;
    uint64_t before = c->ingest_bytes;

    expect_refusal(c, "limits", "ingest_bytes", "lots", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "12 parsecs", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "-1", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "99999999999999999999", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "99999999TiB", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "1", PD_OUT_OF_RANGE, "65536");
    expect_refusal(c, "server", "read_timeout", "30", PD_INVALID_ARGUMENT, "a duration like");
    expect_refusal(c, "server", "insecure", "perhaps", PD_INVALID_ARGUMENT, "yes or no");
    expect_refusal(c, "log", "format", "xml", PD_INVALID_ARGUMENT, "text|logfmt|json");
    expect_refusal(c, "log", "format", "tex", PD_INVALID_ARGUMENT, "text|logfmt|json");
    expect_refusal(c, "threads", "step_threads", "0", PD_OUT_OF_RANGE, "1");
    expect_refusal(c, "job", "aggregate", "best", PD_INVALID_ARGUMENT, "mean");
    assert_int_equal(c->ingest_bytes, before);
}

static void an_unknown_key_is_told_the_nearest_one(void **state)
{
    expect_refusal(*state, "server", "lisen", "x", PD_NOT_FOUND, "the nearest is listen in [server]");
    expect_refusal(*state, "limits", "max_conections", "5", PD_NOT_FOUND, "the nearest is max_connections in [server]");
    expect_refusal(*state, "limits", "insecure", "yes", PD_NOT_FOUND, "the nearest is insecure in [server]");
    expect_refusal(*state, "job", "nonfinit", "skip", PD_NOT_FOUND, "the nearest is nonfinite in [job]");
}

static void keys_that_contradict_each_other_are_refused(void **state)
{
    static const char *const cases[][4] = {
        { "limits", "chunk_bytes", "8195", "multiple of 64" }, { "limits", "max_payload", "8KiB", "at least limits.chunk_bytes" },
        { "limits", "ingest_bytes", "1MiB", "at least one frame" }, { "server", "heartbeat_timeout", "10s", "longer than" },
    };
    pd_error err;
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pd_config *c = pd_config_new();
        assert_int_equal(pd_config_set(c, cases[i][0], cases[i][1], cases[i][2], NULL), PD_OK);
        assert_int_equal(pd_config_check(c, &err), PD_INVALID_ARGUMENT);
        if (strstr(err.text, cases[i][3]) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i][3]);
        pd_config_free(c);
    }
}

/* ---- files ---- */

static int read_text(pd_config *c, const char *text, char *path, pd_error *err)
{
    FILE *file;
    int fd, rc;

    strcpy(path, "/tmp/config_XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    file = fdopen(fd, "w");
    fputs(text, file);
    fclose(file);
    rc = pd_config_read_file(c, path, err);
    unlink(path);
    return rc;
}

static void a_file_sets_what_it_names(void **state)
{
    pd_config *c = *state;
    char path[32];
    pd_error err;

    assert_int_equal(read_text(c, "# comment\n[server]\nlisten = 127.0.0.1:1, [::1]:2\n\n[job]\nnonfinite = reject\n", path, &err), PD_OK);
    assert_string_equal(c->listen, "127.0.0.1:1, [::1]:2");
    for (size_t i = 0; i < c->n_job; i++)
        if (strcmp(c->job[i].name, "nonfinite") == 0) assert_string_equal(c->job[i].value, "reject");
}

static void expect_file_error(const char *text, int line, const char *part)
{
    pd_config *c = pd_config_new();
    char path[32], place[64];
    pd_error err = { 0 };

    assert_int_not_equal(read_text(c, text, path, &err), PD_OK);
    snprintf(place, sizeof place, "%s:%d: ", path, line);
    if (strncmp(err.text, place, strlen(place)) != 0 || strstr(err.text, part) == NULL) fail_msg("\"%s\" is not %s...%s", err.text, place, part);
    pd_config_free(c);
}

static void a_fault_in_a_file_is_told_with_its_line(void **state)
{
    (void)state;
    expect_file_error("[server]\nlisten = 127.0.0.1:1\nlissten = 3\n", 3, "the nearest is listen");
    expect_file_error("[server]\n\nread_timeout = soon\nwrite_timeout = never\n", 3, "read_timeout = soon");
    expect_file_error("[servr]\nlisten = 127.0.0.1:1\n", 2, "[servr]");
    expect_file_error("[server]\nlisten = a:1\nlisten = b:1\n", 3, "given twice");
    expect_file_error("[server]\nwhat is this\n", 2, "expected [section]");
}

static void a_file_that_is_not_there_is_told(void **state)
{
    pd_error err;

    assert_int_equal(pd_config_read_file(*state, "/no/such/file", &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "/no/such/file"));
}

static void what_is_printed_reads_back_to_the_same(void **state)
{
    pd_config *c = *state, *again = pd_config_new();
    char *text, path[32];
    size_t size;
    pd_error err;
    FILE *out = open_memstream(&text, &size);

    pd_config_set(c, "server", "unix_socket", "/run/paramd.sock", NULL);
    pd_config_set(c, "limits", "ingest_bytes", "1GiB", NULL);
    pd_config_set(c, "job", "seed", "42", NULL);
    pd_config_print(c, out);
    fclose(out);
    if (read_text(again, text, path, &err) != PD_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < c->n_keys; i++) assert_string_equal(again->text[i], c->text[i]);
    free(text);
    pd_config_free(again);
}

static void every_key_is_printed_with_its_help(void **state)
{
    pd_config *c = *state;
    char *text, line[128];
    size_t size;
    FILE *out = open_memstream(&text, &size);

    pd_config_print(c, out);
    fclose(out);
    for (size_t i = 0; i < c->n_keys; i++) {
        snprintf(line, sizeof line, "\n%s =", c->keys[i].name);
        assert_non_null(strstr(text, line));
        assert_non_null(strstr(text, c->keys[i].help + 1));
    }
    free(text);
}

/* ---- environment and flags ---- */

static void the_environment_sets_keys_of_our_sections_only(void **state)
{
    pd_config *c = *state;
    char *const environment[] = { "PARAMD_SERVER_LISTEN=127.0.0.1:9", "PARAMD_URL=tcp://x", "PARAMD_JOB=mine", "HOME=/", "PARAMD_LIMITS_MAX_JOBS=3", NULL };
    char *const wrong[] = { "PARAMD_SERVER_LISTN=1", NULL };
    pd_error err;

    assert_int_equal(pd_config_read_environment(c, environment, &err), PD_OK);
    assert_string_equal(c->listen, "127.0.0.1:9");
    assert_int_equal(c->max_jobs, 3);
    assert_int_equal(pd_config_read_environment(c, wrong, &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "PARAMD_SERVER_LISTN"));
}

static void flags_win_over_environment_over_file(void **state)
{
    pd_config *c = *state;
    char path[] = "/tmp/config_XXXXXX", config[64];
    char *argv[] = { "paramd", config, "--limits-max-jobs=5", "--max-params", "7", NULL };
    char *const environment[] = { "PARAMD_LIMITS_MAX_JOBS=4", "PARAMD_SERVER_MAX_CONNECTIONS=40", NULL };
    FILE *file = fdopen(mkstemp(path), "w");
    pd_mode mode;
    pd_error err;

    fputs("[limits]\nmax_jobs = 3\nmax_pieces = 30\n[server]\nmax_connections = 30\n", file);
    fclose(file);
    snprintf(config, sizeof config, "--config=%s", path);
    if (pd_flags_read(c, 5, argv, environment, &mode, &err) != PD_OK) fail_msg("%s", err.text);
    unlink(path);
    assert_int_equal(mode, PD_SERVE);
    assert_int_equal(c->max_jobs, 5);
    assert_int_equal(c->max_connections, 40);
    assert_int_equal(c->max_pieces, 30);
    assert_int_equal(c->max_params, 7);             /* the short form */
}

static void a_wrong_value_of_a_flag_is_refused(void **state)
{
    char *argv[] = { "paramd", "--server-max-connections=many", NULL };
    char *const environment[] = { NULL };
    pd_mode mode;
    pd_error err;

    assert_int_equal(pd_flags_read(*state, 2, argv, environment, &mode, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "server.max_connections"));
}

/* ---- machine and memory ---- */

static void a_quota_of_processors_is_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(pd_host_quota("150000 100000\n"), 2);
    assert_int_equal(pd_host_quota("50000 100000\n"), 1);
    assert_int_equal(pd_host_quota("400000 100000"), 4);
    assert_int_equal(pd_host_quota("max 100000\n"), 0);
    assert_int_equal(pd_host_quota("-1 100000\n"), 0);
}

static void this_machine_has_something_to_offer(void **state)
{
    (void)state;
    assert_true(pd_host_cores() >= 1);
    assert_true(pd_host_memory() >= 1 << 20);
}

static void out_of_memory_gives_no_half_configuration(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        pd_config *c;
        bool failed;
        oom_arm(n);
        c = pd_config_new();
        failed = oom_disarm();
        if (failed) assert_null(c);
        else assert_non_null(c);
        pd_config_free(c);
        if (!failed) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(defaults_serve_without_a_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sizes_and_durations_take_units, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_value_is_refused_with_what_would_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unknown_key_is_told_the_nearest_one, set_up, tear_down),
        cmocka_unit_test(keys_that_contradict_each_other_are_refused),
        cmocka_unit_test_setup_teardown(a_file_sets_what_it_names, set_up, tear_down),
        cmocka_unit_test(a_fault_in_a_file_is_told_with_its_line),
        cmocka_unit_test_setup_teardown(a_file_that_is_not_there_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_printed_reads_back_to_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_key_is_printed_with_its_help, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_environment_sets_keys_of_our_sections_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(flags_win_over_environment_over_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wrong_value_of_a_flag_is_refused, set_up, tear_down),
        cmocka_unit_test(a_quota_of_processors_is_rounded_up),
        cmocka_unit_test(this_machine_has_something_to_offer),
        cmocka_unit_test(out_of_memory_gives_no_half_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
