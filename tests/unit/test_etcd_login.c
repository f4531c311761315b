/* Tests the user of an etcd that asks for a password: the request for a token, and the token that is kept. */
#include <jansson.h>

#include "test.h"
#include "etcd_login.h"

static int set_up(void **state)
{
    pd_etcd_login *login = calloc(1, sizeof *login);

    assert_non_null(login);
    assert_int_equal(pd_etcd_login_init(login, "par\"amd\\", "s\\e\"cret", NULL), PD_OK);
    *state = login;
    return 0;
}

static int tear_down(void **state)
{
    pd_etcd_login_free(*state);
    free(*state);
    return 0;
}

EACH_TEST(set_up, tear_down);

TEST(the_request_for_a_token_has_the_name_and_the_password, pd_etcd_login *login)
{
    json_t *body = json_loads(login->body, 0, NULL);

    assert_non_null(body);
    assert_string_equal(json_string_value(json_object_get(body, "name")), "par\"amd\\");
    assert_string_equal(json_string_value(json_object_get(body, "password")), "s\\e\"cret");
    json_decref(body);
}

TEST(a_token_is_due_until_etcd_has_sent_one, pd_etcd_login *login)
{
    assert_true(pd_etcd_login_is_due(login));
    assert_int_equal(pd_etcd_login_take(login, "abc.7", NULL), PD_OK);
    assert_false(pd_etcd_login_is_due(login));
    assert_string_equal(login->header, "Authorization: abc.7");
}

TEST(a_token_that_was_refused_is_due_again, pd_etcd_login *login)
{
    assert_int_equal(pd_etcd_login_take(login, "abc.7", NULL), PD_OK);
    pd_etcd_login_refused(login, login->number);
    assert_true(pd_etcd_login_is_due(login));
}

TEST(an_old_token_that_is_refused_leaves_a_newer_one, pd_etcd_login *login)
{
    uint64_t number;

    assert_int_equal(pd_etcd_login_take(login, "abc.7", NULL), PD_OK);
    number = login->number;
    assert_int_equal(pd_etcd_login_take(login, "abc.8", NULL), PD_OK);
    pd_etcd_login_refused(login, number);
    assert_string_equal(login->header, "Authorization: abc.8");
}

TEST(an_etcd_that_asks_for_no_password_gets_no_token_until_it_refuses_a_request, pd_etcd_login *login)
{
    assert_int_equal(pd_etcd_login_take(login, NULL, NULL), PD_OK);
    assert_false(pd_etcd_login_is_due(login));
    assert_null(login->header);
    pd_etcd_login_refused(login, login->number);
    assert_true(pd_etcd_login_is_due(login));
}

TEST(a_token_that_would_end_the_header_is_refused, pd_etcd_login *login)
{
    pd_error err;

    assert_int_equal(pd_etcd_login_take(login, "abc\r\nX: y", &err), PD_DATA_LOSS);
    assert_non_null(strstr(err.text, "part of a header"));
    assert_int_equal(pd_etcd_login_take(login, "", NULL), PD_DATA_LOSS);
    assert_true(pd_etcd_login_is_due(login));
}

static void refuses(const char *user, const char *password, const char *why)
{
    pd_etcd_login login;
    pd_error err;

    assert_int_equal(pd_etcd_login_init(&login, user, password, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    pd_etcd_login_free(&login);
}

TEST(names_and_passwords_that_etcd_cannot_have_are_refused)
{
    char longest[PD_ETCD_PASSWORD + 1];

    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    refuses("u", "", "cluster.password_file: expected 1 to 255 bytes");
    refuses("u", longest, "cluster.password_file: expected 1 to 255 bytes");
    refuses("u\n", "p", "cluster.user: expected no control characters");
    refuses("u", "p\tq", "cluster.password_file: expected no control characters");
}
