/* Tests what the loop thread tells of steps in which not every rank counts: who counted, how old a push was, and who
 * the members of the job are. */
#include "test.h"
#include "conn.h"
#include "loop.h"
#include "scene.h"

#include <string.h>
#include <unistd.h>

enum { WORLD = 2 };

/* Two workers of an asynchronous job with one parameter, and the last answer that one of them got. */
typedef struct pair {
    scene *s;
    int fd[WORLD];
} pair;

static void set_up(pair *p)
{
    p->s = scene_new(16, NULL);
    p->s->option = "rounds";
    p->s->value = "async";
    for (uint32_t r = 0; r < WORLD; r++) p->fd[r] = scene_join(p->s, r, WORLD, 1);
    scene_initialise(p->s, p->fd[0], 1);
}

static void tear_down(pair *p)
{
    for (uint32_t r = 0; r < WORLD; r++) close(p->fd[r]);
    scene_free(p->s);
}

static const Paramd__DataReply *push(pair *p, uint32_t rank, uint64_t step)
{
    scene *s = p->s;
    void *reply;

    scene_data(s, p->fd[rank], PD_PUSH, 0, step);
    scene_settle(s);
    scene_expect(s, p->fd[rank], PD_PUSH);
    pd_arena_reset(s->arena);
    assert_int_equal(pd_reply_unpack(s->arena, PD_PUSH, s->in, s->prefix.header_bytes, &reply, NULL), PD_OK);
    assert_int_equal(((Paramd__DataReply *)reply)->n_outcomes, 1);
    return reply;
}

/* Lets the loop thread know that only this rank is a member. */
static void tell_members(pair *p, uint32_t only, uint64_t epoch, uint64_t course)
{
    pd_counted *set = pd_counted_new(WORLD);

    pd_counted_add(set, only, 0);
    pd_version_table_note_members(p->s->daemon->versions, 1, set, only, epoch, course);
}

FIXTURE(pair, set_up, tear_down);

TEST(a_push_that_counts_later_is_told_its_age_and_how_many_counted, pair *p)
{
    const Paramd__DataReply *reply;

    push(p, 0, 1);
    reply = push(p, 1, 1);
    assert_int_equal(reply->outcomes[0]->outcome, PD_STEPPED);
    assert_int_equal(reply->outcomes[0]->step, 2);
    assert_int_equal(reply->staleness, 1);
    assert_int_equal(reply->counted, 1);
}

TEST(a_push_that_counted_before_is_told_the_age_that_it_had, pair *p)
{
    const Paramd__DataReply *reply;

    push(p, 0, 1);
    push(p, 1, 1); /* counts in step 2 with age 1 */
    push(p, 0, 3);
    reply = push(p, 1, 1);
    assert_int_equal(reply->outcomes[0]->outcome, PD_STEPPED);
    assert_int_equal(reply->outcomes[0]->step, 3);
    assert_int_equal(reply->staleness, 1);
}

TEST(answers_tell_the_members_and_the_place_of_the_rank, pair *p)
{
    const Paramd__DataReply *reply;

    tell_members(p, 1, 7, 3);
    reply = push(p, 1, 1);
    assert_int_equal(reply->members, 1);
    assert_int_equal(reply->index, 1);
    assert_int_equal(reply->epoch, 7);
    assert_int_equal(reply->course, 3);
    reply = push(p, 0, 1);
    assert_int_equal(reply->index, 0); /* rank 0 is no member */
}

/* Leases shares to the worker of a rank, after step 1 of fragment 0. */
static void lease(pair *p, uint32_t rank)
{
    const pd_conn_table *table = &p->s->daemon->table;

    for (size_t i = 0; i < table->capacity; i++)
        if (table->at[i] != NULL && table->at[i]->rank == rank)
            table->at[i]->leases = (pd_rank_leases){ .n = 1, .ranges = { { 4, 1 } }, .step = 1 };
}

TEST(the_answer_to_a_push_of_fragment_0_brings_the_leases_of_its_worker, pair *p)
{
    const Paramd__DataReply *reply;

    lease(p, 1);
    reply = push(p, 1, 1);
    assert_int_equal(reply->n_leases, 1);
    assert_int_equal(reply->leases[0]->first, 4);
}

TEST(the_answer_to_a_push_of_another_fragment_brings_no_leases, pair *p)
{
    pd_version_table_put(p->s->daemon->versions, 1, 0, 1);
    lease(p, 1);
    assert_int_equal(push(p, 1, 1)->n_leases, 0);
}

TEST(answers_tell_the_greatest_speed_that_connected_workers_have_told, pair *p)
{
    p->s->speed = 2.5;
    assert_float_equal(push(p, 0, 1)->fastest, 2.5, 0);
    p->s->speed = 4;
    assert_float_equal(push(p, 1, 1)->fastest, 4, 0);
    p->s->speed = 2;
    assert_float_equal(push(p, 0, 3)->fastest, 4, 0);
    p->s->speed = 1;
    assert_float_equal(push(p, 1, 4)->fastest, 2, 0);
}

TEST(a_worker_that_tells_no_speed_learns_none, pair *p)
{
    p->s->speed = 2.5;
    push(p, 0, 1);
    p->s->speed = 0;
    assert_float_equal(push(p, 1, 1)->fastest, 0, 0);
}

TEST(the_speed_of_a_worker_whose_connection_has_ended_does_not_count, pair *p)
{
    p->s->speed = 9;
    push(p, 0, 1);
    close(p->fd[0]);
    p->s->speed = 2;
    scene_settle(p->s);
    assert_float_equal(push(p, 1, 1)->fastest, 2, 0);
    p->fd[0] = scene_connect(p->s);
}

TEST(a_push_with_a_speed_that_cannot_be_is_refused, pair *p)
{
    static const double wrong[] = { -1, INFINITY, NAN };

    for (int i = 0; i < 3; i++) {
        p->s->speed = wrong[i];
        scene_data(p->s, p->fd[0], PD_PUSH, 0, 1);
        scene_settle(p->s);
        scene_expect_error(p->s, p->fd[0], PD_INVALID_ARGUMENT, "local steps per second");
    }
}
