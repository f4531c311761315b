/* Rounds: when is a chunk complete, how far can it be summed, who is missing? */
#include "rig.h"
#include "round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORLD = 5, CHUNKS = 3 };

typedef struct fixture { pd_round round; pd_chunk chunks[CHUNKS]; pd_slot slots[CHUNKS * WORLD]; } fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    pd_round_init(&f->round, NULL, 150, 64, WORLD, f->chunks, f->slots);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

static const pd_slot given = { .state = PD_SLOT_HELD, .dtype = PD_F32 }, absent = { .state = PD_SLOT_ABSENT };

static bool add(fixture *f, uint32_t chunk, uint32_t rank, pd_slot slot)
{
    f->round.open = true;
    return pd_round_add(&f->round, &f->chunks[chunk], rank, slot);
}

static void chunks_cover_the_parameter(void **state)
{
    fixture *f = *state;

    assert_int_equal(f->round.n_chunks, CHUNKS);
    assert_int_equal(f->chunks[2].first, 128);
    assert_int_equal(f->chunks[2].n, 22);
    assert_ptr_equal(f->chunks[1].slots, f->slots + WORLD);
}

static void is_complete_when_every_rank_was_heard_in_any_order(void **state)
{
    fixture *f = *state;
    uint64_t seed = 1;

    for (int turn = 0; turn < 50; turn++) {
        uint32_t left[WORLD] = { 0, 1, 2, 3, 4 };
        for (uint32_t n = WORLD; n > 0; n--) {
            uint32_t i = (uint32_t)(rig_random(&seed) % n), rank = left[i], expected = 0;
            left[i] = left[n - 1];
            assert_true(add(f, 1, rank, given) == (n == 1));
            while (expected < WORLD && pd_chunk_heard(&f->chunks[1], expected) != PD_SLOT_EMPTY) expected++;
            assert_int_equal(f->chunks[1].prefix, expected);
        }
        assert_int_equal(f->round.missing, CHUNKS - 1);
        pd_round_reset(&f->round);
        assert_int_equal(f->round.missing, CHUNKS);
    }
}

static void tells_who_is_missing(void **state)
{
    fixture *f = *state;
    char text[64];

    assert_string_equal(pd_round_missing(&f->round, text, sizeof text), "");
    add(f, 0, 2, given);
    assert_string_equal(pd_round_missing(&f->round, text, sizeof text), "0,1,2,3,4");
    add(f, 1, 2, given);
    add(f, 2, 2, given);
    for (uint32_t c = 0; c < CHUNKS; c++) add(f, c, 4, absent);
    assert_string_equal(pd_round_missing(&f->round, text, sizeof text), "0,1,3");
    assert_string_equal(pd_round_missing(&f->round, text, 18), "0,1,...");
    assert_false(pd_round_misses(&f->round, 4));
    assert_true(pd_round_misses(&f->round, 0));
}

static void knows_absence_from_a_gradient(void **state)
{
    fixture *f = *state;

    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (uint32_t c = 0; c < CHUNKS; c++) add(f, c, rank, absent);
    assert_false(pd_round_any_given(&f->round));
    assert_true(pd_round_is_absent(&f->round, 3));
    assert_false(pd_round_has_given(&f->round, 3));
    pd_round_reset(&f->round);
    add(f, 2, 3, given);
    assert_true(pd_round_has_given(&f->round, 3));
    assert_false(pd_round_is_absent(&f->round, 3));
    assert_true(pd_round_any_given(&f->round));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(chunks_cover_the_parameter),
        TEST(is_complete_when_every_rank_was_heard_in_any_order),
        TEST(tells_who_is_missing),
        TEST(knows_absence_from_a_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
