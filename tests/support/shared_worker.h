/* shared_worker.h - a worker of a scene that shares memory with the daemon, and sends its frames one by one. */
#ifndef SHARED_WORKER_H
#define SHARED_WORKER_H

#include "scene.h"
#include "segment.h"

/* Parameters of the worker's job are vectors of one chunk. Their weights are large enough for shared memory. */
enum { SHARED_CHUNK = 8192, SHARED_BYTES = SHARED_CHUNK * 4, UNITS_A_CHUNK = SHARED_BYTES / 64 };

typedef struct shared_worker {
    scene *s;
    int fd;
    pd_segment mine;    /* the worker's segment, with room for 4 gradients */
    pd_segment weights; /* the daemon's, as the worker has mapped it */
} shared_worker;

/* Connects a worker of job `job`, which declares n parameters. It has not shared memory yet. */
shared_worker shared_join(scene *s, const char *job, uint32_t rank, uint32_t world, unsigned n);
/* Connects a worker likewise, shares memory, and sends initial weights 0. */
shared_worker shared_start(scene *s, const char *job, uint32_t rank, uint32_t world, unsigned n);
/* Closes the connection and unmaps the segments. */
void shared_end(shared_worker *w);

/* Sends a Share with this descriptor, which is closed; -1: none goes with it. */
void shared_send_share(const shared_worker *w, int fd, uint64_t bytes);
/* Shares a new segment, and maps the one that the daemon lends. */
void shared_share(shared_worker *w);

/* Sends a push of parameter `handle`, or its initial weights (PD_INIT), whose payload lies at unit `place`. */
void shared_send_data(const shared_worker *w, unsigned method, uint32_t handle, uint64_t step, uint32_t place);
/* Writes a gradient of `value` for each element at unit `place`, and pushes it. */
void shared_push(const shared_worker *w, uint32_t handle, uint64_t step, uint32_t place, float value);
void shared_send_pull(const shared_worker *w, uint32_t handle, uint64_t min_step);
/* Expects an answer to a pull in shared memory. Returns where its weights lie. */
const float *shared_expect_weights(const shared_worker *w);
/* Expects an answer to a pull whose weights follow its header. Skips other answers. */
const float *shared_expect_bytes(const shared_worker *w);
void shared_send_release(const shared_worker *w, uint64_t answers);
/* Returns whether all elements of a parameter are `value`. */
bool shared_are(const float *weights, float value);

#endif
