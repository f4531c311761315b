/* Tests the frame reader: the same bytes give the same frames, however the stream is divided into reads. */
#include <xxhash.h>

#include "test.h"
#include "frame.h"

enum { MAX_PAYLOAD = 1 << 20, MOST_BYTES = 1 << 19, MOST_SPANS = 8 };

/* The bytes of a stream of frames. */
typedef struct stream {
    uint8_t bytes[MOST_BYTES];
    size_t length;
} stream;

/* A receiver of frames. It spreads a payload over several spans, discards some spans, stalls sometimes, and keeps a
 * digest of every call that it gets. */
typedef struct listener {
    XXH64_state_t *log;
    uint8_t *landing;
    struct iovec spans[MOST_SPANS];
    size_t n_spans;
    bool discard, scatter;
    unsigned stalls_left, headers, frames;
    int header_rc, frame_rc;
} listener;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void append_frame(stream *to, uint16_t method, uint8_t flags, const void *header, size_t header_bytes,
                         const void *payload, size_t payload_bytes)
{
    pd_prefix prefix = { .version = 1,
                         .flags = flags,
                         .method = method,
                         .header_bytes = (uint32_t)header_bytes,
                         .payload_bytes = payload_bytes,
                         .request = to->length };
    struct iovec span = { (void *)(uintptr_t)payload, payload_bytes };

    if ((flags & PD_FLAG_CHECKSUM) != 0)
        assert_int_equal(pd_frame_checksum(&prefix.checksum, header, header_bytes, &span, 1), PD_OK);
    assert_true(to->length + PD_PREFIX_BYTES + header_bytes + payload_bytes <= sizeof to->bytes);
    pd_prefix_write(to->bytes + to->length, &prefix);
    memcpy(to->bytes + to->length + PD_PREFIX_BYTES, header, header_bytes);
    to->length += PD_PREFIX_BYTES + header_bytes;
    if ((flags & PD_FLAG_SHARED) != 0) return;
    memcpy(to->bytes + to->length, payload, payload_bytes);
    to->length += payload_bytes;
}

/* Appends frames of many sizes: empty, one byte, less and more than the read-ahead buffer. */
static void append_random_frames(stream *to, unsigned n, uint32_t seed)
{
    static const size_t sizes[] = { 0, 1, 39, 63, 512, 513, 4056, 4096, 5000, 20000 };
    static uint8_t noise[65536];

    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)next_random(&seed);
    for (unsigned i = 0; i < n; i++) {
        size_t header = sizes[next_random(&seed) % 10], payload = sizes[next_random(&seed) % 10];
        uint8_t flags = next_random(&seed) % 2 ? PD_FLAG_CHECKSUM : 0;
        append_frame(to, (uint16_t)i, flags, noise + next_random(&seed) % 1000, header,
                     noise + next_random(&seed) % 1000, payload);
    }
}

static int on_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    listener *l = arg;
    size_t left = (prefix->flags & PD_FLAG_SHARED) != 0 ? 0 : prefix->payload_bytes, at = 0;
    (void)header;

    if (l->header_rc != PD_OK) return l->header_rc;
    if (l->stalls_left > 0) {
        l->stalls_left--;
        return PD_UNAVAILABLE;
    }
    l->headers++;
    l->n_spans = 0;
    while (left > 0) {
        size_t part = !l->scatter || l->n_spans == MOST_SPANS - 1 ? left : left / 3; /* the last span may be empty */
        l->spans[l->n_spans] = (struct iovec){ l->discard && l->n_spans % 2 == 1 ? NULL : l->landing + at, part };
        l->n_spans++;
        at += part;
        left -= part;
    }
    *spans = l->spans;
    *n = l->n_spans;
    return PD_OK;
}

static int on_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    listener *l = arg;

    l->frames++;
    XXH64_update(l->log, &prefix->request, sizeof prefix->request);
    XXH64_update(l->log, &prefix->method, sizeof prefix->method);
    XXH64_update(l->log, header, prefix->header_bytes);
    for (size_t i = 0; prefix->payload_bytes > 0 && i < l->n_spans; i++)
        if (l->spans[i].iov_base != NULL) XXH64_update(l->log, l->spans[i].iov_base, l->spans[i].iov_len);
    return l->frame_rc;
}

typedef struct fixture {
    stream *stream;
    listener listener;
    pd_framer *framer;
} fixture;

static void set_up(fixture *f)
{
    f->stream = calloc(1, sizeof *f->stream);
    f->listener.landing = calloc(1, MAX_PAYLOAD);
    f->listener.log = XXH64_createState();
    XXH64_reset(f->listener.log, 0);
    f->framer =
        pd_framer_new(&(pd_framer_user){ .arg = &f->listener, .header = on_header, .frame = on_frame }, MAX_PAYLOAD);
}

static void tear_down(fixture *f)
{
    pd_framer_free(f->framer);
    XXH64_freeState(f->listener.log);
    free(f->listener.landing);
    free(f->stream);
}

/* Feeds the stream from byte `from` on, in reads of at most `most` bytes into at most `max` buffers of `slice` bytes.
 * Resumes the reader after a stall. */
static int feed(fixture *f, size_t from, size_t most, int max, size_t slice)
{
    struct iovec iov[8];
    int rc = PD_OK;

    while (rc == PD_OK && (from < f->stream->length || pd_framer_stalled(f->framer))) {
        if (pd_framer_stalled(f->framer)) {
            assert_int_equal(pd_framer_space(f->framer, iov, max, slice), 0);
            rc = pd_framer_resume(f->framer);
            continue;
        }
        int n = pd_framer_space(f->framer, iov, max, slice);
        size_t fed = 0, offered = 0;
        assert_in_range(n, 1, max);
        for (int i = 0; i < n; i++) {
            size_t part = iov[i].iov_len;
            assert_true(part > 0);
            offered += part;
            if (part > most - fed) part = most - fed;
            if (part > f->stream->length - from) part = f->stream->length - from;
            memcpy(iov[i].iov_base, f->stream->bytes + from, part);
            from += part;
            fed += part;
        }
        assert_true(offered <= slice);
        rc = pd_framer_fed(f->framer, fed);
    }
    return rc;
}

/* Returns the digest of all frames of the stream. The arguments say how the stream is divided into reads. */
static uint64_t digest_of(fixture *f, size_t most, int max, size_t slice)
{
    XXH64_reset(f->listener.log, 0);
    assert_int_equal(feed(f, 0, most, max, slice), PD_OK);
    assert_true(pd_framer_idle(f->framer));
    return XXH64_digest(f->listener.log);
}

FIXTURE(fixture, set_up, tear_down);

TEST(prefix_is_forty_little_endian_bytes)
{
    static const uint8_t expected[PD_PREFIX_BYTES] = { 0x50, 0x44, 0x46, 0x31, 1,    PD_FLAG_CHECKSUM,
                                                       0x02, 0x01, 0x06, 0x05, 0x04, 0x03,
                                                       0x44, 0x43, 0x42, 0x41, 0x18, 0x17,
                                                       0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
                                                       0x28, 0x27, 0x26, 0x25, 0x24, 0x23,
                                                       0x22, 0x21, 0x38, 0x37, 0x36, 0x35,
                                                       0x34, 0x33, 0x32, 0x31 };
    const pd_prefix prefix = { .version = 1,
                               .flags = PD_FLAG_CHECKSUM,
                               .method = 0x0102,
                               .header_bytes = 0x03040506,
                               .place = 0x41424344,
                               .payload_bytes = 0x1112131415161718,
                               .request = 0x2122232425262728,
                               .checksum = 0x3132333435363738 };
    uint8_t written[PD_PREFIX_BYTES];

    pd_prefix_write(written, &prefix);
    assert_memory_equal(written, expected, sizeof expected);
}

TEST(reads_back_the_prefix_it_writes)
{
    const pd_prefix prefix = { .version = 1,
                               .flags = PD_FLAG_REPLY | PD_FLAG_ERROR | PD_FLAG_CHECKSUM,
                               .method = 7,
                               .header_bytes = PD_MAX_HEADER_BYTES,
                               .payload_bytes = 1u << 20,
                               .request = UINT64_MAX,
                               .checksum = 42 };
    pd_prefix read;
    uint8_t bytes[PD_PREFIX_BYTES];

    pd_prefix_write(bytes, &prefix);
    assert_int_equal(pd_prefix_read(&read, bytes, 1u << 20, NULL), PD_OK);
    assert_int_equal(read.version, prefix.version);
    assert_int_equal(read.flags, prefix.flags);
    assert_int_equal(read.method, prefix.method);
    assert_int_equal(read.header_bytes, prefix.header_bytes);
    assert_int_equal(read.payload_bytes, prefix.payload_bytes);
    assert_int_equal(read.request, prefix.request);
    assert_int_equal(read.checksum, prefix.checksum);
}

TEST(a_prefix_that_is_shared_says_so_and_where)
{
    pd_prefix prefix = { .version = 1, .flags = PD_FLAG_ERROR, .payload_bytes = 5 }, read;
    uint8_t bytes[PD_PREFIX_BYTES];

    pd_prefix_write(bytes, &prefix);
    pd_prefix_share(bytes, true, 0x12345678);
    assert_int_equal(pd_prefix_read(&read, bytes, 1u << 20, NULL), PD_OK);
    assert_int_equal(read.flags, PD_FLAG_ERROR | PD_FLAG_SHARED);
    assert_int_equal(read.place, 0x12345678);
}

TEST(a_prefix_that_is_shared_no_more_has_the_bytes_from_before)
{
    pd_prefix prefix = { .version = 1, .flags = PD_FLAG_ERROR, .payload_bytes = 5, .request = 7 };
    uint8_t before[PD_PREFIX_BYTES], bytes[PD_PREFIX_BYTES];

    pd_prefix_write(before, &prefix);
    memcpy(bytes, before, sizeof bytes);
    pd_prefix_share(bytes, true, UINT32_MAX);
    pd_prefix_share(bytes, false, 0);
    assert_memory_equal(bytes, before, sizeof bytes);
}

/* Changes one byte of a valid prefix. Checks that it is refused with this code and that the error contains `names`. */
static void assert_refuses(size_t at, uint8_t value, int code, const char *names)
{
    pd_prefix prefix = { .version = 1, .header_bytes = 1, .payload_bytes = 1 }, read = { .request = 99 };
    uint8_t bytes[PD_PREFIX_BYTES];
    pd_error err;

    pd_prefix_write(bytes, &prefix);
    bytes[at] = value;
    assert_int_equal(pd_prefix_read(&read, bytes, 0xffff, &err), code);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.text, names));
    assert_int_equal(read.request, 99);
}

HOLDS(refuses_a_stream_that_is_not_frames, assert_refuses(0, 'G', PD_INVALID_ARGUMENT, "47 44 46 31"));
HOLDS(refuses_protocol_version_0, assert_refuses(4, 0, PD_INVALID_ARGUMENT, "version 0: this side speaks version 1"));
HOLDS(refuses_a_later_protocol_version,
      assert_refuses(4, 2, PD_INVALID_ARGUMENT, "version 2: this side speaks version 1"));
HOLDS(refuses_flags_it_does_not_know, assert_refuses(5, 16, PD_INVALID_ARGUMENT, "0x10"));
HOLDS(refuses_a_place_without_the_flag_of_shared_memory, assert_refuses(15, 1, PD_INVALID_ARGUMENT, "12 to 15"));
HOLDS(refuses_a_checksum_over_a_payload_in_shared_memory,
      assert_refuses(5, PD_FLAG_SHARED | PD_FLAG_CHECKSUM, PD_INVALID_ARGUMENT, "0x0c"));
HOLDS(refuses_a_checksum_without_its_flag, assert_refuses(39, 1, PD_INVALID_ARGUMENT, "checksum"));
HOLDS(refuses_a_header_over_64_kib, assert_refuses(10, 1, PD_RESOURCE_EXHAUSTED, "65537 bytes: at most 65536"));
HOLDS(refuses_a_payload_over_the_limit, assert_refuses(18, 1, PD_RESOURCE_EXHAUSTED, "65537 bytes: at most 65535"));
HOLDS(refuses_a_payload_length_of_all_ones, assert_refuses(23, 0xff, PD_RESOURCE_EXHAUSTED, "at most 65535"));

TEST(reads_the_same_frames_in_any_portions, fixture *f)
{
    static const size_t portions[] = { 1, 2, 7, 39, 40, 41, 100, 4095, 4096, 4097, 65536, MOST_BYTES };

    append_random_frames(f->stream, 12, 7);
    uint64_t expected = digest_of(f, MOST_BYTES, 8, MOST_BYTES);
    assert_int_equal(f->listener.frames, 12);
    for (size_t i = 0; i < sizeof portions / sizeof *portions; i++)
        for (int max = 1; max <= 4; max++) assert_int_equal(digest_of(f, portions[i], max, 65536), expected);
}

/* The header of a frame whose payload lies in shared memory is followed by the next frame. */
TEST(reads_no_payload_of_a_frame_in_shared_memory, fixture *f)
{
    static const size_t portions[] = { 1, 2, 7, 39, 40, 41, 100, MOST_BYTES };

    append_frame(f->stream, 1, PD_FLAG_SHARED, "header", 6, "", 70000);
    append_frame(f->stream, 2, PD_FLAG_CHECKSUM, "h", 1, "a payload", 9);
    append_frame(f->stream, 3, PD_FLAG_SHARED, "", 0, "", 1);
    append_frame(f->stream, 4, 0, "", 0, "", 0);
    for (size_t i = 0; i < sizeof portions / sizeof *portions; i++) {
        f->listener.frames = 0;
        digest_of(f, portions[i], 4, 65536);
        assert_int_equal(f->listener.frames, 4);
    }
}

TEST(reads_the_same_frames_from_every_cut_in_two, fixture *f)
{
    append_frame(f->stream, 1, PD_FLAG_CHECKSUM, "header", 6, "a payload", 9);
    append_frame(f->stream, 2, 0, "", 0, "", 0);
    append_frame(f->stream, 3, 0, "h", 1, "and another one", 15);
    uint64_t expected = digest_of(f, MOST_BYTES, 4, 65536);
    for (size_t cut = 1; cut < f->stream->length; cut++) {
        size_t whole = f->stream->length;
        XXH64_reset(f->listener.log, 0);
        f->stream->length = cut;
        assert_int_equal(feed(f, 0, cut, 4, 65536), PD_OK);
        f->stream->length = whole;
        assert_int_equal(feed(f, cut, MOST_BYTES, 4, 65536), PD_OK);
        assert_int_equal(XXH64_digest(f->listener.log), expected);
    }
}

TEST(reads_the_same_frames_with_any_spans_and_stalls, fixture *f)
{
    uint32_t random = 3;

    append_random_frames(f->stream, 12, 11);
    uint64_t expected = digest_of(f, MOST_BYTES, 8, MOST_BYTES);
    f->listener.scatter = true;
    for (int round = 0; round < 40; round++) {
        f->listener.stalls_left = next_random(&random) % 20;
        size_t most = 1 + next_random(&random) % 6000, slice = 1 + next_random(&random) % 9000;
        assert_int_equal(digest_of(f, most, 1 + (int)(next_random(&random) % 4), slice), expected);
    }
}

TEST(discards_bytes_without_a_place_and_still_checks_them, fixture *f)
{
    append_random_frames(f->stream, 12, 13);
    f->listener.discard = f->listener.scatter = true;
    uint64_t expected = digest_of(f, MOST_BYTES, 8, MOST_BYTES);
    for (size_t most = 1; most < 9000; most = most * 3 + 1) assert_int_equal(digest_of(f, most, 3, 65536), expected);
}

TEST(large_payloads_land_without_a_copy, fixture *f)
{
    struct iovec iov[2];

    append_frame(f->stream, 3, 0, "h", 1, f->listener.landing, 100000);
    f->stream->length = PD_PREFIX_BYTES + 1;
    assert_int_equal(feed(f, 0, MOST_BYTES, 1, 65536), PD_OK);
    assert_int_equal(pd_framer_space(f->framer, iov, 2, 65536), 1);
    assert_ptr_equal(iov[0].iov_base, f->listener.landing);
    assert_int_equal(iov[0].iov_len, 65536);
}

/* Feeds the prefix and the header of a frame with 100,000 bytes of payload, and 1,000 bytes of that. */
static void begin_large_frame(fixture *f, uint8_t flags)
{
    append_frame(f->stream, 3, flags, "h", 1, f->listener.landing, 100000);
    f->stream->length = PD_PREFIX_BYTES + 1 + 1000;
    assert_int_equal(feed(f, 0, MOST_BYTES, 1, 65536), PD_OK);
}

TEST(a_payload_may_be_received_by_another_thread, fixture *f)
{
    struct iovec span;

    begin_large_frame(f, 0);
    assert_true(pd_framer_lends(f->framer, &span, 5000));
    assert_ptr_equal(span.iov_base, f->listener.landing + 1000);
    assert_int_equal(span.iov_len, 5000);
    assert_int_equal(pd_framer_fed(f->framer, 5000), PD_OK);
    assert_true(pd_framer_lends(f->framer, &span, MOST_BYTES));
    assert_ptr_equal(span.iov_base, f->listener.landing + 6000);
    assert_int_equal(span.iov_len, 94000);
    assert_int_equal(pd_framer_fed(f->framer, 94000), PD_OK);
    assert_int_equal(f->listener.frames, 1);
}

TEST(bytes_that_the_framer_must_see_are_received_by_no_other_thread, fixture *f)
{
    struct iovec span;

    assert_false(pd_framer_lends(f->framer, &span, MOST_BYTES)); /* between frames */
    begin_large_frame(f, PD_FLAG_CHECKSUM);
    assert_false(pd_framer_lends(f->framer, &span, MOST_BYTES));
}

TEST(bytes_that_are_discarded_are_received_by_no_other_thread, fixture *f)
{
    struct iovec span;

    f->listener.discard = f->listener.scatter = true;
    begin_large_frame(f, 0);
    assert_true(pd_framer_lends(f->framer, &span, MOST_BYTES)); /* the first of the spans, the next one is discarded */
    assert_int_equal(span.iov_len, 100000 / 3 - 1000);
    assert_int_equal(pd_framer_fed(f->framer, span.iov_len), PD_OK);
    assert_false(pd_framer_lends(f->framer, &span, MOST_BYTES));
}

TEST(small_frames_that_come_together_take_one_read, fixture *f)
{
    struct iovec iov[1];

    for (int i = 0; i < 20; i++) append_frame(f->stream, 7, 0, "beat", 4, "", 0);
    assert_int_equal(pd_framer_space(f->framer, iov, 1, 65536), 1);
    assert_true(iov[0].iov_len >= f->stream->length);
    memcpy(iov[0].iov_base, f->stream->bytes, f->stream->length);
    assert_int_equal(pd_framer_fed(f->framer, f->stream->length), PD_OK);
    assert_int_equal(f->listener.frames, 20);
}

TEST(a_stalled_frame_waits_with_all_later_bytes, fixture *f)
{
    struct iovec iov[1];

    append_frame(f->stream, 1, 0, "h", 1, "payload", 7);
    append_frame(f->stream, 2, 0, "h", 1, "", 0);
    f->listener.stalls_left = 2;
    pd_framer_space(f->framer, iov, 1, 65536);
    memcpy(iov[0].iov_base, f->stream->bytes, f->stream->length);
    assert_int_equal(pd_framer_fed(f->framer, f->stream->length), PD_OK);
    assert_true(pd_framer_stalled(f->framer));
    assert_false(pd_framer_idle(f->framer));
    assert_int_equal(pd_framer_resume(f->framer), PD_OK);
    assert_true(pd_framer_stalled(f->framer));
    assert_int_equal(f->listener.frames, 0);
    assert_int_equal(pd_framer_resume(f->framer), PD_OK);
    assert_int_equal(f->listener.frames, 2);
    assert_true(pd_framer_idle(f->framer));
}

TEST(a_stream_that_ends_inside_a_frame_was_cut, fixture *f)
{
    append_frame(f->stream, 1, 0, "h", 1, "payload", 7);
    size_t whole = f->stream->length;
    for (size_t i = 0; i < whole; i++) {
        assert_int_equal(pd_framer_idle(f->framer), i == 0);
        f->stream->length = i + 1;
        assert_int_equal(feed(f, i, 1, 1, 65536), PD_OK);
    }
    assert_true(pd_framer_idle(f->framer));
}

TEST(every_flipped_bit_breaks_the_checksum_or_the_prefix, fixture *f)
{
    append_frame(f->stream, 3, PD_FLAG_CHECKSUM, "head", 4, "payload", 7);
    for (size_t i = PD_PREFIX_BYTES - 8; i < f->stream->length; i++) {
        pd_framer *framer = pd_framer_new(
            &(pd_framer_user){ .arg = &f->listener, .header = on_header, .frame = on_frame }, MAX_PAYLOAD);
        pd_framer *kept = f->framer;
        f->framer = framer;
        f->stream->bytes[i] ^= 0x10;
        assert_int_equal(feed(f, 0, MOST_BYTES, 2, 65536), PD_DATA_LOSS);
        assert_non_null(strstr(pd_framer_error(framer)->text, "checksum"));
        f->stream->bytes[i] ^= 0x10;
        f->framer = kept;
        pd_framer_free(framer);
    }
    assert_int_equal(f->listener.frames, 0);
}

TEST(an_error_is_final, fixture *f)
{
    struct iovec iov[1];

    append_frame(f->stream, 1, 0, "h", 1, "", 0);
    append_frame(f->stream, 2, 0, "h", 1, "", 0);
    f->listener.frame_rc = PD_PERMISSION_DENIED;
    assert_int_equal(feed(f, 0, MOST_BYTES, 1, 65536), PD_PERMISSION_DENIED);
    assert_int_equal(f->listener.frames, 1);
    assert_int_equal(pd_framer_error(f->framer)->code, PD_PERMISSION_DENIED);
    assert_int_equal(pd_framer_space(f->framer, iov, 1, 65536), 0);
    assert_int_equal(pd_framer_fed(f->framer, 0), PD_PERMISSION_DENIED);
    assert_int_equal(pd_framer_resume(f->framer), PD_PERMISSION_DENIED);
}

TEST(a_header_that_is_refused_ends_the_stream_before_its_payload, fixture *f)
{
    append_frame(f->stream, 1, 0, "h", 1, "payload", 7);
    f->listener.header_rc = PD_RESOURCE_EXHAUSTED;
    assert_int_equal(feed(f, 0, MOST_BYTES, 1, 65536), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(f->listener.frames, 0);
}

TEST(largest_header_arrives_whole, fixture *f)
{
    uint8_t *header = malloc(PD_MAX_HEADER_BYTES);

    memset(header, 'x', PD_MAX_HEADER_BYTES);
    append_frame(f->stream, 1, PD_FLAG_CHECKSUM, header, PD_MAX_HEADER_BYTES, "", 0);
    uint64_t expected = digest_of(f, MOST_BYTES, 4, 65536);
    assert_int_equal(digest_of(f, 1, 1, 65536), expected);
    free(header);
}

TEST(without_memory_there_is_no_framer, fixture *f)
{
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        oom_arm(n);
        pd_framer *framer = pd_framer_new(
            &(pd_framer_user){ .arg = &f->listener, .header = on_header, .frame = on_frame }, MAX_PAYLOAD);
        failed = oom_disarm();
        assert_int_equal(framer == NULL, failed);
        pd_framer_free(framer);
    }
}

TEST(without_memory_for_a_header_the_stream_ends, fixture *f)
{
    struct iovec iov[1];

    append_frame(f->stream, 1, 0, f->listener.landing, 5000, "", 0);
    pd_framer_space(f->framer, iov, 1, 65536);
    memcpy(iov[0].iov_base, f->stream->bytes, iov[0].iov_len);
    oom_arm(0);
    int rc = pd_framer_fed(f->framer, iov[0].iov_len);
    assert_true(oom_disarm());
    assert_int_equal(rc, PD_NO_MEMORY);
    assert_int_equal(pd_framer_error(f->framer)->code, PD_NO_MEMORY);
    assert_int_equal(f->listener.frames, 0);
}

TEST(frames_without_large_headers_need_no_memory, fixture *f)
{
    int64_t before = oom_allocations();

    append_frame(f->stream, 1, PD_FLAG_CHECKSUM, f->listener.landing, 512, f->listener.landing, 100000);
    assert_int_equal(feed(f, 0, MOST_BYTES, 2, 65536), PD_OK);
    assert_int_equal(f->listener.frames, 1);
    assert_int_equal(oom_allocations(), before);
}
