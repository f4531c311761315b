/* partial_policy.h - a round policy for tests: a round closes with all expected ranks, or at its deadline with those
 * that have contributed, if these are at least two. */
#ifndef PARTIAL_POLICY_H
#define PARTIAL_POLICY_H

#include "round.h"

extern const pd_policy partial_policy;

#endif
