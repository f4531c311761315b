/* paramctl.c - the operator's program: asks a daemon, or executes a program that does more (paramctl-replay and
 * others). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format.h"
#include "import_state.h"
#include "lists.h"
#include "optimizer_list.h"
#include "orders.h"
#include "overrides.h"
#include "params.h"
#include "programs.h"
#include "result.h"
#include "sibling.h"
#include "state_table.h"
#include "status.h"

/* Every command that asks a daemon. A new one needs a line here and a function. */
static const pd_command commands[] = {
    { "ping",         "",                 "Ask whether the daemon answers",                0, 0, pd_run_ping },
    { "status",       "",                 "Show memory, traffic and jobs",                 0, 0, pd_run_status },
    { "jobs",         "",                 "List jobs",                                     0, 0, pd_run_list },
    { "params",       "JOB",              "List a job's parameters and whom they wait for", 1, 1, pd_run_params },
    { "workers",      "JOB",              "List a job's workers",                          1, 1, pd_run_list },
    { "roots",        "JOB [PARAM-GLOB]", "List the inverse roots of a job's blocks",      1, 2, pd_run_list },
    { "state",        "JOB [PARAM-GLOB]", "List the tensors of a job's optimizer state",   1, 2, pd_run_state },
    { "import-state", "JOB FILE",         "Put saved optimizer state into a job",          2, 2, pd_run_import_state },
    { "optimizers",   "[NAME]",           "List optimizers, or one's hyperparameters",     0, 1, pd_run_optimizers },
    { "set",          "JOB PATTERN NAME=VALUE...", "Set hyperparameters while a job runs", 3, 2 + PD_MOST_SETTINGS,
      pd_run_set },
    { "settings",     "JOB [PARAM-GLOB]", "List what operators have set in a job",         1, 2, pd_run_settings },
    { "drop",         "JOB",              "End a job; its workers get an error",           1, 1, pd_run_drop },
    { "drain",        "",                 "Finish the open steps and take no new ones",    0, 0, pd_run_drain },
    { "shutdown",     "",                 "Stop the daemon",                               0, 0, pd_run_shutdown },
    { 0 }
};

static const pd_command *find_command(const char *name)
{
    const pd_command *const tables[] = { commands, pd_programs };

    for (size_t t = 0; t < 2; t++)
        for (const pd_command *c = tables[t]; c->name != NULL; c++)
            if (strcmp(c->name, name) == 0) return c;
    return NULL;
}

/* ---- the line up to the command ---- */

static error_t parse_line(int key, char *arg, struct argp_state *state)
{
    pd_line *line = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = line;
        return 0;
    case ARGP_KEY_ARG:
        if ((line->command = find_command(arg)) == NULL) argp_error(state, "%s: no such command", arg);
        line->argv = state->argv + state->next - 1;
        line->argc = state->argc - state->next + 1;
        state->next = state->argc;              /* the rest is the command's */
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_state_help(state, stderr, ARGP_HELP_SHORT_USAGE | ARGP_HELP_SEE);
        exit(PD_EXIT_USAGE);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void list_table(FILE *out, const pd_command *table)
{
    for (const pd_command *c = table; c->name != NULL; c++)
        fprintf(out, "  %-13s%-16s %s\n", c->name, c->args, c->about);
}

/* The list of commands, for --help. */
static char *list_commands(int key, const char *text, void *input)
{
    char *list = NULL;
    size_t size = 0;
    FILE *out;

    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC || (out = open_memstream(&list, &size)) == NULL) return (char *)text;
    fprintf(out, "Commands (paramctl COMMAND --help tells more):\n");
    list_table(out, commands);
    list_table(out, pd_programs);
    fprintf(out, "\nExit status: 0 ok, 1 the server said no or a replay failed, 2 usage, 3 unreachable.");
    fclose(out);
    return list;
}

/* ---- programs ---- */

/* Executes the program beside paramctl, else the one on PATH. Returns errno if neither can run. */
static int execute(char *program, char **argv)
{
    char path[4096];

    argv[0] = program;
    if (pd_sibling_path(path, sizeof path, program, NULL) == PD_OK) execv(path, argv);
    execvp(program, argv);
    return errno;
}

/* Hands the common options before the command's name and the rest of the line to the program. Returns only if it cannot
 * run. */
static int run_program(const pd_line *line)
{
    char **argv = calloc((size_t)line->argc + 4, sizeof *argv), program[64], timeout[64], *server = NULL;
    int n = 1, rc = argv == NULL ? ENOMEM : 0;

    snprintf(program, sizeof program, "paramctl-%s", line->command->name);
    snprintf(timeout, sizeof timeout, "--timeout=%.17g", line->timeout);
    if (line->server != NULL && asprintf(&server, "--server=%s", line->server) < 0) rc = ENOMEM;
    if (rc == 0) {
        argv[n++] = timeout;
        if (server != NULL) argv[n++] = server;
        if (line->json) argv[n++] = "--json";
        memcpy(&argv[n], line->argv + 1, (size_t)line->argc * sizeof *argv);        /* with the NULL at the end */
        rc = execute(program, argv);
    }
    pd_print_line(stderr, "paramctl: cannot run %s, neither beside paramctl nor from PATH: %s", program, strerror(rc));
    free(server);
    free(argv);
    return PD_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    static const struct argp_child common[] = { { &pd_common_argp, 0, NULL, 0 }, { 0 } };
    pd_line line = pd_line_new(NULL, argc, argv);
    struct argp argp = { .parser = parse_line, .args_doc = "COMMAND [ARGUMENT...]", .children = common,
                         .help_filter = list_commands,
                         .doc = "Asks a paramd daemon, proves a build by replaying recorded runs, measures a machine."
                                "\v(commands)" };

    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &line) != 0) return PD_EXIT_USAGE;
    return line.command->run != NULL ? line.command->run(&line) : run_program(&line);
}
