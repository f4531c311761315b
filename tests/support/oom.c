/* oom.c - counts allocations, and makes one of them fail. */
#include "oom.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "paramd/error.h"

static atomic_int_least64_t allocations;  /* number of allocations so far */
static atomic_int_least64_t largest;      /* bytes of the largest successful allocation */
static atomic_int_least64_t live, peak;   /* bytes that are allocated and not freed: now, and the most since
                                           * oom_forget_peak */
static atomic_int_least64_t failing = -1; /* number of the allocation that fails; -1: none fails */

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
    for (int64_t n = 0;; n++) {
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

int64_t oom_largest(void)
{
    return atomic_load(&largest);
}
void oom_forget_largest(void)
{
    atomic_store(&largest, 0);
}

int64_t oom_live(void)
{
    return atomic_load(&live);
}
int64_t oom_peak(void)
{
    return atomic_load(&peak);
}
void oom_forget_peak(void)
{
    atomic_store(&peak, atomic_load(&live));
}

static void raise_to(atomic_int_least64_t *most, int_least64_t value)
{
    int_least64_t before = atomic_load(most);

    while (value > before && !atomic_compare_exchange_weak(most, &before, value)) {}
}

static bool fails(size_t bytes)
{
    if (atomic_fetch_add(&allocations, 1) != atomic_load(&failing)) {
        raise_to(&largest, (int_least64_t)bytes);
        return false;
    }
    errno = ENOMEM;
    return true;
}

/* Counts the bytes of a new block, which the allocator may have rounded up. Accepts NULL. Returns the block. */
static void *came(void *at)
{
    int_least64_t bytes = (int_least64_t)malloc_usable_size(at);

    raise_to(&peak, atomic_fetch_add(&live, bytes) + bytes);
    return at;
}

static void went(void *at)
{
    atomic_fetch_sub(&live, (int_least64_t)malloc_usable_size(at));
}

/* Defines __wrap_NAME, which the linker puts in place of every call of NAME. __real_NAME is the original function. */
#define WRAP(type, name, parameters, arguments, bytes)                                                                 \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        return fails(bytes) ? NULL : came(__real_##name arguments);                                                    \
    }

WRAP(void *, malloc, (size_t size), (size), size)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), n *size)
WRAP(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size), size)
WRAP(char *, strdup, (const char *text), (text), 0)
WRAP(char *, strndup, (const char *text, size_t size), (text, size), 0)

void *__real_realloc(void *at, size_t size);
void *__wrap_realloc(void *at, size_t size);
void *__wrap_realloc(void *at, size_t size)
{
    int_least64_t before = (int_least64_t)malloc_usable_size(at);
    void *moved = fails(size) ? NULL : __real_realloc(at, size);

    if (moved == NULL) return NULL;
    atomic_fetch_sub(&live, before);
    return came(moved);
}

int __real_posix_memalign(void **at, size_t alignment, size_t size);
int __wrap_posix_memalign(void **at, size_t alignment, size_t size);
int __wrap_posix_memalign(void **at, size_t alignment, size_t size)
{
    int rc = fails(size) ? ENOMEM : __real_posix_memalign(at, alignment, size);

    if (rc == 0) came(*at);
    return rc;
}

void __real_free(void *at);
void __wrap_free(void *at);
void __wrap_free(void *at)
{
    went(at);
    __real_free(at);
}
