/* request.c - creates and frees requests and effects. */
#include "request.h"
#include "zeroed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The bytes allocated for a request. They suffice for an effect too, because pd_request_become turns a request into an
 * effect in the same memory. */
enum { MAIL_BYTES = sizeof(pd_request) > sizeof(pd_effect) ? sizeof(pd_request) : sizeof(pd_effect) };

/* The hash is FNV-1a. A tally has one form for each content (step/tally.h), so lengths need not be part. */
int pd_tallies_copy(pd_tallies *out, const pd_tally_view *from, size_t n)
{
    size_t bytes = n * sizeof *from;
    uint8_t *to;

    for (size_t i = 0; i < n; i++) bytes += from[i].n;
    if ((out->at = malloc(bytes)) == NULL) return PD_NO_MEMORY;
    out->n = n;
    out->hash = 0xcbf29ce484222325u;
    to = (uint8_t *)(out->at + n);
    for (size_t i = 0; i < n; i++) {
        out->at[i] = (pd_tally_view){ to, from[i].n };
        for (size_t b = 0; b < from[i].n; b++) out->hash = (out->hash ^ (*to++ = from[i].at[b])) * 0x100000001b3u;
    }
    return PD_OK;
}

static bool wants_answer(pd_request_kind kind)
{
    return kind != PD_REQ_LOST && kind != PD_REQ_RELEASED && kind != PD_REQ_FORGOTTEN && kind != PD_REQ_TASK &&
           kind != PD_REQ_LIMITS && kind != PD_REQ_ROLES && kind != PD_REQ_STALLED &&
           kind != PD_REQ_CHECKPOINT_WRITTEN && kind != PD_REQ_WAL && kind != PD_REQ_WENT_BACK &&
           kind != PD_REQ_MIRRORED;
}

pd_request *pd_request_new(pd_request_kind kind, pd_ticket ticket)
{
    pd_request *request = pd_zeroed(MAIL_BYTES);

    if (request == NULL) return NULL;
    request->kind = kind;
    request->ticket = ticket;
    if (wants_answer(kind) && (request->answer = pd_zeroed(sizeof *request->answer)) == NULL) {
        free(request);
        return NULL;
    }
    return request;
}

pd_request *pd_request_read_out(uint32_t job, uint32_t param)
{
    pd_request *request = pd_request_new(PD_REQ_READ_OUT, (pd_ticket){ 0, 0 });

    if (request == NULL) return NULL;
    request->job = job;
    request->u.read_out.param = param;
    if ((request->u.read_out.at = calloc(1, sizeof *request->u.read_out.at)) != NULL) return request;
    pd_request_free(request);
    return NULL;
}

static void free_options(pd_option *options, size_t n)
{
    for (size_t i = 0; options != NULL && i < n; i++) {
        free(options[i].name);
        free(options[i].value);
    }
    free(options);
}

static void free_hello(pd_request *request)
{
    free(request->u.hello.job_name);
    free(request->u.hello.label);
    free(request->u.hello.identity);
    free(request->u.hello.run);
    free(request->u.hello.fragment_steps);
    free_options(request->u.hello.options, request->u.hello.n_options);
    for (size_t i = 0; request->u.hello.rules != NULL && i < request->u.hello.n_rules; i++)
        free(request->u.hello.rules[i]);
    free(request->u.hello.rules);
}

int pd_decl_copy(pd_param_decl *to, const pd_param_decl *from)
{
    *to = *from;
    to->axes = NULL;
    if ((to->name = strdup(from->name)) == NULL) return PD_NO_MEMORY;
    if (from->axes == NULL || (to->axes = strdup(from->axes)) != NULL) return PD_OK;
    free(to->name);
    to->name = NULL;
    return PD_NO_MEMORY;
}

void pd_decl_cut_range(pd_param_decl *decl, int64_t first, int64_t count)
{
    int64_t start = decl->start > first ? decl->start - first : 0, end = decl->end - first;

    if (end > count) end = count;
    decl->start = start < end ? start : 0;
    decl->end = start < end ? end : 0;
}

void pd_decls_free(pd_param_decl *decls, size_t n)
{
    for (size_t i = 0; decls != NULL && i < n; i++) {
        free(decls[i].name);
        free(decls[i].axes);
    }
    free(decls);
}

static void free_declare(pd_request *request)
{
    pd_decls_free(request->u.declare.params, request->u.declare.n);
    pd_decls_free(request->u.declare.whole, request->u.declare.n_whole);
}

static void free_contents(pd_request *request)
{
    if (request->part != NULL) request->free_part(request->part);
    request->part = NULL;
    switch (request->kind) {
    case PD_REQ_HELLO: free_hello(request); break;
    case PD_REQ_DECLARE: free_declare(request); break;
    case PD_REQ_INIT:
    case PD_REQ_PUSH:
        free(request->u.data.pieces);
        free_options(request->u.data.hypers, request->u.data.n_hypers);
        free(request->u.data.scalars);
        break;
    case PD_REQ_INFO:
    case PD_REQ_DROP:
        free(request->u.info.job_name);
        free(request->u.info.pattern);
        free(request->u.info.identity);
        break;
    case PD_REQ_SET:
        free(request->u.set.job_name);
        free(request->u.set.pattern);
        free(request->u.set.by);
        pd_set_result_free(request->u.set.result);
        free_options(request->u.set.options, request->u.set.n);
        break;
    case PD_REQ_EXPORT:
        free(request->u.export.job_name);
        free(request->u.export.by);
        free(request->u.export.param);
        free(request->u.export.slot);
        break;
    case PD_REQ_IMPORT:
        free(request->u.import.job_name);
        free(request->u.import.param);
        free(request->u.import.slot);
        break;
    case PD_REQ_BARRIER:
    case PD_REQ_LEAVE:
    case PD_REQ_LOST:
    case PD_REQ_STALLED:
    case PD_REQ_SHARE:
    case PD_REQ_RELEASED:
    case PD_REQ_FORGOTTEN:
    case PD_REQ_TASK:
    case PD_REQ_LIMITS:
    case PD_REQ_WORKER_STATE:
    case PD_REQ_GET_WORKER_STATE:
    case PD_REQ_CHECKPOINT_WRITTEN:
    case PD_REQ_WAL:
    case PD_REQ_WENT_BACK:
    case PD_REQ_DRAIN: break;
    case PD_REQ_MIRRORED: free(request->u.mirrored.job_name); break;
    case PD_REQ_SETTLE: free(request->u.settle.at); break;
    case PD_REQ_READ_OUT: free(request->u.read_out.at); break;
    case PD_REQ_ROLES: pd_roles_free(request->u.roles); break;
    case PD_REQ_CHECKPOINT: free(request->u.checkpoint.job_name); break;
    case PD_REQ_GO_BACK: free(request->u.go_back.job_name); break;
    case PD_REQ_KICK:
        free(request->u.kick.job_name);
        free(request->u.kick.by);
        break;
    }
}

void pd_request_free(pd_request *request)
{
    if (request == NULL) return;
    free_contents(request);
    free(request->answer);
    free(request);
}

void pd_request_slim(pd_request *request)
{
    free_contents(request);
    request->u.data.pieces = NULL;
    request->u.data.hypers = NULL;
    request->u.data.scalars = NULL;
    request->u.data.n = request->u.data.n_hypers = request->u.data.n_scalars = 0;
}

pd_effect *pd_request_become(pd_request *request, pd_effect_kind kind, pd_ticket ticket, uint32_t job)
{
    pd_effect *effect = (pd_effect *)(void *)request;

    free_contents(request);
    free(request->answer);
    memset(effect, 0, sizeof *effect);
    effect->kind = kind;
    effect->ticket = ticket;
    effect->job = job;
    return effect;
}

/* Turns an effect into a request about the job number `job`, in the same memory. The request asks for no answer. */
static pd_request *become(pd_effect *effect, pd_request_kind kind, uint32_t job)
{
    pd_request *request = (pd_request *)(void *)effect;

    _Static_assert(sizeof(pd_request) <= sizeof(pd_effect), "a request fits into the memory of an effect");
    memset(request, 0, sizeof *request);
    request->kind = kind;
    request->job = job;
    return request;
}

pd_request *pd_effect_become_checkpointed(pd_effect *effect)
{
    pd_checkpoint_image *kept = effect->u.checkpoint_image;
    pd_request *request;

    assert(effect->kind == PD_EFF_WRITE_CHECKPOINT);
    request = become(effect, PD_REQ_CHECKPOINT_WRITTEN, kept->number);
    request->u.checkpoint_image = kept;
    return request;
}

pd_request *pd_effect_become_went_back(pd_effect *effect)
{
    pd_go_back_order *order = effect->u.go_back_order;
    pd_request *request;

    assert(effect->kind == PD_EFF_GO_BACK);
    request = become(effect, PD_REQ_WENT_BACK, order->number);
    request->u.go_back_order = order;
    return request;
}

pd_request *pd_effect_become_wal(pd_effect *effect)
{
    pd_wal_record *record = effect->u.wal;
    pd_request *request;

    assert(effect->kind == PD_EFF_WAL);
    request = become(effect, PD_REQ_WAL, record->number);
    request->u.wal = record;
    return request;
}

pd_request *pd_effect_become_task(pd_effect *effect)
{
    struct pd_task *task = effect->u.task.task;
    uint32_t param = effect->u.task.param;
    pd_request *request;

    assert(effect->kind == PD_EFF_TASK);
    request = become(effect, PD_REQ_TASK, effect->job);
    request->u.task.task = task;
    request->u.task.param = param;
    return request;
}

void pd_info_free(pd_info *info)
{
    if (info == NULL) return;
    free(info->entries);
    free(info);
}

void pd_set_result_free(pd_set_result *result)
{
    if (result == NULL) return;
    free(result->at);
    free(result);
}

pd_reason *pd_reason_new(const char *text)
{
    size_t size = strlen(text) + 1;
    pd_reason *reason = malloc(sizeof *reason + size);

    if (reason == NULL) return NULL;
    reason->refs = 1;
    memcpy(reason->text, text, size);
    return reason;
}

void pd_reason_unref(pd_reason *reason)
{
    if (reason != NULL && --reason->refs == 0) free(reason);
}

void pd_scalar_means_unref(pd_scalar_means *means)
{
    if (means != NULL && --means->refs == 0) free(means);
}

static size_t words(uint32_t ranks)
{
    return (ranks + 63) / 64;
}

size_t pd_counted_bytes(uint32_t ranks)
{
    return sizeof(pd_counted) + 2 * words(ranks) * sizeof(uint64_t) + ranks * sizeof(uint32_t);
}

pd_counted *pd_counted_new(uint32_t ranks)
{
    pd_counted *counted = calloc(1, pd_counted_bytes(ranks));

    if (counted == NULL) return NULL;
    counted->refs = 1;
    counted->ranks = ranks;
    counted->kept = counted->set + words(ranks);
    counted->age = (uint32_t *)(void *)(counted->kept + words(ranks));
    return counted;
}

pd_counted *pd_counted_copy(const pd_counted *counted)
{
    pd_counted *copy = pd_counted_new(counted->ranks);

    if (copy == NULL) return NULL;
    copy->n = counted->n;
    memcpy(copy->set, counted->set, pd_counted_bytes(counted->ranks) - sizeof *counted);
    return copy;
}

void pd_counted_add(pd_counted *counted, uint32_t rank, uint32_t age)
{
    counted->n += !pd_counted_has(counted, rank);
    counted->set[rank / 64] |= (uint64_t)1 << rank % 64;
    counted->age[rank] = age;
}

void pd_counted_keep(pd_counted *counted, uint32_t rank)
{
    counted->kept[rank / 64] |= (uint64_t)1 << rank % 64;
}

bool pd_counted_has(const pd_counted *counted, uint32_t rank)
{
    return counted == NULL || (rank < counted->ranks && (counted->set[rank / 64] >> rank % 64 & 1) != 0);
}

bool pd_counted_keeps(const pd_counted *counted, uint32_t rank)
{
    return counted != NULL && rank < counted->ranks && (counted->kept[rank / 64] >> rank % 64 & 1) != 0;
}

uint32_t pd_counted_age(const pd_counted *counted, uint32_t rank)
{
    return counted != NULL && rank < counted->ranks ? counted->age[rank] : 0;
}

void pd_counted_unref(pd_counted *counted)
{
    if (counted != NULL && --counted->refs == 0) free(counted);
}

static void free_closed(pd_effect *effect)
{
    for (size_t i = 0; i < effect->u.closed.n; i++) {
        pd_reason_unref(effect->u.closed.at[i].why);
        pd_scalar_means_unref(effect->u.closed.at[i].scalars);
        pd_counted_unref(effect->u.closed.at[i].counted);
    }
    free(effect->u.closed.at);
}

void pd_declared_free(pd_declared *declared, size_t n)
{
    for (size_t i = 0; declared != NULL && i < n; i++) free(declared[i].note);
    free(declared);
}

void pd_effect_free(pd_effect *effect)
{
    if (effect == NULL) return;
    if (effect->kind == PD_EFF_CLOSED) free_closed(effect);
    if (effect->kind == PD_EFF_MEMBERS) pd_counted_unref(effect->u.members.set);
    if (effect->kind == PD_EFF_DECLARED) {
        pd_declared_free(effect->u.declared.params, effect->u.declared.n);
        free(effect->u.declared.places);
    }
    if (effect->kind == PD_EFF_INFO) pd_info_free(effect->u.info);
    if (effect->kind == PD_EFF_SET) pd_set_result_free(effect->u.set);
    if (effect->kind == PD_EFF_EXPORT) free(effect->u.exported.at);
    if (effect->kind == PD_EFF_WORKER_STATE) free(effect->u.worker_state.at);
    if (effect->kind == PD_EFF_SETTLED) free(effect->u.settled.at);
    if (effect->kind == PD_EFF_STATS) free(effect->u.stats);
    if (effect->kind == PD_EFF_SHARE && effect->u.share.fd >= 0) close(effect->u.share.fd);
    free(effect);
}
