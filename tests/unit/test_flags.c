/* Tests the daemon's command line: full names, short forms, flags without a value, precedence, and the help. */
#include "test.h"
#include "flags.h"

static char *const nothing[] = { NULL };

/* Reads the words of `text`, which are separated by blanks. */
static int read_line(pd_config *c, const char *text, pd_flags *flags, pd_error *err)
{
    static char copy[256];
    char *argv[16] = { "paramd" }, *rest = NULL;
    int n = 1;

    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) argv[n++] = word;
    return pd_flags_read(c, argv, nothing, flags, err);
}

static pd_mode expect_taken(pd_config *c, const char *text)
{
    pd_flags flags;
    pd_error err;

    if (read_line(c, text, &flags, &err) != PD_OK) fail_msg("%s: %s", text, err.text);
    return flags.mode;
}

static void expect_refused(pd_config *c, const char *text, const char *part)
{
    pd_flags flags;
    pd_error err = { 0 };

    if (read_line(c, text, &flags, &err) == PD_OK) fail_msg("%s was taken", text);
    if (strstr(err.text, part) == NULL) fail_msg("%s: \"%s\" does not say \"%s\"", text, err.text, part);
}

OBJECT(pd_config_new(), pd_config_free);

TEST(flags_win_over_environment_over_file, pd_config *c)
{
    char path[] = "/tmp/config_XXXXXX", config[64];
    char *argv[] = { "paramd", config, "--limits-max-jobs=5", "--max-params", "7", NULL };
    char *const environment[] = { "PARAMD_LIMITS_MAX_JOBS=4", "PARAMD_SERVER_MAX_CONNECTIONS=40", NULL };
    FILE *file = fdopen(mkstemp(path), "w");
    pd_flags flags;
    pd_error err;

    fputs("[limits]\nmax_jobs = 3\nmax_pieces = 30\n[server]\nmax_connections = 30\n", file);
    fclose(file);
    snprintf(config, sizeof config, "--config=%s", path);
    if (pd_flags_read(c, argv, environment, &flags, &err) != PD_OK) fail_msg("%s", err.text);
    unlink(path);
    assert_int_equal(flags.mode, PD_SERVE);
    assert_string_equal(flags.file, path);
    assert_int_equal(c->limits.max_jobs, 5);
    assert_int_equal(c->max_connections, 40);
    assert_int_equal(c->limits.max_pieces, 30);
    assert_int_equal(c->limits.max_params, 7);
}

TEST(port_is_short_for_an_address_of_this_machine, pd_config *c)
{
    expect_taken(c, "--port 7411");
    assert_string_equal(c->listen, "127.0.0.1:7411");
    assert_string_equal(c->port_file, "");
    expect_taken(c, "--port=0");
    assert_string_equal(c->listen, "127.0.0.1:0");
}

TEST(port_and_listen_together_are_refused, pd_config *c)
{
    expect_refused(c, "--port 1 --listen :2", "both say where to listen");
    expect_refused(c, "--server-listen=:2 --port=1", "both say where to listen");
}

TEST(an_invalid_port_is_refused, pd_config *c)
{
    expect_refused(c, "--port 65536", "from 0 (a free port) to 65535");
    expect_refused(c, "--port 70x", "from 0 (a free port) to 65535");
    expect_refused(c, "--port=", "from 0 (a free port) to 65535");
    expect_refused(c, "--port", "expected a value");
}

TEST(abbreviations_are_refused_with_the_nearest_flag, pd_config *c)
{
    expect_refused(c, "--por 7411", "no flag --por: did you mean --port?");
    expect_refused(c, "--port-fil x", "did you mean --port-file?");
    expect_refused(c, "--lisen :1", "did you mean --listen?");
    expect_refused(c, "--check", "there is no flag --check");
    expect_refused(c, "--max-job=5", "did you mean --max-jobs?");
    expect_refused(c, "--no-listen", "there is no flag --no-listen");
    expect_refused(c, "-x", "there is no flag -x");
}

TEST(yes_and_no_need_no_value, pd_config *c)
{
    expect_taken(c, "--insecure --listen :1");
    assert_true(c->insecure);
    expect_taken(c, "--no-insecure");
    assert_false(c->insecure);
    expect_taken(c, "--server-insecure=yes");
    assert_true(c->insecure);
    expect_taken(c, "--insecure=no");
    assert_false(c->insecure);
    expect_taken(c, "--adasum-fold");
    assert_string_equal(c->text[pd_config_find(c, "adasum_fold") - c->keys], "yes");
    expect_refused(c, "--no-insecure=yes", "takes no value");
    expect_refused(c, "--insecure=perhaps", "expected yes or no");
}

TEST(a_word_that_belongs_to_no_flag_is_refused, pd_config *c)
{
    expect_refused(c, "--insecure yes", "unexpected \"yes\"");
    expect_refused(c, "serve", "unexpected \"serve\"");
    expect_refused(c, "--version=3", "takes no value");
    expect_refused(c, "--", "unexpected \"--\"");
}

TEST(modes_have_their_flags, pd_config *c)
{
    assert_int_equal(expect_taken(c, ""), PD_SERVE);
    assert_int_equal(expect_taken(c, "--check-config"), PD_CHECK_CONFIG);
    assert_int_equal(expect_taken(c, "--print-config"), PD_PRINT_CONFIG);
    assert_int_equal(expect_taken(c, "--version"), PD_SHOW_VERSION);
    assert_int_equal(expect_taken(c, "--help"), PD_SHOW_HELP);
    assert_int_equal(expect_taken(c, "-h"), PD_SHOW_HELP);
}

TEST(help_is_given_where_the_configuration_is_broken, pd_config *c)
{
    assert_int_equal(expect_taken(c, "--help --config /no/such/file"), PD_SHOW_HELP);
    assert_int_equal(expect_taken(c, "-c /no/such/file --version"), PD_SHOW_VERSION);
}

TEST(a_wrong_value_is_refused_with_its_key, pd_config *c)
{
    expect_refused(c, "--server-max-connections=many", "server.max_connections");
    expect_refused(c, "-c/no/such/file", "/no/such/file");
}

TEST(help_fits_100_columns_and_names_every_key_and_exit_code, pd_config *c)
{
    char *text, *rest = NULL, name[PD_KEY_NAME];
    size_t size;
    FILE *out = open_memstream(&text, &size);

    pd_flags_help(c, out);
    fclose(out);
    for (size_t i = 0; i < c->n_keys; i++) {
        snprintf(name, sizeof name, "--%s-%s", c->keys[i].section, c->keys[i].name);
        for (char *at = name; *at != '\0'; at++)
            if (*at == '_') *at = '-';
        assert_non_null(strstr(text, name));
    }
    assert_non_null(strstr(text, "  2  a wrong flag, environment variable or configuration\n"));
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        if (strlen(line) > 100) fail_msg("%zu columns: %s", strlen(line), line);
    free(text);
}

TEST(a_configuration_is_told_as_the_flags_that_make_it, void *given)
{
    pd_config *again = pd_config_new();
    char *text, *second, line[256];

    assert_non_null(again);
    text = pd_flags_text(given);
    assert_string_equal(text, "--server-listen=127.0.0.1:7070\n");
    free(text);
    expect_taken(given, "--listen=:1,unix:///x --max-jobs=3 --shared-memory --job-durability=none --http-listen=:7");
    assert_non_null(text = pd_flags_text(given));
    snprintf(line, sizeof line, "%s", text);
    for (char *c = line; *c != '\0'; c++)
        if (*c == '\n') *c = ' ';
    expect_taken(again, line);
    assert_non_null(second = pd_flags_text(again));
    assert_string_equal(second, text);
    assert_non_null(strstr(text, "--job-durability=none\n"));
    free(text);
    free(second);
    pd_config_free(again);
}
