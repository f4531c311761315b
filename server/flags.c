/* flags.c - the command line of the daemon. */
#include "flags.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>

enum { FLAG_CONFIG = 'c', FLAG_CHECK = 256, FLAG_PRINT, FLAG_VERSION, FIRST_KEY = 512, NAME_BYTES = 64 };

typedef struct given {                  /* the command line, applied after the file and the environment */
    pd_mode      mode;
    const char  *file;
    const char **value; int n;          /* by key; NULL: not given */
} given;

static const struct argp_option own[] = {
    { "config", FLAG_CONFIG, "FILE", 0, "Read the configuration from FILE", 0 },
    { "check-config", FLAG_CHECK, 0, 0, "Check the configuration and exit", 0 },
    { "print-config", FLAG_PRINT, 0, 0, "Print the whole configuration as a file and exit", 0 },
    { "version", FLAG_VERSION, 0, 0, "Print version, protocol and BLAS core and exit", 0 },
};
enum { N_OWN = sizeof own / sizeof own[0] };

static error_t on_flag(int flag, char *value, struct argp_state *state)
{
    given *g = state->input;

    switch (flag) {
    case FLAG_CONFIG:  g->file = value; return 0;
    case FLAG_CHECK:   g->mode = PD_CHECK_CONFIG; return 0;
    case FLAG_PRINT:   g->mode = PD_PRINT_CONFIG; return 0;
    case FLAG_VERSION: g->mode = PD_SHOW_VERSION; return 0;
    case ARGP_KEY_ARG: argp_error(state, "unexpected \"%s\": values are given as --section-key=value",
                                  value); return EINVAL;
    default: break;
    }
    if (flag < FIRST_KEY || flag >= FIRST_KEY + g->n) return ARGP_ERR_UNKNOWN;       /* such as argp's own keys */
    g->value[flag - FIRST_KEY] = value;
    return 0;
}

/* Makes the long and the short form: "--server-max-connections", "--max-connections". */
typedef struct flag_names { char full[NAME_BYTES], brief[NAME_BYTES]; } flag_names;

static void name_flags(flag_names *names, const pd_key *key)
{
    snprintf(names->full, NAME_BYTES, "%s-%s", key->section, key->name);
    snprintf(names->brief, NAME_BYTES, "%s", key->name);
    for (char *c = names->full; *c != '\0'; c++)
        if (*c == '_') *c = '-';
    for (char *c = names->brief; *c != '\0'; c++)
        if (*c == '_') *c = '-';
}

/* Returns whether no other key and no option has the name of this key: then it has a short form. */
static bool is_unique(const pd_config *config, const char *name)
{
    int n = 0;

    for (size_t i = 0; i < config->n_keys; i++) n += strcmp(config->keys[i].name, name) == 0;
    for (size_t i = 0; i < N_OWN; i++) n += strcmp(own[i].name, name) == 0;
    return n == 1;
}

/* Makes the table of options: our own, then a heading for each section and an option for each key. */
static void fill_options(struct argp_option *options, flag_names *names, const pd_config *config)
{
    const char *section = "";
    int group = 0;

    memcpy(options, own, sizeof own);
    options += N_OWN;
    for (size_t i = 0; i < config->n_keys; i++) {
        const pd_key *key = &config->keys[i];
        if (strcmp(section, key->section) != 0)
            *options++ = (struct argp_option){ .doc = section = key->section, .group = ++group };
        name_flags(&names[i], key);
        *options++ = (struct argp_option){ .name = names[i].full, .key = FIRST_KEY + (int)i,
                                           .arg = key->preset[0] != '\0' ? key->preset : "PATH", .doc = key->help,
                                           .group = group };
        if (is_unique(config, key->name))
            *options++ = (struct argp_option){ .name = names[i].brief, .flags = OPTION_ALIAS, .group = group };
    }
}

static int apply(pd_config *config, const given *g, char *const *environment, pd_error *err)
{
    int rc = g->file != NULL ? pd_config_read_file(config, g->file, err) : PD_OK;

    if (rc == PD_OK) rc = pd_config_read_environment(config, environment, err);
    for (size_t i = 0; i < config->n_keys && rc == PD_OK; i++)
        if (g->value[i] != NULL)
            rc = pd_config_set(config, config->keys[i].section, config->keys[i].name, g->value[i], err);
    return rc;
}

int pd_flags_read(pd_config *config, int argc, char **argv, char *const *environment, pd_mode *mode, pd_error *err)
{
    struct argp_option *options = calloc(3 * config->n_keys + N_OWN + 1, sizeof *options);
    flag_names *names = calloc(config->n_keys, sizeof *names);
    given g = { .mode = PD_SERVE, .value = calloc(config->n_keys, sizeof *g.value), .n = (int)config->n_keys };
    struct argp parser = { .options = options, .parser = on_flag, .doc =
        "paramd - a parameter server: workers push gradients, it runs the optimizer and serves the new weights.\v"
        "Every key can also stand in a file (--print-config shows one) or in the environment (PARAMD_SECTION_KEY)." };
    int rc = PD_NO_MEMORY;

    if (options != NULL && names != NULL && g.value != NULL) {
        fill_options(options, names, config);
        argp_parse(&parser, argc, argv, 0, NULL, &g);
        rc = apply(config, &g, environment, err);
    } else {
        pd_fail(err, rc, "out of memory");
    }
    *mode = g.mode;
    free(options);
    free(names);
    free(g.value);
    return rc;
}
