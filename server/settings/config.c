/* config.c - the table of configuration keys: finds keys, reads and checks their values, and prints them. */
#include "config.h"

#include "cluster_urls.h"
#include "congestion.h"
#include "cpu.h"
#include "host.h"
#include "notify.h"
#include "reach.h"
#include "store.h"
#include "trusted_files.h"
#include "text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool read_count(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return isdigit((unsigned char)text[0]) && errno == 0 && *end == '\0';
}

static bool read_ms(const char *text, uint64_t *out)
{
    double seconds;

    if (!pd_duration_read(text, false, &seconds) || seconds > 1e12) return false;
    *out = (uint64_t)(seconds * 1000 + 0.5);
    return true;
}

/* How the numbers of a type of key are written: a function that reads them, an example and a unit for errors. */
typedef struct form {
    bool (*read)(const char *text, uint64_t *out);
    const char *example, *unit;
} form;

static const form forms[] = {
    [PD_KEY_COUNT] = { read_count, "a whole number", "" },
    [PD_KEY_BYTES] = { pd_bytes_read, "a size like 64KiB, 256M or 1G", " bytes" },
    [PD_KEY_TIME] = { read_ms, "a duration like 500ms, 30s, 5m, 1h or 1d", " ms" },
};

static int set_number(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    uint64_t *out = (uint64_t *)(void *)((char *)config + key->offset), number = 0;
    const form *f = &forms[key->type];

    if (key->automatic && strcmp(value, "auto") == 0) {
        *out = 0;
        return PD_OK;
    }
    if (!f->read(value, &number))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s.%s = %s: expected %s%s", key->section, key->name, value,
                       f->example, key->automatic ? ", or auto" : "");
    if (number < key->least || number > key->most)
        return pd_fail(err, PD_OUT_OF_RANGE, "%s.%s = %s: expected %llu to %llu%s", key->section, key->name, value,
                       (unsigned long long)key->least, (unsigned long long)key->most, f->unit);
    *out = number;
    return PD_OK;
}

/* Returns the index of `value` in a list of choices such as "text|logfmt|json", or -1 if the list does not contain
 * it. */
static int choice_index(const char *choices, const char *value)
{
    size_t length = strlen(value);
    int index = 0;

    for (const char *at = choices; at != NULL; at = strchr(at, '|'), index++) {
        if (*at == '|') at++;
        if (strncmp(at, value, length) == 0 && length > 0 && (at[length] == '|' || at[length] == '\0')) return index;
    }
    return -1;
}

static int set_choice(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    int index = choice_index(key->choices, value);

    if (index < 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s.%s = %s: expected one of %s", key->section, key->name, value,
                       key->choices);
    *(uint64_t *)(void *)((char *)config + key->offset) = (uint64_t)index;
    return PD_OK;
}

static int set_flag(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    int index = choice_index("no|false|0|off|yes|true|1|on", value);

    if (index < 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s.%s = %s: expected yes or no", key->section, key->name, value);
    *(bool *)((char *)config + key->offset) = index >= 4;
    return PD_OK;
}

/* Frees the text at *text, and stores a copy of `value` there. PD_NO_MEMORY: nothing has changed. */
static int replace_text(char **text, const char *value, pd_error *err)
{
    char *copy = strdup(value);

    if (copy == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    free(*text);
    *text = copy;
    return PD_OK;
}

/* Reads the value of a configuration key from a text and stores it in the key's field of *config. PD_INVALID_ARGUMENT,
 * PD_OUT_OF_RANGE: the value is wrong, and the error names the allowed values. PD_NO_MEMORY. After an error nothing has
 * changed. */
static int set_value(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    int rc;

    switch (key->type) {
    case PD_KEY_TEXT: return replace_text((char **)(void *)((char *)config + key->offset), value, err);
    case PD_KEY_YES_NO: return set_flag(config, key, value, err);
    case PD_KEY_ONE_OF: return set_choice(config, key, value, err);
    case PD_KEY_COUNT:
    case PD_KEY_BYTES:
    case PD_KEY_TIME: return set_number(config, key, value, err);
    case PD_KEY_JOB: break;
    }
    if ((rc = pd_job_key_check(key->name, value, err)) != PD_OK) return rc;
    return replace_text(&config->job[key->offset].value, value, err);
}

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define TIB (1024 * 1024 * MIB)
#define DAY ((uint64_t)24 * 60 * 60 * 1000)
/* Largest length of a line in the help text and in printed configuration files. */
#define WIDTH 80
#define AT(field) offsetof(pd_config, field)

#define TEXT_OF(number) AS_TEXT(number)
#define AS_TEXT(number) #number

static const pd_key keys[] = {
    { "server", "listen", PD_KEY_TEXT, AT(listen), "127.0.0.1:7070",
      .help = "addresses to listen on, separated by commas: host:port, [IPv6]:port, :port (127.0.0.1), *:port (every "
              "interface), tls://host:port (see [tls]), unix:///path; port 0 takes a free port" },
    { "server", "port_file", PD_KEY_TEXT, AT(port_file), "",
      .help = "file that the port is written to, useful with port 0" },
    { "server", "state_dir", PD_KEY_TEXT, AT(state_dir), "auto",
      .help = "directory for checkpoints of jobs, which survive a restart of the daemon; one daemon at a time uses it. "
              "auto: the first directory of $STATE_DIRECTORY, as systemd sets it, if there is one. Without a directory "
              "(empty) there are no checkpoints. In a cluster with an engine, {shard} stands for the shard's number" },
    { "server", "mirror", PD_KEY_TEXT, AT(mirror), "",
      .help =
          "second directory, best on another machine (NFS, or an object store that is mounted), to which checkpoints "
          "and WALs are copied as they become durable; training never waits for it. paramctl mirror fetch makes a "
          "state_dir from it, and so does a spare that takes a shard over; {shard} stands for the shard's number. "
          "Without a directory (empty) there is none" },
    { "server", "insecure", PD_KEY_YES_NO, AT(insecure), "no",
      .help = "allow addresses that other machines can reach without credentials: set it only where the network keeps "
              "untrusted peers out. tls:// addresses whose clients have tokens or certificates need no such consent" },
    { "server", "roles", PD_KEY_TEXT, AT(roles), "",
      .help = "file that says which identities may do what, and their quotas (deploy/README.md); it is read again on "
              "SIGHUP. Without a file (empty) everybody who can connect may do everything" },
    { "server", "shared_memory", PD_KEY_YES_NO, AT(shared_memory), "yes",
      .help = "workers on Unix sockets may pass gradients and weights in memory that they share with the daemon" },
    { "server", "max_connections", PD_KEY_COUNT, AT(max_connections), "4096", 1, 1000000,
      .help = "most open connections; beyond them one without a Hello is closed, else the new one is refused" },
    { "server", "handshake_timeout", PD_KEY_TIME, AT(handshake_timeout), "5s", 1, DAY, .reload = true,
      .help = "a connection that has not sent Hello after this time is closed" },
    { "server", "heartbeat_interval", PD_KEY_TIME, AT(heartbeat_interval), "10s", 1, DAY,
      .help = "a worker that sends nothing else sends a heartbeat after this time" },
    { "server", "heartbeat_timeout", PD_KEY_TIME, AT(heartbeat_timeout), "30s", 1, DAY,
      .help = "a connection that sends nothing for this time is closed, and its worker counts as lost" },
    { "server", "read_timeout", PD_KEY_TIME, AT(read_timeout), "60s", 1, DAY, .reload = true,
      .help = "a connection is closed if one frame takes longer than this to arrive" },
    { "server", "write_timeout", PD_KEY_TIME, AT(write_timeout), "60s", 1, DAY, .reload = true,
      .help = "a connection is closed if its peer reads nothing of an answer for this time" },
    { "server", "drain_timeout", PD_KEY_TIME, AT(drain_timeout), "30s", 1, DAY, .reload = true,
      .help = "time that open rounds have to finish after SIGTERM" },
    { "server", "checkpoint_timeout", PD_KEY_TIME, AT(checkpoint_timeout), "5m", 1, DAY, .reload = true,
      .help = "time that the last checkpoints have to reach the disk when the daemon stops, beyond drain_timeout; then "
              "it ends without them" },
    { "server", "trace_file", PD_KEY_TEXT, AT(trace_file), "",
      .help = "file that gets the steps of one job, as a trace for ui.perfetto.dev: FILE or FILE:JOB. Without a name "
              "it is the first job that has a step. An older file is replaced. Empty: nothing is traced" },
    { "server", "trace_bytes", PD_KEY_BYTES, AT(trace_bytes), "64MiB", 4 * KIB, TIB,
      .help = "largest size of trace_file; what comes later is not traced" },
    { "server", "idle_exit", PD_KEY_TIME, AT(idle_exit), "0s", 0, DAY,
      .help = "the daemon drains and ends when no worker has been connected for this time, as a daemon that serves one "
              "run should; 0s: it does not end by itself" },
    { "server", "input_exit", PD_KEY_YES_NO, AT(input_exit), "no",
      .help = "the daemon drains and ends when its standard input ends, which must be a pipe or a socket: so it ends "
              "with the process that has started it" },
    { "server", "tcp_congestion", PD_KEY_TEXT, AT(tcp_congestion), "",
      .help =
          "algorithm by which TCP adapts to the rate of a link, such as bbr; the kernel must allow it "
          "(net.ipv4.tcp_allowed_congestion_control). Empty: the kernel's own (net.ipv4.tcp_congestion_control), and "
          "reno without TLS towards a peer on the same machine" },
    { "server", "slice", PD_KEY_TEXT, AT(slice), "",
      .help =
          "slice of the machine that this daemon uses, where several daemons share it: 2/4 is the second quarter of "
          "the processors (whole NUMA nodes first), and the automatic limits of memory are those of a quarter. "
          "Empty: all processors that this process may use" },
    { "tls", "certificate", PD_KEY_TEXT, AT(tls.certificate), "", .reload = true,
      .help = "file with the server's certificate and its chain, PEM. A path here may begin with "
              "${CREDENTIALS_DIRECTORY}, which systemd sets for LoadCredential=" },
    { "tls", "key", PD_KEY_TEXT, AT(tls.key), "", .reload = true,
      .help =
          "file with the key of that certificate, PEM without a pass phrase, which only its owner and group may read" },
    { "tls", "client_ca", PD_KEY_TEXT, AT(tls.client_ca), "", .reload = true,
      .help = "file with certificates of authorities, PEM: clients must have a certificate that one of them signed, or "
              "a token" },
    { "tls", "crl", PD_KEY_TEXT, AT(tls.crl), "", .reload = true,
      .help = "file with the lists of certificates that the authorities of client_ca have revoked, PEM: each authority "
              "needs one, and a list that has expired lets nobody with a certificate of its authority in" },
    { "tls", "tokens", PD_KEY_TEXT, AT(tls.tokens), "", .reload = true,
      .help = "file with the tokens of clients, a line for each as paramctl token new prints it, which only its owner "
              "and group may read" },
    { "cluster", "engine", PD_KEY_TEXT, AT(cluster.engine), "",
      .help = "members of the etcd cluster through which daemons find each other, separated by commas: "
              "etcd://host:2379, or etcds://host:2379 with TLS. Empty: there is no engine, and workers are told all "
              "daemons (PARAMD_URL)" },
    { "cluster", "name", PD_KEY_TEXT, AT(cluster.name), "paramd",
      .help = "name of this cluster in etcd, where its keys begin with /paramd/NAME/" },
    { "cluster", "shard", PD_KEY_COUNT, AT(cluster.shard), "0", 0, PD_MAX_SHARDS - 1,
      .help = "number of the shard that this daemon owns. If another daemon owns it, this one is a spare" },
    { "cluster", "shards", PD_KEY_COUNT, AT(cluster.shards), "1", 1, PD_MAX_SHARDS,
      .help = "number of shards of the cluster, the same for all its daemons; a spare learns it from the others" },
    { "cluster", "spare", PD_KEY_YES_NO, AT(cluster.spare), "no",
      .help = "this daemon owns no shard at first: it takes over one whose owner is gone, if it can get the shard's "
              "state" },
    { "cluster", "ttl", PD_KEY_TIME, AT(cluster.ttl), "10s", 1000, 10 * 60 * 1000,
      .help = "how long a daemon counts as the owner of its shard after it was last heard of; a spare waits as long "
              "before it takes a shard. Whole seconds" },
    { "cluster", "advertise", PD_KEY_TEXT, AT(cluster.advertise), "",
      .help = "address at which workers reach this daemon, such as tls://a.example:7070. Empty: the first address of "
              "server.listen, which must then name an interface" },
    { "cluster", "ca", PD_KEY_TEXT, AT(cluster.ca), "",
      .help = "file with the certificates of the authorities that sign those of etcd, PEM; needed for etcds://" },
    { "cluster", "cert", PD_KEY_TEXT, AT(cluster.cert), "",
      .help = "file with this daemon's certificate for etcd, PEM, if etcd asks for one" },
    { "cluster", "key", PD_KEY_TEXT, AT(cluster.key), "",
      .help = "file with the key of that certificate, PEM, which only its owner and group may read. A path here may "
              "begin with ${CREDENTIALS_DIRECTORY}" },
    { "cluster", "user", PD_KEY_TEXT, AT(cluster.user), "",
      .help = "name of this daemon's user in etcd, if etcd asks for users and passwords (etcdctl auth enable)" },
    { "cluster", "password_file", PD_KEY_TEXT, AT(cluster.password_file), "",
      .help =
          "file whose first line is the password of cluster.user, which only its owner and group may read. Its path "
          "may begin with ${CREDENTIALS_DIRECTORY}. Only etcds:// hides the password on its way" },
    { "http", "listen", PD_KEY_TEXT, AT(http_listen), "",
      .help =
          "addresses of the HTTP listener, separated by commas, written as in [server], for example 127.0.0.1:7072; "
          "none: there is no HTTP listener. Other machines may reach it only with a token, or with server.insecure" },
    { "http", "token", PD_KEY_TEXT, AT(http_token), "", .reload = true,
      .help = "file with the token that requests must have (Authorization: Bearer TOKEN, or as the password of any "
              "user); its first line counts, at least 16 characters. Only its owner and group may read it, and its "
              "path may begin with ${CREDENTIALS_DIRECTORY}. none: no token is needed, and going back to that needs a "
              "restart. /healthz and /readyz need none" },
    { "limits", "max_jobs", PD_KEY_COUNT, AT(limits.max_jobs), "1024", 1, 1000000, .reload = true,
      .help = "most jobs at the same time" },
    { "limits", "max_params", PD_KEY_COUNT, AT(limits.max_params), "65536", 1, 1000000,
      .help = "most parameters of one job" },
    { "limits", "max_total_bytes", PD_KEY_BYTES, AT(limits.max_total_bytes), "auto", MIB, 1024 * TIB, true,
      .reload = true,
      .help = "most bytes of weights, gradient sums, optimizer state and published versions of all jobs; auto: 80 % of "
              "the memory that this process may use" },
    { "limits", "ingest_bytes", PD_KEY_BYTES, AT(limits.ingest_bytes), "auto", 64 * KIB, 1024 * TIB, true,
      .help = "most bytes of gradients in flight, of all workers together; each worker has room for at least one "
              "frame. auto: an eighth of the memory that this process may use, from 256 MiB to 8 GiB, but never more "
              "than a quarter of that memory" },
    { "limits", "chunk_bytes", PD_KEY_BYTES, AT(limits.chunk_bytes), TEXT_OF(PD_CHUNK_MIB) "MiB", 4 * KIB, 1024 * MIB,
      .help = "parameters larger than this are sent in chunks of this many bytes of float32; a multiple of 64" },
    { "limits", "max_payload", PD_KEY_BYTES, AT(limits.max_payload), "auto", 4 * KIB, 4096 * MIB, true,
      .help = "most payload bytes of one frame; auto: the same as chunk_bytes" },
    { "limits", "max_pieces", PD_KEY_COUNT, AT(limits.max_pieces), "1024", 1, 2048,
      .help = "most tensors, or chunks of tensors, in one frame" },
    { "limits", "max_header", PD_KEY_BYTES, AT(limits.max_header), "64KiB", 1 * KIB, 64 * KIB,
      .help = "most bytes of the header of one frame" },
    { "limits", "hello_bytes", PD_KEY_BYTES, AT(limits.hello_bytes), "4KiB", 256, 64 * KIB,
      .help = "most bytes of the header of a connection's first frame, which holds the job's rules and options. A peer "
              "that is not known yet cannot make the server hold more" },
    { "threads", "step_threads", PD_KEY_COUNT, AT(threads.step_threads), "auto", 1, 1024, true,
      .help = "threads that run optimizer steps; auto: the processors that this process may use, or those of one NUMA "
              "node (see numa)" },
    { "threads", "pool_threads", PD_KEY_COUNT, AT(threads.pool_threads), "auto", 1, 60, true,
      .help = "threads of lower priority that compute inverse roots; auto: one less than the processors, at least 1" },
    { "threads", "movers", PD_KEY_COUNT, AT(threads.movers), "0", 0, 64,
      .help = "threads that receive and send large payloads for the loop thread, which alone moves about 1.7 GB/s with "
              "TLS and 4 GB/s without. Try a quarter of the processors where there are eight or more" },
    { "threads", "cpu", PD_KEY_ONE_OF, AT(threads.cpu), "auto", .choices = PD_CPU_CHOICES,
      .help = "newest instruction set that sums, optimizers and OpenBLAS use; auto: the newest of this CPU. Sets "
              "differ in speed, and in the last bits of what OpenBLAS computes" },
    { "threads", "numa", PD_KEY_ONE_OF, AT(threads.numa), "auto", .choices = "auto|off",
      .help = "where a machine has several NUMA nodes, auto runs steps on the processors of one node, and takes memory "
              "of jobs there, if it has enough processors for step_threads; off: any processors, any memory" },
    { "log", "level", PD_KEY_ONE_OF, AT(log.level), "info", .choices = "error|warning|notice|info|debug",
      .reload = true, .help = "least urgent level of the lines that are written" },
    { "log", "format", PD_KEY_ONE_OF, AT(log.format), "text", .choices = "text|logfmt|json",
      .help = "form of the lines: text for people; logfmt or json with job, rank, step and code as fields" },
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

static const char *const section_help[][2] = {
    { "server", "Addresses, and how long the daemon waits for its peers." },
    { "tls", "Keys of tls:// addresses: tokens, or certificates, or both. SIGHUP reads the files again." },
    { "cluster", "Several daemons that find each other through etcd, and spares that take over for lost ones." },
    { "http", "Over HTTP: metrics (/metrics), health (/healthz, /readyz), and the dashboard (/)." },
    { "limits", "Limits of memory. Sizes have binary units: 4096, 64k, 256MiB, 1G." },
    { "threads", "Threads, and the instructions that they use." },
    { "log", "The log on the standard error." },
    { "job", "Defaults of every job's options. The first worker of a job may choose other values." },
};
enum { N_SECTIONS = sizeof section_help / sizeof section_help[0] };

static int make_table(pd_config *config)
{
    while (pd_job_keys[config->n_job].name != NULL) config->n_job++;
    config->n_keys = N_KEYS + config->n_job;
    config->keys = calloc(config->n_keys, sizeof *config->keys);
    config->text = calloc(config->n_keys, sizeof *config->text);
    config->job = calloc(config->n_job, sizeof *config->job);
    if (config->keys == NULL || config->text == NULL || config->job == NULL) return PD_NO_MEMORY;
    memcpy(config->keys, keys, sizeof keys);
    for (size_t i = 0; i < config->n_job; i++) {
        config->keys[N_KEYS + i] = (pd_key){ .section = "job",
                                             .name = pd_job_keys[i].name,
                                             .type = PD_KEY_JOB,
                                             .offset = i,
                                             .preset = pd_job_keys[i].preset,
                                             .choices = pd_job_keys[i].choices,
                                             .help = pd_job_keys[i].help };
        if ((config->job[i].name = strdup(pd_job_keys[i].name)) == NULL) return PD_NO_MEMORY;
    }
    for (size_t i = 0; i < config->n_keys; i++)
        snprintf(config->keys[i].long_name, PD_KEY_NAME, "%s_%s", config->keys[i].section, config->keys[i].name);
    return PD_OK;
}

bool pd_key_is_short(const pd_config *config, const pd_key *key)
{
    size_t named = 0;

    for (size_t i = 0; i < config->n_keys; i++) named += strcmp(config->keys[i].name, key->name) == 0;
    return named == 1 || strcmp(key->section, "server") == 0;
}

bool pd_key_is_flag(const pd_key *key)
{
    return key->type == PD_KEY_YES_NO || (key->choices != NULL && strcmp(key->choices, "no|yes") == 0);
}

const pd_key *pd_config_find(const pd_config *config, const char *name)
{
    for (size_t i = 0; i < config->n_keys; i++) {
        const pd_key *key = &config->keys[i];
        if (strcmp(key->long_name, name) == 0 || (strcmp(key->name, name) == 0 && pd_key_is_short(config, key)))
            return key;
    }
    return NULL;
}

void pd_config_offer(const pd_config *config, pd_nearest *search)
{
    for (size_t i = 0; i < config->n_keys; i++) {
        pd_nearest_offer(search, config->keys[i].name);
        pd_nearest_offer(search, config->keys[i].long_name);
    }
}

/* Makes the error about an unknown key. The error suggests the key with the nearest name; of several equally near keys,
 * one in the same section. */
static int unknown_key(const pd_config *config, const char *section, const char *name, pd_error *err)
{
    pd_nearest search = pd_nearest_begin(name, strlen(name));
    const pd_key *key = config->keys;

    for (int same = 1; same >= 0; same--)
        for (size_t i = 0; i < config->n_keys; i++)
            if ((strcmp(config->keys[i].section, section) == 0) == same)
                pd_nearest_offer(&search, config->keys[i].name);
    if (search.best == NULL)
        return pd_fail(err, PD_NOT_FOUND, "there is no key %s in [%s] (paramd --print-config lists all)", name,
                       section);
    while (key->name != search.best) key++;
    return pd_fail(err, PD_NOT_FOUND, "there is no key %s in [%s]; the nearest is %s in [%s]", name, section, key->name,
                   key->section);
}

static const pd_key *find(const pd_config *config, const char *section, const char *name)
{
    for (size_t i = 0; i < config->n_keys; i++)
        if (strcmp(config->keys[i].section, section) == 0 && strcmp(config->keys[i].name, name) == 0)
            return &config->keys[i];
    return NULL;
}

int pd_config_set_key(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    int rc = set_value(config, key, value, err);

    return rc == PD_OK ? replace_text(&config->text[key - config->keys], value, err) : rc;
}

int pd_config_set(pd_config *config, const char *section, const char *name, const char *value, pd_error *err)
{
    const pd_key *key = find(config, section, name);

    return key != NULL ? pd_config_set_key(config, key, value, err) : unknown_key(config, section, name, err);
}

bool pd_config_differs(const pd_config *a, const pd_config *b, const pd_key *key)
{
    const char *x = (const char *)a + key->offset, *y = (const char *)b + key->offset;
    size_t i = (size_t)(key - a->keys);

    switch (key->type) {
    case PD_KEY_TEXT:
    case PD_KEY_JOB: return strcmp(a->text[i], b->text[i]) != 0;
    case PD_KEY_YES_NO: return *x != *y;
    default: return memcmp(x, y, sizeof(uint64_t)) != 0;
    }
}

static void exchange(char **a, char **b)
{
    char *first = *a;

    *a = *b;
    *b = first;
}

void pd_config_take(pd_config *config, pd_config *from, const pd_key *key)
{
    size_t i = (size_t)(key - config->keys);
    char *text = config->text[i];

    assert(key->type != PD_KEY_JOB && key->type != PD_KEY_YES_NO);
    if (key->type == PD_KEY_TEXT)
        exchange((char **)((char *)config + key->offset), (char **)((char *)from + key->offset));
    else
        memcpy((char *)config + key->offset, (char *)from + key->offset, sizeof(uint64_t));
    config->text[i] = from->text[i];
    from->text[i] = text;
}

pd_config *pd_config_new(void)
{
    pd_config *config = calloc(1, sizeof *config);
    int rc = config != NULL ? make_table(config) : PD_NO_MEMORY;

    for (size_t i = 0; rc == PD_OK && i < config->n_keys; i++)
        rc = pd_config_set(config, config->keys[i].section, config->keys[i].name, config->keys[i].preset, NULL);
    if (rc == PD_OK) return config;
    assert(rc == PD_NO_MEMORY);
    pd_config_free(config);
    return NULL;
}

void pd_config_free(pd_config *config)
{
    if (config == NULL) return;
    for (size_t i = 0; config->job != NULL && i < config->n_job; i++) {
        free(config->job[i].name);
        free(config->job[i].value);
    }
    for (size_t i = 0; config->text != NULL && i < config->n_keys; i++) free(config->text[i]);
    for (size_t i = 0; i < N_KEYS; i++)
        if (keys[i].type == PD_KEY_TEXT) free(*(char **)(void *)((char *)config + keys[i].offset));
    free(config->job);
    free(config->keys);
    free(config->text);
    free(config);
}

static uint64_t default_step_threads(const pd_config *config, const cpu_set_t *processors, uint64_t cores)
{
    pd_numa numa;

    pd_numa_find(&numa, config->threads.numa != 0, processors, 0);
    return numa.finding == PD_NUMA_CHOSEN && (uint64_t)numa.cpus < cores ? (uint64_t)numa.cpus : cores;
}

uint64_t pd_config_ingest_bytes(uint64_t memory, uint64_t max_payload)
{
    uint64_t bytes = memory / 8;

    if (bytes < 256 * MIB) bytes = 256 * MIB;
    if (bytes > 8192 * MIB) bytes = 8192 * MIB;
    if (bytes > memory / 4) bytes = memory / 4;
    return bytes > max_payload ? bytes : max_payload;
}

pd_slice pd_config_slice(const pd_config *config)
{
    pd_slice slice;

    (void)pd_slice_read(&slice, config->slice, NULL);
    return slice;
}

/* Replaces each value "auto" by the value for the daemon's slice of this machine. */
static int resolve(pd_config *config, pd_error *err)
{
    cpu_set_t processors;
    pd_slice slice;
    uint64_t cores, memory;
    int rc = pd_slice_read(&slice, config->slice, err);

    if (rc != PD_OK || (rc = pd_slice_processors(&processors, slice, err)) != PD_OK) return rc;
    cores = (uint64_t)pd_slice_cores(slice, &processors);
    memory = pd_slice_memory(slice);
    if (config->limits.max_total_bytes == 0) config->limits.max_total_bytes = memory / 10 * 8;
    if (config->limits.max_payload == 0) config->limits.max_payload = config->limits.chunk_bytes;
    if (config->limits.ingest_bytes == 0)
        config->limits.ingest_bytes = pd_config_ingest_bytes(memory, config->limits.max_payload);
    if (config->threads.step_threads == 0)
        config->threads.step_threads = default_step_threads(config, &processors, cores);
    if (config->threads.pool_threads == 0)
        config->threads.pool_threads = cores > 1 ? (cores - 1 < 60 ? cores - 1 : 60) : 1;
    return PD_OK;
}

/* Replaces the value "auto" of server.state_dir by the directory that the service manager has made for this service. */
static int resolve_state_dir(pd_config *config, pd_error *err)
{
    const char *given = getenv("STATE_DIRECTORY");
    char *first;
    int rc;

    if (strcmp(config->state_dir, "auto") != 0) return PD_OK;
    if (given == NULL) given = "";
    first = strndup(given, strcspn(given, ":"));
    if (first == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = replace_text(&config->state_dir, first, err);
    free(first);
    return rc;
}

/* Returns whether a path is that of a directory, or lies in it. */
static bool lies_in(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/') n--;
    return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static int check_mirror(const pd_config *config, pd_error *err)
{
    if (config->mirror[0] == '\0') return PD_OK;
    if (config->state_dir[0] == '\0')
        return pd_fail(err, PD_INVALID_ARGUMENT, "server.mirror = %.300s: expected server.state_dir, which is mirrored",
                       config->mirror);
    if (lies_in(config->mirror, config->state_dir) || lies_in(config->state_dir, config->mirror))
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "server.mirror = %.300s: expected a directory outside of server.state_dir, %.300s, and the other "
            "way round",
            config->mirror, config->state_dir);
    if (strstr(config->mirror, PD_SHARD_MARK) != NULL && strstr(config->state_dir, PD_SHARD_MARK) == NULL)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "server.mirror = %.300s: {shard} is expected in server.state_dir, too: a spare may take one shard "
            "after the other, and each needs a directory of its own",
            config->mirror);
    return PD_OK;
}

/* Checks that the shards of a cluster do not share a mirror: a spare could not tell whose state it has. */
static int check_mirrors(const pd_config *config, pd_error *err)
{
    if (config->mirror[0] == '\0' || config->cluster.engine[0] == '\0' || config->cluster.shards == 1 ||
        strstr(config->mirror, PD_SHARD_MARK) != NULL)
        return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "server.mirror = %.300s: expected {shard} in it, for the number of the shard: the cluster has %llu",
                   config->mirror, (unsigned long long)config->cluster.shards);
}

/* Checks that a path that has the number of the shard in it is given where there is one. */
static int check_shard_mark(const pd_config *config, const char *key, const char *path, pd_error *err)
{
    if (strstr(path, PD_SHARD_MARK) == NULL || config->cluster.engine[0] != '\0') return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s = %.300s: {shard} needs cluster.engine", key, path);
}

const char *pd_config_cpu(const pd_config *config)
{
    return config->threads.cpu == 0 ? "auto" : pd_cpu_names[config->threads.cpu - 1];
}

int pd_config_tls(const pd_config *config, const char *listen, pd_tls_context **out, pd_error *err)
{
    const pd_tls_files files = { .certificate = config->tls.certificate,
                                 .key = config->tls.key,
                                 .ca = config->tls.client_ca,
                                 .tokens = config->tls.tokens,
                                 .crl = config->tls.crl };

    return pd_tls_setup(out, listen, pd_notify_has_socket(PD_SOCKET_TLS), &files, err);
}

bool pd_config_identifies(const pd_config *config)
{
    return config->tls.tokens[0] != '\0' || config->tls.client_ca[0] != '\0';
}

/* Checks the addresses to listen on, and reads the files of [tls] once, to check that they can be used. */
static int check_listen(const pd_config *config, pd_error *err)
{
    pd_tls_context *tls;
    pd_reach reach = { .open = config->insecure, .identifies = pd_config_identifies(config) };
    int rc = pd_reach_check_setting(&reach, config->listen, err);

    if (rc != PD_OK || (rc = pd_config_tls(config, config->listen, &tls, err)) != PD_OK) return rc;
    pd_tls_unref(tls);
    return PD_OK;
}

static int check_cluster(const pd_config *config, pd_error *err)
{
    const pd_cluster_urls_from from = { config->cluster.advertise, config->listen, config->http_listen, 0, 0 };
    const char *name = config->cluster.name;
    pd_cluster_urls urls;

    if (config->cluster.engine[0] == '\0') return PD_OK;
    if (name[0] == '\0' || strlen(name) >= PD_CLUSTER_NAME ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] != '\0')
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "cluster.name = %.100s: expected 1 to %d letters, digits and the characters . _ -", name,
                       PD_CLUSTER_NAME - 1);
    if (config->cluster.shard >= config->cluster.shards)
        return pd_fail(err, PD_INVALID_ARGUMENT, "cluster.shard = %llu: must be less than cluster.shards, %llu",
                       (unsigned long long)config->cluster.shard, (unsigned long long)config->cluster.shards);
    if ((config->cluster.cert[0] == '\0') != (config->cluster.key[0] == '\0'))
        return pd_fail(err, PD_INVALID_ARGUMENT, "cluster.cert and cluster.key: expected both or none");
    if ((config->cluster.user[0] == '\0') != (config->cluster.password_file[0] == '\0'))
        return pd_fail(err, PD_INVALID_ARGUMENT, "cluster.user and cluster.password_file: expected both or none");
    if (config->cluster.advertise[0] == '\0' &&
        (pd_notify_has_socket(PD_SOCKET_PLAIN) || pd_notify_has_socket(PD_SOCKET_TLS)))
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "cluster.advertise: expected the address at which workers reach this daemon: the service manager "
            "has opened its sockets, so server.listen does not say it");
    return pd_cluster_urls_make(&urls, &from, err);
}

int pd_config_check(pd_config *config, pd_error *err)
{
    pd_error why;
    pd_reach reach;
    pd_cpu set;
    int rc;

    if ((rc = resolve(config, err)) != PD_OK || (rc = resolve_state_dir(config, err)) != PD_OK) return rc;
    if (config->limits.chunk_bytes % 64 != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "limits.chunk_bytes = %llu: expected a multiple of 64",
                       (unsigned long long)config->limits.chunk_bytes);
    if (config->limits.max_payload < config->limits.chunk_bytes)
        return pd_fail(err, PD_INVALID_ARGUMENT, "limits.max_payload = %llu: must be at least limits.chunk_bytes, %llu",
                       (unsigned long long)config->limits.max_payload, (unsigned long long)config->limits.chunk_bytes);
    if (config->limits.ingest_bytes < config->limits.max_payload)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "limits.ingest_bytes = %llu: must hold at least one frame of limits.max_payload, %llu",
                       (unsigned long long)config->limits.ingest_bytes, (unsigned long long)config->limits.max_payload);
    if (config->heartbeat_timeout <= config->heartbeat_interval)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "server.heartbeat_timeout = %llu ms: must be longer than server.heartbeat_interval, %llu ms",
                       (unsigned long long)config->heartbeat_timeout, (unsigned long long)config->heartbeat_interval);
    if ((rc = pd_cpu_find(pd_config_cpu(config), &set, &why)) != PD_OK)
        return pd_fail(err, rc, "threads.cpu: %s", why.text);
    if ((rc = check_shard_mark(config, "server.state_dir", config->state_dir, err)) != PD_OK ||
        (rc = check_shard_mark(config, "server.mirror", config->mirror, err)) != PD_OK ||
        (rc = check_mirror(config, err)) != PD_OK || (rc = check_mirrors(config, err)) != PD_OK ||
        (rc = check_listen(config, err)) != PD_OK || (rc = check_cluster(config, err)) != PD_OK)
        return rc;
    if ((rc = pd_congestion_check(config->tcp_congestion, &why)) != PD_OK)
        return pd_fail(err, rc, "server.tcp_congestion: %s", why.text);
    reach = (pd_reach){ .http = true, .open = config->insecure || config->http_token[0] != '\0' };
    return pd_reach_check_setting(&reach, config->http_listen, err);
}

const char *pd_section_help(const char *section)
{
    for (size_t i = 0; i < N_SECTIONS; i++)
        if (strcmp(section_help[i][0], section) == 0) return section_help[i][1];
    return "";
}

void pd_words_print(const char *words, const char *indent, FILE *out)
{
    int column = 0;

    while (*words != '\0') {
        int n = (int)strcspn(words, " ");
        if (column + 1 + n > WIDTH) {
            fprintf(out, "\n");
            column = 0;
        }
        column += fprintf(out, "%s%.*s", column == 0 ? indent : " ", n, words);
        words += n + (words[n] == ' ');
    }
    fprintf(out, "\n");
}

static void print_key(const pd_key *key, const char *value, FILE *out)
{
    char text[512];

    snprintf(text, sizeof text, "%c%s.", toupper((unsigned char)key->help[0]), key->help + 1);
    pd_words_print(text, "# ", out);
    if (key->choices != NULL)
        fprintf(out, "# One of %s. ", key->choices);
    else
        fprintf(out, "# ");
    fprintf(out, "Default: %s.%s\n%s =%s%s\n", key->preset[0] != '\0' ? key->preset : "none",
            key->reload ? " Reload." : "", key->name, value[0] != '\0' ? " " : "", value);
}

void pd_config_print(const pd_config *config, FILE *out)
{
    const char *section = "";

    fprintf(out, "# Configuration of paramd: every key with its value. Without a file the defaults hold.\n"
                 "# A flag wins over an environment variable, and that over this file:\n"
                 "#   listen = ... in [server]  <  PARAMD_LISTEN=...  <  --listen=...\n"
                 "# paramd --print-config writes this file, paramd --check-config reads one and says what is wrong.\n"
                 "# Keys marked \"Reload\" change while the daemon runs: edit this file, then systemctl reload paramd\n"
                 "# (or kill -HUP).\n");
    for (size_t i = 0; i < config->n_keys; i++) {
        const pd_key *key = &config->keys[i];
        if (strcmp(section, key->section) != 0)
            fprintf(out, "\n# %s\n[%s]\n", pd_section_help(key->section), key->section);
        section = key->section;
        print_key(key, config->text[i], out);
    }
}
