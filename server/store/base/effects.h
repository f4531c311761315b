/* effects.h - effects on their way to the loop thread, oldest first. Step thread. */
#ifndef PD_EFFECTS_H
#define PD_EFFECTS_H

#include "request.h"

typedef struct pd_effects { pd_effect *first, *last; } pd_effects;

void       pd_effects_add(pd_effects *outbox, pd_effect *effect);         /* takes */
pd_effect *pd_effects_take(pd_effects *outbox);                           /* gives all, linked by mail.next; NULL: none */

/* NULL: out of memory. */
pd_effect *pd_effect_new(pd_effect_kind kind, pd_ticket ticket, uint32_t job);

/* The memory that the request brought for its answer. Gives; the request stays. Once a request; not of kinds without an
 * answer. */
pd_effect *pd_answer(pd_request *request, pd_effect_kind kind);
/* Adds the answer. The request is still the caller's. Nothing is sent where nobody waits (ticket.id 0). */
void       pd_answer_ok(pd_effects *outbox, pd_request *request);
void       pd_answer_error(pd_effects *outbox, pd_request *request, const pd_error *err);

/* A line for the log; lost when memory is short. A format that begins with "job %" has the job's name as its first
 * argument. The log limits how often a site may repeat itself: the site is the format, and that job where there is one,
 * so that no job silences another. */
void       pd_say(pd_effects *outbox, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What happens again and again is said the first time and then at powers of two. */
static inline bool pd_is_power_of_two(uint64_t n) { return (n & (n - 1)) == 0; }
enum { PD_SAY_ERROR = 3, PD_SAY_WARNING = 4, PD_SAY_INFO = 6, PD_SAY_DEBUG = 7 };

/* Refuses a request: answers it with *err where somebody waits, frees it, sends its buffer home. Takes the request. */
void       pd_request_refuse(pd_effects *outbox, pd_request *request, const pd_error *err);
/* Frees an answered request and sends its buffer home. Takes the request. */
void       pd_request_done(pd_effects *outbox, pd_request *request);

#endif
