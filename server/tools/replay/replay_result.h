/* replay_result.h - the result of a replay of one file: how far paramd's numbers are from the recorded ones. */
#ifndef PD_REPLAY_RESULT_H
#define PD_REPLAY_RESULT_H

#include "replay_state.h"
#include "verdict.h"

typedef enum pd_replay_outcome { PD_REPLAY_OK, PD_REPLAY_FAILED, PD_REPLAY_SKIPPED } pd_replay_outcome;

typedef struct pd_replay_result {
    pd_replay_outcome outcome;
    char system[64], name[128];
    int64_t steps;
    /* The file was skipped, but this does not count as a gap of paramd. The file shows a defect of the reference
     * optimizer, has no run, or has random numbers that a daemon draws itself. */
    bool excused;
    /* The file has no run, but numbered cases of a routine (recorded inputs and results of one function). Here each
     * case counts as a parameter. */
    bool cases;
    /* Largest error that the weights may have. 1 if each case has its own tolerance, as errors are then multiples
     * of it. */
    double tolerance;
    /* Worst error over all parameters and steps. compared == 0: the replay did not reach its end. */
    pd_verdict verdict;
    pd_verdict update;       /* worst error of the changes of weights ("updates") that were recorded */
    double update_tolerance; /* largest error that changes of weights ("updates") may have */
    /* Worst error of the recorded optimizer state. compared == 0: none was recorded, or the user did not ask for
     * the comparison. */
    pd_state_verdict state;
    /* Why the file was skipped or failed. PD_OK if it failed because results differ from the record. */
    pd_error why;
    /* Number of parameters or cases of the file. `params` has their names, `verdicts` the worst error of each. */
    size_t n;
    char **params;
    pd_verdict *verdicts;
} pd_replay_result;

/* Return true if recorded changes of weights, or recorded optimizer state, were compared and an error exceeds its
 * tolerance. */
bool pd_replay_updates_fail(const pd_replay_result *r);
bool pd_replay_state_fails(const pd_replay_result *r);
void pd_replay_result_free(pd_replay_result *result);

#endif
