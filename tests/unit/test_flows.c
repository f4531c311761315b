/* Tests how requests that wait for the step thread are served: identities in turn, then jobs and connections. */
#include "test.h"
#include "turn.h"

enum { MOST = 4096 };

#define US 1000u
#define MS 1000000u

/* A request of a party. `id` is its number in the order of arrival. */
static pd_request *ask(uint64_t party, uint32_t job, uint64_t conn, uint64_t id)
{
    pd_request *request = pd_request_new(job != 0 ? PD_REQ_PUSH : PD_REQ_SET, (pd_ticket){ conn, id });

    request->party = party;
    request->job = job;
    return request;
}

static pd_request *read_of(uint64_t party, uint64_t conn, uint64_t id)
{
    pd_request *request = ask(party, 0, conn, id);

    request->kind = PD_REQ_INFO;
    return request;
}

/* Serves the next request, which takes `ns`. Returns its id, or 0 if there is none. */
static uint64_t serve(pd_flows *flows, bool reads, uint64_t ns)
{
    pd_request *request = pd_flows_take(flows, reads);
    uint64_t id;

    if (request == NULL) return 0;
    id = request->ticket.id;
    pd_request_free(request);
    pd_flows_charge(flows, NULL, ns);
    return id;
}

static void serve_all(pd_flows *flows)
{
    while (serve(flows, true, US) != 0) continue;
}

TEST(requests_of_a_flow_are_served_in_the_order_of_their_arrival)
{
    pd_flows flows = { 0 };

    for (uint64_t id = 1; id <= 100; id++) pd_flows_add(&flows, ask(1, 7, id, id));
    for (uint64_t id = 1; id <= 50; id++) assert_int_equal(serve(&flows, false, MS), id);
    for (uint64_t id = 101; id <= 120; id++) pd_flows_add(&flows, ask(1, 7, id, id));
    for (uint64_t id = 51; id <= 120; id++) assert_int_equal(serve(&flows, false, MS), id);
    assert_int_equal(serve(&flows, true, MS), 0);
}

TEST(the_daemons_own_requests_are_served_before_all_others)
{
    pd_flows flows = { 0 };

    pd_flows_add(&flows, ask(1, 7, 1, 10));
    pd_flows_add(&flows, read_of(1, 2, 11));
    for (uint64_t id = 1; id <= 3; id++) pd_flows_add(&flows, ask(0, 7, 0, id));
    for (uint64_t id = 1; id <= 3; id++) assert_int_equal(serve(&flows, true, MS), id);
    serve_all(&flows);
}

TEST(a_request_that_is_not_done_stays_the_first_of_its_flow)
{
    pd_flows flows = { 0 };
    uint64_t of_another = 0;

    for (uint64_t id = 1; id <= 2; id++) pd_flows_add(&flows, ask(1, 7, 1, id));
    for (uint64_t id = 100; id <= 200; id++) pd_flows_add(&flows, ask(2, 8, 2, id));
    for (int part = 0; part < 20;) {
        pd_request *request = pd_flows_take(&flows, false);
        bool mine = request->ticket.id == 1;
        assert_int_not_equal(request->ticket.id, 2);
        part += mine;
        of_another += !mine;
        if (!mine) pd_request_free(request);
        pd_flows_charge(&flows, mine ? request : NULL, MS);
    }
    assert_in_range(of_another, 18, 21);
    serve_all(&flows);
}

typedef struct sender {
    uint64_t party, cost_ns, got_ns, next_id;
    uint32_t job;
    bool closed; /* sends its next request when the last one was served */
} sender;

static void send(pd_flows *flows, sender *s)
{
    pd_flows_add(flows, ask(s->party, s->job, s->party, (uint64_t)s->job << 32 | ++s->next_id));
}

/* Serves n senders for a time. Each has a request waiting at any time, and those that are not closed have many. */
static void run(pd_flows *flows, sender *senders, size_t n, uint64_t ns)
{
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < (senders[i].closed ? 1 : 8); k++) send(flows, &senders[i]);
    for (uint64_t spent = 0; spent < ns;) {
        pd_request *request = pd_flows_take(flows, false);
        sender *s = senders;
        while (s->job != request->job) s++;
        pd_request_free(request);
        s->got_ns += s->cost_ns;
        spent += s->cost_ns;
        pd_flows_charge(flows, NULL, s->cost_ns);
        send(flows, s);
    }
    serve_all(flows);
}

TEST(parties_get_the_same_time_whatever_their_requests_cost)
{
    pd_flows flows = { 0 };
    sender senders[] = { { .party = 1, .job = 1, .cost_ns = 4 * MS }, { .party = 2, .job = 2, .cost_ns = 20 * US } };

    run(&flows, senders, 2, 400 * MS);
    assert_in_range(senders[1].got_ns, 195 * MS, 205 * MS);
}

TEST(a_party_with_one_slow_request_after_the_other_gets_no_more_than_its_share)
{
    pd_flows flows = { 0 };
    sender senders[] = { { .party = 1, .job = 1, .cost_ns = 4 * MS, .closed = true },
                         { .party = 2, .job = 2, .cost_ns = 20 * US } };

    run(&flows, senders, 2, 400 * MS);
    assert_in_range(senders[1].got_ns, 195 * MS, 405 * MS);
}

TEST(a_party_with_many_jobs_gets_no_more_than_its_share)
{
    pd_flows flows = { 0 };
    sender senders[41] = { { .party = 2, .job = 1, .cost_ns = 100 * US } };

    for (uint32_t i = 1; i < 41; i++) senders[i] = (sender){ .party = 1, .job = i + 1, .cost_ns = MS };
    run(&flows, senders, 41, 400 * MS);
    assert_in_range(senders[0].got_ns, 195 * MS, 205 * MS);
}

TEST(jobs_of_a_party_share_its_time)
{
    pd_flows flows = { 0 };
    sender senders[] = { { .party = 1, .job = 1, .cost_ns = 2 * MS },
                         { .party = 1, .job = 2, .cost_ns = 100 * US },
                         { .party = 2, .job = 3, .cost_ns = MS } };

    run(&flows, senders, 3, 400 * MS);
    assert_in_range(senders[0].got_ns, 95 * MS, 105 * MS);
    assert_in_range(senders[1].got_ns, 95 * MS, 105 * MS);
}

TEST(a_request_waits_for_one_slow_request_of_a_flood_of_another_party)
{
    pd_flows flows = { 0 };
    uint64_t waited = 0;

    for (uint64_t id = 1; id <= 1000; id++) pd_flows_add(&flows, ask(1, 1 + (uint32_t)id % 10, 1, id));
    for (int i = 0; i < 100; i++) (void)serve(&flows, false, 4 * MS);
    pd_flows_add(&flows, ask(2, 20, 2, 5000));
    while (serve(&flows, false, 4 * MS) != 5000) waited++;
    assert_in_range(waited, 0, 1);
    serve_all(&flows);
}

TEST(virtual_clocks_without_cost_serve_parties_in_turn)
{
    pd_flows flows = { 0 };
    uint64_t at = 0;

    for (uint64_t id = 1; id <= 2000; id++) pd_flows_add(&flows, ask(1, 1, 1, id));
    pd_flows_add(&flows, ask(2, 2, 2, 5000));
    while (serve(&flows, false, 0) != 5000) at++;
    assert_in_range(at, 0, PD_FLOW_QUANTUM_NS / PD_FLOW_LEAST_NS + 1);
    serve_all(&flows);
}

TEST(reads_wait_until_they_may_be_served)
{
    pd_flows flows = { 0 };

    pd_flows_add(&flows, read_of(1, 1, 1));
    pd_flows_add(&flows, ask(2, 2, 2, 2));
    assert_int_equal(serve(&flows, false, MS), 2);
    assert_int_equal(serve(&flows, false, MS), 0);
    assert_false(pd_flows_wait(&flows, false));
    assert_true(pd_flows_wait(&flows, true));
    assert_int_equal(serve(&flows, true, MS), 1);
    assert_int_equal(serve(&flows, true, MS), 0);
}

TEST(commands_of_a_connection_wait_for_the_reads_before_them)
{
    pd_flows flows = { 0 };

    pd_flows_add(&flows, ask(1, 0, 1, 1));
    pd_flows_add(&flows, read_of(1, 1, 2));
    pd_flows_add(&flows, ask(1, 0, 1, 3));
    pd_flows_add(&flows, ask(1, 0, 2, 4));
    assert_int_equal(serve(&flows, false, MS), 1);
    assert_int_equal(serve(&flows, false, MS), 4);
    assert_int_equal(serve(&flows, false, MS), 0);
    assert_int_equal(serve(&flows, true, MS), 2);
    assert_int_equal(serve(&flows, false, MS), 3);
    assert_int_equal(serve(&flows, true, MS), 0);
}

/* Serves random requests of random flows. Each is served once, in the order of its flow. Every n-th allocation of a
 * flow fails; 0: none does. */
static void play(unsigned seed, unsigned fails)
{
    enum { FLOWS = 12 };
    pd_flows flows = { 0 };
    uint64_t sent[FLOWS] = { 0 }, served[FLOWS] = { 0 };

    srand(seed);
    for (int i = 0; i < MOST || pd_flows_wait(&flows, true); i++) {
        uint32_t f = (uint32_t)rand() % FLOWS;
        if (i < MOST && rand() % 2 == 0) {
            uint64_t id = ++sent[f];
            pd_request *request = f % 2 == 0        ? ask(1 + f / 4, f + 1, f, id)
                                  : rand() % 2 == 0 ? ask(1 + f / 4, 0, f, id)
                                                    : read_of(1 + f / 4, f, id);
            request->rank = f;
            oom_arm(fails != 0 && (unsigned)rand() % fails == 0 ? 0 : -1);
            pd_flows_add(&flows, request);
        } else {
            pd_request *request = pd_flows_take(&flows, i >= MOST || rand() % 3 == 0);
            bool done = rand() % 4 != 0;
            if (request == NULL) continue;
            assert_int_equal(request->ticket.id, served[request->rank] + 1);
            served[request->rank] += done;
            if (done) pd_request_free(request);
            oom_arm(fails != 0 && (unsigned)rand() % fails == 0 ? 0 : -1);
            pd_flows_charge(&flows, done ? NULL : request, (uint64_t)rand() % (4 * MS));
        }
        oom_disarm();
    }
    assert_null(pd_flows_take(&flows, true));
    for (uint32_t f = 0; f < FLOWS; f++) assert_int_equal(served[f], sent[f]);
    for (size_t i = 0; i < PD_FLOW_BUCKETS; i++) assert_null(flows.buckets[i]);
}

TEST(each_request_is_served_once_in_the_order_of_its_flow)
{
    for (unsigned seed = 1; seed <= 40; seed++) play(seed, 0);
}

TEST(no_order_is_lost_when_memory_is_short)
{
    for (unsigned seed = 1; seed <= 40; seed++) play(seed, 1 + seed % 4);
}
