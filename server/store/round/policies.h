/* policies.h - the table of round policies: one for each name in
 * base/job_keys.h. */
#ifndef PD_POLICIES_H
#define PD_POLICIES_H

#include "policy.h"
#include "job_keys.h"

#define PD_POLICY_ROW(name) extern const pd_policy pd_policy_##name;
PD_POLICY_NAMES(PD_POLICY_ROW)
#undef PD_POLICY_ROW

/* Returns the policy that the job key `rounds` has chosen. The key's value is the
 * index of the policy's name. */
const pd_policy *pd_policy_of(uint64_t value);

#endif
