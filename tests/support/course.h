/* course.h - the training of a small job, always with the same numbers: two jobs that take the same course must end
 * with the same bits. */
#ifndef COURSE_H
#define COURSE_H

#include "optimizer.h"
#include "rig.h"

enum { COURSE_WORLD = 3, COURSE_PARAMS = 3, COURSE_STEPS = 30, COURSE_CONN = 10, COURSE_MOST = 480 };

typedef struct course {
    const char *options, *rules;
    bool ranged;    /* each rank contributes only a range of the last parameter */
    bool overrides; /* an operator sets overrides in step 5, for that step and for step 20 */
    bool absent;    /* some ranks have no gradient in some steps */
} course;

/* Lets all ranks join job "job" and declare its parameters. Rank r has the connection and nonce COURSE_CONN + r. */
void course_join(rig *r, const course *p);
/* Sends the initial weights. */
void course_initialise(rig *r, const course *p);
/* Sends a rank's gradient of one parameter. */
void course_push(rig *r, const course *p, uint32_t rank, uint32_t param, uint64_t step);
/* Sends push number k of the COURSE_WORLD * COURSE_PARAMS pushes of a step. The push is left out if its round has
 * closed, since the server has then answered it. */
void course_push_one(rig *r, const course *p, uint64_t step, uint32_t k);
/* Does what the operator does in this step. */
void course_operate(rig *r, const course *p, uint64_t step);
/* Sends the first `pushes` pushes of a step, and lets the store work. */
void course_step_to(rig *r, const course *p, uint64_t step, uint32_t pushes);
/* Asserts that both jobs are at step COURSE_STEPS and have the same bits: weights, optimizer state, counts. */
void course_compare(rig *a, rig *b);
/* Asserts that two optimizers of the same plan have the same state, bit for bit, except what lives only in a step. */
void course_compare_slots(const pd_optim *a, const pd_optim *b);

#endif
