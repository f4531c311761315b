/* sim_memory.c - counts the memory of each side of the simulation, and lets allocations of the server fail.
 *
 * The linker redirects the calls of malloc, free and the like in our own code to this file (--wrap). The side that
 * allocates a block also frees it. */
#include "sim.h"

#include <malloc.h>

static sim_side current;
static int64_t live[SIM_SIDES];
static uint64_t failing_of, failing_random, failed;
static bool holding;

sim_side sim_enter(sim_side side)
{
    sim_side before = current;
    current = side;
    return before;
}

int64_t sim_live_bytes(sim_side side)
{
    return live[side];
}

void sim_memory_reset(void)
{
    memset(live, 0, sizeof live);
    failing_of = failed = 0;
}

void sim_fail_allocations(uint64_t n, uint64_t random)
{
    failing_of = n;
    failing_random = random;
}

uint64_t sim_failed_allocations(void)
{
    return failed;
}

void *sim_must(void *at)
{
    if (at != NULL) return at;
    fprintf(stderr, "pd_sim: out of memory\n");
    abort();
}

bool sim_hold_failures(bool held)
{
    bool before = holding;
    holding = held;
    return before;
}

static bool fails(void)
{
    if (failing_of == 0 || holding || current != SIM_SERVER || !sim_once_in(&failing_random, failing_of)) return false;
    failed++;
    errno = ENOMEM;
    return true;
}

static void *came(void *at)
{
    if (at == NULL) return NULL;
    live[current] += (int64_t)malloc_usable_size(at);
    return at;
}

static void went(void *at)
{
    if (at != NULL) live[current] -= (int64_t)malloc_usable_size(at);
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *at, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **at, size_t alignment, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
void __real_free(void *at);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *at, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **at, size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
void __wrap_free(void *at);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : came(__real_malloc(size));
}
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : came(__real_calloc(n, size));
}
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : came(__real_aligned_alloc(alignment, size));
}
char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : came(__real_strdup(text));
}
char *__wrap_strndup(const char *text, size_t size)
{
    return fails() ? NULL : came(__real_strndup(text, size));
}

int __wrap_posix_memalign(void **at, size_t alignment, size_t size)
{
    int rc = fails() ? ENOMEM : __real_posix_memalign(at, alignment, size);

    if (rc == 0) came(*at);
    return rc;
}

void *__wrap_realloc(void *at, size_t size)
{
    size_t before = at != NULL ? malloc_usable_size(at) : 0;
    void *now;

    if (fails() || (now = __real_realloc(at, size)) == NULL) return NULL;
    live[current] -= (int64_t)before;
    return came(now);
}

void __wrap_free(void *at)
{
    went(at);
    __real_free(at);
}
