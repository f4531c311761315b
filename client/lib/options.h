/* options.h - finds the settings of a client handle, from pd_client_options, the environment and defaults. */
#ifndef PD_OPTIONS_H
#define PD_OPTIONS_H

#include "core.h"
#include "tls_context.h"

/* The settings of a client handle. Its pointers lead to texts in the options, the environment or its own fields. */
typedef struct pd_settings {
    const char *urls;       /* addresses, separated by commas */
    pd_tls_files tls;       /* paths of the files for tls:// addresses; NULL: none */
    double deadline, slice; /* most seconds that a call waits in all, and before the user can interrupt it */
    pd_core_config core;
    char label[160]; /* the default label */
    char job[256];   /* the name of the job, if the library has made it up */
    char run[160];   /* the run, if the library has composed it */
} pd_settings;

/* Fills in the settings. PD_INVALID_ARGUMENT: an option or environment variable has no valid value; the error names it.
 * The caller must not copy `settings` afterwards, since it has pointers to its own fields. */
int pd_settings_resolve(pd_settings *settings, const pd_client_options *options, pd_error *err);

#endif
