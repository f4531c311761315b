/* Tests lookups of names by threads that can be left behind. */
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "test.h"
#include "daemon_process.h"
#include "connect.h"
#include "names.h"

WITH_THREADS();

static pd_address address(const char *host)
{
    pd_address url = { .port = "7070" };

    snprintf(url.host, sizeof url.host, "%s", host);
    return url;
}

static pd_lookup *start(const char *host)
{
    pd_address url = address(host);
    pd_lookup *lookup = NULL;
    pd_error err = { 0 };

    if (pd_lookup_start(&lookup, &url, &err) != PD_OK) fail_msg("%s", err.text);
    return lookup;
}

static int wait_for(pd_lookup *lookup, double seconds, pd_error *err)
{
    const struct addrinfo *addresses = NULL;
    int stop = eventfd(0, 0), rc = pd_lookup_wait(lookup, &addresses, stop, (int)(seconds * 1000), err);

    close(stop);
    if (rc == PD_OK) assert_non_null(addresses);
    return rc;
}

/* Waits until a lookup that was left behind is over: a new one either joins it, or finds it gone. */
static void await_end(const char *host)
{
    pd_lookup *lookup = start(host);
    pd_error err = { 0 };

    assert_int_not_equal(wait_for(lookup, patient(20), &err), PD_DEADLINE_EXCEEDED);
    pd_lookup_leave(lookup);
}

TEST(a_number_is_taken_while_name_servers_are_silent)
{
    static const char *const numbers[] = { "127.0.0.1", "::1", "192.0.2.1" };

    names_hang();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        pd_lookup *lookup = start(numbers[i]);
        pd_error err = { 0 };
        assert_int_equal(wait_for(lookup, 0, &err), PD_OK);
        pd_lookup_leave(lookup);
    }
    names_answer();
}

TEST(a_wait_ends_with_its_time_and_may_begin_again)
{
    pd_lookup *lookup;
    pd_error err = { 0 };
    double begin = seconds_now();

    names_hang();
    lookup = start("localhost");
    assert_int_equal(wait_for(lookup, 0.1, &err), PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.text, "localhost"));
    assert_true(seconds_now() - begin < patient(2));
    names_answer();
    assert_int_equal(wait_for(lookup, patient(5), &err), PD_OK);
    pd_lookup_leave(lookup);
}

TEST(a_wait_ends_when_its_thread_has_to_end)
{
    const struct addrinfo *addresses;
    int stop = eventfd(1, 0);
    pd_lookup *lookup;
    pd_error err = { 0 };

    names_hang();
    lookup = start("localhost");
    assert_int_equal(pd_lookup_wait(lookup, &addresses, stop, 60000, &err), PD_CANCELLED);
    pd_lookup_leave(lookup); /* it is left behind */
    names_answer();
    await_end("localhost");
    close(stop);
}

TEST(lookups_of_one_name_are_one)
{
    pd_lookup *first, *second;
    pd_error err = { 0 };

    names_hang();
    first = start("localhost");
    assert_true(names_await_blocked(1, patient(5)));
    second = start("localhost");
    assert_ptr_equal(first, second);
    pd_lookup_leave(first);
    names_answer();
    assert_int_equal(wait_for(second, patient(5), &err), PD_OK);
    pd_lookup_leave(second);
}

TEST(a_lookup_that_is_over_is_not_used_again)
{
    pd_lookup *first = start("localhost"), *second;
    pd_error err = { 0 };

    assert_int_equal(wait_for(first, patient(5), &err), PD_OK);
    second = start("localhost");
    assert_ptr_not_equal(first, second);
    assert_int_equal(wait_for(second, patient(5), &err), PD_OK);
    pd_lookup_leave(first);
    pd_lookup_leave(second);
}

TEST(an_error_of_the_resolver_is_told)
{
    pd_lookup *lookup = start("no such name"); /* no name server is asked: this is no name */
    pd_error err = { 0 };

    assert_int_equal(wait_for(lookup, patient(20), &err), PD_UNAVAILABLE);
    assert_true(err.text[0] != '\0');
    pd_lookup_leave(lookup);
}

/* A name that the resolver refuses without asking a name server. */
static pd_address bad_name(int i)
{
    char host[32];

    snprintf(host, sizeof host, "bad name %d", i);
    return address(host);
}

TEST(a_process_looks_up_16_names_at_once)
{
    pd_lookup *lookups[16], *one_more;
    pd_address url = address("one.more.invalid");
    pd_error err = { 0 };

    names_hang();
    for (int i = 0; i < 16; i++) lookups[i] = start(bad_name(i).host);
    assert_int_equal(pd_lookup_start(&one_more, &url, &err), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "one.more.invalid"));
    for (int i = 0; i < 16; i++) pd_lookup_leave(lookups[i]);
    assert_int_equal(pd_lookup_start(&one_more, &url, &err), PD_RESOURCE_EXHAUSTED); /* their threads are there */
    assert_true(names_await_blocked(16, patient(5)));
    names_answer();
    for (int i = 0; i < 16; i++) await_end(bad_name(i).host);
}

/* In the child of a fork: a lookup of the same name begins anew. Returns the exit status. */
static int look_up_in_child(void)
{
    pd_address url = address("localhost");
    const struct addrinfo *addresses;
    pd_lookup *lookup;
    pd_error err;
    int stop = eventfd(0, 0);

    if (pd_lookup_start(&lookup, &url, &err) != PD_OK) return 1;
    return pd_lookup_wait(lookup, &addresses, stop, 1000, &err) == PD_DEADLINE_EXCEEDED && names_await_blocked(2, 10)
               ? 0
               : 2;
}

TEST(a_child_of_a_fork_begins_its_own_lookups)
{
    pd_lookup *lookup;
    int status;
    pid_t child;

#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer starts no thread in the child of a process with threads */
#endif
    names_hang();
    lookup = start("localhost");
    assert_true(names_await_blocked(1, patient(5)));
    if ((child = fork()) == 0) _exit(look_up_in_child());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    names_answer();
    pd_lookup_leave(lookup);
}
