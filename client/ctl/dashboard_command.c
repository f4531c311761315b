/* dashboard_command.c - the command dashboard: passes the bytes of browsers on to the HTTP socket of a local daemon,
 * which no browser can open, and back. */
#include "dashboard_command.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "format.h"
#include "local_daemons.h"
#include "result.h"

enum { MOST = 32, ROOM = 16 * 1024 };

/* One direction of a browser's connection: bytes that were read at one end, and not yet written at the other. */
typedef struct stream {
    char bytes[ROOM];
    size_t from, to; /* bytes[from .. to) wait */
    bool ended;      /* the reading end has ended */
} stream;

/* A browser's connection: fd[0] to the browser, fd[1] to the daemon; way[i] is read from fd[i]. */
typedef struct pair {
    int fd[2];
    stream way[2];
} pair;

/* ---- passing bytes on ---- */

/* Reads what the socket has, or writes what waits for it. Returns false if the connection is over. */
static bool move(pair *p, int i, short events)
{
    stream *in = &p->way[i], *out = &p->way[!i];
    ssize_t n;

    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && in->from == in->to && !in->ended) {
        n = read(p->fd[i], in->bytes, ROOM);
        if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
        in->ended = n == 0;
        in->from = 0;
        in->to = n > 0 ? (size_t)n : 0;
    }
    if (out->from < out->to) {
        n = send(p->fd[i], out->bytes + out->from, out->to - out->from, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (n > 0) out->from += (size_t)n;
    }
    return true;
}

static short wanted(const pair *p, int i)
{
    const stream *in = &p->way[i], *out = &p->way[!i];

    return (short)((in->from == in->to && !in->ended ? POLLIN : 0) | (out->from < out->to ? POLLOUT : 0));
}

/* Returns whether the browser or the daemon has ended, and all of its bytes are passed on. */
static bool is_over(const pair *p)
{
    for (int i = 0; i < 2; i++)
        if (p->way[i].ended && p->way[i].from == p->way[i].to) return true;
    return false;
}

static void end(pair *p)
{
    for (int i = 0; i < 2; i++)
        if (p->fd[i] >= 0) close(p->fd[i]);
    p->fd[0] = p->fd[1] = -1;
}

/* Takes a browser's connection, and opens one to the daemon for it. Returns false if the daemon has ended. */
static bool take(pair *pairs, int listener, const char *base)
{
    pair *free_one = NULL;
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) return true;
    for (int i = 0; i < MOST; i++)
        if (pairs[i].fd[0] < 0) free_one = &pairs[i];
    if (free_one == NULL) { /* poll does not ask for more browsers than there is room for */
        close(fd);
        return true;
    }
    *free_one = (pair){ .fd = { fd, pd_local_connect(base, ".http") } };
    if (free_one->fd[1] < 0) {
        end(free_one);
        return false;
    }
    fcntl(free_one->fd[1], F_SETFL, O_NONBLOCK);
    return true;
}

/* Passes bytes on until the daemon has ended. `process`: descriptor of the daemon's process, which says so. */
static void pass_on(pair *pairs, int listener, int process, const char *base)
{
    struct pollfd polled[2 + 2 * MOST];

    for (int i = 0; i < MOST; i++) pairs[i].fd[0] = pairs[i].fd[1] = -1;
    for (;;) {
        bool room = false;
        for (int i = 0; i < MOST; i++) {
            for (int k = 0; k < 2; k++)
                polled[2 + 2 * i + k] = (struct pollfd){ pairs[i].fd[k], wanted(&pairs[i], k), 0 };
            room = room || pairs[i].fd[0] < 0;
        }
        polled[0] = (struct pollfd){ room ? listener : -1, POLLIN, 0 };
        polled[1] = (struct pollfd){ process, POLLIN, 0 };
        if (poll(polled, 2 + 2 * MOST, -1) < 0 && errno != EINTR) return;
        if (polled[1].revents != 0) return;
        for (int i = 0; i < MOST; i++) {
            bool good = pairs[i].fd[0] >= 0;
            for (int k = 0; k < 2 && good; k++) good = move(&pairs[i], k, polled[2 + 2 * i + k].revents);
            if (pairs[i].fd[0] >= 0 && (!good || is_over(&pairs[i]))) end(&pairs[i]);
        }
        if (polled[0].revents != 0 && !take(pairs, listener, base)) return;
    }
}

/* ---- the command ---- */

/* Listens on a port of 127.0.0.1; 0: a free one, which *port becomes. Returns the socket; -1: see errno. */
static int listen_here(uint16_t *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(*port) };
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0) return -1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, MOST) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &size) == 0) {
        *port = ntohs(address.sin_port);
        return fd;
    }
    close(fd);
    return -1;
}

/* Starts the desktop's browser, and does not wait for it. */
static void open_browser(const char *url)
{
    pid_t child;

    signal(SIGCHLD, SIG_IGN);
    if ((child = fork()) == 0) {
        execlp("xdg-open", "xdg-open", url, (char *)NULL);
        pd_print_line(stderr, "paramctl: cannot run xdg-open: %s", strerror(errno));
        _exit(1);
    }
    if (child < 0) pd_print_line(stderr, "paramctl: cannot run xdg-open: %s", strerror(errno));
}

/* Finds the local daemon that --server names, or the only one. */
static int find(const pd_line *line, pd_local_daemon *daemon, pd_error *err)
{
    pd_local_daemon *all = NULL;
    char url[sizeof daemon->base + 16];
    size_t n = 0;
    int rc;

    if (line->server == NULL) return pd_local_daemon_find(daemon, NULL, err);
    if ((rc = pd_local_daemons(&all, &n, err)) != PD_OK) return rc;
    rc = pd_fail(err, PD_NOT_FOUND,
                 "%.200s is no local daemon (`paramctl daemons` lists them): a daemon with http.listen serves its "
                 "dashboard there by itself",
                 line->server);
    for (size_t i = 0; i < n; i++) {
        snprintf(url, sizeof url, "unix://%s.sock", all[i].base);
        if (strcmp(url, line->server) != 0) continue;
        *daemon = all[i];
        rc = PD_OK;
    }
    free(all);
    return rc;
}

static int serve(const pd_line *line, const pd_local_daemon *daemon, int process)
{
    static pair pairs[MOST];
    uint16_t port = (uint16_t)pd_line_number(line, "port");
    int listener = listen_here(&port);
    pd_error err;
    char url[40];

    if (listener < 0) {
        pd_fail(&err, PD_UNAVAILABLE, "cannot listen on 127.0.0.1:%u: %s", port, strerror(errno));
        return pd_result_fail_reached(line->json, &err);
    }
    snprintf(url, sizeof url, "http://127.0.0.1:%u/", port);
    if (line->json)
        printf("{\"name\": \"%s\", \"url\": \"%s\"}\n", daemon->name, url);
    else
        pd_print_line(stdout, "%s: the dashboard of %s (Ctrl-C ends it)", url, daemon->name);
    fflush(stdout);
    if (pd_line_has(line, "open")) open_browser(url);
    pass_on(pairs, listener, process, daemon->base);
    for (int i = 0; i < MOST; i++) end(&pairs[i]);
    close(listener);
    if (!line->json) pd_print_line(stdout, "%s has ended", daemon->name);
    return PD_EXIT_OK;
}

int pd_run_dashboard(pd_line *line)
{
    pd_local_daemon daemon;
    pd_error err;
    int rc = find(line, &daemon, &err), process, http, status;

    if (rc != PD_OK) return pd_result_fail_reached(line->json, &err);
    if ((http = pd_local_connect(daemon.base, ".http")) < 0) {
        pd_fail(&err, PD_UNAVAILABLE, "%s.http: %s: the daemon serves no dashboard there", daemon.base,
                strerror(errno));
        return pd_result_fail(line->json, &err);
    }
    close(http);
    if ((process = (int)syscall(SYS_pidfd_open, daemon.pid, 0)) < 0) {
        pd_fail(&err, PD_UNAVAILABLE, "process %ld: %s", (long)daemon.pid, strerror(errno));
        return pd_result_fail(line->json, &err);
    }
    status = serve(line, &daemon, process);
    close(process);
    return status;
}
