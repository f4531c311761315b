/* policy_names.h - the names of round policies, as users write them. Each has its row in store/round, in a file of
 * that name. */
#ifndef PD_POLICY_NAMES_H
#define PD_POLICY_NAMES_H

#define PD_POLICY_NAMES(X) X(sync)

#endif
