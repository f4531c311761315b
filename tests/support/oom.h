/* oom.h - out of memory as a parameter of a test: makes the n-th allocation fail.
 *
 *     for (int64_t n = 0; ; n++) {
 *         oom_arm(n);                          the n-th allocation from now fails (0: the next), once
 *         rc = pd_thing_new(&thing);
 *         if (!oom_disarm()) break;            it did not come so far: everything has been tried
 *         assert_int_equal(rc, PD_NO_MEMORY);  and nothing has changed
 *     }
 *
 * oom_each does so with what leaves nothing behind.
 *
 * Works by the linker (--wrap, tests/CMakeLists.txt): every call from our own code and the test to malloc, calloc, realloc,
 * aligned_alloc, posix_memalign, strdup and strndup is counted, also under the sanitizers; those inside shared libraries (libc, libuv,
 * jansson ...) are not. Counts the calls of all threads. Cleared by disarm, so let no assertion stand between the two. */
#ifndef OOM_H
#define OOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void oom_arm(int64_t n);
/* True: the allocation was asked for, and failed. */
bool oom_disarm(void);
/* Attempts it with the first allocation failing, then with the second, ... until it has all it asks for. An attempt gives a code, and lets go of what it has made.
 * Fails the test where one says other than PD_NO_MEMORY, or the last other than PD_OK. Gives how many have failed. */
int64_t oom_each(int (*attempt)(const void *what), const void *what);
/* Attempts something of which no failed allocation may change the outcome: n floats, which are the same bits as when none fails. The attempt lets the n-th allocation of its
 * choice fail and tells whether there was one. */
void oom_assert_same(bool (*attempt)(float *out, int64_t n), size_t floats);
/* Allocations of this process so far: to show that something allocates nothing. */
int64_t oom_allocations(void);
/* Bytes of the largest that succeeded since they were forgotten. */
int64_t oom_largest(void);
void    oom_forget_largest(void);
/* Bytes that are allocated and not freed, as the allocator rounds them: to compare with what was counted for them. Differences alone mean something, since
 * what a shared library allocates and our own code frees is taken off. And the most since oom_forget_peak. */
int64_t oom_live(void);
int64_t oom_peak(void);
void    oom_forget_peak(void);

#endif
