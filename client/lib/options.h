/* options.h - the settings of a client handle, from pd_client_options, the environment and defaults. */
#ifndef PD_OPTIONS_H
#define PD_OPTIONS_H

#include "core.h"
#include "tls_context.h"

typedef struct pd_settings {
    const char *urls; /* text that belongs to the options or the environment */
    pd_tls_files tls; /* texts that belong to the options or the environment; NULL: none */
    double deadline, slice;
    /* settings of the core; their texts belong to the options or the environment */
    pd_core_config core;
    char label[160];
    char job[256]; /* the name of the job, if the library has made it up */
    char run[160]; /* the run, if the library has composed it */
} pd_settings;

/* Fills in the settings. PD_INVALID_ARGUMENT: an option or environment variable has no valid value; the error names it.
 * Don't copy `settings` afterwards: it has pointers to its own fields. */
int pd_settings_resolve(pd_settings *settings, const pd_client_options *options, pd_error *err);

#endif
