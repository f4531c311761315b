/* Tests the queue of frames that a client sends. The queue lends bytes to the sender, and learns later how many were
 * sent. These tests change the queue in between. */
#include "test.h"
#include "outgoing.h"

enum { HEAD = 16, FRAMES = 4096, IOV = 64 };

/* One frame. Bytes 0 to 7 of its head are its number, bytes 8 to 15 the length of its payload. The payload bytes are
 * computed from the number. */
typedef struct frame {
    pd_outgoing_frame *queued; /* NULL once the queue has freed the frame */
    uint8_t *payload;          /* NULL once the payload is the caller's again: freed, so that the sanitizer finds
                                * later reads */
    pd_queue queue;
    bool ended, told; /* ended: retired or removed; told: `done` was called for the frame */
    int received;     /* how often the peer received the frame on this connection */
} frame;

typedef struct bench {
    pd_outgoing out;
    frame frames[FRAMES];
    uint64_t n; /* number of frames; frame numbers start at 1 */
    struct iovec iov[IOV];
    int lent;
    /* the peer */
    uint8_t begun[HEAD];
    size_t bytes;  /* bytes received of the frame that is arriving */
    uint64_t last; /* number of the last frame received that must survive a reconnect */
} bench;

static uint8_t byte_of(uint64_t number, size_t at)
{
    return (uint8_t)(number * 31 + at * 7);
}

static bench *bench_new(void)
{
    bench *b = calloc(1, sizeof *b);

    assert_non_null(b);
    b->out.open = true;
    return b;
}

static void give_back(frame *f)
{
    free(f->payload);
    f->payload = NULL;
}

static void bench_free(bench *b)
{
    pd_outgoing_clear(&b->out);
    for (uint64_t i = 1; i <= b->n; i++) give_back(&b->frames[i]);
    free(b);
}

static uint64_t add(bench *b, pd_queue queue, uint64_t payload_bytes)
{
    uint64_t number = ++b->n;
    frame *f = &b->frames[number];
    uint8_t *head = malloc(HEAD);
    size_t half = payload_bytes / 2;
    struct iovec iov[2];

    assert_true(number < FRAMES);
    memcpy(head, &number, sizeof number);
    memcpy(head + 8, &payload_bytes, sizeof payload_bytes);
    f->payload = malloc(payload_bytes + 1);
    for (size_t i = 0; i < payload_bytes; i++) f->payload[i] = byte_of(number, i);
    iov[0] = (struct iovec){ f->payload, half };
    iov[1] = (struct iovec){ f->payload + half, payload_bytes - half };
    f->queued = pd_outgoing_frame_new(head, HEAD, NULL, 0, iov, 2);
    f->queued->id = number;
    f->queued->op = (struct pd_op *)f;
    f->queue = queue;
    assert_true(pd_outgoing_add(&b->out, f->queued, queue));
    return number;
}

static uint64_t field(const bench *b, size_t at)
{
    uint64_t value;

    memcpy(&value, b->begun + at, sizeof value);
    return value;
}

static void received(bench *b)
{
    uint64_t number = field(b, 0);
    frame *f = &b->frames[number];

    assert_int_equal(f->received++, 0);
    if (f->queue == PD_QUEUE_LASTING) {
        assert_true(number > b->last);
        b->last = number;
    }
    b->bytes = 0;
}

static void receive(bench *b, uint8_t byte)
{
    if (b->bytes < HEAD)
        b->begun[b->bytes] = byte;
    else
        assert_int_equal(byte, byte_of(field(b, 0), b->bytes - HEAD));
    b->bytes++;
    if (b->bytes >= HEAD && b->bytes == HEAD + field(b, 8)) received(b);
}

static size_t gather(bench *b, int max, size_t bytes)
{
    size_t all = 0;

    b->lent = pd_outgoing_gather(&b->out, b->iov, max, bytes);
    for (int i = 0; i < b->lent; i++) all += b->iov[i].iov_len;
    return all;
}

static void done(void *arg, pd_outgoing_frame *queued)
{
    bench *b = arg;
    frame *f = &b->frames[queued->id];

    assert_ptr_equal(queued->op, f);
    assert_true(f->ended);
    assert_false(f->told);
    f->told = true;
    f->queued = NULL;
    give_back(f);
}

/* Delivers the first n lent bytes to the peer. Reads all lent bytes, as a kernel might. */
static void sent(bench *b, size_t n)
{
    uint8_t sum = 0;

    for (int i = 0; i < b->lent; i++) {
        for (size_t k = 0; k < b->iov[i].iov_len; k++) {
            uint8_t byte = ((const uint8_t *)b->iov[i].iov_base)[k];
            sum ^= byte;
            if (n > 0) {
                receive(b, byte);
                n--;
            }
        }
    }
    (void)sum;
}

static void report(bench *b, size_t n)
{
    sent(b, n);
    pd_outgoing_sent(&b->out, n, done, b);
    b->lent = 0;
}

static void lose_connection(bench *b)
{
    pd_outgoing_rewind(&b->out, done, b);
    b->out.open = true;
    b->bytes = b->last = 0;
    b->lent = 0;
    for (uint64_t i = 1; i <= b->n; i++) {
        frame *f = &b->frames[i];
        f->received = 0;
        if (f->queue == PD_QUEUE_CONNECTION && !f->told) f->ended = true;
    }
}

static void drain(bench *b)
{
    size_t n;

    while ((n = gather(b, IOV, SIZE_MAX)) > 0) report(b, n);
    assert_false(pd_outgoing_pending(&b->out));
}

static void retire(bench *b, uint64_t number)
{
    frame *f = &b->frames[number];

    f->ended = true;
    if (!pd_outgoing_retire(&b->out, f->queued)) return;
    f->queued = NULL;
    f->told = true;
    give_back(f);
}

/* Removes a frame. Keeps its payload allocated until the test ends, since the queue may still have to send its rest. */
static void drop(bench *b, uint64_t number)
{
    frame *f = &b->frames[number];

    f->ended = f->told = true;
    pd_outgoing_remove(&b->out, f->queued);
    f->queued = NULL;
}

static void end_all(bench *b)
{
    for (uint64_t i = 1; i <= b->n; i++) b->frames[i].ended = true;
    pd_outgoing_retire_all(&b->out);
}

/* Every event, at every frame, after every possible number of sent bytes. */

enum event { RETIRE, REMOVE, RETIRE_ALL, LOSE, RETIRE_TWO, ADD_OTHER_LANE, EVENTS };
enum { RUN = 4, PAYLOAD = 6, SIZE = HEAD + PAYLOAD };

static void happen(bench *b, enum event event, uint64_t number)
{
    switch (event) {
    case RETIRE: retire(b, number); break;
    case REMOVE: drop(b, number); break;
    case RETIRE_ALL: end_all(b); break;
    case LOSE:
        retire(b, number);
        lose_connection(b);
        break;
    case RETIRE_TWO:
        retire(b, number);
        drop(b, number % RUN + 1);
        break;
    case ADD_OTHER_LANE:
        add(b, PD_QUEUE_CONNECTION, 3);
        retire(b, number);
        break;
    case EVENTS: break;
    }
}

/* Sends `gone` bytes, then lends the rest of the batch. The event happens to frame `number` while the bytes are
 * lent. Then `n` of the lent bytes are reported as sent. */
static void try_event(pd_queue queue, enum event event, uint64_t number, size_t gone, size_t n)
{
    bench *b = bench_new();
    size_t lent, complete;

    for (int i = 0; i < RUN; i++) add(b, queue, PAYLOAD);
    gather(b, IOV, SIZE_MAX);
    report(b, gone);
    lent = gather(b, IOV, SIZE_MAX);
    assert_int_equal(lent, RUN * SIZE - gone);
    if (event == LOSE) sent(b, n); /* the peer gets these bytes before the queue learns of the lost connection */
    happen(b, event, number);
    if (event != LOSE) report(b, n);
    complete = (gone + n) / SIZE;
    for (uint64_t i = 1; event != LOSE && i <= complete; i++) assert_int_equal(b->frames[i].received, 1);
    if (event == RETIRE_ALL) lose_connection(b); /* the core closes the connection after it retires all frames */
    drain(b);
    for (uint64_t i = 1; i <= b->n; i++) assert_true(b->frames[i].ended || b->frames[i].received == 1 || event == LOSE);
    if (event != LOSE && event != RETIRE_ALL) assert_int_equal(b->bytes, 0);
    if (queue == PD_QUEUE_LASTING || event != LOSE) assert_true(b->frames[number].told || queue == PD_QUEUE_CONNECTION);
    bench_free(b);
}

TEST(lent_bytes_stay_whatever_happens_before_they_are_reported)
{
    static const size_t gone[] = { 0, 1, HEAD, SIZE - 1 };

    for (pd_queue queue = 0; queue <= PD_QUEUE_LASTING; queue++)
        for (enum event event = 0; event < EVENTS; event++)
            for (uint64_t number = 1; number <= RUN; number++)
                for (size_t g = 0; g < sizeof gone / sizeof *gone; g++)
                    for (size_t n = 0; n <= RUN * SIZE - gone[g]; n++) try_event(queue, event, number, gone[g], n);
}

TEST(a_frame_retired_while_it_is_lent_is_done_when_its_last_byte_went)
{
    bench *b = bench_new();
    uint64_t number = add(b, PD_QUEUE_LASTING, 10);

    gather(b, IOV, SIZE_MAX);
    retire(b, number);
    assert_false(b->frames[number].told);
    report(b, 20);
    assert_false(b->frames[number].told); /* 20 of the frame's 26 bytes are sent: the rest must follow */
    gather(b, IOV, SIZE_MAX);
    report(b, 6);
    assert_true(b->frames[number].told);
    bench_free(b);
}

TEST(a_lent_frame_of_which_nothing_went_is_done_and_does_not_go)
{
    bench *b = bench_new();
    uint64_t first = add(b, PD_QUEUE_LASTING, 10), second = add(b, PD_QUEUE_LASTING, 10);

    gather(b, IOV, SIZE_MAX);
    retire(b, second);
    report(b, HEAD);
    assert_true(b->frames[second].told);
    assert_int_equal(gather(b, IOV, SIZE_MAX), 10);
    report(b, 10);
    assert_int_equal(b->frames[first].received, 1);
    assert_int_equal(b->frames[second].received, 0);
    bench_free(b);
}

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

/* Draws the number of a frame. Returns 0 if that frame has left the queue or has ended. */
static uint64_t draw_frame(const bench *b, uint64_t *seed)
{
    uint64_t number = b->n > 0 ? 1 + draw(seed, b->n < 12 ? b->n : 12) + (b->n < 12 ? 0 : b->n - 12) : 0;

    return number > 0 && b->frames[number].queued != NULL && !b->frames[number].ended ? number : 0;
}

static void act(bench *b, uint64_t *seed)
{
    uint64_t number = draw_frame(b, seed);

    switch (draw(seed, 6)) {
    case 0:
    case 1: add(b, draw(seed, 4) == 0 ? PD_QUEUE_CONNECTION : PD_QUEUE_LASTING, draw(seed, 40)); break;
    case 2:
        if (number > 0) retire(b, number);
        break;
    case 3:
        if (number > 0) drop(b, number);
        break;
    case 4: b->out.open = b->out.gone > 0 || draw(seed, 4) > 0; break;
    default: break;
    }
}

/* Sends all frames in the queue. Checks that each frame that was not retired or removed arrives exactly once. */
static void assert_all_arrive(bench *b)
{
    b->out.open = true;
    drain(b);
    assert_int_equal(b->bytes, 0);
    for (uint64_t i = 1; i <= b->n; i++)
        if (!b->frames[i].ended) assert_int_equal(b->frames[i].received, 1);
    for (uint64_t i = 1; i <= b->n; i++)
        if (b->frames[i].ended && b->frames[i].queue == PD_QUEUE_LASTING) assert_true(b->frames[i].told);
}

static void run_seed(uint64_t seed)
{
    bench *b = bench_new();

    for (int turn = 0; turn < 60; turn++) {
        size_t lent;
        for (uint64_t k = draw(&seed, 4); k > 0; k--) act(b, &seed);
        lent = gather(b, 1 + (int)draw(&seed, 12), 1 + draw(&seed, 120));
        for (uint64_t k = draw(&seed, 4); k > 0; k--) act(b, &seed);
        if (draw(&seed, 12) == 0)
            lose_connection(b);
        else
            report(b, draw(&seed, 3) == 0 ? lent : draw(&seed, lent + 1));
    }
    assert_all_arrive(b);
    bench_free(b);
}

TEST(any_order_of_events_keeps_frames_whole_in_order_and_once)
{
    for (uint64_t seed = 1; seed <= 3000; seed++) run_seed(seed);
}
