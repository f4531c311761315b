/* command_line.c - reads one command's line with argp. */
#include "command_line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "result.h"

enum { MOST_OPTIONS = 8, FIRST_KEY = 256 };

/* ---- values ---- */

void pd_take_flag(const pd_line_option *option, char *value, struct argp_state *state)
{
    (void)value, (void)state;
    *(bool *)option->to = true;
}

static double seconds(const char *text, struct argp_state *state)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value > 0) || value > 1e6) {
        argp_error(state, "%s: expected a number of seconds above 0 and at most 1000000", text);
    }
    return value;
}

void pd_take_seconds(const pd_line_option *option, char *value, struct argp_state *state)
{
    *(double *)option->to = seconds(value, state);
}

void pd_take_number(const pd_line_option *option, char *value, struct argp_state *state)
{
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);

    if (end == value || *end != '\0' || errno != 0 || number < option->least || number > option->most) {
        argp_error(state, "%s: expected a whole number from %lld to %lld", value, (long long)option->least,
                   (long long)option->most);
    }
    *(int64_t *)option->to = number;
}

/* ---- the common options ---- */

static const struct argp_option common_options[] = {
    { "server",  's', "URL",     0,
      "Daemon to talk to: tcp://host:port or unix:///path (default: $PARAMD_URL, else tcp://127.0.0.1:7070)", 1 },
    { "timeout", 't', "SECONDS", 0, "Give up after so long without an answer (default 5)", 1 },
    { "json",    'j', NULL,      0, "Print JSON for machines instead of text for people", 1 },
    { 0 }
};

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
    pd_line *line = state->input;

    switch (key) {
    case 's': line->server = arg; break;
    case 't': line->timeout = seconds(arg, state); break;
    case 'j': line->json = true; break;
    default:  return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp pd_common_argp = { .options = common_options, .parser = parse_common };

/* ---- the line ---- */

pd_line pd_line_new(const pd_command *command, int argc, char **argv)
{
    argp_program_version = "paramctl " PD_VERSION;      /* assigned, not defined: a hidden symbol would be no news to
                                                         * libc */
    argp_err_exit_status = PD_EXIT_USAGE;
    return (pd_line){ .timeout = 5, .command = command, .argc = argc, .argv = argv };
}

typedef struct parsing {
    pd_line         *line;
    const pd_line_option *options;
} parsing;

static int key_of(const parsing *p, const pd_line_option *option)
{
    return option->letter != 0 ? option->letter : FIRST_KEY + (int)(option - p->options);
}

static bool is_end(const pd_line_option *option) { return option->name == NULL && option->help == NULL; }

static error_t parse_own(const parsing *p, int key, char *arg, struct argp_state *state)
{
    for (const pd_line_option *option = p->options; option != NULL && !is_end(option); option++) {
        if (option->name == NULL || key != key_of(p, option)) continue;
        option->take(option, arg, state);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static error_t parse_command_part(int key, char *arg, struct argp_state *state)
{
    parsing *p = state->input;
    pd_line *line = p->line;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = line;
        return 0;
    case ARGP_KEY_ARGS:
        line->args = state->argv + state->next;
        line->n_args = state->argc - state->next;
        return 0;
    case ARGP_KEY_END:
        if (line->n_args < line->command->least) argp_error(state, "%s is missing", line->command->args);
        if (line->n_args > line->command->most)
            argp_error(state, "%s: one argument too many", line->args[line->command->most]);
        return 0;
    default:
        return parse_own(p, key, arg, state);
    }
}

void pd_line_parse(pd_line *line, const pd_line_option *options)
{
    static const struct argp_child common[] = { { &pd_common_argp, 0, NULL, 0 }, { 0 } };
    parsing p = { line, options };
    struct argp_option own[MOST_OPTIONS + 1] = { 0 };
    struct argp argp = { .options = options != NULL ? own : NULL, .parser = parse_command_part,
                         .args_doc = line->command->args, .doc = line->command->about,
                         .children = common };
    char name[64];

    for (size_t i = 0; options != NULL && i < MOST_OPTIONS && !is_end(&options[i]); i++) {
        const pd_line_option *option = &options[i];
        own[i] = (struct argp_option){ option->name, option->name != NULL ? key_of(&p, option) : 0, option->value,
                                       0, option->help, 0 };
    }
    snprintf(name, sizeof name, "paramctl %s", line->command->name);
    line->argv[0] = name;
    if (argp_parse(&argp, line->argc, line->argv, 0, NULL, &p) != 0) exit(PD_EXIT_USAGE);
}
