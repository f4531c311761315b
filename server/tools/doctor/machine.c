/* machine.c - functions that the checks of the doctor share: they read files of the kernel and the daemon's settings,
 * run programs, and fill in findings. */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "connection.h"
#include "host.h"

bool pd_machine_text(const pd_machine *machine, const char *path, char *text, size_t size)
{
    char full[1024];

    snprintf(full, sizeof full, "%s%s", machine->root, path);
    return pd_host_read_text(full, text, size);
}

int64_t pd_machine_number(const pd_machine *machine, const char *path, int64_t otherwise)
{
    char text[64], *end;
    int64_t number;

    if (!pd_machine_text(machine, path, text, sizeof text)) return otherwise;
    number = strtoll(text, &end, 10);
    return end != text ? number : otherwise;
}

bool pd_machine_choice(const pd_machine *machine, const char *path, char *word, size_t size)
{
    char text[256], *first, *last;

    if (!pd_machine_text(machine, path, text, sizeof text)) return false;
    if ((first = strchr(text, '[')) == NULL || (last = strchr(first, ']')) == NULL) return false;
    snprintf(word, size, "%.*s", (int)(last - first - 1), first + 1);
    return true;
}

/* Returns the text after `name` in the first line that begins with it; NULL: no line does. */
static const char *text_after(const char *text, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = text; at != NULL && *at != '\0'; at = strchr(at, '\n'), at = at != NULL ? at + 1 : NULL)
        if (strncmp(at, name, n) == 0) return at + n;
    return NULL;
}

int64_t pd_number_after(const char *text, const char *name, int64_t otherwise)
{
    const char *at = text_after(text, name);
    char *end;
    int64_t number;

    if (at == NULL) return otherwise;
    number = strtoll(at, &end, 10);
    return end != at ? number : otherwise;
}

bool pd_machine_setting(const pd_machine *machine, const char *key, char *value, size_t size)
{
    char name[64];
    const char *at;
    size_t n;

    snprintf(name, sizeof name, "%s =", key);
    if ((at = text_after(machine->settings, name)) == NULL) return false;
    at += strspn(at, " ");
    n = strcspn(at, "\n");
    if (n >= size) return false;
    memcpy(value, at, n);
    value[n] = '\0';
    return true;
}

const char *pd_health_name(pd_health health)
{
    static const char *const names[] = { [PD_HEALTH_OK] = "ok", [PD_HEALTH_WARN] = "warn", [PD_HEALTH_FAIL] = "fail" };

    return names[health];
}

/* Appends formatted text, cut to the size of the buffer. */
static void append(char *text, size_t size, const char *format, va_list args)
{
    size_t used = strlen(text);

    vsnprintf(text + used, size - used, format, args);
}

void pd_found(pd_finding *finding, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    append(finding->found, sizeof finding->found, format, args);
    va_end(args);
}

void pd_advise(pd_finding *finding, pd_health health, const char *format, ...)
{
    size_t used = strlen(finding->advice);
    va_list args;

    if (health > finding->health) finding->health = health;
    snprintf(finding->advice + used, sizeof finding->advice - used, "%s", used > 0 ? " " : "");
    va_start(args, format);
    append(finding->advice, sizeof finding->advice, format, args);
    va_end(args);
}

enum { CANNOT_RUN = 127, POLL_MS = 5 };

static int64_t now_ms(void)
{
    return (int64_t)(pd_now_s() * 1e3);
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

/* Reads until the other end of the pipe is closed. Output that does not fit is discarded. Returns false if the deadline
 * passes first. */
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

/* Waits until the process has ended. Kills it if it still runs at the deadline, and then returns false. */
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
