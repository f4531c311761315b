/* paramctl_run.h - runs paramctl against the test's daemon, and checks its output. */
#ifndef PD_TEST_PARAMCTL_RUN_H
#define PD_TEST_PARAMCTL_RUN_H

#include <jansson.h>

#include "bench.h"

extern pd_child paramctl_server;
extern char paramctl_output[256 * 1024]; /* output of the last command: stdout and stderr, or stdout only with --json */

/* Set up and tear down a group: one daemon for all tests of a file. */
int paramctl_start_server(void **state);
int paramctl_stop_server(void **state);

/* Lets the functions below ask the daemon at this address. */
void paramctl_ask(const char *url);
/* Runs `paramctl ARGUMENTS` with the test's daemon in the environment. Returns its exit status. */
int paramctl(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Runs a command line of a shell in which $paramctl is the program. Returns its exit status. */
int paramctl_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Fails if the output of the last command does not have this part. */
void assert_says(const char *part);
/* Fails if a line of the last command's output has more than `most` characters. */
void assert_lines_fit(int most);
/* Returns the last command's output as JSON, which the caller frees. */
json_t *parsed(void);

#endif
