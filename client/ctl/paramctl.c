/* paramctl.c - the main program of paramctl, for operators. It runs small commands itself, by requests to a daemon.
 * Larger commands are programs of their own, such as paramctl-replay, which paramctl executes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "commands.h"
#include "connection.h"
#include "format.h"
#include "text.h"
#include "programs.h"

#define CLEAR "\033[H\033[2J" /* terminal codes that move to the upper left corner and erase the screen */

static const pd_command *const tables[] = { pd_commands, pd_programs, NULL };

/* Returns the command of paramctl that has this name. Ends the program if there is none. */
static const pd_command *find_command(const pd_line *line, const char *name)
{
    pd_nearest near = pd_nearest_begin(name, strlen(name));

    for (const pd_command *const *table = tables; *table != NULL; table++)
        for (const pd_command *c = *table; c->name != NULL; c++) {
            if (strcmp(c->name, name) == 0) return c;
            pd_nearest_offer(&near, c->name);
        }
    if (near.best != NULL) pd_line_refuse(line, "unknown command %s; did you mean %s?", name, near.best);
    pd_line_refuse(line, "unknown command %s", name);
}

/* Prints the help of the command on the command line; without a command, the list of all commands. */
static int help(const pd_line *line)
{
    const char *name = line->argc > 1 && strcmp(line->argv[0], "help") == 0 ? line->argv[1] : NULL;

    if (name != NULL && name[0] != '-')
        pd_help_command(stdout, find_command(line, name));
    else
        pd_help_all(stdout, tables);
    return PD_CTL_OK;
}

/* Executes a program: the one in the folder of paramctl, or if that cannot run, the one on PATH. Returns errno if
 * neither can run. */
static int execute(char *program, char **argv)
{
    char path[4096];

    argv[0] = program;
    if (pd_sibling_path(path, sizeof path, program, NULL) == PD_OK) execv(path, argv);
    execvp(program, argv);
    return errno;
}

/* Adds the options that stand before the command's name to the arguments of the program that is to be executed.
 * Returns false if out of memory. */
static bool add_common(char **argv, const pd_line *line)
{
    for (size_t i = 0; i < line->n_given; i++) {
        const pd_given *given = &line->given[i];
        bool valued = given->value != NULL;
        if (asprintf(&argv[i], "--%s%s%s", given->option->name, valued ? "=" : "", valued ? given->value : "") < 0)
            return false;
    }
    return true;
}

/* Executes the program of a command (paramctl-NAME) with the options that stand before the command's name and with
 * the rest of the command line. Returns only if the program cannot run. */
static int run_program(const pd_line *line)
{
    char **argv = calloc(line->n_given + (size_t)line->argc + 2, sizeof *argv), program[64];
    int rc = ENOMEM;

    snprintf(program, sizeof program, "paramctl-%s", line->command->name);
    if (argv != NULL && add_common(argv + 1, line)) {
        /* Copies the words of the command line that remain (argc), and the NULL after them. */
        memcpy(argv + 1 + line->n_given, line->argv + 1, (size_t)line->argc * sizeof *argv);
        rc = execute(program, argv);
    }
    pd_print_line(stderr, "paramctl: cannot run %s, neither beside paramctl nor from PATH: %s", program, strerror(rc));
    for (size_t i = 0; argv != NULL && i < line->n_given; i++) free(argv[1 + i]);
    free(argv);
    return PD_CTL_FAILED;
}

/* Returns whether the user gave --watch with a command that has this option. */
static bool watches(const pd_line *line)
{
    for (const pd_command_option *o = line->command->options; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, "watch") == 0) return pd_line_has(line, "watch");
    return false;
}

/* Returns how many bytes of a text fit on the terminal. The last line of the terminal stays free for the cursor. */
static size_t fitting(const char *text, size_t n)
{
    struct winsize size;
    const char *at = text;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2) return n;
    for (int row = 1; row < size.ws_row && *at != '\0'; row++) at += strcspn(at, "\n") + (strchr(at, '\n') != NULL);
    return (size_t)(at - text);
}

/* Runs the command with its output going to memory, then clears the terminal and shows as much of the output as
 * fits. After an error the terminal keeps the last answer, with the error below it. */
static int show(pd_line *line)
{
    FILE *terminal = stdout, *answer;
    char *text = NULL;
    size_t n;
    int status;

    if ((answer = open_memstream(&text, &n)) == NULL) return line->command->run(line);
    stdout = answer; /* glibc allows a program to assign to stdout */
    status = line->command->run(line);
    stdout = terminal;
    fclose(answer);
    if (status == PD_CTL_OK) {
        fputs(CLEAR, stdout);
        n = fitting(text, n);
    }
    fwrite(text, 1, n, stdout);
    free(text);
    return status;
}

/* Prints what the command has to say about daemons that have not answered. */
static void tell_missing(pd_asked *asked)
{
    if (asked->lines == NULL) return;
    fflush(stdout);
    if (!asked->quiet) fputs(asked->lines, stderr);
    free(asked->lines);
    asked->lines = NULL;
}

/* Runs the command once, or with --watch again and again until it fails. On a terminal each answer replaces the one
 * before, cut to the terminal's height. Elsewhere an empty line separates the answers. Returns an exit status. */
static int watch(pd_line *line)
{
    bool screen = isatty(STDOUT_FILENO) != 0;
    int status;

    if (!watches(line) || (screen && line->command->draws)) return line->command->run(line);
    for (bool first = true;; first = false) {
        if (!first && !screen) fputc('\n', stdout);
        status = screen ? show(line) : line->command->run(line);
        tell_missing(line->asked);
        if (fflush(stdout) != 0 || status != PD_CTL_OK) return status;
        pd_pause_s(pd_line_seconds(line, "watch"));
    }
}

int main(int argc, char **argv)
{
    pd_line line = pd_line_new(NULL, argc, argv);
    const char *name = pd_line_parse_common(&line);
    int status;

    if (name == NULL && !pd_line_has(&line, "help")) {
        pd_help_all(stderr, tables);
        return PD_CTL_USAGE;
    }
    if (name == NULL || strcmp(name, "help") == 0) return help(&line);
    line.command = find_command(&line, name);
    if (line.command->run == NULL) return run_program(&line);
    pd_line_parse(&line);
    status = watch(&line);
    tell_missing(line.asked);
    if (status == PD_CTL_OK) status = line.asked->status;
    if (fflush(stdout) != 0 && status == PD_CTL_OK) {
        fprintf(stderr, "paramctl: cannot write the output: %s\n", strerror(errno));
        return PD_CTL_FAILED;
    }
    return status;
}
