/* Mail from the step thread while the loop thread is short of time: the conversation on a platform where a line for
 * the log takes longer than a turn. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "effects.h"
#include "conversation.h"

enum { CHUNK = 1024, LATE_NS = 2000000 };       /* longer than the loop thread gives to the mail of a turn */

typedef struct table {
    pd_daemon  *daemon;
    pd_mailbox *requests;
    uint64_t    now_ns, posted;         /* posted: number of the last effect */
    bool        woken;                  /* as libuv has it: once or often is the same */
} table;

static table *current;                  /* the logger has no argument */
static unsigned lines;                  /* that the daemon has logged */

static void count_line(int level, const char *format, ...)
{
    (void)level, (void)format;
    lines++;
    current->now_ns += LATE_NS;
}

static uint64_t now_ms(void *arg) { return ((table *)arg)->now_ns / 1000000; }
static uint64_t clock_ns(void *arg) { return ((table *)arg)->now_ns; }
static uint64_t draw(void *arg) { return (uintptr_t)arg; }
static void wake(void *arg) { ((table *)arg)->woken = true; }
static void nothing(void *arg) { (void)arg; }

static int set_up(void **state)
{
    pd_daemon_config config = {
        .max_connections = 1, .ingest_bytes = CHUNK * sizeof(float), .chunk_elements = CHUNK,
        .max_payload = CHUNK * sizeof(float), .max_pieces = 16, .max_params = 16, .max_header = 4096,
        .hello_bytes = 1024, .blas_core = "none", .log = count_line,
    };
    table *t = calloc(1, sizeof *t);
    pd_platform platform = { .arg = t, .now_ms = now_ms, .clock_ns = clock_ns, .random = draw, .wake = wake,
                             .stop = nothing, .end_listening = nothing };

    assert_non_null(t);
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

/* One post of n lines for the log. */
static void post(table *t, unsigned n)
{
    pd_effect *first = NULL, *last = NULL;

    for (unsigned i = 0; i < n; i++) {
        pd_effect *effect = pd_effect_new(PD_EFF_LOG, (pd_ticket){ 0, 0 }, 0);
        assert_non_null(effect);
        effect->number = ++t->posted;
        if (last != NULL) last->mail.next = &effect->mail;
        else first = effect;
        last = effect;
    }
    assert_int_equal(pd_mailbox_post(pd_conversation_effects(t->daemon), &first->mail, &last->mail), PD_OK);
}

/* What the event loop does: it calls after a wake-up, and wake-ups until then are one. */
static bool call(table *t)
{
    bool due = t->woken;

    t->woken = false;
    if (due) pd_conversation_take_effects(t->daemon);
    return due;
}

static void mail_for_which_there_was_no_time_is_read_in_later_turns(void **state)
{
    table *t = *state;

    post(t, 5);
    assert_true(call(t));
    assert_int_equal(lines, 1);
    while (call(t)) continue;
    assert_int_equal(lines, 5);
}

static void mail_that_came_while_there_was_no_time_is_read_after_the_backlog(void **state)
{
    table *t = *state;

    post(t, 2);
    assert_true(call(t));
    assert_int_equal(lines, 1);
    post(t, 1);                         /* the mailbox was empty and wakes the loop thread: one wake-up with its own */
    while (call(t)) continue;
    assert_int_equal(lines, 3);
}

static void without_mail_the_loop_is_not_woken_for_ever(void **state)
{
    table *t = *state;
    int calls = 0;

    post(t, 2);
    while (calls < 20 && call(t)) calls++;
    assert_true(calls < 20);
}

/* Posts an effect in a process of its own, where the loop thread handles it. Returns whether that process aborted. */
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

static void an_effect_that_is_missing_ends_the_process(void **state)
{
    assert_false(aborts_after(*state, 0));
    assert_true(aborts_after(*state, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(mail_for_which_there_was_no_time_is_read_in_later_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mail_that_came_while_there_was_no_time_is_read_after_the_backlog,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_mail_the_loop_is_not_woken_for_ever, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_effect_that_is_missing_ends_the_process, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
