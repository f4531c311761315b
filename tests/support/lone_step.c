/* lone_step.c - takes a whole step of one optimizer without a server. */
#include "lone_step.h"

#include "batch.h"
#include "test.h"

void lone_step(pd_optim *optim, const pd_step_io *io, int threads)
{
    pd_task *task;

    assert_int_equal(pd_optim_begin(optim, io), PD_OK);
    do {
        assert_int_equal(pd_batch_run(&optim, 1, threads), PD_OK);
        while ((task = pd_optim_capture(optim)) != NULL) {
            pd_task_run(task);
            pd_optim_deliver(optim, task);
        }
    } while (!pd_optim_done(optim));
}
