/* replay_routine.h - computes and compares the recorded cases in a file that has cases of a routine (inputs and
 * results of one function) instead of a run. */
#ifndef PD_REPLAY_ROUTINE_H
#define PD_REPLAY_ROUTINE_H

#include "replay_result.h"
#include "trace.h"

/* Returns true if the file has cases of a routine that is in the table of routines. */
bool pd_replay_is_routine(const pd_trace *trace);
/* Computes every case of the file with the arithmetic library in this process, compares it with the record, and
 * sets n, params, verdicts and why in *out. PD_INVALID_ARGUMENT: a case cannot be computed because a tensor is
 * missing or has a wrong shape. PD_UNIMPLEMENTED: a case has an option that paramd's function does not have.
 * PD_NO_MEMORY: out of memory. */
int pd_replay_routine(pd_replay_result *out, pd_trace *trace);

#endif
