/* Tests what the client's window has: which frames, for how long, and what happens if it does not reach back to the
 * server's step. */
#include "test.h"
#include "core.h"
#include "window.h"
#include "windowed.h"

/* Payload bytes of a push of a windowed worker: two parameters, the second at the next multiple of 64. */
enum { STEP_BYTES = 64 + WINDOWED_ELEMENTS * 4 };

static uint64_t kept(const windowed *w)
{
    return w->p->core->window.bytes;
}

TEST(a_client_without_a_window_keeps_nothing)
{
    windowed w = windowed_new(0);

    windowed_train(&w, 5);
    assert_int_equal(kept(&w), 0);
    windowed_come_back(&w, 4);
    assert_true(w.p->core->end.gone_back);
    assert_null(strstr(w.p->core->end.error.text, "window"));
    windowed_free(&w);
}

TEST(hello_tells_the_window)
{
    pd_core_config config = peer_four;
    peer_frame l;
    peer *p;

    config.window = 6;
    p = peer_new(&config);
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    assert_int_equal(((const Paramd__HelloRequest *)l.message)->window, 6);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(the_window_has_as_many_steps_as_it_was_given)
{
    windowed w = windowed_new(4);

    for (uint64_t step = 1; step < 10; step++) {
        windowed_train(&w, step);
        assert_int_equal(kept(&w), (step < 4 ? step : 4) * STEP_BYTES);
    }
    windowed_free(&w);
}

TEST(steps_that_are_durable_leave_the_window)
{
    windowed w = windowed_new(8);
    int64_t before;
    peer_frame l;

    windowed_train(&w, 5);
    before = oom_live();
    windowed_push(&w, &l);
    w.p->durable = 4;
    windowed_answer(&w, &l.prefix, 6);
    peer_frame_drop(&l);
    assert_int_equal(kept(&w), 2 * STEP_BYTES);
    assert_true(oom_live() < before);
    windowed_free(&w);
}

/* Another shard has no checkpoint of step 4: so all may go back to one before it. */
TEST(steps_of_which_other_shards_lack_a_checkpoint_stay_in_the_window)
{
    windowed w = windowed_new(8);
    pd_core *core = w.p->core;
    peer_frame l;

    windowed_train(&w, 5);
    core->setup.shards = 2;
    for (uint64_t common = 0; common <= 4; common += 4) {
        core->progress.common = common;
        windowed_push(&w, &l);
        w.p->durable = 4;
        windowed_answer(&w, &l.prefix, common == 0 ? 6 : 7);
        peer_frame_drop(&l);
        assert_int_equal(kept(&w), (common == 0 ? 6 : 3) * STEP_BYTES);
    }
    core->setup.shards = 1;
    windowed_free(&w);
}

TEST(a_declaration_tells_of_durable_steps_too)
{
    windowed w = windowed_new(8);

    windowed_train(&w, 5);
    w.p->durable = 3;
    windowed_come_back(&w, 3);
    assert_int_equal(kept(&w), 2 * STEP_BYTES);
    windowed_catch_up(&w, 4, 5);
    windowed_free(&w);
}

TEST(steps_that_become_durable_while_they_are_sent_again_leave_it_afterwards)
{
    windowed w = windowed_new(8);
    pd_prefix again;

    windowed_train(&w, 5);
    windowed_come_back(&w, 3);
    again = windowed_expect_again(&w, 4);
    w.p->durable = 5;
    windowed_answer(&w, &again, 4);
    again = windowed_expect_again(&w, 5);
    windowed_answer(&w, &again, 5);
    assert_int_equal(kept(&w), 0);
    windowed_free(&w);
}

TEST(the_handle_frees_the_window)
{
    windowed w = windowed_new(8);
    int64_t before;

    windowed_free(&w); /* a first run makes the allocations that are made only once */
    before = oom_live();
    w = windowed_new(8);
    windowed_train(&w, 12);
    windowed_come_back(&w, 8);
    windowed_free(&w);
    assert_int_equal(oom_live(), before);
}

enum { LARGE = 8192, LARGE_BYTES = LARGE * 4, CHUNKS = 2 };

/* Returns a worker with a window, and with a parameter that is sent in two frames of LARGE_BYTES each. */
static peer *trained_large(uint32_t window)
{
    pd_core_config config = peer_four;
    pd_ticket_id ticket;
    peer *p;

    config.window = window;
    p = peer_new(&config);
    p->chunk_elements = LARGE;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, (const int64_t[]){ CHUNKS * LARGE }, 1);
    peer_answer_declare(p, 1, 0);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return p;
}

/* Takes a step. Its gradients are its number. */
static void take_large_step(peer *p)
{
    static float gradient[CHUNKS * LARGE];
    uint64_t step = pd_core_step(p->core, 0) + 1;
    pd_item item = { .gradient = gradient };
    pd_ticket_id ticket;

    for (int i = 0; i < CHUNKS * LARGE; i++) gradient[i] = (float)step;
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, NULL), PD_OK);
    for (int i = 0; i < CHUNKS; i++) {
        peer_frame l = peer_expect(p, PD_PUSH);
        peer_reply_data(p, &l.prefix, 1, 1, step, NULL, 0);
        peer_frame_drop(&l);
    }
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

TEST(payloads_that_enter_a_full_window_take_the_memory_of_those_that_leave)
{
    peer *p = trained_large(2);
    const pd_window *window = &p->core->window;
    float value;

    for (int step = 1; step <= 3; step++) take_large_step(p);
    assert_int_equal(window->spare.bytes, LARGE_BYTES); /* a frame of the next step comes before one leaves */
    for (int step = 4; step <= 9; step++) {
        take_large_step(p);
        assert_int_equal(window->bytes, 2 * CHUNKS * LARGE_BYTES);
        assert_int_equal(window->spare.bytes, LARGE_BYTES);
        memcpy(&value, window->oldest->prev->first->prev->payload + LARGE_BYTES - sizeof value, sizeof value);
        assert_true(value == (float)step);
    }
    peer_free(p);
}

TEST(memory_of_durable_steps_is_used_again)
{
    peer *p = trained_large(4);
    const pd_window *window = &p->core->window;

    for (int step = 1; step <= 3; step++) take_large_step(p);
    p->durable = 3;
    take_large_step(p);
    assert_int_equal(window->bytes, CHUNKS * LARGE_BYTES);
    /* the second frame of step 4 has taken one of the six */
    assert_int_equal(window->spare.bytes, (3 * CHUNKS - 1) * LARGE_BYTES);
    for (int step = 5; step <= 6; step++) take_large_step(p);
    assert_int_equal(window->spare.bytes, LARGE_BYTES);
    peer_free(p);
}

/* As after steps whose frames had other sizes. */
TEST(spare_memory_that_no_frame_takes_is_freed_except_for_8_mib)
{
    enum { MIB = 1 << 20 };
    peer *p = trained_large(2);
    pd_window *window = &p->core->window;

    for (int i = 0; i < 10; i++) pd_spare_give(&window->spare, malloc(MIB), MIB);
    take_large_step(p);
    assert_int_equal(window->spare.bytes, 7 * MIB); /* an eighth one and the frames are more than 8 MiB */
    peer_free(p);
}

static void expect_rewind(windowed *w, const char *why)
{
    assert_true(w->p->core->end.gone_back);
    if (strstr(w->p->core->end.error.text, why) == NULL)
        fail_msg("\"%s\" is not in: %s", why, w->p->core->end.error.text);
    windowed_free(w);
}

TEST(a_window_reaches_exactly_as_far_as_it_says)
{
    windowed w = windowed_new(4);

    windowed_train(&w, 10);
    windowed_come_back(&w, 6);
    windowed_catch_up(&w, 7, 10);
    windowed_come_back(&w, 5);
    expect_rewind(&w, "its window has the pushes of 4 steps, and 5 are needed");
}

TEST(a_process_that_has_just_joined_has_no_earlier_steps)
{
    static const int64_t sizes[] = { WINDOWED_ELEMENTS, WINDOWED_ELEMENTS };
    pd_core_config config = peer_four;
    windowed w = { 0 };

    config.window = 8;
    w.p = peer_trained(&config, sizes, WINDOWED_PARAMS, 20);
    windowed_train(&w, 22);
    windowed_come_back(&w, 20);
    windowed_catch_up(&w, 21, 22);
    windowed_come_back(&w, 19);
    expect_rewind(&w, "its window has the pushes of 2 steps, and 3 are needed");
}

/* Takes a step, unless the answer itself finds no memory. */
static void train_without_memory(windowed *w, int64_t n)
{
    uint64_t step = pd_core_step(w->p->core, 0) + 1;
    peer_frame l;
    pd_ticket_id ticket = windowed_push(w, &l);

    windowed_answer_without_memory(w, &l.prefix, step, n);
    peer_frame_drop(&l);
    if (pd_core_done(w->p->core, ticket)) peer_finish(w->p, ticket, NULL);
}

/* Training goes on without the copy. The window then begins behind the step that it lacks. */
TEST(a_step_without_memory_for_its_copy_is_a_gap)
{
    int gaps = 0;

    for (int64_t n = 0; n < 8; n++) {
        windowed w = windowed_new(8);

        windowed_train(&w, 5);
        train_without_memory(&w, n);
        if (pd_core_step(w.p->core, 0) == 5 || kept(&w) == 6 * STEP_BYTES) {
            windowed_free(&w);
            continue;
        }
        gaps++;
        windowed_train(&w, 8);
        windowed_come_back(&w, 6);
        windowed_catch_up(&w, 7, 8);
        windowed_come_back(&w, 5);
        expect_rewind(&w, "its window has the pushes of 2 steps, and 3 are needed");
    }
    assert_int_equal(gaps, 4); /* the past, its head, its payload, the list of its step */
}

TEST(after_a_rewind_the_window_begins_anew)
{
    windowed w = windowed_new(4);
    pd_ticket_id ticket;

    windowed_train(&w, 10);
    windowed_come_back(&w, 3);
    assert_true(w.p->core->end.gone_back);
    assert_int_equal(pd_core_rewind(w.p->core, &ticket, NULL), PD_OK);
    assert_int_equal(kept(&w), 0);
    windowed_come_back(&w, 3);
    assert_int_equal(peer_finish(w.p, ticket, NULL), PD_OK);
    windowed_train(&w, 5);
    windowed_come_back(&w, 3);
    windowed_catch_up(&w, 4, 5);
    windowed_train(&w, 6);
    windowed_free(&w);
}

TEST(a_step_that_was_pushed_twice_is_in_the_window)
{
    windowed w = windowed_new(4);
    pd_ticket_id ticket;
    peer_frame l;

    windowed_train(&w, 2);
    ticket = windowed_push(&w, &l);
    peer_refuse(w.p, &l.prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(w.p, ticket, NULL), PD_DEADLINE_EXCEEDED);
    windowed_train(&w, 4);
    windowed_come_back(&w, 1);
    windowed_catch_up(&w, 2, 4);
    windowed_free(&w);
}

/* The program gave up a push whose gradient the server has counted nevertheless. It is not in the window. */
TEST(a_step_whose_push_was_given_up_is_a_gap)
{
    windowed w = windowed_new(8);
    pd_ticket_id ticket;
    peer_frame l;

    windowed_train(&w, 2);
    ticket = windowed_push(&w, &l);
    peer_refuse(w.p, &l.prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(w.p, ticket, NULL), PD_DEADLINE_EXCEEDED);
    windowed_come_back(&w, 3);
    windowed_train(&w, 5);
    windowed_come_back(&w, 2);
    expect_rewind(&w, "its window has the pushes of 2 steps, and 3 are needed");
}
