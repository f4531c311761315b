/* Tests a daemon with a file of roles: users of a Unix socket and strangers on TCP, a reload of the file, files that
 * are refused, and what paramctl tells of roles. */
#include <signal.h>
#include <sys/stat.h>

#include "test.h"
#include "connection.h"
#include "daemon_process.h"
#include "log.h"
#include "paramd/client.h"

/* A daemon that listens on TCP, where everybody is "anyone", and on a Unix socket, where we are "user:UID". */
typedef struct fixture {
    char roles[32], roles_flag[64], socket[40], listen_flag[96], me[32];
    test_daemon *daemon;
} fixture;

static void write_roles(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, 0600), 0);
}

/* Writes the roles with which tests begin: we are admin of all over the Unix socket, TCP trains some jobs. */
static void write_first_roles(const fixture *f)
{
    char text[256];

    snprintf(text, sizeof text, "%s admin *\nanyone push vision-*\nquota anyone jobs=1\n", f->me);
    write_roles(f->roles, text);
}

static void set_up(fixture *f)
{
    strcpy(f->roles, "/tmp/paramd-roles-XXXXXX");
    close(mkstemp(f->roles));
    snprintf(f->me, sizeof f->me, "user:%u", (unsigned)geteuid());
    snprintf(f->socket, sizeof f->socket, "/tmp/paramd-roles-%ld", (long)getpid());
    snprintf(f->roles_flag, sizeof f->roles_flag, "--roles=%s", f->roles);
    snprintf(f->listen_flag, sizeof f->listen_flag, "--listen=127.0.0.1:0,unix://%s", f->socket);
    write_first_roles(f);
    f->daemon = daemon_start((const char *const[]){ f->listen_flag, f->roles_flag, NULL });
}

static void tear_down(fixture *f)
{
    assert_int_equal(daemon_stop(f->daemon, patient(10)), 0);
    unlink(f->roles);
}

static int by_tcp(const fixture *f, const char *arguments)
{
    paramctl_ask(f->daemon->url);
    return paramctl("%s", arguments);
}

static int by_unix(const fixture *f, const char *arguments)
{
    return paramctl("--server unix://%s %s", f->socket, arguments);
}

static void expect_log(const fixture *f, const char *text)
{
    if (!daemon_says(f->daemon, text, patient(5))) fail_msg("the log does not say \"%s\"", text);
}

static int open_worker(const fixture *f, const char *job, pd_client **client, pd_error *err)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };

    return pd_client_open(
        client,
        &(pd_client_options){
            .urls = f->daemon->url, .job = job, .world_size = 1, .rules = rules, .deadline = patient(5) },
        err);
}

static pd_client *must_join(const fixture *f, const char *job)
{
    pd_client_param param = { .name = "w", .shape = { .rank = 1, .dim = { 3 } } };
    pd_client *client;
    pd_error err;

    if (open_worker(f, job, &client, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_client_declare(client, &param, 1, &err) != PD_OK) fail_msg("%s", err.text);
    return client;
}

FIXTURE(fixture, set_up, tear_down);

TEST(a_worker_joins_the_jobs_of_its_roles_within_its_quota, const fixture *f)
{
    pd_client *client = must_join(f, "vision-1"), *other;
    pd_error err;

    assert_int_equal(open_worker(f, "speech", &other, &err), PD_PERMISSION_DENIED);
    assert_non_null(strstr(err.text, "anyone may neither join nor create job speech: that needs the role push"));
    assert_int_equal(open_worker(f, "vision-2", &other, &err), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "one more than the 1 jobs that anyone may have"));
    pd_client_close(client);
}

TEST(paramctl_shows_each_identity_what_it_may_see, const fixture *f)
{
    pd_client *client = must_join(f, "vision-1");

    assert_int_equal(by_tcp(f, "drop vision-1"), 1);
    assert_says("Drop of job vision-1 needs the role admin, anyone has push");
    assert_int_equal(by_tcp(f, "drop speech"), 1);
    assert_says("there is no job speech");
    assert_int_equal(by_tcp(f, "shutdown"), 1);
    assert_says("Shutdown needs the role admin of all jobs");
    assert_int_equal(by_tcp(f, "status"), 0);
    assert_says("vision-1");
    assert_null(strstr(paramctl_output, "identities"));
    assert_int_equal(by_unix(f, "status"), 0);
    assert_says("identities");
    assert_says("anyone, connections ");
    assert_int_equal(by_unix(f, "workers vision-1"), 0);
    assert_says("anyone");
    assert_int_equal(by_unix(f, "drop vision-1"), 0);
    expect_log(f, "job vision-1: Drop was refused, by anyone as ");
    expect_log(f, f->me);
    pd_client_close(client);
}

TEST(sighup_reads_the_roles_again_whole_or_not_at_all, const fixture *f)
{
    pd_client *client = must_join(f, "vision-1");
    float weights[3] = { 1, 2, 3 };
    void *initial[] = { weights };
    pd_error err;

    write_roles(f->roles, "anyone none *\nanyone master vision-*\n");
    daemon_reload(f->daemon, ":2: expected one of the roles none, read, push and admin, got master");
    assert_int_equal(pd_client_init(client, initial, &err), PD_OK); /* the old roles are there, all of them */
    write_roles(f->roles, "anyone read vision-*\n");
    daemon_reload(f->daemon, "reload: done, 0 keys have changed, roles were read");
    assert_int_equal(by_tcp(f, "workers vision-1"), 0);
    assert_int_equal(pd_client_barrier(client, &err), PD_PERMISSION_DENIED);
    pd_client_close(client);
}

/* Asks n times to stop the daemon, which is refused each time. */
static void ask_in_vain(const char *url, int n)
{
    pd_operator op;
    pd_error err;
    void *reply;

    if (pd_operator_open(&op, url, patient(10), &err) != PD_OK) fail_msg("%s", err.text);
    for (int i = 0; i < n; i++)
        assert_int_equal(pd_client_call(op.client, PD_SHUTDOWN, NULL, op.arena, &reply, &err), PD_PERMISSION_DENIED);
    pd_operator_close(&op);
}

static int count_in_log(const fixture *f, const char *text)
{
    char line[2048];
    FILE *log = fopen(f->daemon->log, "r");
    int n = 0;

    assert_non_null(log);
    while (fgets(line, sizeof line, log) != NULL) n += strstr(line, text) != NULL;
    fclose(log);
    return n;
}

TEST(a_flood_of_refusals_hides_none_of_another_identity, const fixture *f)
{
    enum { FLOOD = 5 * PD_LOG_BURST, OURS = 50 };
    char url[64], ours[64], text[96];

    snprintf(text, sizeof text, "%s read *\nanyone read *\n", f->me);
    write_roles(f->roles, text);
    daemon_reload(f->daemon, "roles were read");
    snprintf(url, sizeof url, "unix://%s", f->socket);
    ask_in_vain(f->daemon->url, FLOOD);
    ask_in_vain(url, OURS);
    snprintf(ours, sizeof ours, "Shutdown was refused, by %s as ", f->me);
    expect_log(f, ours);
    if (!daemon_says(f->daemon, "lines about 127.0.0.1 were left out", PD_LOG_WINDOW_S + patient(5)))
        fail_msg("the log does not say that lines were left out");
    assert_int_equal(count_in_log(f, ours), OURS);
    assert_in_range(count_in_log(f, "Shutdown was refused, by anyone as "), PD_LOG_BURST, FLOOD - 1);
    assert_int_equal(count_in_log(f, "lines about user:"), 0);
}

static void expect_refusal(const char *flag, const char *mode, const char *part)
{
    char text[4096];

    assert_int_equal(daemon_refuses((const char *const[]){ flag, mode, NULL }, text, sizeof text), 2);
    if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in:\n%s", part, text);
}

TEST(a_daemon_does_not_start_with_a_file_that_is_wrong_or_that_others_can_write, const fixture *f)
{
    write_roles(f->roles, "anyone read\n");
    expect_refusal(f->roles_flag, NULL, ":1: expected IDENTITY-GLOB ROLE JOB-GLOB");
    expect_refusal(f->roles_flag, "--check-config", ":1: expected IDENTITY-GLOB ROLE JOB-GLOB");
    write_roles(f->roles, "anyone read *\n");
    assert_int_equal(chmod(f->roles, 0666), 0);
    expect_refusal(f->roles_flag, NULL, "other users can write to this file");
    expect_refusal("--roles=/nowhere/roles", NULL, "/nowhere/roles: the roles cannot be read");
}

static int check_roles(const fixture *f, const char *arguments)
{
    char text[256];

    snprintf(text, sizeof text, "roles check %s %s", f->roles, arguments);
    return by_tcp(f, text);
}

TEST(paramctl_says_what_a_file_allows_and_by_which_line, const fixture *f)
{
    json_t *json;

    write_roles(f->roles, "# roles\nuser:1001 push vision-*\n\nquota user:* bytes=10G jobs=4\nuser:0 admin *\n");
    assert_int_equal(check_roles(f, "user:1001 vision-7"), 0);
    assert_says("role    push (line 2)\nserver  none (no line matches)\n");
    assert_says("quota   jobs=4 bytes=10.0 GiB ingest=half connections=unlimited requests=unlimited (line 4)\n");
    assert_int_equal(check_roles(f, "user:0 speech --json"), 0);
    json = parsed();
    assert_string_equal(json_string_value(json_object_get(json, "role")), "admin");
    assert_string_equal(json_string_value(json_object_get(json, "server_role")), "admin");
    assert_int_equal(json_integer_value(json_object_get(json, "line")), 5);
    assert_true(json_is_null(json_object_get(json_object_get(json, "quota"), "connections")));
    json_decref(json);
    assert_int_equal(by_tcp(f, "roles show x y z"), 2);
    assert_says("expected roles check FILE IDENTITY JOB");
}
