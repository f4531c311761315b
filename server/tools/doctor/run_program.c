/* run_program.c - runs a program and reads its output, within a deadline. */
#include "run_program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CANNOT_RUN = 127, POLL_MS = 5 };

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Replaces the forked process by the program. Never returns. */
static void become(char *const *argv, const char *variable, int out)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (variable != NULL) putenv((char *)variable);
    execv(argv[0], argv);
    _exit(CANNOT_RUN);
}

/* Reads until the other end of the pipe is closed. Output that finds no room is dropped. Returns false if that takes
 * longer than the deadline. */
static bool read_all(int fd, int64_t deadline, char *text, size_t size)
{
    char dropped[4096];
    size_t used = 0;

    for (;;) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        int64_t left = deadline - now_ms();
        size_t room = size - 1 - used;
        ssize_t n;

        if (left <= 0 || (poll(&wait, 1, (int)left) < 0 && errno != EINTR)) return false;
        if (wait.revents == 0) continue;
        n = read(fd, room > 0 ? text + used : dropped, room > 0 ? room : sizeof dropped);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0;
        if (room > 0) used += (size_t)n;
        text[used] = '\0';
    }
}

/* Waits for the end of the process. Returns false if it had to be killed, because it still ran at the deadline. */
static bool await_end(pid_t pid, int64_t deadline, int *status)
{
    pid_t ended;

    while ((ended = waitpid(pid, status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        if (now_ms() >= deadline) {
            kill(pid, SIGKILL);
            while (waitpid(pid, status, 0) < 0 && errno == EINTR) continue;
            return false;
        }
        poll(NULL, 0, POLL_MS);
    }
    return true;
}

int pd_run_program(char *const *argv, const char *variable, int limit_ms, char *text, size_t size)
{
    int ends[2], status = 0;
    int64_t deadline = now_ms() + limit_ms;
    pid_t pid;
    bool in_time;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) return PD_RUN_FAILED;
    if ((pid = fork()) == 0) become(argv, variable, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return PD_RUN_FAILED;
    }
    in_time = read_all(ends[0], deadline, text, size);
    close(ends[0]);
    if (!await_end(pid, in_time ? deadline : 0, &status)) return PD_RUN_LATE;
    return WIFEXITED(status) && WEXITSTATUS(status) != CANNOT_RUN ? WEXITSTATUS(status) : PD_RUN_FAILED;
}
