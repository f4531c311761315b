/* sim_fiber.c - switches between stacks (ucontext). */
#include "sim_fiber.h"

#include "sim.h"

#include <sys/mman.h>
#include <ucontext.h>

enum { STACK_BYTES = 512 * 1024 };

struct fiber {
    ucontext_t own, caller;
    void (*body)(void *arg);
    void *arg;
    bool over;
    uint8_t *stack;
};

/* Stacks that no fiber uses: making one costs two calls of the system. */
static uint8_t *idle[64];
static size_t n_idle;

static uint8_t *take_stack(void)
{
    void *stack;

    if (n_idle > 0) return idle[--n_idle];
    stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    return sim_must(stack != MAP_FAILED ? stack : NULL);
}

static void return_stack(uint8_t *stack)
{
    if (stack != NULL && n_idle < sizeof idle / sizeof *idle)
        idle[n_idle++] = stack;
    else if (stack != NULL)
        munmap(stack, STACK_BYTES);
}

/* The first function on the stack. makecontext passes integers alone, so the pointer comes in two halves. */
static void begin(unsigned high, unsigned low)
{
    fiber *f = (fiber *)((uintptr_t)high << 32 | low);

    f->body(f->arg);
    f->over = true;
    fiber_give_way(f);
}

fiber *fiber_new(void (*body)(void *arg), void *arg)
{
    fiber *f = sim_must(calloc(1, sizeof *f));
    uintptr_t at = (uintptr_t)f;

    f->body = body;
    f->arg = arg;
    f->stack = take_stack();
    getcontext(&f->own);
    f->own.uc_stack = (stack_t){ .ss_sp = f->stack, .ss_size = STACK_BYTES };
    makecontext(&f->own, (void (*)(void))begin, 2, (unsigned)(at >> 32), (unsigned)at);
    return f;
}

bool fiber_run(fiber *f)
{
    swapcontext(&f->caller, &f->own);
    return !f->over;
}

void fiber_give_way(fiber *f)
{
    swapcontext(&f->own, &f->caller);
}

void fiber_free(fiber *f)
{
    if (f == NULL) return;
    return_stack(f->stack);
    free(f);
}
