/* http_ask.h - asks the HTTP listener of a daemon on this machine. */
#ifndef HTTP_ASK_H
#define HTTP_ASK_H

#include <stdbool.h>

/* Sends a request to a port of 127.0.0.1, and reads to the end of the answer, or until nothing comes for 10 seconds.
 * Returns the answer, of at most 256 KiB, with its head. It is valid until the next call. */
const char *http_answer(int port, const char *request);
/* Does the same, and returns whether the answer has the expected text. */
bool http_answers(int port, const char *request, const char *expected);

/* Connects to a port of this machine. */
/* Returns a socket that is connected to a port of 127.0.0.1. Fails the test if nobody listens there. */
int loopback_connect(int port);

#endif
