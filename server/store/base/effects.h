/* effects.h - the queue of effects (answers and notices) that the step thread is about to post to the loop thread,
 * oldest first. Step thread. */
#ifndef PD_EFFECTS_H
#define PD_EFFECTS_H

#include "request.h"

typedef struct pd_effects {
    pd_effect *first, *last;
} pd_effects;

void pd_effects_add(pd_effects *outbox, pd_effect *effect); /* takes the effect */
pd_effect *pd_effects_take(pd_effects *outbox);             /* empties the queue; returns its effects, linked by
                                                             * mail.next, or NULL */

/* Creates an effect. NULL: out of memory. */
pd_effect *pd_effect_new(pd_effect_kind kind, pd_ticket ticket, uint32_t job);

/* Makes the answer to a request: an effect of this kind. It cannot fail, because its memory was allocated with the
 * request. The caller keeps the request. Call it at most once for a request, and only if the kind of request gets an
 * answer. */
pd_effect *pd_answer(pd_request *request, pd_effect_kind kind);
/* Queue the answer to a request: success, or an error. The caller keeps the request. If nobody waits for an answer
 * (ticket.id 0) nothing is queued. */
void pd_answer_ok(pd_effects *outbox, pd_request *request);
void pd_answer_error(pd_effects *outbox, pd_request *request, const pd_error *err);

/* Queues a line for the log. The line is lost if memory is short.
 *
 * The log prints `facts` (job, rank, step) in front of the message, so the message does not repeat them:
 * pd_say(outbox, PD_SAY_INFO, (pd_log_facts){ .job = name, .rank = &rank }, "%s has left", label). */
void pd_say(pd_effects *outbox, int level, pd_log_facts facts, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Returns whether n is a power of two. An event that repeats is logged only if this holds for its number: the 1st,
 * 2nd, 4th, 8th time and so on. */
static inline bool pd_is_power_of_two(uint64_t n)
{
    return (n & (n - 1)) == 0;
}
enum { PD_SAY_ERROR = 3, PD_SAY_WARNING = 4, PD_SAY_INFO = 6, PD_SAY_DEBUG = 7 };

/* Refuses a request: answers it with *err if somebody waits for an answer, then frees it and returns its payload
 * buffer to the loop thread. Takes ownership of the request. */
void pd_request_refuse(pd_effects *outbox, pd_request *request, const pd_error *err);
/* Frees a request that was answered, and returns its payload buffer to the loop thread. Takes ownership of the
 * request. */
void pd_request_done(pd_effects *outbox, pd_request *request);

#endif
