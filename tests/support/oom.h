/* oom.h - out of memory as a parameter of a test: makes the n-th allocation fail.
 *
 *     for (int64_t n = 0; ; n++) {
 *         oom_arm(n);                          the n-th allocation from now fails (0: the next), once
 *         rc = pd_thing_new(&thing);
 *         if (!oom_disarm()) break;            it did not come so far: everything has been tried
 *         assert_int_equal(rc, PD_NO_MEMORY);  and nothing has changed
 *     }
 *
 * oom_each runs this loop for an attempt that frees all that it has made.
 *
 * Works by the linker (--wrap, tests/CMakeLists.txt): every call from our own code and the test to malloc, calloc,
 * realloc, aligned_alloc, posix_memalign, strdup and strndup is counted, also under the sanitizers; those inside shared
 * libraries (libc, libuv, jansson ...) are not. Counts the calls of all threads. Until oom_disarm an allocation may
 * fail, so let no assertion stand between oom_arm and oom_disarm. */
#ifndef OOM_H
#define OOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void oom_arm(int64_t n);
/* Ends the failing of allocations. Returns whether the allocation that oom_arm has chosen was requested, and so
 * failed. */
bool oom_disarm(void);
/* Calls `attempt` with its first allocation failing, then with its second, and so on, until none fails. An attempt
 * returns a code, and frees all that it has made. Fails the test unless attempts with a failed allocation return
 * PD_NO_MEMORY and the last attempt returns PD_OK. Returns the number of attempts with a failed allocation. */
int64_t oom_each(int (*attempt)(const void *what), const void *what);
/* Checks that failed allocations do not change a result of n floats: it has the same bits as without a failure. The
 * attempt makes its n-th allocation fail, and returns whether there was one. */
void oom_assert_same(bool (*attempt)(float *out, int64_t n), size_t floats);
/* Returns the number of allocations of this process so far. A test can show with it that a function allocates
 * nothing. */
int64_t oom_allocations(void);
/* Returns the bytes of the largest successful allocation since oom_forget_largest. */
int64_t oom_largest(void);
void oom_forget_largest(void);
/* Return the bytes that are allocated and not freed, as the allocator rounds them: now, and at most since
 * oom_forget_peak. Only differences have a meaning, because memory that a shared library allocates and our own code
 * frees is subtracted. */
int64_t oom_live(void);
int64_t oom_peak(void);
void oom_forget_peak(void);

#endif
