/* Tests the daemon as a service: its service manager, its addresses, its descriptors, and how it stops. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "test.h"
#include "daemon_process.h"
#include "http_ask.h"
#include "team.h"

/* Connects an operator. Returns PD_OK if it is welcomed. */
static int greet(const char *url, double deadline, pd_error *err)
{
    pd_client *client;
    int rc = pd_client_open(&client, &(pd_client_options){ .urls = url, .job = "", .deadline = deadline }, err);

    if (rc == PD_OK) pd_client_close(client);
    return rc;
}

static void expect_welcome(const char *url)
{
    pd_error err;
    if (greet(url, patient(5), &err) != PD_OK) fail_msg("%s: %s", url, err.text);
}

/* Waits at most `seconds` for a datagram, and stores it in `text`. Returns whether one came. */
static bool receive_notice(int fd, char *text, size_t size, double seconds)
{
    struct timeval limit = { .tv_sec = (time_t)seconds };
    ssize_t n;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    n = recv(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static void expect_datagram(int fd, const char *text)
{
    char notice[128];

    do assert_true(receive_notice(fd, notice, sizeof notice, patient(5)));
    while ((strcmp(notice, "WATCHDOG=1") == 0 && strcmp(text, notice) != 0) ||
           strncmp(notice, "STATUS=loading", 14) == 0); /* comes only if the start takes long */
    assert_string_equal(notice, text);
}

TEST(tells_its_manager_that_it_is_ready_alive_and_stopping)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    test_daemon *daemon;

    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/paramd-notify-%ld", (long)getpid());
    unlink(address.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    setenv("WATCHDOG_USEC", "1000000", 1);
    daemon = daemon_start(NULL);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    expect_datagram(fd, "READY=1\nSTATUS=serving");
    expect_datagram(fd, "WATCHDOG=1");
    expect_datagram(fd, "WATCHDOG=1");
    kill(daemon->pid, SIGTERM);
    expect_datagram(fd, "STOPPING=1");
    assert_int_equal(daemon_stop(daemon, patient(5)), 0);
    close(fd);
    unlink(address.sun_path);
}

TEST(replaces_a_socket_file_that_nobody_serves)
{
    char path[64], flag[96], url[96], text[4096];
    test_daemon *daemon;

    snprintf(path, sizeof path, "/tmp/paramd-socket-%ld", (long)getpid());
    snprintf(flag, sizeof flag, "--listen=unix://%s", path);
    snprintf(url, sizeof url, "unix://%s", path);
    daemon = daemon_start((const char *const[]){ flag, NULL });
    expect_welcome(url);
    assert_int_equal(daemon_refuses((const char *const[]){ flag, NULL }, text, sizeof text),
                     1); /* another daemon serves this socket, so it must not be replaced */
    assert_non_null(strstr(text, "cannot listen on unix:"));
    expect_welcome(url);
    daemon_kill(daemon);
    assert_int_equal(access(path, F_OK), 0); /* the killed daemon has left its socket file */
    daemon = daemon_start((const char *const[]){ flag, NULL });
    expect_welcome(url);
    assert_int_equal(daemon_stop(daemon, patient(5)), 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

TEST(a_file_that_is_no_socket_is_left_alone)
{
    char path[] = "/tmp/paramd-file-XXXXXX", flag[96], text[4096];
    int fd = mkstemp(path);

    snprintf(flag, sizeof flag, "--listen=unix://%s", path);
    assert_int_equal(daemon_refuses((const char *const[]){ flag, NULL }, text, sizeof text), 1);
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    unlink(path);
}

/* Returns the seconds of processor time that a process has used. */
static double cpu_of(pid_t pid)
{
    char path[64];
    unsigned long user, system;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    assert_int_equal(fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system), 2);
    fclose(file);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

TEST(survives_running_out_of_descriptors)
{
    enum { FLOOD = 60 };
    struct rlimit before, few = { 48, 48 };
    int fds[FLOOD];
    double used;
    test_daemon *daemon;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    daemon = daemon_start(NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < FLOOD; i++) fds[i] = loopback_connect(daemon->port);
    assert_true(daemon_says(daemon, "out of file descriptors", patient(5)));
    used = cpu_of(daemon->pid);
    sleep_for(0.5); /* no condition to wait for: the daemon must not spin in this time */
    assert_true(cpu_of(daemon->pid) - used < 0.25);
    for (int i = 0; i < FLOOD; i++) close(fds[i]);
    expect_welcome(daemon->url);
    assert_int_equal(daemon_stop(daemon, patient(5)), 0);
}

static const int64_t sizes[] = { 100 };

/* Opens two workers. Rank 0 pushes, so the round waits for rank 1. *ticket receives the ticket of that push. */
static void open_round(const team *t, worker workers[2], pd_ticket_id *ticket)
{
    pd_error err;

    for (int r = 0; r < 2; r++)
        if (!worker_open(&workers[r], t, r) || !worker_declare(&workers[r])) fail_msg("%s", workers[r].failure);
    fill_gradient(workers[0].gradients[0], sizes[0], 0, 1, 0);
    assert_int_equal(pd_client_push_pull(workers[0].client, workers[0].items, 1, NULL, ticket, &err), PD_OK);
}

TEST(a_second_signal_stops_it_at_once)
{
    test_daemon *daemon = daemon_start(NULL); /* the default drain timeout is 30 s */
    model *m = model_new(sizes, 1);
    team t = {
        .url = daemon->url, .job = "stop", .world = 2, .rules = (const char *const[]){ "* sgd lr=1", NULL }, .model = m
    };
    worker workers[2];
    pd_ticket_id ticket;

    open_round(&t, workers, &ticket);
    daemon_await_contributions(daemon, "stop", 1);
    kill(daemon->pid, SIGINT);
    assert_true(daemon_says(daemon, "stopping", patient(5)));
    assert_int_equal(daemon_stop(daemon, patient(3)), 0); /* sends SIGTERM, which is the second signal */
    for (int r = 0; r < 2; r++) worker_free(&workers[r]);
    model_free(m);
}
