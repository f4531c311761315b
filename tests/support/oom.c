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
static atomic_int_least64_t largest;            /* bytes */
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

int64_t oom_largest(void)         { return atomic_load(&largest); }
void    oom_forget_largest(void)  { atomic_store(&largest, 0); }

static void note(size_t bytes)
{
    int_least64_t most = atomic_load(&largest);

    while ((int_least64_t)bytes > most && !atomic_compare_exchange_weak(&largest, &most, (int_least64_t)bytes)) { }
}

static bool fails(size_t bytes)
{
    if (atomic_fetch_add(&allocations, 1) != atomic_load(&failing)) {
        note(bytes);
        return false;
    }
    errno = ENOMEM;
    return true;
}

/* The linker sends every call of NAME to __wrap_NAME, and __real_NAME is what it was. */
#define WRAP(type, name, parameters, arguments, bytes, failed) \
    type __real_##name parameters;                          \
    type __wrap_##name parameters;                          \
    type __wrap_##name parameters                           \
    {                                                       \
        return fails(bytes) ? failed : __real_##name arguments;  \
    }

WRAP(void *, malloc, (size_t size), (size), size, NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), n * size, NULL)
WRAP(void *, realloc, (void *at, size_t size), (at, size), size, NULL)
WRAP(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size), size, NULL)
WRAP(int, posix_memalign, (void **at, size_t alignment, size_t size), (at, alignment, size), size, ENOMEM)
WRAP(char *, strdup, (const char *text), (text), 0, NULL)
WRAP(char *, strndup, (const char *text, size_t size), (text, size), 0, NULL)
