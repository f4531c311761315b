/* Tests a parameter that has more chunks than a connection may have unanswered requests. The loop thread's code runs
 * on a socket pair with a store in the same thread. */
#include "test.h"
#include "scene.h"

enum { ELEMENTS = 16, CHUNKS = 16390, TURN = 64 };

static void say_declare(scene *s, int fd)
{
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter large = PARAMD__PARAMETER__INIT, *list[] = { &large };
    uint64_t shape = (uint64_t)ELEMENTS * CHUNKS;

    large.name = (char *)"large";
    large.shape = &shape;
    large.n_shape = 1;
    declare.parameters = list;
    declare.n_parameters = 1;
    declare.last = true;
    scene_send(s, fd, PD_DECLARE, &declare.base, 0);
}

static void say_chunk(scene *s, int fd, unsigned method, uint64_t chunk)
{
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };

    piece.dtype = PD_F32;
    piece.first = chunk * ELEMENTS;
    piece.count = ELEMENTS;
    init.pieces = push.pieces = pieces;
    init.n_pieces = push.n_pieces = 1;
    push.step = 1;
    scene_send(s, fd, method, method == PD_INIT ? &init.base : &push.base, ELEMENTS * sizeof(float));
}

/* Receives the answers that have come, and returns their number. Heartbeats of the server, which come where a machine
 * is slow, do not count. */
static unsigned count_answers(scene *s, int fd, unsigned method)
{
    unsigned answers = 0;

    while (scene_receive(s, fd)) {
        assert_int_equal(s->prefix.flags, PD_FLAG_REPLY);
        answers += s->prefix.method == method;
    }
    return answers;
}

/* Sends one request per chunk. After each TURN requests, lets the daemon work and reads its replies. Returns the
 * number of replies. */
static unsigned say_all(scene *s, int fd, unsigned method)
{
    unsigned answers = 0;

    for (unsigned i = 0; i < CHUNKS; i++) {
        say_chunk(s, fd, method, i);
        if (i % TURN != TURN - 1) continue;
        scene_settle(s);
        answers += count_answers(s, fd, method);
    }
    for (unsigned more = 1; more > 0; answers += more) {
        scene_settle(s);
        more = count_answers(s, fd, method);
    }
    return answers;
}

OBJECT(scene_new_chunks(ELEMENTS), scene_free);

TEST(a_parameter_of_16390_chunks_steps, scene *s)
{
    int fd = scene_connect(s);

    scene_hello(s, fd, "j", 0, 1);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    say_declare(s, fd);
    scene_settle(s);
    scene_expect(s, fd, PD_DECLARE);
    assert_int_equal(say_all(s, fd, PD_INIT), CHUNKS);
    assert_int_equal(say_all(s, fd, PD_PUSH), CHUNKS);
    assert_int_equal(scene_list(s, 2, "j")->params[0]->step, 1);
    close(fd);
}
