/* policy_names.h - the list of round policies, by the names that users
 * write. Each policy is a file of that name in store/round. */
#ifndef PD_POLICY_NAMES_H
#define PD_POLICY_NAMES_H

#define PD_POLICY_NAMES(X) X(sync)

#endif
