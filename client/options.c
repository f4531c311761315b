/* options.c - the settings of a client handle, from pd_client_options, the environment and defaults. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define DEFAULT_URL "tcp://127.0.0.1:7070"
#define DEFAULT_DEADLINE 120.0
enum { MAX_WORLD = 1 << 20 };

/* Returns the value of an environment variable; NULL if it is not set or empty. */
static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Returns the path of a file that was given, or that an environment variable names; NULL: neither. */
static const char *choose_file(const char *given, const char *name)
{
    return given != NULL && given[0] != '\0' ? given : from_environment(name);
}

static const char *choose_urls(const char *given)
{
    if (given != NULL && given[0] != '\0') return given;
    given = from_environment("PARAMD_URL");
    return given != NULL ? given : DEFAULT_URL;
}

static const char *choose_job(const char *given)
{
    if (given != NULL) return given;
    if ((given = from_environment("PARAMD_JOB")) != NULL) return given;
    given = from_environment("TORCHELASTIC_RUN_ID");
    return given != NULL && strcmp(given, "none") != 0 ? given : "default";
}

static int read_count(const char *name, uint32_t preset, uint32_t *out, pd_error *err)
{
    const char *text = from_environment(name);
    char *end;
    long value;

    *out = preset;
    if (text == NULL) return PD_OK;
    value = strtol(text, &end, 10);
    if (*end != '\0' || value < 0 || value > MAX_WORLD)
        return pd_fail(err, PD_INVALID_ARGUMENT, "environment variable %s=\"%s\": expected a number from 0 to %d", name,
                       text, MAX_WORLD);
    *out = (uint32_t)value;
    return PD_OK;
}

static int choose_rank(pd_core_config *core, const pd_client_options *options, pd_error *err)
{
    int rc = PD_OK;

    if (core->job[0] == '\0') {
        core->world_size = 1;
        return PD_OK;
    }
    if (options->world_size < 0 || options->rank < 0 || options->world_size > MAX_WORLD)
        return pd_fail(err, PD_INVALID_ARGUMENT, "rank %d of %d: expected 0 <= rank < world_size <= %d", options->rank,
                       options->world_size, MAX_WORLD);
    core->rank = (uint32_t)options->rank;
    core->world_size = (uint32_t)options->world_size;
    if (core->world_size == 0) {
        rc = read_count("RANK", 0, &core->rank, err);
        if (rc == PD_OK) rc = read_count("WORLD_SIZE", 1, &core->world_size, err);
    }
    if (rc == PD_OK && core->rank >= core->world_size)
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "rank %u of %u: expected 0 <= rank < world_size", core->rank,
                     core->world_size);
    return rc;
}

static int choose_nonce(uint64_t given, uint64_t *nonce, pd_error *err)
{
    *nonce = given;
    while (*nonce == 0)
        if (getrandom(nonce, sizeof *nonce, 0) != sizeof *nonce)
            return pd_fail(err, PD_INTERNAL, "no random numbers from the system");
    return PD_OK;
}

static void choose_label(pd_settings *settings, const char *given)
{
    char host[128] = "";

    settings->core.label = settings->label;
    if (given != NULL && given[0] != '\0') {
        settings->core.label = given;
        return;
    }
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "?");
    snprintf(settings->label, sizeof settings->label, "%s:%ld", host, (long)getpid());
}

int pd_settings_resolve(pd_settings *settings, const pd_client_options *options, pd_error *err)
{
    int rc;

    memset(settings, 0, sizeof *settings);
    settings->urls = choose_urls(options->urls);
    settings->tls = (pd_tls_files){ .certificate = choose_file(options->cert_file, "PARAMD_CERT_FILE"),
                                    .key = choose_file(options->key_file, "PARAMD_KEY_FILE"),
                                    .ca = choose_file(options->ca_file, "PARAMD_CA_FILE"),
                                    .tokens = choose_file(options->token_file, "PARAMD_TOKEN_FILE") };
    settings->deadline = options->deadline > 0 ? options->deadline : DEFAULT_DEADLINE;
    settings->slice = options->slice > 0 && options->slice < settings->deadline ? options->slice : settings->deadline;
    settings->core.job = choose_job(options->job);
    settings->core.options = options->options;
    settings->core.rules = options->rules;
    settings->core.checksum = options->checksum;
    settings->core.impatient = options->impatient;
    settings->core.window = options->window;
    settings->core.no_shared_memory = options->no_shared_memory;
    choose_label(settings, options->label);
    rc = choose_rank(&settings->core, options, err);
    return rc == PD_OK ? choose_nonce(options->nonce, &settings->core.nonce, err) : rc;
}
