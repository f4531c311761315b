/* await.h - waits for a condition, with a deadline, where nothing notifies the test that it holds. */
#ifndef AWAIT_H
#define AWAIT_H

#include <stdbool.h>

/* Calls `holds` every few milliseconds until it returns true. Returns false if it is not true within `seconds`. */
bool await(bool (*holds)(void *arg), void *arg, double seconds);

#endif
