/* request_queue.c - keeps waiting requests in the order in which they came. */
#include "request_queue.h"

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

    queue->first = (pd_request *)(void *)request->mail.next;
    if (queue->first == NULL) queue->last = NULL;
    return request;
}

void pd_request_queue_refuse(pd_request_queue *queue, pd_effects *outbox, const pd_error *err)
{
    while (queue->first != NULL) pd_request_refuse(outbox, pd_request_queue_take(queue), err);
}
