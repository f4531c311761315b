/* Tests effects, which are messages from the step thread to the loop thread, when the loop thread is short of time.
 * On the test's platform, writing one log line takes longer than a turn of the loop. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "test.h"
#include "effects.h"
#include "conversation.h"
#include "small_daemon.h"

enum { CHUNK = 1024, LATE_NS = 2000000 }; /* LATE_NS: more than the loop thread spends on mail in a turn */

typedef struct table {
    pd_daemon *daemon;
    pd_mailbox *requests;
    uint64_t now_ns, posted; /* posted: number of the last posted effect */
    bool woken;              /* whether a wake-up of the loop thread is pending; as in libuv, several wake-ups count
                              * as one */
} table;

static table *current; /* a global variable, because the log function has no argument to pass it in */
static unsigned lines; /* number of lines that the daemon has logged */

static void count_line(const pd_log_entry *entry)
{
    (void)entry;
    lines++;
    current->now_ns += LATE_NS;
}

static uint64_t now_ms(void *arg)
{
    return ((table *)arg)->now_ns / 1000000;
}
static uint64_t clock_ns(void *arg)
{
    return ((table *)arg)->now_ns;
}
static uint64_t draw(void *arg)
{
    return (uintptr_t)arg;
}
static void wake(void *arg)
{
    ((table *)arg)->woken = true;
}
static void nothing(void *arg)
{
    (void)arg;
}

static int set_up(void **state)
{
    pd_daemon_config config = small_daemon();
    table *t = calloc(1, sizeof *t);
    pd_platform platform = { .arg = t,
                             .now_ms = now_ms,
                             .clock_ns = clock_ns,
                             .random = draw,
                             .wake = wake,
                             .stop = nothing,
                             .end_listening = nothing };

    assert_non_null(t);
    config.hooks.log = count_line;
    t->requests = pd_mailbox_new(NULL, NULL);
    assert_int_equal(pd_conversation_make(&t->daemon, &config, &platform, NULL), PD_OK);
    pd_conversation_start(t->daemon, t->requests);
    lines = 0;
    *state = current = t;
    return 0;
}

static int tear_down(void **state)
{
    table *t = *state;

    pd_conversation_close_all(t->daemon);
    pd_conversation_dispose(t->daemon);
    pd_mailbox_free(t->requests);
    free(t);
    return 0;
}

/* Posts n effects of this kind as one batch. */
static void post_kind(table *t, pd_effect_kind kind, unsigned n)
{
    pd_effect *first = NULL, *last = NULL;

    for (unsigned i = 0; i < n; i++) {
        pd_effect *effect = pd_effect_new(kind, (pd_ticket){ 0, 0 }, 0);
        assert_non_null(effect);
        effect->number = ++t->posted;
        if (last != NULL)
            last->mail.next = &effect->mail;
        else
            first = effect;
        last = effect;
    }
    assert_int_equal(pd_mailbox_post(pd_conversation_effects(t->daemon), &first->mail, &last->mail), PD_OK);
}

/* Posts one batch of n log lines. */
static void post(table *t, unsigned n)
{
    post_kind(t, PD_EFF_LOG, n);
}

/* Does one turn of the event loop: reads the mail if a wake-up came. All wake-ups since the last turn count as one.
 * Returns whether a wake-up came. */
static bool call(table *t)
{
    bool due = t->woken;

    t->woken = false;
    if (due) pd_conversation_take_effects(t->daemon);
    return due;
}

EACH_TEST(set_up, tear_down);

TEST(mail_beyond_the_time_of_a_turn_is_read_in_later_turns, table *t)
{
    post(t, 5);
    assert_true(call(t));
    assert_int_equal(lines, 1);
    while (call(t)) continue;
    assert_int_equal(lines, 5);
}

TEST(mail_that_came_while_there_was_no_time_is_read_after_the_backlog, table *t)
{
    post(t, 2);
    assert_true(call(t));
    assert_int_equal(lines, 1);
    post(t, 1); /* Two wake-ups count as one turn here. The loop has woken itself to read the rest of its mail, and
                 * this post wakes the loop too, since the mailbox is empty. */
    while (call(t)) continue;
    assert_int_equal(lines, 3);
}

TEST(without_mail_the_loop_is_not_woken_for_ever, table *t)
{
    int calls = 0;

    post(t, 2);
    while (calls < 20 && call(t)) calls++;
    assert_true(calls < 20);
}

/* Posts one effect in a forked process and handles it there. Its number is `posted` + 1, while the first effect is
 * expected to be number 1. Returns whether the forked process aborted. */
static bool aborts_after(table *t, uint64_t posted)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        close(STDERR_FILENO);
        t->posted = posted;
        post(t, 1);
        call(t);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST(an_effect_that_is_missing_ends_the_process, table *t)
{
    assert_false(aborts_after(t, 0));
    assert_true(aborts_after(t, 1));
}

/* The step thread still ends jobs while the event loop closes its handles. */
TEST(mail_that_comes_after_the_end_is_left_for_the_clean_up, table *t)
{
    pd_conversation_close_all(t->daemon);
    post_kind(t, PD_EFF_JOB_GONE, 1);
    assert_true(call(t));
    assert_false(t->woken);
}
