/* Tests declarations on the wire and their answers: axes, model state, notes, and sparse gradients. */
#include "test.h"
#include "scene.h"

/* The optimizer "talking" writes the longest possible note for every parameter. The note ends in the middle of a
 * UTF-8 character. */
static const pd_hyper no_hypers[] = { { .name = NULL } };

static int talk(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)stats, (void)err;
    snprintf(plan->note, sizeof plan->note, "%s ", declaration->name);
    for (size_t n = strlen(plan->note); n < sizeof plan->note - 1; n++)
        plan->note[n] = n % 2 == 0 ? (char)0xc3 : (char)0xa9;
    plan->note[sizeof plan->note - 1] = '\0';
    if (plan->note[sizeof plan->note - 2] == (char)0xa9) plan->note[sizeof plan->note - 2] = (char)0xc3;
    return PD_OK;
}

static void stand_still(const pd_unit *unit)
{
    memcpy(unit->after + unit->first, unit->before + unit->first, (size_t)unit->n * sizeof *unit->after);
}

static const pd_optimizer_ops talking = {
    .name = "talking", .about = "for this test", .hypers = no_hypers, .plan = talk, .phases = { { .run = stand_still } }
};
static const pd_optimizer_ops *const rows[] = { &talking, NULL };

static scene *begin(uint32_t max_params, const pd_optimizer_ops *const *of, const char *rule, int *fd)
{
    scene *s = scene_new(max_params, of);

    if (rule != NULL) s->rule = rule;
    *fd = scene_connect(s);
    scene_hello(s, *fd, "j", 0, 1);
    scene_settle(s);
    scene_expect(s, *fd, PD_HELLO);
    return s;
}

static void end(scene *s, int fd)
{
    close(fd);
    scene_free(s);
}

/* Declares n parameters of one element, named p0, p1 and so on. The first one has these axes (NULL: none).
 * `model_state` says whether all of them are model state. */
static void declare(scene *s, int fd, size_t n, const char *axes, bool model_state)
{
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter *at = calloc(n, sizeof *at), **list = calloc(n, sizeof *list);
    char(*names)[24] = calloc(n, sizeof *names);
    uint64_t shape[] = { 1, 1 };

    for (size_t i = 0; i < n; i++) {
        paramd__parameter__init(&at[i]);
        snprintf(names[i], sizeof names[i], "p%zu", i);
        at[i].name = names[i];
        at[i].shape = shape;
        at[i].n_shape = 2;
        at[i].model_state = model_state;
        if (axes != NULL && i == 0) at[i].axes = (char *)axes;
        list[i] = &at[i];
    }
    declare.parameters = list;
    declare.n_parameters = n;
    declare.last = true;
    scene_send(s, fd, PD_DECLARE, &declare.base, 0);
    scene_settle(s);
    free(names);
    free(list);
    free(at);
}

static const Paramd__DeclareReply *declared(scene *s, int fd)
{
    Paramd__DeclareReply *reply;

    scene_expect(s, fd, PD_DECLARE);
    assert_int_equal(pd_reply_unpack(s->arena, PD_DECLARE, s->in, s->prefix.header_bytes, (void **)&reply, NULL),
                     PD_OK);
    return reply;
}

/* Returns a scene (daemon and sockets) with a worker that has declared one parameter without axes. */
static scene *begin_declared(bool model_state, int *fd)
{
    scene *s = begin(16, NULL, NULL, fd);

    declare(s, *fd, 1, NULL, model_state);
    declared(s, *fd);
    return s;
}

static const Paramd__ParamInfo *info(scene *s)
{
    const Paramd__ListReply *reply = scene_list(s, 2, "j");

    assert_true(reply->n_params > 0);
    return reply->params[0];
}

TEST(axes_come_with_a_declaration_and_are_listed)
{
    int fd;
    scene *s = begin(16, NULL, NULL, &fd);
    declare(s, fd, 2, "embed,mlp", false);
    assert_int_equal(declared(s, fd)->n_parameters, 2);
    assert_string_equal(info(s)->axes, "embed,mlp");
    end(s, fd);
}

TEST(bad_axes_are_refused_and_the_connection_may_declare_again)
{
    int fd;
    scene *s = begin(16, NULL, NULL, &fd);
    declare(s, fd, 1, "embed", false);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT,
                       "parameter p0: axes: expected a name for each of 2 dimensions, got 1 in \"embed\"");
    declare(s, fd, 1, "embed,9", false);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "axis 1: expected a name of at most 64");
    declare(s, fd, 1, "embed,", false);
    assert_int_equal(declared(s, fd)->n_parameters, 1);
    end(s, fd);
}

TEST(a_process_that_comes_back_declares_the_same_axes)
{
    int fd, again;
    scene *s = begin_declared(false, &fd);
    again = scene_connect(s);
    scene_hello(s, again, "j", 0, 1);
    scene_settle(s);
    scene_expect(s, again, PD_HELLO);
    declare(s, again, 1, "embed,mlp", false);
    scene_expect_error(s, again, PD_FAILED_PRECONDITION,
                       "parameter p0: job j has it with axes none, this rank declares embed,mlp");
    declare(s, again, 1, NULL, false);
    declared(s, again);
    close(again);
    end(s, fd);
}

TEST(model_state_comes_with_a_declaration)
{
    int fd;
    scene *s = begin_declared(true, &fd);
    assert_string_equal(info(s)->optimizer, "model_state");
    end(s, fd);
}

TEST(a_note_is_told_in_the_answer_and_in_the_list)
{
    int fd;
    scene *s = begin(16, rows, "* talking", &fd);
    declare(s, fd, 2, NULL, false);
    assert_int_equal(strncmp(declared(s, fd)->parameters[1]->note, "p1 ", 3), 0);
    assert_int_equal(strncmp(info(s)->note, "p0 ", 3), 0);
    end(s, fd);
}

/* Each of 1500 parameters has a note of 239 bytes. The answer's header is limited to 64 KiB, so it has 200 to 300 of
 * the notes. */
TEST(an_answer_has_as_many_notes_as_there_is_room_for)
{
    int fd;
    scene *s = begin(4096, rows, "* talking", &fd);
    const Paramd__DeclareReply *reply;
    size_t told = 0;
    declare(s, fd, 1500, NULL, false);
    reply = declared(s, fd);
    assert_int_equal(reply->n_parameters, 1500);
    for (size_t i = 0; i < reply->n_parameters; i++) told += reply->parameters[i]->note[0] != '\0';
    assert_true(told > 200 && told < 300);
    assert_true(s->prefix.header_bytes <= PD_MAX_HEADER_BYTES && s->prefix.header_bytes > PD_MAX_HEADER_BYTES - 256);
    end(s, fd);
}

static void push(scene *s, int fd, unsigned method, bool sparse)
{
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;
    Paramd__PushRequest message = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };

    piece.dtype = PD_F32;
    piece.count = 1;
    piece.sparse = sparse;
    init.pieces = message.pieces = pieces;
    init.n_pieces = message.n_pieces = 1;
    message.step = 1;
    scene_send(s, fd, method, method == PD_INIT ? &init.base : &message.base, sizeof(float));
    scene_settle(s);
}

TEST(a_sparse_gradient_is_refused_with_what_to_do_and_nothing_changes)
{
    int fd;
    scene *s = begin_declared(false, &fd);
    push(s, fd, PD_INIT, false);
    scene_expect(s, fd, PD_INIT);
    push(s, fd, PD_PUSH, true);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT,
                       "piece 0 (p0): its gradient is sparse, and a parameter must be dense here: make it dense before "
                       "the push (in PyTorch: Embedding(sparse=False), or grad.to_dense())");
    assert_int_equal(info(s)->contributions, 0);
    push(s, fd, PD_PUSH, false);
    scene_expect(s, fd, PD_PUSH);
    assert_int_equal(info(s)->step, 1);
    end(s, fd);
}
