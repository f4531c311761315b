/* Tests how a daemon is operated: its log names who did what, people and programs can read the log, and the daemon
 * reloads its configuration. */
#include <jansson.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

/* Runs paramctl. Returns its exit status. */
static int run_paramctl(const test_daemon *daemon, const char *arguments)
{
    char command[1024];
    int status;

    snprintf(command, sizeof command, "%s/paramctl --server %s %s > /dev/null 2>&1", getenv("PARAMD_BIN"), daemon->url,
             arguments);
    status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Opens a worker of a job of its own, with one parameter. */
static pd_client *join(const test_daemon *daemon, const char *job, pd_error *err)
{
    pd_client *client;
    const char *const rules[] = { "* sgd lr=1", NULL };
    pd_client_param param = { .name = "w", .shape = { .rank = 1, .dim = { 3 } } };
    int rc =
        pd_client_open(&client,
                       &(pd_client_options){
                           .urls = daemon->url, .job = job, .world_size = 1, .rules = rules, .deadline = patient(5) },
                       err);

    if (rc != PD_OK) return NULL;
    if (pd_client_declare(client, &param, 1, err) == PD_OK) return client;
    pd_client_close(client);
    return NULL;
}

static pd_client *must_join(const test_daemon *daemon, const char *job)
{
    pd_error err;
    pd_client *client = join(daemon, job, &err);

    if (client == NULL) fail_msg("%s", err.text);
    return client;
}

static void expect_log(const test_daemon *daemon, const char *text)
{
    if (!daemon_says(daemon, text, patient(5))) fail_msg("the log does not say \"%s\"", text);
}

TEST(every_operator_command_is_logged_with_its_author)
{
    test_daemon *daemon = daemon_start(NULL);
    pd_client *client = must_join(daemon, "lin");
    char host[128], author[192];

    assert_int_equal(gethostname(host, sizeof host), 0);
    snprintf(author, sizeof author, "job lin: set w lr=0.5 from step 9, by ");
    assert_int_equal(run_paramctl(daemon, "set lin w lr=0.5 --from 9"), 0);
    expect_log(daemon, author);
    assert_int_equal(run_paramctl(daemon, "drop lin"), 0);
    expect_log(daemon, "job lin: drop, by ");
    assert_int_equal(run_paramctl(daemon, "drain"), 0);
    expect_log(daemon, " drain, by ");
    run_paramctl(daemon, "shutdown");
    expect_log(daemon, " shutdown, by ");
    expect_log(daemon, host);
    expect_log(daemon, " (127.0.0.1:");
    pd_client_close(client);
    daemon_stop(daemon, patient(10));
}

/* Calls `check` for each whole line of the log. Returns the number of lines. */
static int each_line(const test_daemon *daemon, void (*check)(const char *line))
{
    FILE *file = fopen(daemon->log, "r");
    char line[4096];
    int n = 0;

    assert_non_null(file);
    for (; fgets(line, sizeof line, file) != NULL && strchr(line, '\n') != NULL; n++) check(line);
    fclose(file);
    return n;
}

static void is_plain(const char *line)
{
    int year, digits = 0;

    if (sscanf(line, "%4d-%*2d-%*2dT%*2d:%*2d:%*2d.%*3dZ %n", &year, &digits) != 1 || digits != 25)
        fail_msg("no time at the beginning: %s", line);
    if (strchr(line, '\033') != NULL) fail_msg("escape sequences: %s", line);
}

TEST(lines_in_a_file_begin_with_the_time)
{
    test_daemon *daemon;

    setenv("JOURNAL_STREAM", "8:1", 1); /* a shell may inherit this from systemd; the log is a file all the same */
    daemon = daemon_start(NULL);
    unsetenv("JOURNAL_STREAM");
    pd_client_close(must_join(daemon, "lin"));
    expect_log(daemon, "job lin: rank 0: ");
    assert_true(each_line(daemon, is_plain) >= 3);
    assert_int_equal(daemon_stop(daemon, patient(5)), 0);
}

static int ranks_seen;

static void is_json(const char *line)
{
    json_error_t why;
    json_t *object = json_loads(line, 0, &why);

    if (object == NULL) fail_msg("%s: %s", why.text, line);
    assert_true(json_is_string(json_object_get(object, "time")));
    assert_true(json_is_string(json_object_get(object, "level")));
    assert_true(json_is_string(json_object_get(object, "message")));
    if (json_is_integer(json_object_get(object, "rank")) && json_is_string(json_object_get(object, "job"))) {
        assert_string_equal(json_string_value(json_object_get(object, "job")), "lin");
        assert_null(strstr(json_string_value(json_object_get(object, "message")), "job lin"));
        ranks_seen++;
    }
    json_decref(object);
}

TEST(json_lines_name_job_and_rank_in_fields)
{
    test_daemon *daemon = daemon_start((const char *const[]){ "--log-format", "json", NULL });

    pd_client_close(must_join(daemon, "lin"));
    expect_log(daemon, "\"job\":\"lin\",\"rank\":0");
    assert_true(each_line(daemon, is_json) >= 3);
    assert_true(ranks_seen >= 1);
    assert_int_equal(daemon_stop(daemon, patient(5)), 0);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static test_daemon *start_with_file(char *path, const char *text)
{
    static char flag[64];

    close(mkstemp(path));
    write_file(path, text);
    snprintf(flag, sizeof flag, "--config=%s", path);
    return daemon_start((const char *const[]){ flag, NULL });
}

TEST(sighup_changes_limits_while_jobs_run)
{
    char path[] = "/tmp/paramd-conf-XXXXXX";
    test_daemon *daemon = start_with_file(path, "[limits]\nmax_jobs = 1\n");
    pd_client *first = must_join(daemon, "first"), *second;
    pd_error err;

    assert_null(join(daemon, "second", &err));
    assert_non_null(strstr(err.text, "limits.max_jobs"));
    write_file(path, "[limits]\nmax_jobs = 2 # one more\n");
    daemon_reload(daemon, "reload: limits.max_jobs = 2 (it was 1)");
    second = must_join(daemon, "second");
    pd_client_close(first);
    pd_client_close(second);
    assert_int_equal(daemon_stop(daemon, patient(5)), 0);
    unlink(path);
}

TEST(sighup_changes_the_log_level)
{
    char path[] = "/tmp/paramd-conf-XXXXXX";
    test_daemon *daemon = start_with_file(path, "[log]\nlevel = notice\n");

    write_file(path, "[log]\nlevel = debug\n");
    daemon_reload(daemon, "reload: log.level = debug (it was notice)");
    pd_client_close(must_join(daemon, "lin"));
    expect_log(daemon, "is rank 0 of job"); /* this text is logged at level debug only */
    assert_int_equal(daemon_stop(daemon, patient(5)), 0);
    unlink(path);
}

TEST(a_wrong_file_leaves_a_daemon_that_serves)
{
    char path[] = "/tmp/paramd-conf-XXXXXX";
    test_daemon *daemon = start_with_file(path, "[limits]\nmax_jobs = 1\n");

    write_file(path, "[limits]\nmax_jobs = many\n");
    daemon_reload(daemon, ":2: limits.max_jobs = many: expected a whole number");
    pd_client_close(must_join(daemon, "lin"));
    assert_int_equal(daemon_stop(daemon, patient(5)), 0);
    unlink(path);
}

/* Receives datagrams until one begins with `text`. */
static void await_datagram(int fd, const char *text)
{
    struct timeval limit = { .tv_sec = (time_t)patient(5) };
    char received[128];
    ssize_t n;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    do {
        n = recv(fd, received, sizeof received - 1, 0);
        if (n <= 0) fail_msg("the daemon did not report %s", text);
        received[n] = '\0';
    } while (strncmp(received, text, strlen(text)) != 0);
}

TEST(a_reload_is_reported_to_the_service_manager)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    test_daemon *daemon;

    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/paramd-reload-%ld", (long)getpid());
    unlink(address.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    daemon = daemon_start(NULL);
    unsetenv("NOTIFY_SOCKET");
    await_datagram(fd, "READY=1");
    daemon_reload(daemon, "reload: done, 0 keys have changed");
    await_datagram(fd, "RELOADING=1\nMONOTONIC_USEC=");
    await_datagram(fd, "READY=1");
    assert_int_equal(daemon_stop(daemon, patient(5)), 0);
    close(fd);
    unlink(address.sun_path);
}
