/* config_sources.c - reads the values of configuration keys from a file and from the environment. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

/* A configuration file while it is being read. */
typedef struct reading {
    pd_config *config;
    bool *seen;     /* for each configuration key: true if the file has already set it */
    pd_error first; /* the first error in the file; the inih library returns the number of its line */
} reading;

/* Returns the length of a value in a configuration file, without a comment after it. The comment begins with "#", at
 * the value's beginning or after a blank. The inih library has already removed comments that begin with ";". */
static size_t value_length(const char *value)
{
    size_t n = 0;

    for (; value[n] != '\0'; n++)
        if (value[n] == '#' && (n == 0 || isblank((unsigned char)value[n - 1]))) break;
    while (n > 0 && isblank((unsigned char)value[n - 1])) n--;
    return n;
}

static int set_copy(reading *r, const char *section, const char *name, const char *value)
{
    char *bare = strndup(value, value_length(value));
    int rc = bare != NULL ? pd_config_set(r->config, section, name, bare, &r->first)
                          : pd_fail(&r->first, PD_NO_MEMORY, "out of memory");

    free(bare);
    return rc;
}

/* Sets one key of a configuration file. The inih library calls this function for each key. Returns 0 after an error. */
static int on_key(void *arg, const char *section, const char *name, const char *value)
{
    reading *r = arg;
    char full[2 * PD_KEY_NAME];
    const pd_key *key;

    if (r->first.code != PD_OK) return 0;
    snprintf(full, sizeof full, "%s_%s", section, name);
    key = pd_config_find(r->config, full);
    if (key != NULL && r->seen[key - r->config->keys]) {
        pd_fail(&r->first, PD_INVALID_ARGUMENT, "%s is given twice", name);
        return 0;
    }
    if (key != NULL) r->seen[key - r->config->keys] = true;
    return set_copy(r, section, name, value) == PD_OK;
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

#define PREFIX "PARAMD_"

/* Environment variables that begin with PARAMD_ but are not configuration keys, as patterns of NAME=VALUE without this
 * prefix. */
static const struct {
    const char *pattern, *name; /* name: the name in lower case, as it is suggested for a mistyped variable; NULL:
                                 * never suggested, because people do not set the variable by hand */
} foreign[] = {
    { "URL=*", "url" },       /* environment variable of the client library and paramctl: the daemon's address */
    { "JOB=*", "job" },       /* environment variable of the client library: the job's name */
    { "RUN=*", "run" },       /* environment variable of the client library: the run's identity */
    { "RESUME=*", "resume" }, /* environment variable of the client library: whether to continue a job */
    { "GENERATION=*", "generation" }, /* environment variable of the Python package: the generation of the ranks */
    { "LIBRARY=*", "library" },       /* environment variable of bindings of other languages: the path of libparamd */
    { "TOKEN_FILE=*", "token_file" }, /* environment variables of the client library, up to KEY_FILE: the files for
                                       * tls:// addresses */
    { "CA_FILE=*", "ca_file" },
    { "CERT_FILE=*", "cert_file" },
    { "KEY_FILE=*", "key_file" },
    { "CPU=*", "cpu" },           /* environment variable of libparamd_optim: the instruction set to use */
    { "BIN=*", "bin" },           /* environment variable of the tests: the folder of the programs */
    { "TEST_*=*", NULL },         /* environment variable of the tests: what they may use, such as containers */
    { "SEEDS=*", NULL },          /* environment variable of tests/fuzz: a folder of first inputs */
    { "COMPOSE_INSIDE=*", NULL }, /* environment variable of tests/e2e/compose.sh: it runs in its own namespace */
    { "BASE=*", NULL },           /* environment variable of deploy/docker-compose.yml: the image to build on */
    { "SLIM=*", NULL },           /* environment variable of deploy/docker-compose.yml: the image to run on */
    { "REEXECUTED=*", NULL },     /* environment variable of main.c: the daemon has already started itself again */
};
enum { N_FOREIGN = sizeof foreign / sizeof foreign[0] };

/* Returns whether an assignment NAME=VALUE, without its prefix PARAMD_, is one that Kubernetes makes for a service
 * named paramd or paramd-*. Kubernetes sets such variables in each container of the service's namespace; they begin
 * with the name of the service. */
static bool is_service_link(const char *assignment)
{
    static const char *const patterns[] = {
        "SERVICE_HOST=[0-9a-f]*",
        "SERVICE_PORT=[0-9]*",
        "SERVICE_PORT_?*=[0-9]*", /* port with a name */
        "PORT=[a-z]*://*",
        "PORT_[0-9]*_[A-Z]*P=[a-z]*://*", /* TCP, UDP, SCTP */
        "PORT_[0-9]*_[A-Z]*P_PROTO=[a-z]*p",
        "PORT_[0-9]*_[A-Z]*P_PORT=[0-9]*",
        "PORT_[0-9]*_[A-Z]*P_ADDR=[0-9a-f]*",
    };
    const char *equals = strchr(assignment, '=');

    for (const char *at = assignment; at != NULL && at < equals; at = strchr(at, '_'), at = at ? at + 1 : NULL)
        for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
            if (fnmatch(patterns[i], at, 0) == 0) return true;
    return false;
}

static bool is_foreign(const char *assignment)
{
    for (size_t i = 0; i < N_FOREIGN; i++)
        if (fnmatch(foreign[i].pattern, assignment, 0) == 0) return true;
    return is_service_link(assignment);
}

static int unknown_variable(const pd_config *config, const char *name, pd_error *err)
{
    pd_nearest search = pd_nearest_begin(name, strlen(name));
    char near[PD_KEY_NAME];

    if (strcmp(name, "port") == 0)
        return pd_fail(err, PD_NOT_FOUND, "there is no such variable: write " PREFIX "LISTEN=:7070 for port 7070");
    pd_config_offer(config, &search);
    for (size_t i = 0; i < N_FOREIGN; i++)
        if (foreign[i].name != NULL) pd_nearest_offer(&search, foreign[i].name);
    if (search.best == NULL) return pd_fail(err, PD_NOT_FOUND, "there is no such variable (paramd --help lists all)");
    snprintf(near, sizeof near, "%s", search.best);
    for (char *c = near; *c != '\0'; c++) *c = (char)toupper((unsigned char)*c);
    return pd_fail(err, PD_NOT_FOUND, "there is no such variable; the nearest is " PREFIX "%s", near);
}

/* Sets a configuration key from an environment variable. `assignment` is NAME=VALUE without its prefix PARAMD_. */
static int read_variable(pd_config *config, bool *seen, const char *assignment, pd_error *err)
{
    size_t n = strcspn(assignment, "=");
    char name[PD_KEY_NAME];
    const pd_key *key;

    snprintf(name, sizeof name, "%.*s", (int)n, assignment);
    for (char *c = name; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
    if ((key = pd_config_find(config, name)) == NULL)
        return is_foreign(assignment) ? PD_OK : unknown_variable(config, name, err);
    if (seen[key - config->keys])
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s.%s is given twice, by its long and its short name", key->section,
                       key->name);
    seen[key - config->keys] = true;
    return pd_config_set_key(config, key, assignment + n + 1, err);
}

int pd_config_read_environment(pd_config *config, char *const *environment, pd_error *err)
{
    bool *seen = calloc(config->n_keys, sizeof *seen);
    int rc = PD_OK;

    if (seen == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (; *environment != NULL && rc == PD_OK; environment++) {
        pd_error why;
        if (strncmp(*environment, PREFIX, strlen(PREFIX)) != 0 || strchr(*environment, '=') == NULL) continue;
        rc = read_variable(config, seen, *environment + strlen(PREFIX), &why);
        if (rc != PD_OK)
            pd_fail(err, rc, "environment variable %.*s: %.400s", (int)strcspn(*environment, "="), *environment,
                    why.text);
    }
    free(seen);
    return rc;
}
