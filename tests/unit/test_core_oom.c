/* Tests the client's core when any one of its allocations fails. The core reports an error or reconnects. Nothing is
 * lost and nothing leaks. */
#include "test.h"
#include "peer.h"

static const int64_t sizes[] = { 2 * CHUNK + 5, 3, 7 };
enum { N = 3 };

TEST(a_core_is_made_whole_or_not_at_all)
{
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        pd_core *core = NULL;
        pd_error err;
        int rc;

        oom_arm(n);
        rc = pd_core_new(&core, &peer_four, &err);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        if (!failed) pd_core_free(core);
    }
}

static int push_all(peer *p, pd_item *items, pd_ticket_id *ticket)
{
    static float g[2 * CHUNK + 5], w[N][2 * CHUNK + 5];
    pd_error err;

    for (size_t i = 0; i < N; i++) items[i] = (pd_item){ .param = i, .gradient = i == 1 ? NULL : g, .weights = w[i] };
    return pd_core_push(p->core, PD_PUSH_PULL, items, N, NULL, ticket, &err);
}

TEST(a_push_is_queued_whole_or_not_at_all)
{
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        peer *p = peer_running(sizes, N);
        pd_item items[N];
        pd_ticket_id ticket;
        int rc;

        oom_arm(n);
        rc = push_all(p, items, &ticket);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        if (failed) {
            peer_expect_silence(p);
            assert_int_equal(push_all(p, items, &ticket), PD_OK);
        }
        peer_free(p);
    }
}

TEST(the_other_calls_are_queued_whole_or_not_at_all)
{
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        peer *p = peer_running(sizes, N);
        float w[N][2 * CHUNK + 5];
        void *weights[] = { w[0], w[1], w[2] };
        pd_ticket_id ticket;
        pd_error err;
        peer_frame l;

        memset(w, 0, sizeof w);
        oom_arm(n);
        (void)(pd_core_barrier(p->core, &ticket, &err) == PD_OK &&
               pd_core_init(p->core, weights, &ticket, &err) == PD_OK &&
               pd_core_fetch(p->core, weights, &ticket, &err) == PD_OK &&
               pd_core_call(p->core, PD_STATUS, NULL, &(struct iovec){ NULL, 0 }, 0, &ticket, &err) == PD_OK);
        failed = oom_disarm();
        if (failed) assert_int_equal(err.code, PD_NO_MEMORY);
        while (peer_take(p, &l)) peer_frame_drop(&l);
        peer_free(p);
    }
}
