/* command_line.h - the commands of paramctl as tables, and the parser of their command lines.
 *
 * The help, the parser, the manual pages and the shell completions all come from these tables. A command of paramctl
 * itself is a row of ctl/command_table.c. A command that is a program of its own is a row of programs.c.
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
#include <stdint.h>
#include <stdio.h>

typedef struct pd_line pd_line;

typedef enum pd_option_kind {
    PD_OPTION_FLAG,    /* takes no value */
    PD_OPTION_TEXT,    /* the value is any text; the option may be repeated if its help says so */
    PD_OPTION_NUMBER,  /* the value is a whole number from `least` to `most` */
    PD_OPTION_SECONDS, /* the value is a duration: "2", "2s", "500ms", "1m", "1h" */
    PD_OPTION_CHOICE   /* the value is one of the words listed in `value` */
} pd_option_kind;

/* An option of a command, written --name; if `letter` is set, also -letter. */
typedef struct pd_command_option {
    const char *name;
    char letter; /* one-letter form of the option; 0: none */
    pd_option_kind kind;
    /* Name of the option's value in the help, such as "SECONDS". For PD_OPTION_CHOICE: the allowed words, such as
     * "text|json". */
    const char *value;
    const char *help;   /* help text of the option: a sentence without a full stop */
    const char *preset; /* value of the option if the user does not give it; NULL: none */
    /* Value of the option if the user gives --name without "=VALUE". NULL: the option needs a value. */
    const char *alone;
    int64_t least, most; /* for PD_OPTION_NUMBER: smallest and largest value */
} pd_command_option;

/* A command of paramctl: a row of a table of commands. */
typedef struct pd_command {
    const char *name, *args; /* args: the arguments in the form that the help shows, "JOB [PARAM-GLOB]" */
    const char *about;       /* help text of the command: one line that begins with a verb */
    const char *details;     /* more help about the command: paragraphs separated by newlines; NULL: none */
    /* Options of this command alone; the last row is empty. NULL: it has no options of its own. */
    const pd_command_option *options;
    int least, most; /* least and largest number of arguments of the command */
    /* On a terminal the command draws a whole screen and repeats by itself, so --watch does not repeat it. */
    bool draws;
    /* Runs the command and returns an exit status. NULL: the command is a program of its own, paramctl-NAME. */
    int (*run)(pd_line *line);
} pd_command;

/* Options that all commands have; the last row is empty. */
extern const pd_command_option pd_common_options[];

/* The row of --watch, for the option table of a command that can be repeated. */
#define PD_WATCH_OPTION                                                                                                \
    {                                                                                                                  \
        .name = "watch", .letter = 'w', .kind = PD_OPTION_SECONDS, .value = "PERIOD",                                  \
        .help = "Ask again and again; on a terminal the new answer takes the place of the old one", .alone = "2s"      \
    }

/* Exit statuses of paramctl and its programs. */
enum { PD_CTL_OK = 0, PD_CTL_FAILED = 1, PD_CTL_USAGE = 2, PD_CTL_UNREACHABLE = 3 };

/* An environment variable that paramctl reads, and its help text. */
typedef struct pd_variable {
    const char *name, *help;
} pd_variable;

/* Environment variables that all commands read; the last row is empty. */
extern const pd_variable pd_variables[];

/* Help text of each exit status, indexed by its number; the last entry is NULL. */
extern const char *const pd_exit_texts[];

enum { PD_MOST_GIVEN = 192 }; /* most options that one command line may have */

/* An option that the user gave, and its value. */
typedef struct pd_given {
    const pd_command_option *option;
    const char *value; /* text of the option's value; NULL if the option is a flag */
} pd_given;

/* What a command that asks several daemons has to say besides its answer (ask_all.h). */
typedef struct pd_asked {
    int status;  /* exit status of the worst error of a daemon whose answer is missing; PD_CTL_OK: none is missing */
    char *lines; /* lines about these errors, for standard error; NULL: there are none */
    bool quiet;  /* the lines are not printed */
    /* Addresses of each daemon of a cluster, which live as long as the program; NULL: --server or PARAMD_URL name one
     * daemon, and no more are known. n_shards: number of daemons, at least 1. */
    char **shards;
    size_t n_shards;
    uint32_t shard; /* the daemon that has sent the entry of a list that is being handled */
} pd_asked;

/* A command line while it is read, and its options and arguments. */
struct pd_line {
    const pd_command *command; /* command of paramctl; NULL until its name has been read */
    /* address that --server names; NULL: not given, so the client library takes its default */
    const char *server;
    pd_asked *asked;
    char local[128]; /* memory for `server` if --server gives the name of a local daemon */
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
/* Reads the options that stand before the command's name. Only options that all commands have may stand there. Returns
 * the command's name; argv then begins with it. NULL: the command line names no command. Ends the program on errors. */
const char *pd_line_parse_common(pd_line *line);
/* Reads the options and arguments of the command. Ends the program if they are wrong, or after --help or --version. */
void pd_line_parse(pd_line *line);
/* Prints an error and a hint at --help, and ends the program with PD_CTL_USAGE. */
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

/* Prints the help of one command of paramctl: usage, options, exit statuses. */
void pd_help_command(FILE *out, const pd_command *command);
/* Prints the list of all commands and the common options. `tables` is an array of command tables that ends with
 * NULL. */
void pd_help_all(FILE *out, const pd_command *const *tables);

#endif
