/* daemon.c - runs the conversation on a libuv loop, with timer, signals, standard input, wake-ups and background
 * threads. */
#include "daemon.h"

#include "http.h"
#include "lifecycle.h"
#include "loop.h"
#include "mover.h"
#include "uvloop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

static int write_end = -1; /* the end of the pipe to which the signal handler writes; static, because a signal handler
                            * gets no argument */

static void write_signal(int number)
{
    char byte = (char)number;
    int before = errno;

    if (write(write_end, &byte, 1) < 0)
        errno = 0; /* if the pipe is full, enough signals wait in it, and this one may be lost */
    errno = before;
}

static void set_action(void (*action)(int))
{
    static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };
    struct sigaction how = { .sa_handler = action, .sa_flags = SA_RESTART };

    sigfillset(&how.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) sigaction(numbers[i], &how, NULL);
}

static void on_signals(uv_poll_t *poll, int status, int events)
{
    pd_signals *signals = poll->data;
    char byte;

    (void)status, (void)events;
    while (read(signals->pipe[0], &byte, 1) == 1) signals->on_signal(signals->arg, byte);
}

int pd_signals_open(pd_signals *out, uv_loop_t *loop, void (*on_signal)(void *arg, int number), void *arg,
                    pd_error *err)
{
    int rc = uv_pipe(out->pipe, UV_NONBLOCK_PIPE, UV_NONBLOCK_PIPE);

    if (rc != 0) return pd_fail(err, PD_UNAVAILABLE, "no pipe for signals: %s", uv_strerror(rc));
    uv_poll_init(loop, &out->poll, out->pipe[0]);
    out->poll.data = out;
    out->on_signal = on_signal;
    out->arg = arg;
    out->open = true;
    write_end = out->pipe[1];
    return PD_OK;
}

void pd_signals_begin(pd_signals *signals)
{
    if (!signals->open) return;
    uv_poll_start(&signals->poll, UV_READABLE, on_signals);
    set_action(write_signal);
}

/* Ignores the signals from now on, but leaves the pipe open, because another thread may still be running the signal
 * handler, which writes to the pipe. */
void pd_signals_end(pd_signals *signals)
{
    if (!signals->open) return;
    set_action(SIG_IGN);
    uv_close((uv_handle_t *)&signals->poll, NULL);
    signals->open = false;
}

/* Reads from the standard input, and discards the bytes. When the input has ended, drains and stops the daemon. */
static void on_input(uv_poll_t *poll, int status, int events)
{
    pd_uvloop *loop = poll->data;
    char bin[256];
    ssize_t n;

    (void)status, (void)events;
    n = read(STDIN_FILENO, bin, sizeof bin);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    uv_poll_stop(poll);
    pd_conversation_end(loop->daemon, "the standard input has ended (server.input_exit)");
}

/* Watches the standard input if the settings say so (server.input_exit). The process that started the daemon has the
 * other end. The system closes it whenever that process ends. PD_INVALID_ARGUMENT: the standard input is neither a pipe
 * nor a socket, so its end cannot be seen. */
static int watch_input(pd_uvloop *loop, pd_error *err)
{
    struct stat found;

    if (!loop->daemon->config.ends_with_input) return PD_OK;
    if (fstat(STDIN_FILENO, &found) != 0 || !(S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode)) ||
        uv_poll_init(&loop->uv, &loop->input, STDIN_FILENO) != 0)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "server.input_exit: expected a pipe or a socket as standard input: the end of another file cannot be seen");
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    loop->input.data = loop;
    loop->watches_input = true;
    uv_poll_start(&loop->input, UV_READABLE, on_input);
    return PD_OK;
}

enum { TICK_MS = 250 };

static uint64_t now_ms(void *arg)
{
    return uv_now(&((pd_uvloop *)arg)->uv);
}
static uint64_t clock_ns(void *arg)
{
    (void)arg;
    return uv_hrtime();
}
static uint64_t unix_ms(void *arg)
{
    uv_timeval64_t now;

    (void)arg;
    uv_gettimeofday(&now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_usec / 1000;
}
static void wake(void *arg)
{
    uv_async_send(&((pd_uvloop *)arg)->wake);
}
static void stop(void *arg)
{
    uv_stop(&((pd_uvloop *)arg)->uv);
}
static void end_listening(void *arg)
{
    pd_listen_end_workers(arg);
}

static const pd_cluster_table *table(void *arg)
{
    const pd_cluster *cluster = ((pd_uvloop *)arg)->daemon->cluster;

    return cluster != NULL ? pd_cluster_table_now(cluster) : NULL;
}

static uint64_t secret(void *arg)
{
    uint64_t key = 0x9e3779b97f4a7c15u;

    (void)arg;
    if (getrandom(&key, sizeof key, GRND_NONBLOCK) != sizeof key) key ^= uv_hrtime();
    return key;
}

/* A task for one of libuv's background threads. */
typedef struct errand {
    uv_work_t uv;
    pd_background *work;
} errand;

static void run_errand(uv_work_t *uv)
{
    errand *e = uv->data;
    e->work->run(e->work);
}

static void end_errand(uv_work_t *uv, int status)
{
    errand *e = uv->data;

    (void)status;
    e->work->done(e->work);
    free(e);
}

static bool background(void *arg, pd_background *work)
{
    errand *e = malloc(sizeof *e);

    if (e == NULL) return false;
    e->uv.data = e;
    e->work = work;
    if (uv_queue_work(&((pd_uvloop *)arg)->uv, &e->uv, run_errand, end_errand) == 0) return true;
    free(e);
    return false;
}

static void on_wake(uv_async_t *handle)
{
    pd_uvloop *loop = handle->data;

    pd_movers_take(loop->movers);
    pd_conversation_take_effects(loop->daemon);
}
static void on_prepare(uv_prepare_t *handle)
{
    pd_conversation_finish_turn(((pd_uvloop *)handle->data)->daemon);
}

static void on_timer(uv_timer_t *handle)
{
    pd_uvloop *loop = handle->data;

    pd_conversation_tick(loop->daemon);
    pd_handshakes_tick(loop);
    if (loop->paused) pd_listen_begin(loop);
}

static void on_signal(void *arg, int number)
{
    pd_daemon *daemon = ((pd_uvloop *)arg)->daemon;

    if (number == SIGHUP)
        pd_reloading_begin(daemon);
    else
        pd_conversation_interrupt(daemon, strsignal(number));
}

static pd_uvloop *loop_of(const pd_daemon *daemon)
{
    return daemon->platform.arg;
}

static pd_uvloop *make_loop(void)
{
    pd_uvloop *loop = calloc(1, sizeof *loop);

    if (loop == NULL) return NULL;
    loop->spare_fd = -1;
    if (uv_loop_init(&loop->uv) != 0) {
        free(loop);
        return NULL;
    }
    uv_async_init(&loop->uv, &loop->wake, on_wake);
    uv_prepare_init(&loop->uv, &loop->prepare);
    uv_timer_init(&loop->uv, &loop->timer);
    loop->wake.data = loop->prepare.data = loop->timer.data = loop;
    return loop;
}

static void free_loop(pd_uvloop *loop)
{
    pd_listen_end(loop);
    pd_handshakes_end(loop);
    uv_close((uv_handle_t *)&loop->wake, NULL);
    uv_close((uv_handle_t *)&loop->prepare, NULL);
    uv_close((uv_handle_t *)&loop->timer, NULL);
    pd_signals_end(&loop->signals);
    if (loop->watches_input) uv_close((uv_handle_t *)&loop->input, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT); /* one more turn, in which background tasks end and libuv closes its handles */
    uv_loop_close(&loop->uv);
}

int pd_daemon_new(pd_daemon **out, const pd_daemon_config *config, pd_error *err)
{
    pd_uvloop *loop = make_loop();
    pd_platform platform = { .arg = loop,
                             .now_ms = now_ms,
                             .clock_ns = clock_ns,
                             .unix_ms = unix_ms,
                             .random = secret,
                             .wake = wake,
                             .stop = stop,
                             .end_listening = end_listening,
                             .background = background,
                             .table = table };
    int rc;

    if (loop == NULL) {
        pd_roles_free(config->roles);
        pd_roles_free(config->store_roles);
        return pd_fail(err, PD_NO_MEMORY, "cannot make the event loop");
    }
    if ((rc = pd_conversation_make(&loop->daemon, config, &platform, err)) != PD_OK) {
        free_loop(loop);
        free(loop);
        return rc;
    }
    if (config->signals) rc = pd_signals_open(&loop->signals, &loop->uv, on_signal, loop, err);
    if (rc == PD_OK) rc = watch_input(loop, err);
    if (rc != PD_OK) {
        pd_daemon_free(loop->daemon);
        return rc;
    }
    pd_signals_begin(&loop->signals); /* before the sockets listen: a supervisor that sees them listen may stop the
                                       * daemon at once */
    *out = loop->daemon;
    return PD_OK;
}

int pd_daemon_listen(pd_daemon *daemon, pd_error *err)
{
    return pd_listen(loop_of(daemon), err);
}

int pd_daemon_listen_http(pd_daemon *daemon, pd_error *err)
{
    return pd_listen_http(loop_of(daemon), err);
}

/* The task of pd_daemon_load, and the thread that runs it. The thread is not one of libuv's: libuv's threads are
 * started later, when the loop thread has chosen its NUMA node for memory, and inherit that choice. */
typedef struct loading {
    uv_thread_t thread;
    uv_async_t finished;
    void (*run)(void *arg);
    void *arg;
    bool done;
} loading;

static void run_loading(void *arg)
{
    loading *task = arg;

    task->run(task->arg);
    uv_async_send(&task->finished);
}

static void on_finished(uv_async_t *handle)
{
    ((loading *)handle->data)->done = true;
}

static void on_loading_prepare(uv_prepare_t *handle)
{
    pd_http_finish_turn(((pd_uvloop *)handle->data)->daemon);
}

static void on_loading_tick(uv_timer_t *handle)
{
    pd_uvloop *loop = handle->data;
    const pd_daemon_config *config = &loop->daemon->config;

    pd_http_tick(loop->daemon, pd_loop_now_ms(loop->daemon));
    if (loop->paused) pd_listen_begin(loop);
    if (config->hooks.event != NULL) config->hooks.event(config->hooks.arg, PD_DAEMON_LOADS);
}

/* Longest time in ms between two turns of the cluster. */
enum { CLUSTER_MS = 100 };

static void run_cluster(pd_uvloop *loop);

static void on_cluster_time(uv_timer_t *timer)
{
    run_cluster(timer->data);
}

static void on_engine(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    run_cluster(poll->data);
}

/* Runs a turn of the cluster, and sets the timer for the next one. */
static void run_cluster(pd_uvloop *loop)
{
    uint64_t now = uv_now(&loop->uv), due = pd_cluster_turn(loop->daemon->cluster, now);

    if (due > now + CLUSTER_MS) due = now + CLUSTER_MS;
    uv_timer_start(&loop->engine_timer, on_cluster_time, due > now ? due - now : 0, 0);
}

void pd_daemon_wait(pd_daemon *daemon, bool (*done)(void *arg), void *arg)
{
    pd_uvloop *loop = loop_of(daemon);

    loop->loads = true;
    if (daemon->cluster != NULL) uv_timer_start(&loop->engine_timer, on_cluster_time, 0, 0);
    pd_listen_begin(loop);
    uv_prepare_start(&loop->prepare, on_loading_prepare);
    uv_timer_start(&loop->timer, on_loading_tick, TICK_MS, TICK_MS);
    while (!done(arg)) uv_run(&loop->uv, UV_RUN_ONCE);
    loop->loads = false;
    uv_prepare_stop(&loop->prepare);
    uv_timer_stop(&loop->timer);
}

static bool is_loaded(void *arg)
{
    return ((const loading *)arg)->done;
}

void pd_daemon_load(pd_daemon *daemon, void (*run)(void *arg), void *arg)
{
    pd_uvloop *loop = loop_of(daemon);
    loading task = { .run = run, .arg = arg };

    uv_async_init(&loop->uv, &task.finished, on_finished);
    task.finished.data = &task;
    if (uv_thread_create(&task.thread, run_loading, &task) == 0) {
        pd_daemon_wait(daemon, is_loaded, &task);
        uv_thread_join(&task.thread);
    } else {
        run(arg);
    }
    uv_close((uv_handle_t *)&task.finished, NULL);
    uv_run(&loop->uv, UV_RUN_NOWAIT); /* one more turn, in which libuv closes the handle */
}

static void on_moved(void *daemon)
{
    pd_conversation_tell_moved(daemon);
}

void pd_daemon_join(pd_daemon *daemon, pd_cluster *cluster)
{
    pd_uvloop *loop = loop_of(daemon);

    daemon->cluster = cluster;
    uv_poll_init(&loop->uv, &loop->engine, pd_cluster_fd(cluster));
    uv_timer_init(&loop->uv, &loop->engine_timer);
    loop->engine.data = loop->engine_timer.data = loop;
    pd_cluster_on_change(cluster, on_moved, daemon);
    uv_poll_start(&loop->engine, UV_READABLE, on_engine);
    uv_timer_start(&loop->engine_timer, on_cluster_time, 0, 0);
}

void pd_daemon_part(pd_daemon *daemon)
{
    pd_uvloop *loop = loop_of(daemon);

    if (daemon->cluster == NULL) return;
    daemon->cluster = NULL;
    uv_close((uv_handle_t *)&loop->engine, NULL);
    uv_close((uv_handle_t *)&loop->engine_timer, NULL);
    uv_run(&loop->uv, UV_RUN_NOWAIT); /* one more turn, in which libuv closes the handles */
}

void pd_daemon_free(pd_daemon *daemon)
{
    pd_uvloop *loop;

    if (daemon == NULL) return;
    loop = loop_of(daemon);
    pd_daemon_part(daemon);
    pd_http_close_all(daemon); /* after a failed start, some may still be open */
    free_loop(loop);
    pd_conversation_dispose(daemon);
    free(loop);
}

unsigned pd_daemon_port(const pd_daemon *daemon)
{
    return loop_of(daemon)->port;
}

unsigned pd_daemon_http_port(const pd_daemon *daemon)
{
    return loop_of(daemon)->http_port;
}

/* Starts the movers. The daemon does without, if that is impossible. */
static void start_movers(pd_uvloop *loop)
{
    pd_error err;

    if (loop->daemon->config.movers == 0) return;
    loop->movers = pd_movers_new((int)loop->daemon->config.movers, wake, loop, &err);
    if (loop->movers == NULL)
        pd_loop_log(loop->daemon, LOG_WARNING, (pd_log_facts){ .code = err.code },
                    "%s: the loop thread moves all bytes itself", err.text);
}

/* Takes all directions of transports back from the movers, and ends them. */
static void end_movers(pd_uvloop *loop)
{
    pd_movers *movers = loop->movers;

    loop->movers = NULL;
    pd_movers_free(movers);
}

void pd_daemon_begin(pd_daemon *daemon, pd_mailbox *requests)
{
    pd_uvloop *loop = loop_of(daemon);

    start_movers(loop);
    uv_update_time(&loop->uv);
    pd_conversation_start(daemon, requests);
    pd_listen_begin(loop);
    uv_prepare_start(&loop->prepare, on_prepare);
    uv_timer_start(&loop->timer, on_timer, TICK_MS, TICK_MS);
}

int pd_daemon_adopt(pd_daemon *daemon, int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return pd_socket_adopt(loop_of(daemon), fd, NULL, "adopted");
}

int pd_daemon_adopt_http(pd_daemon *daemon, int fd, uint64_t origin)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return pd_socket_adopt_http(loop_of(daemon), fd, origin);
}

bool pd_daemon_turn(pd_daemon *daemon)
{
    uv_run(&loop_of(daemon)->uv, UV_RUN_NOWAIT);
    return daemon->table.n > 0;
}

void pd_daemon_end(pd_daemon *daemon)
{
    pd_uvloop *loop = loop_of(daemon);

    pd_listen_end(loop);
    pd_handshakes_end(loop);
    end_movers(loop);
    pd_conversation_close_all(daemon);
    uv_prepare_stop(&loop->prepare);
    uv_timer_stop(&loop->timer);
    uv_run(&loop->uv, UV_RUN_NOWAIT);
}

bool pd_daemon_run(pd_daemon *daemon, pd_mailbox *requests)
{
    pd_daemon_begin(daemon, requests);
    uv_run(&loop_of(daemon)->uv, UV_RUN_DEFAULT);
    pd_daemon_end(daemon);
    return daemon->shutdown.drained;
}
