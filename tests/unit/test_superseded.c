/* Tests that a process cannot return to its rank after another process has taken the rank over. */
#include "test.h"
#include "rig.h"

enum { SIZE = 100, OLD = 10, NEW = 20 };
static const int64_t sizes[] = { SIZE };

/* Sends Hello for rank 0 of job j, from the process with this nonce, over connection `conn`. */
static int hello(rig *r, uint64_t nonce, uint64_t conn)
{
    return rig_hello(r, "j", 0, 1, nonce, conn, NULL, "* sgd lr=1");
}

static int declare(rig *r, uint64_t conn)
{
    static const char *const names[] = { "p0" };
    static const pd_shape shapes[] = { { 1, { SIZE } } };

    return rig_declare(r, r->job, 0, conn, names, shapes, NULL, 1, PD_F32);
}

static int push(rig *r, uint64_t conn, uint64_t step)
{
    float values[SIZE] = { 0 };
    int rc = rig_push(r, r->job, 0, conn, step, 0, values, SIZE);

    rig_work(r);
    return rc;
}

FIXTURE(rig, rig_make, rig_free);

TEST(a_superseded_process_that_connects_again_is_refused, rig *r)
{
    rig_start(r, "j", 1, OLD, sizes, 1, NULL, NULL);
    assert_int_equal(hello(r, NEW, NEW), PD_OK);
    assert_int_equal(hello(r, OLD, 30), PD_ABORTED);
    assert_non_null(strstr(r->error.text, "was taken over by another process, host:20"));
}

TEST(the_new_process_keeps_the_rank_when_the_old_one_comes_back, rig *r)
{
    rig_start(r, "j", 1, OLD, sizes, 1, NULL, NULL);
    assert_int_equal(hello(r, NEW, NEW), PD_OK);
    assert_int_equal(declare(r, NEW), PD_OK);
    hello(r, OLD, 30);
    assert_int_equal(r->fenced_conn, OLD); /* nobody else was */
    assert_int_equal(push(r, NEW, 1), PD_OK);
    assert_int_equal(rig_versions(r, r->job, 0)->step, 1);
}

TEST(the_old_process_stays_out_when_the_new_one_is_lost, rig *r)
{
    pd_request *lost = pd_request_new(PD_REQ_LOST, (pd_ticket){ NEW, 0 });

    rig_start(r, "j", 1, OLD, sizes, 1, NULL, NULL);
    assert_int_equal(hello(r, NEW, NEW), PD_OK);
    lost->job = r->job;
    rig_apply(r, lost);
    assert_int_equal(hello(r, OLD, 30), PD_ABORTED);
}

TEST(a_process_that_reconnects_while_nobody_else_came_has_its_rank_again, rig *r)
{
    rig_start(r, "j", 1, OLD, sizes, 1, NULL, NULL);
    assert_int_equal(hello(r, OLD, 30), PD_OK);
    assert_int_equal(hello(r, OLD, 31), PD_OK);
    assert_int_equal(declare(r, 31), PD_OK);
    assert_int_equal(push(r, 31, 1), PD_OK);
}

/* The server has read the Hello of the older connection last. */
TEST(a_process_keeps_its_rank_when_the_hello_of_an_older_connection_comes_after_that_of_a_newer_one, rig *r)
{
    rig_start(r, "j", 1, OLD, sizes, 1, NULL, NULL);
    assert_int_equal(hello(r, NEW, 31), PD_OK);
    assert_int_equal(hello(r, NEW, 30), PD_ABORTED);
    assert_non_null(strstr(r->error.text, "this process (host:20) has a newer connection"));
    assert_int_equal(r->fenced_conn, OLD); /* nobody else was */
    assert_int_equal(declare(r, 31), PD_OK);
    assert_int_equal(push(r, 31, 1), PD_OK);
}

TEST(each_of_the_last_processes_stays_out, rig *r)
{
    rig_start(r, "j", 1, OLD, sizes, 1, NULL, NULL);
    for (uint64_t nonce = 11; nonce <= 14; nonce++) assert_int_equal(hello(r, nonce, nonce), PD_OK);
    for (uint64_t nonce = OLD; nonce < 14; nonce++) assert_int_equal(hello(r, nonce, 30 + nonce), PD_ABORTED);
    assert_int_equal(hello(r, 14, 50), PD_OK);
}

TEST(a_process_superseded_at_one_rank_may_take_another, rig *r)
{
    rig_start(r, "j", 2, OLD, sizes, 1, NULL, NULL);
    assert_int_equal(rig_hello(r, "j", 0, 2, NEW, NEW, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_hello(r, "j", 1, 2, OLD, 30, NULL, "* sgd lr=1"), PD_OK);
}
