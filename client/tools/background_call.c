/* background_call.c - sends an operator's request and waits for the answer in a separate thread. */
#include "background_call.h"

static void *wait_for_answer(void *arg)
{
    pd_background_call *call = arg;

    call->rc = pd_client_call(call->op->client, call->method, call->request, call->op->arena, NULL, &call->err);
    atomic_store(&call->answered, true);
    return NULL;
}

int pd_background_call_start(pd_background_call *call, pd_operator *op, unsigned method,
                             const ProtobufCMessage *request, pd_error *err)
{
    call->op = op;
    call->method = method;
    call->request = request;
    call->err = (pd_error){ 0 };
    atomic_init(&call->answered, false);
    if (pthread_create(&call->thread, NULL, wait_for_answer, call) == 0) return PD_OK;
    return pd_fail(err, PD_NO_MEMORY, "out of memory for a thread");
}

bool pd_background_call_is_answered(pd_background_call *call)
{
    return atomic_load(&call->answered);
}

int pd_background_call_finish(pd_background_call *call, pd_error *err)
{
    pthread_join(call->thread, NULL);
    if (call->rc != PD_OK && err != NULL) *err = call->err;
    return call->rc;
}
