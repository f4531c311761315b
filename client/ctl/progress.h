/* progress.h - sends a request that the daemon answers only when no round is open, and prints meanwhile which ranks
 * the rounds wait for. A round is open while gradients of some ranks are missing. */
#ifndef PD_PROGRESS_H
#define PD_PROGRESS_H

#include "connection.h"

/* Sends a Drain or Shutdown request over the connection `op` and waits for the answer. The deadline of `op` must be
 * long enough.
 *
 * Meanwhile it asks the same daemon for its status over another connection, `second`. Once a second it prints a
 * line for each job that waits: which ranks have not sent gradients, how long it has waited, and the longest wait,
 * `most_s`. */
int pd_call_with_progress(pd_operator *op, pd_operator *second, unsigned method, const ProtobufCMessage *request,
                          double most_s, pd_error *err);

#endif
