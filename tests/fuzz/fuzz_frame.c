/* Reads any bytes as a stream, in any portions. The framer reports the same frames, or the same error, as when all
 * bytes come at once. Input: a byte that seeds the portions, a byte that says when to stall, then the stream. */
#include "frame.h"

#include "seed.h"

#include <string.h>
#include <xxhash.h>

enum { MAX_PAYLOAD = 200000 };

typedef struct listener {
    XXH64_state_t *log;
    uint8_t landing[MAX_PAYLOAD];
    struct iovec spans[3];
    unsigned asked, stall_every;
} listener;

static listener ears;

/* Stores a third of the payload, discards a third, and stores the rest. A payload in shared memory is not in the
 * stream. */
static int on_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    listener *l = arg;
    size_t third = prefix->payload_bytes / 3;
    (void)header;

    if (l->stall_every > 0 && ++l->asked % l->stall_every == 0) return PD_UNAVAILABLE;
    if ((prefix->flags & PD_FLAG_SHARED) != 0) return PD_OK;
    l->spans[0] = (struct iovec){ l->landing, third };
    l->spans[1] = (struct iovec){ NULL, third };
    l->spans[2] = (struct iovec){ l->landing + third, prefix->payload_bytes - 2 * third };
    *spans = l->spans;
    *n = 3;
    return PD_OK;
}

static int on_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    listener *l = arg;
    uint64_t facts[] = { prefix->version, prefix->flags,         prefix->method,
                         prefix->request, prefix->payload_bytes, prefix->place };
    bool shared = (prefix->flags & PD_FLAG_SHARED) != 0;

    MUST(prefix->header_bytes <= PD_MAX_HEADER_BYTES && prefix->payload_bytes <= MAX_PAYLOAD);
    XXH64_update(l->log, facts, sizeof facts);
    XXH64_update(l->log, header, prefix->header_bytes);
    MUST(shared || prefix->place == 0);
    MUST(!shared || (prefix->flags & PD_FLAG_CHECKSUM) == 0);
    if (!shared) XXH64_update(l->log, l->landing, prefix->payload_bytes - prefix->payload_bytes / 3);
    return prefix->method == 99 ? PD_ABORTED : PD_OK;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Feeds the framer one read of at most `most` bytes of the stream. */
static int feed_some(pd_framer *framer, const uint8_t **data, size_t *size, int max, size_t most)
{
    struct iovec iov[4];
    int n = pd_framer_space(framer, iov, max, most);
    size_t fed = 0;

    MUST(n >= 1 && n <= max);
    for (int i = 0; i<n && * size> 0; i++) {
        size_t part = iov[i].iov_len < *size ? iov[i].iov_len : *size;
        MUST(iov[i].iov_len > 0);
        memcpy(iov[i].iov_base, *data, part);
        *data += part;
        *size -= part;
        fed += part;
    }
    MUST(fed <= most);
    return pd_framer_fed(framer, fed);
}

/* Returns a digest of the stream's frames and of its end. `portions` seeds the sizes of the reads; 0: every read is
 * as large as possible. */
static uint64_t digest_of(const uint8_t *data, size_t size, uint32_t portions)
{
    pd_framer *framer =
        pd_framer_new(&(pd_framer_user){ .arg = &ears, .header = on_header, .frame = on_frame }, MAX_PAYLOAD);
    int rc = PD_OK;

    MUST(framer != NULL);
    XXH64_reset(ears.log, 0);
    ears.asked = 0;
    while (rc == PD_OK && (size > 0 || pd_framer_stalled(framer))) {
        int max = portions == 0 ? 1 : 1 + (int)(next_random(&portions) % 4);
        size_t most =
            portions == 0 ? SIZE_MAX / 2 : 1 + next_random(&portions) % (next_random(&portions) % 2 ? 50 : 9000);
        rc = pd_framer_stalled(framer) ? pd_framer_resume(framer) : feed_some(framer, &data, &size, max, most);
    }
    int facts[] = { rc, pd_framer_error(framer)->code, rc == PD_OK && pd_framer_idle(framer) };
    XXH64_update(ears.log, facts, sizeof facts);
    pd_framer_free(framer);
    return XXH64_digest(ears.log);
}

/* Writes a seed whose header and payload are larger than the read-ahead buffer. */
static void seed_large(const char *folder)
{
    static uint8_t seed[2 + PD_PREFIX_BYTES + 5000 + 30000] = { 9, 2 };
    pd_prefix prefix = {
        .version = 1, .flags = PD_FLAG_CHECKSUM, .method = 5, .header_bytes = 5000, .payload_bytes = 30000, .request = 1
    };
    uint8_t *body = seed + 2 + PD_PREFIX_BYTES;

    pd_frame_checksum(&prefix.checksum, body, 5000, &(struct iovec){ body + 5000, 30000 }, 1);
    pd_prefix_write(seed + 2, &prefix);
    write_seed(folder, "large", seed, sizeof seed);
}

/* Writes a seed of two frames: the payload of the first one lies in shared memory. */
static void seed_shared(const char *folder)
{
    uint8_t seed[2 + 2 * PD_PREFIX_BYTES + 20] = { 3, 0 };
    pd_prefix prefix = { .version = 1, .flags = PD_FLAG_SHARED, .method = 3, .request = 4 };

    prefix.header_bytes = 20;
    prefix.payload_bytes = 100000;
    prefix.place = 77;
    pd_prefix_write(seed + 2, &prefix);
    pd_prefix_write(seed + 2 + PD_PREFIX_BYTES + 20, &(pd_prefix){ .version = 1, .method = 7, .request = 5 });
    write_seed(folder, "shared", seed, sizeof seed);
}

static void make_seeds(const char *folder)
{
    static const uint8_t http[] = "\1\1GET / HTTP/1.1\r\nHost: localhost:7070\r\nAccept: */*\r\n\r\n";
    uint8_t seed[2 + 3 * PD_PREFIX_BYTES + 700] = { 5, 3 };
    pd_prefix prefix = {
        .version = 1, .flags = PD_FLAG_CHECKSUM, .method = 3, .header_bytes = 100, .payload_bytes = 600, .request = 7
    };
    uint8_t *body = seed + 2 + PD_PREFIX_BYTES;

    pd_frame_checksum(&prefix.checksum, body, 100, &(struct iovec){ body + 100, 600 }, 1);
    pd_prefix_write(seed + 2, &prefix);
    pd_prefix_write(body + 700, &(pd_prefix){ .version = 1, .method = 7, .request = 8 });
    pd_prefix_write(body + 700 + PD_PREFIX_BYTES, &(pd_prefix){ .version = 1, .flags = PD_FLAG_REPLY, .method = 99 });
    seed_large(folder);
    seed_shared(folder);
    write_seed(folder, "three_frames", seed, sizeof seed);
    write_seed(folder, "cut", seed, sizeof seed - 60);
    write_seed(folder, "http", http, sizeof http - 1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    ears.log = XXH64_createState();
    return seed_if_asked(make_seeds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    ears.stall_every = 0;
    uint64_t whole = digest_of(data + 2, size - 2, 0);
    ears.stall_every = data[1] == 1 ? 2 : data[1]; /* 1 would stall every frame, so the stream would never end */
    MUST(digest_of(data + 2, size - 2, 1u + data[0]) == whole);
    return 0;
}
