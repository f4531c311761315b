/* elastic_job.h - a job "job" with one parameter whose workers join, are lost and come back, in a store whose jobs have
 * checkpoints.
 *
 * A worker's nonce is also the number of its connection: ELASTIC_CONN + rank for those that begin the job, and
 * ELASTIC_NEW + rank, as a rule, for processes that come later. */
#ifndef ELASTIC_JOB_H
#define ELASTIC_JOB_H

#include "rig.h"
#include "store_inside.h"

enum { ELASTIC_N = 100, ELASTIC_CONN = 10, ELASTIC_NEW = 30 };
extern const pd_shape elastic_shape; /* of the parameter "p": ELASTIC_N elements */

/* Makes a store whose next job will have these options. No worker has come yet. */
void elastic_new(rig *r, const char *options);
/* Does so, and lets the next workers ask for any rank (Hello.any_rank). */
void elastic_any_rank(rig *r, const char *options);
/* Begins a job of `world` workers with weights 0. */
void elastic_begin(rig *r, uint32_t world, const char *options);
/* Says what options the next Hellos have. */
void elastic_set_options(const char *options);

/* Send Hello or Declare as a worker. Return the answer's code. */
int elastic_hello(rig *r, uint32_t rank, uint32_t world, uint64_t nonce);
int elastic_declare(rig *r, uint32_t rank, uint64_t nonce);
/* Lets a process join. Fails the test if it is refused. */
void elastic_join(rig *r, uint32_t rank, uint32_t world, uint64_t nonce);
/* Sends initial weights of zeros on connection ELASTIC_CONN. */
void elastic_init(rig *r);
void elastic_lose(rig *r, uint32_t rank, uint64_t conn);

void elastic_fill(float g[ELASTIC_N], double value);
/* Pushes the gradient 2^rank, so that the mean tells which ranks counted. Returns the answer's code. */
int elastic_push(rig *r, uint32_t rank, uint64_t conn, uint64_t step);
/* Sends the first chunk of a push alone. */
void elastic_push_half(rig *r, uint32_t rank, uint64_t conn, uint64_t step);

pd_job *elastic_job(const rig *r);
/* Returns the last step that was reported. */
uint64_t elastic_step(rig *r);
/* Returns the last element of the weights that were reported, and how much it is less than `before`. */
double elastic_weight(rig *r);
double elastic_moved(rig *r, double before);
/* Saves the job, loads it into another store, and checks that its image there is the same. */
void elastic_check_image(rig *r);
/* Checks the code of the last answer's error, and that its text has this part. */
void elastic_expect(const rig *r, int code, const char *part);

#endif
