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

enum { PD_MOST_GIVEN = 192 }; /* most options that one command line may have */

/* An option that the user gave, and its value. */
typedef struct pd_given {
    const pd_command_option *option;
    const char *value; /* text of the option's value; NULL if the option is a flag */
} pd_given;

struct pd_line {
    const pd_command *command; /* command of paramctl; NULL until its name has been read */
    /* address that --server names; NULL: not given, so the client library takes its default */
    const char *server;
    char local[128]; /* that address, if --server names a local daemon */
    double timeout;  /* --timeout, in seconds */
    bool json, wide; /* --output */
    char **args;     /* arguments, without options */
    int n_args;
    char **argv; /* words of the command line that are not read yet, beginning with the command's name */
    int argc;
    pd_given given[PD_MOST_GIVEN];
    size_t n_given;
};

/* Makes a pd_line for a command line of which nothing is read yet. `command` is NULL in paramctl itself, where the
 * command's name follows later in argv. */
pd_line pd_line_new(const pd_command *command, int argc, char **argv);
/* Reads the options that stand before the command's name. Only options that all commands have may stand there.
 * Returns the command's name; argv then begins with it. NULL: the command line names no command. Ends the program
 * on errors. */
const char *pd_line_parse_common(pd_line *line);
/* Reads the options and arguments of the command. Ends the program if they are wrong, or after --help or --version. */
void pd_line_parse(pd_line *line);
/* Prints an error and a hint at --help, and ends the program with PD_EXIT_USAGE. */
_Noreturn void pd_line_refuse(const pd_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Return the value of an option of the command. If the user gave the option several times, the last value counts;
 * if the user did not give it, its default counts. */
bool pd_line_has(const pd_line *line, const char *name); /* returns whether the user gave the option */
const char *pd_line_text(const pd_line *line, const char *name);
int64_t pd_line_number(const pd_line *line, const char *name);
double pd_line_seconds(const pd_line *line, const char *name);
/* Writes all values of an option that may be repeated to `values`. Returns their number. Ends the program if there
 * are more than `most`. */
size_t pd_line_texts(const pd_line *line, const char *name, char **values, size_t most);

#endif
