/* Tests the configuration: defaults, files, environment, flags, and which values are refused. */
#include "test.h"
#include "config.h"
#include "host.h"

OBJECT(pd_config_new(), pd_config_free);

TEST(the_ingest_budget_follows_the_memory)
{
    const uint64_t mib = 1 << 20, gib = 1 << 30;

    assert_true(pd_config_ingest_bytes(400 * mib, 4 * mib) == 100 * mib); /* a quarter of a small container */
    assert_true(pd_config_ingest_bytes(1 * gib, 4 * mib) == 256 * mib);
    assert_true(pd_config_ingest_bytes(2 * gib, 4 * mib) == 256 * mib);
    assert_true(pd_config_ingest_bytes(16 * gib, 4 * mib) == 2 * gib);
    assert_true(pd_config_ingest_bytes(1024 * gib, 4 * mib) == 8 * gib);
    assert_true(pd_config_ingest_bytes(1 * gib, 512 * mib) == 512 * mib); /* one frame at least */
}

TEST(defaults_serve_without_a_file, pd_config *c)
{
    pd_error err;

    assert_int_equal(pd_config_check(c, &err), PD_OK);
    assert_string_equal(c->listen, "127.0.0.1:7070");
    assert_false(c->insecure);
    assert_int_equal(c->limits.ingest_bytes, pd_config_ingest_bytes(pd_host_memory(), c->limits.max_payload));
    assert_int_equal(c->limits.chunk_bytes, 4 << 20);
    assert_int_equal(c->limits.max_payload, c->limits.chunk_bytes);
    assert_int_equal(c->handshake_timeout, 5000);
    assert_true(c->threads.step_threads >= 1 && c->threads.pool_threads >= 1);
    assert_true(c->limits.max_total_bytes > 0);
}

TEST(there_are_no_movers_unless_they_are_asked_for, pd_config *c)
{
    pd_error err;

    assert_int_equal(pd_config_check(c, &err), PD_OK);
    assert_int_equal(c->threads.movers, 0);
    assert_int_equal(pd_config_set(c, "threads", "movers", "4", &err), PD_OK);
    assert_int_equal(pd_config_check(c, &err), PD_OK);
    assert_int_equal(c->threads.movers, 4);
    assert_int_equal(pd_config_set(c, "threads", "movers", "65", &err), PD_OUT_OF_RANGE);
}

/* Checks a new configuration and the directory for checkpoints that it has then. */
static void assert_state_dir(const char *variable, const char *key, const char *expected)
{
    pd_config *c = pd_config_new();
    pd_error err;

    if (variable != NULL)
        setenv("STATE_DIRECTORY", variable, 1);
    else
        unsetenv("STATE_DIRECTORY");
    if (key != NULL) assert_int_equal(pd_config_set(c, "server", "state_dir", key, &err), PD_OK);
    assert_int_equal(pd_config_check(c, &err), PD_OK);
    assert_string_equal(c->state_dir, expected);
    unsetenv("STATE_DIRECTORY");
    pd_config_free(c);
}

TEST(the_directory_for_checkpoints_is_the_one_of_systemd_or_none)
{
    assert_state_dir(NULL, NULL, "");
    assert_state_dir("/var/lib/paramd", NULL, "/var/lib/paramd");
    assert_state_dir("/var/lib/paramd:/var/lib/other", NULL, "/var/lib/paramd");
    assert_state_dir("/var/lib/paramd", "/data", "/data");
    assert_state_dir("/var/lib/paramd", "", "");
    assert_state_dir(NULL, "auto", "");
}

static void holds(pd_config *c, const char *section, const char *name, const char *value, const uint64_t *at,
                  uint64_t expected)
{
    pd_error err;

    if (pd_config_set(c, section, name, value, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(*at, expected);
}

TEST(sizes_take_binary_units_in_every_spelling, pd_config *c)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = { { "100000", 100000 },  { "100000B", 100000 },   { "64k", 64 << 10 },   { "64K", 64 << 10 },
                  { "64KiB", 64 << 10 }, { "64kb", 64 << 10 },    { "256M", 256 << 20 }, { "1m", 1 << 20 },
                  { "1Mi", 1 << 20 },    { "3 GiB", 3ull << 30 }, { "3g", 3ull << 30 },  { "1TiB", 1ull << 40 },
                  { "1t", 1ull << 40 } };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        holds(c, "limits", "ingest_bytes", sizes[i].text, &c->limits.ingest_bytes, sizes[i].bytes);
}

TEST(durations_take_units_from_milliseconds_to_days, pd_config *c)
{
    holds(c, "server", "read_timeout", "250ms", &c->read_timeout, 250);
    holds(c, "server", "read_timeout", "90s", &c->read_timeout, 90000);
    holds(c, "server", "read_timeout", "1.5s", &c->read_timeout, 1500);
    holds(c, "server", "read_timeout", "5m", &c->read_timeout, 300000);
    holds(c, "server", "read_timeout", "2 min", &c->read_timeout, 120000);
    holds(c, "server", "read_timeout", "1h", &c->read_timeout, 3600000);
    holds(c, "server", "read_timeout", "1d", &c->read_timeout, 86400000);
}

TEST(durations_of_jobs_take_the_same_units, pd_config *c)
{
    pd_error err;

    if (pd_config_set(c, "job", "job_linger", "1d", &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_config_set(c, "job", "step_timeout", "5m", &err) != PD_OK) fail_msg("%s", err.text);
}

static void expect_refusal(pd_config *c, const char *section, const char *name, const char *value, int code,
                           const char *part)
{
    pd_error err = { 0 };

    assert_int_equal(pd_config_set(c, section, name, value, &err), code);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

TEST(an_invalid_value_is_refused_with_the_valid_ones, pd_config *c)
{
    uint64_t before = c->limits.ingest_bytes;

    expect_refusal(c, "limits", "ingest_bytes", "lots", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "12 parsecs", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "-1", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "99999999999999999999", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "99999999TiB", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "1", PD_OUT_OF_RANGE, "65536");
    expect_refusal(c, "limits", "ingest_bytes", "64kk", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "limits", "ingest_bytes", "64i", PD_INVALID_ARGUMENT, "a size like");
    expect_refusal(c, "server", "read_timeout", "30", PD_INVALID_ARGUMENT, "a duration like");
    expect_refusal(c, "server", "read_timeout", "1.2.3s", PD_INVALID_ARGUMENT, "a duration like");
    expect_refusal(c, "server", "read_timeout", "30 parsecs", PD_INVALID_ARGUMENT, "a duration like");
    expect_refusal(c, "server", "insecure", "perhaps", PD_INVALID_ARGUMENT, "yes or no");
    expect_refusal(c, "log", "format", "xml", PD_INVALID_ARGUMENT, "text|logfmt|json");
    expect_refusal(c, "log", "format", "tex", PD_INVALID_ARGUMENT, "text|logfmt|json");
    expect_refusal(c, "threads", "step_threads", "0", PD_OUT_OF_RANGE, "1");
    expect_refusal(c, "threads", "numa", "on", PD_INVALID_ARGUMENT, "auto|off");
    expect_refusal(c, "job", "aggregate", "best", PD_INVALID_ARGUMENT, "mean");
    assert_int_equal(c->limits.ingest_bytes, before);
}

TEST(an_unknown_key_is_refused_with_the_nearest_one, pd_config *c)
{
    expect_refusal(c, "server", "lisen", "x", PD_NOT_FOUND, "the nearest is listen in [server]");
    expect_refusal(c, "limits", "max_conections", "5", PD_NOT_FOUND, "the nearest is max_connections in [server]");
    expect_refusal(c, "limits", "insecure", "yes", PD_NOT_FOUND, "the nearest is insecure in [server]");
    expect_refusal(c, "job", "nonfinit", "skip", PD_NOT_FOUND, "the nearest is nonfinite in [job]");
}

TEST(keys_that_contradict_each_other_are_refused)
{
    static const char *const cases[][4] = {
        { "limits", "chunk_bytes", "8195", "multiple of 64" },
        { "limits", "max_payload", "8KiB", "at least limits.chunk_bytes" },
        { "limits", "ingest_bytes", "1MiB", "at least one frame" },
        { "server", "heartbeat_timeout", "10s", "longer than" },
    };
    pd_error err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pd_config *c = pd_config_new();
        assert_int_equal(pd_config_set(c, cases[i][0], cases[i][1], cases[i][2], NULL), PD_OK);
        assert_int_equal(pd_config_check(c, &err), PD_INVALID_ARGUMENT);
        if (strstr(err.text, cases[i][3]) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i][3]);
        pd_config_free(c);
    }
}

TEST(addresses_that_the_start_would_refuse_are_refused)
{
    static const char *const cases[][2] = {
        { "127.0.0.1:65536", "larger than 65535" }, { "localhost", "port is missing" },
        { "http://localhost:1", "unknown scheme" }, { "", "empty" },
        { "*:7070", "refusing to listen on" },      { "127.0.0.1:1,[::]:7070", "refusing to listen on [::]:7070" },
        { "unix://relative", "absolute path" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pd_config *c = pd_config_new();
        pd_error err = { 0 };
        assert_int_equal(pd_config_set(c, "server", "listen", cases[i][0], NULL), PD_OK);
        assert_int_not_equal(pd_config_check(c, &err), PD_OK);
        if (strstr(err.text, cases[i][1]) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i][1]);
        pd_config_free(c);
    }
}

TEST(an_insecure_daemon_may_listen_on_every_interface, pd_config *c)
{
    pd_error err;

    assert_int_equal(pd_config_set(c, "server", "listen", "*:7070, unix:///run/paramd/socket", NULL), PD_OK);
    assert_int_equal(pd_config_set(c, "server", "insecure", "yes", NULL), PD_OK);
    if (pd_config_check(c, &err) != PD_OK) fail_msg("%s", err.text);
}

/* Sets the two directories, and returns the result of the check. */
static int check_mirror(pd_config *c, const char *state_dir, const char *mirror, pd_error *err)
{
    assert_int_equal(pd_config_set(c, "server", "state_dir", state_dir, NULL), PD_OK);
    assert_int_equal(pd_config_set(c, "server", "mirror", mirror, NULL), PD_OK);
    return pd_config_check(c, err);
}

TEST(a_mirror_needs_a_state_directory_that_it_lies_beside, pd_config *c)
{
    pd_error err;

    assert_int_equal(check_mirror(c, "", "/mirror", &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "expected server.state_dir"));
    assert_int_equal(check_mirror(c, "/state/", "/state", &err), PD_INVALID_ARGUMENT);
    assert_int_equal(check_mirror(c, "/state", "/state/mirror", &err), PD_INVALID_ARGUMENT);
    assert_int_equal(check_mirror(c, "/mirror/state", "/mirror/", &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "outside of server.state_dir"));
    assert_int_equal(check_mirror(c, "/state", "/state-mirror", &err), PD_OK);
    assert_string_equal(c->mirror, "/state-mirror");
    assert_int_equal(check_mirror(c, "/state", "", &err), PD_OK);
}

TEST(too_many_addresses_are_refused, pd_config *c)
{
    char list[512] = "127.0.0.1:1";
    pd_error err;

    for (int i = 0; i < 16; i++) strcat(list, ",127.0.0.1:1");
    assert_int_equal(pd_config_set(c, "server", "listen", list, NULL), PD_OK);
    assert_int_equal(pd_config_check(c, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "17 addresses: at most 16"));
}

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

TEST(a_file_sets_what_it_names, pd_config *c)
{
    char path[32];
    pd_error err;

    assert_int_equal(
        read_text(c, "# comment\n[server]\nlisten = 127.0.0.1:1, [::1]:2\n\n[job]\nnonfinite = reject\n", path, &err),
        PD_OK);
    assert_string_equal(c->listen, "127.0.0.1:1, [::1]:2");
    for (size_t i = 0; i < c->n_job; i++)
        if (strcmp(c->job[i].name, "nonfinite") == 0) assert_string_equal(c->job[i].value, "reject");
}

TEST(comments_after_values_are_ignored, pd_config *c)
{
    char path[32];
    pd_error err;

    if (read_text(c,
                  "[server]\nlisten = :7071 # for tests\nread_timeout = 5s\t; short\nport_file = /tmp/a#b;c\n"
                  "[limits] # what it may hold\nmax_jobs = 3#\n",
                  path, &err) == PD_OK)
        fail_msg("\"3#\" was taken as a number");
    assert_string_equal(c->listen, ":7071");
    assert_int_equal(c->read_timeout, 5000);
    assert_string_equal(c->port_file, "/tmp/a#b;c");
    assert_non_null(strstr(err.text, ":6: limits.max_jobs = 3#"));
}

static void expect_file_error(const char *text, int line, const char *part)
{
    pd_config *c = pd_config_new();
    char path[32], place[64];
    pd_error err = { 0 };

    assert_int_not_equal(read_text(c, text, path, &err), PD_OK);
    snprintf(place, sizeof place, "%s:%d: ", path, line);
    if (strncmp(err.text, place, strlen(place)) != 0 || strstr(err.text, part) == NULL)
        fail_msg("\"%s\" is not %s...%s", err.text, place, part);
    pd_config_free(c);
}

TEST(an_error_in_a_file_is_reported_with_its_line)
{
    expect_file_error("[server]\nlisten = 127.0.0.1:1\nlissten = 3\n", 3, "the nearest is listen");
    expect_file_error("[server]\n\nread_timeout = soon\nwrite_timeout = never\n", 3, "read_timeout = soon");
    expect_file_error("[servr]\nlisten = 127.0.0.1:1\n", 2, "[servr]");
    expect_file_error("[server]\nlisten = a:1\nlisten = b:1\n", 3, "given twice");
    expect_file_error("[server]\nwhat is this\n", 2, "expected [section]");
}

TEST(a_missing_file_is_reported, pd_config *c)
{
    pd_error err;

    assert_int_equal(pd_config_read_file(c, "/no/such/file", &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "/no/such/file"));
}

TEST(a_printed_configuration_reads_back_to_the_same_values, void *given)
{
    pd_config *c = given, *again = pd_config_new();
    char *text, path[32];
    size_t size;
    pd_error err;
    FILE *out = open_memstream(&text, &size);

    pd_config_set(c, "server", "listen", "unix:///run/paramd.sock", NULL);
    pd_config_set(c, "limits", "ingest_bytes", "1GiB", NULL);
    pd_config_set(c, "job", "seed", "42", NULL);
    pd_config_print(c, out);
    fclose(out);
    if (read_text(again, text, path, &err) != PD_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < c->n_keys; i++) assert_string_equal(again->text[i], c->text[i]);
    free(text);
    pd_config_free(again);
}

TEST(a_printed_file_fits_100_columns, pd_config *c)
{
    char *text, *rest = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    pd_config_print(c, out);
    fclose(out);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        if (strlen(line) > 100) fail_msg("%zu columns: %s", strlen(line), line);
    free(text);
}

TEST(every_key_is_printed_with_its_help, pd_config *c)
{
    char *text, line[128];
    size_t size;
    FILE *out = open_memstream(&text, &size);

    pd_config_print(c, out);
    fclose(out);
    for (size_t i = 0; i < c->n_keys; i++) {
        snprintf(line, sizeof line, "\n%s =", c->keys[i].name);
        assert_non_null(strstr(text, line));
        snprintf(line, sizeof line, "%.24s", c->keys[i].help + 1); /* compares 24 characters only, since the rest may
                                                                    * be on the next line */
        assert_non_null(strstr(text, line));
    }
    free(text);
}

TEST(variables_set_keys_by_their_long_and_their_short_names, pd_config *c)
{
    char *const environment[] = { "PARAMD_LISTEN=127.0.0.1:9", "HOME=/", "PARAMD_LIMITS_MAX_JOBS=3",
                                  "PARAMD_LOG_LEVEL=debug", NULL };
    pd_error err;

    if (pd_config_read_environment(c, environment, &err) != PD_OK) fail_msg("%s", err.text);
    assert_string_equal(c->listen, "127.0.0.1:9");
    assert_int_equal(c->limits.max_jobs, 3);
    assert_int_equal(c->log.level, 4);
}

TEST(variables_of_our_other_programs_are_left_alone, pd_config *c)
{
    char *const environment[] = { "PARAMD_URL=tcp://x:1",
                                  "PARAMD_JOB=mine",
                                  "PARAMD_BIN=/bin",
                                  "PARAMD_TEST_CONTAINERS=1",
                                  "PARAMD_RUN=a-launch",
                                  "PARAMD_RESUME=1",
                                  "PARAMD_LIBRARY=/usr/lib/libparamd.so",
                                  "PARAMD_CPU=avx2",
                                  NULL };
    pd_error err;

    if (pd_config_read_environment(c, environment, &err) != PD_OK) fail_msg("%s", err.text);
}

static void expect_variable_error(pd_config *c, char *variable, const char *part)
{
    char *const environment[] = { variable, NULL };
    pd_error err = { 0 };

    if (pd_config_read_environment(c, environment, &err) == PD_OK) fail_msg("%s was taken", variable);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

/* Kubernetes sets these in each container beside a service, here for several services and kinds of ports. */
TEST(variables_of_kubernetes_services_are_left_alone, pd_config *c)
{
    static const char *const services[] = {
        "PARAMD", "PARAMD_METRICS", "PARAMD_0", "PARAMD_SERVER", "PARAMD_PORT", "PARAMD_LISTEN", "PARAMD_SERVICE_A_B_9"
    };
    static const char *const endings[] = { "SERVICE_HOST=10.96.3.7",
                                           "SERVICE_HOST=fd00::7",
                                           "SERVICE_PORT=7070",
                                           "SERVICE_PORT_WORK=7070",
                                           "SERVICE_PORT_HTTP_METRICS=7072",
                                           "PORT=tcp://10.96.3.7:7070",
                                           "PORT=udp://[fd00::7]:53",
                                           "PORT_7070_TCP=tcp://10.96.3.7:7070",
                                           "PORT_53_UDP=udp://10.96.3.7:53",
                                           "PORT_7070_TCP_PROTO=tcp",
                                           "PORT_9_SCTP_PROTO=sctp",
                                           "PORT_7070_TCP_PORT=7070",
                                           "PORT_7070_TCP_ADDR=10.96.3.7",
                                           "PORT_7070_TCP_ADDR=fd00::7" };

    for (size_t i = 0; i < sizeof services / sizeof services[0]; i++)
        for (size_t k = 0; k < sizeof endings / sizeof endings[0]; k++) {
            char variable[100], *const environment[] = { variable, NULL };
            pd_error err;
            snprintf(variable, sizeof variable, "%s_%s", services[i], endings[k]);
            if (pd_config_read_environment(c, environment, &err) != PD_OK) fail_msg("%s", err.text);
        }
}

TEST(a_setting_that_only_resembles_a_service_is_refused, pd_config *c)
{
    expect_variable_error(c, "PARAMD_METRICS_PORT=7072", "environment variable PARAMD_METRICS_PORT: ");
    expect_variable_error(c, "PARAMD_SERVICE_HOSTS=10.0.0.1", "environment variable PARAMD_SERVICE_HOSTS: ");
    expect_variable_error(c, "PARAMD_SERVICE_PORT=work", "environment variable PARAMD_SERVICE_PORT: ");
    expect_variable_error(c, "PARAMD_LISTEN_PORT=7070", "environment variable PARAMD_LISTEN_PORT: ");
    expect_variable_error(c, "PARAMD_PORT_7070=tcp://10.0.0.1:7070", "environment variable PARAMD_PORT_7070: ");
    expect_variable_error(c, "PARAMD_SUPPORT=tcp://10.0.0.1:7070", "environment variable PARAMD_SUPPORT: ");
}

TEST(an_unknown_variable_is_refused_with_the_nearest_name, pd_config *c)
{
    expect_variable_error(c, "PARAMD_SERVER_LISTN=1", "environment variable PARAMD_SERVER_LISTN: ");
    expect_variable_error(c, "PARAMD_LISTN=1", "the nearest is PARAMD_LISTEN");
    expect_variable_error(c, "PARAMD_MAXJOBS=1", "the nearest is PARAMD_MAX_JOBS");
    expect_variable_error(c, "PARAMD_URI=tcp://x", "the nearest is PARAMD_URL");
    expect_variable_error(c, "PARAMD_PORT=7411", "write PARAMD_LISTEN=:7070 for port 7070");
    expect_variable_error(c, "PARAMD_PORT_FIEL=x", "the nearest is PARAMD_PORT_FILE");
    expect_variable_error(c, "PARAMD_MAX_JOBS=many", "environment variable PARAMD_MAX_JOBS: limits.max_jobs");
}

TEST(a_key_given_by_both_of_its_names_is_refused, pd_config *c)
{
    char *const environment[] = { "PARAMD_LISTEN=:1", "PARAMD_SERVER_LISTEN=:2", NULL };
    pd_error err;

    assert_int_equal(pd_config_read_environment(c, environment, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "given twice"));
}

TEST(a_quota_of_processors_is_rounded_up)
{
    assert_int_equal(pd_host_quota("150000 100000\n"), 2);
    assert_int_equal(pd_host_quota("50000 100000\n"), 1);
    assert_int_equal(pd_host_quota("400000 100000"), 4);
    assert_int_equal(pd_host_quota("max 100000\n"), 0);
    assert_int_equal(pd_host_quota("-1 100000\n"), 0);
}

TEST(this_machine_reports_its_cores_and_memory)
{
    assert_true(pd_host_cores() >= 1);
    assert_true(pd_host_memory() >= 1 << 20);
}

TEST(without_a_choice_of_nodes_there_is_a_step_thread_for_each_processor, pd_config *c)
{
    pd_error err;

    assert_int_equal(pd_config_set(c, "threads", "numa", "off", &err), PD_OK);
    assert_int_equal(pd_config_check(c, &err), PD_OK);
    assert_int_equal(c->threads.step_threads, pd_host_cores());
}

TEST(running_out_of_memory_leaves_no_partial_configuration)
{
    for (int64_t n = 0;; n++) {
        pd_config *c;
        bool failed;
        oom_arm(n);
        c = pd_config_new();
        failed = oom_disarm();
        if (failed)
            assert_null(c);
        else
            assert_non_null(c);
        pd_config_free(c);
        if (!failed) break;
    }
}
