/* replay_server.h - plays a trace through a daemon. */
#ifndef PD_REPLAY_SERVER_H
#define PD_REPLAY_SERVER_H

#include "recipe.h"
#include "trace.h"
#include "verdict.h"

/* Plays and judges as pd_replay_local does, through the daemon at `url` (NULL: the client's default): a job
 * `replay/<case>/<nonce>` of as many workers as the trace has replicas pushes every gradient, pulls the weights of
 * every step, asks the daemon whether it counted as many contributions as were sent, and drops the job. Each worker's
 * weights are compared. `timeout`: seconds to find the server. PD_DATA_LOSS: the daemon counted another number. */
int pd_replay_server(const pd_trace *trace, const pd_recipe *recipe, const char *url, double timeout,
                     pd_verdict *verdicts, pd_error *err);

#endif
