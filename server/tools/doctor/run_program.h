/* run_program.h - runs a program and reads its output, within a deadline. */
#ifndef PD_RUN_PROGRAM_H
#define PD_RUN_PROGRAM_H

#include <stddef.h>

enum { PD_RUN_FAILED = -1, PD_RUN_LATE = -2 };
enum { PD_RUN_MS = 10 * 1000 }; /* more than any program that we run takes */

/* Runs argv[0], with one more environment variable ("NAME=VALUE"; NULL: none), and stores its standard output and
 * standard error in `text`, cut to size - 1 bytes. Kills the program after limit_ms. Call it before other threads
 * start. Returns its exit status. PD_RUN_FAILED: it could not be started, or a signal ended it. PD_RUN_LATE: it did not
 * end in time. */
int pd_run_program(char *const *argv, const char *variable, int limit_ms, char *text, size_t size);

#endif
