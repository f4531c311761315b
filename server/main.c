/* main.c - the daemon's process: reads the configuration, starts the step thread, and becomes the loop thread. */
#define _GNU_SOURCE
#include "blascore.h"
#include "cpu.h"
#include "daemon.h"
#include "flags.h"
#include "frame.h"
#include "linalg.h"
#include "log.h"
#include "logring.h"
#include "notify.h"
#include "reload.h"
#include "takeover.h"
#include "token.h"
#include "stepper.h"
#include "thread.h"
#include "tracer.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

/* Environment variable that is set once this program has started itself again with other environment variables. */
#define GUARD "PARAMD_REEXECUTED"
/* Estimated nanoseconds that one batch of the step thread may take. */
#define BATCH_NS 10e6
/* Milliseconds that a stopping daemon has in addition to drain_timeout and checkpoint_timeout. */
enum { STOP_GRACE_MS = 5000 };

/* Starts this program again with other environment variables if the present ones make BLAS or OpenMP slow, or make BLAS
 * use another instruction set than paramd's own loops. Returns if the present ones are fine, or if exec fails. */
static void choose_environment(char **argv)
{
    const char *core = pd_blas_wanted_core();
    char path[4096];
    ssize_t length;

    if (getenv(GUARD) != NULL || (core == NULL && getenv("OMP_WAIT_POLICY") != NULL)) return;
    if (core != NULL) setenv("OPENBLAS_CORETYPE", core, 1);
    setenv("OMP_WAIT_POLICY", "passive", 0);
    setenv(GUARD, "1", 1);
    length = readlink("/proc/self/exe", path, sizeof path - 1); /* the program's path, because after exec of
                                                                 * /proc/self/exe the process is named "exe" */
    path[length > 0 ? length : 0] = '\0';
    execv(path, argv);
    execv("/proc/self/exe", argv); /* reached if the program's file was removed or replaced: starts the original program
                                    * again */
}

static void report_blas(void)
{
    pd_log(LOG_INFO, "paramd %s, protocol %d, CPU %s, BLAS core %s", PD_VERSION, PD_PROTOCOL_VERSION,
           pd_cpu_names[pd_cpu_in_use], pd_blas_core());
    if (pd_blas_poor_choice() != NULL) pd_log(LOG_WARNING, "%s", pd_blas_poor_choice());
    if (!pd_blas_uses_openmp())
        pd_log(LOG_WARNING, "BLAS is not OpenBLAS in its OpenMP flavour: it may start threads of its own (install "
                            "libopenblas0-openmp)");
}

/* The state of the daemon's process. main owns it. */
typedef struct process {
    pd_config *config;
    pd_daemon *daemon;
    pd_stepper *stepper;
    pd_tracer *tracer; /* NULL: no job is traced */
    pd_numa numa;      /* NUMA node of the step threads and of the memory of jobs */
    /* ms between pings of the service manager's watchdog (0: it has none); time (ms) of the last ping */
    uint64_t watchdog_ms, fed_ms;
    uint64_t stop_by_ms; /* time (ms) by which a stopping daemon ends, whatever the disk does; 0: it does not stop */
    pd_reload reload;
    char *http_token;                           /* token that HTTP requests need; NULL: they need none */
    char *settings;                             /* the configuration as flags; NULL: out of memory */
    char kernels[32];                           /* name of what computes products of matrices */
    pd_given_socket sockets[PD_NOTIFY_SOCKETS]; /* listening sockets that the service manager has opened */
    size_t n_sockets;
    pd_takeover takeover;    /* the daemon's place in a cluster with an engine, if there is one */
    _Atomic uint64_t tenure; /* number of this daemon as the owner of its shard; set by the loop thread */
    bool logs;               /* a thread writes the log */
    bool waited;             /* the daemon has told the service manager that it waits for a shard */
    atomic_bool stops;       /* the daemon has to stop, so loading jobs may end; set by the loop thread */
    /* results of the thread that starts the step thread: the step thread, the code, and the error */
    pd_stepper *starting;
    int started;
    pd_error error;
    size_t lost; /* number of jobs whose last steps were not durable when the step thread ended */
} process;

/* Levels of syslog, in the order of the choices of the configuration key log.level. */
static const int levels[] = { LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG };

static uint64_t now_ms(void)
{
    return pd_clock_ns() / 1000000;
}

/* Returns how long (ms) the last checkpoints may take when the daemon stops; 0: it makes none. */
static uint32_t keep_ms(const pd_config *config)
{
    return config->state_dir[0] != '\0' ? (uint32_t)config->checkpoint_timeout : 0;
}

static pd_daemon_times times_of(const pd_config *config)
{
    return (pd_daemon_times){ .handshake_ms = (uint32_t)config->handshake_timeout,
                              .heartbeat_ms = (uint32_t)config->heartbeat_interval,
                              .silence_ms = (uint32_t)config->heartbeat_timeout,
                              .read_ms = (uint32_t)config->read_timeout,
                              .write_ms = (uint32_t)config->write_timeout,
                              .drain_ms = (uint32_t)config->drain_timeout,
                              .keep_ms = keep_ms(config),
                              .idle_ms = (uint32_t)config->idle_exit };
}

/* Returns the most milliseconds that the daemon takes to stop, even if its disk does not answer. */
static uint64_t most_stop_ms(const pd_config *config)
{
    return config->drain_timeout + keep_ms(config) + STOP_GRACE_MS;
}

/* Sets the time by which the daemon must have stopped, and tells the service manager how long it may take. */
static void begin_stop(process *p)
{
    char text[64];

    atomic_store(&p->stops, true);
    p->stop_by_ms = now_ms() + most_stop_ms(p->config);
    pd_notify("STOPPING=1");
    if (keep_ms(p->config) == 0) return;
    snprintf(text, sizeof text, "EXTEND_TIMEOUT_USEC=%llu",
             (unsigned long long)(most_stop_ms(p->config) + STOP_GRACE_MS) * 1000);
    pd_notify(text);
}

/* Returns whether the daemon waits for a shard without owner, which may take for ever. */
static bool waits_as_spare(const process *p)
{
    return p->takeover.cluster != NULL && pd_cluster_place(p->takeover.cluster) == PD_PLACE_SPARE;
}

/* Tells the service manager that jobs are still being loaded, so that it waits longer for READY=1. If the daemon is
 * stopping, ends the process once stop_by_ms has passed, because the disk does not answer a read. Loop thread. */
static void on_loading(process *p, uint64_t now)
{
    if (p->stop_by_ms > 0 && now > p->stop_by_ms) {
        pd_log(LOG_ERR, "%s: the disk does not respond: daemon stopped while loading jobs", p->config->state_dir);
        _exit(PD_EXIT_FAILED); /* exit would free memory that the thread that waits for the disk still uses */
    }
    if (p->waited && p->watchdog_ms > 0) pd_notify("WATCHDOG=1");
    if (waits_as_spare(p)) {
        if (!p->waited) pd_notify("READY=1\nSTATUS=spare: waits for a shard without owner");
        p->waited = true;
    } else if (p->takeover.cluster != NULL && pd_cluster_place(p->takeover.cluster) == PD_PLACE_ASKS) {
        pd_notify("STATUS=waiting for the engine (cluster.engine)\nEXTEND_TIMEOUT_USEC=30000000");
    } else if (p->stop_by_ms == 0) {
        pd_notify("STATUS=loading jobs from checkpoints\nEXTEND_TIMEOUT_USEC=30000000");
    }
}

/* Returns the ns that the step thread has worked on its present turn. */
static uint64_t busy_ns(void *arg)
{
    const process *p = arg;

    return p->stepper != NULL ? pd_stepper_busy_ns(p->stepper) : 0;
}

/* Returns whether the mirror gets what is durable, as far as is known. */
static bool mirror_is_up(void *arg)
{
    const process *p = arg;

    return p->stepper == NULL || pd_stepper_mirror_is_up(p->stepper);
}

/* Copies the daemon's tenure for the mirror thread. It changes if the lease had ended, and nobody took the shard. */
static void note_tenure(process *p)
{
    uint64_t tenure = p->takeover.cluster != NULL ? pd_cluster_table_now(p->takeover.cluster)->tenure : 0;

    if (tenure > 0) atomic_store(&p->tenure, tenure);
}

/* Handles an event of the loop thread. Pings the service manager's watchdog while the step thread makes progress, too.
 * Loop thread. */
static void on_event(void *arg, pd_daemon_event event)
{
    process *p = arg;
    uint64_t now = now_ms();

    if (event == PD_DAEMON_STOPS) begin_stop(p);
    if (event == PD_DAEMON_LOADS) on_loading(p, now);
    if (event == PD_DAEMON_TURNS) pd_log_tick();
    if (event == PD_DAEMON_TURNS) pd_stepper_tick(p->stepper);
    if (event == PD_DAEMON_TURNS) note_tenure(p);
    if (event != PD_DAEMON_TURNS || p->watchdog_ms == 0 || now - p->fed_ms < p->watchdog_ms) return;
    if (pd_stepper_busy_ns(p->stepper) > PD_STUCK_NS) {
        pd_log(LOG_CRIT, "step thread stuck for 60 s in one work item");
        return;
    }
    p->fed_ms = now;
    pd_notify("WATCHDOG=1");
}

/* Returns whether workers can connect through a Unix socket, of server.listen or of the service manager. */
static bool has_unix_socket(const process *p)
{
    struct sockaddr_storage address;
    socklen_t length;
    size_t workers = 0;

    for (size_t i = 0; i < p->n_sockets; i++) {
        if (p->sockets[i].use == PD_SOCKET_HTTP) continue;
        workers++;
        length = sizeof address;
        if (getsockname(p->sockets[i].fd, (struct sockaddr *)&address, &length) == 0 && address.ss_family == AF_UNIX)
            return true;
    }
    return workers == 0 && strstr(p->config->listen, "unix:") != NULL;
}

/* Returns the path of the state directory; NULL: there is none. */
static const char *state_dir_of(const process *p)
{
    const char *path = p->takeover.cluster != NULL ? p->takeover.state_dir : p->config->state_dir;

    return path[0] != '\0' ? path : NULL;
}

/* Returns the path of the mirror; NULL: there is none. */
static const char *mirror_of(const process *p)
{
    const char *path = p->takeover.cluster != NULL ? p->takeover.mirror : p->config->mirror;

    return path[0] != '\0' ? path : NULL;
}

static void fill_stepper_config(process *p, pd_stepper_config *out)
{
    const pd_config *config = p->config;

    *out = (pd_stepper_config){
        .store = { .max_jobs = (uint32_t)config->limits.max_jobs,
                   .max_params = (uint32_t)config->limits.max_params,
                   .max_total_bytes = config->limits.max_total_bytes,
                   .ingest_bytes = config->limits.ingest_bytes,
                   .chunk_elements = config->limits.chunk_bytes / sizeof(float),
                   .frame_bytes = config->limits.max_payload,
                   .threads = (int)config->threads.step_threads,
                   .pool_threads = (int)config->threads.pool_threads,
                   .shares = config->shared_memory && has_unix_socket(p),
                   .batch_ns = BATCH_NS,
                   .stats_ns = config->http_listen[0] != '\0' || pd_notify_has_socket(PD_SOCKET_HTTP) ? PD_STATS_NS : 0,
                   .job_presets = config->job,
                   .n_job_presets = config->n_job },
        .pool_threads = (int)config->threads.pool_threads,
        .numa = p->numa,
        .keep_dir = state_dir_of(p),
        .lock = p->takeover.cluster != NULL ? &p->takeover.lock : NULL,
        .mirror = mirror_of(p),
        .tenure = p->takeover.cluster != NULL ? &p->tenure : NULL,
        .stops = &p->stops,
        .effects = pd_conversation_effects(p->daemon),
    };
    if (p->tracer != NULL) {
        out->store.trace = pd_tracer_put;
        out->store.trace_arg = p->tracer;
    }
    if (getrandom(out->store.hash_key, sizeof out->store.hash_key, 0) != sizeof out->store.hash_key)
        out->store.hash_key[0] = now_ms() * 0x9e3779b97f4a7c15u;
    if (getrandom(&out->store.start, sizeof out->store.start, 0) != sizeof out->store.start)
        out->store.start = now_ms() * 0x9e3779b97f4a7c15u;
}

/* Reads the configuration again, for a reload. Runs on another thread than the loop thread, because files may block. */
static void reload(void *arg)
{
    process *p = arg;
    char text[64];

    /* By this time the service manager knows that the later READY message ends this reload (sd_notify(3)). */
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)pd_clock_ns() / 1000);
    pd_notify(text);
    pd_reload_read(&p->reload);
}

static bool reloaded(void *arg, pd_daemon_limits *limits)
{
    process *p = arg;
    const pd_config *config = p->config;
    pd_tls_context *tls = pd_reload_take_tls(&p->reload);
    bool token = pd_reload_take_token(&p->reload, &p->http_token), changed = pd_reload_take(&p->reload);

    pd_log_set_level(levels[config->log.level]);
    free(p->settings);
    p->settings = pd_flags_text(config);
    *limits = (pd_daemon_limits){ .times = times_of(config),
                                  .max_jobs = (uint32_t)config->limits.max_jobs,
                                  .max_total_bytes = config->limits.max_total_bytes,
                                  .tls = tls,
                                  .roles = p->reload.roles,
                                  .store_roles = p->reload.store_roles,
                                  .http_token = p->http_token,
                                  .settings = p->settings };
    p->reload.roles = p->reload.store_roles = NULL;
    pd_notify("READY=1");
    return changed || token || tls != NULL;
}

static void fill_daemon_config(process *p, pd_daemon_config *out)
{
    const pd_config *config = p->config;

    p->settings = pd_flags_text(config);
    pd_product_kernels(p->kernels, sizeof p->kernels);
    *out = (pd_daemon_config){
        .listen = config->listen,
        .sockets = p->sockets,
        .n_sockets = p->n_sockets,
        .insecure = config->insecure,
        .signals = true,
        .ends_with_input = config->input_exit,
        .shared_memory = config->shared_memory,
        .max_connections = (uint32_t)config->max_connections,
        .movers = (uint32_t)config->threads.movers,
        .times = times_of(config),
        .ingest_bytes = config->limits.ingest_bytes,
        .chunk_elements = config->limits.chunk_bytes / sizeof(float),
        .max_payload = config->limits.max_payload,
        .max_pieces = (uint32_t)config->limits.max_pieces,
        .max_params = (uint32_t)config->limits.max_params,
        .max_header = (uint32_t)config->limits.max_header,
        .hello_bytes = (uint32_t)config->limits.hello_bytes,
        .blas_core = p->kernels,
        .settings = p->settings,
        .http_listen = config->http_listen,
        .http_token = p->http_token,
        .tcp_congestion = config->tcp_congestion,
        .hooks = { .busy_ns = busy_ns,
                   .mirror_is_up = config->mirror[0] != '\0' ? mirror_is_up : NULL,
                   .log = pd_log_put,
                   .event = on_event,
                   .reload = reload,
                   .reloaded = reloaded,
                   .arg = p },
    };
}

/* Lets the loop thread, and the threads that libuv starts for it, allocate memory of payloads on the chosen NUMA node.
 * The preconditioner pool has started before, so its threads allocate memory on the nodes where they run. */
static void prefer_node(const process *p)
{
    int error = pd_numa_prefer(&p->numa);

    if (error != 0) pd_log(LOG_WARNING, "numa: cannot prefer the memory of node %d: %s", p->numa.node, strerror(error));
}

static int write_port(const process *p, pd_error *err)
{
    const char *path = p->config->port_file;
    FILE *file;

    if (path[0] == '\0') return PD_OK;
    if ((file = fopen(path, "we")) == NULL)
        return pd_fail(err, PD_UNAVAILABLE, "server.port_file: %s: %s", path, strerror(errno));
    fprintf(file, "%u\n", pd_daemon_port(p->daemon));
    if (fclose(file) == 0) return PD_OK;
    return pd_fail(err, PD_UNAVAILABLE, "server.port_file: %s: %s", path, strerror(errno));
}

/* Loads jobs from checkpoints, and starts the step thread. Runs on another thread than the loop thread, which meanwhile
 * reports that the daemon is not ready. */
static void start_stepper(void *arg)
{
    process *p = arg;
    pd_stepper_config stepper;

    fill_stepper_config(p, &stepper);
    p->started = pd_stepper_start(&p->starting, &stepper, &p->error);
}

static int start_log(process *p, pd_error *err)
{
    int rc = p->logs ? PD_OK : pd_log_start(err);

    p->logs = p->logs || rc == PD_OK;
    return rc;
}

/* Ends the process, because another daemon owns its shard: at once, so that no file of the state directory is written
 * any more. Loop thread. */
static void on_lost(void *arg)
{
    (void)arg;
    pd_log_stop();
    _exit(PD_EXIT_REPLACED);
}

/* Opens the sockets for workers. In a cluster with an engine waits before until the daemon owns a shard. */
static int listen_for_workers(process *p, pd_error *err)
{
    int rc = pd_takeover_begin(&p->takeover, p->config, p->daemon, &p->stops, on_lost, p, err);

    if (rc != PD_OK || p->takeover.cluster == NULL) return rc == PD_OK ? pd_daemon_listen(p->daemon, err) : rc;
    rc = start_log(p, err);
    if (rc == PD_OK) rc = pd_takeover_wait(&p->takeover, err);
    note_tenure(p);
    return rc;
}

static int start(process *p, pd_error *err)
{
    pd_daemon_config daemon;
    int rc = pd_reload_read_token(p->config, &p->http_token, err);

    if (rc != PD_OK) return rc;
    if (p->n_sockets > PD_NOTIFY_SOCKETS)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "the service manager has passed %zu sockets (LISTEN_FDS), expected at most %d: let fewer "
                       ".socket units start the daemon",
                       p->n_sockets, PD_NOTIFY_SOCKETS);
    fill_daemon_config(p, &daemon);
    if ((rc = pd_config_tls(p->config, p->config->listen, &daemon.tls, err)) != PD_OK) return rc;
    if ((rc = pd_reload_read_roles(p->config, &daemon.roles, &daemon.store_roles, err)) == PD_OK)
        rc = pd_daemon_new(&p->daemon, &daemon, err);
    pd_tls_unref(daemon.tls); /* the daemon has its own reference */
    /* HTTP listens first: a program that waits for the log line of the other listeners then knows both addresses. */
    if (rc == PD_OK) rc = pd_daemon_listen_http(p->daemon, err);
    if (rc == PD_OK) rc = listen_for_workers(p, err);
    if (rc == PD_OK && p->config->trace_file[0] != '\0')
        rc = pd_tracer_start(&p->tracer, p->config->trace_file, p->config->trace_bytes, err);
    if (rc != PD_OK) return rc;
    pd_daemon_load(p->daemon, start_stepper, p);
    p->stepper = p->starting;
    if (p->started != PD_OK) return pd_fail(err, p->started, "%s", p->error.text);
    prefer_node(p);
    return write_port(p, err);
}

/* Reports in the log and to the service manager that steps of jobs are lost, because they were not durable. */
static void say_lost(const process *p)
{
    char text[96];

    snprintf(text, sizeof text, "STATUS=stopped, but %zu jobs lost their last steps: see the log", p->lost);
    pd_notify(text);
    pd_log(LOG_ERR, "stopped, but %zu jobs lost steps after their durable one: exit status %d", p->lost, PD_EXIT_LOST);
}

/* Binds the process to its slice of the machine, chooses a NUMA node of the slice, and logs both. */
static int settle(process *p, pd_error *err)
{
    pd_slice slice = pd_config_slice(p->config);
    cpu_set_t processors;
    char numa[200];
    int rc = pd_slice_processors(&processors, slice, err);

    if (rc != PD_OK || (rc = pd_slice_bind(slice, err)) != PD_OK) return rc;
    if (slice.of > 0)
        pd_log(LOG_INFO, "slice %d of %d: %d CPUs, %llu MiB of memory", slice.number, slice.of, CPU_COUNT(&processors),
               (unsigned long long)(pd_slice_memory(slice) >> 20));
    pd_numa_find(&p->numa, p->config->threads.numa != 0, &processors, (int)p->config->threads.step_threads);
    pd_numa_describe(&p->numa, numa, sizeof numa);
    pd_log(LOG_INFO, "%s", numa);
    return PD_OK;
}

static pd_exit serve(process *p)
{
    pd_exit status;
    pd_error err;
    uint64_t stop_by_ms;
    bool ended;
    int rc;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* SIGHUP is ignored until the daemon handles it, because by default it ends the process */
    /* Allocations of less than 1 MiB come from the heap. Free memory at its end returns to the kernel only above 64
     * MiB, because returning it in small amounts is slow. Larger buffers are in the buffer pools. */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    report_blas();
    rc = settle(p, &err);
    p->watchdog_ms = pd_notify_watchdog_ms();
    p->n_sockets = pd_notify_sockets(p->sockets);
    if (rc == PD_OK) rc = start(p, &err);
    if (rc == PD_OK) rc = start_log(p, &err);
    if (rc == PD_OK) {
        pd_notify("READY=1\nSTATUS=serving");
        if (!pd_daemon_run(p->daemon, pd_stepper_requests(p->stepper)))
            pd_log(LOG_WARNING, "stopped before open rounds had finished");
    } else {
        pd_log(rc == PD_CANCELLED ? LOG_NOTICE : LOG_ERR, "%s", err.text);
    }
    if (rc == PD_CANCELLED) rc = PD_OK; /* the daemon was stopped while it loaded jobs */
    stop_by_ms = p->stop_by_ms > 0 ? p->stop_by_ms : now_ms() + keep_ms(p->config) + STOP_GRACE_MS;
    ended = pd_stepper_stop(p->stepper, stop_by_ms * 1000000, &p->lost);
    pd_tracer_stop(p->tracer);
    pd_takeover_end(&p->takeover);
    pd_daemon_free(p->daemon);
    pd_secret_free(p->http_token);
    free(p->settings);
    if (!ended) pd_log(LOG_ERR, "daemon stopped, although the disk does not respond");
    if (p->lost > 0) say_lost(p);
    if (rc == PD_OK && ended && p->lost == 0) pd_log(LOG_NOTICE, "stopped");
    pd_log_stop();
    status = p->lost > 0 ? PD_EXIT_LOST : PD_EXIT_FINE;
    if (rc != PD_OK || (!ended && p->lost == 0)) status = PD_EXIT_FAILED;
    if (!ended) _exit(status); /* exit would free memory that the thread that waits for the disk still uses */
    pd_reload_end(&p->reload);
    return status;
}

static bool is_checked(pd_mode mode)
{
    return mode == PD_SERVE || mode == PD_CHECK_CONFIG;
}

/* Checks the configuration, and reads the files with roles and the HTTP token that it names, to check them. */
static int check(pd_config *config, pd_error *err)
{
    pd_roles *roles, *copy;
    char *token;
    int rc = pd_config_check(config, err);

    if (rc != PD_OK || (rc = pd_reload_read_roles(config, &roles, &copy, err)) != PD_OK) return rc;
    pd_roles_free(roles);
    pd_roles_free(copy);
    if ((rc = pd_reload_read_token(config, &token, err)) != PD_OK) return rc;
    pd_secret_free(token);
    return pd_takeover_check(config, err);
}

static void show_version(void)
{
    printf("paramd %s\nprotocol %d\nCPU %s (newest: %s)\nBLAS core %s (%s)\n", PD_VERSION, PD_PROTOCOL_VERSION,
           pd_cpu_names[pd_cpu_in_use], pd_cpu_names[pd_cpu_newest()], pd_blas_core(),
           pd_blas_uses_openmp() ? "OpenBLAS, OpenMP" : "not the OpenMP flavour of OpenBLAS");
    if (pd_blas_poor_choice() != NULL) printf("BLAS warning: %s\n", pd_blas_poor_choice());
}

static pd_exit run(process *p, const pd_flags *flags)
{
    switch (flags->mode) {
    case PD_SHOW_VERSION: show_version(); break;
    case PD_SHOW_HELP: pd_flags_help(p->config, stdout); break;
    case PD_PRINT_CONFIG: pd_config_print(p->config, stdout); break;
    case PD_CHECK_CONFIG: printf("the configuration is fine\n"); break;
    case PD_SERVE: return serve(p);
    }
    if (fflush(stdout) == 0) return PD_EXIT_FINE;
    fprintf(stderr, "paramd: the output cannot be written: %s\n", strerror(errno));
    return PD_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    process p = { .config = NULL };
    pd_flags flags;
    pd_exit status;
    pd_error err;

    (void)argc;
    if ((p.config = pd_config_new()) == NULL) pd_fail(&err, PD_NO_MEMORY, "out of memory");
    if (p.config == NULL || pd_flags_read(p.config, argv, environ, &flags, &err) != PD_OK ||
        (is_checked(flags.mode) && check(p.config, &err) != PD_OK)) {
        fprintf(stderr, "paramd: %s\n", err.text);
        pd_config_free(p.config);
        return PD_EXIT_USAGE;
    }
    if (is_checked(flags.mode)) pd_cpu_use(pd_config_cpu(p.config), NULL);
    choose_environment(argv);
    p.reload = (pd_reload){ .config = p.config, .argv = argv, .environment = environ };
    pd_log_open(levels[p.config->log.level], (pd_log_format)p.config->log.format);
    pd_log_to_journal(PD_LOG_JOURNAL_SOCKET);
    status = run(&p, &flags);
    pd_config_free(p.config);
    return status;
}
