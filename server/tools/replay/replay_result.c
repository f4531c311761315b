/* replay_result.c - decides from the result of a replay whether changes of weights and optimizer state agree with
 * the record, and frees the result. */
#include "replay_result.h"

#include <stdlib.h>

bool pd_replay_updates_fail(const pd_replay_result *r)
{
    return r->update.compared > 0 && !pd_verdict_holds(&r->update, r->update_tolerance);
}

bool pd_replay_state_fails(const pd_replay_result *r)
{
    return r->state.compared > 0 && !(r->state.error <= r->state.tolerance);
}

void pd_replay_result_free(pd_replay_result *result)
{
    for (size_t i = 0; result->params != NULL && i < result->n; i++) free(result->params[i]);
    free(result->params);
    free(result->verdicts);
}
