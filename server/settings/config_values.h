/* config_values.h - the parts of a configuration: its keys, and their values by type. Used
 * by the thread that owns the configuration. */
#ifndef PD_CONFIG_VALUES_H
#define PD_CONFIG_VALUES_H

#include "request.h"

#define PD_KEY_NAME 64 /* bytes for the long name of a configuration key, such as server_listen */

typedef enum pd_key_type {
    PD_KEY_TEXT,
    PD_KEY_YES_NO,
    PD_KEY_COUNT,
    PD_KEY_BYTES,
    PD_KEY_TIME,
    PD_KEY_ONE_OF,
    PD_KEY_JOB
} pd_key_type;

typedef struct pd_key {
    const char *section, *name;
    pd_key_type type;
    size_t offset; /* offset of the key's value in pd_config; for a key of type PD_KEY_JOB, an index in pd_config.job */
    const char *preset;
    uint64_t least, most;        /* smallest and largest allowed value of keys whose type is a count, bytes or
                                  * milliseconds */
    bool automatic;              /* the key may have the value "auto": the daemon chooses */
    bool reload;                 /* the key's value may change while the daemon runs (reload.c) */
    const char *choices;         /* values that the key may have, such as "text|logfmt|json" */
    const char *help;            /* one sentence that explains the key, for the help and the manual */
    char long_name[PD_KEY_NAME]; /* "section_name" */
} pd_key;

typedef struct pd_config {
    /* [server] */
    char *listen, *port_file, *state_dir, *roles, *trace_file, *http_listen, *http_token;
    bool insecure, shared_memory, input_exit;
    uint64_t max_connections, trace_bytes;
    uint64_t handshake_timeout, heartbeat_interval, heartbeat_timeout;                  /* ms */
    uint64_t read_timeout, write_timeout, drain_timeout, checkpoint_timeout, idle_exit; /* ms */
    /* [tls] */
    char *tls_certificate, *tls_key, *tls_client_ca, *tls_crl, *tls_tokens;
    /* [limits] */
    uint64_t max_jobs, max_params, max_total_bytes, ingest_bytes, chunk_bytes, max_payload, max_pieces, max_header,
        hello_bytes;
    /* [threads] */
    uint64_t step_threads, pool_threads;
    uint64_t cpu;  /* chosen instruction set: its index in the list of choices of the key `cpu` */
    uint64_t numa; /* 0: auto, 1: off */
    /* [log] */
    uint64_t log_level, log_format; /* as for cpu */
    /* [job] */
    pd_option *job;
    size_t n_job; /* default options of new jobs, in the order of pd_job_keys; names and values are owned */

    pd_key *keys;
    size_t n_keys; /* number of configuration keys in the table `keys`, which is ordered by section */
    char **text;   /* text of each key's value, as the user gave it */
} pd_config;

/* Reads the value of a configuration key from a text and stores it in the key's field of *config. PD_INVALID_ARGUMENT,
 * PD_OUT_OF_RANGE: the value is wrong, and the error names the allowed values. PD_NO_MEMORY. After an error nothing has
 * changed. */
int pd_config_set_value(pd_config *config, const pd_key *key, const char *value, pd_error *err);
/* Frees the text at *text, and stores a copy of `value` there. PD_NO_MEMORY: nothing has changed. */
int pd_config_replace(char **text, const char *value, pd_error *err);

#endif
