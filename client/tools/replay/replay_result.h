/* replay_result.h - the result of the replay of one file. */
#ifndef PD_REPLAY_RESULT_H
#define PD_REPLAY_RESULT_H

#include "replay_state.h"
#include "verdict.h"

typedef enum pd_replay_outcome { PD_REPLAY_OK, PD_REPLAY_FAILED, PD_REPLAY_SKIPPED } pd_replay_outcome;

typedef struct pd_replay_result {
    pd_replay_outcome outcome;
    char        system[64], name[128];
    int64_t     steps;
    bool        excused;        /* skipped, and no build can play it this way: it records a defect of upstream's, or no
                                 * run, or numbers that a daemon draws itself */
    bool        cases;          /* not a run: numbered cases of a routine, which count as parameters here */
    double      tolerance;      /* 1 if each case has a tolerance of its own: then errors are in units of it */
    pd_verdict  verdict;        /* over all parameters and steps; compared == 0 if it was not played to the end */
    pd_verdict  update;         /* the same for recorded updates, */
    double      update_tolerance;       /* against a tolerance of their own */
    pd_state_verdict state;     /* over all recorded tensors of state; compared == 0 if there are none, or nobody
                                 * asked */
    pd_error    why;            /* of PD_REPLAY_FAILED (may be PD_OK: the weights differ) and PD_REPLAY_SKIPPED */
    size_t      n;              /* parameters or cases, each with its verdict, for --verbose */
    char      **params;
    pd_verdict *verdicts;
} pd_replay_result;

/* Return true if updates, or state, were compared and are beyond their tolerance. */
bool pd_replay_updates_fail(const pd_replay_result *r);
bool pd_replay_state_fails(const pd_replay_result *r);
void pd_replay_result_free(pd_replay_result *result);

#endif
