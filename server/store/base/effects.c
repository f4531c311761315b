/* effects.c - adds effects to the outbox, answers and refuses requests, and queues requests that wait. */
#include "effects.h"
#include "zeroed.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>

void pd_effects_add(pd_effects *outbox, pd_effect *effect)
{
    effect->mail.next = NULL;
    if (outbox->last != NULL)
        outbox->last->mail.next = &effect->mail;
    else
        outbox->first = effect;
    outbox->last = effect;
}

pd_effect *pd_effects_take(pd_effects *outbox)
{
    pd_effect *all = outbox->first;
    outbox->first = outbox->last = NULL;
    return all;
}

pd_effect *pd_effect_new(pd_effect_kind kind, pd_ticket ticket, uint32_t job)
{
    pd_effect *effect = pd_zeroed(sizeof *effect);

    if (effect == NULL) return NULL;
    effect->kind = kind;
    effect->ticket = ticket;
    effect->job = job;
    return effect;
}

pd_effect *pd_answer(pd_request *request, pd_effect_kind kind)
{
    pd_effect *effect = request->answer;

    assert(effect != NULL);
    request->answer = NULL;
    effect->kind = kind;
    effect->ticket = request->ticket;
    effect->job = request->job;
    return effect;
}

void pd_answer_ok(pd_effects *outbox, pd_request *request)
{
    if (request->ticket.id != 0) pd_effects_add(outbox, pd_answer(request, PD_EFF_OK));
}

void pd_answer_error(pd_effects *outbox, pd_request *request, const pd_error *err)
{
    pd_effect *effect;

    if (request->ticket.id == 0) return;
    effect = pd_answer(request, PD_EFF_ERROR);
    effect->u.error = *err;
    pd_effects_add(outbox, effect);
}

static pd_buffer *buffer_of(const pd_request *request)
{
    if (request->kind == PD_REQ_IMPORT) return request->u.import.buffer;
    if (request->kind == PD_REQ_WORKER_STATE) return request->u.worker_state.buffer;
    return request->kind == PD_REQ_PUSH || request->kind == PD_REQ_INIT ? request->u.data.buffer : NULL;
}

void pd_request_refuse(pd_effects *outbox, pd_request *request, const pd_error *err)
{
    if (request->answer != NULL) pd_answer_error(outbox, request, err);
    pd_request_done(outbox, request);
}

void pd_request_done(pd_effects *outbox, pd_request *request)
{
    pd_buffer *buffer = buffer_of(request);
    pd_effect *effect;

    if (buffer == NULL) {
        pd_request_free(request);
        return;
    }
    effect = pd_request_become(request, PD_EFF_BUFFER, (pd_ticket){ buffer->conn, 0 }, 0);
    effect->u.buffer = buffer;
    pd_effects_add(outbox, effect);
}

void pd_say(pd_effects *outbox, int level, pd_log_facts facts, const char *format, ...)
{
    pd_effect *effect = pd_effect_new(PD_EFF_LOG, (pd_ticket){ 0, 0 }, 0);
    va_list args;

    if (effect == NULL) return;
    va_start(args, format);
    pd_log_entry_make(&effect->u.log, level, facts, format, args);
    va_end(args);
    pd_effects_add(outbox, effect);
}

void pd_request_queue_add(pd_request_queue *queue, pd_request *request)
{
    request->mail.next = NULL;
    if (queue->last != NULL)
        queue->last->mail.next = &request->mail;
    else
        queue->first = request;
    queue->last = request;
}

pd_request *pd_request_queue_take(pd_request_queue *queue)
{
    pd_request *request = queue->first;

    if (request == NULL) return NULL;
    if ((queue->first = pd_request_next(request)) == NULL) queue->last = NULL;
    return request;
}

pd_request_queue pd_request_queue_take_all(pd_request_queue *queue)
{
    pd_request_queue all = *queue;

    *queue = (pd_request_queue){ 0 };
    return all;
}

void pd_request_queue_refuse(pd_request_queue *queue, pd_effects *outbox, const pd_error *err)
{
    for (pd_request *request; (request = pd_request_queue_take(queue)) != NULL;)
        pd_request_refuse(outbox, request, err);
}
