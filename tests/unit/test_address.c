/* Tests addresses: the syntax for listening and connecting, checks with random texts, and error texts that say how
 * to correct an address. */
#include "test.h"
#include "address.h"

static pd_address one(const char *text, pd_address_use use)
{
    pd_address *list, address;
    size_t n;
    pd_error err = { 0 };

    if (pd_addresses_parse(&list, &n, text, use, &err) != PD_OK) fail_msg("%s: %s", text, err.text);
    assert_int_equal(n, 1);
    address = list[0];
    free(list);
    return address;
}

static void expect_tcp(const char *text, pd_address_use use, const char *host, const char *port)
{
    pd_address address = one(text, use);

    assert_false(address.local);
    assert_string_equal(address.host, host);
    assert_string_equal(address.port, port);
}

TEST(every_form_is_read_to_connect_and_to_listen)
{
    for (int use = PD_TO_CONNECT; use <= PD_TO_LISTEN; use++) {
        expect_tcp("tcp://localhost:7070", use, "localhost", "7070");
        expect_tcp("10.0.0.1:1", use, "10.0.0.1", "1");
        expect_tcp("[::1]:65535", use, "::1", "65535");
        expect_tcp("tcp://[fe80::1%eth0]:7070", use, "fe80::1%eth0", "7070");
        expect_tcp(":7411", use, "127.0.0.1", "7411");
        expect_tcp("tcp://:7411", use, "127.0.0.1", "7411");
        expect_tcp("  ps.example.org:0080\t", use, "ps.example.org", "80");
        assert_true(one("unix:///run/paramd/socket", use).local);
        assert_string_equal(one("unix:///run/paramd/socket", use).host, "/run/paramd/socket");
    }
}

TEST(a_client_may_leave_the_port_out)
{
    expect_tcp("tcp://ps.example.org", PD_TO_CONNECT, "ps.example.org", "7070");
    expect_tcp("localhost", PD_TO_CONNECT, "localhost", "7070");
    expect_tcp("[::1]", PD_TO_CONNECT, "::1", "7070");
}

TEST(a_server_may_take_every_interface_and_a_free_port)
{
    expect_tcp("*:7070", PD_TO_LISTEN, "", "7070");
    expect_tcp("tcp://*:0", PD_TO_LISTEN, "", "0");
}

TEST(a_list_keeps_its_order)
{
    pd_address *list;
    size_t n;

    assert_int_equal(pd_addresses_parse(&list, &n, "a:1, unix:///b ,tcp://[::1]:3", PD_TO_LISTEN, NULL), PD_OK);
    assert_int_equal(n, 3);
    assert_string_equal(list[0].host, "a");
    assert_string_equal(list[1].host, "/b");
    assert_string_equal(list[2].port, "3");
    free(list);
}

static void expect_refusal(const char *text, pd_address_use use, const char *why)
{
    pd_address *list = NULL;
    pd_error err = { 0 };
    size_t n;

    if (pd_addresses_parse(&list, &n, text, use, &err) != PD_INVALID_ARGUMENT) fail_msg("\"%s\" was taken", text);
    if (strstr(err.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    if (strstr(err.text, "expected host:port") == NULL || strstr(err.text, "for example") == NULL)
        fail_msg("\"%s\" does not say what is expected", err.text);
    assert_null(list);
}

TEST(a_wrong_address_is_refused_with_the_reason)
{
    static const char *const both[][2] = {
        { "", "empty" },
        { "http://localhost:7070", "unknown scheme" },
        { "tcp://", "empty" },
        { "tcp://host:7070/job", "not a number" },
        { "host:", "port is missing" },
        { "host:65536", "larger than 65535" },
        { "host:99999999999999999999", "larger than 65535" },
        { "host:7070x", "not a number" },
        { "host:-1", "not a number" },
        { "::1:7070", "stands in brackets" },
        { "[::1", "] is missing" },
        { "[::1]7070", "colon and a port" },
        { "[]:1", "brackets" },
        { "[host]:1", "brackets" },
        { "two words:1", "blanks" },
        { "a*:1", "cannot contain blanks or *" },
        { "unix://", "absolute path" },
        { "unix://relative", "absolute path" },
        { "good:1,,other:1", "empty" },
        { "good:1,", "empty" },
    };

    for (size_t i = 0; i < sizeof both / sizeof both[0]; i++) {
        expect_refusal(both[i][0], PD_TO_CONNECT, both[i][1]);
        expect_refusal(both[i][0], PD_TO_LISTEN, both[i][1]);
    }
    expect_refusal("host:0", PD_TO_CONNECT, "for servers only");
    expect_refusal("*:7070", PD_TO_CONNECT, "every interface");
    expect_refusal("localhost", PD_TO_LISTEN, "port is missing");
}

TEST(lengths_are_bounded)
{
    char host[600], path[300] = "unix:///";

    memset(host, 'h', 255);
    strcpy(host + 255, ":1");
    assert_int_equal(strlen(one(host, PD_TO_CONNECT).host), 255);
    memset(host, 'h', 256);
    strcpy(host + 256, ":1");
    expect_refusal(host, PD_TO_CONNECT, "longer than 255");
    memset(path + 8, 'p', 106); /* a path of 107 bytes with the slash: the longest that sun_path takes */
    assert_int_equal(strlen(one(path, PD_TO_LISTEN).host), 107);
    path[8 + 106] = 'p';
    expect_refusal(path, PD_TO_LISTEN, "too long");
}

static uint32_t draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)*seed * n) >> 32);
}

/* Joins random pieces of addresses to a text. Many of these texts are nearly valid. */
static void draw_text(uint32_t *seed, char *text)
{
    static const char *const pieces[] = { "tcp://", "unix://",   "/",    "[",    "]", "::1",   ":",
                                          "*",      "127.0.0.1", "host", "7070", "0", "99999", ",",
                                          " ",      "\x01",      "\xff", "a",    "-" };
    text[0] = '\0';
    for (uint32_t n = draw(seed, 9); n > 0; n--) strcat(text, pieces[draw(seed, sizeof pieces / sizeof pieces[0])]);
}

static void expect_sound(const pd_address *address, pd_address_use use)
{
    char text[PD_ADDRESS_TEXT];
    pd_address again;
    long port = strtol(address->port, NULL, 10);

    assert_true(address->local ? address->host[0] == '/' : port >= (use == PD_TO_CONNECT) && port <= 65535);
    assert_true(address->host[0] != '\0' || use == PD_TO_LISTEN);
    again = one(pd_address_text(address, text), use);
    assert_memory_equal(&again, address, sizeof again);
}

TEST(every_accepted_address_is_valid_and_reads_back_from_its_text)
{
    enum { DRAWS = 100000 };
    uint32_t seed = 1, taken = 0;

    for (int i = 0; i < DRAWS; i++) {
        pd_address_use use = i % 2 == 0 ? PD_TO_CONNECT : PD_TO_LISTEN;
        pd_address *list;
        pd_error err = { 0 };
        char text[256];
        size_t n;

        draw_text(&seed, text);
        if (pd_addresses_parse(&list, &n, text, use, &err) != PD_OK) {
            assert_int_equal(err.code, PD_INVALID_ARGUMENT);
            continue;
        }
        taken++;
        for (size_t k = 0; k < n; k++) expect_sound(&list[k], use);
        free(list);
    }
    assert_in_range(taken, DRAWS / 100, DRAWS / 2); /* enough of the random texts are valid addresses, and enough are
                                                     * not */
}
