/* platform.h - the event loop as the conversation sees it: time, wake-ups, and work for other threads.
 *
 * Loop thread. In the daemon the platform is libuv (daemon.c). In tests/sim it is the simulator, which has no sockets
 * and no clock. The conversation does not know on which platform it runs. */
#ifndef PD_PLATFORM_H
#define PD_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>

/* Work for another thread: `run` is called there, then `done` on the loop thread. First member of the struct that
 * carries the work's data. */
typedef struct pd_background {
    void (*run)(struct pd_background *work);
    void (*done)(struct pd_background *work);
} pd_background;

typedef struct pd_platform {
    void     *arg;
    uint64_t (*now_ms)(void *arg);              /* monotonic; does not change during a callback */
    uint64_t (*clock_ns)(void *arg);            /* monotonic; for time budgets within a callback */
    uint64_t (*random)(void *arg);              /* returns a secret, from which hash keys are made */
    void     (*wake)(void *arg);                /* any thread: pd_conversation_take_effects is called soon */
    void     (*stop)(void *arg);                /* the loop ends after this turn */
    void     (*end_listening)(void *arg);       /* no new connections from now on */
    bool     (*background)(void *arg, pd_background *work);     /* false: the work cannot be started, and nothing will
                                                                 * be called. NULL: there are no other threads */
} pd_platform;

#endif
