/* test.h - what every test file includes: cmocka, the usual headers, and tests that register themselves.
 *
 *     TEST(refuses_a_second_push)                    { ... }      a test: its name is a sentence that says what holds
 *     TEST(refuses_a_second_push, fixture *f)        { ... }      gets what the fixture's set-up left in *state
 *     TEST_WITH(set_up, tear_down, name, fixture *f) { ... }      has a set-up and a tear-down of its own
 *     HOLDS(refuses_version_0, refuses(4, 0, "version 0"));         a test of one call
 *     HOLDS_FOR(fixture *f, counts_each_push, counts(f, 3));        the same with a parameter
 *     TEST_STATE(name)                               { ... }      may change `state`
 *     EACH_TEST(set_up, tear_down);                  runs them around every test of the file but TEST_WITHs
 *     FIXTURE(fixture, set_up, tear_down);           gives each test that has a parameter a zeroed fixture of its own;
 *                                                    void set_up(fixture *f), and so tear_down; each may be NULL
 *     FIXTURE(set_up, tear_down);                    runs cmocka's functions around them
 *     OBJECT(scene_new(16, NULL), scene_free);       makes and frees an object for each test that has a parameter
 *     GROUP(set_up, tear_down);                      runs them once, around all tests of the file
 *     GROUP_OBJECT(daemon_start(NULL), daemon_end);  makes and frees an object that all tests of the file share
 *     TEST_PROGRAM(name) { ... return status; }      runs tests that are counted only when they run
 *     WITH_THREADS();                                the tests start threads, so they also run under ThreadSanitizer;
 *                                                    tests in tests/unit fail where one starts without it
 *
 * A file's tests run in the order of its source. support/runner/runner.c runs them. */
#ifndef TEST_H
#define TEST_H

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "oom.h"

typedef enum test_kind {
    TEST_PLAIN,
    TEST_OWN_FIXTURE,
    TEST_EACH,
    TEST_FIXTURE,
    TEST_GROUP,
    TEST_RUNS,
    TEST_THREADS
} test_kind;

typedef struct test_entry {
    const char *file, *name;
    int place; /* within its file */
    test_kind kind;
    bool takes; /* has a parameter */
    CMUnitTestFunction run;
    CMFixtureFunction set_up, tear_down;
    int (*program)(void);
    struct test_entry *next;
} test_entry;

void test_register(test_entry *entry);

#define TEST_ENTRY(id, ...)                                                                                            \
    __attribute__((constructor)) static void id##_registers(void)                                                      \
    {                                                                                                                  \
        static test_entry entry = { .file = __FILE__, .place = __COUNTER__, .name = #id, __VA_ARGS__ };                \
        test_register(&entry);                                                                                         \
    }

#define TEST_BARE(KIND, begin, end, id)                                                                                \
    static void id(void **);                                                                                           \
    TEST_ENTRY(id, .kind = KIND, .run = id, .set_up = begin, .tear_down = end)                                         \
    static void id(void **unused_state __attribute__((unused)))

#define TEST_TAKING(KIND, begin, end, id, param)                                                                       \
    static void id(param);                                                                                             \
    static void id##_of(void **state)                                                                                  \
    {                                                                                                                  \
        id(*state);                                                                                                    \
    }                                                                                                                  \
    TEST_ENTRY(id, .kind = KIND, .takes = true, .run = id##_of, .set_up = begin, .tear_down = end)                     \
    static void id(param)

#define TEST_CHOOSE(a, b, chosen, ...) chosen
#define TEST_OF(KIND, begin, end, ...) TEST_CHOOSE(__VA_ARGS__, TEST_TAKING, TEST_BARE, )(KIND, begin, end, __VA_ARGS__)

#define TEST(...) TEST_OF(TEST_PLAIN, NULL, NULL, __VA_ARGS__)
#define TEST_WITH(set_up, tear_down, ...) TEST_OF(TEST_OWN_FIXTURE, set_up, tear_down, __VA_ARGS__)

#define HOLDS(id, ...)                                                                                                 \
    TEST(id)                                                                                                           \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }                                                                                                                  \
    _Static_assert(1, "takes the semicolon")
#define HOLDS_FOR(param, id, ...)                                                                                      \
    TEST(id, param)                                                                                                    \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }                                                                                                                  \
    _Static_assert(1, "takes the semicolon")

#define TEST_STATE(id)                                                                                                 \
    static void id(void **);                                                                                           \
    TEST_ENTRY(id, .takes = true, .run = id)                                                                           \
    static void id(void **state)

#define TEST_AROUND(id, KIND, begin, end)                                                                              \
    TEST_ENTRY(id, .kind = KIND, .set_up = begin, .tear_down = end)                                                    \
    _Static_assert(1, "takes the semicolon")

#define EACH_TEST(set_up, tear_down) TEST_AROUND(each_test, TEST_EACH, set_up, tear_down)
#define GROUP(set_up, tear_down) TEST_AROUND(all_tests, TEST_GROUP, set_up, tear_down)

#define WITH_THREADS() TEST_AROUND(with_threads, TEST_THREADS, NULL, NULL)

#define FIXTURE_OF(type, begin, end)                                                                                   \
    static int make_fixture(void **state)                                                                              \
    {                                                                                                                  \
        void (*at_set_up)(type *) = begin;                                                                             \
        type *new_fixture = *state = calloc(1, sizeof *new_fixture);                                                   \
        assert_non_null(new_fixture);                                                                                  \
        if (at_set_up != NULL) at_set_up(new_fixture);                                                                 \
        return 0;                                                                                                      \
    }                                                                                                                  \
    static int free_fixture(void **state)                                                                              \
    {                                                                                                                  \
        void (*at_tear_down)(type *) = end;                                                                            \
        if (at_tear_down != NULL) at_tear_down(*state);                                                                \
        free(*state);                                                                                                  \
        return 0;                                                                                                      \
    }                                                                                                                  \
    TEST_AROUND(takers, TEST_FIXTURE, make_fixture, free_fixture)

#define FIXTURE_AROUND(begin, end) TEST_AROUND(takers, TEST_FIXTURE, begin, end)
#define FIXTURE_CHOOSE(a, b, c, chosen, ...) chosen
#define FIXTURE(...) FIXTURE_CHOOSE(__VA_ARGS__, FIXTURE_OF, FIXTURE_AROUND, )(__VA_ARGS__)

#define OBJECT_FOR(id, KIND, made, unmake)                                                                             \
    static int make_object(void **state)                                                                               \
    {                                                                                                                  \
        return (*state = (made)) == NULL;                                                                              \
    }                                                                                                                  \
    static int free_object(void **state)                                                                               \
    {                                                                                                                  \
        unmake(*state);                                                                                                \
        return 0;                                                                                                      \
    }                                                                                                                  \
    TEST_AROUND(id, KIND, make_object, free_object)
#define OBJECT(made, unmake) OBJECT_FOR(takers, TEST_FIXTURE, made, unmake)
#define GROUP_OBJECT(made, unmake) OBJECT_FOR(all_tests, TEST_GROUP, made, unmake)

#define TEST_PROGRAM(id)                                                                                               \
    static int id(void);                                                                                               \
    TEST_ENTRY(id, .kind = TEST_RUNS, .program = id)                                                                   \
    static int id(void)

/* Calls `holds` every few milliseconds until it returns true. Returns false if it is not true within `seconds`. */
bool await(bool (*holds)(void *arg), void *arg, double seconds);

#endif
