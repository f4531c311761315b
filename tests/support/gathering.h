/* gathering.h - a small job whose aggregate needs all contributions at once: for tests of where these wait. */
#ifndef GATHERING_H
#define GATHERING_H

#include "rig.h"

enum { GATHERING = 4, GATHERING_WORLD = 4, GATHERING_N = 130, GATHERING_CONN = 10 };

/* Options of a job, one for each such aggregate: both forms of Adasum, median, trimmed mean. */
extern const char *const gathering[GATHERING];

/* A rig with a job of GATHERING_WORLD ranks and one vector of GATHERING_N elements. Pressed: there is memory for less than is pushed in a round. */
void gathering_start(rig *r, const char *options, bool pressed);

#endif
