/* store_hello.h - handles Hello, with which a worker joins a job. Step thread. */
#ifndef PD_STORE_HELLO_H
#define PD_STORE_HELLO_H

#include "store_state.h"

/* Answers a Hello. Returns the job that it may have changed; NULL: there is none. Takes ownership of the request. */
pd_job *pd_store_hello(pd_store *store, pd_request *request, uint64_t now_ns);

#endif
