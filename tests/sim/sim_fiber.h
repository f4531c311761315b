/* sim_fiber.h - functions that run on a stack of their own and give way to their caller where they have to wait. */
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

#include <stdbool.h>

typedef struct fiber fiber;

/* Makes a fiber, which fiber_run starts. */
fiber *fiber_new(void (*body)(void *arg), void *arg);
/* Lets the fiber run until it gives way. Returns false once its function has returned. */
bool fiber_run(fiber *f);
/* Called in the fiber: returns when its caller lets it run again. */
void fiber_give_way(fiber *f);
/* Frees a fiber whose function has returned, or has never run. Accepts NULL. */
void fiber_free(fiber *f);

#endif
