/* config.h - the daemon's configuration: one table of keys, and their values. Main thread.
 *
 *     pd_config_new(&config);                              defaults
 *     pd_config_read_file(config, path, &err);             key = value in [sections]
 *     pd_config_read_environment(config, environ, &err);   PARAMD_SECTION_KEY
 *     pd_config_set(config, "server", "listen", "...")     flags: --section-key=value (flags.h)
 *     pd_config_check(config, &err);                       rules about several keys
 *
 * Sizes take KiB, MiB, GiB, TiB; durations ms, s, min, h; "auto" where the table allows it is stored as 0. */
#ifndef PD_CONFIG_H
#define PD_CONFIG_H

#include "request.h"

#include <stdio.h>

typedef enum pd_key_type { PD_KEY_TEXT, PD_KEY_YES_NO, PD_KEY_COUNT, PD_KEY_BYTES, PD_KEY_TIME, PD_KEY_ONE_OF,
                           PD_KEY_JOB } pd_key_type;

typedef struct pd_key {
    const char *section, *name;
    pd_key_type type;
    size_t      offset;                 /* of its value in pd_config; PD_KEY_JOB: index in pd_config.job */
    const char *preset;
    uint64_t    least, most;            /* of counts, bytes and milliseconds, besides "auto" */
    bool        automatic;              /* takes "auto" */
    const char *choices;                /* PD_KEY_ONE_OF: "text|logfmt|json" */
    const char *help;                   /* one sentence */
} pd_key;

typedef struct pd_config {
    /* [server] */
    char    *listen, *unix_socket, *port_file;
    bool     insecure;
    uint64_t max_connections;
    uint64_t handshake_timeout, heartbeat_interval, heartbeat_timeout;          /* ms */
    uint64_t read_timeout, write_timeout, drain_timeout;                        /* ms */
    /* [limits] */
    uint64_t max_jobs, max_params, max_total_bytes, ingest_bytes, chunk_bytes, max_payload, max_pieces, max_header,
        hello_bytes;
    /* [threads] */
    uint64_t step_threads, pool_threads;
    /* [log] */
    uint64_t log_level, log_format;     /* index of the choice */
    /* [job] */
    pd_option *job; size_t n_job;       /* in the order of pd_job_keys; names and values are owned */

    pd_key  *keys; size_t n_keys;       /* the whole table, ordered by section */
    char   **text;                      /* of each key's value, as given */
} pd_config;

/* Gives a configuration of defaults. NULL: out of memory. */
pd_config *pd_config_new(void);
void       pd_config_free(pd_config *config);           /* accepts NULL */

/* Sets a key. PD_NOT_FOUND: there is no such key; the error names the nearest one. PD_INVALID_ARGUMENT,
 * PD_OUT_OF_RANGE: the error says which values are allowed. After an error nothing has changed. */
int  pd_config_set(pd_config *config, const char *section, const char *name, const char *value, pd_error *err);
/* Reads a file. PD_NOT_FOUND: the file cannot be read. Other errors begin with file:line. Keys before the faulty line
 * are set. */
int  pd_config_read_file(pd_config *config, const char *path, pd_error *err);
/* Reads the variables PARAMD_SECTION_KEY of known sections. Other variables that begin with PARAMD_ are ignored. */
int  pd_config_read_environment(pd_config *config, char *const *environment, pd_error *err);
/* Replaces "auto" by values for this machine, then checks rules about several keys. */
int  pd_config_check(pd_config *config, pd_error *err);
/* Writes a file that pd_config_read_file reads back to the same values, with every key explained. */
void pd_config_print(const pd_config *config, FILE *out);

#endif
