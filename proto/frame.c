/* frame.c - cuts the bytes of a stream into frames, and checks their prefixes and checksums. */
#include "frame.h"

#include "hash.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { STAGE_BYTES = 4096, FIRST_HEADER_BYTES = 512 };
enum { KNOWN_FLAGS = PD_FLAG_REPLY | PD_FLAG_ERROR | PD_FLAG_CHECKSUM | PD_FLAG_SHARED };

typedef enum state { AT_PREFIX, AT_HEADER, AT_DECISION, AT_PAYLOAD, STALLED, FAILED } state;

/* A framer: the state of reading one stream of frames.
 *
 * `stage` has bytes that were read, but not used yet. In state AT_PREFIX these are the first bytes of a prefix.
 * Whenever the framer needs more bytes of a header or payload, `stage` is empty. */
struct pd_framer {
    pd_framer_user user;
    uint64_t max_payload;
    state state;
    pd_prefix prefix; /* prefix of the frame that is being read, from state AT_HEADER on */
    uint8_t *header;
    size_t header_at, header_capacity; /* header_at: number of header bytes that were read. header_capacity: bytes of
                                        * memory for the header; it grows with the bytes that were read, not with the
                                        * length that the peer announces */
    struct iovec *spans;               /* the user's memory for the payload, from state AT_PAYLOAD on */
    /* the next byte of the payload goes into the span of memory spans[span], at offset span_at */
    size_t n_spans, span, span_at;
    uint64_t payload_left;
    XXH3_state_t *hash; /* the checksum of the frame's bytes so far; used only if the frame has a checksum */
    size_t staged;      /* number of bytes in `stage` that are not used yet; they begin at index `begin` */
    size_t begin;
    pd_error error;
    uint8_t stage[STAGE_BYTES]; /* buffer for prefixes, for bytes that are read ahead, and for payload that is thrown
                                 * away */
};

static void put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void pd_prefix_write(uint8_t out[PD_PREFIX_BYTES], const pd_prefix *prefix)
{
    put(out, PD_FRAME_MAGIC, 4);
    put(out + 4, prefix->version, 1);
    put(out + 5, prefix->flags, 1);
    put(out + 6, prefix->method, 2);
    put(out + 8, prefix->header_bytes, 4);
    put(out + 12, prefix->place, 4);
    put(out + 16, prefix->payload_bytes, 8);
    put(out + 24, prefix->request, 8);
    put(out + 32, prefix->checksum, 8);
}

void pd_prefix_share(uint8_t prefix[PD_PREFIX_BYTES], bool shared, uint32_t place)
{
    prefix[5] = (uint8_t)((prefix[5] & ~PD_FLAG_SHARED) | (shared ? PD_FLAG_SHARED : 0));
    put(prefix + 12, place, 4);
}

int pd_prefix_read(pd_prefix *out, const uint8_t in[PD_PREFIX_BYTES], uint64_t max_payload, pd_error *err)
{
    pd_prefix prefix = {
        .version = in[4],
        .flags = in[5],
        .method = (uint16_t)get(in + 6, 2),
        .header_bytes = (uint32_t)get(in + 8, 4),
        .place = (uint32_t)get(in + 12, 4),
        .payload_bytes = get(in + 16, 8),
        .request = get(in + 24, 8),
        .checksum = get(in + 32, 8),
    };

    if (in[0] == 0x16 && in[1] == 3) /* the first bytes of a TLS handshake */
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "this address does not use TLS: connect to tcp://host:port, or let the daemon listen on "
                       "tls://host:port");
    if (get(in, 4) != PD_FRAME_MAGIC)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "expected a frame, which begins with the bytes 50 44 46 31 "
                       "(\"PDF1\"), got %02x %02x %02x %02x: is this another protocol?",
                       in[0], in[1], in[2], in[3]);
    if (prefix.version != PD_PROTOCOL_VERSION)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "frame of protocol version %u: this side speaks version %d. Send "
                       "Hello in a frame of version 1; its field `protocol` tells the highest version that you speak",
                       prefix.version, PD_PROTOCOL_VERSION);
    if ((prefix.flags & ~KNOWN_FLAGS) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "frame flags 0x%02x: only 0x%02x are known", prefix.flags,
                       KNOWN_FLAGS);
    if (prefix.place != 0 && (prefix.flags & PD_FLAG_SHARED) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "bytes 12 to 15 of a frame's prefix must be 0 without the flag 0x%02x",
                       PD_FLAG_SHARED);
    if ((prefix.flags & PD_FLAG_SHARED) != 0 && (prefix.flags & PD_FLAG_CHECKSUM) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "frame flags 0x%02x: a payload in shared memory has no checksum",
                       prefix.flags);
    if (prefix.checksum != 0 && (prefix.flags & PD_FLAG_CHECKSUM) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "frame has a checksum but not the flag 0x%02x that says so",
                       PD_FLAG_CHECKSUM);
    if (prefix.header_bytes > PD_MAX_HEADER_BYTES)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "frame header of %" PRIu32 " bytes: at most %d are allowed",
                       prefix.header_bytes, PD_MAX_HEADER_BYTES);
    if (prefix.payload_bytes > max_payload)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "frame payload of %" PRIu64 " bytes: at most "
                       "%" PRIu64 " are allowed here",
                       prefix.payload_bytes, max_payload);
    *out = prefix;
    return PD_OK;
}

int pd_frame_checksum(uint64_t *out, const void *header, size_t header_bytes, const struct iovec *spans, size_t n)
{
    XXH3_state_t *hash;

    if (n == 0) {
        *out = XXH3_64bits(header, header_bytes);
        return PD_OK;
    }
    if ((hash = XXH3_createState()) == NULL) return PD_NO_MEMORY;
    XXH3_64bits_reset(hash);
    XXH3_64bits_update(hash, header, header_bytes);
    for (size_t i = 0; i < n; i++) XXH3_64bits_update(hash, spans[i].iov_base, spans[i].iov_len);
    *out = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return PD_OK;
}

pd_framer *pd_framer_new(const pd_framer_user *user, uint64_t max_payload)
{
    pd_framer *framer = calloc(1, sizeof *framer);

    if (framer == NULL) return NULL;
    framer->user = *user;
    framer->max_payload = max_payload;
    framer->header_capacity = FIRST_HEADER_BYTES;
    framer->header = malloc(FIRST_HEADER_BYTES);
    framer->hash = XXH3_createState();
    if (framer->header == NULL || framer->hash == NULL) {
        pd_framer_free(framer);
        return NULL;
    }
    return framer;
}

void pd_framer_free(pd_framer *framer)
{
    if (framer == NULL) return;
    XXH3_freeState(framer->hash);
    free(framer->header);
    free(framer);
}

static int failed(pd_framer *framer, int rc)
{
    if (framer->error.code != rc) pd_fail(&framer->error, rc, "%s", pd_code_text(rc));
    framer->state = FAILED;
    return rc;
}

static void hash_bytes(pd_framer *framer, const void *at, size_t n)
{
    if ((framer->prefix.flags & PD_FLAG_CHECKSUM) != 0 && n > 0) XXH3_64bits_update(framer->hash, at, n);
}

static size_t least(size_t a, uint64_t b)
{
    return b < a ? (size_t)b : a;
}

/* Fills iov with the places in memory for the next bytes of the payload, at most `slice` bytes. Bytes that are to be
 * discarded are read into framer->stage, and the list ends there. Returns the number of places; *offered gets their
 * total number of bytes. */
static int payload_space(pd_framer *framer, struct iovec *iov, int max, size_t slice, size_t *offered)
{
    int n = 0;

    *offered = 0;
    for (size_t i = framer->span, at = framer->span_at; i < framer->n_spans && n < max && *offered < slice;
         i++, at = 0) {
        uint8_t *base = framer->spans[i].iov_base;
        size_t room = least(framer->spans[i].iov_len - at, slice - *offered);

        if (room == 0) continue;
        if (base == NULL) room = least(room, STAGE_BYTES);
        iov[n].iov_base = base != NULL ? base + at : framer->stage;
        iov[n++].iov_len = room;
        *offered += room;
        if (base == NULL) break;
    }
    return n;
}

bool pd_framer_lends(const pd_framer *framer, struct iovec *span, size_t most)
{
    const struct iovec *now = framer->spans + framer->span;

    if (framer->state != AT_PAYLOAD || now->iov_base == NULL || framer->user.payload != NULL ||
        (framer->prefix.flags & PD_FLAG_CHECKSUM) != 0)
        return false;
    *span = (struct iovec){ (uint8_t *)now->iov_base + framer->span_at, least(now->iov_len - framer->span_at, most) };
    return true;
}

static bool discards(const pd_framer *framer, const struct iovec *iov, int n)
{
    return n > 0 && iov[n - 1].iov_base == framer->stage;
}

int pd_framer_space(pd_framer *framer, struct iovec *iov, int max, size_t slice)
{
    size_t offered = 0, end = framer->begin + framer->staged;
    uint64_t wanted = 0;
    int n = 0;

    assert(max >= 1 && slice >= 1);
    if (framer->state == STALLED || framer->state == FAILED) return 0;
    if (framer->state == AT_HEADER) {
        wanted = framer->prefix.header_bytes - framer->header_at;
        offered = least(least(slice, wanted), framer->header_capacity - framer->header_at);
        iov[n++] = (struct iovec){ framer->header + framer->header_at, offered };
    } else if (framer->state == AT_PAYLOAD) {
        wanted = framer->payload_left;
        n = payload_space(framer, iov, max, slice, &offered);
        if (discards(framer, iov, n)) return n;
    }
    if (offered == wanted && n < max && offered < slice)
        iov[n++] = (struct iovec){ framer->stage + end, least(STAGE_BYTES - end, slice - offered) };
    return n;
}

/* Handles the next n bytes of the payload: copies them from `from` to the user's memory, adds them to the checksum, and
 * calls the user's function `payload`. `from` is NULL if they were read into the user's memory directly. */
static void land(pd_framer *framer, const uint8_t *from, size_t n)
{
    framer->payload_left -= n;
    while (n > 0) {
        const struct iovec *span = &framer->spans[framer->span];
        uint8_t *to = span->iov_base != NULL ? (uint8_t *)span->iov_base + framer->span_at : NULL;
        size_t part = least(n, span->iov_len - framer->span_at);

        if (from != NULL && to != NULL) memcpy(to, from, part);
        hash_bytes(framer, from != NULL ? from : to != NULL ? to : framer->stage, part);
        if (to != NULL && framer->user.payload != NULL) framer->user.payload(framer->user.arg, to, part);
        if (from != NULL) from += part;
        n -= part;
        framer->span_at += part;
        if (framer->span_at == span->iov_len) {
            framer->span++;
            framer->span_at = 0;
        }
    }
}

static uint8_t *staged(pd_framer *framer)
{
    return framer->stage + framer->begin;
}

static void unstage(pd_framer *framer, size_t n)
{
    framer->staged -= n;
    framer->begin = framer->staged == 0 ? 0 : framer->begin + n;
}

static int read_prefix(pd_framer *framer, bool *more)
{
    if (framer->staged < PD_PREFIX_BYTES) {
        memmove(framer->stage, staged(framer), framer->staged);
        framer->begin = 0;
        *more = false;
        return PD_OK;
    }
    int rc = pd_prefix_read(&framer->prefix, staged(framer), framer->max_payload, &framer->error);
    if (rc == PD_OK && framer->user.prefix != NULL) rc = framer->user.prefix(framer->user.arg, &framer->prefix);
    if (rc != PD_OK) return rc;
    unstage(framer, PD_PREFIX_BYTES);
    framer->header_at = 0;
    if ((framer->prefix.flags & PD_FLAG_CHECKSUM) != 0) XXH3_64bits_reset(framer->hash);
    framer->state = AT_HEADER;
    return PD_OK;
}

/* Doubles the memory for the header, so that it is at most twice the bytes that were read. A peer that only announces a
 * long header costs no memory. */
static int grow_header(pd_framer *framer)
{
    size_t capacity = least(framer->header_capacity * 2, PD_MAX_HEADER_BYTES);
    uint8_t *header = realloc(framer->header, capacity);

    if (header == NULL) return PD_NO_MEMORY;
    framer->header = header;
    framer->header_capacity = capacity;
    return PD_OK;
}

static int read_header(pd_framer *framer, bool *more)
{
    size_t left;

    while ((left = framer->prefix.header_bytes - framer->header_at) > 0) {
        if (framer->header_at == framer->header_capacity && grow_header(framer) != PD_OK) return PD_NO_MEMORY;
        size_t n = least(least(left, framer->staged), framer->header_capacity - framer->header_at);
        if (n == 0) {
            *more = false;
            return PD_OK;
        }
        memcpy(framer->header + framer->header_at, staged(framer), n);
        framer->header_at += n;
        unstage(framer, n);
    }
    hash_bytes(framer, framer->header, framer->prefix.header_bytes);
    framer->state = AT_DECISION;
    return PD_OK;
}

/* Returns how many bytes of payload follow the header in the stream: 0 if the payload is in shared memory. */
static uint64_t payload_on_stream(const pd_prefix *prefix)
{
    return (prefix->flags & PD_FLAG_SHARED) != 0 ? 0 : prefix->payload_bytes;
}

/* Calls the user's function `header`, which says where the payload of the frame must be stored. If the user cannot say
 * yet, the framer stalls: it takes no more bytes, and *more becomes false. */
static int decide(pd_framer *framer, bool *more)
{
    uint64_t sum = 0;

    framer->spans = NULL;
    framer->n_spans = framer->span = framer->span_at = 0;
    int rc = framer->user.header(framer->user.arg, &framer->prefix, framer->header, &framer->spans, &framer->n_spans);
    if (rc == PD_UNAVAILABLE) {
        framer->state = STALLED;
        *more = false;
        return PD_OK;
    }
    if (rc != PD_OK) return rc;
    for (size_t i = 0; i < framer->n_spans; i++) sum += framer->spans[i].iov_len;
    assert(sum == payload_on_stream(&framer->prefix));
    framer->payload_left = sum;
    framer->state = AT_PAYLOAD;
    return PD_OK;
}

static int read_payload(pd_framer *framer, bool *more)
{
    size_t n = least(framer->staged, framer->payload_left);

    if (n > 0) {
        land(framer, staged(framer), n);
        unstage(framer, n);
    }
    if (framer->payload_left > 0) {
        *more = false;
        return PD_OK;
    }
    if ((framer->prefix.flags & PD_FLAG_CHECKSUM) != 0 && XXH3_64bits_digest(framer->hash) != framer->prefix.checksum)
        return pd_fail(&framer->error, PD_DATA_LOSS,
                       "request %" PRIu64 ": checksum of header and payload is "
                       "%016" PRIx64 ", the frame says %016" PRIx64 ": damaged on the way",
                       framer->prefix.request, (uint64_t)XXH3_64bits_digest(framer->hash), framer->prefix.checksum);
    framer->state = AT_PREFIX;
    return framer->user.frame(framer->user.arg, &framer->prefix, framer->header);
}

static int advance(pd_framer *framer)
{
    bool more = true;
    int rc = PD_OK;

    while (more && rc == PD_OK) {
        switch (framer->state) {
        case AT_PREFIX: rc = read_prefix(framer, &more); break;
        case AT_HEADER: rc = read_header(framer, &more); break;
        case AT_DECISION: rc = decide(framer, &more); break;
        case AT_PAYLOAD: rc = read_payload(framer, &more); break;
        default: assert(!"a frame goes on only where bytes are taken");
        }
    }
    return rc == PD_OK ? PD_OK : failed(framer, rc);
}

int pd_framer_fed(pd_framer *framer, size_t n)
{
    size_t in_place = 0;

    assert(framer->state != STALLED);
    if (framer->state == FAILED) return framer->error.code;
    if (framer->state == AT_HEADER) {
        in_place = least(n, framer->prefix.header_bytes - framer->header_at);
        framer->header_at += in_place;
    } else if (framer->state == AT_PAYLOAD) {
        in_place = least(n, framer->payload_left);
        land(framer, NULL, in_place);
    }
    framer->staged += n - in_place;
    assert(framer->begin + framer->staged <= STAGE_BYTES && framer->header_at <= framer->header_capacity);
    return advance(framer);
}

int pd_framer_resume(pd_framer *framer)
{
    if (framer->state == FAILED) return framer->error.code;
    if (framer->state != STALLED) return PD_OK;
    framer->state = AT_DECISION;
    return advance(framer);
}

bool pd_framer_stalled(const pd_framer *framer)
{
    return framer->state == STALLED;
}

uint64_t pd_framer_left(const pd_framer *framer)
{
    return framer->state == AT_PAYLOAD ? framer->payload_left : 0;
}

bool pd_framer_idle(const pd_framer *framer)
{
    return framer->state == AT_PREFIX && framer->staged == 0;
}

const pd_error *pd_framer_error(const pd_framer *framer)
{
    return &framer->error;
}
