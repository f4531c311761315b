/* job_keys.c - the table of a job's configuration keys (`aggregate`, `step_timeout`, ...); reads and writes their
 * values. */
#include "job_keys.h"

#include "clip.h"
#include "hyper_text.h"
#include "text.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND ((uint64_t)1000000000)  /* one second in ns; the longest duration (31 years) fits into 64 bits of ns */
#define LAST_START ((uint64_t)1 << 53) /* largest start_step: float64 holds whole numbers up to 2^53 exactly */

const pd_job_key pd_job_keys[] = {
    [PD_JOB_KEY_AGGREGATE] = { "aggregate", "mean",
                               "what the gradients of a round become; weighted_mean and radial_mean alone "
                               "look at numbers of examples; adasum and what follows need all contributions at once, "
                               "which takes memory",
                               PD_JOB_CHOICE,
                               "mean|weighted_mean|sum|adasum|adasum_vdot|median|trimmed_mean|radial_mean", 0, 0,
                               NULL },
    [PD_JOB_KEY_ADASUM_FOLD] = { "adasum_fold", "no",
                                 "adasum merges workers in pairs: a number of them that is not a power of two is "
                                 "refused, or (yes) the surplus is merged into the first ones before",
                                 PD_JOB_CHOICE, "no|yes", 0, 0, NULL },
    [PD_JOB_KEY_TRIM] = { "trim", "1",
                          "trimmed_mean: of each element so many smallest and so many largest contributions are left "
                          "out; less than half of the workers",
                          PD_JOB_NUMBER, NULL, 0, PD_MAX_WORLD, NULL },
    [PD_JOB_KEY_NONFINITE] = { "nonfinite", "skip",
                               "infinite or NaN gradients: skip the step, reject the push before anything is summed, "
                               "or apply them",
                               PD_JOB_CHOICE, "skip|reject|apply", 0, 0, NULL },
    [PD_JOB_KEY_NONFINITE_SCOPE] = { "nonfinite_scope", "parameter",
                                     "what a step that is skipped or refused concerns: its parameter, or all of the "
                                     "job's, which then begin each step together",
                                     PD_JOB_CHOICE, "parameter|job", 0, 0, NULL },
    [PD_JOB_KEY_STEP_TIMEOUT] = { "step_timeout", "60s",
                                  "a round that still misses workers after this, at least 10ms, is reported to those "
                                  "who wait for it",
                                  PD_JOB_SECONDS, NULL, PD_STEP_TIMEOUT_LEAST_NS, 1000000000 * SECOND, NULL },
    [PD_JOB_KEY_JOB_LINGER] = { "job_linger", "300s",
                                "a job is kept for so long, 1ms to 7 days, after its last worker has left or was lost",
                                PD_JOB_SECONDS, NULL, SECOND / 1000, 7 * 24 * 3600 * SECOND, NULL },
    [PD_JOB_KEY_SEED] = { "seed", "0", "seed of the job's random numbers", PD_JOB_NUMBER, NULL, 0, 0, NULL },
    [PD_JOB_KEY_START_STEP] = { "start_step", "0",
                                "steps that count as taken before the job begins: rounds, counters of optimizers, "
                                "schedules and random numbers go on from there",
                                PD_JOB_NUMBER, NULL, 0, LAST_START, NULL },
    [PD_JOB_KEY_CLIP_GLOBAL_NORM] = { "clip_global_norm", "off",
                                      "limit of the norm of all gradients of a step together, by which they are "
                                      "scaled; all parameters then begin each step together (off: no limit)",
                                      PD_JOB_LIMIT, NULL, 0, 0, NULL },
    [PD_JOB_KEY_SKIP_OUTLIER] = { "skip_outlier", "off",
                                  "a step whose gradients have a norm of more than this times the median of the last "
                                  "63 steps' norms is skipped for all parameters, which then begin each step together "
                                  "(off: none is)",
                                  PD_JOB_LIMIT, NULL, 1, 0, NULL },
    [PD_JOB_KEY_INITIAL_WEIGHTS] = { "initial_weights", "lowest",
                                     "which weights a job begins with: those of the lowest rank that has them, or the "
                                     "mean of those of all ranks",
                                     PD_JOB_CHOICE, "lowest|mean", 0, 0, NULL },
    [PD_JOB_KEY_ROUNDS] = { "rounds", "sync",
                            "which contributions a step waits for: sync, those of all members; quorum, those of as "
                            "many as quorum says; async, for none. It gives quorum, staleness and damping their "
                            "defaults",
                            PD_JOB_CHOICE, "sync|quorum|async", 0, 0, NULL },
    [PD_JOB_KEY_QUORUM] = { "quorum", "default",
                            "so many members must have contributed before a step is taken: a number from 1, or all. "
                            "The default is all; with rounds = async it is 1",
                            PD_JOB_NUMBER, NULL, 1, PD_MAX_WORLD, "default|all" },
    [PD_JOB_KEY_GRACE] = { "grace", "0s",
                           "how long a step then waits for further members; auto: as long as those who have "
                           "contributed say that they can do without the answer",
                           PD_JOB_SECONDS, NULL, 0, 7 * 24 * 3600 * SECOND, "auto" },
    [PD_JOB_KEY_STALENESS] = { "staleness", "default",
                               "a contribution still counts in a step that is so many steps later than its own; none: "
                               "however late it is. The default is 0; with rounds = async it is none",
                               PD_JOB_NUMBER, NULL, 0, 1000000, "default|none" },
    [PD_JOB_KEY_ON_STALE] = { "on_stale", "refuse",
                              "what happens to contributions older than staleness: refuse them, or wait, so that no "
                              "step is taken that would make one too old",
                              PD_JOB_CHOICE, "refuse|wait", 0, 0, NULL },
    [PD_JOB_KEY_DAMPING] = { "damping", "default",
                             "what the weight of a contribution from a steps ago is multiplied by: none, 1; inverse, "
                             "1 / (1 + a); root, 1 / sqrt(1 + a). Only for aggregate = mean, weighted_mean and "
                             "radial_mean. The default is none; with rounds = async and one of these aggregates it is "
                             "root",
                             PD_JOB_CHOICE, "default|none|inverse|root", 0, 0, NULL },
    [PD_JOB_KEY_WEIGHT_CAP] = { "weight_cap", "off", "pushes with a greater weight are refused (off: none is)",
                                PD_JOB_LIMIT, NULL, 0, 0, NULL },
    [PD_JOB_KEY_MIN_WORKERS] = { "min_workers", "default",
                                 "fewest members with which steps are taken. The default is the number of workers that "
                                 "the job begins with; with on_lost_worker = shrink it is 1",
                                 PD_JOB_NUMBER, NULL, 1, PD_MAX_WORLD, "default" },
    [PD_JOB_KEY_MAX_WORKERS] = { "max_workers", "default",
                                 "most members that the job can have at once. The default is the number of workers "
                                 "that it begins with",
                                 PD_JOB_NUMBER, NULL, 1, PD_MAX_WORLD, "default" },
    [PD_JOB_KEY_ON_LOST_WORKER] = { "on_lost_worker", "default",
                                    "what happens when a worker leaves, is kicked, or is lost for longer than "
                                    "reconnect_grace: wait for it, shrink, which goes on without it, or fail, which "
                                    "ends the job. The default is wait; if min_workers is less than max_workers it is "
                                    "shrink",
                                    PD_JOB_CHOICE, "default|wait|shrink|fail", 0, 0, NULL },
    [PD_JOB_KEY_RECONNECT_GRACE] = { "reconnect_grace", "5s", "how long a lost worker stays a member of the job",
                                     PD_JOB_SECONDS, NULL, 0, 7 * 24 * 3600 * SECOND, NULL },
    [PD_JOB_KEY_DURABILITY] = { "durability", "auto",
                                "what survives a restart of the daemon: none, nothing; checkpoint, the state of the "
                                "last checkpoint; log, besides each step since then, for jobs with small gradients; "
                                "auto, checkpoint if the daemon has a directory for it (server.state_dir)",
                                PD_JOB_CHOICE, "auto|none|checkpoint|log", 0, 0, NULL },
    [PD_JOB_KEY_CHECKPOINT_EVERY] = { "checkpoint_every", "100",
                                      "a checkpoint is made at each step that is a multiple of this; 0: only when "
                                      "somebody asks, and when the daemon stops",
                                      PD_JOB_NUMBER, NULL, 0, LAST_START, NULL },
    [PD_JOB_KEY_CHECKPOINT_KEEP] = { "checkpoint_keep", "3",
                                     "how many checkpoints of the job stay on the disk, at least 1", PD_JOB_NUMBER,
                                     NULL, 1, 1000000, NULL },
    [PD_JOB_KEY_DISK_TIMEOUT] = { "disk_timeout", "30s",
                                  "a disk that has had a checkpoint or a record of the WAL for so long, at least 10ms, "
                                  "does not answer: that is reported, and the job does what on_disk_error says",
                                  PD_JOB_SECONDS, NULL, SECOND / 100, 1000000000 * SECOND, NULL },
    [PD_JOB_KEY_ON_DISK_ERROR] = { "on_disk_error", "go_on",
                                   "what the job does when the disk fails or does not answer: go_on with steps that "
                                   "are not durable, or pause until a checkpoint is on the disk",
                                   PD_JOB_CHOICE, "go_on|pause", 0, 0, NULL },
    [PD_JOB_KEY_EXACT] = { "exact", "no",
                           "after a restart with other BLAS kernels, whose last bits differ: go on with a warning, or "
                           "(yes) refuse the checkpoint",
                           PD_JOB_CHOICE, "no|yes", 0, 0, NULL },
    [PD_JOB_KEY_SPLIT_BYTES] = { "split_bytes", "32MiB",
                                 "on several daemons, a parameter of more bytes than this (as float32) is cut into "
                                 "portions of about this size, if its optimizer allows it; 0: none is cut",
                                 PD_JOB_BYTES, NULL, 0, (uint64_t)1 << 53, NULL },
    [PD_JOB_KEYS] = { NULL, NULL, NULL, PD_JOB_NUMBER, NULL, 0, 0, NULL },
};

/* Returns the index of `value` in a list of choices such as "a|b|c"; -1: not in the list. */
static int choice_index(const char *choices, const char *value)
{
    size_t n = strlen(value);
    int index = 0;

    for (const char *at = choices;; at++, index++) {
        size_t span = strcspn(at, "|");
        if (span == n && memcmp(at, value, n) == 0) return index;
        at += span;
        if (*at == '\0') return -1;
    }
}

static int parse_choice(const pd_job_key *key, const char *value, uint64_t *out, pd_error *err)
{
    int index = choice_index(key->choices, value);

    if (index < 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s = %.64s: expected one of %s", key->name, value, key->choices);
    *out = (uint64_t)index;
    return PD_OK;
}

static int parse_seconds(const pd_job_key *key, const char *value, uint64_t *out, pd_error *err)
{
    double seconds;

    if (!pd_duration_read(value, true, &seconds) ||
        !(seconds >= (double)key->least / 1e9 && seconds <= (double)key->most / 1e9))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s = %.64s: expected a duration like 500ms, 30s, 5m, 1h or 1d (seconds without a unit), at "
                       "least %.10gs and at most %.10gs%s%s",
                       key->name, value, (double)key->least / 1e9, (double)key->most / 1e9,
                       key->words != NULL ? ", or " : "", key->words != NULL ? key->words : "");
    *out = (uint64_t)ceil(seconds * 1e9);
    return PD_OK;
}

static int parse_number(const pd_job_key *key, const char *value, uint64_t *out, pd_error *err)
{
    unsigned long long number, least = key->least, most = key->most > 0 ? key->most : UINT64_MAX;
    char *end;

    errno = 0;
    number = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno == ERANGE || number < least || number > most)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s = %.64s: expected a whole number from %llu to %llu%s%s", key->name,
                       value, least, most, key->words != NULL ? ", or " : "", key->words != NULL ? key->words : "");
    *out = number;
    return PD_OK;
}

static int parse_bytes(const pd_job_key *key, const char *value, uint64_t *out, pd_error *err)
{
    uint64_t bytes;

    if (!pd_bytes_read(value, &bytes) || bytes < key->least || bytes > key->most)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s = %.64s: expected a size like 64KiB, 256M or 1G, or 0", key->name,
                       value);
    *out = bytes;
    return PD_OK;
}

/* Writes a number of bytes with the largest unit that divides it. */
static void bytes_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = { "", "KiB", "MiB", "GiB" };
    int unit = 0;

    while (unit < 3 && bytes > 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, size, "%llu%s", (unsigned long long)bytes, units[unit]);
}

/* Returns the least limit, above 0, that a key of type PD_JOB_LIMIT accepts. */
static double least_limit(const pd_job_key *key)
{
    return key->least > 0 ? (double)key->least : PD_CLIP_LEAST;
}

static int parse_limit(const pd_job_key *key, const char *value, uint64_t *out, pd_error *err)
{
    bool off = strcmp(value, "off") == 0;
    double limit = 0;

    if (!off && (pd_number_read(value, &limit) != PD_OK ||
                 !(limit == 0 || (limit >= least_limit(key) && limit <= PD_CLIP_MOST))))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s = %.64s: expected a number from %g to %g, or off", key->name,
                       value, least_limit(key), PD_CLIP_MOST);
    limit = limit == 0 ? 0 : limit; /* turns a limit of -0 into 0 */
    memcpy(out, &limit, sizeof limit);
    return PD_OK;
}

/* Returns whether a stored value stands for one of the key's words; *word becomes its index. */
static bool is_word(const pd_job_key *key, uint64_t value, int *word)
{
    *word = (int)(UINT64_MAX - value);
    return key->words != NULL && value >= UINT64_MAX - 1 && (*word == 0 || strchr(key->words, '|') != NULL);
}

/* Writes the word number `word` of a list such as "a|b". */
static void word_text(const char *list, uint64_t word, char *text, size_t size)
{
    for (; word > 0; word--) list = strchr(list, '|') + 1;
    snprintf(text, size, "%.*s", (int)strcspn(list, "|"), list);
}

static int parse(const pd_job_key *key, const char *value, uint64_t *out, pd_error *err)
{
    int word = key->words != NULL ? choice_index(key->words, value) : -1;

    if (word >= 0) {
        *out = UINT64_MAX - (uint64_t)word;
        return PD_OK;
    }
    switch (key->type) {
    case PD_JOB_CHOICE: return parse_choice(key, value, out, err);
    case PD_JOB_SECONDS: return parse_seconds(key, value, out, err);
    case PD_JOB_BYTES: return parse_bytes(key, value, out, err);
    case PD_JOB_LIMIT: return parse_limit(key, value, out, err);
    case PD_JOB_NUMBER: break;
    }
    return parse_number(key, value, out, err);
}

char *pd_job_keys_list(char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int k = 0; k < PD_JOB_KEYS && used < size; k++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", k > 0 ? ", " : "", pd_job_keys[k].name);
    if (used >= size && size > 4) strcpy(text + size - 4, "...");
    return text;
}

static int unknown_key(const char *name, pd_error *err)
{
    char list[PD_ERROR_TEXT - 128];

    return pd_fail(err, PD_NOT_FOUND, "%.64s is not a job key; expected one of: %s", name,
                   pd_job_keys_list(list, sizeof list));
}

void pd_job_values_init(pd_job_values *values)
{
    for (int k = 0; k < PD_JOB_KEYS; k++) {
        int rc = parse(&pd_job_keys[k], pd_job_keys[k].preset, &values->at[k], NULL);
        assert(rc == PD_OK);
        (void)rc;
    }
}

int pd_job_values_set(pd_job_values *values, const char *name, const char *value, pd_error *err)
{
    for (int k = 0; k < PD_JOB_KEYS; k++)
        if (strcmp(pd_job_keys[k].name, name) == 0) return parse(&pd_job_keys[k], value, &values->at[k], err);
    return unknown_key(name, err);
}

static uint64_t count_choices(const char *choices)
{
    uint64_t n = 1;

    for (; *choices != '\0'; choices++) n += *choices == '|';
    return n;
}

static bool is_in_range(const pd_job_key *key, uint64_t raw)
{
    double limit;
    int word;

    if (is_word(key, raw, &word)) return true;
    memcpy(&limit, &raw, sizeof limit);
    switch (key->type) {
    case PD_JOB_CHOICE: return raw < count_choices(key->choices);
    case PD_JOB_LIMIT: return raw == 0 || (limit >= least_limit(key) && limit <= PD_CLIP_MOST);
    default: return raw >= key->least && (key->most == 0 || raw <= key->most);
    }
}

int pd_job_values_set_raw(pd_job_values *values, const char *name, uint64_t raw, pd_error *err)
{
    for (int k = 0; k < PD_JOB_KEYS; k++) {
        if (strcmp(pd_job_keys[k].name, name) != 0) continue;
        if (!is_in_range(&pd_job_keys[k], raw))
            return pd_fail(err, PD_INVALID_ARGUMENT, "%s: invalid value %llu", name, (unsigned long long)raw);
        values->at[k] = raw;
        return PD_OK;
    }
    return unknown_key(name, err);
}

double pd_job_values_limit(const pd_job_values *values, enum pd_job_key_index key)
{
    double limit;

    assert(pd_job_keys[key].type == PD_JOB_LIMIT);
    memcpy(&limit, &values->at[key], sizeof limit);
    return limit;
}

char *pd_job_values_text(const pd_job_values *values, enum pd_job_key_index key, char *text, size_t size)
{
    uint64_t value = values->at[key];
    int word;

    if (is_word(&pd_job_keys[key], value, &word)) {
        word_text(pd_job_keys[key].words, (uint64_t)word, text, size);
    } else if (pd_job_keys[key].type == PD_JOB_NUMBER) {
        snprintf(text, size, "%llu", (unsigned long long)value);
    } else if (pd_job_keys[key].type == PD_JOB_BYTES) {
        bytes_text(value, text, size);
    } else if (pd_job_keys[key].type == PD_JOB_LIMIT) {
        double limit = pd_job_values_limit(values, key);
        if (limit > 0)
            pd_number_text(limit, text, size);
        else
            snprintf(text, size, "off");
    } else if (pd_job_keys[key].type == PD_JOB_SECONDS) {
        snprintf(text, size, "%.10g", (double)value / 1e9);
    } else {
        word_text(pd_job_keys[key].choices, value, text, size);
    }
    return text;
}

char *pd_aggregation_text(pd_aggregation how, char *text, size_t size)
{
    return pd_job_values_text(&(pd_job_values){ .at[PD_JOB_KEY_AGGREGATE] = how }, PD_JOB_KEY_AGGREGATE, text, size);
}

int pd_job_key_check(const char *name, const char *value, pd_error *err)
{
    pd_job_values scratch;

    pd_job_values_init(&scratch);
    return pd_job_values_set(&scratch, name, value, err);
}
