/* child.c - starts the daemon that `paramctl bench` measures, finds its addresses in its output, and stops it. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "programs.h"
#include "token.h"

enum { START_MS = 20 * 1000, STOP_MS = 10 * 1000, LOOK_MS = 10 };

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Replaces the forked process by the daemon. Never returns. */
static void become_daemon(char *path, pd_child *child, pid_t parent)
{
    char addresses[160];
    bool secure = child->token[0] != '\0';
    char *argv[] = { path, "--listen", addresses, secure ? "--tls-tokens" : NULL, child->token, NULL };

    snprintf(addresses, sizeof addresses, "127.0.0.1:0,%s%s", child->local, secure ? ",tls://127.0.0.1:0" : "");

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(child->log, STDOUT_FILENO);
    dup2(child->log, STDERR_FILENO);
    execv(path, argv);
    _exit(127);
}

/* Reads the beginning of the daemon's output. */
static void read_log(const pd_child *child, char *text, size_t size)
{
    ssize_t n = pread(child->log, text, size - 1, 0);

    text[n > 0 ? n : 0] = '\0';
}

/* Returns the port number that follows `text` in a complete line of the daemon's output; 0: there is none. */
static int port_after(const char *log, const char *text)
{
    const char *at = strstr(log, text);

    return at != NULL && strchr(at, '\n') != NULL ? atoi(at + strlen(text)) : 0;
}

static bool find_urls(pd_child *child)
{
    char text[4096];
    int port, secure;

    read_log(child, text, sizeof text);
    port = port_after(text, "listening on 127.0.0.1:");
    secure = port_after(text, "listening on tls://127.0.0.1:");
    if (port == 0 || (child->token[0] != '\0' && secure == 0)) return false;
    snprintf(child->url, sizeof child->url, "tcp://127.0.0.1:%d", port);
    if (secure != 0) snprintf(child->secure, sizeof child->secure, "tls://127.0.0.1:%d", secure);
    return true;
}

static int wait_until_it_listens(pd_child *child, pd_error *err)
{
    for (int ms = 0; ms < START_MS; ms += LOOK_MS) {
        if (find_urls(child)) return PD_OK;
        if (waitpid(child->pid, NULL, WNOHANG) == child->pid) {
            char text[400];
            read_log(child, text, sizeof text);
            text[strcspn(text, "\n")] = '\0';
            child->pid = 0;
            return pd_fail(err, PD_UNAVAILABLE, "paramd exited during its start: %s", text);
        }
        pause_ms(LOOK_MS);
    }
    return pd_fail(err, PD_DEADLINE_EXCEEDED, "paramd does not listen after %d seconds", START_MS / 1000);
}

/* Writes a file with a new token into the daemon's folder. */
static int write_token(pd_child *child, pd_error *err)
{
    char line[PD_TOKEN_LINE];
    int rc = pd_token_new(line, "bench", err), fd;

    if (rc != PD_OK) return rc;
    snprintf(child->token, sizeof child->token, "%s/token", child->folder);
    fd = open(child->token, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, strlen(line)) != (ssize_t)strlen(line))
        rc = pd_fail(err, PD_UNAVAILABLE, "%s: %s", child->token, strerror(errno));
    if (fd >= 0) close(fd);
    return rc;
}

static int start(pd_child *out, bool secure, pd_error *err)
{
    char path[4096];
    pid_t parent = getpid();
    int rc;

    *out = (pd_child){ .log = -1 };
    if ((rc = pd_sibling_path(path, sizeof path, "paramd", err)) != PD_OK) return rc;
    if ((out->log = memfd_create("paramd.log", MFD_CLOEXEC)) < 0)
        return pd_fail(err, PD_UNAVAILABLE, "cannot create a file for the log: %s", strerror(errno));
    strcpy(out->folder, "/tmp/paramd-bench-XXXXXX");
    if (mkdtemp(out->folder) == NULL) {
        rc = pd_fail(err, PD_UNAVAILABLE, "cannot create a folder for the socket: %s", strerror(errno));
        out->folder[0] = '\0';
        pd_child_stop(out);
        return rc;
    }
    snprintf(out->local, sizeof out->local, "unix://%s/socket", out->folder);
    if (secure && (rc = write_token(out, err)) != PD_OK) {
        pd_child_stop(out);
        return rc;
    }
    out->pid = fork();
    if (out->pid == 0) become_daemon(path, out, parent);
    rc = out->pid < 0 ? pd_fail(err, PD_UNAVAILABLE, "cannot start a process: %s", strerror(errno))
                      : wait_until_it_listens(out, err);
    if (rc != PD_OK) pd_child_stop(out);
    return rc;
}

int pd_child_start(pd_child *out, pd_error *err)
{
    return start(out, false, err);
}

int pd_child_start_secure(pd_child *out, pd_error *err)
{
    return start(out, true, err);
}

void pd_child_stop(pd_child *child)
{
    if (child->pid > 0) {
        kill(child->pid, SIGTERM);
        for (int ms = 0; ms < STOP_MS && waitpid(child->pid, NULL, WNOHANG) == 0; ms += LOOK_MS) pause_ms(LOOK_MS);
        if (kill(child->pid, 0) == 0) {
            kill(child->pid, SIGKILL);
            waitpid(child->pid, NULL, 0);
        }
    }
    if (child->log >= 0) close(child->log);
    if (child->folder[0] != '\0') {
        unlink(child->local + strlen("unix://")); /* a daemon that was killed leaves its socket */
        if (child->token[0] != '\0') unlink(child->token);
        rmdir(child->folder);
    }
    *child = (pd_child){ .log = -1 };
}
