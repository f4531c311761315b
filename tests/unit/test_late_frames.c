/* Tests which frames a deadline reaches that the loop thread has not taken in yet. */
#include "conn.h"
#include "test.h"

/* Returns whether a frame of `step` that the peer sent after it had read `mark` errors is late, where the deadline of
 * step 7 was error 5. */
static bool is_late(unsigned method, uint64_t mark, uint64_t step)
{
    pd_pending pending = { .method = (uint16_t)method, .wait = { .step = step } };
    pd_conn conn = { .incoming = { .pending = &pending, .mark = mark }, .overdue = { .since = 5, .step = 7 } };

    return pd_conn_is_late(&conn);
}

TEST(a_push_is_late_if_its_sender_did_not_know_of_the_deadline)
{
    assert_true(is_late(PD_PUSH, 4, 7));
    assert_true(is_late(PD_PUSH_PULL, 0, 6));
    assert_true(is_late(PD_INIT, 4, 0));
}

TEST(a_push_of_a_later_step_or_after_the_error_is_not_late)
{
    assert_false(is_late(PD_PUSH, 4, 8));
    assert_false(is_late(PD_PUSH, 5, 7));
}

TEST(a_worker_state_that_waits_for_memory_is_never_late)
{
    assert_false(is_late(PD_NOTE, 0, 0));
}
