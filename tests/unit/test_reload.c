/* Tests reloads of the configuration: which keys change, which need a restart, and how a wrong file is treated. */
#include <sys/stat.h>
#include <syslog.h>

#include "test.h"
#include "flags.h"
#include "log.h"
#include "pki.h"
#include "reload.h"
#include "token.h"

typedef struct fixture {
    char path[32], flag[64];
    char *argv[4];
    pd_reload reload;
    char *token;    /* the token of HTTP requests; NULL: they need none */
    char log[4096]; /* log output of the last reload */
} fixture;

static char *const nothing[] = { NULL };

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void write_file(const fixture *f, const char *text)
{
    write_text(f->path, text);
}

static void set_up(fixture *f)
{
    pd_flags flags;

    strcpy(f->path, "/tmp/reload_XXXXXX");
    close(mkstemp(f->path));
    snprintf(f->flag, sizeof f->flag, "--config=%s", f->path);
    f->argv[0] = "paramd";
    f->argv[1] = f->flag;
    f->argv[2] = "--write-timeout=7s";
    write_file(f, "[log]\nlevel = info\n[limits]\nmax_jobs = 5\n[server]\nlisten = :7070\n");
    f->reload = (pd_reload){ .config = pd_config_new(), .argv = f->argv, .environment = nothing };
    assert_int_equal(pd_flags_read(f->reload.config, f->argv, nothing, &flags, NULL), PD_OK);
    assert_int_equal(pd_config_check(f->reload.config, NULL), PD_OK);
}

static void tear_down(fixture *f)
{
    pd_reload_end(&f->reload);
    pd_config_free(f->reload.config);
    unlink(f->path);
    free(f->token);
}

/* Reloads the configuration and the token, and keeps the log output in `log`. Returns whether one of them changed. */
static bool reload(fixture *f)
{
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    bool changed;

    dup2(fileno(file), STDERR_FILENO);
    pd_log_open(LOG_DEBUG, PD_LOG_TEXT);
    pd_reload_read(&f->reload);
    changed = pd_reload_take_token(&f->reload, &f->token);
    changed = pd_reload_take(&f->reload) || changed;
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    f->log[fread(f->log, 1, sizeof f->log - 1, file)] = '\0';
    fclose(file);
    return changed;
}

static void expect(const fixture *f, const char *text)
{
    if (strstr(f->log, text) == NULL) fail_msg("the log does not say \"%s\":\n%s", text, f->log);
}

FIXTURE(fixture, set_up, tear_down);

TEST(marked_keys_change, fixture *f)
{
    write_file(f, "[log]\nlevel = debug\n[limits]\nmax_jobs = 9\n[server]\nlisten = :7070\ndrain_timeout = 1m\n");
    assert_true(reload(f));
    assert_int_equal(f->reload.config->log.level, 4);
    assert_int_equal(f->reload.config->limits.max_jobs, 9);
    assert_int_equal(f->reload.config->drain_timeout, 60000);
    expect(f, "reload: limits.max_jobs = 9 (it was 5)");
    expect(f, "reload: done, 3 keys have changed");
}

TEST(other_keys_stay_and_are_named, fixture *f)
{
    write_file(f, "[limits]\nmax_jobs = 5\nmax_params = 7\n[server]\nlisten = :7071\nstate_dir = /elsewhere\n");
    assert_false(reload(f));
    assert_string_equal(f->reload.config->listen, ":7070");
    assert_int_equal(f->reload.config->limits.max_params, 65536);
    expect(f, "warning: reload: server.listen = :7071 needs a restart; it stays :7070");
    expect(f, "warning: reload: server.state_dir = /elsewhere needs a restart; it stays auto");
    expect(f, "warning: reload: limits.max_params = 7 needs a restart; it stays 65536");
}

TEST(a_wrong_file_changes_nothing_and_says_why, fixture *f)
{
    write_file(f, "[limits]\nmax_jobs = 9\nmax_prams = 7\n");
    assert_false(reload(f));
    assert_int_equal(f->reload.config->limits.max_jobs, 5);
    expect(f, "error: reload: invalid configuration, the old values stay in use: ");
    expect(f, ":3: there is no key max_prams in [limits]");
    unlink(f->path);
    assert_false(reload(f));
    expect(f, "cannot be read: No such file or directory");
}

TEST(a_file_that_the_start_would_refuse_is_refused, fixture *f)
{
    write_file(f, "[limits]\nmax_jobs = 9\n[server]\nlisten = *:7070\n");
    assert_false(reload(f));
    assert_int_equal(f->reload.config->limits.max_jobs, 5);
    expect(f, "refusing to listen on 0.0.0.0:7070");
}

TEST(a_good_file_after_a_wrong_one_is_taken, fixture *f)
{
    write_file(f, "nonsense\n");
    assert_false(reload(f));
    write_file(f, "[limits]\nmax_jobs = 9\n[server]\nlisten = :7070\n");
    assert_true(reload(f));
    assert_int_equal(f->reload.config->limits.max_jobs, 9);
}

TEST(flags_still_win_over_the_file, fixture *f)
{
    write_file(f, "[limits]\nmax_jobs = 5\n[server]\nlisten = :7070\nwrite_timeout = 9s\n");
    assert_false(reload(f));
    assert_int_equal(f->reload.config->write_timeout, 7000);
    expect(f, "reload: done, 0 keys have changed");
}

TEST(another_spelling_of_a_value_is_no_change, fixture *f)
{
    write_file(f, "[limits]\nmax_jobs = 5\nchunk_bytes = 4M\n[server]\nlisten = :7070\ndrain_timeout = 30000ms\n");
    assert_false(reload(f));
    assert_null(strstr(f->log, "needs a restart"));
}

TEST(roles_are_read_with_the_keys_or_neither, fixture *f)
{
    char path[] = "/tmp/reload_roles_XXXXXX";

    close(mkstemp(path));
    assert_int_equal(pd_config_set(f->reload.config, "server", "roles", path, NULL), PD_OK);
    write_file(f, "[limits]\nmax_jobs = 9\n[server]\nlisten = :7070\n");
    write_text(path, "anyone master *\n");
    assert_false(reload(f));
    assert_int_equal(f->reload.config->limits.max_jobs, 5);
    assert_null(f->reload.roles);
    expect(f, ":1: expected one of the roles none, read, push and admin, got master");
    write_text(path, "anyone read *\n");
    assert_true(reload(f));
    assert_int_equal(f->reload.config->limits.max_jobs, 9);
    assert_true(f->reload.roles != NULL && f->reload.store_roles != NULL);
    expect(f, "roles were read");
    unlink(path);
}

/* Writes a token as http.token wants it. */
static void write_token(const char *path, const char *token)
{
    write_text(path, token);
    assert_int_equal(chmod(path, 0600), 0);
}

TEST(the_http_token_is_taken_with_the_keys_or_neither, fixture *f)
{
    char path[] = "/tmp/reload_token_XXXXXX", text[128];

    close(mkstemp(path));
    snprintf(text, sizeof text, "[limits]\nmax_jobs = 9\n[http]\ntoken = %s\n", path);
    write_file(f, text);
    write_token(path, "short\n");
    assert_false(reload(f));
    assert_null(f->token);
    assert_int_equal(f->reload.config->limits.max_jobs, 5);
    expect(f, "expected 16 to 256");
    write_token(path, "0123456789abcdef\n");
    assert_true(reload(f));
    assert_string_equal(f->token, "0123456789abcdef");
    assert_int_equal(f->reload.config->limits.max_jobs, 9);
    write_token(path, "fedcba9876543210\n");
    assert_true(reload(f));
    assert_string_equal(f->token, "fedcba9876543210");
    expect(f, "the new token of http.token");
    assert_false(reload(f)); /* the same once more */
    assert_null(strstr(f->log, "the new token"));
    unlink(path);
}

TEST(credentials_are_not_taken_away_while_listeners_are_open, fixture *f)
{
    assert_int_equal(pd_config_set(f->reload.config, "tls", "tokens", "/nowhere", NULL), PD_OK);
    assert_false(reload(f));
    expect(f, "tls.tokens and tls.client_ca were removed");
    assert_int_equal(pd_config_set(f->reload.config, "tls", "tokens", "", NULL), PD_OK);
    assert_int_equal(pd_config_set(f->reload.config, "http", "token", "/nowhere", NULL), PD_OK);
    assert_false(reload(f));
    expect(f, "http.token was removed");
    assert_int_equal(pd_config_set(f->reload.config, "server", "insecure", "yes", NULL), PD_OK);
    f->token = strdup("0123456789abcdef");
    assert_true(reload(f)); /* insecure: whoever comes without credentials may come */
    assert_null(f->token);
}

TEST(keys_of_an_open_listener_are_read_although_the_file_names_other_addresses, fixture *f)
{
    char path[64], line[PD_TOKEN_LINE], text[200];
    pd_error err;

    snprintf(path, sizeof path, "%s.tokens", f->path);
    assert_int_equal(pd_token_new(line, "w", &err), PD_OK);
    pki_write_tokens(path, line, NULL);
    assert_int_equal(pd_config_set(f->reload.config, "server", "listen", "tls://127.0.0.1:7070", NULL), PD_OK);
    assert_int_equal(pd_config_set(f->reload.config, "tls", "tokens", path, NULL), PD_OK);
    snprintf(text, sizeof text, "[server]\nlisten = 127.0.0.1:7071\n[tls]\ntokens = %s\n", path);
    write_file(f, text);
    reload(f);
    expect(f, "listen = 127.0.0.1:7071 needs a restart");
    assert_non_null(f->reload.tls);
    unlink(path);
}

/* Each reloadable key is a number, a choice or the path of a file, which nobody borrows. */
TEST(every_marked_key_can_be_taken, fixture *f)
{
    pd_config *fresh = pd_config_new();
    int marked = 0;

    for (size_t i = 0; i < fresh->n_keys; i++) {
        if (!fresh->keys[i].reload) continue;
        pd_config_take(f->reload.config, fresh, &f->reload.config->keys[i]);
        assert_false(pd_config_differs(f->reload.config, fresh, &f->reload.config->keys[i]));
        marked++;
    }
    assert_int_equal(marked, 14);
    pd_config_free(fresh);
}
