/* Tests the client's core while another thread sends bytes that the core lent to it. Until pd_core_sent is called, none
 * of these bytes may be freed, and no buffer may return to the caller. */
#include "test.h"
#include "peer.h"

enum { QUESTIONS = 3, ELEMENTS = 5, IOV = 64 };

/* The bytes that the core has lent to the sending thread, and the frames in these bytes. */
typedef struct loan {
    peer *p;
    struct iovec iov[IOV];
    int n;
    size_t bytes, end[16]; /* end[i]: offset in the lent bytes where frame i ends */
    pd_prefix prefix[16];
    size_t frames;
} loan;

static loan lend(peer *p)
{
    loan l = { .p = p };
    uint8_t *copy;
    pd_error err;

    l.n = pd_core_output(p->core, l.iov, IOV, SIZE_MAX);
    copy = malloc(WIRE_BYTES);
    for (int i = 0; i < l.n; i++) {
        memcpy(copy + l.bytes, l.iov[i].iov_base, l.iov[i].iov_len);
        l.bytes += l.iov[i].iov_len;
    }
    for (size_t at = 0; at < l.bytes; l.frames++) {
        assert_int_equal(pd_prefix_read(&l.prefix[l.frames], copy + at, UINT64_MAX / 2, &err), PD_OK);
        at += PD_PREFIX_BYTES + l.prefix[l.frames].header_bytes + l.prefix[l.frames].payload_bytes;
        l.end[l.frames] = at;
    }
    free(copy);
    return l;
}

/* Reads all lent bytes, as a slow sending thread does, then reports that `sent` bytes were sent. */
static void report(loan *l, size_t sent)
{
    volatile uint8_t sum = 0;

    for (int i = 0; i < l->n; i++)
        for (size_t k = 0; k < l->iov[i].iov_len; k++) sum ^= ((const uint8_t *)l->iov[i].iov_base)[k];
    pd_core_sent(l->p->core, sent, l->p->now);
}

static peer *operator_with(pd_ticket_id *tickets)
{
    pd_core_config config = peer_four;
    peer *p;

    config.job = "";
    p = peer_new(&config);
    peer_connect(p);
    peer_welcome(p);
    for (int i = 0; i < QUESTIONS; i++)
        assert_int_equal(pd_core_call(p->core, PD_STATUS, NULL, &(struct iovec){ NULL, 0 }, 0, &tickets[i], NULL),
                         PD_OK);
    return p;
}

/* Checks that the bytes after the first `sent` ones are whole frames. A frame that the caller gave up is missing,
 * unless some of its bytes were already sent. */
static void expect_rest(peer *p, const loan *l, size_t sent, unsigned given_up)
{
    peer_frame next;

    for (size_t i = 0; i < l->frames; i++) {
        size_t begin = i > 0 ? l->end[i - 1] : 0;
        loan rest;

        if (l->end[i] <= sent || (begin >= sent && (given_up & 1u << i) != 0)) continue;
        if (begin < sent) {
            rest.n = pd_core_output(p->core, rest.iov, IOV, 1);
            assert_int_equal(rest.iov[0].iov_len, l->end[i] - sent);
            pd_core_sent(p->core, rest.iov[0].iov_len, p->now);
        } else {
            next = peer_expect(p, PD_STATUS);
            assert_int_equal(next.prefix.request, l->prefix[i].request);
            peer_frame_drop(&next);
        }
    }
    peer_expect_silence(p);
}

static void give_up_while_lent(unsigned which, size_t frames_gone, size_t more)
{
    pd_ticket_id tickets[QUESTIONS];
    peer *p = operator_with(tickets);
    loan l = lend(p);
    size_t sent = (frames_gone > 0 ? l.end[frames_gone - 1] : 0) + more;

    assert_int_equal(l.frames, QUESTIONS);
    for (int i = 0; i < QUESTIONS; i++)
        if ((which & 1u << i) != 0) pd_core_give_up(p->core, tickets[i]);
    report(&l, sent);
    expect_rest(p, &l, sent, which);
    peer_free(p);
}

TEST(questions_may_be_given_up_while_their_bytes_are_sent)
{
    for (unsigned which = 0; which < 1u << QUESTIONS; which++)
        for (size_t gone = 0; gone < QUESTIONS; gone++)
            for (size_t more = 0; more < PD_PREFIX_BYTES; more += 13) give_up_while_lent(which, gone, more);
}

TEST(a_question_given_up_while_the_connection_breaks_is_not_asked_again)
{
    pd_ticket_id tickets[QUESTIONS];
    peer *p = operator_with(tickets);

    lend(p);
    for (int i = 0; i < QUESTIONS; i++) pd_core_give_up(p->core, tickets[i]);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_expect_silence(p);
    peer_free(p);
}

typedef struct pushed {
    peer *p;
    pd_item item;
    pd_ticket_id ticket;
    loan lent;
} pushed;

static void push_and_lend(pushed *s)
{
    static const int64_t sizes[] = { ELEMENTS };

    s->p = peer_running(sizes, 1);
    s->item = (pd_item){ .gradient = calloc(ELEMENTS, sizeof(float)) };
    assert_int_equal(pd_core_push(s->p->core, PD_PUSH, &s->item, 1, NULL, &s->ticket, NULL), PD_OK);
    s->lent = lend(s->p);
    assert_int_equal(s->lent.frames, 1);
}

/* Checks that the push is not done before the core learns that the lent bytes were sent. Then frees the gradient at
 * once, so that the sanitizer reports any later access. */
static void expect_done_after_report(pushed *s, int code)
{
    assert_false(pd_core_done(s->p->core, s->ticket));
    report(&s->lent, s->lent.bytes);
    free((void *)s->item.gradient);
    assert_int_equal(peer_finish(s->p, s->ticket, NULL), code);
    peer_free(s->p);
}

TEST(a_push_answered_while_its_bytes_are_sent_ends_once_they_are_sent)
{
    pushed s;

    push_and_lend(&s);
    peer_reply_data(s.p, &s.lent.prefix[0], 1, 1, 1, NULL, 0);
    peer_reply_data(s.p, &s.lent.prefix[0], 1, 1, 1, NULL, 0); /* a second reply changes nothing */
    expect_done_after_report(&s, PD_OK);
}

TEST(a_push_refused_while_its_bytes_are_sent_ends_once_they_are_sent)
{
    pushed s;

    push_and_lend(&s);
    peer_refuse(s.p, &s.lent.prefix[0], PD_INVALID_ARGUMENT, "no");
    expect_done_after_report(&s, PD_INVALID_ARGUMENT);
}

TEST(a_handle_that_ends_while_bytes_are_sent_keeps_buffers_until_they_are_sent)
{
    pd_prefix none = { .method = PD_HELLO };
    pushed s;

    push_and_lend(&s);
    peer_refuse(s.p, &none, PD_ABORTED, "the job was dropped");
    expect_done_after_report(&s, PD_ABORTED);
}

TEST(a_handle_that_ends_while_bytes_are_sent_gives_buffers_back_with_the_connection)
{
    pd_prefix none = { .method = PD_HELLO };
    pushed s;

    push_and_lend(&s);
    peer_refuse(s.p, &none, PD_ABORTED, "the job was dropped");
    assert_false(pd_core_done(s.p->core, s.ticket));
    pd_core_down(s.p->core, s.p->now, "dropped");
    free((void *)s.item.gradient);
    assert_int_equal(peer_finish(s.p, s.ticket, NULL), PD_ABORTED);
    peer_free(s.p);
}

TEST(hello_and_declare_may_be_answered_while_their_bytes_are_sent)
{
    static const int64_t sizes[] = { ELEMENTS };
    Paramd__HelloReply hello = PARAMD__HELLO_REPLY__INIT;
    Paramd__DeclareReply declared = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[] = { &one };
    peer *p = peer_new(&peer_first);
    pd_ticket_id ticket = peer_declare(p, sizes, 1);
    loan l;

    peer_connect(p);
    l = lend(p);
    hello.protocol = PD_PROTOCOL_VERSION;
    hello.chunk_elements = CHUNK;
    hello.max_payload = 1 << 20;
    hello.max_pieces = 64;
    assert_int_equal(peer_reply(p, &l.prefix[0], &hello.base, NULL, 0), PD_OK);
    assert_int_equal(peer_reply(p, &l.prefix[0], &hello.base, NULL, 0), PD_OK);
    report(&l, l.bytes);
    l = lend(p);
    assert_int_equal(l.frames, 1);
    assert_int_equal(l.prefix[0].method, PD_DECLARE);
    declared.parameters = all;
    declared.n_parameters = 1;
    assert_int_equal(peer_reply(p, &l.prefix[0], &declared.base, NULL, 0), PD_OK);
    report(&l, l.bytes);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_expect_silence(p);
    peer_free(p);
}

TEST(a_declaration_may_be_refused_while_its_bytes_are_sent)
{
    static const int64_t sizes[] = { ELEMENTS };
    peer *p = peer_new(&peer_first);
    pd_ticket_id ticket = peer_declare(p, sizes, 1);
    loan l;

    peer_connect(p);
    peer_welcome(p);
    l = lend(p);
    peer_refuse(p, &l.prefix[0], PD_INVALID_ARGUMENT, "no");
    report(&l, l.bytes);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    peer_cut(p);
    peer_free(p);
}
