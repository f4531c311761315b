#include "oom.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "paramd/error.h"

static atomic_int_least64_t allocations;        /* so far */
static atomic_int_least64_t failing = -1;       /* number of the one that fails; -1: none */

void oom_arm(int64_t n)
{
    atomic_store(&failing, atomic_load(&allocations) + n);
}

bool oom_disarm(void)
{
    int64_t number = atomic_exchange(&failing, -1);
    return number >= 0 && number < atomic_load(&allocations);
}

int64_t oom_each(int (*attempt)(const void *what), const void *what)
{
    for (int64_t n = 0; ; n++) {
        int rc;
        oom_arm(n);
        rc = attempt(what);
        if (!oom_disarm()) {
            assert_int_equal(rc, PD_OK);
            return n;
        }
        assert_int_equal(rc, PD_NO_MEMORY);
    }
}

void oom_assert_same(bool (*attempt)(float *out, int64_t n), size_t floats)
{
    float *expected = calloc(floats, sizeof *expected), *got = calloc(floats, sizeof *got);

    assert_false(attempt(expected, INT32_MAX));
    for (int64_t n = 0; attempt(got, n); n++) assert_memory_equal(got, expected, floats * sizeof *got);
    free(expected);
    free(got);
}

int64_t oom_allocations(void)
{
    return atomic_load(&allocations);
}

static bool fails(void)
{
    if (atomic_fetch_add(&allocations, 1) != atomic_load(&failing)) return false;
    errno = ENOMEM;
    return true;
}

/* The linker sends every call of NAME to __wrap_NAME, and __real_NAME is what it was. */
#define WRAP(type, name, parameters, arguments, failed)     \
    type __real_##name parameters;                          \
    type __wrap_##name parameters;                          \
    type __wrap_##name parameters                           \
    {                                                       \
        return fails() ? failed : __real_##name arguments;  \
    }

WRAP(void *, malloc, (size_t size), (size), NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL)
WRAP(void *, realloc, (void *at, size_t size), (at, size), NULL)
WRAP(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size), NULL)
WRAP(int, posix_memalign, (void **at, size_t alignment, size_t size), (at, alignment, size), ENOMEM)
WRAP(char *, strdup, (const char *text), (text), NULL)
WRAP(char *, strndup, (const char *text, size_t size), (text, size), NULL)
