/* main.c - the daemon's process: reads the configuration, then runs the loop thread (this one) and the step thread. */
#define _GNU_SOURCE
#include "blascore.h"
#include "daemon.h"
#include "flags.h"
#include "frame.h"
#include "log.h"
#include "notify.h"
#include "stepper.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define GUARD    "PARAMD_REEXECUTED"            /* in the environment: this program was started anew already */
#define BATCH_NS 50e6                           /* estimated work of the step thread between two looks at its mailbox */
#define STUCK_NS 60000000000u                   /* a step thread at one turn for so long starves the watchdog */

/* ---- before anything else: BLAS reads its environment when it is loaded ---- */

/* Starts this program anew if its environment makes BLAS or OpenMP slow. Returns if it does not, or if exec fails. */
static void choose_environment(char **argv)
{
    bool poor = pd_blas_poor_choice() != NULL && getenv("OPENBLAS_CORETYPE") == NULL;
    char path[4096];
    ssize_t length;

    if (getenv(GUARD) != NULL || (!poor && getenv("OMP_WAIT_POLICY") != NULL)) return;
    if (poor) setenv("OPENBLAS_CORETYPE", "auto", 0);
    setenv("OMP_WAIT_POLICY", "passive", 0);
    setenv(GUARD, "1", 1);
    length = readlink("/proc/self/exe", path, sizeof path - 1);     /* the process gets the name of this file */
    path[length > 0 ? length : 0] = '\0';
    execv(path, argv);
    execv("/proc/self/exe", argv);                                  /* the file was replaced meanwhile */
}

static void report_blas(void)
{
    pd_log(LOG_INFO, "paramd %s, protocol %d, BLAS core %s", PD_VERSION, PD_PROTOCOL_VERSION, pd_blas_core());
    if (pd_blas_poor_choice() != NULL) pd_log(LOG_WARNING, "%s", pd_blas_poor_choice());
    if (!pd_blas_uses_openmp())
        pd_log(LOG_WARNING, "BLAS is not OpenBLAS in its OpenMP flavour: it may start threads of its own (install "
               "libopenblas0-openmp)");
}

/* Keeps freed memory below these sizes in the heap, instead of returning it to the kernel page by page. Larger buffers
 * are kept by the pools of their owners. */
static void tune_malloc(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

/* ---- the two threads ---- */

typedef struct process {
    pd_config  *config;
    pd_daemon  *daemon;
    pd_stepper *stepper;
    uint64_t    watchdog_ms, fed_ms;
} process;

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Feeds the watchdog, as long as the loop turns and the step thread makes progress. Loop thread. */
static void on_event(void *arg, pd_daemon_event event)
{
    process *p = arg;
    uint64_t now = now_ms();

    if (event == PD_DAEMON_STOPS) pd_notify("STOPPING=1");
    if (event != PD_DAEMON_TURNS || p->watchdog_ms == 0 || now - p->fed_ms < p->watchdog_ms) return;
    if (pd_stepper_busy_ns(p->stepper) > STUCK_NS) {
        pd_log(LOG_CRIT, "the step thread has been at one piece of work for over a minute");
        return;
    }
    p->fed_ms = now;
    pd_notify("WATCHDOG=1");
}

static void fill_daemon_config(process *p, pd_daemon_config *out)
{
    const pd_config *config = p->config;

    *out = (pd_daemon_config){
        .listen = config->listen, .unix_socket = config->unix_socket, .insecure = config->insecure, .signals = true,
        .max_connections = (uint32_t)config->max_connections, .handshake_ms = (uint32_t)config->handshake_timeout,
        .heartbeat_ms = (uint32_t)config->heartbeat_interval, .silence_ms = (uint32_t)config->heartbeat_timeout,
        .read_ms = (uint32_t)config->read_timeout, .write_ms = (uint32_t)config->write_timeout,
            .drain_ms = (uint32_t)config->drain_timeout,
        .ingest_bytes = config->ingest_bytes, .chunk_elements = config->chunk_bytes / sizeof(float),
            .max_payload = config->max_payload,
        .max_pieces = (uint32_t)config->max_pieces, .max_params = (uint32_t)config->max_params,
            .max_header = (uint32_t)config->max_header,
        .hello_bytes = (uint32_t)config->hello_bytes, .blas_core = pd_blas_core(), .log = pd_log,
            .log_text = pd_log_text, .event = on_event, .arg = p,
    };
    out->n_sockets = pd_notify_sockets(&out->first_socket);
}

static void fill_stepper_config(const process *p, pd_stepper_config *out)
{
    const pd_config *config = p->config;

    *out = (pd_stepper_config){
        .store = { .max_jobs = (uint32_t)config->max_jobs, .max_params = (uint32_t)config->max_params,
                   .max_total_bytes = config->max_total_bytes, .ingest_bytes = config->ingest_bytes,
                   .chunk_elements = config->chunk_bytes / sizeof(float), .frame_bytes = config->max_payload,
                   .threads = (int)config->step_threads, .pool_threads = (int)config->pool_threads,
                   .batch_ns = BATCH_NS, .job_presets = config->job, .n_job_presets = config->n_job },
        .pool_threads = (int)config->pool_threads, .effects = pd_conversation_effects(p->daemon),
    };
    if (getrandom(out->store.hash_key, sizeof out->store.hash_key, 0) != sizeof out->store.hash_key)
        out->store.hash_key[0] = now_ms() * 0x9e3779b97f4a7c15u;
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

static int start(process *p, pd_error *err)
{
    pd_daemon_config daemon;
    pd_stepper_config stepper;
    int rc;

    fill_daemon_config(p, &daemon);
    if ((rc = pd_daemon_new(&p->daemon, &daemon, err)) != PD_OK) return rc;
    fill_stepper_config(p, &stepper);
    if ((rc = pd_stepper_start(&p->stepper, &stepper, err)) != PD_OK) return rc;
    return write_port(p, err);
}

static int serve(process *p)
{
    pd_error err;
    int rc;

    signal(SIGPIPE, SIG_IGN);
    tune_malloc();
    report_blas();
    p->watchdog_ms = pd_notify_watchdog_ms();
    rc = start(p, &err);
    if (rc == PD_OK) rc = pd_log_start(&err);
    if (rc == PD_OK) {
        pd_notify("READY=1");
        if (!pd_daemon_run(p->daemon, pd_stepper_requests(p->stepper)))
            pd_log(LOG_WARNING, "stopped before rounds under way had finished");
    } else {
        pd_log(LOG_ERR, "%s", err.text);
    }
    pd_stepper_stop(p->stepper);
    pd_daemon_free(p->daemon);
    if (rc == PD_OK) pd_log(LOG_NOTICE, "stopped");
    pd_log_stop();
    return rc == PD_OK ? 0 : 1;
}

static int show_version(void)
{
    printf("paramd %s\nprotocol %d\nBLAS core %s (%s)\n", PD_VERSION, PD_PROTOCOL_VERSION, pd_blas_core(),
           pd_blas_uses_openmp() ? "OpenBLAS, OpenMP" : "not the OpenMP flavour of OpenBLAS");
    return 0;
}

/* In the order of the choices of log.level. */
static const int levels[] = { LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG };

int main(int argc, char **argv)
{
    process p = { .config = NULL };
    pd_mode mode;
    pd_error err;
    int status = 0;

    choose_environment(argv);
    if ((p.config = pd_config_new()) == NULL) pd_fail(&err, PD_NO_MEMORY, "out of memory");
    if (p.config == NULL || pd_flags_read(p.config, argc, argv, environ, &mode, &err) != PD_OK
        || (mode != PD_PRINT_CONFIG && pd_config_check(p.config, &err) != PD_OK)) {
        fprintf(stderr, "paramd: %s\n", err.text);
        pd_config_free(p.config);
        return 2;
    }
    pd_log_open(levels[p.config->log_level], (pd_log_format)p.config->log_format);
    if (mode == PD_SHOW_VERSION) status = show_version();
    else if (mode == PD_PRINT_CONFIG) pd_config_print(p.config, stdout);
    else if (mode == PD_SERVE) status = serve(&p);
    else printf("the configuration is fine\n");
    pd_config_free(p.config);
    return status;
}
