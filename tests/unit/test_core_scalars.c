/* Tests scalars in the client's core: which frame carries them, and where the scalars of the reply are written. */
#include "test.h"
#include "peer.h"
#include "pieces.h"

static const int64_t sizes[] = { 3, 2 * CHUNK + 5, 7 };
enum { N = 3 };
static float gradient[2 * CHUNK + 5], weights[N][2 * CHUNK + 5];

/* Fills the items with parameters order[0], order[1] and so on. */
static void make_items(pd_item *items, const size_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++)
        items[i] = (pd_item){ .param = order[i], .gradient = gradient, .weights = weights[order[i]] };
}

static int push(peer *p, unsigned method, pd_item *items, size_t n, pd_scalar *scalars, size_t n_scalars,
                pd_ticket_id *ticket, pd_error *err)
{
    pd_push_options options = { .weight = 2, .scalars = scalars, .n_scalars = n_scalars };

    return pd_core_push(p->core, method, items, n, &options, ticket, err);
}

/* Answers a push with the outcomes of round `step`. Each outcome carries the n scalars `names` with the averages
 * `means`. */
static void answer(peer *p, const peer_frame *l, uint64_t step, const char *const *names, const double *means, size_t n)
{
    Paramd__PushRequest *asked = l->message;
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome one = PARAMD__OUTCOME__INIT, *all[N];
    Paramd__Scalar scalar[4], *scalars[4];

    for (size_t i = 0; i < n; i++) {
        paramd__scalar__init(&scalar[i]);
        scalar[i].name = (char *)names[i];
        scalar[i].value = means[i];
        scalar[i].weight = 5;
        scalars[i] = &scalar[i];
    }
    one.outcome = 1;
    one.step = one.version = step;
    one.scalars = scalars;
    one.n_scalars = n;
    for (size_t i = 0; i < asked->n_pieces; i++) all[i] = &one;
    message.outcomes = all;
    message.n_outcomes = asked->n_pieces;
    peer_reply(p, &l->prefix, &message.base, NULL, 0);
}

/* A core that has pushed with scalars, and the frame that carries them. */
typedef struct pushed {
    peer *p;
    pd_ticket_id ticket;
    pd_item items[N];
    peer_frame frame;
} pushed;

static void push_to(pushed *f, peer *p, const size_t *order, size_t n_items, pd_scalar *scalars, size_t n)
{
    pd_error err;

    f->p = p;
    make_items(f->items, order, n_items);
    assert_int_equal(push(p, PD_PUSH, f->items, n_items, scalars, n, &f->ticket, &err), PD_OK);
    f->frame = peer_expect(p, PD_PUSH);
}

/* Pushes parameter 0 alone on a new, running core. */
static void push_first(pushed *f, pd_scalar *scalars, size_t n)
{
    push_to(f, peer_running(sizes, N), (const size_t[]){ 0 }, 1, scalars, n);
}

/* Checks that the push ends with the result `code`, then frees the core. */
static void end(pushed *f, int code)
{
    pd_error err;

    peer_frame_drop(&f->frame);
    assert_int_equal(peer_finish(f->p, f->ticket, &err), code);
    peer_free(f->p);
}

TEST(one_frame_carries_the_scalars_and_begins_with_the_parameter_whose_name_sorts_first)
{
    static const size_t order[] = { 2, 1, 0 };
    peer *p = peer_running(sizes, N);
    pd_item items[N];
    pd_scalar scalars[] = { { .name = "loss", .value = 0.5 }, { .name = "tokens", .value = 3 } };
    const char *const names[] = { "loss", "tokens" };
    pd_ticket_id ticket;
    pd_error err;
    int frames = 0;
    peer_frame l;

    make_items(items, order, N);
    assert_int_equal(push(p, PD_PUSH, items, N, scalars, 2, &ticket, &err), PD_OK);
    assert_true(isnan(scalars[0].mean) && scalars[0].weight == 0);
    for (; !pd_core_done(p->core, ticket); frames++) {
        Paramd__PushRequest *frame;
        l = peer_expect(p, PD_PUSH);
        frame = l.message;
        assert_int_equal(frame->n_scalars, frames == 0 ? 2 : 0);
        if (frames == 0) {
            assert_int_equal(frame->pieces[0]->handle, 0);
            assert_int_equal(frame->pieces[1]->handle, 2);
            assert_string_equal(frame->scalars[1]->name, "tokens");
            assert_true(frame->scalars[1]->value == 3 && frame->scalars[0]->value == 0.5);
        }
        answer(p, &l, 1, names, (const double[]){ 0.25, 4 }, 2);
        peer_frame_drop(&l);
    }
    assert_int_equal(frames, 4);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    assert_true(scalars[0].mean == 0.25 && scalars[0].weight == 5 && scalars[1].mean == 4);
    peer_free(p);
}

TEST(the_first_chunk_of_a_large_tensor_carries_the_scalars)
{
    static const size_t order[] = { 2, 1 };
    peer *p = peer_running(sizes, N);
    pd_item items[2];
    pd_scalar loss = { .name = "loss", .value = 0.5 };
    pd_ticket_id ticket;
    pd_error err;

    make_items(items, order, 2);
    assert_int_equal(push(p, PD_PUSH, items, 2, &loss, 1, &ticket, &err), PD_OK);
    for (uint64_t chunk = 0; chunk < 4; chunk++) {
        peer_frame l = peer_expect(p, PD_PUSH);
        Paramd__PushRequest *frame = l.message;
        assert_int_equal(frame->n_scalars, chunk == 0);
        assert_int_equal(frame->pieces[0]->handle, chunk < 3 ? 1 : 2);
        assert_int_equal(frame->pieces[0]->first, chunk < 3 ? chunk * CHUNK : 0);
        peer_frame_drop(&l);
    }
    peer_free(p);
}

TEST(means_are_found_by_name_in_the_reply)
{
    pd_scalar scalars[] = { { .name = "c", .value = 1 },
                            { .name = "a", .value = 2 },
                            { .name = "missing", .value = 3 } };
    pushed f;

    push_first(&f, scalars, 3);
    answer(f.p, &f.frame, 1, (const char *const[]){ "a", "b", "c" }, (const double[]){ 10, 20, 30 }, 3);
    end(&f, PD_OK);
    assert_true(scalars[0].mean == 30 && scalars[1].mean == 10);
    assert_true(isnan(scalars[2].mean) && scalars[2].weight == 0);
}

TEST(scalars_of_a_later_round_are_ignored)
{
    pd_scalar loss = { .name = "loss", .value = 1 };
    pushed f;

    push_first(&f, &loss, 1);
    answer(f.p, &f.frame, 2, (const char *const[]){ "loss" }, (const double[]){ 10 }, 1);
    end(&f, PD_OK);
    assert_true(isnan(loss.mean));
}

TEST(scalars_are_sent_again_with_their_frame_when_the_reply_is_lost)
{
    pd_scalar loss = { .name = "loss", .value = 1 };
    pushed f;
    peer_frame again;

    push_first(&f, &loss, 1);
    peer_cut(f.p);
    peer_connect(f.p);
    peer_welcome(f.p);
    peer_answer_declare(f.p, N, 1); /* the server reports that the push's round closed while the client was not
                                     * connected */
    again = peer_expect(f.p, PD_PUSH);
    assert_int_equal(again.bytes, f.frame.bytes);
    assert_memory_equal(again.at, f.frame.at, f.frame.bytes);
    answer(f.p, &again, 1, (const char *const[]){ "loss" }, (const double[]){ 10 }, 1);
    peer_frame_drop(&again);
    end(&f, PD_OK);
    assert_true(loss.mean == 10);
}

TEST(a_refused_push_leaves_the_means_unknown)
{
    pd_scalar loss = { .name = "loss", .value = 1, .mean = 7, .weight = 7 };
    pushed f;

    push_first(&f, &loss, 1);
    peer_refuse(f.p, &f.frame.prefix, PD_INVALID_ARGUMENT, "no");
    end(&f, PD_INVALID_ARGUMENT);
    assert_true(isnan(loss.mean) && loss.weight == 0);
}

static void refuses(const pd_scalar *given, size_t n, int code, const char *says)
{
    static const size_t order[] = { 0 };
    peer *p = peer_running(sizes, N);
    pd_item item;
    pd_scalar scalars[17];
    pd_ticket_id ticket;
    pd_error err;

    for (size_t i = 0; given != NULL && i < n; i++) scalars[i] = given[i];
    make_items(&item, order, 1);
    assert_int_equal(push(p, PD_PUSH, &item, 1, given != NULL ? scalars : NULL, n, &ticket, &err), code);
    if (strstr(err.text, says) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    peer_expect_silence(p);
    assert_int_equal(push(p, PD_PUSH, &item, 1, NULL, 0, &ticket, &err), PD_OK);
    peer_free(p);
}

TEST(an_invalid_scalar_is_refused_before_anything_is_sent)
{
    char longest[PD_PUSH_SCALAR_NAME + 2], names[17][16];
    pd_scalar many[17];

    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    refuses(&(pd_scalar){ .name = longest }, 1, PD_INVALID_ARGUMENT,
            "scalar 0 has a name of 65 bytes: expected 1 to 64");
    refuses(&(pd_scalar){ .name = "" }, 1, PD_INVALID_ARGUMENT, "a name of 0 bytes");
    refuses(&(pd_scalar){ .name = NULL }, 1, PD_INVALID_ARGUMENT, "a name of 0 bytes");
    refuses(&(pd_scalar){ .name = "a\nb" }, 1, PD_INVALID_ARGUMENT, "control character at byte 1");
    refuses(&(pd_scalar){ .name = "a\x7f" }, 1, PD_INVALID_ARGUMENT, "control character at byte 1");
    refuses(&(pd_scalar){ .name = "\xc3" }, 1, PD_INVALID_ARGUMENT, "not UTF-8");
    refuses(&(pd_scalar){ .name = "loss", .value = NAN }, 1, PD_INVALID_ARGUMENT,
            "scalar loss is nan: expected a finite number");
    refuses(&(pd_scalar){ .name = "loss", .value = -INFINITY }, 1, PD_INVALID_ARGUMENT, "scalar loss is -inf");
    refuses((const pd_scalar[]){ { .name = "a" }, { .name = "loss" }, { .name = "loss" } }, 3, PD_INVALID_ARGUMENT,
            "duplicate scalar loss");
    refuses(NULL, 1, PD_INVALID_ARGUMENT, "without a pointer to them");
    for (int i = 0; i < 17; i++) {
        snprintf(names[i], sizeof names[i], "s%d", i);
        many[i] = (pd_scalar){ .name = names[i] };
    }
    refuses(many, 17, PD_RESOURCE_EXHAUSTED, "17 scalars in a push: at most 16");
}

TEST(sixteen_of_the_longest_names_are_sent)
{
    static const size_t order[] = { 0 };
    peer *p = peer_running(sizes, N);
    char names[16][PD_PUSH_SCALAR_NAME + 1];
    pd_scalar scalars[16];
    pd_item item;
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    for (int i = 0; i < 16; i++) {
        memset(names[i], 'a' + i, PD_PUSH_SCALAR_NAME);
        names[i][PD_PUSH_SCALAR_NAME] = '\0';
        scalars[i] = (pd_scalar){ .name = names[i], .value = i };
    }
    make_items(&item, order, 1);
    assert_int_equal(push(p, PD_PUSH, &item, 1, scalars, 16, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_PUSH);
    assert_int_equal(((Paramd__PushRequest *)l.message)->n_scalars, 16);
    assert_string_equal(((Paramd__PushRequest *)l.message)->scalars[15]->name, names[15]);
    peer_frame_drop(&l);
    peer_free(p);
}

static peer *running_with(const pd_client_param *params, size_t n)
{
    peer *p = peer_new(&peer_four);
    Paramd__DeclareReply reply = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[] = { &one, &one, &one };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    one.initialised = true;
    reply.parameters = all;
    reply.n_parameters = n;
    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(pd_core_declare(p->core, params, n, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_DECLARE);
    peer_reply(p, &l.prefix, &reply.base, NULL, 0);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    return p;
}

static const pd_client_param sharded[] = {
    { .name = "b", .shape = { 1, { 100 } }, .ranged = true, .start = 5, .end = 9 },
    { .name = "a", .shape = { 1, { 100 } }, .ranged = true, .start = 70, .end = 70 },
    { .name = "c", .shape = { 1, { 3 } } },
};

TEST(a_whole_parameter_carries_the_scalars_rather_than_a_ranged_one)
{
    pd_scalar loss = { .name = "loss", .value = 1 };
    pushed f;

    push_to(&f, running_with(sharded, 3), (const size_t[]){ 0, 1, 2 }, 3, &loss, 1);
    assert_int_equal(((Paramd__PushRequest *)f.frame.message)->pieces[0]->handle, 2);
    peer_frame_drop(&f.frame);
    peer_free(f.p);
}

TEST(scalars_are_refused_where_the_parameter_that_carries_them_has_no_elements)
{
    static const size_t order[] = { 0, 1 };
    peer *p = running_with(sharded, 3);
    pd_scalar loss = { .name = "loss", .value = 1 };
    pd_item items[2];
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    make_items(items, order, 2);
    assert_int_equal(push(p, PD_PUSH, items, 2, &loss, 1, &ticket, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "scalars ride with parameter a, of which this rank's range has no elements"));
    peer_expect_silence(p);
    assert_int_equal(push(p, PD_PUSH, items, 1, &loss, 1, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_PUSH);
    assert_int_equal(((Paramd__PushRequest *)l.message)->n_scalars, 1);
    peer_frame_drop(&l);
    peer_free(p);
}
