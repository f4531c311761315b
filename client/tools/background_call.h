/* background_call.h - sends an operator's request and waits for the answer in a separate thread, so that the caller
 * can do other things meanwhile. */
#ifndef PD_BACKGROUND_CALL_H
#define PD_BACKGROUND_CALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "connection.h"

typedef struct pd_background_call {
    /* The connection that carries the request. The caller does not use it until the call is finished. */
    pd_operator *op;
    unsigned method;
    const ProtobufCMessage *request; /* borrowed */
    pthread_t thread;
    atomic_bool answered;
    int rc;
    pd_error err;
} pd_background_call;

/* Starts a thread that sends a request of `method` over a connection and waits for the answer. If `request` is
 * NULL, an empty message is sent. After PD_OK the caller must call pd_background_call_finish. PD_NO_MEMORY: no
 * thread could be started. */
int pd_background_call_start(pd_background_call *call, pd_operator *op, unsigned method,
                             const ProtobufCMessage *request, pd_error *err);
/* Returns whether the thread has got the answer, or an error. If so, pd_background_call_finish returns at once. */
bool pd_background_call_is_answered(pd_background_call *call);
/* Waits until the thread has got the answer, and returns the result of the request, as pd_client_call does. */
int pd_background_call_finish(pd_background_call *call, pd_error *err);

#endif
