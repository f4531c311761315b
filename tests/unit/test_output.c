/* Tests which bytes are written to a connection, in which order and at which offsets. */
#include "test.h"
#include "output.h"

enum { MOST = 1 << 20, ELEMENTS = 1000 };

/* An output queue, a version table that counts released published versions, and the bytes that the peer has
 * received. */
typedef struct scene {
    pd_output output;
    pd_version_table *versions;
    pd_reply_scratch scratch;
    pd_published published;
    float weights[ELEMENTS];
    uint16_t halves[ELEMENTS];
    int released;
    uint64_t now_ms;
    uint8_t stream[MOST];
    size_t n;
} scene;

static void on_released(void *arg, pd_published *published)
{
    scene *s = arg;
    (void)published;
    s->released++;
}

static void set_up(scene *s)
{
    s->versions = pd_version_table_new(&(pd_version_table_user){ .arg = s, .released = on_released });
    assert_int_equal(pd_reply_scratch_init(&s->scratch, 16), PD_OK);
    for (int i = 0; i < ELEMENTS; i++) {
        s->weights[i] = (float)i;
        s->halves[i] = (uint16_t)i;
    }
    s->published = (pd_published){ .elements = ELEMENTS, .at = { [PD_F32] = s->weights, [PD_F16] = s->halves } };
}

static void tear_down(scene *s)
{
    assert_null(pd_output_clear(&s->output));
    pd_reply_scratch_free(&s->scratch);
    pd_version_table_free(s->versions);
}

static void queue_frame(scene *s, uint64_t id)
{
    Paramd__Ok ok = PARAMD__OK__INIT;
    uint8_t *at;
    size_t bytes;

    assert_int_equal(pd_frame_pack(&at, &bytes, PD_BARRIER, PD_FLAG_REPLY, id, &ok.base, NULL, 0, 0), PD_OK);
    assert_int_equal(pd_output_frame(&s->output, at, bytes), PD_OK);
}

static pd_pendings table = { .key = 1 }; /* gives every reply a serial number; otherwise unused */

static pd_pending *new_reply(uint64_t id, size_t n)
{
    pd_pending *reply = pd_pending_new(&table, NULL, &(pd_prefix){ .request = id, .method = PD_PULL }, n);
    assert_non_null(reply);
    return reply;
}

static void fill(scene *s, pd_pending *reply, size_t i, pd_dtype dtype, int64_t first, int64_t count)
{
    pd_waiter *piece = &reply->wait.at[i];

    piece->pulls = true;
    piece->dtype = dtype;
    piece->first = first;
    piece->count = count;
    piece->step = 7;
    piece->version = 6;
    piece->published = &s->published;
    s->published.version_refs++;
}

static void queue_reply(scene *s, uint64_t id)
{
    pd_pending *reply = new_reply(id, 1);

    fill(s, reply, 0, PD_F32, 0, ELEMENTS);
    pd_output_reply(&s->output, reply);
}

/* Sends at most `slice` bytes. Returns whether a frame ended with them. */
static bool send_slice(scene *s, size_t slice)
{
    struct iovec iov[4];
    pd_pending *done;
    size_t n = 0;
    int spans;
    bool ended;

    assert_int_equal(pd_output_next(&s->output, &s->scratch, iov, 4, slice, &spans), PD_OK);
    for (int i = 0; i < spans; i++) {
        memcpy(s->stream + s->n, iov[i].iov_base, iov[i].iov_len);
        s->n += iov[i].iov_len;
        n += iov[i].iov_len;
    }
    assert_true(n > 0 && n <= slice);
    ended = pd_output_sent(&s->output, s->versions, n, s->now_ms, &done);
    pd_pending_free(done);
    return ended;
}

static void send_all(scene *s, size_t slice)
{
    while (!pd_output_empty(&s->output)) send_slice(s, slice);
}

/* Reads the frame at offset *at of the received bytes and moves *at behind it. */
static pd_prefix read_frame(const scene *s, size_t *at, const uint8_t **payload)
{
    pd_prefix prefix;

    assert_true(*at + PD_PREFIX_BYTES <= s->n);
    assert_int_equal(pd_prefix_read(&prefix, s->stream + *at, MOST, NULL), PD_OK);
    *payload = s->stream + *at + PD_PREFIX_BYTES + prefix.header_bytes;
    *at += PD_PREFIX_BYTES + prefix.header_bytes + prefix.payload_bytes;
    assert_true(*at <= s->n);
    return prefix;
}

static void expect_ids(const scene *s, const uint64_t *ids, size_t n)
{
    const uint8_t *payload;
    size_t at = 0;

    for (size_t i = 0; i < n; i++) assert_int_equal(read_frame(s, &at, &payload).request, ids[i]);
    assert_int_equal(at, s->n);
}

FIXTURE(scene, set_up, tear_down);

TEST(control_goes_before_data_but_never_into_a_frame, scene *s)
{
    queue_reply(s, 1);
    queue_reply(s, 2);
    assert_false(send_slice(s, 100)); /* the first reply is partly sent */
    queue_frame(s, 3);
    assert_true(pd_output_beat(&s->output, &(pd_prefix){ .request = 4 }));
    send_all(s, 1000);
    expect_ids(s, (const uint64_t[]){ 1, 4, 3, 2 }, 4);
}

TEST(pieces_stand_at_multiples_of_64_in_any_slices, scene *s)
{
    for (size_t slice = 1; slice < 5000; slice = slice * 3 + 1) {
        pd_pending *reply = new_reply(9, 4);
        const uint8_t *payload;
        size_t at = 0;
        pd_prefix prefix;
        fill(s, reply, 0, PD_F32, 0, 3);   /* piece 0: 12 bytes, then padding */
        fill(s, reply, 2, PD_F16, 10, 64); /* piece 1 has no bytes; piece 2: 128 bytes, no padding */
        fill(s, reply, 3, PD_F16, 500, 5);
        pd_output_reply(&s->output, reply);
        s->n = 0;
        send_all(s, slice);
        prefix = read_frame(s, &at, &payload);
        assert_int_equal(at, s->n);
        assert_int_equal(prefix.payload_bytes, 64 + 128 + 10);
        assert_memory_equal(payload, s->weights, 12);
        for (int i = 12; i < 64; i++) assert_int_equal(payload[i], 0);
        assert_memory_equal(payload + 64, s->halves + 10, 128);
        assert_memory_equal(payload + 192, s->halves + 500, 10);
    }
}

TEST(outcomes_are_in_the_header, scene *s)
{
    pd_pending *reply = new_reply(5, 2);
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    Paramd__DataReply *message;
    pd_prefix prefix;

    fill(s, reply, 0, PD_F32, 0, 1);
    fill(s, reply, 1, PD_F32, 1, 1);
    reply->wait.at[1].outcome = PD_SKIPPED;
    pd_output_reply(&s->output, reply);
    send_all(s, 65536);
    assert_int_equal(pd_prefix_read(&prefix, s->stream, MOST, NULL), PD_OK);
    assert_int_equal(
        pd_reply_unpack(arena, PD_PULL, s->stream + PD_PREFIX_BYTES, prefix.header_bytes, (void **)&message, NULL),
        PD_OK);
    assert_int_equal(message->n_outcomes, 2);
    assert_int_equal(message->outcomes[0]->outcome, 0);
    assert_int_equal(message->outcomes[0]->step, 7);
    assert_int_equal(message->outcomes[0]->version, 6);
    assert_int_equal(message->outcomes[1]->outcome, PD_SKIPPED);
    pd_arena_free(arena);
}

TEST(reasons_are_told_once_and_as_many_as_there_is_room_for, scene *s)
{
    enum { PIECES = 16, LONG = 600, MOST_TOLD = 4096 / LONG };
    pd_pending *reply = new_reply(5, PIECES);
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    Paramd__DataReply *message;
    pd_prefix prefix;

    for (size_t i = 0; i < PIECES; i++) {
        char text[LONG + 1];
        memset(text, (int)('a' + i / 2), LONG);
        text[LONG] = '\0';
        reply->wait.at[i].outcome = PD_REFUSED;
        reply->wait.at[i].why = i == 3 ? NULL : pd_reason_new(text);
    }
    pd_output_reply(&s->output, reply);
    send_all(s, 65536);
    assert_int_equal(pd_prefix_read(&prefix, s->stream, MOST, NULL), PD_OK);
    assert_int_equal(
        pd_reply_unpack(arena, PD_PULL, s->stream + PD_PREFIX_BYTES, prefix.header_bytes, (void **)&message, NULL),
        PD_OK);
    for (size_t i = 0; i < PIECES; i++) {
        size_t length = strlen(message->outcomes[i]->why);
        assert_int_equal(length, i % 2 == 0 && i / 2 < MOST_TOLD ? LONG : 0);
        assert_true(length == 0 || message->outcomes[i]->why[0] == (char)('a' + i / 2));
    }
    pd_arena_free(arena);
}

/* Makes the scalar means of a closed round: n scalars, of which number k has the mean first + k. */
static pd_scalar_means *means(size_t n, double first)
{
    pd_scalar_means *made = calloc(1, sizeof *made);

    made->refs = 1;
    made->n = n;
    for (size_t k = 0; k < n; k++) {
        memset(made->at[k].name, (int)('a' + k), PD_SCALAR_NAME_MAX);
        made->at[k].mean = first + (double)k;
        made->at[k].weight = 2;
    }
    return made;
}

/* The reply has 9 pieces. Pieces 0 and 1 share the scalars of one round. Piece 2 has no scalars. Each later piece
 * has a round of its own with the most scalars that a round may have. */
TEST(scalars_are_told_once_and_as_many_as_there_is_room_for, scene *s)
{
    enum { PIECES = 9, FULL = PD_REPLY_SCALARS / PD_MAX_SCALARS };
    pd_pending *reply = new_reply(5, PIECES);
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    Paramd__DataReply *message;
    pd_prefix prefix;

    for (size_t i = 0; i < PIECES; i++)
        if (i != 1 && i != 2) reply->wait.at[i].scalars = means(PD_MAX_SCALARS, 100.0 * (double)i);
    reply->wait.at[1].scalars = reply->wait.at[0].scalars;
    reply->wait.at[1].scalars->refs++;
    pd_output_reply(&s->output, reply);
    send_all(s, 65536);
    assert_int_equal(pd_prefix_read(&prefix, s->stream, MOST, NULL), PD_OK);
    assert_int_equal(
        pd_reply_unpack(arena, PD_PULL, s->stream + PD_PREFIX_BYTES, prefix.header_bytes, (void **)&message, NULL),
        PD_OK);
    assert_int_equal(message->outcomes[0]->n_scalars, PD_MAX_SCALARS);
    for (size_t i = 1; i < PIECES; i++) {
        const Paramd__Outcome *outcome = message->outcomes[i];
        assert_int_equal(outcome->n_scalars, i >= 3 && i < 3 + FULL - 1 ? PD_MAX_SCALARS : 0);
        for (size_t k = 0; k < outcome->n_scalars; k++) {
            assert_int_equal(strlen(outcome->scalars[k]->name), PD_SCALAR_NAME_MAX);
            assert_int_equal(outcome->scalars[k]->name[7], 'a' + k);
            assert_true(outcome->scalars[k]->value == 100.0 * (double)i + (double)k &&
                        outcome->scalars[k]->weight == 2);
        }
    }
    pd_arena_free(arena);
}

TEST(a_reply_has_no_scalars_of_the_one_before, scene *s)
{
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    Paramd__DataReply *message;
    const uint8_t *payload;
    size_t at = 0, header;
    pd_prefix prefix;

    for (int i = 0; i < 2; i++) {
        pd_pending *reply = new_reply(5, 1);
        if (i == 0) reply->wait.at[0].scalars = means(3, 1);
        pd_output_reply(&s->output, reply);
    }
    send_all(s, 65536);
    for (size_t i = 0; i < 2; i++) {
        header = at + PD_PREFIX_BYTES;
        prefix = read_frame(s, &at, &payload);
        pd_arena_reset(arena);
        assert_int_equal(
            pd_reply_unpack(arena, PD_PULL, s->stream + header, prefix.header_bytes, (void **)&message, NULL), PD_OK);
        assert_int_equal(message->outcomes[0]->n_scalars, i == 0 ? 3 : 0);
    }
    pd_arena_free(arena);
}

TEST(weights_are_let_go_as_they_are_written, scene *s)
{
    pd_pending *reply = new_reply(5, 2);

    fill(s, reply, 0, PD_F32, 0, 16);
    fill(s, reply, 1, PD_F32, 16, 16);
    pd_output_reply(&s->output, reply);
    while (s->published.version_refs == 2) send_slice(s, 16);
    assert_int_equal(s->published.version_refs, 1);
    assert_false(pd_output_empty(&s->output));
    send_all(s, 16);
    assert_int_equal(s->published.version_refs, 0);
    assert_int_equal(s->released, 1);
}

TEST(a_reply_without_weights_is_a_header_alone, scene *s)
{
    const uint8_t *payload;
    size_t at = 0;

    pd_output_reply(&s->output, new_reply(8, 3));
    send_all(s, 65536);
    assert_int_equal(read_frame(s, &at, &payload).payload_bytes, 0);
}

TEST(a_checksum_covers_header_and_weights, scene *s)
{
    pd_pending *reply = new_reply(6, 2);
    const uint8_t *payload;
    uint64_t checksum;
    size_t at = 0;
    pd_prefix prefix;

    fill(s, reply, 0, PD_F32, 5, 33);
    fill(s, reply, 1, PD_F16, 5, 33);
    reply->checksum = true;
    pd_output_reply(&s->output, reply);
    send_all(s, 77);
    prefix = read_frame(s, &at, &payload);
    assert_true((prefix.flags & PD_FLAG_CHECKSUM) != 0);
    assert_int_equal(pd_frame_checksum(&checksum, payload - prefix.header_bytes, prefix.header_bytes,
                                       &(struct iovec){ (void *)payload, prefix.payload_bytes }, 1),
                     PD_OK);
    assert_true(prefix.checksum == checksum);
}

TEST(a_heartbeat_with_a_checksum_is_answered_with_one, scene *s)
{
    const uint8_t *payload;
    size_t at = 0;
    uint64_t checksum;
    pd_prefix prefix;

    assert_true(pd_output_beat(&s->output, &(pd_prefix){ .request = 4, .flags = PD_FLAG_CHECKSUM }));
    send_all(s, 65536);
    prefix = read_frame(s, &at, &payload);
    assert_int_equal(prefix.flags, PD_FLAG_REPLY | PD_FLAG_CHECKSUM);
    assert_int_equal(pd_frame_checksum(&checksum, "", 0, NULL, 0), PD_OK);
    assert_true(prefix.checksum == checksum);
}

TEST(owes_a_bounded_number_of_heartbeats, scene *s)
{
    uint64_t ids[PD_BEATS];

    for (int i = 0; i < PD_BEATS; i++)
        assert_true(pd_output_beat(&s->output, &(pd_prefix){ .request = ids[i] = (uint64_t)i + 10 }));
    assert_false(pd_output_beat(&s->output, &(pd_prefix){ .request = 99 }));
    send_all(s, 65536);
    expect_ids(s, ids, PD_BEATS);
}

TEST(clearing_gives_the_replies_back, scene *s)
{
    pd_pending *reply, *next;
    int n = 0;

    queue_reply(s, 1);
    queue_reply(s, 2);
    queue_frame(s, 3);
    send_slice(s, 10); /* the control frame 3 is partly sent */
    send_all(s, 65536);
    queue_reply(s, 4);
    queue_reply(s, 5);
    send_slice(s, 10);
    queue_frame(s, 6);
    for (reply = pd_output_clear(&s->output); reply != NULL; reply = next, n++) {
        next = reply->next_reply;
        pd_version_table_forget(s->versions, &reply->wait);
        pd_pending_free(reply);
    }
    assert_int_equal(n, 2);
    assert_int_equal(s->published.version_refs, 0);
    assert_true(pd_output_empty(&s->output));
}
