/* export.c - begins an export of weights or optimizer state, answers its reads, and ends it. */
#include "export.h"

#include "consistent_cut.h"
#include "import.h"
#include "mutant.h"
#include "param_set.h"
#include "riders.h"
#include "save.h"
#include "step_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t SECOND = 1000000000ull, SILENCE_NS = 30 * 1000000000ull;
/* An export must be over after this time, and after one second more for each BYTES_PER_SECOND that it may read. */
static const uint64_t TOTAL_NS = 60 * 1000000000ull;
enum { ANSWER_BYTES = 1 << 20, BYTES_PER_SECOND = 8 << 20 };
/* most waiting exports of one job, and most of one identity among them */
enum { MOST_WAITING = 16, MOST_OF_PARTY = 4 };

typedef struct pd_export {
    uint64_t conn;
    uint64_t party; /* number of the identity that exports */
    bool state;     /* the job is quiesced, and optimizer state may be read, too; false: only weights */
    bool evaluates; /* weights are read as those to evaluate with */
    bool counted;   /* older weights that the export keeps are charged, so workers may train meanwhile */
    uint64_t bytes; /* bytes that are counted against max_total_bytes for this export */
    /* The export's cut, once all parameters have reached it and if only weights are read: then the job trains on, and
     * may begin another cut. NULL: the cut is job->steps.cut. */
    pd_cut *cut;
    /* the begin request, as long as it is not answered because some parameters have not reached the export's step;
     * then NULL */
    pd_request *begin;
    uint64_t until_ns;   /* time by which all parameters must reach the export's step */
    uint64_t touched_ns; /* time of the export's last request */
    uint64_t end_ns;     /* time at which the export ends, whatever is asked for */
    uint64_t read;       /* bytes of tensors that answers have sent so far */
    char by[128];        /* label of the operator's connection */
} pd_export;

/* Returns the cut of the export under way. */
static inline pd_cut *cut_of(const pd_job *job)
{
    return job->export->cut != NULL ? job->export->cut : job->steps.cut;
}

/* Ends the export and frees its memory. If the job took no steps because of the export, it continues now. */
static void forget(pd_job *job)
{
    pd_export *export = job->export;

    if (export == NULL) return;
    if (export->cut != NULL)
        pd_cut_free(export->cut, job->steps.n_params);
    else
        pd_cut_end(&job->steps);
    pd_riders_release(&job->steps);
    pd_account_give(&job->steps.account, export->bytes);
    pd_request_free(export->begin);
    job->checkpointing.exports.party = export->party;
    free(export);
    job->export = NULL;
}

/* Ends an export that its operator has not ended. Logs the reason, and if the begin request is not answered yet,
 * refuses it. */
static void abandon(pd_job *job, const pd_error *err)
{
    pd_export *export = job->export;
    uint64_t step = cut_of(job)->step;

    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .step = &step },
           "ended the export of step %" PRIu64 " by %s: %.200s; the job continues", step, export->by, err->text);
    if (export->begin != NULL) pd_request_refuse(job->steps.outbox, export->begin, err);
    export->begin = NULL;
    forget(job);
}

void pd_export_release(pd_job *job, const pd_error *err)
{
    pd_request_queue_refuse(&job->checkpointing.exports.waiting, job->steps.outbox, err);
    if (job->export == NULL) return;
    if (job->export->begin != NULL) pd_request_refuse(job->steps.outbox, job->export->begin, err);
    job->export->begin = NULL;
    forget(job);
}

uint64_t pd_export_spare_bytes(const pd_job *job)
{
    return job->export != NULL && !job->export->state ? job->export->bytes : 0;
}

void pd_export_give_way(pd_job *job, const char *why)
{
    pd_error err;

    if (job->export == NULL || job->export->state) return;
    pd_fail(&err, PD_ABORTED, "%s: export again", why);
    abandon(job, &err);
}

void pd_export_worker_comes(pd_job *job)
{
    if (job->export != NULL && !job->export->counted)
        pd_export_give_way(job, "a worker has come, and there is no memory for older weights");
}

/* Drops the waiting begin requests of this connection. */
static void drop_waiting(pd_job *job, uint64_t conn)
{
    pd_request_queue all = pd_request_queue_take_all(&job->checkpointing.exports.waiting);
    pd_request *request;

    while ((request = pd_request_queue_take(&all)) != NULL) {
        if (request->ticket.conn == conn)
            pd_request_free(request);
        else
            pd_request_queue_add(&job->checkpointing.exports.waiting, request);
    }
}

void pd_export_lost(pd_job *job, const pd_request *notice)
{
    pd_error err;

    drop_waiting(job, notice->ticket.conn);
    if (job->export == NULL || job->export->conn != notice->ticket.conn || PD_MUTANT(export_outlives_operator)) return;
    pd_fail(&err, PD_CANCELLED, "its connection was lost (%.90s)", notice->u.lost.reason);
    abandon(job, &err);
}

static int check_begin(const pd_job *job, pd_error *err)
{
    if (job->steps.n_params == 0 || job->steps.progress.n_begun < job->steps.n_params || job->planning != NULL)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "job %.100s: %u of its %u parameters have weights: export when all have (`paramctl params %.256s`)",
            job->steps.name, job->steps.progress.n_begun, job->steps.n_params, job->steps.name);
    if (pd_import_writes(job))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.100s: an import is being written: export when that has ended", job->steps.name);
    return PD_OK;
}

/* Returns the bytes that an export itself takes: its records and two answers, one that is being made and one that is
 * on its way to the operator. Old weights that the export keeps are counted separately. */
static uint64_t own_bytes(const pd_job *job)
{
    return sizeof(pd_export) + sizeof(pd_cut) + job->steps.n_params * sizeof(pd_cut_part) + 2 * ANSWER_BYTES;
}

static int no_room(const pd_job *job, uint64_t bytes, const char *what, pd_error *err)
{
    const pd_account *account = &job->steps.account;
    const pd_budget *budget =
        account->owner != NULL && !pd_budget_fits(account->owner, bytes) ? account->owner : account->budget;

    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "job %.100s: no room for the %" PRIu64 " bytes that an export takes%s: of %" PRIu64
                   " allowed for %.100s, %" PRIu64 " are in use (%s)",
                   job->steps.name, bytes, what, budget->limit, budget->whose, budget->used, budget->key);
}

/* Returns whether further bytes have room now, without ending anything to make room. */
static bool fits_beside(const pd_account *account, uint64_t bytes)
{
    return pd_budget_fits(account->budget, bytes) && (account->owner == NULL || pd_budget_fits(account->owner, bytes));
}

/* Returns whether the job can take steps while it is exported. */
static bool may_step(const pd_job *job)
{
    return job->connected > 0 || job->steps.queue.n_open > 0;
}

/* Decides which bytes to charge for an export of weights: its own, and, if they have room, those of the older weights
 * that it keeps while the job trains. Such an export must never stop the job. */
static int count_weights(const pd_job *job, pd_export *export, pd_error *err)
{
    uint64_t own = own_bytes(job), all = own + pd_cut_bytes(&job->steps);

    export->counted = fits_beside(&job->steps.account, all);
    export->bytes = export->counted ? all : own;
    if (export->counted) return PD_OK;
    if (may_step(job)) return no_room(job, all, ", with the older weights that it keeps while the job trains", err);
    return fits_beside(&job->steps.account, own) ? PD_OK : no_room(job, own, "", err);
}

static int count_state(const pd_job *job, pd_export *export, pd_error *err)
{
    export->bytes = own_bytes(job);
    return pd_account_fits(&job->steps.account, export->bytes) ? PD_OK : no_room(job, export->bytes, "", err);
}

/* Finds the step that an export reads: the one that the request names, or the first that it can read. Several servers
 * that share a job are asked for one that none of them has passed. PD_FAILED_PRECONDITION: it is passed. */
static int find_step(const pd_job *job, const pd_request *request, uint64_t *step, pd_error *err)
{
    uint64_t least = pd_cut_least_step(&job->steps);

    *step = request->u.export.step > 0 ? request->u.export.step : least;
    if (*step >= least) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "job %.100s: an export of step %" PRIu64 ", but the job works on step %" PRIu64
                   " already: ask for a later one",
                   job->steps.name, *step, least);
}

static bool has_readouts(const pd_job *job)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (pd_optim_has_readout(job->steps.params[i].optim)) return true;
    return false;
}

/* Decides whether an export quiesces the job: to read optimizer state, or weights to evaluate with, which follow from
 * it. PD_PERMISSION_DENIED: the operator may not. (The loop thread has checked who may read state.) */
static int find_state(const pd_job *job, const pd_request *request, bool *state, pd_error *err)
{
    bool read_out = request->u.export.evaluates && has_readouts(job) && !PD_MUTANT(evaluates_in_passing);

    *state = request->u.export.state || read_out;
    if (!*state || request->u.export.state || request->u.export.may_stop) return PD_OK;
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "job %.100s: an export of the weights to evaluate with quiesces this job, as one of its state does: "
                   "expected the role push or admin. Export the weights that are trained (--form train)",
                   job->steps.name);
}

static int make(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_export *export = calloc(1, sizeof *export);
    bool state = false;
    uint64_t step = 0;
    int rc = find_state(job, request, &state, err);

    if (rc == PD_OK) rc = find_step(job, request, &step, err);
    if (rc == PD_OK && export != NULL) rc = state ? count_state(job, export, err) : count_weights(job, export, err);
    if (rc == PD_OK && (export == NULL || pd_cut_begin(&job->steps, step, state) != PD_OK))
        rc = pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for an export", job->steps.name);
    if (rc != PD_OK) {
        free(export);
        return rc;
    }
    export->state = state;
    export->evaluates = request->u.export.evaluates;
    job->export = export;
    pd_account_take(&job->steps.account, export->bytes);
    return PD_OK;
}

/* Begins an export. If it returns an error, the caller keeps the request. */
static int begin(pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err)
{
    pd_export *export;
    int rc = check_begin(job, err);

    if (rc != PD_OK || (rc = make(job, request, err)) != PD_OK) return rc;
    export = job->export;
    export->conn = request->ticket.conn;
    export->party = request->party;
    export->begin = request;
    export->until_ns = request->u.export.wait_ns;
    snprintf(export->by, sizeof export->by, "%.120s", request->u.export.by);
    pd_say(job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name, .step = &job->steps.cut->step },
           "%s exports step %" PRIu64 ", %s", export->by, job->steps.cut->step,
           !export->state            ? "weights"
           : request->u.export.state ? "weights and optimizer state: the job is quiesced until the end"
                                     : "weights to evaluate with: the job is quiesced until the end");
    pd_export_look(job, now_ns);
    return PD_OK;
}

/* Returns whether a new export must wait, because another export or a checkpoint's cut is under way. */
static bool is_busy(const pd_job *job)
{
    return job->export != NULL || job->steps.cut != NULL;
}

static int check_queue(const pd_job *job, const pd_request *request, pd_error *err)
{
    uint32_t n = 0, of_party = 0;

    for (const pd_request *r = job->checkpointing.exports.waiting.first; r != NULL; r = pd_request_next(r))
        n++, of_party += r->party == request->party;
    if (n < MOST_WAITING && of_party < MOST_OF_PARTY) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "job %.100s: it is being exported, and at most %d exports wait for that, %d of one identity: export "
                   "again later",
                   job->steps.name, MOST_WAITING, MOST_OF_PARTY);
}

/* Takes the next begin request out of the queue: the oldest from an identity other than the last exporter, or, if there
 * is none, the oldest of all. Returns NULL if none waits. */
static pd_request *take_waiting(pd_job *job)
{
    pd_request_queue *waiting = &job->checkpointing.exports.waiting, all = pd_request_queue_take_all(waiting);
    pd_request *next = all.first, *request;

    for (request = all.first; request != NULL; request = pd_request_next(request))
        if (next->party == job->checkpointing.exports.party && request->party != next->party) next = request;
    while ((request = pd_request_queue_take(&all)) != NULL)
        if (request != next) pd_request_queue_add(waiting, request);
    return next;
}

void pd_export_go_on(pd_job *job, uint64_t now_ns)
{
    pd_request *request;
    pd_error err;

    while (!is_busy(job) && (request = take_waiting(job)) != NULL)
        if (begin(job, request, now_ns, &err) != PD_OK) pd_request_refuse(job->steps.outbox, request, &err);
}

void pd_export_wait_again(pd_job *job)
{
    pd_request *request = job->export != NULL && !job->export->state ? job->export->begin : NULL;
    pd_request_queue all;

    if (request == NULL) return;
    job->export->begin = NULL;
    forget(job);
    all = pd_request_queue_take_all(&job->checkpointing.exports.waiting);
    for (; request != NULL; request = pd_request_queue_take(&all))
        pd_request_queue_add(&job->checkpointing.exports.waiting, request);
}

/* Refuses the begin requests in the queue that have waited for too long. */
static void refuse_late(pd_job *job, uint64_t now_ns)
{
    pd_request_queue all = pd_request_queue_take_all(&job->checkpointing.exports.waiting);
    pd_request *request;
    pd_error err;

    while ((request = pd_request_queue_take(&all)) != NULL) {
        if (now_ns < request->u.export.wait_ns) {
            pd_request_queue_add(&job->checkpointing.exports.waiting, request);
            continue;
        }
        if (job->export != NULL)
            pd_fail(&err, PD_DEADLINE_EXCEEDED,
                    "job %.100s: it is being exported by %.120s: export again, and wait longer; an admin may end that "
                    "export (paramctl export --end-other)",
                    job->steps.name, job->export->by);
        else
            pd_fail(&err, PD_DEADLINE_EXCEEDED, "job %.100s: a checkpoint is being made: export again, and wait longer",
                    job->steps.name);
        pd_request_refuse(job->steps.outbox, request, &err);
    }
}

enum { TILE = 1024 };

static int refuse_state(const pd_job *job, pd_error *err)
{
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "job %.100s: this export was begun for weights alone: begin it with state", job->steps.name);
}

static int check_piece(const pd_request *request, int64_t elements, size_t each, pd_error *err)
{
    int64_t first = request->u.export.first, count = request->u.export.count;

    if (first <= elements && count <= elements - first && (uint64_t)count * each <= request->u.export.most)
        return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%.160s: %lld elements of %zu bytes from %lld on are asked for; the tensor has %lld, and an answer "
                   "at most %llu bytes",
                   request->u.export.param, (long long)count, each, (long long)first, (long long)elements,
                   (unsigned long long)request->u.export.most);
}

/* Allocates memory for the elements that an answer returns. PD_NO_MEMORY. */
static int make_room(const pd_job *job, const pd_request *request, size_t each, pd_exported *out, pd_error *err)
{
    out->bytes = (size_t)request->u.export.count * each;
    if (out->bytes == 0 || (out->at = malloc(out->bytes)) != NULL) return PD_OK;
    return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for %zu bytes of an export: try again",
                   job->steps.name, out->bytes);
}

static int read_weights(const pd_job *job, const pd_param *param, const pd_request *request, pd_exported *out,
                        pd_error *err)
{
    const pd_published *from = PD_MUTANT(torn_export) ? param->current : cut_of(job)->parts[param->index].weights;
    const float *weights = from->at[PD_F32];
    int rc = check_piece(request, param->elements, sizeof *weights, err);

    out->elements = (uint64_t)param->elements;
    if (rc == PD_OK) rc = make_room(job, request, sizeof *weights, out, err);
    if (rc != PD_OK || out->bytes == 0) return rc;
    if (job->export->evaluates && pd_optim_has_readout(param->optim))
        pd_optim_read_out(param->optim, weights + request->u.export.first, out->at, request->u.export.first,
                          request->u.export.count);
    else
        memcpy(out->at, weights + request->u.export.first, out->bytes);
    return PD_OK;
}

/* Reads elements of an optimizer slot as float32, by way of a small float64 buffer. Not
 * for slots that are stored as float64. */
static void read_floats(const pd_param *param, size_t slot, int64_t first, int64_t n, float *out)
{
    double wide[TILE];

    for (int64_t some; n > 0; n -= some, first += some, out += some) {
        some = n < TILE ? n : TILE;
        pd_optim_read_elements(param->optim, slot, first, some, wide);
        for (int64_t i = 0; i < some; i++) out[i] = (float)wide[i];
    }
}

static int read_root(const pd_job *job, const pd_param *param, const pd_request *request, pd_exported *out,
                     pd_error *err)
{
    size_t left = pd_optim_tasks_left(param->optim), k = (size_t)request->u.export.number;
    int rc;

    if (request->u.export.number < 0 || k >= left)
        return pd_fail(err, PD_NOT_FOUND, "%.160s has %zu pending roots: invalid number %d", param->name, left,
                       request->u.export.number);
    out->wide = true;
    out->elements = (uint64_t)pd_pending_root_length(param->optim, k);
    if ((rc = check_piece(request, (int64_t)out->elements, sizeof(double), err)) != PD_OK) return rc;
    if ((rc = make_room(job, request, sizeof(double), out, err)) != PD_OK || out->bytes == 0) return rc;
    pd_pending_root_read(param->optim, k, request->u.export.first, request->u.export.count, out->at);
    return PD_OK;
}

static int read_state(const pd_job *job, const pd_param *param, const pd_request *request, pd_exported *out,
                      pd_error *err)
{
    const pd_plan *plan = pd_optim_plan(param->optim);
    size_t each;
    int64_t elements = 0;
    pd_part part;
    int rc;

    if (!pd_plan_part(plan, request->u.export.slot, request->u.export.number, request->u.export.block, &part) ||
        part.box != NULL || !pd_shape_equal(&part.shape, &plan->slots[part.slot].shape))
        return pd_fail(err, PD_NOT_FOUND,
                       "%.160s has no state tensor %.60s with number %d and block %d (paramctl state)", param->name,
                       request->u.export.slot, request->u.export.number, request->u.export.block);
    out->wide = plan->slots[part.slot].storage == PD_STORE_F64;
    each = out->wide ? sizeof(double) : sizeof(float);
    (void)pd_shape_elements(&part.shape, &elements);
    out->elements = (uint64_t)elements;
    if ((rc = check_piece(request, elements, each, err)) != PD_OK) return rc;
    if ((rc = make_room(job, request, each, out, err)) != PD_OK || out->bytes == 0) return rc;
    if (out->wide)
        pd_optim_read_elements(param->optim, part.slot, request->u.export.first, request->u.export.count, out->at);
    else
        read_floats(param, part.slot, request->u.export.first, request->u.export.count, out->at);
    return PD_OK;
}

/* Reads elements of a tensor: of weights, a slot of optimizer state, or a pending root. Allocates out->at.
 * PD_NOT_FOUND, PD_INVALID_ARGUMENT, PD_FAILED_PRECONDITION: the export is of weights alone; PD_NO_MEMORY. */
static int read_piece(const pd_job *job, const pd_request *request, pd_exported *out, pd_error *err)
{
    const pd_param *param = pd_job_param_or_error(job, request->u.export.param, err);

    if (param == NULL) return PD_NOT_FOUND;
    if (request->u.export.slot[0] == '\0') return read_weights(job, param, request, out, err);
    if (!job->export->state) return refuse_state(job, err);
    if (strcmp(request->u.export.slot, PD_PENDING_ROOT) == 0) return read_root(job, param, request, out, err);
    return read_state(job, param, request, out, err);
}

/* Reads a parameter's step count, and its number of pending roots. If the parameter belongs to a step group, the count
 * is read from the group: the parameter's optimizer gets it only when its next step begins. PD_NOT_FOUND.
 * PD_FAILED_PRECONDITION: the export is of weights alone. */
static int read_count(const pd_job *job, const pd_request *request, pd_exported *out, pd_error *err)
{
    const pd_param *param = pd_job_param_or_error(job, request->u.export.param, err);

    if (param == NULL) return PD_NOT_FOUND;
    if (!job->export->state) return refuse_state(job, err);
    out->roots = pd_optim_tasks_left(param->optim);
    out->count = param->group != NULL ? pd_step_group_count(param) : pd_optim_count(param->optim);
    return PD_OK;
}

static pd_exported *answer_of(pd_job *job, pd_request *request, const pd_exported *exported)
{
    pd_effect *effect = pd_answer(request, PD_EFF_EXPORT);

    effect->u.exported = *exported;
    effect->u.exported.step = cut_of(job)->step;
    pd_effects_add(job->steps.outbox, effect);
    return &effect->u.exported;
}

/* Returns whether all preconditioner tasks of the job have returned from the preconditioner pool. This happens sooner
 * or later: the job takes no steps meanwhile, so no new tasks begin. */
static bool roots_are_back(const pd_job *job)
{
    for (uint32_t i = 0; job->steps.tasks_out > 0 && i < job->steps.n_params; i++)
        if (!pd_optim_may_be_saved(job->steps.params[i].optim)) return false;
    return true;
}

/* Returns how many bytes an export may have to send. Optimizer state that is stored in fewer bits is sent as
 * float32. */
static uint64_t bytes_to_read(const pd_job *job, bool state)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        const pd_plan *plan = pd_optim_plan(param->optim);
        bytes += (uint64_t)param->elements * sizeof(float);
        for (size_t k = 0; state && k < plan->n_slots; k++) {
            int64_t elements = 0;
            (void)pd_shape_elements(&plan->slots[k].shape, &elements);
            bytes += (uint64_t)elements * sizeof(double);
        }
    }
    return bytes;
}

void pd_export_look(pd_job *job, uint64_t now_ns)
{
    pd_export *export = job->export;
    pd_request *request = export != NULL ? export->begin : NULL;
    pd_exported begun = { .roots = 0 };

    if (request == NULL || job->steps.cut->behind > 0 || (export->state && !roots_are_back(job))) return;
    job->steps.cut->fixed = true;
    export->begin = NULL;
    export->touched_ns = now_ns;
    export->end_ns = now_ns + TOTAL_NS + bytes_to_read(job, export->state) / BYTES_PER_SECOND * SECOND;
    for (uint32_t i = 0; export->state && i < job->steps.n_params; i++)
        begun.roots += pd_optim_tasks_left(job->steps.params[i].optim);
    answer_of(job, request, &begun);
    pd_request_free(request);
    if (!export->state) export->cut = pd_cut_detach(&job->steps);
}

static int check_reader(const pd_job *job, const pd_request *request, pd_error *err)
{
    if (job->export == NULL || job->export->conn != request->ticket.conn)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "job %.100s: this connection has begun no export, or it has ended (the server's log says why): begin again",
            job->steps.name);
    if (job->export->begin != NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s: the export's begin is not answered yet: wait for that",
                       job->steps.name);
    return PD_OK;
}

static void end(pd_job *job)
{
    uint64_t step = cut_of(job)->step;

    pd_say(job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name, .step = &step },
           "step %" PRIu64 " is exported: %s has read %" PRIu64 " bytes", step, job->export->by, job->export->read);
    forget(job);
}

/* Answers a request of a running export: one that reads a piece of a tensor or a step count, or that ends the
 * export. */
static int read_some(pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err)
{
    pd_exported exported = { 0 };
    int rc = check_reader(job, request, err);

    if (rc != PD_OK) return rc;
    job->export->touched_ns = now_ns;
    if (request->u.export.act == PD_EXPORT_PIECE) rc = read_piece(job, request, &exported, err);
    if (request->u.export.act == PD_EXPORT_COUNT) rc = read_count(job, request, &exported, err);
    if (rc != PD_OK) return rc;
    job->export->read += exported.bytes;
    answer_of(job, request, &exported);
    if (request->u.export.act == PD_EXPORT_END) end(job);
    pd_request_free(request);
    return PD_OK;
}

/* Takes a begin request: begins the export now, or lets it wait. */
static int take_begin(pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err)
{
    uint64_t *deadline_ns = &request->u.export.wait_ns;
    int rc = check_begin(job, err);

    if (rc != PD_OK) return rc;
    if (__builtin_add_overflow(now_ns, *deadline_ns, deadline_ns)) *deadline_ns = UINT64_MAX;
    if (request->u.export.replaces && job->export != NULL) {
        pd_error why;
        pd_fail(&why, PD_ABORTED, "%.120s has ended it to export", request->u.export.by);
        abandon(job, &why);
    }
    if (!is_busy(job)) return begin(job, request, now_ns, err);
    if ((rc = check_queue(job, request, err)) == PD_OK)
        pd_request_queue_add(&job->checkpointing.exports.waiting, request);
    return rc;
}

void pd_job_export(pd_job *job, pd_request *request, uint64_t now_ns)
{
    bool begins = request->u.export.act == PD_EXPORT_BEGIN;
    pd_error err;
    int rc = begins ? take_begin(job, request, now_ns, &err) : read_some(job, request, now_ns, &err);

    if (rc != PD_OK) pd_request_refuse(job->steps.outbox, request, &err);
}

/* Returns the time at which the export under way ends unless a further request comes; UINT64_MAX: no export is under
 * way. */
static uint64_t ends_ns(const pd_job *job)
{
    const pd_export *export = job->export;

    if (export == NULL) return UINT64_MAX;
    if (export->begin != NULL) return export->until_ns;
    return export->touched_ns + SILENCE_NS < export->end_ns ? export->touched_ns + SILENCE_NS : export->end_ns;
}

uint64_t pd_export_expires_ns(const pd_job *job)
{
    uint64_t at = ends_ns(job);

    for (const pd_request *r = job->checkpointing.exports.waiting.first; r != NULL; r = pd_request_next(r))
        if (r->u.export.wait_ns < at) at = r->u.export.wait_ns;
    return at;
}

/* Writes the error for an export whose step was not reached in time: which parameter has not reached it, and which
 * ranks that parameter waits for. */
static void describe_late(const pd_job *job, pd_error *err)
{
    const pd_param *param = pd_cut_awaited(&job->steps);
    char ranks[160];

    if (param == NULL) {
        pd_fail(err, PD_DEADLINE_EXCEEDED,
                "job %.100s: %u roots are still being computed: export again, and wait longer", job->steps.name,
                job->steps.tasks_out);
        return;
    }
    pd_round_missing(&param->round, ranks, sizeof ranks);
    pd_fail(err, PD_DEADLINE_EXCEEDED,
            "job %.100s: %.160s has not reached step %" PRIu64
            ", which others have begun: it waits for %s%s; export again when it continues",
            job->steps.name, param->name, job->steps.cut->parts[param->index].step,
            param->round.open ? "rank " : "every rank", ranks);
}

static void end_late(pd_job *job, uint64_t now_ns)
{
    pd_error err;

    if (job->export->begin != NULL)
        describe_late(job, &err);
    else if (now_ns >= job->export->touched_ns + SILENCE_NS)
        pd_fail(&err, PD_CANCELLED, "no request for %" PRIu64 " s", SILENCE_NS / SECOND);
    else
        pd_fail(&err, PD_CANCELLED, "too slow: expected at least %d MiB a second", BYTES_PER_SECOND >> 20);
    abandon(job, &err);
}

void pd_export_tick(pd_job *job, uint64_t now_ns)
{
    if (now_ns < pd_export_expires_ns(job)) return;
    refuse_late(job, now_ns);
    if (now_ns >= ends_ns(job)) end_late(job, now_ns);
}
