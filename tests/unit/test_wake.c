/* Tests how effects are handed over to the loop thread, on a platform that the test provides. */
#include "test.h"
#include "conversation.h"
#include "small_daemon.h"

static bool woken; /* several wake-ups before the next turn count as one, as in libuv */
static uint64_t clock_now;
static int lines;
static uint64_t posted; /* serial number of the last effect */

static uint64_t now_ms(void *arg)
{
    (void)arg;
    return 1000;
}
/* Advances the clock by 0.6 ms and returns it. The time of a turn is over after two readings. */
static uint64_t clock_ns(void *arg)
{
    (void)arg;
    return clock_now += 600000;
}
static uint64_t number(void *arg)
{
    (void)arg;
    return 12345;
}
static void wake(void *arg)
{
    (void)arg;
    woken = true;
}
static void nothing(void *arg)
{
    (void)arg;
}

static void count_line(const pd_log_entry *entry)
{
    (void)entry;
    lines++;
}

static pd_daemon *make(void)
{
    pd_daemon_config config = small_daemon();
    pd_platform platform = { .now_ms = now_ms,
                             .clock_ns = clock_ns,
                             .random = number,
                             .wake = wake,
                             .stop = nothing,
                             .end_listening = nothing };
    pd_daemon *daemon;
    pd_error err;

    config.hooks.log = count_line;
    posted = 0;
    if (pd_conversation_make(&daemon, &config, &platform, &err) != PD_OK) fail_msg("%s", err.text);
    return daemon;
}

static void post_lines(pd_daemon *daemon, int n)
{
    for (int i = 0; i < n; i++) {
        pd_effect *effect = calloc(1, sizeof *effect);
        effect->kind = PD_EFF_LOG;
        effect->number = ++posted;
        assert_int_equal(pd_mailbox_post(pd_conversation_effects(daemon), &effect->mail, &effect->mail), PD_OK);
    }
}

/* Runs turns of the loop thread as long as it is woken again. */
static void turn_while_woken(pd_daemon *daemon)
{
    while (woken) {
        woken = false;
        pd_conversation_take_effects(daemon);
    }
}

TEST(effects_posted_while_older_ones_are_handled_are_not_forgotten)
{
    for (int first = 1; first < 12; first++) {
        for (int turns = 1; turns < 6; turns++) {
            pd_daemon *daemon = make();
            lines = 0;
            post_lines(daemon, first);
            for (int i = 0; i < turns && woken; i++) {
                woken = false;
                pd_conversation_take_effects(daemon);
            }
            post_lines(daemon, 3);
            turn_while_woken(daemon);
            assert_int_equal(lines, first + 3);
            pd_conversation_dispose(daemon);
        }
    }
}
