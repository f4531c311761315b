/* Tests the queue of frames that a client sends, where payloads of pushes lie in shared memory: whatever the order of
 * sends, answers and reconnects, with sharing and without it, the server reads every payload that it is told of. */
#include "test.h"
#include "frame.h"
#include "outgoing.h"

enum { FRAMES = 400, IOV = 64, HOME = 32 * 1024, HOMES = 4 * HOME, COPIES = 128 * 1024, WIRE = 1 << 20 };

typedef struct frame {
    pd_outgoing_frame *queued; /* NULL: it has left the queue */
    uint8_t *payload;          /* the caller's memory; NULL: it is the caller's again */
    uint8_t *copy;             /* what the server must read */
    bool at_home, done, announced;
    uint64_t bytes, step;
    uint32_t place; /* where the server reads it, if `announced` on this connection */
} frame;

typedef struct bench {
    pd_outgoing out;
    frame frames[FRAMES];
    uint64_t n, seed, closed;
    bool home_used[HOMES / HOME];
    uint8_t wire[WIRE]; /* bytes of the stream that make no frame yet */
    size_t on_wire;
} bench;

static uint64_t draw(bench *b, uint64_t below)
{
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return (b->seed >> 33) % below;
}

static uint8_t byte_of(uint64_t number, uint64_t at)
{
    return (uint8_t)(number * 31 + at * 7 + (at >> 8));
}

static bench *bench_new(uint64_t seed)
{
    bench *b = calloc(1, sizeof *b);

    b->seed = seed;
    assert_int_equal(pd_staging_make(&b->out.staging, HOMES + COPIES, NULL), PD_OK);
    assert_ptr_equal(pd_staging_take_buffer(&b->out.staging, 0, HOMES), b->out.staging.segment.at);
    b->out.open = true;
    return b;
}

static void give_back(bench *b, frame *f)
{
    if (f->at_home && f->payload != NULL) b->home_used[(f->payload - b->out.staging.segment.at) / HOME] = false;
    if (!f->at_home) free(f->payload);
    f->payload = NULL;
}

static void bench_free(bench *b)
{
    pd_outgoing_clear(&b->out);
    for (uint64_t i = 1; i <= b->n; i++) {
        give_back(b, &b->frames[i]);
        free(b->frames[i].copy);
    }
    pd_staging_free(&b->out.staging);
    free(b);
}

static uint8_t *memory_for(bench *b, frame *f)
{
    uint64_t home = draw(b, 2 * HOMES / HOME);

    f->at_home = home < HOMES / HOME && !b->home_used[home];
    if (!f->at_home) return malloc(f->bytes);
    b->home_used[home] = true;
    return b->out.staging.segment.at + home * HOME;
}

static uint64_t add(bench *b, uint64_t bytes)
{
    uint64_t number = ++b->n;
    frame *f = &b->frames[number];
    uint8_t *head = malloc(PD_PREFIX_BYTES);

    assert_true(number < FRAMES);
    f->bytes = bytes;
    f->step = b->closed + 1 + draw(b, 3);
    f->payload = memory_for(b, f);
    f->copy = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++) f->copy[i] = byte_of(number, i);
    memcpy(f->payload, f->copy, bytes);
    pd_prefix_write(head, &(pd_prefix){ .version = 1, .method = 3, .payload_bytes = bytes, .request = number });
    f->queued = pd_outgoing_frame_new(head, PD_PREFIX_BYTES, NULL, 0, &(struct iovec){ f->payload, (size_t)bytes }, 1);
    f->queued->id = number;
    f->queued->step = f->step;
    f->queued->op = (struct pd_op *)f;
    assert_true(pd_outgoing_add(&b->out, f->queued, PD_QUEUE_LASTING));
    return number;
}

static void done(void *arg, pd_outgoing_frame *queued)
{
    bench *b = arg;
    frame *f = &b->frames[queued->id];

    f->queued = NULL;
    f->done = true;
    give_back(b, f);
}

/* The server has answered a frame: with an error it may still read the payload. */
static void answer(bench *b, uint64_t number, bool error)
{
    frame *f = &b->frames[number];

    if (!error) f->queued->exposed = false;
    if (!error || f->at_home) f->announced = false; /* the caller of a gradient at home keeps it unchanged itself */
    if (!pd_outgoing_retire(&b->out, f->queued)) return;
    f->queued = NULL;
    f->done = true;
    give_back(b, f);
}

static void close_step(bench *b)
{
    b->closed++;
    for (uint64_t i = 1; i <= b->n; i++)
        if (b->frames[i].done && b->frames[i].step <= b->closed) b->frames[i].announced = false;
    pd_staging_reclaim(&b->out.staging, b->closed);
}

/* Takes the first frame of the stream, if it is complete. */
static bool take_frame(bench *b)
{
    pd_prefix prefix;
    bool shared;
    size_t bytes;

    if (b->on_wire < PD_PREFIX_BYTES) return false;
    assert_int_equal(pd_prefix_read(&prefix, b->wire, WIRE, NULL), PD_OK);
    shared = (prefix.flags & PD_FLAG_SHARED) != 0;
    bytes = PD_PREFIX_BYTES + (shared ? 0 : prefix.payload_bytes);
    if (b->on_wire < bytes) return false;
    if (!shared)
        assert_true(memcmp(b->wire + PD_PREFIX_BYTES, b->frames[prefix.request].copy, prefix.payload_bytes) == 0);
    if (shared) assert_true(b->out.shares);
    b->frames[prefix.request].announced = shared;
    b->frames[prefix.request].place = prefix.place;
    memmove(b->wire, b->wire + bytes, b->on_wire - bytes);
    b->on_wire -= bytes;
    return true;
}

/* Checks that every payload that the server may read is there. */
static void check_announced(const bench *b)
{
    for (uint64_t i = 1; i <= b->n; i++) {
        const frame *f = &b->frames[i];
        if (f->announced)
            assert_memory_equal(b->out.staging.segment.at + (uint64_t)f->place * PD_PAYLOAD_ALIGN, f->copy, f->bytes);
    }
}

static void send_some(bench *b, uint64_t most)
{
    struct iovec iov[IOV];
    int n = pd_outgoing_gather(&b->out, iov, 1 + (int)draw(b, 8), 1 + draw(b, 100000));
    size_t moved = 0;

    pd_outgoing_fill(&b->out);
    for (int i = 0; i < n; i++) {
        size_t part = iov[i].iov_len < most - moved ? iov[i].iov_len : most - moved;
        assert_true(b->on_wire + part <= WIRE);
        memcpy(b->wire + b->on_wire, iov[i].iov_base, part);
        b->on_wire += part;
        moved += part;
    }
    pd_outgoing_sent(&b->out, moved, done, b);
    while (take_frame(b)) continue;
}

static void connect_anew(bench *b, bool shares)
{
    pd_outgoing_rewind(&b->out, done, b);
    b->on_wire = 0;
    b->out.open = true;
    b->out.shares = shares;
}

static uint64_t draw_sent(bench *b)
{
    uint64_t number = b->n > 0 ? 1 + draw(b, b->n) : 0;
    const frame *f = &b->frames[number];

    return number > 0 && f->queued != NULL && f->queued->sent && !f->queued->answered ? number : 0;
}

static void act(bench *b)
{
    uint64_t number;

    switch (draw(b, 12)) {
    case 0:
    case 1:
    case 2:
        if (b->n + 1 < FRAMES) add(b, draw(b, 2) ? 1 + draw(b, HOME) : 16384 + draw(b, HOME - 16384));
        break;
    case 3:
    case 4:
    case 5:
        if ((number = draw_sent(b)) > 0) answer(b, number, draw(b, 4) == 0);
        break;
    case 6: close_step(b); break;
    case 7:
        if (draw(b, 4) == 0) connect_anew(b, draw(b, 3) > 0);
        break;
    default: send_some(b, draw(b, 3) ? SIZE_MAX : draw(b, 60000)); break;
    }
    check_announced(b);
}

/* Sends and answers everything. */
static void finish(bench *b)
{
    for (int i = 0; pd_outgoing_pending(&b->out); i++) {
        assert_true(i < 10000);
        send_some(b, SIZE_MAX);
        check_announced(b);
    }
    for (uint64_t i = 1; i <= b->n; i++)
        if (b->frames[i].queued != NULL) answer(b, i, false);
    for (int i = 0; i < 4; i++) close_step(b);
}

static void run_seed(uint64_t seed)
{
    bench *b = bench_new(seed);

    connect_anew(b, seed % 4 > 0);
    for (int turn = 0; turn < 200; turn++) act(b);
    finish(b);
    for (uint64_t i = 1; i <= b->n; i++) assert_true(b->frames[i].done);
    assert_null(b->out.staging.first->next); /* only the buffers' block */
    bench_free(b);
}

TEST(the_server_reads_every_payload_whatever_happens_in_between)
{
    for (uint64_t seed = 1; seed <= 40; seed++) run_seed(seed);
}

/* Sends everything. Returns the bytes of the stream. */
static size_t sent_bytes(bench *b)
{
    struct iovec iov[IOV];
    size_t bytes = 0, all = 0;
    int n;

    while ((n = pd_outgoing_gather(&b->out, iov, IOV, SIZE_MAX)) > 0) {
        bytes = 0;
        for (int i = 0; i < n; i++) bytes += iov[i].iov_len;
        pd_outgoing_fill(&b->out);
        pd_outgoing_sent(&b->out, bytes, done, b);
        all += bytes;
    }
    return all;
}

TEST(a_large_payload_does_not_pass_through_the_socket)
{
    bench *b = bench_new(1);

    connect_anew(b, true);
    add(b, 30000);
    assert_int_equal(sent_bytes(b), PD_PREFIX_BYTES);
    assert_int_equal(b->out.shared_bytes, 30000);
    bench_free(b);
}

TEST(a_small_payload_passes_through_the_socket)
{
    bench *b = bench_new(1);

    connect_anew(b, true);
    add(b, 16383);
    assert_int_equal(sent_bytes(b), PD_PREFIX_BYTES + 16383);
    bench_free(b);
}

TEST(without_sharing_every_payload_passes_through_the_socket)
{
    bench *b = bench_new(1);

    connect_anew(b, false);
    add(b, 30000);
    assert_int_equal(sent_bytes(b), PD_PREFIX_BYTES + 30000);
    assert_int_equal(b->out.shared_bytes, 0);
    bench_free(b);
}

TEST(a_frame_sent_again_without_sharing_is_as_it_was_packed)
{
    bench *b = bench_new(1);
    pd_outgoing_frame *queued = b->frames[add(b, 30000)].queued;
    uint8_t before[PD_PREFIX_BYTES];

    memcpy(before, queued->head, sizeof before);
    connect_anew(b, true);
    sent_bytes(b);
    connect_anew(b, false);
    sent_bytes(b);
    assert_memory_equal(queued->head, before, sizeof before);
    bench_free(b);
}

TEST(a_payload_is_sent_through_the_socket_where_all_blocks_are_taken)
{
    bench *b = bench_new(1);
    size_t streams = 0;

    connect_anew(b, true);
    for (uint64_t i = 0; i < HOMES / HOME; i++) b->home_used[i] = true; /* all lie elsewhere */
    for (int i = 0; i < 8; i++) {
        add(b, 30000);
        streams += sent_bytes(b) > PD_PREFIX_BYTES;
    }
    assert_int_equal(streams, 8 - COPIES / 30016);
    bench_free(b);
}
