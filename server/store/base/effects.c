#include "effects.h"

#include "printable.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pd_effects_add(pd_effects *outbox, pd_effect *effect)
{
    effect->mail.next = NULL;
    if (outbox->last != NULL) outbox->last->mail.next = &effect->mail;
    else outbox->first = effect;
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
    pd_effect *effect = calloc(1, sizeof *effect);

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

/* FNV-1a of the job's name, on top of the format's address. */
static uint64_t site_of(const char *format, va_list args)
{
    uint64_t site = 0xcbf29ce484222325u ^ (uintptr_t)format;

    if (strncmp(format, "job %", 5) != 0) return site;
    for (const char *name = va_arg(args, const char *); *name != '\0'; name++)
        site = (site ^ (unsigned char)*name) * 0x100000001b3u;
    return site;
}

void pd_say(pd_effects *outbox, int level, const char *format, ...)
{
    pd_effect *effect = pd_effect_new(PD_EFF_LOG, (pd_ticket){ 0, 0 }, 0);
    va_list args;

    if (effect == NULL) return;
    effect->u.log.level = level;
    va_start(args, format);
    effect->u.log.site = site_of(format, args);
    va_end(args);
    va_start(args, format);
    vsnprintf(effect->u.log.text, sizeof effect->u.log.text, format, args);
    va_end(args);
    pd_text_mend(effect->u.log.text);
    pd_effects_add(outbox, effect);
}
