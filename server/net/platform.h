/* platform.h - the functions that the conversation needs from an event loop: time, wake-ups, and work on other
 * threads.
 *
 * Runs on the loop thread. In the daemon the platform is libuv (daemon.c). In tests/sim it is the simulator, which
 * has no sockets and no clock. The conversation does not know on which platform it runs. */
#ifndef PD_PLATFORM_H
#define PD_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>

/* Work for another thread: `run` is called on that thread, then `done` on the loop thread. It is a member of the
 * struct with the work's data. */
typedef struct pd_background {
    void (*run)(struct pd_background *work);
    void (*done)(struct pd_background *work);
} pd_background;

typedef struct pd_platform {
    void *arg;
    uint64_t (*now_ms)(void *arg);                      /* returns monotonic milliseconds, which do not change during
                                                         * a callback */
    uint64_t (*clock_ns)(void *arg);                    /* returns monotonic nanoseconds, for time limits within a
                                                         * callback */
    uint64_t (*random)(void *arg);                      /* returns a secret random number for hash keys */
    void (*wake)(void *arg);                            /* makes the loop call pd_conversation_take_effects soon; any
                                                         * thread may call it */
    void (*stop)(void *arg);                            /* ends the loop after this turn */
    void (*end_listening)(void *arg);                   /* accepts no new connections from now on */
    bool (*background)(void *arg, pd_background *work); /* starts work on another thread. False: the work cannot be
                                                         * started. NULL: there are no other threads */
} pd_platform;

#endif
