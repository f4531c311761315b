/* flags.c - reads the daemon's command line. Flags are written in full: --name=VALUE or --name VALUE. */
#include "flags.h"

#include <stdlib.h>
#include <string.h>

typedef enum own_flag { CONFIG, CHECK, PRINT, VERSION, HELP, PORT } own_flag;

const pd_own_flag pd_own_flags[] = {
    [CONFIG] = { 'c', "config", "FILE", "read the configuration from FILE" },
    [CHECK] = { 0, "check_config", NULL, "make all checks of the start, say what is wrong, and exit" },
    [PRINT] = { 0, "print_config", NULL, "print the whole configuration as a file and exit" },
    [PORT] = { 0, "port", "N", "listen on port N of this machine: short for --listen=127.0.0.1:N" },
    [VERSION] = { 0, "version", NULL, "print version, protocol and BLAS core and exit" },
    [HELP] = { 'h', "help", NULL, "print this help and exit" },
    [PORT + 1] = { 0, NULL, NULL, NULL },
};
enum { N_OWN = sizeof pd_own_flags / sizeof pd_own_flags[0] - 1, HELP_COLUMNS = 100 };

/* The command line while it is being read. Stores the values of configuration keys until the file and the environment
 * are read, because a flag overrides both. */
typedef struct line {
    pd_config *config;
    pd_flags *flags;
    const char *const *argv;
    const char **value; /* for each configuration key, its value from the command line; NULL: no flag sets the key */
    const char *port;   /* value of the flag --port; NULL: it was not given */
    char listen[32];    /* text "127.0.0.1:N" for the flag --port N */
} line;

/* A flag as it was given on the command line. */
typedef struct flag {
    char name[PD_KEY_NAME]; /* the flag's name without its leading dashes; a '-' inside is replaced by '_' */
    const char *value;      /* the flag's value after "="; NULL: there is no "=" */
    const char *text;       /* the whole argument of the command line */
} flag;

static void split(flag *f, const char *text)
{
    size_t n = strcspn(text + 2, "=");

    f->text = text;
    f->value = text[2 + n] == '=' ? text + 2 + n + 1 : NULL;
    snprintf(f->name, sizeof f->name, "%.*s", (int)n, text + 2);
    for (char *c = f->name; *c != '\0'; c++)
        if (*c == '-') *c = '_';
}

static const char *with_dashes(char *name)
{
    for (char *c = name; *c != '\0'; c++)
        if (*c == '_') *c = '-';
    return name;
}

static int unknown(const line *l, const flag *f, pd_error *err)
{
    pd_nearest search = pd_nearest_begin(f->name, strlen(f->name));
    char near[PD_KEY_NAME];
    size_t n = strcspn(f->text, "=");

    pd_config_offer(l->config, &search);
    for (size_t i = 0; i < N_OWN; i++) pd_nearest_offer(&search, pd_own_flags[i].name);
    snprintf(near, sizeof near, "%s", search.best != NULL ? search.best : "help");
    return pd_fail(err, PD_INVALID_ARGUMENT, "there is no flag %.*s: did you mean --%s? (paramd --help lists all)",
                   (int)(n < 64 ? n : 64), f->text, with_dashes(near));
}

/* Sets f->value to the flag's value: the text after "=", otherwise the next argument. PD_INVALID_ARGUMENT: there is
 * neither. */
static int take_value(line *l, flag *f, pd_error *err)
{
    if (f->value == NULL) f->value = *l->argv != NULL ? *l->argv++ : NULL;
    if (f->value != NULL) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s: expected a value, --name=VALUE or --name VALUE", f->text);
}

static int run_own(line *l, size_t i, flag *f, pd_error *err)
{
    int rc = PD_OK;

    if (pd_own_flags[i].value != NULL) rc = take_value(l, f, err);
    if (pd_own_flags[i].value == NULL && f->value != NULL)
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "%.64s: this flag takes no value", f->text);
    if (rc != PD_OK) return rc;
    switch ((own_flag)i) {
    case CONFIG: l->flags->file = f->value; break;
    case CHECK: l->flags->mode = PD_CHECK_CONFIG; break;
    case PRINT: l->flags->mode = PD_PRINT_CONFIG; break;
    case VERSION: l->flags->mode = PD_SHOW_VERSION; break;
    case HELP: l->flags->mode = PD_SHOW_HELP; break;
    case PORT: l->port = f->value; break;
    }
    return PD_OK;
}

static int set_key(line *l, const pd_key *key, flag *f, pd_error *err)
{
    if (f->value == NULL && pd_key_is_flag(key)) f->value = "yes";
    if (take_value(l, f, err) != PD_OK) return PD_INVALID_ARGUMENT;
    l->value[key - l->config->keys] = f->value;
    return PD_OK;
}

static int read_long(line *l, const char *text, pd_error *err)
{
    flag f;
    const pd_key *key;

    split(&f, text);
    for (size_t i = 0; i < N_OWN; i++)
        if (strcmp(f.name, pd_own_flags[i].name) == 0) return run_own(l, i, &f, err);
    if ((key = pd_config_find(l->config, f.name)) != NULL) return set_key(l, key, &f, err);
    if (strncmp(f.name, "no_", 3) != 0 || (key = pd_config_find(l->config, f.name + 3)) == NULL || !pd_key_is_flag(key))
        return unknown(l, &f, err);
    if (f.value != NULL) return pd_fail(err, PD_INVALID_ARGUMENT, "%.64s: this flag takes no value", text);
    f.value = "no";
    return set_key(l, key, &f, err);
}

/* Reads a flag of one letter: "-h", "-c FILE" or "-cFILE". */
static int read_short(line *l, const char *text, pd_error *err)
{
    flag f = { .text = text, .value = text[2] != '\0' ? text + 2 : NULL };

    for (size_t i = 0; i < N_OWN; i++)
        if (pd_own_flags[i].letter != 0 && pd_own_flags[i].letter == text[1]) return run_own(l, i, &f, err);
    return pd_fail(err, PD_INVALID_ARGUMENT, "there is no flag %.64s (paramd --help lists all)", text);
}

static int read_argument(line *l, const char *text, pd_error *err)
{
    if (strncmp(text, "--", 2) == 0 && text[2] != '\0') return read_long(l, text, err);
    if (text[0] == '-' && text[1] != '\0' && text[1] != '-') return read_short(l, text, err);
    return pd_fail(
        err, PD_INVALID_ARGUMENT,
        "unexpected \"%.64s\": expected a flag (a yes-or-no flag has no value of its own: --insecure or --insecure=no)",
        text);
}

/* Turns the flag --port N into --listen=127.0.0.1:N. */
static int apply_port(line *l, pd_error *err)
{
    size_t listen = (size_t)(pd_config_find(l->config, "listen") - l->config->keys);
    size_t digits;

    if (l->port == NULL) return PD_OK;
    if (l->value[listen] != NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "--port %.16s and --listen %.100s both say where to listen: give one of them (--port N is "
                       "--listen 127.0.0.1:N)",
                       l->port, l->value[listen]);
    digits = strspn(l->port, "0123456789");
    if (digits == 0 || digits > 5 || l->port[digits] != '\0' || atoi(l->port) > 65535)
        return pd_fail(err, PD_INVALID_ARGUMENT, "--port %.64s: expected a number from 0 (a free port) to 65535",
                       l->port);
    snprintf(l->listen, sizeof l->listen, "127.0.0.1:%s", l->port);
    l->value[listen] = l->listen;
    return PD_OK;
}

/* Sets the configuration keys from the file, then from the environment, then from the flags. A later source overrides
 * an earlier one. */
static int apply(line *l, char *const *environment, pd_error *err)
{
    pd_config *config = l->config;
    int rc = apply_port(l, err);

    if (rc != PD_OK || l->flags->mode == PD_SHOW_HELP || l->flags->mode == PD_SHOW_VERSION) return rc;
    if (l->flags->file != NULL) rc = pd_config_read_file(config, l->flags->file, err);
    if (rc == PD_OK) rc = pd_config_read_environment(config, environment, err);
    for (size_t i = 0; i < config->n_keys && rc == PD_OK; i++)
        if (l->value[i] != NULL) rc = pd_config_set_key(config, &config->keys[i], l->value[i], err);
    return rc;
}

int pd_flags_read(pd_config *config, char *const *argv, char *const *environment, pd_flags *flags, pd_error *err)
{
    line l = { .config = config,
               .flags = flags,
               .argv = (const char *const *)argv,
               .value = calloc(config->n_keys, sizeof *l.value) };
    int rc = PD_OK;

    *flags = (pd_flags){ .mode = PD_SERVE };
    if (l.value == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (*l.argv != NULL) l.argv++; /* skip the name of the program */
    while (rc == PD_OK && *l.argv != NULL) rc = read_argument(&l, *l.argv++, err);
    if (rc == PD_OK) rc = apply(&l, environment, err);
    free(l.value);
    return rc;
}

static void print_words(const char *words, FILE *out)
{
    fprintf(out, "\n");
    pd_words_print(words, "          ", out);
}

/* Returns the text that the help shows as value of a configuration key: the choices, or the default value as an
 * example. */
static const char *value_form(const pd_key *key)
{
    if (key->choices != NULL) return key->choices;
    return key->preset[0] != '\0' ? key->preset : "PATH";
}

/* Prints a flag's name as it is given on the command line: with '-' in place of '_'. */
static void print_name(const char *name, FILE *out)
{
    char text[PD_KEY_NAME];

    snprintf(text, sizeof text, "%s", name);
    fprintf(out, "--%s", with_dashes(text));
}

char *pd_flags_text(const pd_config *config)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) return NULL;
    for (size_t i = 0; i < config->n_keys; i++) {
        const pd_key *key = &config->keys[i];
        if (strcmp(config->text[i], key->preset) == 0 && i > 0) continue; /* key 0 is server.listen */
        fprintf(out, "--%s-", key->section);
        for (const char *c = key->name; *c != '\0'; c++) putc(*c == '_' ? '-' : *c, out);
        fprintf(out, "=%s\n", config->text[i]);
    }
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

static void help_own(size_t i, FILE *out)
{
    fprintf(out, pd_own_flags[i].letter != 0 ? "  -%c, " : "      ", pd_own_flags[i].letter);
    print_name(pd_own_flags[i].name, out);
    if (pd_own_flags[i].value != NULL) fprintf(out, "=%s", pd_own_flags[i].value);
    print_words(pd_own_flags[i].help, out);
}

/* Prints a short flag before its long form: on one line with it, or on a line of its own if both are too wide. */
static void print_short(const pd_key *key, FILE *out)
{
    size_t columns = strlen("      --, --=") + strlen(key->name) + strlen(key->long_name) + strlen(value_form(key));

    print_name(key->name, out);
    fprintf(out, columns > HELP_COLUMNS ? ",\n      " : ", ");
}

static void help_key(const pd_config *config, const pd_key *key, FILE *out)
{
    char text[1024];

    fprintf(out, "      ");
    if (pd_key_is_short(config, key)) print_short(key, out);
    print_name(key->long_name, out);
    fprintf(out, pd_key_is_flag(key) ? "[=yes|no]" : "=%s", value_form(key));
    snprintf(text, sizeof text, "%s%s%s%s", key->help, key->choices != NULL ? " [" : "",
             key->choices != NULL ? key->preset : "", key->choices != NULL ? "]" : "");
    print_words(text, out);
}

void pd_flags_help(const pd_config *config, FILE *out)
{
    const char *section = "";
    char text[200];

    fprintf(out, "Usage: paramd [FLAG...]\n"
                 "A parameter server: takes gradients, runs the optimizer, serves the new weights.\n\n");
    for (size_t i = 0; i < N_OWN; i++) help_own(i, out);
    for (size_t i = 0; i < config->n_keys; i++) {
        const pd_key *key = &config->keys[i];
        if (strcmp(section, key->section) != 0) {
            snprintf(text, sizeof text, "[%s] %s", key->section, pd_section_help(key->section));
            fprintf(out, "\n");
            pd_words_print(text, "", out);
        }
        section = key->section;
        help_key(config, key, out);
    }
    fprintf(out,
            "\nEach key can also stand in the file of --config (--print-config shows one) or in\nthe environment:\n"
            "  listen = ... in [server] < PARAMD_LISTEN or PARAMD_SERVER_LISTEN < --listen\n"
            "Sizes: 4096, 64k, 256MiB, 1G. Durations: 500ms, 30s, 5m, 1h, 1d.\n--no-insecure is --insecure=no.\n"
            "SIGTERM: finish the rounds under way, then stop.\nSIGHUP: read the configuration again.\n\n"
            "Exit codes:\n");
#define HELP_EXIT(name, number, help) fprintf(out, "  %d  %s\n", number, help);
    PD_EXITS(HELP_EXIT)
#undef HELP_EXIT
}
