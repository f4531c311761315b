/* config.h - the daemon's configuration: one table of keys, and their values. The main thread owns one
 * configuration; the thread that reloads makes another (reload.h).
 *
 *     pd_config_new(&config);                              defaults
 *     pd_config_read_file(config, path, &err);             key = value in [sections]
 *     pd_config_read_environment(config, environ, &err);   PARAMD_KEY or PARAMD_SECTION_KEY
 *     pd_config_set_key(config, key, value, &err)          flags: --key=value or --section-key=value (flags.h)
 *     pd_config_check(config, &err);                       everything that startup checks
 *
 * units.h describes how sizes and durations are written. The value "auto", which some keys accept, is stored as 0. */
#ifndef PD_CONFIG_H
#define PD_CONFIG_H

#include "text.h"
#include "request.h"
#include "tls_context.h"

#include <stdio.h>

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
    struct {
        char *certificate, *key, *client_ca, *crl, *tokens;
    } tls;
    struct {
        uint64_t max_jobs, max_params, max_total_bytes, ingest_bytes, chunk_bytes, max_payload, max_pieces, max_header,
            hello_bytes;
    } limits;
    struct {
        uint64_t step_threads, pool_threads;
        uint64_t cpu;  /* chosen instruction set: its index in the list of choices of the key `cpu` */
        uint64_t numa; /* 0: auto, 1: off */
    } threads;
    struct {
        uint64_t level, format; /* as for cpu */
    } log;
    /* [job] */
    pd_option *job;
    size_t n_job; /* default options of new jobs, in the order of pd_job_keys; names and values are owned */

    pd_key *keys;
    size_t n_keys; /* number of configuration keys in the table `keys`, which is ordered by section */
    char **text;   /* text of each key's value, as the user gave it */
} pd_config;

/* Makes a configuration with the default values. Returns NULL if out of memory. */
pd_config *pd_config_new(void);
void pd_config_free(pd_config *config); /* accepts NULL */

/* Finds a configuration key by its long name (with the section), such as "server_listen", or by its short name, such as
 * "listen". Returns NULL if there is no such key. */
const pd_key *pd_config_find(const pd_config *config, const char *name);
/* Adds the names of all configuration keys to a search for the name that is nearest to a mistyped one. */
void pd_config_offer(const pd_config *config, pd_nearest *search);
/* Returns whether a configuration key may be given by its short name: no other section has a key of the same name, or
 * its section is [server]. */
bool pd_key_is_short(const pd_config *config, const pd_key *key);
/* Returns whether the values of a configuration key are yes and no. Then its flag on the command line needs no
 * value. */
bool pd_key_is_flag(const pd_key *key);
/* Returns a sentence that describes a section of the configuration; "" if there is no such section. */
const char *pd_section_help(const char *section);
/* Returns whether a key has different values in two configurations. */
bool pd_config_differs(const pd_config *a, const pd_config *b, const pd_key *key);

/* Sets the value of a configuration key. PD_INVALID_ARGUMENT, PD_OUT_OF_RANGE: the value is wrong, and the error names
 * the allowed values. After an error nothing has changed. */
int pd_config_set_key(pd_config *config, const pd_key *key, const char *value, pd_error *err);
/* Sets the value of the configuration key with this section and name. PD_NOT_FOUND: there is no such key; the error
 * names the nearest one. */
int pd_config_set(pd_config *config, const char *section, const char *name, const char *value, pd_error *err);
/* Reads a configuration file with lines "key = value" in sections. A comment begins with # or ;, at the beginning of a
 * line or after a blank.
 *
 * PD_NOT_FOUND: the file cannot be read. Other errors begin with file:line; the keys above that line are already
 * set. */
int pd_config_read_file(pd_config *config, const char *path, pd_error *err);
/* Reads the configuration from environment variables PARAMD_KEY and PARAMD_SECTION_KEY. Ignores variables of paramd's
 * other programs (the table in config_sources.c).
 *
 * PD_NOT_FOUND: a variable PARAMD_... is neither a key nor in that table; the error names the nearest key or
 * variable. */
int pd_config_read_environment(pd_config *config, char *const *environment, pd_error *err);
/* Takes the value of a key, which must be a number, a choice or a text that nobody has borrowed, from another
 * configuration. The texts of the two values change places, so that each configuration still owns one of them. */
void pd_config_take(pd_config *config, pd_config *from, const pd_key *key);
/* Replaces the value "auto" of keys by a value for this machine. Then checks rules about several keys, the files
 * of [tls], and the addresses to listen on, which includes looking host names up. Errors are PD_INVALID_ARGUMENT and
 * those of tls_setup.h and reach.h. */
int pd_config_check(pd_config *config, pd_error *err);
/* Returns limits.ingest_bytes where it is "auto", for a process that may use so much memory. */
uint64_t pd_config_ingest_bytes(uint64_t memory, uint64_t max_payload);
/* Reads the keys of tls:// addresses from the files of the section [tls]. *out is NULL if `listen`, a value of
 * server.listen, has no such address, and the service manager has passed no socket named tls. Errors are those of
 * pd_tls_setup. */
int pd_config_tls(const pd_config *config, const char *listen, pd_tls_context **out, pd_error *err);
/* Returns whether the section [tls] lets clients of tls:// addresses in only if they prove who they are. */
bool pd_config_identifies(const pd_config *config);
/* Returns the name of the instruction set (such as AVX2) that the configuration chooses, or "auto", for pd_cpu_use. */
const char *pd_config_cpu(const pd_config *config);
/* Writes a configuration file with every key and its explanation. pd_config_read_file reads the same values back
 * from it. */
void pd_config_print(const pd_config *config, FILE *out);

/* Writes a text in lines of at most 96 columns, each of which begins with `indent`. */
void pd_words_print(const char *words, const char *indent, FILE *out);

#endif
