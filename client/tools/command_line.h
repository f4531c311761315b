/* command_line.h - one command's line: the options that every command takes, its own options, and its arguments.
 *
 *     int64_t from = 0;
 *     const pd_line_option options[] = {
 *         { "from", 0, "STEP", "Step from which it holds", pd_take_number, &from, 1, INT64_MAX }, { 0 }
 *     };
 *     pd_line_parse(line, options); */
#ifndef PD_COMMAND_LINE_H
#define PD_COMMAND_LINE_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct pd_line pd_line;

/* A command of paramctl. */
typedef struct pd_command {
    const char *name;
    const char *args, *about;           /* as the help shows them */
    int         least, most;            /* number of arguments */
    int       (*run)(pd_line *line);    /* prints an answer, returns an exit status; NULL: program paramctl-NAME */
} pd_command;

struct pd_line {
    const char *server;                 /* --server; NULL: not given, the client library has a default */
    double      timeout;                /* --timeout, seconds */
    bool        json;                   /* --json */
    char      **args;                   /* the arguments behind the options */
    int         n_args;
    const pd_command *command;
    int         argc;                   /* the line from the command's name on */
    char      **argv;
};

/* An option that one command has. A row without name is a text below the options. */
typedef struct pd_line_option pd_line_option;
struct pd_line_option {
    const char *name;
    int         letter;                 /* 0: none */
    const char *value;                  /* as the help shows it; NULL: takes none */
    const char *help;
    /* stores the value; ends the program if it is wrong */
    void      (*take)(const pd_line_option *option, char *value, struct argp_state *state);
    void       *to;
    int64_t     least, most;            /* pd_take_number */
};

void pd_take_flag(const pd_line_option *option, char *value, struct argp_state *state);          /* bool */
void pd_take_seconds(const pd_line_option *option, char *value, struct argp_state *state);       /* double */
void pd_take_number(const pd_line_option *option, char *value, struct argp_state *state);        /* int64_t */

/* A line with the presets. Names the program for --version. */
pd_line pd_line_new(const pd_command *command, int argc, char **argv);
/* Reads the line by the command's options, up to an empty row (NULL: the common ones). Ends the program after help and
 * errors. */
void pd_line_parse(pd_line *line, const pd_line_option *options);
/* The common options, into the pd_line that is argp's input: for a line whose command is not known yet. */
extern const struct argp pd_common_argp;

#endif
