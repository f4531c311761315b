/* figure.c - prints the result of a figure, and computes percentiles. */
#include "figure.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "blascore.h"
#include "cpu.h"
#include "programs.h"

double figure_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void figure_stop(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    _Exit(1); /* exits without clean-up, since other threads may be running; the daemon it started ends with this
               * process */
}

void *figure_alloc(size_t bytes)
{
    void *at = calloc(1, bytes + 1);

    if (at == NULL) figure_stop("no memory for %zu bytes", bytes);
    return at;
}

void figure_kernels(char **argv)
{
    const char *core = pd_blas_wanted_core();
    pd_error err;

    if (pd_cpu_check(&err) != PD_OK) figure_stop("%s", err.text);
    if (core == NULL && getenv("OPENBLAS_CORETYPE") != NULL && getenv("OMP_NUM_THREADS") != NULL) return;
    setenv("OPENBLAS_CORETYPE", core != NULL ? core : "auto", 1);
    setenv("OMP_NUM_THREADS", "1", 0); /* an OpenBLAS that is built with OpenMP reads this variable at every call */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    execv("/proc/self/exe", argv);
    figure_stop("cannot start anew: %s", strerror(errno));
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double figure_quantile(double *at, size_t n, double part)
{
    qsort(at, n, sizeof *at, by_size);
    return at[(size_t)((double)(n - 1) * part + 0.5)];
}

void figure_folder(char *path)
{
    if (mkdtemp(path) == NULL) figure_stop("no folder %s: %s", path, strerror(errno));
    setenv("PARAMD_SERVER_STATE_DIR", path, 1);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about, (void)kind, (void)place;
    return remove(path);
}

void figure_remove(const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) figure_stop("cannot remove %s", path);
}

void figure_fill(void *at, size_t bytes)
{
    uint64_t x = 1, *to = at;

    for (size_t i = 0; i < bytes / sizeof x; i++) to[i] = x = x * 6364136223846793005u + 1442695040888963407u;
}

double figure_file_ms(const char *folder, const void *piece, uint64_t bytes, bool direct)
{
    char path[4096];
    double begin, end;
    int fd;

    snprintf(path, sizeof path, "%s/plain", folder);
    begin = figure_ms();
    if ((fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | (direct ? O_DIRECT : 0), 0600)) < 0)
        figure_stop("%s cannot be written", path);
    for (uint64_t done = 0; done < bytes; done += FIGURE_PIECE)
        if (write(fd, piece, FIGURE_PIECE) != FIGURE_PIECE) figure_stop("%s cannot be written", path);
    if (fsync(fd) != 0 || close(fd) != 0) figure_stop("%s cannot be synced", path);
    end = figure_ms();
    unlink(path);
    return end - begin;
}

void figure_daemon(pd_child *child)
{
    pd_error err = { 0 };

    if (pd_child_start(child, &err) != PD_OK) figure_stop("%s", err.text);
}

pid_t figure_spawn(const char *url)
{
    char path[4096];
    pd_error err;
    pid_t pid;

    if (pd_sibling_path(path, sizeof path, "paramd", &err) != PD_OK) figure_stop("%s", err.text);
    pid = fork();
    if (pid < 0) figure_stop("cannot start a process: %s", strerror(errno));
    if (pid > 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    freopen("/dev/null", "w", stderr);
    execl(path, path, "--listen", url, (char *)NULL);
    _exit(127);
}

void figure_kill(pid_t daemon)
{
    kill(daemon, SIGKILL);
    if (waitpid(daemon, NULL, 0) != daemon) figure_stop("the daemon does not end: %s", strerror(errno));
}

double figure_cpu_ms(pid_t pid)
{
    char path[64], text[1024], *at;
    unsigned long user = 0, kernel = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if ((file = fopen(path, "r")) == NULL) figure_stop("%s: %s", path, strerror(errno));
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    at = strrchr(text, ')');
    if (at == NULL || sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel) != 2)
        figure_stop("%s cannot be read", path);
    return 1e3 * (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

const Paramd__StatusReply *figure_status(const char *url, pd_operator *op)
{
    void *reply = NULL;
    pd_error err = { 0 };

    if (pd_operator_open(op, url, 10, &err) != PD_OK ||
        pd_client_call(op->client, PD_STATUS, NULL, op->arena, &reply, &err) != PD_OK) {
        figure_stop("%s", err.text);
    }
    return reply;
}

const int64_t *figure_model(size_t *n)
{
    static const struct {
        int64_t mib;
        size_t count;
    } matrices[] = { { 64, 1 }, { 16, 6 }, { 4, 16 }, { 1, 28 } };
    static int64_t elements[1 + 6 + 16 + 28 + 512];
    size_t i = 0;

    for (size_t k = 0; k < sizeof matrices / sizeof *matrices; k++) {
        for (size_t c = 0; c < matrices[k].count; c++) elements[i++] = matrices[k].mib << 18;
    }
    /* biases and norms: 512 vectors of 4, 8 and 16 KiB, about 5 MiB together */
    for (size_t c = 0; c < 512; c++) elements[i++] = 1024 << c % 3;
    *n = i;
    return elements;
}
