/* effects.h - fills the outbox of effects in the order in which they happen, and queues requests that wait. Step
 * thread. */
#ifndef PD_EFFECTS_H
#define PD_EFFECTS_H

#include "request.h"

/* The outbox: effects that the step thread has not taken yet, oldest first, linked by mail.next. */
typedef struct pd_effects {
    pd_effect *first, *last;
} pd_effects;

/* Adds an effect to the end of the outbox, which becomes its owner. */
void pd_effects_add(pd_effects *outbox, pd_effect *effect);
/* Empties the outbox. Returns its effects, oldest first, linked by mail.next; NULL: the outbox was empty. */
pd_effect *pd_effects_take(pd_effects *outbox);

/* Creates an effect. NULL: out of memory. */
pd_effect *pd_effect_new(pd_effect_kind kind, pd_ticket ticket, uint32_t job);

/* Makes the answer to a request: an effect of the given kind. It cannot fail, because the memory for the answer was
 * allocated with the request. The caller still owns the request. Call it at most once for a request, and only for
 * kinds of requests that are answered at all. */
pd_effect *pd_answer(pd_request *request, pd_effect_kind kind);
/* Add the answer to a request to the outbox: pd_answer_ok says that it succeeded, pd_answer_error why it failed. The
 * caller still owns the request. If nobody waits for the answer (the request's ticket.id is 0) nothing is added. */
void pd_answer_ok(pd_effects *outbox, pd_request *request);
void pd_answer_error(pd_effects *outbox, pd_request *request, const pd_error *err);

/* Adds a line for the log to the outbox. The line is lost if out of memory.
 *
 * The log prints `facts` (job, rank, step) in front of the message, so the message does not repeat them:
 * pd_say(outbox, PD_SAY_INFO, (pd_log_facts){ .job = name, .rank = &rank }, "%s has left", label). */
void pd_say(pd_effects *outbox, int level, pd_log_facts facts, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Returns whether n is a power of two. Events that repeat are counted, and only those whose number is a power of two
 * are logged: the 1st, 2nd, 4th, 8th and so on. */
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

/* A queue of waiting requests, oldest first, linked by mail.next. */
typedef struct pd_request_queue {
    pd_request *first, *last;
} pd_request_queue;

/* Adds a request; the queue becomes its owner. */
void pd_request_queue_add(pd_request_queue *queue, pd_request *request);
/* Removes and returns the oldest request; NULL: the queue is empty. */
pd_request *pd_request_queue_take(pd_request_queue *queue);
/* Empties a queue, and returns its requests as a queue of their own. */
pd_request_queue pd_request_queue_take_all(pd_request_queue *queue);
/* Returns the request after this one in its queue; NULL: there is none. */
static inline pd_request *pd_request_next(const pd_request *request)
{
    return (pd_request *)(void *)request->mail.next;
}
/* Answers all requests of the queue with the error *err, and frees them. */
void pd_request_queue_refuse(pd_request_queue *queue, pd_effects *outbox, const pd_error *err);

#endif
