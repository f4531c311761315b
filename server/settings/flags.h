/* flags.h - reads the daemon's command line, which has a flag for every configuration key, and flags for other actions,
 * such as --help. Main thread. */
#ifndef PD_FLAGS_H
#define PD_FLAGS_H

#include "config.h"

typedef enum pd_mode { PD_SERVE, PD_CHECK_CONFIG, PD_PRINT_CONFIG, PD_SHOW_VERSION, PD_SHOW_HELP } pd_mode;

/* The exit codes of the daemon, as a list of X(name, number, help) for main and the help. */
#define PD_EXITS(X)                                                                                                    \
    X(FINE, 0, "stopped as asked, or the configuration is valid")                                                      \
    X(FAILED, 1, "could not start: an address is in use, memory or descriptors are short")                             \
    X(USAGE, 2, "a wrong flag, environment variable or configuration")                                                 \
    X(LOST, 3, "stopped as asked, but steps are lost: a last checkpoint is not on the disk")                           \
    X(REPLACED, 75, "another daemon owns this one's shard (cluster.engine)")
#define PD_EXIT(name, number, help) PD_EXIT_##name = number,
typedef enum pd_exit { PD_EXITS(PD_EXIT) } pd_exit;
#undef PD_EXIT

/* A flag that does not set a configuration key, such as --help. */
typedef struct pd_own_flag {
    char letter;                     /* short form of the flag, such as 'h' for -h; 0: it has none */
    const char *name, *value, *help; /* name: the flag's name, with '_' in place of '-'. value: the word that stands for
                                      * the flag's value in the help; NULL: the flag takes no value */
} pd_own_flag;

/* All flags that do not set a configuration key, for the parser, the help and the manual page. An element without a
 * name ends the table. */
extern const pd_own_flag pd_own_flags[];

/* What the daemon's command line asks for: what to do, and with which configuration file. */
typedef struct pd_flags {
    pd_mode mode;
    const char *file; /* the configuration file: the value of the flag --config, borrowed from argv; NULL: none */
} pd_flags;

/* Reads the configuration: the file of --config, then the environment, then the flags. A later source overrides an
 * earlier one. With --help or --version, no source is read.
 *
 * PD_INVALID_ARGUMENT, PD_NOT_FOUND: a flag, variable, key or value is wrong; the error names the nearest valid one. */
int pd_flags_read(pd_config *config, char *const *argv, char *const *environment, pd_flags *flags, pd_error *err);
/* Returns the flags that give a daemon this configuration, one on each line: --server-listen=VALUE, and a flag for each
 * other key whose value is not the default. The caller frees the text. Returns NULL if out of memory. */
char *pd_flags_text(const pd_config *config);
/* Prints the help to `out`: every flag, and the default value of every configuration key. */
void pd_flags_help(const pd_config *config, FILE *out);

#endif
