/* test.c - checks a condition again and again until it holds or a deadline passes. */
#include "daemon_process.h"
#include "test.h"

bool await(bool (*holds)(void *arg), void *arg, double seconds)
{
    double until = seconds_now() + seconds;
    bool held;

    while (!(held = holds(arg)) && seconds_now() < until) sleep_for(0.002);
    return held;
}
