/* Tests how the client puts the server's address into commands that texts name. */
#include "test.h"
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

TEST(commands_get_the_address)
{
    expect("tcp://host:7071", "call `paramctl drop j`, or (paramctl params --verbose)",
           "call `paramctl -s tcp://host:7071 drop j`, or (paramctl -s tcp://host:7071 params --verbose)");
    expect("unix:///run/p.sock", "paramctl roots j", "paramctl -s unix:///run/p.sock roots j");
}

TEST(an_address_that_a_shell_would_change_is_quoted)
{
    expect("unix:///tmp/a b", "paramctl jobs", "paramctl -s 'unix:///tmp/a b' jobs");
    expect("tcp://[::1]:7070", "paramctl jobs", "paramctl -s 'tcp://[::1]:7070' jobs");
}

TEST(commands_that_ask_no_daemon_stay_as_they_are)
{
    static const char *const texts[] = { "paramctl optimizers sgd",
                                         "`paramctl verify` calls it",
                                         "paramctl",
                                         "paramctl ",
                                         "paramctl -s tcp://h:1 drop j",
                                         "paramctl's help" };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) expect("tcp://host:7071", texts[i], texts[i]);
}

TEST(a_text_without_room_stays_as_it_is)
{
    pd_address *addresses;
    char buffer[30] = "paramctl drop j";
    size_t n;

    assert_int_equal(pd_addresses_parse(&addresses, &n, "tcp://h:1", PD_TO_CONNECT, NULL), PD_OK);
    pd_command_address(buffer, sizeof "paramctl -s tcp://h:1 drop j" - 1, addresses);
    assert_string_equal(buffer, "paramctl drop j");
    pd_command_address(buffer, sizeof "paramctl -s tcp://h:1 drop j", addresses);
    assert_string_equal(buffer, "paramctl -s tcp://h:1 drop j");
    pd_command_address(buffer, sizeof buffer, NULL);
    free(addresses);
}
