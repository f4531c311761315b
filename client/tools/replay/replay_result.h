/* replay_result.h - the result of a replay of one file. */
#ifndef PD_REPLAY_RESULT_H
#define PD_REPLAY_RESULT_H

#include "replay_state.h"
#include "verdict.h"

typedef enum pd_replay_outcome { PD_REPLAY_OK, PD_REPLAY_FAILED, PD_REPLAY_SKIPPED } pd_replay_outcome;

typedef struct pd_replay_result {
    pd_replay_outcome outcome;
    char system[64], name[128];
    int64_t steps;
    bool excused;            /* a skipped file does not count as a gap of paramd: it shows a defect of the reference
                              * optimizer, has no run, or has random numbers that a daemon draws itself */
    bool cases;              /* the file has numbered cases of a routine instead of a run; here they count as
                              * parameters */
    double tolerance;        /* tolerance of the weights; 1 if each case has its own tolerance, as errors are then
                              * multiples of it */
    pd_verdict verdict;      /* worst error over all parameters and steps; compared == 0 if the replay did not reach
                              * its end */
    pd_verdict update;       /* worst error of the recorded updates */
    double update_tolerance; /* tolerance of the recorded updates */
    pd_state_verdict state;  /* worst error of the recorded optimizer state; compared == 0 if none was recorded, or
                              * the user did not ask */
    pd_error why;            /* why the file was skipped or failed; PD_OK if it failed because results differ from
                              * the record */
    size_t n;                /* number of parameters or cases; `params` has their names, `verdicts` the worst error
                              * of each */
    char **params;
    pd_verdict *verdicts;
} pd_replay_result;

/* Return true if recorded updates, or recorded state, were compared and an error exceeds its tolerance. */
bool pd_replay_updates_fail(const pd_replay_result *r);
bool pd_replay_state_fails(const pd_replay_result *r);
void pd_replay_result_free(pd_replay_result *result);

#endif
