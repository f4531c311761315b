/* command.h - the commands of paramctl as tables: names, arguments, options, help and exit statuses.
 *
 * The help, the parser, the manual pages and the shell completions all come from these tables. A command of paramctl
 * itself is a row of ctl/commands.c. A command that is a program of its own is a row of programs.c. */
#ifndef PD_COMMAND_H
#define PD_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_line pd_line; /* command_line.h */

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
    char letter; /* 0: none */
    pd_option_kind kind;
    /* Name of the option's value in the help, such as "SECONDS". For PD_OPTION_CHOICE: the allowed words, such as
     * "text|json". */
    const char *value;
    const char *help;   /* help text of the option: a sentence without a full stop */
    const char *preset; /* value of the option if the user does not give it; NULL: none */
    /* Value of the option if the user gives --name without "=VALUE". NULL: the option needs a value. */
    const char *alone;
    int64_t least, most;
} pd_command_option;

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
enum { PD_EXIT_OK = 0, PD_EXIT_FAILED = 1, PD_EXIT_USAGE = 2, PD_EXIT_UNREACHABLE = 3 };

/* An environment variable that paramctl reads, and its help text. */
typedef struct pd_variable {
    const char *name, *help;
} pd_variable;

/* Environment variables that all commands read; the last row is empty. */
extern const pd_variable pd_variables[];

/* Help text of each exit status, indexed by its number; the last entry is NULL. */
extern const char *const pd_exit_texts[];

#endif
