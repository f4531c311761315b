/* Tests the hashes by which a program notices that tensors have changed. */
#include "test.h"
#include "paramd/client.h"

enum { BYTES = 5000, EVERY = 256, SMALL = 4096 };

static unsigned char memory[BYTES];

static uint64_t hash_of(size_t bytes, size_t every, size_t first)
{
    const void *tensor = memory;
    uint64_t hash = 0;

    pd_client_fingerprint(&tensor, &bytes, 1, every, first, &hash);
    return hash;
}

/* Returns whether another value of byte i gives another hash. */
static bool notices(size_t i, size_t bytes, size_t every, size_t first)
{
    uint64_t before = hash_of(bytes, every, first), changed;

    memory[i] ^= 1;
    changed = hash_of(bytes, every, first);
    memory[i] ^= 1;
    assert_true(hash_of(bytes, every, first) == before);
    return changed != before;
}

TEST(a_whole_hash_notices_every_byte)
{
    for (size_t i = 0; i < BYTES; i++) assert_true(notices(i, BYTES, 0, 7));
}

TEST(a_small_tensor_is_hashed_whole)
{
    for (size_t i = 0; i < SMALL; i++) assert_true(notices(i, SMALL, EVERY, 100));
}

TEST(a_sample_notices_64_bytes_of_each_piece)
{
    enum { FIRST = 100 };

    for (size_t i = 0; i < BYTES; i++) {
        size_t at = i % EVERY;
        bool sampled = at >= FIRST && at < FIRST + 64 && i - at + FIRST + 64 <= BYTES;
        assert_true(notices(i, BYTES, EVERY, FIRST) == sampled);
    }
}

TEST(a_sample_has_64_bytes_of_each_quarter_at_least)
{
    size_t seen = 0;

    for (size_t i = 0; i < BYTES; i++) seen += notices(i, BYTES, 1 << 20, 0);
    assert_int_equal(seen, 4 * 64);
}

TEST(other_samples_notice_every_byte_of_whole_pieces)
{
    for (size_t i = 0; i < BYTES - BYTES % EVERY; i++) {
        bool found = false;
        for (size_t first = 0; !found && first < EVERY; first++) found = notices(i, BYTES, EVERY, first);
        assert_true(found);
    }
}

TEST(several_tensors_have_hashes_of_their_own_also_empty_ones)
{
    const void *tensors[] = { memory, memory + 1000, NULL };
    const size_t bytes[] = { 1000, 1000, 0 };
    uint64_t hashes[3], alone = hash_of(1000, 0, 0);

    memory[1000] ^= 1;
    pd_client_fingerprint(tensors, bytes, 3, 0, 0, hashes);
    memory[1000] ^= 1;
    assert_true(hashes[0] == alone && hashes[1] != alone && hashes[2] == hash_of(0, 0, 0));
}
