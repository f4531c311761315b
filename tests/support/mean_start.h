/* mean_start.h - starts a job of three ranks and two vectors with the mean of all ranks' weights (initial_weights =
 * mean), for tests. */
#ifndef MEAN_START_H
#define MEAN_START_H

#include "rig.h"

enum { MEAN_WORLD = 3, MEAN_PARAMS = 2, MEAN_SIZE = 200 };
extern const int64_t mean_sizes[MEAN_PARAMS];
extern const char *const mean_names[MEAN_PARAMS];
extern const pd_shape mean_shapes[MEAN_PARAMS];

/* Joins rank `rank` on connection 10 + rank + again. If `again` is not 0, the worker is another process at the same
 * rank. `options` are those of the job beside initial_weights, or NULL. */
void mean_join(rig *r, uint32_t rank, uint64_t again, const char *options, pd_dtype pull);
void mean_join_all(rig *r, const char *options);
/* Fills `out` with the weights that a rank brings. Another process at rank r brings those of rank r + again. */
void mean_weights(uint32_t rank, uint32_t param, float *out);
/* Send one chunk of a rank's weights of a parameter, all chunks of it, or all parameters. */
int mean_send_chunk(rig *r, uint32_t rank, uint64_t again, uint32_t param, int64_t first);
void mean_send_param(rig *r, uint32_t rank, uint64_t again, uint32_t param);
void mean_send_all(rig *r, uint32_t rank, uint64_t again);
/* Returns the published weights of a parameter; NULL: there are none. */
const pd_published *mean_published(const rig *r, uint32_t param);

#endif
