/* access_commands.c - runs the commands about access: roles (who may do what) and token (makes a token). */
#include "commands.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "format.h"
#include "result.h"
#include "trusted_files.h"
#include "token.h"

/* What the file of roles says about an identity and a job: its role for the job and for the server, its quota, and the
 * numbers of the lines that decide these (0: no line). */
typedef struct answer {
    pd_role role, server;
    pd_allowance quota;
    unsigned line, server_line, quota_line;
} answer;

static const char *const meanings[] = {
    [PD_ROLE_NONE] = "nothing, and is not told whether the job exists",
    [PD_ROLE_READ] = "look at the job and export its weights",
    [PD_ROLE_PUSH] = "the same as read, and be a worker of the job, create it, and save and load its state",
    [PD_ROLE_ADMIN] = "everything with the job",
};

static const char *line_text(char text[32], unsigned line)
{
    if (line == 0)
        snprintf(text, 32, "no line matches");
    else
        snprintf(text, 32, "line %u", line);
    return text;
}

static void print_limit(const char *name, uint64_t value, bool bytes)
{
    char text[PD_CELL];

    if (value == PD_UNLIMITED)
        printf(" %s=unlimited", name);
    else if (bytes)
        printf(" %s=%s", name, pd_bytes_text(text, value));
    else
        printf(" %s=%" PRIu64, name, value);
}

static void print_answer(const pd_line *line, const answer *a)
{
    char text[32];

    pd_print_line(stdout, "%s may do for %s: %s", line->args[2], line->args[3], meanings[a->role]);
    printf("role    %s (%s)\n", pd_role_name(a->role), line_text(text, a->line));
    printf("server  %s (%s)\n", pd_role_name(a->server), line_text(text, a->server_line));
    printf("quota  ");
    print_limit("jobs", a->quota.jobs, false);
    print_limit("bytes", a->quota.bytes, true);
    if (a->quota.ingest == PD_UNLIMITED)
        printf(" ingest=half");
    else
        print_limit("ingest", a->quota.ingest, true);
    print_limit("connections", a->quota.connections, false);
    print_limit("requests", a->quota.requests, false);
    printf(" (%s)\n", line_text(text, a->quota_line));
}

/* Returns a limit as JSON; null: there is no limit. */
static json_t *limit_json(uint64_t value)
{
    return value == PD_UNLIMITED ? json_null() : json_integer((json_int_t)value);
}

static json_t *answer_json(const pd_line *line, const answer *a)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:i, s:{s:o, s:o, s:o, s:o, s:o, s:i}}", "identity", line->args[2],
                     "job", line->args[3], "role", pd_role_name(a->role), "line", (int)a->line, "server_role",
                     pd_role_name(a->server), "server_line", (int)a->server_line, "quota", "jobs",
                     limit_json(a->quota.jobs), "bytes", limit_json(a->quota.bytes), "ingest",
                     limit_json(a->quota.ingest), "connections", limit_json(a->quota.connections), "requests",
                     limit_json(a->quota.requests), "line", (int)a->quota_line);
}

int pd_run_roles(pd_line *line)
{
    answer a = { .role = PD_ROLE_NONE };
    pd_roles *roles = NULL;
    pd_error err = { 0 };

    if (strcmp(line->args[0], "check") != 0)
        pd_line_refuse(line, "%.60s: expected roles check FILE IDENTITY JOB", line->args[0]);
    if (pd_roles_file_read(&roles, line->args[1], &err) != PD_OK) return pd_result_fail_reached(line->json, &err);
    a.role = pd_roles_of(roles, line->args[2], line->args[3], &a.line);
    a.server = pd_roles_of_server(roles, line->args[2], &a.server_line);
    a.quota = pd_roles_allowance(roles, line->args[2], &a.quota_line);
    pd_roles_free(roles);
    if (line->json) return pd_result_json(answer_json(line, &a));
    print_answer(line, &a);
    return PD_CTL_OK;
}

/* Tells a person at a terminal where to put the token's line. Prints nothing if a program reads the output. */
static void explain(void)
{
    if (!isatty(STDOUT_FILENO) && !isatty(STDERR_FILENO)) return;
    fprintf(stderr,
            "Add the line to the daemon's file of tokens (tls.tokens), and reload the daemon. The worker's file\n"
            "(PARAMD_TOKEN_FILE) has the same line. Then: chmod 600 FILE\n");
}

int pd_run_token(pd_line *line)
{
    char text[PD_TOKEN_LINE];
    pd_error err;

    if (strcmp(line->args[0], "new") != 0) pd_line_refuse(line, "%.60s: expected token new ID", line->args[0]);
    if (pd_token_new(text, line->args[1], &err) != PD_OK) return pd_result_fail_reached(line->json, &err);
    if (line->json) return pd_result_json(json_pack("{s:s}", "token", text));
    explain();
    printf("%s\n", text);
    return PD_CTL_OK;
}
