/* Tests the text of roles and quotas: which lines decide, and which texts are refused. */
#include <sys/stat.h>

#include "test.h"
#include "glob.h"
#include "trusted_files.h"

static const char *const sample = "# who may do what\n"
                                  "token:alice   push   vision-*\n"
                                  "user:0        none   secret\n"
                                  "user:0        admin  *       # root\n"
                                  "\n"
                                  "quota token:* jobs=2 bytes=10M connections=3 requests=4\r\n"
                                  "*  read\tpublic/*\n"
                                  "token:eve     read   *\n";

static pd_roles *parsed(const char *text)
{
    pd_roles *roles = NULL;
    pd_error err = { 0 };

    if (pd_roles_parse(&roles, text, strlen(text), "f", &err) != PD_OK) fail_msg("%s", err.text);
    return roles;
}

static void expect(const pd_roles *roles, const char *identity, const char *job, pd_role role, unsigned line)
{
    unsigned found;

    if (pd_roles_of(roles, identity, job, &found) != role || found != line)
        fail_msg("%s has for %s another role than %s, or by line %u", identity, job, pd_role_name(role), found);
}

TEST(the_first_line_that_matches_decides)
{
    pd_roles *roles = parsed(sample), *copy = pd_roles_copy(roles);

    pd_roles_free(roles); /* the copy does not need it */
    expect(copy, "token:alice", "vision-1", PD_ROLE_PUSH, 2);
    expect(copy, "token:alice", "speech", PD_ROLE_NONE, 0);
    expect(copy, "token:alice", "public/x", PD_ROLE_READ, 7);
    expect(copy, "user:0", "secret", PD_ROLE_NONE, 3);
    expect(copy, "user:0", "vision-1", PD_ROLE_ADMIN, 4);
    expect(copy, "anyone", "public/a/b", PD_ROLE_READ, 7);
    expect(copy, "anyone", "public", PD_ROLE_NONE, 0);
    pd_roles_free(copy);
}

TEST(only_lines_of_all_jobs_decide_about_the_server)
{
    pd_roles *roles = parsed(sample);
    unsigned line;

    assert_int_equal(pd_roles_of_server(roles, "user:0", &line), PD_ROLE_ADMIN);
    assert_int_equal(line, 4);
    assert_int_equal(pd_roles_of_server(roles, "token:eve", &line), PD_ROLE_READ);
    assert_int_equal(pd_roles_of_server(roles, "token:alice", &line), PD_ROLE_NONE);
    assert_int_equal(line, 0);
    pd_roles_free(roles);
}

TEST(an_identity_without_a_role_is_not_known)
{
    pd_roles *roles = parsed("user:1 none *\nuser:* read a\n");

    assert_false(pd_roles_know(roles, "user:1"));
    assert_true(pd_roles_know(roles, "user:2"));
    assert_false(pd_roles_know(roles, "anyone"));
    pd_roles_free(roles);
}

TEST(the_first_quota_holds_and_the_rest_is_unlimited)
{
    pd_roles *roles = parsed("quota a jobs=0 requests=7\nquota * bytes=64k ingest=4M\n");
    pd_allowance a = pd_roles_allowance(roles, "a", NULL), b;
    unsigned line;

    assert_true(a.jobs == 0 && a.requests == 7 && a.bytes == PD_UNLIMITED && a.connections == PD_UNLIMITED);
    b = pd_roles_allowance(roles, "b", &line);
    assert_true(b.bytes == 65536 && b.ingest == 4 << 20 && b.jobs == PD_UNLIMITED && line == 2);
    pd_roles_free(roles);
}

TEST(without_roles_everybody_is_admin_of_all)
{
    assert_int_equal(pd_roles_of(NULL, "anyone", "j", NULL), PD_ROLE_ADMIN);
    assert_int_equal(pd_roles_of_server(NULL, "anyone", NULL), PD_ROLE_ADMIN);
    assert_true(pd_roles_know(NULL, "anyone"));
    assert_true(pd_roles_allowance(NULL, "anyone", NULL).jobs == PD_UNLIMITED);
}

TEST(a_view_has_the_jobs_with_a_role)
{
    pd_roles *roles = parsed(sample);
    pd_roles_view *view, *all;
    double cost_ns = 0;

    assert_int_equal(pd_roles_view_new(&view, roles, "user:0", &cost_ns), PD_OK);
    assert_true(cost_ns > 0);
    assert_true(pd_roles_view_has(view, "vision-1", &cost_ns));
    pd_roles_free(roles); /* other roles may come while a view is in use */
    assert_true(pd_roles_view_has(view, "vision-1", &cost_ns));
    assert_false(pd_roles_view_has(view, "secret", &cost_ns));
    pd_roles_view_free(view);
    assert_int_equal(pd_roles_view_new(&all, NULL, "user:0", &cost_ns), PD_OK);
    assert_true(pd_roles_view_has(all, "secret", &cost_ns));
}

static void expect_wrong(const char *text, const char *part)
{
    pd_roles *roles = NULL;
    pd_error err = { 0 };

    if (pd_roles_parse(&roles, text, strlen(text), "f", &err) == PD_OK) fail_msg("\"%s\" is accepted", text);
    assert_null(roles);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

TEST(a_wrong_line_is_named)
{
    expect_wrong("a read j\na write j\n", "f:2: expected one of the roles none, read, push and admin, got write");
    expect_wrong("a read", "f:1: expected IDENTITY-GLOB ROLE JOB-GLOB");
    expect_wrong("\n\na read j k", "f:3: expected IDENTITY-GLOB");
    expect_wrong("quota a", "f:1: expected quota IDENTITY-GLOB");
    expect_wrong("quota a jobs", "f:1: expected jobs=, bytes=, ingest=, connections= or requests=, got jobs");
    expect_wrong("quota a job=1", "got job=1");
    expect_wrong("quota a jobs=-1", "expected a number, got jobs=-1");
    expect_wrong("quota a jobs=1x", "expected a number, got jobs=1x");
    expect_wrong("quota a bytes=many", "expected a size like 512M or 10G, got bytes=many");
    expect_wrong("quota a jobs=1 jobs=2", "this limit is given twice: jobs=2");
    expect_wrong("a read j\x01", "f:1: the line has a byte that is not printable");
    expect_wrong("\ta read\tj\x01", "f:1: the line has a byte that is not printable");
    expect_wrong("a read j\xff", "f:1: the line has a byte that is not printable");
}

TEST(a_glob_has_at_most_256_bytes)
{
    char text[2 * PD_GLOB_MAX + 64], glob[PD_GLOB_MAX + 2];

    memset(glob, 'a', sizeof glob);
    glob[PD_GLOB_MAX + 1] = '\0';
    snprintf(text, sizeof text, "# roles\n%s read j", glob);
    expect_wrong(text, "f:2: expected a glob of at most 256 bytes, got 257: aaaa");
    snprintf(text, sizeof text, "a read %s", glob);
    expect_wrong(text, "f:1: expected a glob of at most 256 bytes");
    snprintf(text, sizeof text, "quota %s jobs=1", glob);
    expect_wrong(text, "f:1: expected a glob of at most 256 bytes");
    glob[PD_GLOB_MAX] = '\0';
    snprintf(text, sizeof text, "%s read %s", glob, glob);
    pd_roles_free(parsed(text));
}

TEST(a_byte_0_is_refused)
{
    pd_roles *roles = NULL;
    pd_error err;

    assert_int_equal(pd_roles_parse(&roles, "a read j\n\0b admin *", 20, "f", &err), PD_INVALID_ARGUMENT);
}

/* Makes a text of n lines. */
static char *lines(size_t n)
{
    char *text = calloc(n, 9);

    assert_non_null(text);
    for (size_t i = 0; i < n; i++) memcpy(text + 9 * i, "a read b\n", 9);
    return text;
}

TEST(more_lines_or_bytes_than_allowed_are_refused)
{
    char *text = lines(PD_ROLES_LINES + 1);
    pd_roles *roles = NULL;
    pd_error err;

    assert_int_equal(pd_roles_parse(&roles, text, 9 * PD_ROLES_LINES, "f", &err), PD_OK);
    pd_roles_free(roles);
    assert_int_equal(pd_roles_parse(&roles, text, 9 * (PD_ROLES_LINES + 1), "f", &err), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "f:4097: more than 4096 lines"));
    free(text);
    text = calloc(1, PD_ROLES_BYTES + 1);
    memset(text, '\n', PD_ROLES_BYTES + 1);
    assert_int_equal(pd_roles_parse(&roles, text, PD_ROLES_BYTES, "f", &err), PD_OK);
    pd_roles_free(roles);
    assert_int_equal(pd_roles_parse(&roles, text, PD_ROLES_BYTES + 1, "f", &err), PD_RESOURCE_EXHAUSTED);
    free(text);
}

static int parse_and_copy(const void *what)
{
    pd_roles *roles = NULL, *copy = NULL;
    pd_roles_view *view = NULL;
    int rc = pd_roles_parse(&roles, what, strlen(what), "f", NULL);

    if (rc == PD_OK && (copy = pd_roles_copy(roles)) == NULL) rc = PD_NO_MEMORY;
    if (rc == PD_OK) rc = pd_roles_view_new(&view, copy, "a", &(double){ 0 });
    pd_roles_view_free(view);
    pd_roles_free(copy);
    pd_roles_free(roles);
    return rc;
}

HOLDS(no_memory_is_survived, assert_true(oom_each(parse_and_copy, sample) >= 7));

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

TEST(a_file_that_others_can_write_is_refused)
{
    char path[] = "/tmp/roles_XXXXXX";
    pd_roles *roles = NULL;
    pd_error err;

    close(mkstemp(path));
    write_file(path, sample, 0644);
    assert_int_equal(pd_roles_file_read(&roles, path, &err), PD_OK);
    pd_roles_free(roles);
    write_file(path, sample, 0664);
    assert_int_equal(pd_roles_file_read(&roles, path, &err), PD_PERMISSION_DENIED);
    assert_non_null(strstr(err.text, "run chmod go-w /tmp/roles_"));
    write_file(path, sample, 0602);
    assert_int_equal(pd_roles_file_read(&roles, path, &err), PD_PERMISSION_DENIED);
    write_file(path, "a read\n", 0600);
    assert_int_equal(pd_roles_file_read(&roles, path, &err), PD_INVALID_ARGUMENT);
    unlink(path);
    assert_int_equal(pd_roles_file_read(&roles, path, &err), PD_NOT_FOUND);
    assert_int_equal(pd_roles_file_read(&roles, "/tmp", &err), PD_PERMISSION_DENIED);
}
