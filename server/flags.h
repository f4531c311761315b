/* flags.h - the daemon's command line: a flag for every configuration key, and modes beside serving. Main thread. */
#ifndef PD_FLAGS_H
#define PD_FLAGS_H

#include "config.h"

typedef enum pd_mode { PD_SERVE, PD_CHECK_CONFIG, PD_PRINT_CONFIG, PD_SHOW_VERSION } pd_mode;

/* Reads flags (--section-key=value or --key=value), the file of --config, and the environment into *config, in their
 * order of precedence. --help, --usage and an unknown flag end the process. Errors are those of pd_config_set. */
int pd_flags_read(pd_config *config, int argc, char **argv, char *const *environment, pd_mode *mode, pd_error *err);

#endif
