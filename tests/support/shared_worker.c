/* shared_worker.c - a worker of a scene that shares memory with the daemon. */
#include "shared_worker.h"

#include <sys/socket.h>

#include "test.h"
#include "transport.h"

enum { GRADIENTS = 4 };

static void declare(const shared_worker *w, unsigned n)
{
    static char *const names[] = { "a", "b", "c", "d" };
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter at[4], *list[4];
    uint64_t shape = SHARED_CHUNK;

    for (unsigned i = 0; i < n; i++) {
        paramd__parameter__init(&at[i]);
        at[i].name = names[i];
        at[i].shape = &shape;
        at[i].n_shape = 1;
        list[i] = &at[i];
    }
    declare.parameters = list;
    declare.n_parameters = n;
    declare.last = true;
    scene_send(w->s, w->fd, PD_DECLARE, &declare.base, 0);
}

shared_worker shared_join(scene *s, const char *job, uint32_t rank, uint32_t world, unsigned n)
{
    shared_worker w = { .s = s, .fd = scene_connect(s), .mine = PD_NO_SEGMENT, .weights = PD_NO_SEGMENT };

    s->shares = true;
    scene_hello(s, w.fd, job, rank, world);
    scene_settle(s);
    scene_expect(s, w.fd, PD_HELLO);
    declare(&w, n);
    scene_settle(s);
    scene_expect(s, w.fd, PD_DECLARE);
    return w;
}

void shared_end(shared_worker *w)
{
    close(w->fd);
    pd_segment_drop(&w->mine);
    pd_segment_drop(&w->weights);
}

void shared_send_share(const shared_worker *w, int fd, uint64_t bytes)
{
    Paramd__ShareRequest share = PARAMD__SHARE_REQUEST__INIT;
    uint8_t *frame;
    size_t n;

    share.bytes = bytes;
    assert_int_equal(pd_frame_pack(&frame, &n, PD_SHARE, 0, ++w->s->last_id, &share.base, NULL, 0, 0), PD_OK);
    assert_int_equal(pd_descriptor_send(w->fd, &(struct iovec){ frame, n }, 1, &fd), n);
    free(frame);
}

void shared_share(shared_worker *w)
{
    Paramd__ShareReply *reply;

    assert_int_equal(pd_segment_make_full(&w->mine, GRADIENTS * SHARED_BYTES, NULL), PD_OK);
    shared_send_share(w, pd_segment_share(&w->mine), w->mine.bytes);
    scene_settle(w->s);
    scene_expect(w->s, w->fd, PD_SHARE);
    assert_int_equal(pd_reply_unpack(w->s->arena, PD_SHARE, w->s->in, w->s->prefix.header_bytes, (void **)&reply, NULL),
                     PD_OK);
    assert_int_equal(pd_segment_map(&w->weights, w->s->taken, reply->bytes, NULL), PD_OK);
    w->s->taken = -1;
}

shared_worker shared_start(scene *s, const char *job, uint32_t rank, uint32_t world, unsigned n)
{
    shared_worker w = shared_join(s, job, rank, world, n);

    shared_share(&w);
    for (uint32_t i = 0; rank == 0 && i < n; i++) {
        shared_send_data(&w, PD_INIT, i, 0, i * UNITS_A_CHUNK);
        scene_settle(s);
        scene_expect(s, w.fd, PD_INIT);
    }
    return w;
}

void shared_send_data(const shared_worker *w, unsigned method, uint32_t handle, uint64_t step, uint32_t place)
{
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };
    uint8_t *frame;
    size_t n;

    piece.handle = handle;
    piece.dtype = PD_F32;
    piece.count = SHARED_CHUNK;
    init.pieces = push.pieces = pieces;
    init.n_pieces = push.n_pieces = 1;
    push.step = step;
    assert_int_equal(pd_frame_pack(&frame, &n, method, PD_FLAG_SHARED, ++w->s->last_id,
                                   method == PD_INIT ? &init.base : &push.base, NULL, 0, SHARED_BYTES),
                     PD_OK);
    pd_prefix_share(frame, true, place);
    assert_int_equal(send(w->fd, frame, n, MSG_NOSIGNAL), n);
    free(frame);
}

void shared_push(const shared_worker *w, uint32_t handle, uint64_t step, uint32_t place, float value)
{
    float *at = (float *)(void *)(w->mine.at + (uint64_t)place * 64);

    for (int i = 0; i < SHARED_CHUNK; i++) at[i] = value;
    shared_send_data(w, PD_PUSH, handle, step, place);
}

void shared_send_pull(const shared_worker *w, uint32_t handle, uint64_t min_step)
{
    Paramd__PullRequest pull = PARAMD__PULL_REQUEST__INIT;
    Paramd__Want want = PARAMD__WANT__INIT, *wants[] = { &want };

    want.handle = handle;
    want.count = SHARED_CHUNK;
    pull.min_step = min_step;
    pull.wants = wants;
    pull.n_wants = 1;
    scene_send(w->s, w->fd, PD_PULL, &pull.base, 0);
}

const float *shared_expect_weights(const shared_worker *w)
{
    Paramd__DataReply *reply;

    if (!scene_receive(w->s, w->fd)) fail_msg("no answer to a pull");
    assert_int_equal(w->s->prefix.method, PD_PULL);
    assert_int_equal(w->s->prefix.flags, PD_FLAG_REPLY | PD_FLAG_SHARED);
    assert_int_equal(w->s->prefix.payload_bytes, SHARED_BYTES);
    assert_int_equal(pd_reply_unpack(w->s->arena, PD_PULL, w->s->in, w->s->prefix.header_bytes, (void **)&reply, NULL),
                     PD_OK);
    assert_true(reply->outcomes[0]->place + SHARED_BYTES <= w->weights.bytes);
    return (const float *)(const void *)(w->weights.at + reply->outcomes[0]->place);
}

const float *shared_expect_bytes(const shared_worker *w)
{
    static float weights[SHARED_CHUNK];

    do
        if (!scene_receive(w->s, w->fd)) fail_msg("no answer to a pull");
    while (w->s->prefix.method != PD_PULL);
    assert_int_equal(w->s->prefix.flags, PD_FLAG_REPLY);
    assert_int_equal(w->s->prefix.payload_bytes, SHARED_BYTES);
    memcpy(weights, w->s->in + w->s->prefix.header_bytes, SHARED_BYTES);
    return weights;
}

void shared_send_release(const shared_worker *w, uint64_t answers)
{
    Paramd__ReleaseRequest release = PARAMD__RELEASE_REQUEST__INIT;

    release.answers = answers;
    scene_send(w->s, w->fd, PD_RELEASE, &release.base, 0);
}

bool shared_are(const float *weights, float value)
{
    for (int i = 0; i < SHARED_CHUNK; i++)
        if (weights[i] != value) return false;
    return true;
}
