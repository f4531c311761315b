/* policies.c - the table of round policies, in the order of
 * base/job_keys.h. */
#include "policies.h"

#include <assert.h>

#define PD_POLICY_ROW(name) &pd_policy_##name,
static const pd_policy *const rows[] = { PD_POLICY_NAMES(PD_POLICY_ROW) };

const pd_policy *pd_policy_of(uint64_t value)
{
    assert(value < sizeof rows / sizeof rows[0]);
    return rows[value];
}
