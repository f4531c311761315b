/* await.h - waits for a condition, with a deadline, where a test cannot be told when it holds. */
#ifndef AWAIT_H
#define AWAIT_H

#include <stdbool.h>

/* Asks `holds` every few milliseconds. False: it did not hold within so many seconds. */
bool await(bool (*holds)(void *arg), void *arg, double seconds);

#endif
