/* replay_routine.h - judges files that hold numbered cases of a routine instead of a run. */
#ifndef PD_REPLAY_ROUTINE_H
#define PD_REPLAY_ROUTINE_H

#include "replay_result.h"
#include "trace.h"

/* Returns true if the table of routines has the routine of this file. */
bool pd_replay_is_routine(const pd_trace *trace);
/* Computes every case with the arithmetic library in this process and fills out's n, params, verdicts and why.
 * PD_INVALID_ARGUMENT: a case that cannot be computed: a tensor is missing or of a wrong shape. PD_UNIMPLEMENTED: an
 * option that the routine does not have. PD_NO_MEMORY. */
int  pd_replay_routine(pd_replay_result *out, pd_trace *trace);

#endif
