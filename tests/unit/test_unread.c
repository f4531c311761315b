/* Tests how earlier weights count that answers still have: nothing for one version, the rest in the job's account, all
 * of them after the job's end; and that a job whose readers have too much waits, and others do not. */
#include "test.h"
#include "shared_worker.h"
#include "rig.h"
#include "store_inside.h"
#include "published.h"

WITH_THREADS();

static uint64_t used(const scene *s)
{
    return s->store->budget.used;
}

static void push(const shared_worker *w, uint64_t step)
{
    shared_push(w, 0, step, 0, 1);
    scene_settle(w->s);
}

/* Takes a step, and reads the weights without releasing them. */
static void step_and_pull(const shared_worker *w, uint64_t step)
{
    push(w, step);
    scene_expect(w->s, w->fd, PD_PUSH);
    shared_send_pull(w, 0, step);
    scene_settle(w->s);
    shared_expect_weights(w);
}

static void release(const shared_worker *w, uint64_t answers)
{
    shared_send_release(w, answers);
    scene_settle(w->s);
    scene_expect(w->s, w->fd, PD_RELEASE);
}

static void drop(scene *s, const char *job)
{
    Paramd__DropRequest request = PARAMD__DROP_REQUEST__INIT;
    int fd = scene_connect(s);

    scene_hello(s, fd, "", 0, 0);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    request.job = (char *)job;
    scene_send(s, fd, PD_DROP, &request.base, 0);
    scene_settle(s);
    scene_expect(s, fd, PD_DROP);
    close(fd);
    scene_settle(s);
}

OBJECT(scene_new_chunks(SHARED_CHUNK), scene_free);

TEST(one_earlier_version_counts_nothing_and_further_ones_count_until_they_are_released, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    uint64_t before = used(s);

    step_and_pull(&w, 1);
    assert_int_equal(used(s), before);
    step_and_pull(&w, 2);
    assert_int_equal(used(s), before);
    step_and_pull(&w, 3);
    assert_int_equal(used(s), before + SHARED_BYTES);
    step_and_pull(&w, 4);
    assert_int_equal(used(s), before + 2 * SHARED_BYTES);
    release(&w, 1);
    assert_int_equal(used(s), before + SHARED_BYTES);
    release(&w, 3);
    assert_int_equal(used(s), before);
    shared_end(&w);
}

TEST(a_connection_that_ends_gives_back_what_it_held, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    uint64_t before = used(s);

    for (uint64_t step = 1; step <= 5; step++) step_and_pull(&w, step);
    assert_int_equal(used(s), before + 3 * SHARED_BYTES);
    shared_end(&w);
    scene_settle(s);
    assert_int_equal(used(s), before);
}

/* The job waits, its contribution stands, and the next attempt takes the step. */
TEST(a_job_whose_readers_hold_too_much_waits_and_others_do_not, scene *s)
{
    shared_worker other = shared_start(s, "other", 0, 1, 1), w = shared_start(s, "j", 0, 1, 1);
    uint64_t steps_of_other = 0;

    s->store->budget.limit = used(s) + SHARED_BYTES / 2;
    for (uint64_t step = 1; step <= 3; step++) step_and_pull(&w, step);
    push(&w, 4);
    scene_expect_error(s, w.fd, PD_RESOURCE_EXHAUSTED, "hold 32768 bytes of earlier weights");
    assert_non_null(strstr(s->said, "step 4 of a waits: answers that workers have not read"));
    for (; steps_of_other < 3; steps_of_other++) {
        push(&other, steps_of_other + 1);
        scene_expect(s, other.fd, PD_PUSH);
    }
    scene_sleep(s, 1.1);
    assert_int_equal(inside_find(s->store, "j")->steps.params[0].saved.step, 3);
    release(&w, 3);
    scene_sleep(s, 1.1);
    assert_int_equal(inside_find(s->store, "j")->steps.params[0].saved.step, 4);
    shared_end(&w);
    shared_end(&other);
}

static uint64_t used_by(const scene *s, const char *identity)
{
    const pd_owner *owner = pd_owner_find(&s->store->owners, identity);

    return owner != NULL ? pd_owner_budget(owner)->used : 0;
}

TEST(weights_of_a_job_that_has_ended_count_for_its_owner_until_answers_give_them_back, scene *s)
{
    shared_worker w;

    s->identity = "token:a";
    scene_roles(s, "* admin *\nquota token:a bytes=10M\n");
    w = shared_start(s, "j", 0, 1, 1);
    step_and_pull(&w, 1);
    step_and_pull(&w, 2);
    drop(s, "j");
    /* The two versions, and the pages of the segment, which these keep: they have a third buffer and a sum. */
    assert_in_range(used(s), 4 * SHARED_BYTES, 6 * SHARED_BYTES);
    assert_int_equal(used_by(s, "token:a"), used(s));
    shared_end(&w);
    scene_settle(s);
    assert_int_equal(used(s), 0);
    assert_null(pd_owner_find(&s->store->owners, "token:a"));
}

TEST(a_job_that_has_ended_counts_nothing_where_no_answer_has_its_weights, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);

    step_and_pull(&w, 1);
    release(&w, 1);
    drop(s, "j");
    assert_int_equal(used(s), 0);
    shared_end(&w);
}

/* A worker that keeps the segment open keeps no memory of the daemon. An answer that is not released keeps it. */
TEST(pages_of_weights_are_freed_when_the_job_and_its_answers_have_ended, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    const float *at;

    push(&w, 1);
    scene_expect(s, w.fd, PD_PUSH);
    shared_send_pull(&w, 0, 1);
    scene_settle(s);
    at = shared_expect_weights(&w);
    assert_true(at[0] != 0);
    drop(s, "j");
    assert_true(at[0] != 0);
    close(w.fd);
    scene_settle(s);
    assert_true(shared_are(at, 0));
    w.fd = -1;
    shared_end(&w);
}

/* Otherwise a Declare that ends a job to make room for its own would find the room taken. */
TEST(a_job_that_has_ended_counts_nothing_before_the_loop_thread_has_forgotten_it)
{
    pd_budget all = { .limit = 1000 };
    pd_account account = { .budget = &all };
    pd_unread *unread = pd_unread_new(&account, 7);

    pd_unread_publish(unread, 100, 0);
    pd_account_take(&account, 300);
    pd_unread_leave(unread);
    pd_account_give(&account, account.used);
    pd_unread_publish(unread, 0, 100);
    pd_unread_add(unread, 100);
    pd_unread_end(unread, NULL);
    assert_int_equal(all.used, 0);
    assert_null(pd_unread_find(&all, 8));
    assert_ptr_equal(pd_unread_find(&all, 7), unread);
    pd_unread_forgotten(unread);
    assert_int_equal(all.used, 100);
    pd_unread_remove(unread, 100);
    assert_int_equal(all.used, 0);
    assert_null(pd_unread_find(&all, 7));
}

/* A job that waits for its preconditioner tasks ends after the loop thread has forgotten it. */
TEST(a_job_that_ends_late_counts_at_once)
{
    pd_budget all = { .limit = 1000 };
    pd_account account = { .budget = &all };
    pd_unread *unread = pd_unread_new(&account, 7);

    pd_unread_publish(unread, 100, 0);
    pd_unread_forgotten(unread);
    pd_unread_leave(unread);
    pd_unread_publish(unread, 0, 100);
    pd_unread_add(unread, 100);
    assert_int_equal(all.used, 0);
    pd_unread_end(unread, NULL);
    assert_int_equal(all.used, 100);
    pd_unread_remove(unread, 100);
    assert_int_equal(all.used, 0);
}
