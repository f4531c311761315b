/* local_commands.c - runs the commands about this user's local daemons: daemons lists them, dashboard shows the page of
 * one in a browser. */
#include "commands.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "connection.h"
#include "format.h"
#include "local_daemons.h"
#include "result.h"
#include "text_table.h"

enum { MOST_JOBS = 4 }; /* most jobs that a line of the table names */

/* Writes the names and steps of jobs, such as "default 120, eval 3 and 2 more". */
static void jobs_text(char *text, size_t size, const Paramd__StatusReply *status)
{
    size_t used = 0;

    snprintf(text, size, "-");
    for (size_t i = 0; i < status->n_jobs && i < MOST_JOBS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%.60s %" PRIu64, i > 0 ? ", " : "", status->jobs[i]->name,
                                 status->jobs[i]->step_least);
    if (status->n_jobs > MOST_JOBS && used < size)
        snprintf(text + used, size - used, " and %zu more", status->n_jobs - MOST_JOBS);
}

static void add_row(pd_table *table, const pd_local_daemon *daemon, const Paramd__StatusReply *status,
                    const pd_error *err)
{
    char jobs[512], up[PD_CELL] = "-";

    if (status != NULL) {
        pd_duration_text(up, status->uptime_ms);
        jobs_text(jobs, sizeof jobs, status);
    } else {
        snprintf(jobs, sizeof jobs, "no answer: %.400s", err->text);
    }
    pd_table_cell(table, "%s", daemon->name);
    pd_table_cell(table, "%ld", (long)daemon->pid);
    pd_table_cell(table, "%s", up);
    pd_table_cell(table, "%s", jobs);
    if (status == NULL) pd_table_alarm(table);
    pd_table_cell(table, "unix://%s.sock", daemon->base);
}

static json_t *entry_of(const pd_local_daemon *daemon, const Paramd__StatusReply *status, const pd_error *err)
{
    json_t *entry =
        json_pack("{s:s, s:I, s:o, s:o}", "name", daemon->name, "pid", (json_int_t)daemon->pid, "url",
                  json_sprintf("unix://%s.sock", daemon->base), "log", json_sprintf("%s.log", daemon->base));
    json_t *jobs = json_array();

    if (entry == NULL || jobs == NULL) {
        json_decref(entry);
        json_decref(jobs);
        return NULL;
    }
    for (size_t i = 0; status != NULL && i < status->n_jobs; i++)
        json_array_append_new(jobs, json_pack("{s:s, s:s, s:I}", "name", status->jobs[i]->name, "state",
                                              status->jobs[i]->state, "step", (json_int_t)status->jobs[i]->step_least));
    json_object_set_new(entry, "jobs", jobs);
    if (status != NULL) json_object_set_new(entry, "uptime_ms", json_integer((json_int_t)status->uptime_ms));
    if (status == NULL) json_object_set_new(entry, "error", json_string(err->text));
    return entry;
}

/* Asks a daemon, and adds its answer to the table or to the list. */
static void ask(const pd_line *line, const pd_local_daemon *daemon, pd_table *table, json_t *list)
{
    char url[sizeof daemon->base + 16];
    pd_operator op;
    pd_error err = { 0 };
    void *reply = NULL;
    int rc;

    snprintf(url, sizeof url, "unix://%s.sock", daemon->base);
    rc = pd_operator_open(&op, url, line->timeout, &err);
    if (rc == PD_OK) rc = pd_client_call(op.client, PD_STATUS, NULL, op.arena, &reply, &err);
    if (line->json)
        json_array_append_new(list, entry_of(daemon, rc == PD_OK ? reply : NULL, &err));
    else
        add_row(table, daemon, rc == PD_OK ? reply : NULL, &err);
    pd_operator_close(&op);
}

int pd_run_daemons(pd_line *line)
{
    pd_local_daemon *daemons = NULL;
    pd_table *table = NULL;
    json_t *list = NULL;
    pd_error err = { 0 };
    size_t n = 0;
    int rc = pd_local_daemons(&daemons, &n, &err);

    if (rc != PD_OK) return pd_result_fail_reached(line->json, &err);
    if (line->json)
        list = json_array();
    else
        table = pd_table_new("NAME|>PID|>UP|~JOBS|~ADDRESS");
    for (size_t i = 0; i < n; i++) ask(line, &daemons[i], table, list);
    free(daemons);
    if (line->json) return pd_result_json(list != NULL ? json_pack("{s:o}", "daemons", list) : NULL);
    return pd_result_table(line, table, "no local daemons");
}

enum { MOST = 32, ROOM = 16 * 1024 };

/* One direction of a browser's connection: bytes that were read from one socket, and not yet written to the other. */
typedef struct stream {
    char bytes[ROOM];
    size_t from, to; /* bytes[from .. to) wait to be written */
    bool ended;      /* the socket that is read has ended */
} stream;

/* A browser's connection: the sockets fd[0] to the browser and fd[1] to the daemon. way[i] has the bytes read from
 * fd[i]. */
typedef struct pair {
    int fd[2];
    stream way[2];
} pair;

/* Reads from socket fd[i], and writes the bytes that wait for it, as `events` allow. Returns false if the connection is
 * over. */
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

/* Accepts a browser's connection, and connects to the daemon for it. Returns false if the daemon has ended. */
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

/* Passes bytes between browsers and the daemon until the daemon has ended. `process` is a descriptor of its process,
 * which becomes readable then. */
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

/* Listens on port *port of 127.0.0.1. If it is 0, chooses a free port and sets *port. Returns the socket; -1: see
 * errno. */
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
                 "%.200s is not a local daemon (`paramctl daemons` lists them); a daemon with http.listen serves its "
                 "dashboard there",
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

/* Prints the address of the daemon's page, in one line. */
static void announce(const pd_line *line, const pd_local_daemon *daemon, const char *url)
{
    json_t *json = line->json ? json_pack("{s:s, s:s}", "name", daemon->name, "url", url) : NULL;

    if (json == NULL) {
        pd_print_line(stdout, "%s: the dashboard of %s (Ctrl-C ends it)", url, daemon->name);
    } else {
        json_dumpf(json, stdout, 0);
        printf("\n");
    }
    json_decref(json);
    fflush(stdout);
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
    announce(line, daemon, url);
    if (pd_line_has(line, "open")) open_browser(url);
    pass_on(pairs, listener, process, daemon->base);
    for (int i = 0; i < MOST; i++) end(&pairs[i]);
    close(listener);
    if (!line->json) pd_print_line(stdout, "%s has ended", daemon->name);
    return PD_CTL_OK;
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
