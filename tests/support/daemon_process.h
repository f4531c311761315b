/* daemon_process.h - the real daemon for a test: started on a port of its own, watched through its log, and ended. */
#ifndef DAEMON_FOR_TESTS_H
#define DAEMON_FOR_TESTS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct test_daemon {
    pid_t pid;                  /* 0: it has ended and was waited for */
    int   port;                 /* on 127.0.0.1, else on ::1 */
    char  url[64];              /* "tcp://127.0.0.1:PORT" */
    char  log[64];              /* file with its output; removed by daemon_stop */
} test_daemon;

/* Runs $PARAMD_BIN/paramd with these flags (NULL at the end; or NULL) beside --listen 127.0.0.1:0, unless a flag begins
 * with "--listen", and waits until it listens. Fails the test if it does not. */
test_daemon *daemon_start(const char *const *flags);
/* Sends SIGTERM and waits at most `seconds`, then kills it. Returns its exit status, 128 + signal, or -1: killed.
 * Frees. */
int  daemon_stop(test_daemon *daemon, double seconds);
/* kill -9, waits, frees. */
void daemon_kill(test_daemon *daemon);
/* Runs it where it is expected to refuse: returns its exit status; its output is in `text`. */
int  daemon_refuses(const char *const *flags, char *text, size_t size);

bool daemon_lives(test_daemon *daemon);
/* Waits until its log holds that text. False: not within so many seconds. */
bool daemon_says(const test_daemon *daemon, const char *text, double seconds);
/* Waits until so many contributions to a job have come, counted since it began. Fails the test where they do not. */
void   daemon_await_contributions(const test_daemon *daemon, const char *job, int count);
/* The number after the first such text in its log; 0: it is not there. For "listening on [::1]:". */
int  daemon_port_of(const test_daemon *daemon, const char *text);
void daemon_freeze(const test_daemon *daemon);      /* SIGSTOP */
void daemon_thaw(const test_daemon *daemon);        /* SIGCONT */

/* ---- other helpers of tests that need real time ---- */

double seconds_now(void);                           /* monotonic */
void   sleep_for(double seconds);
/* A timeout for a test: longer under sanitizers, which are slow. */
double patient(double seconds);

#endif
