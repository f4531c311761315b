/* Tests connections that wait for ingest memory and continue when some is freed. The loop thread's code runs on socket
 * pairs with a store in the same thread. The budget has room for four frames. */
#include "test.h"
#include "conversation.h"
#include "loop.h"
#include "scene.h"

/* Sends a piece of an import that is as large as a frame. No import has begun, so the store refuses the piece. */
static void say_piece(scene *s, int fd)
{
    Paramd__ImportRequest import = PARAMD__IMPORT_REQUEST__INIT;
    uint64_t shape = CHUNK;

    import.job = (char *)"j";
    import.act = 2;
    import.param = (char *)"a";
    import.slot = (char *)"momentum";
    import.number = import.block = -1;
    import.shape = &shape;
    import.n_shape = 1;
    import.count = CHUNK;
    scene_send(s, fd, PD_IMPORT, &import.base, CHUNK * sizeof(float));
}

static void send_push(scene *s, int fd, uint32_t handle)
{
    scene_data(s, fd, PD_PUSH, handle, 1);
    scene_turn(s);
}

OBJECT(scene_new(16, NULL), scene_free);

/* The budget of four frames is used up: two by rank 0, one by an operator and one by rank 1, whose own quota is two.
 * The frame of rank 1 cannot be freed, since it waits for rank 0. So rank 1 can only go on when memory of rank 0 or
 * the operator is freed. */
TEST(a_connection_that_the_whole_budget_stopped_goes_on_with_memory_of_others, scene *s)
{
    int first = scene_join(s, 0, 2, 8), fd = scene_join(s, 1, 2, 8), operator= scene_operator(s);

    scene_initialise(s, first, 8);
    for (uint32_t i = 0; i < 2; i++) send_push(s, first, i);
    say_piece(s, operator);
    scene_turn(s);
    for (uint32_t i = 2; i < 4; i++) send_push(s, fd, i);
    assert_int_equal(s->daemon->counters.calls[PD_PUSH], 3); /* four frames are in flight (three pushes and
                                                                     * the operator's piece), so the fifth waits */
    scene_settle(s);
    assert_int_equal(s->daemon->counters.calls[PD_PUSH], 4);
    close(fd);
    close(first);
    close(operator);
}

/* The four ranks of a job reserve the whole budget. The connection that loses its rank is not closed yet when the new
 * process of the rank declares. */
TEST(a_process_that_takes_a_rank_over_gets_its_reserve, scene *s)
{
    int fd[5];

    for (uint32_t rank = 0; rank < 4; rank++) fd[rank] = scene_join(s, rank, 4, 1);
    fd[4] = scene_join(s, 3, 4, 1);
    for (int i = 0; i < 5; i++) close(fd[i]);
}

/* The budget has room for 16 frames of this rank, which sends a note that is four times as large. Then the five ranks
 * of another job, with frames that are three times as large, find the rest of the budget. */
TEST_WITH(NULL, NULL, a_note_reserves_more_than_a_frame_only_while_it_comes)
{
    Paramd__NoteRequest note = PARAMD__NOTE_REQUEST__INIT;
    scene *s = scene_new_chunks(4 * CHUNK);
    int fd = scene_join(s, 0, 1, 1), other[5];

    note.step = 1;
    scene_send(s, fd, PD_NOTE, &note.base, 4 * CHUNK * sizeof(float));
    scene_settle(s);
    scene_expect(s, fd, PD_NOTE);
    for (uint32_t rank = 0; rank < 5; rank++) {
        other[rank] = scene_connect(s);
        scene_hello(s, other[rank], "other", rank, 5);
        scene_settle(s);
        scene_expect(s, other[rank], PD_HELLO);
        scene_declare(s, other[rank], 3);
        scene_settle(s);
        scene_expect(s, other[rank], PD_DECLARE);
    }
    for (int i = 0; i < 5; i++) close(other[i]);
    close(fd);
    scene_free(s);
}

/* Returns how often the loop thread has reported since the store's last turn that a connection waits for memory.
 * Writes two facts of the last report: the rank, and whether the whole budget (not only the rank's quota) is used. */
static unsigned count_stalled(scene *s, uint32_t *rank, bool *budget)
{
    pd_mail *mail = pd_mailbox_take(s->requests), *last = mail;
    unsigned n = 0;

    if (mail == NULL) return 0;
    for (pd_mail *m = mail; m != NULL; last = m, m = m->next) {
        pd_request *request = (pd_request *)(void *)m;
        if (request->kind != PD_REQ_STALLED) continue;
        n++;
        *rank = request->rank;
        *budget = request->u.stalled.budget;
    }
    assert_int_equal(pd_mailbox_post(s->requests, mail, last), PD_OK);
    return n;
}

TEST(the_step_thread_is_told_of_a_rank_that_waits_for_its_share, scene *s)
{
    int first = scene_join(s, 0, 2, 8), fd = scene_join(s, 1, 2, 8);
    uint32_t rank;
    bool budget;

    scene_initialise(s, first, 8);
    for (uint32_t i = 0; i < 2; i++) send_push(s, fd, i);
    assert_int_equal(count_stalled(s, &rank, &budget), 0);
    send_push(s, fd, 2);
    assert_int_equal(count_stalled(s, &rank, &budget), 1);
    assert_int_equal(rank, 1);
    assert_false(budget);
    close(fd);
    close(first);
}

TEST(the_step_thread_is_told_of_a_rank_that_waits_for_the_whole_budget, scene *s)
{
    int first = scene_join(s, 0, 2, 8), fd = scene_join(s, 1, 2, 8), operator= scene_operator(s);
    uint32_t rank;
    bool budget;

    scene_initialise(s, first, 8);
    for (int i = 0; i < 3; i++) say_piece(s, operator);
    scene_turn(s);
    for (uint32_t i = 0; i < 2; i++) send_push(s, fd, i);
    assert_int_equal(count_stalled(s, &rank, &budget), 1);
    assert_int_equal(rank, 1);
    assert_true(budget);
    close(fd);
    close(first);
    close(operator);
}

/* Lets a push wait for memory while the n-th allocation fails. Returns whether an allocation failed.
 *
 * If the loop thread could not report the wait to the step thread, it must report it at the next tick. The number of
 * these late reports is added to *late. */
static bool wait_without_memory(int64_t n, unsigned *late)
{
    scene *s = scene_new(16, NULL);
    int first = scene_join(s, 0, 2, 8), fd = scene_join(s, 1, 2, 8);
    unsigned told;
    uint32_t rank;
    bool budget, failed;

    scene_initialise(s, first, 8);
    for (uint32_t i = 0; i < 2; i++) send_push(s, fd, i);
    scene_data(s, fd, PD_PUSH, 2, 1);
    oom_arm(n);
    scene_turn(s);
    failed = oom_disarm();
    told = count_stalled(s, &rank, &budget);
    pd_conversation_tick(s->daemon);
    scene_turn(s);
    if (told == 0) *late += count_stalled(s, &rank, &budget);
    close(fd);
    close(first);
    scene_free(s);
    return failed;
}

TEST(a_wait_that_could_not_be_told_is_told_with_the_next_tick)
{
    unsigned late = 0;

    for (int64_t n = 0; wait_without_memory(n, &late); n++) continue;
    assert_true(late > 0);
}

/* The rank's first two frames wait in the store and use its whole quota. After the rank has connected again, its
 * quota is still used, so a third frame waits. */
TEST(a_rank_that_connects_again_keeps_the_share_that_it_has_used, scene *s)
{
    int first = scene_join(s, 0, 2, 8), fd = scene_join(s, 1, 2, 8);

    scene_initialise(s, first, 8);
    for (uint32_t i = 0; i < 2; i++) send_push(s, fd, i);
    scene_settle(s);
    close(fd);
    scene_settle(s);
    fd = scene_join(s, 1, 2, 8);
    send_push(s, fd, 2);
    scene_settle(s);
    assert_int_equal(s->daemon->counters.calls[PD_PUSH], 2);
    for (uint32_t i = 0; i < 2; i++) send_push(s, first, i);
    scene_settle(s);
    assert_int_equal(s->daemon->counters.calls[PD_PUSH], 5);
    close(fd);
    close(first);
}

/* Sends four pushes of rank 1, whose quota is two frames. The first two frames use the quota and wait for rank 0 in the
 * store. So the other two must wait: the daemon has read the beginning of one, and the last is still in the socket. */
static int stall_two_pushes(scene *s, int *first)
{
    int fd;

    s->option = "step_timeout";
    s->value = "1";
    *first = scene_join(s, 0, 2, 8);
    fd = scene_join(s, 1, 2, 8);
    scene_initialise(s, *first, 8);
    for (uint32_t i = 0; i < 4; i++) send_push(s, fd, i);
    scene_settle(s);
    assert_int_equal(s->daemon->counters.calls[PD_PUSH], 2);
    return fd;
}

/* Lets the daemon look at its connections, of which a waiting one gets a heartbeat after `ms`. */
static void tick(scene *s, uint32_t ms)
{
    s->daemon->config.times.heartbeat_ms = ms;
    pd_conversation_tick(s->daemon);
    scene_turn(s);
}

TEST(a_connection_that_waits_gets_its_first_heartbeat_when_one_is_due, scene *s)
{
    int first, fd = stall_two_pushes(s, &first);

    tick(s, 60000);
    assert_false(scene_receive(s, fd));
    tick(s, 0);
    scene_expect(s, fd, PD_HEARTBEAT);
    close(fd);
    close(first);
}

TEST(a_deadline_ends_pushes_that_wait_for_memory_too, scene *s)
{
    int first, fd = stall_two_pushes(s, &first);

    scene_sleep(s, 1);
    scene_settle(s);
    for (int i = 0; i < 4; i++) scene_expect_error(s, fd, PD_DEADLINE_EXCEEDED, "rank 0");
    close(fd);
    close(first);
}

TEST(a_push_that_was_made_after_the_deadline_was_read_waits_for_memory_again, scene *s)
{
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };
    int first, fd = stall_two_pushes(s, &first);

    scene_sleep(s, 1);
    scene_settle(s);
    for (int i = 0; i < 4; i++) scene_expect_error(s, fd, PD_DEADLINE_EXCEEDED, "rank 0");
    piece.handle = 2;
    piece.dtype = PD_F32;
    piece.count = CHUNK;
    push.pieces = pieces;
    push.n_pieces = 1;
    push.step = 1;
    push.mark = UINT64_MAX;
    scene_send(s, fd, PD_PUSH, &push.base, CHUNK * sizeof(float));
    scene_settle(s);
    assert_false(scene_receive(s, fd));
    close(fd);
    close(first);
}

/* An operator sends a part of an import while four ranks fill the budget. `before` of these ranks declare before the
 * import, the others after it. */
static void import_beside_ranks(scene *s, uint32_t before)
{
    int fd[4], operator= scene_operator(s);

    for (uint32_t rank = 0; rank < before; rank++) fd[rank] = scene_join(s, rank, 4, 1);
    say_piece(s, operator);
    scene_settle(s);
    scene_expect_error(s, operator, PD_FAILED_PRECONDITION, "");
    assert_int_equal(s->daemon->counters.calls[PD_IMPORT], 1);
    for (uint32_t rank = before; rank < 4; rank++) fd[rank] = scene_join(s, rank, 4, 1);
    for (uint32_t rank = 0; rank < 4; rank++) close(fd[rank]);
    close(operator);
}

HOLDS_FOR(scene *s, a_piece_of_an_import_does_not_stand_against_a_later_declare, import_beside_ranks(s, 3));

HOLDS_FOR(scene *s, a_piece_of_an_import_is_taken_when_ranks_have_reserved_the_whole_budget, import_beside_ranks(s, 4));

TEST(a_piece_of_an_import_takes_nothing_of_a_ranks_share, scene *s)
{
    int first = scene_join(s, 0, 2, 8), fd = scene_join(s, 1, 2, 8), operator= scene_operator(s);

    scene_initialise(s, first, 8);
    say_piece(s, operator);
    scene_settle(s);
    for (uint32_t i = 0; i < 3; i++) send_push(s, fd, i);
    assert_int_equal(s->daemon->counters.calls[PD_PUSH], 2); /* two frames, as without an import: the rank's
                                                                     * reserve and half of the rest of the budget */
    close(fd);
    close(first);
    close(operator);
}

TEST(a_piece_of_an_import_waits_while_the_budget_is_full_and_then_goes_on, scene *s)
{
    int first = scene_join(s, 0, 2, 8), fd = scene_join(s, 1, 2, 8), operator= scene_operator(s);

    scene_initialise(s, first, 8);
    for (uint32_t i = 0; i < 2; i++) send_push(s, first, i);
    for (uint32_t i = 2; i < 4; i++) send_push(s, fd, i);
    say_piece(s, operator);
    scene_turn(s);
    assert_int_equal(s->daemon->counters.calls[PD_IMPORT], 0);
    scene_settle(s);
    assert_int_equal(s->daemon->counters.calls[PD_IMPORT], 1);
    close(fd);
    close(first);
    close(operator);
}

TEST(initial_weights_that_wait_for_memory_are_told_whom_they_wait_for, scene *s)
{
    int fd;

    s->option = "initial_weights";
    s->value = "mean";
    fd = scene_join(s, 1, 2, 8);
    for (uint32_t i = 0; i < 5; i++) scene_data(s, fd, PD_INIT, i, 0);
    scene_settle(s);
    assert_int_equal(s->daemon->counters.calls[PD_INIT], 4); /* rank 0 has sent no weights, so no weights of
                                                                     * rank 1 can be summed and freed */
    for (int i = 0; i < 4; i++) scene_expect(s, fd, PD_INIT);
    scene_sleep(s, 61);
    scene_expect_error(s, fd, PD_DEADLINE_EXCEEDED, "rank 0 (never came)");
    close(fd);
}

TEST(pulls_of_weights_that_do_not_come_are_told_whom_they_wait_for, scene *s)
{
    Paramd__PullRequest pull = PARAMD__PULL_REQUEST__INIT;
    Paramd__Want want = PARAMD__WANT__INIT, *wants[] = { &want };
    int fd = scene_join(s, 1, 2, 8);

    want.count = CHUNK;
    pull.wants = wants;
    pull.n_wants = 1;
    scene_send(s, fd, PD_PULL, &pull.base, 0);
    scene_settle(s);
    assert_false(scene_receive(s, fd));
    scene_sleep(s, 61);
    scene_expect_error(s, fd, PD_DEADLINE_EXCEEDED, "rank 0 (never came)");
    close(fd);
}
