/* Tests the hashes by which a program notices that tensors have changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static void a_whole_hash_notices_every_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < BYTES; i++) assert_true(notices(i, BYTES, 0, 7));
}

static void a_small_tensor_is_hashed_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) assert_true(notices(i, SMALL, EVERY, 100));
}

static void a_sample_notices_64_bytes_of_each_piece(void **state)
{
    enum { FIRST = 100 };

    (void)state;
    for (size_t i = 0; i < BYTES; i++) {
        size_t at = i % EVERY;
        bool sampled = at >= FIRST && at < FIRST + 64 && i - at + FIRST + 64 <= BYTES;
        assert_true(notices(i, BYTES, EVERY, FIRST) == sampled);
    }
}

static void a_sample_has_64_bytes_of_each_quarter_at_least(void **state)
{
    size_t seen = 0;

    (void)state;
    for (size_t i = 0; i < BYTES; i++) seen += notices(i, BYTES, 1 << 20, 0);
    assert_int_equal(seen, 4 * 64);
}

static void other_samples_notice_every_byte_of_whole_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < BYTES - BYTES % EVERY; i++) {
        bool found = false;
        for (size_t first = 0; !found && first < EVERY; first++) found = notices(i, BYTES, EVERY, first);
        assert_true(found);
    }
}

static void several_tensors_have_hashes_of_their_own_also_empty_ones(void **state)
{
    const void *tensors[] = { memory, memory + 1000, NULL };
    const size_t bytes[] = { 1000, 1000, 0 };
    uint64_t hashes[3], alone = hash_of(1000, 0, 0);

    (void)state;
    memory[1000] ^= 1;
    pd_client_fingerprint(tensors, bytes, 3, 0, 0, hashes);
    memory[1000] ^= 1;
    assert_true(hashes[0] == alone && hashes[1] != alone && hashes[2] == hash_of(0, 0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_hash_notices_every_byte),
        cmocka_unit_test(a_small_tensor_is_hashed_whole),
        cmocka_unit_test(a_sample_notices_64_bytes_of_each_piece),
        cmocka_unit_test(a_sample_has_64_bytes_of_each_quarter_at_least),
        cmocka_unit_test(other_samples_notice_every_byte_of_whole_pieces),
        cmocka_unit_test(several_tensors_have_hashes_of_their_own_also_empty_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
