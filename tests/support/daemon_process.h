/* daemon_process.h - the real daemon for a test: started on a port of its own, watched through its log, and ended. */
#ifndef DAEMON_FOR_TESTS_H
#define DAEMON_FOR_TESTS_H

#include <stdbool.h>
#include <sys/types.h>
#include <jansson.h>
#include "bench.h"

typedef struct test_daemon {
    pid_t pid;    /* process id of the daemon; 0: the process has ended and was waited for */
    int port;     /* the daemon's port on 127.0.0.1, or on ::1 if it does not listen on 127.0.0.1 */
    char url[64]; /* "tcp://127.0.0.1:PORT" */
    char log[64]; /* file that receives the daemon's output; daemon_stop removes it */
} test_daemon;

/* Returns a port of 127.0.0.1 that the kernel gives to nobody else while this process lives, so that a daemon can be
 * killed and started again on it: a socket stays bound to it, and does not listen. */
int reserve_port(void);

/* Starts $PARAMD_BIN/paramd with these flags (NULL at the end; or NULL: none) and waits until it listens. Adds --listen
 * 127.0.0.1:0 unless a flag begins with "--listen"; port 0 of 127.0.0.1 becomes one that is reserved. Fails the test if
 * the daemon does not listen. */
test_daemon *daemon_start(const char *const *flags);
/* Starts the daemon as daemon_start does, but waits until its log has `text`, since it does not listen for workers yet.
 * Its port and URL are not set. */
test_daemon *daemon_start_until(const char *const *flags, const char *text);
/* Waits until the daemon ends by itself. Returns its exit status, 128 + signal, or -1: it still runs. */
int daemon_await_end(test_daemon *daemon, double seconds);
/* Sends SIGTERM, waits at most `seconds`, then kills the daemon. Returns its exit status, 128 + signal, or -1: it was
 * killed. Frees `daemon`. */
int daemon_stop(test_daemon *daemon, double seconds);
/* Makes a folder, and starts n daemons that have state directories in it, one thread for steps and one of the pool.
 * `folder` receives its path. */
void daemons_start(test_daemon **daemons, size_t n, char folder[64]);
/* Stops n daemons, each within 20 s, and removes their folder. Returns 0 if all have exited with status 0. */
int daemons_stop(test_daemon **daemons, size_t n, const char *folder);
/* Stops the daemon within 20 s, and checks that it exits with status 0. Frees `daemon`. */
void daemon_end(test_daemon *daemon);
/* Kills the daemon with SIGKILL, waits for it, and frees `daemon`. */
void daemon_kill(test_daemon *daemon);
/* Runs a daemon that is expected to refuse to start. Returns its exit status; `text` receives its output. */
int daemon_refuses(const char *const *flags, char *text, size_t size);

bool daemon_lives(test_daemon *daemon);
/* Waits until the daemon's log contains `text`. Returns false if it does not within `seconds`. */
bool daemon_says(const test_daemon *daemon, const char *text, double seconds);
/* Returns how often the daemon's log contains `text`. */
int daemon_count(const test_daemon *daemon, const char *text);
/* Waits until a job has received a number of contributions since it began. Fails the test if it does not get them. */
void daemon_await_contributions(const test_daemon *daemon, const char *job, int count);
/* Returns the port that follows the first occurrence of a text in the daemon's log, for example "listening on
 * [::1]:". 0: the log does not contain the text. */
int daemon_port_of(const test_daemon *daemon, const char *text);
/* Sends SIGHUP until the daemon's log contains `text`: a signal that comes before the daemon handles it is ignored, and
 * ThreadSanitizer delays one that the kernel gives to an idle thread. Fails the test if the log does not get the
 * text. */
void daemon_reload(const test_daemon *daemon, const char *text);
void daemon_freeze(const test_daemon *daemon); /* sends SIGSTOP */
void daemon_thaw(const test_daemon *daemon);   /* sends SIGCONT */

double seconds_now(void); /* monotonic clock */
void sleep_for(double seconds);
/* Returns a timeout for a test: longer under sanitizers, because they are slow. */
double patient(double seconds);

/* Runs paramctl against the test's daemon, and checks its output. */
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
