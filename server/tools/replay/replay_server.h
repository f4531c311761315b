/* replay_server.h - plays a trace through a daemon. */
#ifndef PD_REPLAY_SERVER_H
#define PD_REPLAY_SERVER_H

#include "recipe.h"
#include "trace.h"
#include "verdict.h"

/* Plays a checked trace through the daemon at `url`; NULL: the client's default address.
 *
 * Makes a job `replay/<case>/<nonce>` with a worker for each replica of the trace. The workers push all gradients
 * and pull the weights after each step. Each worker's weights are compared with the record as in pd_replay_local.
 * In the end the daemon is asked how many contributions it counted, and the job is dropped. `timeout`: seconds to
 * find the daemon.
 *
 * PD_DATA_LOSS: the daemon did not count as many contributions as were sent. Other errors: see pd_replay_local. */
int pd_replay_server(const pd_trace *trace, const pd_recipe *recipe, const char *url, double timeout,
                     pd_verdict *verdicts, pd_error *err);

#endif
