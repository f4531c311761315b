/* collecting.h - a small job whose aggregate needs all contributions at once, for tests of how they are stored until
 * then. */
#ifndef COLLECTING_H
#define COLLECTING_H

#include "rig.h"

enum { COLLECTING = 5, COLLECTING_WORLD = 4, COLLECTING_N = 130, COLLECTING_CONN = 10 };

/* Job options, one for each aggregate that collects all contributions: both forms of Adasum, median, trimmed
 * mean, radial mean. */
extern const char *const collecting[COLLECTING];

/* Makes a rig with a job of COLLECTING_WORLD ranks and one vector of COLLECTING_N elements. `over_quota`: the ingest
 * budget is smaller than the gradients of a round. */
void collecting_start(rig *r, const char *options, bool over_quota);

#endif
