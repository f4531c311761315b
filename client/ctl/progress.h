/* progress.h - sends a request that the daemon answers only when open rounds are closed, and prints meanwhile which
 * ranks they wait for. A round is open while gradients of some ranks are missing. */
#ifndef PD_PROGRESS_H
#define PD_PROGRESS_H

#include "connection.h"

/* Sends a Drain or Shutdown request over `op` and waits for the answer. The deadline of `op` must be long enough.
 *
 * Meanwhile it asks for the status over `second`, another connection to the same daemon. Once a second it prints for
 * each job that waits: the ranks that its open rounds lack, the time it has waited, and the limit `most_s`. */
int pd_call_with_progress(pd_operator *op, pd_operator *second, unsigned method, const ProtobufCMessage *request,
                          double most_s, pd_error *err);

#endif
