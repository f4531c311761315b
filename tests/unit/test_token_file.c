/* Tests files with a token: what is read, and which files are refused. */
#include <sys/stat.h>

#include "test.h"
#include "trusted_files.h"

static char path[] = "/tmp/token_XXXXXX";

static int set_up(void **state)
{
    (void)state;
    strcpy(path, "/tmp/token_XXXXXX");
    close(mkstemp(path));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static int read_with(const char *text, mode_t mode, char **token, pd_error *err)
{
    FILE *file = fopen(path, "w");

    fputs(text, file);
    fclose(file);
    chmod(path, mode);
    return pd_token_read(token, path, "http.token", err);
}

EACH_TEST(set_up, tear_down);

TEST(the_first_line_is_the_token)
{
    char *token;

    assert_int_equal(read_with("0123456789abcdef\r\nmore\n", 0600, &token, NULL), PD_OK);
    assert_string_equal(token, "0123456789abcdef");
    free(token);
}

TEST(a_file_that_others_can_read_is_refused)
{
    char *token;
    pd_error err;

    assert_int_equal(read_with("0123456789abcdef\n", 0644, &token, &err), PD_PERMISSION_DENIED);
    assert_non_null(strstr(err.text, "mode 644"));
    assert_int_equal(read_with("0123456789abcdef\n", 0640, &token, &err), PD_OK);
    free(token);
}

TEST(a_token_that_is_short_or_has_blanks_is_refused)
{
    char *token;
    pd_error err;

    assert_int_equal(read_with("short\n", 0600, &token, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "5 characters"));
    assert_int_equal(read_with("", 0600, &token, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(read_with("0123456789 abcdefgh\n", 0600, &token, &err), PD_INVALID_ARGUMENT);
}

TEST(a_token_that_can_be_guessed_is_refused)
{
    char *token;
    pd_error err;

    assert_int_equal(
        read_with("0000000000000000000000000000000000000000000000000000000000000000\n", 0600, &token, &err),
        PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "easy to guess"));
    assert_non_null(strstr(err.text, "openssl rand -hex 32"));
    assert_int_equal(read_with("abcabcabcabcabcabc\n", 0600, &token, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(read_with("abcdabcdabcdabcdabcd\n", 0600, &token, &err), PD_OK);
    free(token);
}

TEST(a_file_that_is_missing_is_named)
{
    char *token;
    pd_error err;

    assert_int_equal(pd_token_read(&token, "/nowhere/token", "http.token", &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "http.token: /nowhere/token"));
}

TEST_WITH(NULL, NULL, the_folder_of_credentials_is_found_in_the_environment)
{
    char *token;
    pd_error err;

    unsetenv("CREDENTIALS_DIRECTORY");
    assert_int_equal(pd_token_read(&token, "${CREDENTIALS_DIRECTORY}/t", "http.token", &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "CREDENTIALS_DIRECTORY is not set"));
    setenv("CREDENTIALS_DIRECTORY", "/nowhere", 1);
    assert_int_equal(pd_token_read(&token, "${CREDENTIALS_DIRECTORY}/t", "http.token", &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "http.token: /nowhere/t"));
    unsetenv("CREDENTIALS_DIRECTORY");
}

TEST(a_password_is_the_first_line_whatever_its_characters_are)
{
    char *password;

    (void)read_with("pass word\"\r\nmore\n", 0600, &password, NULL);
    assert_int_equal(pd_password_read(&password, path, "cluster.password_file", NULL), PD_OK);
    assert_string_equal(password, "pass word\"");
    free(password);
}

TEST(a_password_that_others_can_read_is_refused)
{
    char *password;
    pd_error err;

    (void)read_with("password\n", 0644, &password, NULL);
    assert_int_equal(pd_password_read(&password, path, "cluster.password_file", &err), PD_PERMISSION_DENIED);
    assert_non_null(strstr(err.text, "cluster.password_file"));
}
