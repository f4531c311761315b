/* options.c - finds the settings of a client handle, from pd_client_options, the environment and defaults. */
#include "options.h"

#include "congestion.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define DEFAULT_URL "tcp://127.0.0.1:7070"
#define DEFAULT_DEADLINE 120.0
enum { MAX_WORLD = 1 << 20, RUN_MAX = 128 };

/* Returns the value of an environment variable; NULL if it is not set or empty. */
static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Returns the text `given`, or if it is NULL or empty, that in the environment variable `name`; NULL: neither. */
static const char *choose_text(const char *given, const char *name)
{
    return given != NULL && given[0] != '\0' ? given : from_environment(name);
}

static const char *choose_urls(const char *given)
{
    if (given != NULL && given[0] != '\0') return given;
    given = from_environment("PARAMD_URL");
    return given != NULL ? given : DEFAULT_URL;
}

/* Returns torchrun's identity of the launch; NULL: torchrun has not started this process, or gives no identity. */
static const char *torchrun_id(void)
{
    const char *id = from_environment("TORCHELASTIC_RUN_ID");

    return id != NULL && strcmp(id, "none") != 0 ? id : NULL;
}

static int choose_run(pd_settings *settings, const char *given, pd_error *err)
{
    const char *run = given != NULL ? given : from_environment("PARAMD_RUN"), *slurm;

    if (given != NULL && given[0] == '\0') return PD_OK; /* unknown, whatever the environment says */
    if (run == NULL) run = torchrun_id();
    if (run == NULL && (slurm = from_environment("SLURM_JOB_ID")) != NULL) {
        snprintf(settings->run, sizeof settings->run, "slurm-%s", slurm);
        run = settings->run;
    }
    settings->core.run = run;
    if (run != NULL && strlen(run) > RUN_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "run \"%.60s...\": expected at most %d bytes, got %zu", run, RUN_MAX,
                       strlen(run));
    return PD_OK;
}

static int choose_resume(int given, int *out, pd_error *err)
{
    const char *text = from_environment("PARAMD_RESUME");

    *out = given;
    if (given < PD_RESUME_AUTO || given > PD_RESUME_NO)
        return pd_fail(err, PD_INVALID_ARGUMENT, "resume %d: expected a value of enum pd_resume", given);
    if (given != PD_RESUME_AUTO || text == NULL) return PD_OK;
    if (strcmp(text, "1") != 0 && strcmp(text, "0") != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "environment variable PARAMD_RESUME=\"%s\": expected 1 (continue the job) or 0 (begin anew)",
                       text);
    *out = text[0] == '1' ? PD_RESUME_YES : PD_RESUME_NO;
    return PD_OK;
}

/* Makes a unique name for the job of a single worker, from the program's name, the host, the process id and a random
 * number. */
static int make_name(pd_settings *settings, pd_error *err)
{
    char host[64] = "";
    uint16_t drawn;

    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "?");
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        return pd_fail(err, PD_INTERNAL, "no random numbers from the system");
    snprintf(settings->job, sizeof settings->job, "%.100s-%s-%ld-%04x", program_invocation_short_name, host,
             (long)getpid(), (unsigned)drawn);
    settings->core.job = settings->job;
    return PD_OK;
}

/* Chooses the name of the job. The run, rank and world_size must be chosen before. */
static int choose_job(pd_settings *settings, const char *given, pd_error *err)
{
    if (given == NULL) given = from_environment("PARAMD_JOB");
    if (given == NULL) given = torchrun_id();
    if (given == NULL && settings->core.world_size > 1) given = settings->core.run;
    settings->core.job = given;
    if (given != NULL) return PD_OK;
    if (settings->core.world_size == 1) return make_name(settings, err);
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "a job of %u workers needs a name that they share: set PARAMD_JOB, or pd_client_options.job",
                   settings->core.world_size);
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

    if (options->job != NULL && options->job[0] == '\0') {
        core->world_size = 1;
        return PD_OK;
    }
    core->any_rank = options->rank == PD_ANY_RANK;
    if (options->world_size < 0 || (options->rank < 0 && !core->any_rank) || options->world_size > MAX_WORLD)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "rank %d of %d: expected 0 <= rank < world_size <= %d, or rank PD_ANY_RANK (%d)", options->rank,
                       options->world_size, MAX_WORLD, PD_ANY_RANK);
    core->rank = core->any_rank ? 0 : (uint32_t)options->rank;
    core->world_size = (uint32_t)options->world_size;
    if (core->world_size == 0) {
        if (!core->any_rank) rc = read_count("RANK", 0, &core->rank, err);
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
    settings->tls = (pd_tls_files){ .certificate = choose_text(options->cert_file, "PARAMD_CERT_FILE"),
                                    .key = choose_text(options->key_file, "PARAMD_KEY_FILE"),
                                    .ca = choose_text(options->ca_file, "PARAMD_CA_FILE"),
                                    .tokens = choose_text(options->token_file, "PARAMD_TOKEN_FILE") };
    settings->deadline = options->deadline > 0 ? options->deadline : DEFAULT_DEADLINE;
    settings->slice = options->slice > 0 && options->slice < settings->deadline ? options->slice : settings->deadline;
    settings->core.options = options->options;
    settings->core.rules = options->rules;
    settings->core.checksum = options->checksum;
    settings->core.impatient = options->impatient;
    settings->core.deadline_ns = settings->deadline < 1e9 ? (uint64_t)(settings->deadline * 1e9) : 0;
    settings->core.window = options->window;
    settings->core.no_shared_memory = options->no_shared_memory;
    settings->core.joins = options->joins;
    settings->core.group = options->group;
    settings->core.generation = options->generation;
    settings->core.shares = options->shares;
    settings->core.feedback = options->feedback;
    settings->core.congestion = choose_text(options->tcp_congestion, "PARAMD_TCP_CONGESTION");
    if (options->feedback < PD_FEEDBACK_ON || options->feedback > PD_FEEDBACK_CARRY)
        return pd_fail(err, PD_INVALID_ARGUMENT, "feedback %d: expected a value of enum pd_feedback_mode",
                       options->feedback);
    choose_label(settings, options->label);
    rc = choose_rank(&settings->core, options, err);
    if (rc == PD_OK) rc = choose_run(settings, options->run, err);
    if (rc == PD_OK) rc = choose_resume(options->resume, &settings->core.resume, err);
    if (rc == PD_OK) rc = choose_job(settings, options->job, err);
    if (rc == PD_OK && settings->core.congestion != NULL) rc = pd_congestion_check(settings->core.congestion, err);
    return rc == PD_OK ? choose_nonce(options->nonce, &settings->core.nonce, err) : rc;
}
