/* sim_patience.h - checks how long steps wait for further ranks in jobs with grace = auto. */
#ifndef SIM_PATIENCE_H
#define SIM_PATIENCE_H

#include "sim_history.h"

struct pd_fragment;

/* Looks at fragment `f` after the step thread has run, before its watch is updated. `steady`: bit r: rank r has been a
 * member since the step before was fixed; 0: nobody has to be waited for. `clock_ns`: time of the step thread. */
void sim_patience_look(sim_history *h, uint32_t f, const struct pd_fragment *fragment, uint32_t steady,
                       uint64_t clock_ns);

#endif
