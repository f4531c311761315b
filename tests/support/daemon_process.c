/* daemon_process.c - starts the real daemon as a process of its own, watches its log and ends it. */
#include "daemon_process.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <jansson.h>

#include "test.h"

enum { MAX_FLAGS = 32 };

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void sleep_for(double seconds)
{
    struct timespec pause = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
    nanosleep(&pause, NULL);
}

double patient(double seconds)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 4 * seconds;
#else
    return seconds;
#endif
}

int reserve_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    return ntohs(address.sin_port);
}

/* The arguments of a daemon. */
typedef struct daemon_arguments {
    const char *argv[MAX_FLAGS];
    char path[4096], listen[128];
} daemon_arguments;

/* Returns the flag, or, if it lets the daemon listen on any port, the same flag with a port that is reserved. */
static const char *with_port(daemon_arguments *a, const char *flag)
{
    static const char any[] = "127.0.0.1:0";
    size_t length = strlen(flag);

    if (strncmp(flag, "--listen", 8) != 0 || length < sizeof any || strcmp(flag + length + 1 - sizeof any, any) != 0)
        return flag;
    snprintf(a->listen, sizeof a->listen, "%.*s%d", (int)length - 1, flag, reserve_port());
    return a->listen;
}

static void fill_arguments(daemon_arguments *a, const char *const *flags)
{
    const char *bin = getenv("PARAMD_BIN");
    int n = 1;
    bool listens = false;

    if (bin == NULL) fail_msg("PARAMD_BIN is not set: the folder of the programs");
    snprintf(a->path, sizeof a->path, "%s/paramd", bin);
    a->argv[0] = a->path;
    for (int i = 0; flags != NULL && flags[i] != NULL; i++) {
        assert_true(n < MAX_FLAGS - 2);
        a->argv[n++] = listens ? flags[i] : with_port(a, flags[i]);
        listens = listens || strncmp(flags[i], "--listen", 8) == 0;
    }
    if (!listens) a->argv[n++] = with_port(a, "--listen=127.0.0.1:0");
    a->argv[n] = NULL;
}

static pid_t spawn(const char *const *flags, const char *log)
{
    daemon_arguments a;
    pid_t pid;

    fill_arguments(&a, flags);
    fflush(NULL);
    if ((pid = fork()) != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the daemon is killed when the test's process ends */
    if (freopen(log, "w", stderr) == NULL || dup2(fileno(stderr), STDOUT_FILENO) < 0) _exit(126);
    execv(a.path, (char *const *)a.argv);
    _exit(127);
}

static char *read_log(const test_daemon *daemon)
{
    FILE *file = fopen(daemon->log, "r");
    char *text = calloc(1, 1 << 20);

    if (file != NULL) {
        text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
        fclose(file);
    }
    return text;
}

typedef struct in_log {
    const test_daemon *daemon;
    const char *text;
} in_log;

static bool is_in_log(void *arg)
{
    const in_log *wanted = arg;
    char *log = read_log(wanted->daemon), *at = strstr(log, wanted->text);
    bool found = at != NULL && strchr(at, '\n') != NULL; /* the line in the log is complete: it ends with a line feed */

    free(log);
    return found;
}

static void show_log(const test_daemon *daemon)
{
    char *log = read_log(daemon);
    fprintf(stderr, "---- the daemon's log:\n%s----\n", log);
    free(log);
}

bool daemon_says(const test_daemon *daemon, const char *text, double seconds)
{
    bool says = await(is_in_log, &(in_log){ daemon, text }, seconds);

    if (!says && seconds >= 1) show_log(daemon);
    return says;
}

int daemon_count(const test_daemon *daemon, const char *text)
{
    char *log = read_log(daemon);
    int n = 0;

    for (const char *at = log; (at = strstr(at, text)) != NULL; at++) n++;
    free(log);
    return n;
}

typedef struct in_job {
    const test_daemon *daemon;
    const char *job;
    int count;
} in_job;

/* Asks the daemon with paramctl whether the job has received the expected number of contributions. */
static bool have_come(void *arg)
{
    const in_job *wanted = arg;
    char line[1024];
    FILE *pipe;
    json_t *answer, *entry;
    size_t i;
    bool come = false;

    snprintf(line, sizeof line, "PARAMD_URL=%s %s/paramctl jobs --json", wanted->daemon->url, getenv("PARAMD_BIN"));
    assert_non_null(pipe = popen(line, "r"));
    answer = json_loadf(pipe, 0, NULL);
    pclose(pipe);
    json_array_foreach(json_object_get(answer, "jobs"), i,
                       entry) if (strcmp(json_string_value(json_object_get(entry, "name")), wanted->job) == 0) come =
        json_integer_value(json_object_get(entry, "contributions")) >= wanted->count;
    json_decref(answer);
    return come;
}

void daemon_await_contributions(const test_daemon *daemon, const char *job, int count)
{
    if (!await(have_come, &(in_job){ daemon, job, count }, patient(10)))
        fail_msg("job %s: %d contributions did not come", job, count);
}

int daemon_port_of(const test_daemon *daemon, const char *text)
{
    char *log = read_log(daemon), *found = strstr(log, text);
    int port = found != NULL ? atoi(found + strlen(text)) : 0;

    free(log);
    return port;
}

/* Returns the daemon's exit status, or 128 + signal; -1: it still runs. */
static int reap(test_daemon *daemon, bool wait)
{
    int status;
    pid_t pid = waitpid(daemon->pid, &status, wait ? 0 : WNOHANG);

    if (pid != daemon->pid) return -1;
    daemon->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool daemon_lives(test_daemon *daemon)
{
    return daemon->pid != 0 && reap(daemon, false) == -1;
}

static test_daemon *new_daemon(const char *const *flags)
{
    static int serial;
    test_daemon *daemon = calloc(1, sizeof *daemon);

    assert_non_null(daemon);
    snprintf(daemon->log, sizeof daemon->log, "/tmp/paramd-test-%ld-%d.log", (long)getpid(), serial++);
    unlink(daemon->log); /* an earlier process with the same number, whose test has failed, may have left it */
    daemon->pid = spawn(flags, daemon->log);
    assert_true(daemon->pid > 0);
    return daemon;
}

static void discard(test_daemon *daemon)
{
    unlink(daemon->log);
    free(daemon);
}

static bool listens_or_ended(void *arg)
{
    test_daemon *daemon = arg;

    return is_in_log(&(in_log){ daemon, "listening on " }) || !daemon_lives(daemon);
}

test_daemon *daemon_start(const char *const *flags)
{
    test_daemon *daemon = new_daemon(flags);

    if (!await(listens_or_ended, daemon, patient(60)) || !daemon_lives(daemon)) {
        show_log(daemon);
        daemon_kill(daemon);
        fail_msg("the daemon did not start");
    }
    if ((daemon->port = daemon_port_of(daemon, "listening on 127.0.0.1:")) == 0)
        daemon->port = daemon_port_of(daemon, "listening on [::1]:");
    snprintf(daemon->url, sizeof daemon->url, "tcp://127.0.0.1:%d", daemon->port);
    return daemon;
}

test_daemon *daemon_start_until(const char *const *flags, const char *text)
{
    test_daemon *daemon = new_daemon(flags);

    if (daemon_says(daemon, text, patient(30))) return daemon;
    daemon_kill(daemon);
    fail_msg("the daemon did not say \"%s\"", text);
    return NULL;
}

typedef struct ending {
    test_daemon *daemon;
    int status;
} ending;

static bool has_ended(void *arg)
{
    ending *e = arg;
    return e->daemon->pid == 0 || (e->status = reap(e->daemon, false)) != -1;
}

/* Waits until the daemon ends. Returns its exit status, or -1 if it still runs after `seconds`. */
static int await_end(test_daemon *daemon, double seconds)
{
    ending e = { daemon, -1 };

    await(has_ended, &e, seconds);
    return e.status;
}

int daemon_await_end(test_daemon *daemon, double seconds)
{
    return await_end(daemon, seconds);
}

/* Returns whether the daemon has ended, or its log says that it has got the signal. */
static bool is_stopping(void *arg)
{
    ending *e = arg;

    return has_ended(arg) || is_in_log(&(in_log){ e->daemon, "Terminated" });
}

/* Sends SIGTERM until the daemon has got it: ThreadSanitizer delays a signal that the kernel gives to an idle
 * thread. */
static bool is_told_to_stop(void *arg)
{
    ending *e = arg;

    if (e->daemon->pid != 0) kill(e->daemon->pid, SIGTERM);
    return await(is_stopping, arg, patient(2));
}

int daemon_stop(test_daemon *daemon, double seconds)
{
    ending e = { daemon, -1 };
    int status;

    if (daemon == NULL) return -1; /* the daemon was never started */
    await(is_told_to_stop, &e, seconds);
    status = e.status != -1 ? e.status : await_end(daemon, seconds);
    if (daemon->pid != 0) {
        kill(daemon->pid, SIGKILL);
        reap(daemon, true);
        status = -1;
    }
    if (status != 0) show_log(daemon);
    discard(daemon);
    return status;
}

void daemons_start(test_daemon **daemons, size_t n, char folder[64])
{
    strcpy(folder, "/tmp/paramd-daemons-XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < n; i++) {
        char directory[100];
        const char *flags[] = { directory, "--step-threads=1", "--pool-threads=1", NULL };
        snprintf(directory, sizeof directory, "--state-dir=%s/%zu", folder, i);
        daemons[i] = daemon_start(flags);
    }
}

int daemons_stop(test_daemon **daemons, size_t n, const char *folder)
{
    char command[128];
    int status = 0;

    for (size_t i = 0; i < n; i++) status |= daemon_stop(daemons[i], patient(20));
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return status | system(command);
}

void daemon_end(test_daemon *daemon)
{
    assert_int_equal(daemon_stop(daemon, patient(20)), 0);
}

void daemon_kill(test_daemon *daemon)
{
    if (daemon->pid != 0) {
        kill(daemon->pid, SIGKILL);
        reap(daemon, true);
    }
    discard(daemon);
}

int daemon_refuses(const char *const *flags, char *text, size_t size)
{
    test_daemon *daemon = new_daemon(flags);
    int status = await_end(daemon, patient(10));
    char *log;

    if (status == -1) {
        kill(daemon->pid, SIGKILL);
        reap(daemon, true);
    }
    log = read_log(daemon);
    snprintf(text, size, "%s", log);
    free(log);
    discard(daemon);
    return status;
}

/* Sends SIGHUP, and returns whether the log has the text soon. */
static bool is_reloaded(void *arg)
{
    const in_log *wanted = arg;

    kill(wanted->daemon->pid, SIGHUP);
    return daemon_says(wanted->daemon, wanted->text, 0.5);
}

void daemon_reload(const test_daemon *daemon, const char *text)
{
    if (!await(is_reloaded, &(in_log){ daemon, text }, patient(10))) fail_msg("the log does not say \"%s\"", text);
}

void daemon_freeze(const test_daemon *daemon)
{
    kill(daemon->pid, SIGSTOP);
}

void daemon_thaw(const test_daemon *daemon)
{
    kill(daemon->pid, SIGCONT);
}

pd_child paramctl_server;
char paramctl_output[256 * 1024];

int paramctl_start_server(void **state)
{
    pd_error err = { 0 };

    (void)state;
    if (pd_child_start(&paramctl_server, &err) == PD_OK) return 0;
    fprintf(stderr, "%s\n", err.text);
    return -1;
}

int paramctl_stop_server(void **state)
{
    (void)state;
    pd_child_stop(&paramctl_server);
    return 0;
}

void paramctl_ask(const char *url)
{
    snprintf(paramctl_server.url, sizeof paramctl_server.url, "%s", url);
}

static int run(const char *line)
{
    FILE *pipe = popen(line, "r");
    int status;

    assert_non_null(pipe);
    paramctl_output[fread(paramctl_output, 1, sizeof paramctl_output - 1, pipe)] = '\0';
    status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

int paramctl(const char *format, ...)
{
    char arguments[1024], line[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(line, sizeof line, "PARAMD_URL='%s' %s/paramctl %s%s", paramctl_server.url, getenv("PARAMD_BIN"),
             arguments, strstr(arguments, "json") != NULL ? " 2>/dev/null" : " 2>&1");
    return run(line);
}

int paramctl_shell(const char *format, ...)
{
    char command[1024], line[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    snprintf(line, sizeof line, "export PARAMD_URL='%s' paramctl=%s/paramctl; ( %s ) 2>&1", paramctl_server.url,
             getenv("PARAMD_BIN"), command);
    return run(line);
}

void assert_says(const char *part)
{
    if (strstr(paramctl_output, part) == NULL) fail_msg("does not say \"%s\":\n%s", part, paramctl_output);
}

void assert_lines_fit(int most)
{
    for (const char *line = paramctl_output; *line != '\0'; line += line[strcspn(line, "\n")] == '\n') {
        int width = 0;
        const char *begin = line;
        for (; *line != '\0' && *line != '\n'; line++) width += ((unsigned char)*line & 0xC0) != 0x80;
        if (width > most) fail_msg("%d characters: %.*s", width, (int)(line - begin), begin);
        if (*line == '\0') return;
    }
}

json_t *parsed(void)
{
    json_error_t why;
    json_t *value = json_loads(paramctl_output, 0, &why);

    if (value == NULL) fail_msg("%s in:\n%s", why.text, paramctl_output);
    return value;
}
