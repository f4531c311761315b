/* windowed.c - a client's core with a window, and a server whose weights follow from the step. */
#include "windowed.h"

#include "test.h"

enum { PADDED = 16 }; /* floats from one parameter's weights to the next in a payload */

windowed windowed_new(uint32_t window)
{
    static const int64_t sizes[WINDOWED_PARAMS] = { WINDOWED_ELEMENTS, WINDOWED_ELEMENTS };
    pd_core_config config = peer_four;

    config.window = window;
    return (windowed){ .p = peer_trained(&config, sizes, WINDOWED_PARAMS, 0) };
}

void windowed_free(windowed *w)
{
    peer_free(w->p);
    for (int i = 0; i < WINDOWED_STEPS; i++) free(w->first[i].at);
}

pd_ticket_id windowed_push(windowed *w, peer_frame *got)
{
    uint64_t step = pd_core_step(w->p->core, 0) + 1;
    pd_ticket_id ticket = peer_push_pull(w->p, WINDOWED_PARAMS, WINDOWED_ELEMENTS);
    peer_frame l = peer_expect(w->p, PD_PUSH_PULL);

    assert_int_equal(((const Paramd__PushRequest *)l.message)->step, step);
    assert_true(step < WINDOWED_STEPS);
    free(w->first[step].at);
    w->first[step].at = malloc(l.bytes);
    w->first[step].bytes = l.bytes;
    memcpy(w->first[step].at, l.at, l.bytes);
    *got = l;
    return ticket;
}

static void fill_weights_of(float *weights, uint64_t step)
{
    memset(weights, 0, (PADDED + WINDOWED_ELEMENTS) * sizeof *weights);
    for (int i = 0; i < WINDOWED_ELEMENTS; i++) weights[i] = weights[PADDED + i] = (float)step + (float)i / 8;
}

void windowed_answer(windowed *w, const pd_prefix *asked, uint64_t step)
{
    float weights[PADDED + WINDOWED_ELEMENTS];

    fill_weights_of(weights, step);
    peer_reply_data(w->p, asked, WINDOWED_PARAMS, 1, step, weights, PADDED + WINDOWED_ELEMENTS);
}

bool windowed_answer_without_memory(windowed *w, const pd_prefix *asked, uint64_t step, int64_t n)
{
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome one = PARAMD__OUTCOME__INIT, *all[] = { &one, &one };
    float weights[PADDED + WINDOWED_ELEMENTS];
    struct iovec payload = { weights, sizeof weights };
    uint8_t *frame;
    size_t bytes;
    bool failed;

    fill_weights_of(weights, step);
    one.outcome = 1;
    one.step = one.version = step;
    message.outcomes = all;
    message.n_outcomes = WINDOWED_PARAMS;
    assert_int_equal(pd_frame_pack(&frame, &bytes, asked->method, PD_FLAG_REPLY, asked->request, &message.base,
                                   &payload, 1, sizeof weights),
                     PD_OK);
    oom_arm(n);
    if (peer_feed(w->p, frame, bytes) == PD_OK) peer_feed(w->p, payload.iov_base, payload.iov_len);
    failed = oom_disarm();
    free(frame);
    return failed;
}

void windowed_train(windowed *w, uint64_t step)
{
    for (uint64_t s = pd_core_step(w->p->core, 0) + 1; s <= step; s++) {
        peer_frame l;
        pd_ticket_id ticket = windowed_push(w, &l);

        windowed_answer(w, &l.prefix, s);
        peer_frame_drop(&l);
        assert_int_equal(peer_finish(w->p, ticket, NULL), PD_OK);
    }
}

void windowed_come_back(windowed *w, uint64_t step)
{
    peer_cut(w->p);
    peer_connect(w->p);
    peer_welcome(w->p);
    peer_answer_declare(w->p, WINDOWED_PARAMS, step);
}

pd_prefix windowed_expect_again(windowed *w, uint64_t step)
{
    peer_frame l = peer_expect(w->p, PD_PUSH_PULL);
    pd_prefix prefix = l.prefix;

    assert_int_equal(((const Paramd__PushRequest *)l.message)->step, step);
    assert_int_equal(l.bytes, w->first[step].bytes);
    assert_memory_equal(l.at, w->first[step].at, l.bytes);
    peer_frame_drop(&l);
    return prefix;
}

void windowed_catch_up(windowed *w, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step <= to; step++) {
        pd_prefix again = windowed_expect_again(w, step);

        peer_expect_silence(w->p); /* the server would refuse the next step now */
        windowed_answer(w, &again, step);
    }
}

pd_prefix windowed_expect(windowed *w, unsigned method)
{
    peer_frame l = peer_expect(w->p, method);

    peer_frame_drop(&l);
    return l.prefix;
}
