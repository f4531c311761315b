/* platform.h - the functions that the conversation needs from an event loop: time, wake-ups, and work on other
 * threads.
 *
 * Runs on the loop thread. In the daemon the platform is libuv (daemon.c). In tests/sim it is the simulator, which
 * has no sockets and no clock. The conversation does not know on which platform it runs. */
#ifndef PD_PLATFORM_H
#define PD_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>

/* A task for another thread: `run` is called on that thread, then `done` on the loop thread. The struct with the task's
 * data contains it as a member. */
typedef struct pd_background {
    void (*run)(struct pd_background *work);
    void (*done)(struct pd_background *work);
} pd_background;

typedef struct pd_platform {
    void *arg;
    uint64_t (*now_ms)(void *arg);                      /* returns the time in milliseconds, by a clock that never goes
                                                         * back; it does not change during a callback */
    uint64_t (*clock_ns)(void *arg);                    /* returns the time in nanoseconds, to limit how long a callback
                                                         * runs */
    uint64_t (*unix_ms)(void *arg);                     /* returns the milliseconds since 1970, by a clock that people
                                                         * may set. NULL: there is no such clock */
    uint64_t (*random)(void *arg);                      /* returns a random number that peers cannot guess, for the keys
                                                         * of hash tables */
    void (*wake)(void *arg);                            /* makes the loop call pd_conversation_take_effects soon; any
                                                         * thread may call it */
    void (*stop)(void *arg);                            /* ends the event loop after its present turn */
    void (*end_listening)(void *arg);                   /* makes the daemon accept no new connections from now on */
    bool (*background)(void *arg, pd_background *work); /* starts a task on another thread; returns false if that is
                                                         * impossible now. NULL: there are no other threads */
} pd_platform;

#endif
