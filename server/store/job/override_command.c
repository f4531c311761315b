/* override_command.c - handles an operator's command that sets hyperparameters of a job's parameters from a step on.
 * The command is checked as a whole, then applied as a whole.
 *
 * For each optimizer rule, the command's values are read once, into a pd_override that the rule's parameters share.
 * Then, for each parameter, every combination of values that it would have at any later step is checked. Only if all
 * checks pass, the override is added to all parameters.
 *
 * A job may have 65,536 parameters, each with 64 overrides, so a command is handled in parts, in the job's turns. The
 * commands of a job are handled one after another. From the first check of a parameter until the override is added, no
 * step of the job begins or ends, so the checks stay valid. Only pushes may bring hyperparameters meanwhile; then the
 * checks begin again. */
#include "override_command.h"

#include "archive.h"
#include "checkpoint_policy.h"
#include "wal.h"
#include "pending_sets.h"
#include "glob.h"
#include "override_values.h"
#include "param_set.h"
#include "text.h"
#include "request.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAID = 16 }; /* most lines that one command writes to the log */

/* Estimates of how long the work of a command takes, in nanoseconds of one core. */
#define FIND_NS 40.0    /* to look at a parameter, without the comparison of its name */
#define PARAM_NS 150.0  /* to prepare a parameter, or to add the override to it */
#define STATE_NS 100.0  /* to find the values of a parameter after one of its overrides, and check them */
#define ENTRY_NS 40.0   /* to read an override of a parameter meanwhile */
#define OPTION_NS 500.0 /* to read a value */
#define LETTER_NS 20.0  /* to read a byte of a value */
#define RECORD_NS 100.0 /* to write the next step of a parameter for the stream of decisions */
/* a command that takes at most this time is answered at once, a longer one in later turns of the job */
#define AT_ONCE_NS 5e6

typedef enum stage {
    FINDING,   /* finds the parameters whose names match the command's pattern */
    READING,   /* reads the command's values for each optimizer rule of these parameters */
    PREPARING, /* checks each parameter with the new values, and allocates memory for its override */
    RECORDING, /* writes the command's bytes for the WAL's stream of decisions */
    TAKING,    /* adds the override to all parameters */
} stage;

/* A command while it is checked and applied; pd_request.part points to it. */
typedef struct command {
    pd_job *job;
    pd_request *request;
    stage stage;
    uint32_t at; /* FINDING: index of the job's parameter that is handled next; later: index in `params` */
    pd_glob *glob;
    /* while no parameter matches: index of the parameter whose name has the longest beginning in common with the
     * pattern, for the error */
    uint32_t nearest;
    size_t common; /* number of bytes of that common beginning */
    pd_param **params;
    uint32_t n; /* number of entries in `params`, which are the parameters that the command's pattern matches */
    /* array with an entry for each optimizer rule of the job: the command's values for the rule */
    pd_override_reading *readings;
    size_t n_readings;
    pd_set_result *result;
    pd_override_shown *shown; /* array with an entry for each change in result->at */
    /* set of bits; bit i: the optimizer of some rule of the matched parameters has hyperparameter i of the command */
    uint64_t known;
    uint64_t news;   /* value of pd_job.counts.pushed_hypers when the check of the parameters began */
    uint8_t *record; /* the command's bytes for the WAL's stream of decisions; NULL: there are none */
    size_t record_bytes;
} command;

static pd_override_reading *reading_of(const command *c, const pd_param *param)
{
    return &c->readings[param->rule - c->job->steps.rules];
}

/* Returns the first step that the parameter has not begun yet. */
static uint64_t next_step(const pd_param *param)
{
    return param->saved.step + (param->stage >= PD_STEPPING ? 2 : 1);
}

static size_t common_length(const char *a, const char *b)
{
    size_t n = 0;

    while (a[n] != '\0' && a[n] == b[n]) n++;
    return n;
}

static int none_matches(const command *c, pd_error *err)
{
    const pd_job *job = c->job;

    if (job->steps.n_params == 0)
        return pd_fail(err, PD_NOT_FOUND, "job %.100s has no parameters yet: its workers have not declared them",
                       job->steps.name);
    return pd_fail(err, PD_NOT_FOUND,
                   "no parameter of job %.100s matches \"%.100s\"; it has %u, the nearest is %.160s (`paramctl params "
                   "%.256s` lists them)",
                   job->steps.name, c->request->u.set.pattern, job->steps.n_params, job->steps.params[c->nearest].name,
                   job->steps.name);
}

/* A command as the WAL's stream of decisions stores it, with the first step of each matched parameter that had not
 * begun when the command was applied. */
typedef struct pd_set_record {
    char *pattern, *by;
    pd_option *options;
    size_t n_options;
    uint64_t from_step; /* step from which the values apply; 0: from each parameter's next step */
    uint64_t *next;     /* for each matched parameter, in the job's order: the first step that it had not begun */
    size_t n_next;
} pd_set_record;

/* Limits on what is read: number of parameters, and bytes of a text. */
enum { MOST_PARAMS = 1 << 24, MOST_VALUE = 4096 };

static const pd_field command_fields[] = { PD_FIELD_IN(pd_set_record, pattern, 0, PD_NAME_MAX),
                                           PD_FIELD_IN(pd_set_record, by, 0, MOST_VALUE),
                                           PD_FIELD(pd_set_record, from_step),
                                           { 0 } };
static const pd_table command_table = { "set", sizeof(pd_set_record), command_fields };

static const pd_field option_fields[] = { PD_FIELD_IN(pd_option, name, 0, MOST_VALUE),
                                          PD_FIELD_IN(pd_option, value, 0, MOST_VALUE),
                                          { 0 } };
static const pd_table option_table = { "option", sizeof(pd_option), option_fields };

typedef struct pd_next_step {
    uint64_t step;
} pd_next_step;
static const pd_field next_fields[] = { PD_FIELD_IN(pd_next_step, step, 1, INT64_MAX), { 0 } };
static const pd_table next_table = { "next step", sizeof(pd_next_step), next_fields };

static void visit(pd_archive *archive, pd_set_record *record)
{
    pd_archive_enter(archive, "set");
    pd_archive_fields(archive, &command_table, record);
    record->options = pd_archive_list(archive, &option_table, record->options, &record->n_options, PD_MAX_OPTIONS);
    record->next = pd_archive_list(archive, &next_table, record->next, &record->n_next, MOST_PARAMS);
    pd_archive_leave(archive);
}

/* Writes a command to *bytes, which the caller must free(). PD_NO_MEMORY. */
static int write_bytes(const pd_set_record *record, uint8_t **bytes, size_t *n, pd_error *err)
{
    pd_set_record copy = *record;
    pd_archive archive;

    pd_archive_begin_write(&archive);
    visit(&archive, &copy);
    return pd_archive_end(&archive, bytes, n, err);
}

/* Returns whether a command that was read has all its texts, and at least one value and one parameter. */
static bool is_whole(const pd_set_record *record)
{
    for (size_t i = 0; i < record->n_options; i++)
        if (record->options[i].name == NULL || record->options[i].value == NULL) return false;
    return record->pattern != NULL && record->by != NULL && record->n_options > 0 && record->n_next > 0;
}

/* Reads a command, and checks every byte of it. The caller must call free_record, also after an error. PD_NO_MEMORY;
 * otherwise the bytes are no valid command. */
static int read_bytes(pd_set_record *record, const uint8_t *bytes, size_t n, pd_error *err)
{
    pd_archive archive;
    int rc;

    *record = (pd_set_record){ 0 };
    pd_archive_begin_read(&archive, bytes, n);
    visit(&archive, record);
    rc = pd_archive_end(&archive, NULL, NULL, err);
    if (rc != PD_OK || is_whole(record)) return rc;
    return pd_fail(err, PD_DATA_LOSS, "a command that sets values has no pattern, operator, value or parameter");
}

static void free_record(pd_set_record *record)
{
    for (size_t i = 0; i < record->n_options; i++) {
        free(record->options[i].name);
        free(record->options[i].value);
    }
    free(record->options);
    free(record->next);
    free(record->pattern);
    free(record->by);
    *record = (pd_set_record){ 0 };
}

/* Adds the next parameter of the job to c->params if the pattern matches its name. */
static void find_one(command *c, double *budget_ns)
{
    pd_param *param = &c->job->steps.params[c->at];
    size_t common = 0;

    *budget_ns -= FIND_NS + pd_glob_ns(c->glob, strlen(param->name));
    if (pd_param_is_meant(param, c->glob)) c->params[c->n++] = param;
    if (c->n == 0) common = common_length(param->name, c->request->u.set.pattern);
    *budget_ns -= (double)common;
    if (common <= c->common) return;
    c->common = common;
    c->nearest = c->at;
}

/* Writes the error for hyperparameter i of the command, which no optimizer of the matched parameters has. The text is
 * that of the first parameter's optimizer. */
static int nobody_has(const command *c, size_t i, pd_error *err)
{
    pd_hypers hypers = c->params[0]->rule->hypers;
    uint64_t mask = 0;
    pd_error why = { 0 };

    pd_hypers_set_which(&hypers, c->request->u.set.options[i].name, "", &mask, &why);
    return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: %.330s", c->params[0]->name, why.text);
}

/* Returns an estimate of how long it takes to read the command's values for one optimizer rule. */
static double reading_ns(const command *c)
{
    double ns = 0;

    for (size_t i = 0; i < c->request->u.set.n; i++)
        ns += OPTION_NS + LETTER_NS * (double)strlen(c->request->u.set.options[i].value);
    return ns;
}

static int read_one(command *c, double *budget_ns, pd_error *err)
{
    const pd_param *param = c->params[c->at];

    *budget_ns -= FIND_NS;
    if (reading_of(c, param)->override == NULL) *budget_ns -= reading_ns(c);
    return pd_override_read(reading_of(c, param), c->job, c->request, param, &c->known, err);
}

/* Returns the entry that the command adds to the parameter's overrides. The entry leaves out hyperparameters that the
 * command withdraws, but for which the parameter has no override. */
static pd_override_entry hold_for(const command *c, const pd_param *param)
{
    pd_override *override = reading_of(c, param)->override;
    uint64_t step = c->request->u.set.from_step;

    return (pd_override_entry){ override, step > 0 ? step : next_step(param),
                                override->mask & ~(override->withdrawn & ~pd_overrides_mask(param)) };
}

static void add_changes(command *c, const pd_param *param, pd_override_entry added)
{
    pd_override_reading *r = reading_of(c, param);
    size_t at = r->first;
    pd_override_state before;

    pd_override_state_at(&before, param->overrides.at, param->overrides.n, added.from);
    for (int h = 0; h < PD_MAX_HYPERS; h++) {
        if ((added.override->mask >> h & 1) == 0) continue;
        if ((added.mask >> h & 1) != 0 && at < c->result->n)
            pd_override_add_change(&c->result->at[at], &c->shown[at], param, &before, added, h);
        at++;
    }
    c->result->params++;
}

/* Allocates memory for the changes that the answer reports: one for each hyperparameter that is set of each optimizer
 * rule, but at most PD_MAX_CHANGES. */
static int make_result(command *c, pd_error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < c->job->steps.n_rules; i++) {
        c->readings[i].first = n;
        if (c->readings[i].override != NULL) n += (size_t)__builtin_popcountll(c->readings[i].override->mask);
    }
    c->result->n = n < PD_MAX_CHANGES ? n : PD_MAX_CHANGES;
    c->result->left_off = n - c->result->n;
    c->result->at = calloc(c->result->n + 1, sizeof *c->result->at);
    c->shown = calloc(c->result->n + 1, sizeof *c->shown);
    return c->result->at != NULL && c->shown != NULL ? PD_OK
                                                     : pd_fail(err, PD_NO_MEMORY, "out of memory for the answer");
}

/* Begins to prepare the parameters, or begins again because pushes have brought hyperparameters meanwhile. */
static void begin_preparing(command *c)
{
    c->at = 0;
    c->news = c->job->counts.pushed_hypers;
    c->result->params = 0;
    memset(c->result->at, 0, c->result->n * sizeof *c->result->at);
    memset(c->shown, 0, c->result->n * sizeof *c->shown);
}

static int prepare_param(command *c, pd_param *param, pd_error *err)
{
    pd_override_entry added = hold_for(c, param);
    pd_error why;
    int rc;

    if (added.mask == 0) return PD_OK;
    if (added.from < next_step(param))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.160s: step %llu has begun or is closed; the earliest possible is step %llu", param->name,
                       (unsigned long long)added.from, (unsigned long long)next_step(param));
    if ((rc = pd_overrides_reserve(param, err)) != PD_OK) return rc;
    if ((rc = pd_override_check(reading_of(c, param), param, added, &why)) != PD_OK)
        return pd_fail(err, rc, "%.160s: %.330s", param->name, why.text);
    add_changes(c, param, added);
    return PD_OK;
}

/* Returns an estimate of how long it takes to prepare a parameter. */
static double preparing_ns(const pd_param *param)
{
    double n = param->overrides.n + 1;

    return PARAM_NS + n * (STATE_NS + n * ENTRY_NS);
}

static void take_param(command *c, pd_param *param)
{
    pd_override_entry added = hold_for(c, param);

    if (added.mask == 0) return;
    added.override->refs++;
    if (added.from > next_step(param)) added.override->planned = true;
    param->overrides.n = pd_overrides_insert(param->overrides.at, param->overrides.n, added);
    c->job->steps.changes++;
    pd_overrides_settle(c->job->steps.outbox, c->job->steps.name, param);
}

static void say(const command *c, const pd_set_change *change)
{
    char last[48] = "";

    if (change->from_most > change->from_least)
        snprintf(last, sizeof last, " (the last from %llu)", (unsigned long long)change->from_most);
    pd_say(c->job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = c->job->steps.name, .step = &change->from_least },
           "%.60s %s %s of %u parameters (%.60s): %.60s%s -> %.80s, from step %llu on%s", c->request->u.set.by,
           change->withdrawn ? "withdraws" : "sets", change->name, change->params, c->request->u.set.pattern,
           change->before, change->mixed ? " and others" : "", change->value, (unsigned long long)change->from_least,
           last);
}

/* Writes the command's bytes for the WAL's stream of decisions. If out of memory there are none, and a checkpoint is
 * made instead. */
static void write_record(command *c)
{
    const pd_request *request = c->request;
    pd_set_record record = { .pattern = request->u.set.pattern,
                             .by = request->u.set.by,
                             .options = request->u.set.options,
                             .n_options = request->u.set.n,
                             .from_step = request->u.set.from_step,
                             .next = calloc(c->n, sizeof *record.next),
                             .n_next = c->n };

    if (record.next == NULL) return;
    free(c->record);
    c->record = NULL;
    for (uint32_t i = 0; i < c->n; i++) record.next[i] = next_step(c->params[i]);
    if (write_bytes(&record, &c->record, &c->record_bytes, NULL) != PD_OK) c->record = NULL;
    free(record.next);
}

/* Adds the command to the job's decisions. Returns false if it could not: c->record is NULL, or the job has no stream
 * of decisions. */
static bool note(command *c)
{
    uint8_t *record = c->record;

    c->record = NULL;
    if (record != NULL && pd_wal_records_decisions(c->job))
        return pd_wal_record_command(&c->job->steps, record, c->record_bytes, c->job->checkpointing.decisions.copied);
    free(record);
    return false;
}

static void take(command *c)
{
    size_t n = 0;

    /* Changes that apply to no parameter are left out. */
    for (size_t i = 0; i < c->result->n; i++)
        if (c->result->at[i].params > 0) c->result->at[n++] = c->result->at[i];
    c->result->n = n;
    for (size_t i = 0; i < c->result->n && i < SAID; i++) say(c, &c->result->at[i]);
    for (uint32_t i = 0; i < c->n; i++) take_param(c, c->params[i]);
}

/* Checks that the command's pattern and values are printable text, because the job stores them and other operators see
 * them. */
static int check_texts(const pd_request *request, pd_error *err)
{
    char what[96];

    if (pd_pattern_check(request->u.set.pattern, err) != PD_OK) return PD_INVALID_ARGUMENT;
    for (size_t i = 0; i < request->u.set.n; i++) {
        snprintf(what, sizeof what, "the value of %.64s", request->u.set.options[i].name);
        if (pd_text_check(what, request->u.set.options[i].value, err) != PD_OK) return PD_INVALID_ARGUMENT;
    }
    return PD_OK;
}

static int check_request(const pd_request *request, bool draining, pd_error *err)
{
    if (request->u.set.n == 0 || request->u.set.n > PD_MAX_OPTIONS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "1 to %d hyperparameters can be set at once, not %zu", PD_MAX_OPTIONS,
                       request->u.set.n);
    if (check_texts(request, err) != PD_OK) return PD_INVALID_ARGUMENT;
    return draining ? pd_fail(err, PD_UNAVAILABLE, "the server is draining: it accepts no settings") : PD_OK;
}

static int check_job(const pd_job *job, const pd_request *request, pd_error *err)
{
    if (job == NULL) return pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", request->u.set.job_name);
    if (!pd_wal_repeats(&job->steps)) return PD_OK;
    return pd_fail(err, PD_UNAVAILABLE,
                   "job %.200s repeats steps after a restart, with the values that they had: retry when it has reached "
                   "the step at which the server ended",
                   job->steps.name);
}

static int make_room(command *c, pd_error *err)
{
    c->n_readings = c->job->steps.n_rules;
    c->glob = pd_glob_new(c->request->u.set.pattern);
    c->params = calloc(c->job->steps.n_params + 1, sizeof(pd_param *));
    c->readings = calloc(c->n_readings, sizeof *c->readings);
    c->result = calloc(1, sizeof *c->result);
    return c->glob != NULL && c->params != NULL && c->readings != NULL && c->result != NULL
               ? PD_OK
               : pd_fail(err, PD_NO_MEMORY, "out of memory for a setting");
}

static void end_command(command *c)
{
    for (size_t i = 0; c->readings != NULL && i < c->n_readings; i++) {
        pd_override_drop(c->readings[i].override);
        pd_hypers_free(&c->readings[i].merged);
    }
    free(c->readings);
    free(c->params);
    free(c->shown);
    free(c->record);
    pd_glob_free(c->glob);
    pd_set_result_free(c->result);
}

static void free_command(void *part)
{
    end_command(part);
    free(part);
}

static int prepare_one(command *c, double *budget_ns, pd_error *err)
{
    pd_param *param = c->params[c->at];
    pd_override_reading *r = reading_of(c, param);
    int rc;

    r->cost_ns = preparing_ns(param);
    rc = prepare_param(c, param, err);
    *budget_ns -= r->cost_ns;
    return rc;
}

/* Does the work of the command's present stage for one parameter. */
static int advance(command *c, double *budget_ns, pd_error *err)
{
    int rc = PD_OK;

    switch (c->stage) {
    case FINDING: find_one(c, budget_ns); break;
    case READING: rc = read_one(c, budget_ns, err); break;
    default: assert(c->stage == PREPARING); rc = prepare_one(c, budget_ns, err);
    }
    c->at++;
    return rc;
}

/* Ends the present stage, all of whose parameters are handled, and begins the next one. */
static int next_stage(command *c, double *budget_ns, pd_error *err)
{
    int rc = PD_OK;

    c->at = 0;
    switch (c->stage) {
    case FINDING: rc = c->n > 0 ? PD_OK : none_matches(c, err); break;
    case READING:
        for (size_t i = 0; rc == PD_OK && i < c->request->u.set.n; i++)
            if ((c->known >> i & 1) == 0) rc = nobody_has(c, i, err);
        if (rc == PD_OK && (rc = make_result(c, err)) == PD_OK) begin_preparing(c);
        break;
    case PREPARING:
        if (c->result->params == 0)
            rc = pd_fail(err, PD_FAILED_PRECONDITION,
                         "nothing to withdraw: no operator has set this for a parameter that matches \"%.100s\"",
                         c->request->u.set.pattern);
        break;
    default:
        assert(c->stage == RECORDING);
        if (pd_wal_records_decisions(c->job)) {
            write_record(c);
            *budget_ns -= RECORD_NS * c->n;
        }
    }
    c->stage++;
    return rc;
}

static uint32_t count_handled(const command *c)
{
    return c->stage == FINDING ? c->job->steps.n_params : c->stage == RECORDING ? 0 : c->n;
}

/* Works at a command until it can be applied or the time is used. Returns false if it needs more time. When it returns
 * true, *rc is PD_OK or an error. */
static bool check_some(command *c, double *budget_ns, int *rc, pd_error *err)
{
    *rc = PD_OK;
    if (c->stage > PREPARING && c->news != c->job->counts.pushed_hypers) c->stage = PREPARING;
    if (c->stage == PREPARING && c->news != c->job->counts.pushed_hypers) begin_preparing(c);
    while (*rc == PD_OK && c->stage < TAKING) {
        if (!(*budget_ns > 0)) return false;
        *rc = c->at < count_handled(c) ? advance(c, budget_ns, err) : next_stage(c, budget_ns, err);
    }
    return *rc != PD_OK || *budget_ns > 0;
}

static void take_command(command *c, uint64_t now_ns, double *budget_ns)
{
    pd_job *job = c->job;
    pd_request *request = c->request;
    bool noted = note(c);

    *budget_ns -= PARAM_NS * c->n;
    take(c);
    request->u.set.result = c->result;
    c->result = NULL;
    free_command(c);
    request->part = NULL;
    pd_sets_answer(job, request, noted, now_ns);
}

/* Returns the state of the request's command, which it creates at the first call. Returns NULL if out of memory. */
static command *command_of(pd_job *job, pd_request *request, pd_error *err)
{
    command *c = request->part;

    if (c != NULL) return c;
    if ((c = calloc(1, sizeof *c)) == NULL) {
        pd_fail(err, PD_NO_MEMORY, "out of memory for a setting");
        return NULL;
    }
    c->job = job;
    c->request = request;
    if (make_room(c, err) != PD_OK) {
        free_command(c);
        return NULL;
    }
    request->part = c;
    request->free_part = free_command;
    return c;
}

/* Works at the oldest command in job->waiting.sets. Returns false if the command needs more time. Returns true when the
 * command is applied or refused. */
static bool set_one(pd_job *job, pd_request *request, double *budget_ns, uint64_t now_ns)
{
    pd_error err;
    command *c = command_of(job, request, &err);
    int rc = c != NULL ? PD_OK : err.code;

    if (rc == PD_OK && !check_some(c, budget_ns, &rc, &err)) return false;
    pd_request_queue_take(&job->waiting.sets);
    if (rc == PD_OK)
        take_command(c, now_ns, budget_ns);
    else
        pd_request_refuse(job->steps.outbox, request, &err);
    return true;
}

void pd_job_set_some(pd_job *job, double budget_ns, uint64_t now_ns)
{
    while (job->waiting.sets.first != NULL && budget_ns > 0)
        if (!set_one(job, job->waiting.sets.first, &budget_ns, now_ns)) return;
}

bool pd_job_set_holds(const pd_job *job)
{
    const command *c = job->waiting.sets.first != NULL ? job->waiting.sets.first->part : NULL;

    return c != NULL && c->stage >= PREPARING;
}

void pd_job_set(pd_job *job, pd_effects *outbox, bool draining, pd_request *request, uint64_t now_ns)
{
    pd_error err;
    int rc = check_request(request, draining, &err);
    double batch_ns;

    if (rc == PD_OK) rc = check_job(job, request, &err);
    if (rc != PD_OK) {
        pd_request_refuse(outbox, request, &err);
        return;
    }
    batch_ns = job->steps.config->batch_ns;
    pd_request_queue_add(&job->waiting.sets, request);
    if (job->waiting.sets.first == request) pd_job_set_some(job, batch_ns < AT_ONCE_NS ? batch_ns : AT_ONCE_NS, now_ns);
}

void pd_job_refuse_sets(pd_job *job, const pd_error *err)
{
    pd_request_queue_refuse(&job->waiting.sets, job->steps.outbox, err);
}

/* Adds a decision for each parameter that the command matches, so that the replay applies the command at the same step
 * of the parameter. PD_NO_MEMORY. */
static int add_records(command *c, const pd_set_record *set, pd_error *err)
{
    for (uint32_t i = 0; i < c->n; i++) {
        pd_decision *record = pd_decision_new(PD_DECISION_SET, c->params[i]->index, set->next[i], 0);
        if (record == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for a setting");
        record->override = reading_of(c, c->params[i])->override;
        record->override->refs++;
        record->from = set->from_step > 0 ? set->from_step : set->next[i];
        pd_wal_add_read(&c->job->steps, record);
    }
    return PD_OK;
}

int pd_job_set_again(pd_job *job, const uint8_t *bytes, size_t n, pd_error *err)
{
    pd_set_record set;
    pd_request request = { .kind = PD_REQ_SET };
    command c = { .job = job, .request = &request };
    double budget_ns = 0;
    int rc = read_bytes(&set, bytes, n, err);

    request.u.set.pattern = set.pattern;
    request.u.set.by = set.by;
    request.u.set.options = set.options;
    request.u.set.n = set.n_options;
    request.u.set.from_step = set.from_step;
    if (rc == PD_OK) rc = check_request(&request, false, err);
    if (rc == PD_OK) rc = make_room(&c, err);
    while (rc == PD_OK && c.stage < PREPARING)
        rc = c.at < count_handled(&c) ? advance(&c, &budget_ns, err) : next_stage(&c, &budget_ns, err);
    if (rc == PD_OK && c.n != set.n_next)
        rc = pd_fail(err, PD_DATA_LOSS, "\"%.100s\" matches %u parameters, but matched %zu", set.pattern, c.n,
                     set.n_next);
    if (rc == PD_OK) rc = add_records(&c, &set, err);
    end_command(&c);
    free_record(&set);
    return rc;
}
