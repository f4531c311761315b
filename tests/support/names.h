/* names.h - name servers that do not answer, for tests: lookups of names by this process (getaddrinfo) block. */
#ifndef NAMES_H
#define NAMES_H

#include <stdbool.h>

/* From now on lookups of names block until names_answer is called. Numbers in place of names are taken as ever. */
void names_hang(void);
/* Lets all lookups go on. Waits until those that were blocked have ended; fails the test if they do not. */
void names_answer(void);
/* Waits until so many lookups are blocked. Returns false if they are not within `seconds`. */
bool names_await_blocked(int lookups, double seconds);

#endif
