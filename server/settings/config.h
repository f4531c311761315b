/* config.h - reads, checks and prints the daemon's configuration: a table of keys, and their values. The main thread
 * owns the configuration in use; the thread of a reload reads another one (reload.h).
 *
 *     pd_config_new(&config);                              defaults
 *     pd_config_read_file(config, path, &err);             key = value in [sections]
 *     pd_config_read_environment(config, environ, &err);   PARAMD_KEY or PARAMD_SECTION_KEY
 *     pd_config_set_key(config, key, value, &err)          flags: --key=value or --section-key=value (flags.h)
 *     pd_config_check(config, &err);                       everything that startup checks
 *
 * pd_bytes_read and pd_duration_read (text.h) say how sizes and durations are written. The value "auto", which some
 * keys accept, is stored as 0. */
#ifndef PD_CONFIG_H
#define PD_CONFIG_H

#include "text.h"
#include "request.h"
#include "slice.h"
#include "tls_context.h"

#include <stdio.h>

#define PD_SHARD_MARK "{shard}" /* in a path: stands for the number of the shard that this daemon owns */
#define PD_KEY_NAME 64          /* most bytes of a key's long name, such as server_listen, with its terminating zero */

typedef enum pd_key_type {
    PD_KEY_TEXT,
    PD_KEY_YES_NO,
    PD_KEY_COUNT,
    PD_KEY_BYTES,
    PD_KEY_TIME,
    PD_KEY_ONE_OF,
    PD_KEY_JOB
} pd_key_type;

/* A key of the configuration: where its value is stored, and which values it may have. */
typedef struct pd_key {
    const char *section, *name;
    pd_key_type type;
    size_t offset;        /* offset in bytes of the key's value in pd_config; for a key of type PD_KEY_JOB, its index in
                    * pd_config.job */
    const char *preset;   /* the default value, as a text */
    uint64_t least, most; /* smallest and largest allowed value, if the type is a count, bytes or a time (ms) */
    bool automatic;       /* the key may have the value "auto": the daemon chooses a value */
    bool reload;          /* the key's value may change while the daemon runs (reload.c) */
    const char *choices;  /* values that the key may have, such as "text|logfmt|json" */
    const char *help;     /* one sentence that explains the key, for the help and the manual */
    char long_name[PD_KEY_NAME]; /* "section_name" */
} pd_key;

/* The values of all keys. A member of this struct has the name of its key, and a struct in it that of a section. */
typedef struct pd_config {
    /* [server] */
    char *listen, *port_file, *state_dir, *mirror, *roles, *trace_file, *http_listen, *http_token, *slice,
        *tcp_congestion;
    bool insecure, shared_memory, input_exit;
    uint64_t max_connections, trace_bytes;
    uint64_t handshake_timeout, heartbeat_interval, heartbeat_timeout;                  /* ms */
    uint64_t read_timeout, write_timeout, drain_timeout, checkpoint_timeout, idle_exit; /* ms */
    struct {
        char *certificate, *key, *client_ca, *crl, *tokens;
    } tls;
    struct {
        char *engine, *name, *advertise, *ca, *cert, *key, *user, *password_file;
        uint64_t shard, shards, ttl; /* ttl: ms */
        bool spare;
    } cluster;
    struct {
        uint64_t max_jobs, max_params, max_total_bytes, ingest_bytes, chunk_bytes, max_payload, max_pieces, max_header,
            hello_bytes;
    } limits;
    struct {
        uint64_t step_threads, pool_threads, movers;
        uint64_t cpu;  /* index of the chosen instruction set in `choices` of the key `cpu` */
        uint64_t numa; /* 0: auto, 1: off */
    } threads;
    struct {
        uint64_t level, format; /* index of the chosen value in `choices` of the key */
    } log;
    /* [job] */
    pd_option *job;
    size_t n_job; /* number of elements of `job`: the default options of new jobs, in the order of pd_job_keys; names
                   * and values are owned */

    pd_key *keys;
    size_t n_keys; /* number of configuration keys in the table `keys`, which is ordered by section */
    char **text;   /* for each key of `keys`, the text of its value as the user gave it */
} pd_config;

/* Makes a configuration with the default values. Returns NULL if out of memory. */
pd_config *pd_config_new(void);
void pd_config_free(pd_config *config); /* accepts NULL */

/* Finds a configuration key by its long name (with the section), such as "server_listen", or by its short name, such as
 * "listen". Returns NULL if there is no such key. */
const pd_key *pd_config_find(const pd_config *config, const char *name);
/* Offers the names of all configuration keys as candidates to a search for the word that is nearest to a mistyped
 * one. */
void pd_config_offer(const pd_config *config, pd_nearest *search);
/* Returns whether a configuration key may be given by its short name: true if its section is [server], or if no other
 * section has a key of this name. */
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
/* Sets a key of `config` to the value that it has in the configuration `from`. A value that is a text is exchanged, so
 * that each configuration still owns one text; nobody may have borrowed the old one. */
void pd_config_take(pd_config *config, pd_config *from, const pd_key *key);
/* Replaces each value "auto" by a value for this machine. Then checks rules that concern several keys, the files of
 * [tls], and the addresses to listen on, for which it looks up host names. Errors are PD_INVALID_ARGUMENT and those of
 * pd_tls_setup (trusted_files.h) and reach.h. */
int pd_config_check(pd_config *config, pd_error *err);
/* Returns the slice of the machine that the daemon uses: the key server.slice. pd_config_check has checked it. */
pd_slice pd_config_slice(const pd_config *config);
/* Returns the value of limits.ingest_bytes for "auto", if the process may use `memory` bytes. */
uint64_t pd_config_ingest_bytes(uint64_t memory, uint64_t max_payload);
/* Reads certificates, keys and tokens from the files of the section [tls]. Makes a TLS context from them in
 * *out. Sets *out to NULL if `listen`, a value of server.listen, contains no tls:// address, and the service manager
 * has passed no socket named tls. Errors are those
 * of pd_tls_setup. */
int pd_config_tls(const pd_config *config, const char *listen, pd_tls_context **out, pd_error *err);
/* Returns whether clients of tls:// addresses must prove their identity: the section [tls] names tokens or a
 * client_ca. */
bool pd_config_identifies(const pd_config *config);
/* Returns the name of the chosen instruction set (such as "avx2"), or "auto", as pd_cpu_use takes it. */
const char *pd_config_cpu(const pd_config *config);
/* Writes a configuration file with every key and its explanation. pd_config_read_file reads the same values back
 * from it. */
void pd_config_print(const pd_config *config, FILE *out);

/* Writes a text in lines of at most 80 columns. Each line begins with `indent`. */
void pd_words_print(const char *words, const char *indent, FILE *out);

#endif
