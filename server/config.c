/* config.c - the table of configuration keys, and their values from defaults, a file, the environment and flags. */
#include "config.h"

#include "host.h"
#include "store.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define TIB (1024 * 1024 * MIB)
#define DAY ((uint64_t)24 * 60 * 60 * 1000)
#define AT(field) offsetof(pd_config, field)

/* ---- the table ---- */

#define TEXT_OF(number) AS_TEXT(number)
#define AS_TEXT(number) #number

static const pd_key keys[] = {
    { "server", "listen", PD_KEY_TEXT, AT(listen), "127.0.0.1:7070", .help =
        "addresses to listen on, separated by commas: host:port, [IPv6]:port, *:port; port 0 takes a free one" },
    { "server", "unix_socket", PD_KEY_TEXT, AT(unix_socket), "", .help = "path of a Unix socket to listen on as well" },
    { "server", "port_file", PD_KEY_TEXT, AT(port_file), "",
      .help = "file to write the port into that was taken, for port 0" },
    { "server", "insecure", PD_KEY_YES_NO, AT(insecure), "no", .help =
        "listen beyond loopback although nobody is asked for credentials: only where the network keeps strangers out" },
    { "server", "max_connections", PD_KEY_COUNT, AT(max_connections), "4096", 1, 1000000,
      .help = "connections open at once; later ones are told and closed" },
    { "server", "handshake_timeout", PD_KEY_TIME, AT(handshake_timeout), "5s", 1, DAY,
      .help = "a connection that has not said Hello by then is closed" },
    { "server", "heartbeat_interval", PD_KEY_TIME, AT(heartbeat_interval), "10s", 1, DAY,
      .help = "workers that send nothing else send a heartbeat so often" },
    { "server", "heartbeat_timeout", PD_KEY_TIME, AT(heartbeat_timeout), "30s", 1, DAY, .help =
        "a connection that was silent for so long is closed and its worker counts as lost" },
    { "server", "read_timeout", PD_KEY_TIME, AT(read_timeout), "60s", 1, DAY,
      .help = "a frame that is not complete by then ends its connection" },
    { "server", "write_timeout", PD_KEY_TIME, AT(write_timeout), "60s", 1, DAY,
      .help = "a peer that has not read an answer by then is closed" },
    { "server", "drain_timeout", PD_KEY_TIME, AT(drain_timeout), "30s", 1, DAY,
      .help = "after SIGTERM rounds under way may take so long to finish" },
    { "limits", "max_jobs", PD_KEY_COUNT, AT(max_jobs), "1024", 1, 1000000, .help = "jobs served at once" },
    { "limits", "max_params", PD_KEY_COUNT, AT(max_params), "65536", 1, 1000000, .help = "parameters of one job" },
    { "limits", "max_total_bytes", PD_KEY_BYTES, AT(max_total_bytes), "auto", MIB, 1024 * TIB, true,
      .help = "weights, sums of gradients, optimizer state and snapshots of all jobs; auto: 80 % of the memory this "
              "process may use" },
    { "limits", "ingest_bytes", PD_KEY_BYTES, AT(ingest_bytes), "256MiB", 64 * KIB, 1024 * TIB, .help =
        "gradients of all workers that may be in flight; each worker owns at least one frame of it" },
    { "limits", "chunk_bytes", PD_KEY_BYTES, AT(chunk_bytes), TEXT_OF(PD_CHUNK_MIB) "MiB", 4 * KIB, 1024 * MIB, .help =
        "larger parameters travel in chunks of so many bytes of float32, a multiple of 64" },
    { "limits", "max_payload", PD_KEY_BYTES, AT(max_payload), "auto", 4 * KIB, 4096 * MIB, true,
      .help = "payload of one frame; auto: chunk_bytes" },
    { "limits", "max_pieces", PD_KEY_COUNT, AT(max_pieces), "1024", 1, 2048,
      .help = "tensors, or chunks of them, in one frame" },
    { "limits", "max_header", PD_KEY_BYTES, AT(max_header), "64KiB", 1 * KIB, 64 * KIB, .help = "header of one frame" },
    { "limits", "hello_bytes", PD_KEY_BYTES, AT(hello_bytes), "4KiB", 256, 64 * KIB,
      .help = "header of a connection's first frame, which has a job's rules and options: all that a stranger can "
              "make the server hold" },
    { "threads", "step_threads", PD_KEY_COUNT, AT(step_threads), "auto", 1, 1024, true, .help =
        "threads that take optimizer steps; auto: the processors this process may use" },
    { "threads", "pool_threads", PD_KEY_COUNT, AT(pool_threads), "auto", 1, 60, true, .help =
        "threads of lower priority that compute inverse roots; auto: one less than the processors, at least 1" },
    { "log", "level", PD_KEY_ONE_OF, AT(log_level), "info", .choices = "error|warning|notice|info|debug",
      .help = "least urgent lines that are written" },
    { "log", "format", PD_KEY_ONE_OF, AT(log_format), "text", .choices = "text|logfmt|json",
      .help = "form of the lines" },
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

static const char *const section_help[][2] = {
    { "server", "Where it listens, and how long it waits for whom." },
    { "limits", "What it may be made to hold. Sizes take KiB, MiB, GiB, TiB." },
    { "threads", "How it uses the processors." },
    { "log", "What it writes to the standard error." },
    { "job", "Presets of every job's configuration; a job's first worker may choose otherwise." },
};
enum { N_SECTIONS = sizeof section_help / sizeof section_help[0] };

static size_t count_job_keys(void)
{
    size_t n = 0;
    while (pd_job_keys[n].name != NULL) n++;
    return n;
}

static int make_table(pd_config *config)
{
    config->n_job = count_job_keys();
    config->n_keys = N_KEYS + config->n_job;
    config->keys = calloc(config->n_keys, sizeof *config->keys);
    config->text = calloc(config->n_keys, sizeof *config->text);
    config->job = calloc(config->n_job, sizeof *config->job);
    if (config->keys == NULL || config->text == NULL || config->job == NULL) return PD_NO_MEMORY;
    memcpy(config->keys, keys, sizeof keys);
    for (size_t i = 0; i < config->n_job; i++) {
        config->keys[N_KEYS + i] = (pd_key){ .section = "job", .name = pd_job_keys[i].name, .type = PD_KEY_JOB,
                                             .offset = i, .preset = pd_job_keys[i].preset,
                                             .choices = pd_job_keys[i].choices, .help = pd_job_keys[i].help };
        if ((config->job[i].name = strdup(pd_job_keys[i].name)) == NULL) return PD_NO_MEMORY;
    }
    return PD_OK;
}

/* ---- values ---- */

typedef struct suffix { const char *name; uint64_t times; } suffix;

static const suffix byte_suffixes[] = {
    { "KiB", KIB }, { "MiB", MIB }, { "GiB", 1024 * MIB }, { "TiB", TIB }, { "B", 1 }, { "", 1 }, { NULL, 0 }
};
static const suffix time_suffixes[] = { { "ms", 1 }, { "s", 1000 }, { "min", 60000 }, { "h", 3600000 }, { NULL, 0 } };
static const suffix count_suffixes[] = { { "", 1 }, { NULL, 0 } };

static const suffix *suffixes_of(pd_key_type type)
{
    return type == PD_KEY_BYTES ? byte_suffixes : type == PD_KEY_TIME ? time_suffixes : count_suffixes;
}

static const char *form_of(pd_key_type type)
{
    return type == PD_KEY_BYTES ? "a size like 64MiB" : type == PD_KEY_TIME ? "a duration like 500ms or 30s"
           : "a whole number";
}

/* Reads "64 MiB" as bytes. False: the text is no number of bytes. */
static bool parse_number(const char *text, const suffix *list, uint64_t *out)
{
    char *end;

    if (!isdigit((unsigned char)text[0])) return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (errno != 0) return false;
    while (*end == ' ') end++;
    for (; list->name != NULL; list++)
        if (strcmp(end, list->name) == 0) return !__builtin_mul_overflow(*out, list->times, out);
    return false;
}

static int set_number(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    uint64_t *out = (uint64_t *)(void *)((char *)config + key->offset), number = 0;

    if (key->automatic && strcmp(value, "auto") == 0) {
        *out = 0;
        return PD_OK;
    }
    if (!parse_number(value, suffixes_of(key->type), &number))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s.%s = %s: expected %s%s", key->section, key->name, value,
                       form_of(key->type), key->automatic ? ", or auto" : "");
    if (number < key->least || number > key->most)
        return pd_fail(err, PD_OUT_OF_RANGE, "%s.%s = %s: expected %llu to %llu%s", key->section, key->name, value,
                       (unsigned long long)key->least, (unsigned long long)key->most,
                       key->type == PD_KEY_TIME ? " ms" : key->type == PD_KEY_BYTES ? " bytes" : "");
    *out = number;
    return PD_OK;
}

/* Returns the index of `value` among "a|b|c", or -1. */
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

static int replace(char **text, const char *value, pd_error *err)
{
    char *copy = strdup(value);

    if (copy == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    free(*text);
    *text = copy;
    return PD_OK;
}

static int set_value(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    int rc;

    switch (key->type) {
    case PD_KEY_TEXT:   return replace((char **)(void *)((char *)config + key->offset), value, err);
    case PD_KEY_YES_NO: return set_flag(config, key, value, err);
    case PD_KEY_ONE_OF: return set_choice(config, key, value, err);
    case PD_KEY_COUNT:
    case PD_KEY_BYTES:
    case PD_KEY_TIME:   return set_number(config, key, value, err);
    case PD_KEY_JOB:    break;
    }
    if ((rc = pd_job_key_check(key->name, value, err)) != PD_OK) return rc;
    return replace(&config->job[key->offset].value, value, err);
}

/* ---- finding keys ---- */

static size_t least3(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Counts the edits between two words of less than 64 letters (Levenshtein). */
static size_t distance(const char *a, const char *b)
{
    size_t row[64], n = strnlen(b, 63);

    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j];
            row[j] = least3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n];
}

/* Finds the nearest key. A key of the same name in another section is nearer than any other. */
static const pd_key *nearest(const pd_config *config, const char *section, const char *name)
{
    const pd_key *best = &config->keys[0];
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < config->n_keys; i++) {
        size_t d = 2 * distance(name, config->keys[i].name) + (strcmp(section, config->keys[i].section) != 0);
        if (d >= least) continue;
        least = d;
        best = &config->keys[i];
    }
    return best;
}

static pd_key *find(const pd_config *config, const char *section, const char *name)
{
    for (size_t i = 0; i < config->n_keys; i++)
        if (strcmp(config->keys[i].section, section) == 0 && strcmp(config->keys[i].name, name) == 0)
            return &config->keys[i];
    return NULL;
}

int pd_config_set(pd_config *config, const char *section, const char *name, const char *value, pd_error *err)
{
    const pd_key *key = find(config, section, name), *near;
    int rc;

    if (key == NULL) {
        near = nearest(config, section, name);
        return pd_fail(err, PD_NOT_FOUND, "there is no key %s in [%s]; the nearest is %s in [%s]", name, section,
                       near->name, near->section);
    }
    if ((rc = set_value(config, key, value, err)) != PD_OK) return rc;
    return replace(&config->text[key - config->keys], value, err);
}

/* ---- life ---- */

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
    free(config->listen);
    free(config->unix_socket);
    free(config->port_file);
    free(config->job);
    free(config->keys);
    free(config->text);
    free(config);
}

/* ---- file ---- */

typedef struct reading {
    pd_config *config;
    bool      *seen;
    pd_error   first;                   /* the first error; inih reports its line */
} reading;

static int on_key(void *arg, const char *section, const char *name, const char *value)
{
    reading *r = arg;
    pd_key *key = find(r->config, section, name);

    if (r->first.code != PD_OK) return 0;
    if (key != NULL && r->seen[key - r->config->keys]) {
        pd_fail(&r->first, PD_INVALID_ARGUMENT, "%s is given twice", name);
        return 0;
    }
    if (key != NULL) r->seen[key - r->config->keys] = true;
    return pd_config_set(r->config, section, name, value, &r->first) == PD_OK;
}

int pd_config_read_file(pd_config *config, const char *path, pd_error *err)
{
    reading r = { .config = config, .seen = calloc(config->n_keys, sizeof(bool)), .first.code = PD_OK };
    int line = r.seen != NULL ? ini_parse(path, on_key, &r) : -2;

    free(r.seen);
    if (line == 0) return PD_OK;
    if (line == -1) return pd_fail(err, PD_NOT_FOUND, "%s cannot be read: %s", path, strerror(errno));
    if (line < 0) return pd_fail(err, PD_NO_MEMORY, "%s: out of memory", path);
    if (r.first.code == PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s:%d: expected [section], key = value or # comment", path, line);
    return pd_fail(err, r.first.code, "%s:%d: %.400s", path, line, r.first.text);
}

/* ---- environment ---- */

/* Splits "SERVER_LISTEN=..." into section and key, in lower case. False: there is no such section. */
static bool split_variable(const char *variable, const char **section, char *name, size_t size)
{
    for (size_t i = 0; i < N_SECTIONS; i++) {
        size_t n = strlen(section_help[i][0]), j = 0;
        if (strncasecmp(variable, section_help[i][0], n) != 0 || variable[n] != '_') continue;
        *section = section_help[i][0];
        for (const char *c = variable + n + 1; *c != '=' && *c != '\0' && j + 1 < size; c++)
            name[j++] = (char)tolower((unsigned char)*c);
        name[j] = '\0';
        return true;
    }
    return false;
}

int pd_config_read_environment(pd_config *config, char *const *environment, pd_error *err)
{
    static const char ours[] = "PARAMD_";
    const char *section;
    char name[64];
    pd_error found;

    for (; *environment != NULL; environment++) {
        const char *variable = *environment + sizeof ours - 1, *value = strchr(*environment, '=');
        int rc;
        if (strncmp(*environment, ours, sizeof ours - 1) != 0 || value == NULL
            || !split_variable(variable, &section, name, sizeof name)) continue;
        rc = pd_config_set(config, section, name, value + 1, &found);
        if (rc != PD_OK)
            return pd_fail(err, rc, "environment variable %.*s: %.400s", (int)(value - *environment), *environment,
                           found.text);
    }
    return PD_OK;
}

/* ---- the whole ---- */

static void resolve(pd_config *config)
{
    uint64_t cores = (uint64_t)pd_host_cores();

    if (config->max_total_bytes == 0) config->max_total_bytes = pd_host_memory() / 10 * 8;
    if (config->max_payload == 0) config->max_payload = config->chunk_bytes;
    if (config->step_threads == 0) config->step_threads = cores;
    if (config->pool_threads == 0) config->pool_threads = cores > 1 ? (cores - 1 < 60 ? cores - 1 : 60) : 1;
}

int pd_config_check(pd_config *config, pd_error *err)
{
    resolve(config);
    if (config->chunk_bytes % 64 != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "limits.chunk_bytes = %llu: expected a multiple of 64",
                       (unsigned long long)config->chunk_bytes);
    if (config->max_payload < config->chunk_bytes)
        return pd_fail(err, PD_INVALID_ARGUMENT, "limits.max_payload = %llu: must be at least limits.chunk_bytes, %llu",
                       (unsigned long long)config->max_payload, (unsigned long long)config->chunk_bytes);
    if (config->ingest_bytes < config->max_payload)
        return pd_fail(err, PD_INVALID_ARGUMENT, "limits.ingest_bytes = %llu: must hold at least one frame of "
                       "limits.max_payload, %llu", (unsigned long long)config->ingest_bytes,
                       (unsigned long long)config->max_payload);
    if (config->heartbeat_timeout <= config->heartbeat_interval)
        return pd_fail(err, PD_INVALID_ARGUMENT, "server.heartbeat_timeout = %llu ms: must be longer than "
                       "server.heartbeat_interval, %llu ms", (unsigned long long)config->heartbeat_timeout,
                       (unsigned long long)config->heartbeat_interval);
    return PD_OK;
}

static const char *help_of(const char *section)
{
    for (size_t i = 0; i < N_SECTIONS; i++)
        if (strcmp(section_help[i][0], section) == 0) return section_help[i][1];
    return "";
}

static void print_key(const pd_key *key, const char *value, FILE *out)
{
    fprintf(out, "# %c%s.\n", toupper((unsigned char)key->help[0]), key->help + 1);
    if (key->choices != NULL) fprintf(out, "# One of %s. ", key->choices);
    else fprintf(out, "# ");
    fprintf(out, "Default: %s\n%s =%s%s\n", key->preset[0] != '\0' ? key->preset : "none", key->name,
            value[0] != '\0' ? " " : "", value);
}

void pd_config_print(const pd_config *config, FILE *out)
{
    const char *section = "";

    fprintf(out, "# Configuration of paramd: every key with its value. Without a file the defaults hold.\n"
                 "# A flag wins over an environment variable, that over this file:\n"
                 "#   listen = ... in [server]  <  PARAMD_SERVER_LISTEN=...  <  --server-listen=...\n"
                 "# paramd --print-config writes this file, paramd --check-config reads one and says what is wrong.\n");
    for (size_t i = 0; i < config->n_keys; i++) {
        const pd_key *key = &config->keys[i];
        if (strcmp(section, key->section) != 0) fprintf(out, "\n# %s\n[%s]\n", help_of(key->section), key->section);
        section = key->section;
        print_key(key, config->text[i], out);
    }
}
