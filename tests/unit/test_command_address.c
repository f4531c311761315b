/* Tests how the client puts the server's address into commands that texts name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "notice.h"

static void expect(const char *url, const char *text, const char *expected)
{
    pd_address *addresses;
    char buffer[512];
    size_t n;
    pd_error err;

    if (pd_addresses_parse(&addresses, &n, url, PD_TO_CONNECT, &err) != PD_OK) fail_msg("%s", err.text);
    snprintf(buffer, sizeof buffer, "%s", text);
    pd_command_address(buffer, sizeof buffer, addresses);
    assert_string_equal(buffer, expected);
    free(addresses);
}

static void commands_get_the_address(void **state)
{
    (void)state;
    expect("tcp://host:7071", "call `paramctl drop j`, or (paramctl params --verbose)",
           "call `paramctl -s tcp://host:7071 drop j`, or (paramctl -s tcp://host:7071 params --verbose)");
    expect("unix:///run/p.sock", "paramctl roots j", "paramctl -s unix:///run/p.sock roots j");
}

static void an_address_that_a_shell_would_change_is_quoted(void **state)
{
    (void)state;
    expect("unix:///tmp/a b", "paramctl jobs", "paramctl -s 'unix:///tmp/a b' jobs");
    expect("tcp://[::1]:7070", "paramctl jobs", "paramctl -s 'tcp://[::1]:7070' jobs");
}

static void commands_that_ask_no_daemon_stay_as_they_are(void **state)
{
    static const char *const texts[] = { "paramctl optimizers sgd",
                                         "`paramctl verify` calls it",
                                         "paramctl",
                                         "paramctl ",
                                         "paramctl -s tcp://h:1 drop j",
                                         "paramctl's help" };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) expect("tcp://host:7071", texts[i], texts[i]);
}

static void a_text_without_room_stays_as_it_is(void **state)
{
    pd_address *addresses;
    char buffer[30] = "paramctl drop j";
    size_t n;

    (void)state;
    assert_int_equal(pd_addresses_parse(&addresses, &n, "tcp://h:1", PD_TO_CONNECT, NULL), PD_OK);
    pd_command_address(buffer, sizeof "paramctl -s tcp://h:1 drop j" - 1, addresses);
    assert_string_equal(buffer, "paramctl drop j");
    pd_command_address(buffer, sizeof "paramctl -s tcp://h:1 drop j", addresses);
    assert_string_equal(buffer, "paramctl -s tcp://h:1 drop j");
    pd_command_address(buffer, sizeof buffer, NULL);
    free(addresses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_get_the_address),
        cmocka_unit_test(an_address_that_a_shell_would_change_is_quoted),
        cmocka_unit_test(commands_that_ask_no_daemon_stay_as_they_are),
        cmocka_unit_test(a_text_without_room_stays_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
