/* peer.c - a server whose frames the test sends one by one, for tests of the client's core. */
#include "peer.h"

#include "answer.h"
#include "descriptors.h"
#include "test.h"
#include "transport.h"
#include "window.h"

const pd_core_config peer_four = {
    .job = "job", .label = "test:1", .rank = 2, .world_size = 4, .nonce = 77, .urls = 2
};
const pd_core_config peer_first = {
    .job = "job", .label = "test:1", .rank = 0, .world_size = 4, .nonce = 77, .urls = 2
};

peer *peer_new(const pd_core_config *config)
{
    peer *p = calloc(1, sizeof *p);
    pd_error err;

    assert_non_null(p);
    assert_int_equal(pd_core_new(&p->core, config, &err), PD_OK);
    p->arena = pd_arena_new(PD_ARENA_BUDGET);
    p->now = SECOND;
    p->split = WIRE_BYTES;
    p->chunk_elements = CHUNK;
    p->came = -1;
    p->lent = (pd_segment)PD_NO_SEGMENT;
    return p;
}

void peer_free(peer *p)
{
    pd_framer_free(p->framer);
    pd_core_free(p->core);
    pd_arena_free(p->arena);
    pd_segment_drop(&p->lent);
    if (p->came >= 0) close(p->came);
    free(p);
}

/* Does what the client's pump does around an answer in shared memory. */
static int on_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    peer *p = arg;
    int rc = pd_core_header(p->core, prefix, header, spans, n);

    if (rc == PD_OK) pd_core_keep(p->core);
    if (rc != PD_OK || (prefix->flags & PD_FLAG_SHARED) == 0) return rc;
    pd_core_copy(p->core);
    return p->has_closed ? PD_CANCELLED : PD_OK;
}

static void on_payload(void *arg, const void *at, size_t n)
{
    const peer *p = arg;

    pd_core_digest(p->core, at, n);
}

static int on_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    peer *p = arg;

    pd_core_digest_end(p->core);
    return pd_core_frame(p->core, prefix, header);
}

void peer_connect(peer *p)
{
    const pd_framer_user user = { .arg = p, .header = on_header, .payload = on_payload, .frame = on_frame };

    pd_framer_free(p->framer);
    p->framer = pd_framer_new(&user, UINT64_MAX / 2);
    p->n = 0;
    pd_core_up(p->core, p->local, p->now);
}

void peer_cut(peer *p)
{
    pd_core_down(p->core, p->now, "cut");
    p->now = pd_core_next(p->core);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_CONNECT);
}

/* Moves bytes from the core to the wire. */
size_t peer_pump(peer *p, size_t bytes)
{
    struct iovec iov[7];
    size_t moved = 0;
    int n;

    while (moved < bytes && (n = pd_core_output(p->core, iov, 7, 4096)) > 0) {
        size_t now = 0;
        int fd = pd_descriptor_take(&p->core->sharing.to_send);
        if (fd >= 0 && p->came >= 0) close(p->came);
        if (fd >= 0) p->came = fd;
        pd_outgoing_fill(&p->core->out);
        for (int i = 0; i < n && moved < bytes; i++) {
            size_t part = iov[i].iov_len < bytes - moved ? iov[i].iov_len : bytes - moved;
            assert_true(p->n + part <= WIRE_BYTES);
            memcpy(p->wire + p->n, iov[i].iov_base, part);
            p->n += part;
            moved += part;
            now += part;
        }
        pd_core_sent(p->core, now, p->now);
    }
    return moved;
}

bool peer_take(peer *p, peer_frame *out)
{
    size_t bytes;
    bool shared;
    pd_error err;

    peer_pump(p, SIZE_MAX);
    memset(out, 0, sizeof *out);
    if (p->n == 0) return false;
    assert_int_equal(pd_prefix_read(&out->prefix, p->wire, UINT64_MAX / 2, &err), PD_OK);
    shared = (out->prefix.flags & PD_FLAG_SHARED) != 0;
    bytes = PD_PREFIX_BYTES + out->prefix.header_bytes + (shared ? 0 : out->prefix.payload_bytes);
    assert_true(p->n >= bytes);
    out->at = malloc(bytes);
    out->bytes = bytes;
    memcpy(out->at, p->wire, bytes);
    memmove(p->wire, p->wire + bytes, p->n - bytes);
    p->n -= bytes;
    out->payload = out->at + PD_PREFIX_BYTES + out->prefix.header_bytes;
    if (shared) out->payload = p->lent.at + (uint64_t)out->prefix.place * PD_PAYLOAD_ALIGN;
    assert_int_equal(pd_request_unpack(p->arena, out->prefix.method, out->at + PD_PREFIX_BYTES,
                                       out->prefix.header_bytes, &out->message, &err),
                     PD_OK);
    return true;
}

void peer_frame_drop(peer_frame *l)
{
    free(l->at);
    l->at = NULL;
}

peer_frame peer_expect(peer *p, unsigned method)
{
    peer_frame l;

    if (!peer_take(p, &l)) fail_msg("expected %s, the core is silent", pd_method_name(method));
    if (l.prefix.method != method)
        fail_msg("expected %s, got %s", pd_method_name(method), pd_method_name(l.prefix.method));
    return l;
}

void peer_expect_silence(peer *p)
{
    peer_frame l;
    if (peer_take(p, &l)) fail_msg("expected nothing, got %s", pd_method_name(l.prefix.method));
}

int peer_feed(peer *p, const uint8_t *at, size_t n)
{
    int rc = PD_OK;

    while (n > 0 && rc == PD_OK) {
        struct iovec iov[8];
        int entries = pd_framer_space(p->framer, iov, 8, p->split);
        size_t used = 0;

        assert_true(entries > 0);
        for (int i = 0; i < entries && n > 0; i++) {
            size_t part = iov[i].iov_len < n ? iov[i].iov_len : n;
            memcpy(iov[i].iov_base, at, part);
            at += part;
            n -= part;
            used += part;
        }
        pd_core_received(p->core, used, p->now);
        rc = pd_framer_fed(p->framer, used);
    }
    return rc;
}

int peer_reply(peer *p, const pd_prefix *to, const ProtobufCMessage *message, void *payload, size_t n)
{
    uint8_t *frame;
    size_t bytes;
    struct iovec iov = { payload, n };
    int rc;

    assert_int_equal(pd_frame_pack(&frame, &bytes, to->method, PD_FLAG_REPLY, to->request, message, &iov, n > 0, n),
                     PD_OK);
    rc = peer_feed(p, frame, bytes);
    free(frame);
    if (rc == PD_OK && n > 0) rc = peer_feed(p, payload, n);
    return rc;
}

int peer_refuse_marked(peer *p, const pd_prefix *to, int code, const char *text, uint64_t mark)
{
    uint8_t *frame;
    size_t bytes;
    int rc;

    assert_int_equal(pd_frame_pack_error(&frame, &bytes, to->method, 0, to->request, code, text, mark), PD_OK);
    rc = peer_feed(p, frame, bytes);
    free(frame);
    return rc;
}

int peer_refuse(peer *p, const pd_prefix *to, int code, const char *text)
{
    return peer_refuse_marked(p, to, code, text, 0);
}

int peer_reply_ok(peer *p, const pd_prefix *to)
{
    Paramd__Ok ok = PARAMD__OK__INIT;
    return peer_reply(p, to, &ok.base, NULL, 0);
}

/* Fills in what the server leases to the worker. Returns the number of ranges: 1 or 0. */
static size_t fill_lease(const peer *p, Paramd__Lease *lease)
{
    paramd__lease__init(lease);
    lease->first = p->lease_first;
    lease->count = p->lease_count;
    return lease->count > 0;
}

/* Sends an answer in which all n pieces have the same outcome. */
int peer_reply_data(peer *p, const pd_prefix *to, size_t n, uint32_t outcome, uint64_t step, float *weights,
                    size_t floats)
{
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome one = PARAMD__OUTCOME__INIT, *all[2048];
    Paramd__Lease lease, *leases = &lease;

    one.outcome = outcome;
    one.step = one.version = step;
    for (size_t i = 0; i < n; i++) all[i] = &one;
    message.outcomes = all;
    message.n_outcomes = n;
    message.durable_step = p->durable;
    message.members = p->members;
    message.index = p->index;
    message.epoch = p->epoch;
    message.course = p->course;
    message.staleness = p->staleness;
    message.fastest = p->fastest;
    message.counted = p->counted;
    message.n_leases = fill_lease(p, &lease);
    message.leases = &leases;
    return peer_reply(p, to, &message.base, weights, floats * sizeof *weights);
}

void peer_share(peer *p, int fd, uint64_t bytes)
{
    Paramd__ShareReply reply = PARAMD__SHARE_REPLY__INIT;
    peer_frame l = peer_expect(p, PD_SHARE);
    const Paramd__ShareRequest *request = l.message;

    pd_segment_drop(&p->lent);
    assert_int_equal(pd_segment_map_full(&p->lent, p->came, request->bytes, NULL), PD_OK);
    p->came = -1;
    if (fd >= 0) pd_descriptor_replace(&p->core->sharing.taken, fd);
    reply.bytes = bytes;
    assert_int_equal(peer_reply(p, &l.prefix, &reply.base, NULL, 0), PD_OK);
    peer_frame_drop(&l);
}

int peer_reply_shared(peer *p, const pd_prefix *to, size_t n, uint64_t step, const uint64_t *places, uint64_t bytes)
{
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome outcomes[8], *all[8];
    uint8_t *frame;
    size_t length;
    int rc;

    for (size_t i = 0; i < n; i++) {
        paramd__outcome__init(&outcomes[i]);
        outcomes[i].outcome = 1;
        outcomes[i].step = outcomes[i].version = step;
        outcomes[i].place = places[i];
        all[i] = &outcomes[i];
    }
    message.outcomes = all;
    message.n_outcomes = n;
    assert_int_equal(pd_frame_pack(&frame, &length, to->method, PD_FLAG_REPLY | PD_FLAG_SHARED, to->request,
                                   &message.base, NULL, 0, bytes),
                     PD_OK);
    rc = peer_feed(p, frame, length);
    free(frame);
    return rc;
}

void peer_welcome_with(peer *p, uint64_t max_payload, uint32_t max_pieces)
{
    Paramd__HelloReply hello = PARAMD__HELLO_REPLY__INIT;
    peer_frame l = peer_expect(p, PD_HELLO);

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.server = (char *)"paramd test";
    hello.blas_core = (char *)"core";
    hello.chunk_elements = p->chunk_elements;
    hello.max_payload = max_payload;
    hello.max_pieces = max_pieces;
    hello.heartbeat_ms = 1000;
    hello.timeout_ms = 4000;
    hello.seed = 5;
    hello.creator = p->creator;
    hello.life = p->life;
    hello.cluster = p->cluster;
    hello.tenure = p->tenure;
    hello.shards_known = p->shards_known;
    hello.rank = p->rank;
    hello.slots = p->slots;
    hello.course = p->course;
    assert_int_equal(peer_reply(p, &l.prefix, &hello.base, NULL, 0), PD_OK);
    peer_frame_drop(&l);
}

void peer_welcome(peer *p)
{
    peer_welcome_with(p, 1 << 20, 1024);
}

void peer_answer_declare(peer *p, size_t n, uint64_t step)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[4096];
    Paramd__Lease lease, *leases = &lease;
    pd_prefix prefix[16];
    size_t count[16], frames = 0, declared = 0;
    bool last = false;

    while (!last) {
        peer_frame l = peer_expect(p, PD_DECLARE);
        const Paramd__DeclareRequest *request = l.message;
        prefix[frames] = l.prefix;
        declared += count[frames++] = request->n_parameters;
        last = request->last;
        peer_frame_drop(&l);
    }
    assert_int_equal(declared, n);
    one.step = step;
    one.initialised = true;
    for (size_t i = 0; i < n; i++) all[i] = &one;
    message.parameters = all;
    message.durable_step = p->durable;
    message.open_sets = p->open_sets;
    message.n_leases = fill_lease(p, &lease);
    message.leases = &leases;
    while (frames-- > 0) { /* answers the frames in reverse: a server may answer in any order */
        message.n_parameters = count[frames];
        assert_int_equal(peer_reply(p, &prefix[frames], &message.base, NULL, 0), PD_OK);
    }
}

pd_ticket_id peer_declare(peer *p, const int64_t *sizes, size_t n)
{
    pd_client_param *params = calloc(n, sizeof *params);
    char(*names)[24] = calloc(n, sizeof *names);
    pd_ticket_id ticket;
    pd_error err;

    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "p%zu", i);
        params[i] = (pd_client_param){ .name = names[i],
                                       .shape = { .rank = 1, .dim = { sizes[i] } },
                                       .push_dtype = p->push_dtype };
    }
    assert_int_equal(pd_core_declare(p->core, params, n, &ticket, &err), PD_OK);
    free(params);
    free(names);
    return ticket;
}

int peer_finish(peer *p, pd_ticket_id ticket, pd_error *err)
{
    uint8_t *at;
    size_t bytes;
    int rc;

    assert_true(pd_core_done(p->core, ticket));
    rc = pd_core_finish(p->core, ticket, &at, &bytes, err);
    free(at);
    return rc;
}

peer *peer_running(const int64_t *sizes, size_t n)
{
    peer *p = peer_new(&peer_four);
    pd_ticket_id ticket;
    pd_error err;

    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, n);
    peer_answer_declare(p, n, 0);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    return p;
}

peer *peer_trained(const pd_core_config *config, const int64_t *sizes, size_t n, uint64_t step)
{
    peer *p = peer_new(config);
    pd_ticket_id ticket;

    p->creator = 1000;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, n);
    peer_answer_declare(p, n, step);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    p->core->begun = true;
    return p;
}

void peer_answer_declare_at(peer *p, const uint64_t *steps, size_t n)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared each[PEER_ITEMS], *all[PEER_ITEMS];
    peer_frame l = peer_expect(p, PD_DECLARE);

    assert_true(n <= PEER_ITEMS);
    for (size_t i = 0; i < n; i++) {
        paramd__declared__init(&each[i]);
        each[i].step = steps[i];
        each[i].initialised = true;
        all[i] = &each[i];
    }
    message.parameters = all;
    message.n_parameters = n;
    message.durable_step = p->durable;
    message.open_sets = p->open_sets;
    assert_int_equal(peer_reply(p, &l.prefix, &message.base, NULL, 0), PD_OK);
    peer_frame_drop(&l);
}

void peer_come_back_at(peer *p, const uint64_t *steps, size_t n)
{
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare_at(p, steps, n);
}

pd_ticket_id peer_push_pull(peer *p, size_t n, size_t elements)
{
    pd_ticket_id ticket;
    pd_error err;

    assert_true(n <= PEER_ITEMS && elements <= PEER_ELEMENTS);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < elements; k++)
            p->gradients[i][k] = (float)(pd_core_step(p->core, i) * 1000 + i * 100 + k);
        p->items[i] = (pd_item){ .param = i, .gradient = p->gradients[i], .weights = p->weights[i] };
    }
    if (pd_core_push(p->core, PD_PUSH_PULL, p->items, n, NULL, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
    return ticket;
}

peer_frame peer_push_one(peer *p, size_t param, pd_ticket_id *ticket)
{
    pd_error err;

    p->items[param] = (pd_item){ .param = param, .gradient = p->gradients[param], .weights = p->weights[param] };
    if (pd_core_push(p->core, PD_PUSH_PULL, &p->items[param], 1, NULL, ticket, &err) != PD_OK) fail_msg("%s", err.text);
    return peer_expect(p, PD_PUSH_PULL);
}

uint64_t peer_pushed_step(const peer_frame *l)
{
    return ((const Paramd__PushRequest *)l->message)->step;
}

void peer_answer_step(peer *p, peer_frame *l, size_t n, uint32_t outcome, uint64_t step)
{
    float weights[PEER_ITEMS * 16] = { 0 };

    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) weights[i] = (float)step;
    assert_int_equal(peer_reply_data(p, &l->prefix, n, outcome, step, weights, (n - 1) * 16 + PEER_SMALL), PD_OK);
    peer_frame_drop(l);
}

peer *peer_sharing(const int64_t *sizes, size_t n, uint64_t bytes)
{
    return peer_sharing_with(&peer_four, sizes, n, bytes);
}

peer *peer_sharing_with(const pd_core_config *config, const int64_t *sizes, size_t n, uint64_t bytes)
{
    peer *p = peer_new(config);
    pd_ticket_id ticket;

    p->local = true;
    p->chunk_elements = SHARED_CHUNK;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, n);
    peer_answer_declare(p, n, 0);
    peer_share(p, bytes > 0 ? memfd_sealed(bytes, 0) : -1, bytes);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return p;
}
