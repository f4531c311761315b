/* command_line.h - reads the command line of one command, as the command's table of options describes it.
 *
 *     pd_line line = pd_line_new(command, argc, argv);
 *     pd_line_parse(&line);
 *     int64_t from = pd_line_number(&line, "from");
 *
 * Options may stand before and after arguments; "--" ends the options. Option names cannot be abbreviated. */
#ifndef PD_COMMAND_LINE_H
#define PD_COMMAND_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "command.h"

enum { PD_MOST_GIVEN = 192 }; /* most options in one command line */

/* An option that the user gave, and its value. */
typedef struct pd_given {
    const pd_command_option *option;
    const char *value; /* NULL if the option is a flag */
} pd_given;

struct pd_line {
    const pd_command *command; /* NULL while the command is not known */
    const char *server;        /* value of --server; NULL: not given, so the client library takes its default */
    double timeout;            /* --timeout, in seconds */
    bool json, wide;           /* --output */
    char **args;               /* arguments, without options */
    int n_args;
    char **argv; /* words that are not read yet, beginning with the command's name */
    int argc;
    pd_given given[PD_MOST_GIVEN];
    size_t n_given;
};

/* Makes a line with nothing read yet. `command` is NULL in paramctl itself, where the command's name follows later
 * in argv. */
pd_line pd_line_new(const pd_command *command, int argc, char **argv);
/* Reads the options that precede the command's name. Only options that all commands have may stand there. Returns
 * the command's name; argv then begins with it. NULL: the line has no command. Ends the program on errors. */
const char *pd_line_parse_common(pd_line *line);
/* Reads the options and arguments of line->command. Ends the program on --help, --version and errors. */
void pd_line_parse(pd_line *line);
/* Prints an error and a hint at --help, and ends the program with PD_EXIT_USAGE. */
_Noreturn void pd_line_refuse(const pd_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Return the value of an option of the command. If it was given several times, the last one counts; if not at all,
 * its default. */
bool pd_line_has(const pd_line *line, const char *name); /* whether the user gave the option */
const char *pd_line_text(const pd_line *line, const char *name);
int64_t pd_line_number(const pd_line *line, const char *name);
double pd_line_seconds(const pd_line *line, const char *name);
/* Writes all values of an option that may be repeated. Returns their number. Ends the program if there are more than
 * `most`. */
size_t pd_line_texts(const pd_line *line, const char *name, char **values, size_t most);

#endif
