/* Tests the limits of the log: places in the code that repeat themselves, and peers who cause many lines. */
#include <syslog.h>

#include "test.h"
#include "log.h"

/* Each test has windows of its own, since counters stay. */
static uint64_t now_s = 1000;

static int begin_window(void **state)
{
    pd_log_left_out left_out;

    (void)state;
    now_s += PD_LOG_WINDOW_S;
    while (pd_log_take_left_out(&left_out, now_s, true)) continue;
    return 0;
}

static const char refused[] = "%.30s was refused", done[] = "drop";

static pd_log_entry make(pd_log_facts facts, const char *format, ...)
{
    pd_log_entry entry;
    va_list args;

    va_start(args, format);
    pd_log_entry_make(&entry, LOG_NOTICE, facts, format, args);
    va_end(args);
    return entry;
}

static bool speaks(const char *peer, bool proven, const char *job, const char *format)
{
    pd_log_entry entry = make((pd_log_facts){ .peer = peer, .proven = proven, .job = job }, format, "Drop");

    return pd_log_may_report(&entry, now_s);
}

static void expect_left_out(const char *peer, unsigned lines)
{
    pd_log_left_out left_out;

    if (!pd_log_take_left_out(&left_out, now_s, false)) fail_msg("no line about %s was left out", peer);
    assert_string_equal(left_out.peer, peer);
    assert_int_equal(left_out.lines, lines);
}

static void expect_none_left_out(void)
{
    pd_log_left_out left_out;

    if (pd_log_take_left_out(&left_out, now_s, false)) fail_msg("%u lines about %s", left_out.lines, left_out.peer);
}

EACH_TEST(begin_window, NULL);

TEST(a_site_that_repeats_itself_is_silenced_and_counted)
{
    enum { site = 17, other = 18 };
    unsigned missed;
    int spoken = 0;

    for (int i = 0; i < PD_LOG_BURST + 50; i++) spoken += pd_log_may_speak(site, 1000, &missed);
    assert_int_equal(spoken, PD_LOG_BURST);
    assert_true(pd_log_may_speak(other, 1000, &missed));
    assert_true(pd_log_may_speak(site, 1000 + PD_LOG_WINDOW_S, &missed));
    assert_int_equal(missed, 50);
    assert_true(pd_log_may_speak(site, 1000 + PD_LOG_WINDOW_S, &missed));
    assert_int_equal(missed, 0);
}

TEST(a_flood_by_one_peer_hides_no_line_about_another)
{
    char job[32];
    int spoken = 0;

    for (int i = 0; i < 100000; i++) {
        snprintf(job, sizeof job, "job%d", i); /* the flood chooses what jobs it names */
        spoken += speaks("token:mallory", true, job, refused);
    }
    assert_int_equal(spoken, PD_LOG_BURST);
    for (int i = 0; i < 50; i++) assert_true(speaks("token:bob", true, NULL, refused));
    now_s += PD_LOG_WINDOW_S;
    expect_left_out("token:mallory", 100000 - PD_LOG_BURST);
    expect_none_left_out();
    assert_true(speaks("token:mallory", true, NULL, refused));
}

TEST(a_flood_of_refusals_hides_no_command_that_was_done)
{
    for (int i = 0; i < 2 * PD_LOG_BURST; i++) speaks("token:mallory", true, NULL, refused);
    assert_false(speaks("token:mallory", true, NULL, refused));
    assert_true(speaks("token:mallory", true, "j", done));
}

TEST(every_place_in_the_code_has_lines_of_its_own)
{
    enum { PLACES = 31 };
    pd_log_entry entry = make((pd_log_facts){ .peer = "token:mallory", .proven = true }, done);

    for (uint64_t place = 1; place < PLACES; place++) {
        entry.place = place;
        for (int i = 0; i < PD_LOG_BURST; i++) assert_true(pd_log_may_report(&entry, now_s));
        assert_false(pd_log_may_report(&entry, now_s));
    }
    entry.place = PLACES;
    assert_true(pd_log_may_report(&entry, now_s));
}

TEST(lines_are_told_as_left_out_when_their_window_is_over)
{
    for (int i = 0; i < PD_LOG_BURST + 7; i++) speaks("token:mallory", true, NULL, refused);
    expect_none_left_out();
    now_s += PD_LOG_WINDOW_S;
    expect_left_out("token:mallory", 7);
    expect_none_left_out();
}

TEST(more_peers_than_counters_share_one)
{
    char name[32];

    for (int i = 0; i < PD_LOG_PEERS; i++) {
        snprintf(name, sizeof name, "10.0.0.%d", i);
        assert_true(speaks(name, false, NULL, refused));
    }
    for (int i = 0; i < PD_LOG_BURST; i++) assert_true(speaks("10.0.1.1", false, NULL, refused));
    assert_false(speaks("10.0.1.2", false, NULL, refused));
    assert_true(speaks("10.0.0.1", false, NULL, refused));
    now_s += PD_LOG_WINDOW_S;
    assert_true(speaks("10.0.1.2", false, NULL, refused));
    expect_left_out("other peers", 1);
}

TEST(addresses_take_no_counter_of_a_proven_identity)
{
    char name[32];

    for (int i = 0; i < 100 * PD_LOG_BURST; i++) {
        snprintf(name, sizeof name, "2001:db8::%d", i);
        speaks(name, false, NULL, refused);
    }
    for (int i = 0; i < PD_LOG_BURST; i++) assert_true(speaks("token:bob", true, NULL, refused));
}

TEST(long_names_that_begin_alike_are_two_peers)
{
    char a[200], b[200];

    memset(a, 'a', sizeof a - 1);
    a[sizeof a - 1] = '\0';
    memcpy(b, a, sizeof a);
    b[sizeof b - 2] = 'b';
    for (int i = 0; i < 2 * PD_LOG_BURST; i++) speaks(a, true, NULL, refused);
    assert_true(speaks(b, true, NULL, refused));
}
