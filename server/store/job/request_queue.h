/* request_queue.h - a queue of requests that wait in a job. Step thread. */
#ifndef PD_REQUEST_QUEUE_H
#define PD_REQUEST_QUEUE_H

#include "effects.h"

/* A queue of waiting requests, oldest first, linked by mail.next. */
typedef struct pd_request_queue {
    pd_request *first, *last;
} pd_request_queue;

/* Adds a request; the queue becomes its owner. */
void pd_request_queue_add(pd_request_queue *queue, pd_request *request);
/* Removes and returns the oldest request; the queue must not be empty. */
pd_request *pd_request_queue_take(pd_request_queue *queue);
/* Answers all requests of the queue with the error *err, and frees them. */
void pd_request_queue_refuse(pd_request_queue *queue, pd_effects *outbox, const pd_error *err);

#endif
