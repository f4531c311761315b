/* Tests rounds: when a chunk is complete, how far it can be summed, and which ranks are missing. */
#include "test.h"
#include "rig.h"
#include "rounds.h"
#include "round.h"

enum { WORLD = 5, CHUNKS = 3 };

typedef struct fixture {
    pd_round round;
    pd_chunk chunks[CHUNKS];
    pd_contribution slots[CHUNKS * WORLD];
} fixture;

static void set_up(fixture *f)
{
    lay_round(&f->round, 150, 64, WORLD, f->chunks, f->slots, NULL);
}

static const pd_contribution given = { .state = PD_CONTRIBUTION_HELD, .dtype = PD_F32 },
                             absent = { .state = PD_CONTRIBUTION_ABSENT };

static bool add(fixture *f, uint32_t chunk, uint32_t rank, pd_contribution slot)
{
    f->round.open = true;
    return pd_round_add(&f->round, &f->chunks[chunk], rank, slot);
}

FIXTURE(fixture, set_up, NULL);

TEST(chunks_cover_the_parameter, fixture *f)
{
    assert_int_equal(f->round.n_chunks, CHUNKS);
    assert_int_equal(f->chunks[2].first, 128);
    assert_int_equal(f->chunks[2].n, 22);
    assert_ptr_equal(f->chunks[1].contributions, f->slots + WORLD);
}

TEST(is_complete_when_every_rank_was_heard_in_any_order, fixture *f)
{
    uint64_t seed = 1;

    for (int turn = 0; turn < 50; turn++) {
        uint32_t left[WORLD] = { 0, 1, 2, 3, 4 };
        for (uint32_t n = WORLD; n > 0; n--) {
            uint32_t i = (uint32_t)(rig_random(&seed) % n), rank = left[i], expected = 0;
            left[i] = left[n - 1];
            assert_true(add(f, 1, rank, given) == (n == 1));
            while (expected < WORLD && pd_chunk_state(&f->chunks[1], expected) != PD_CONTRIBUTION_EMPTY) expected++;
            assert_int_equal(f->chunks[1].prefix, expected);
        }
        assert_int_equal(f->round.missing, CHUNKS - 1);
        pd_round_reset(&f->round);
        assert_int_equal(f->round.missing, CHUNKS);
    }
}

TEST(tells_who_is_missing, fixture *f)
{
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

TEST(knows_absence_from_a_gradient, fixture *f)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (uint32_t c = 0; c < CHUNKS; c++) add(f, c, rank, absent);
    assert_int_equal(pd_round_given(&f->round), PD_GIVEN_NOTHING);
    assert_true(pd_round_is_absent(&f->round, 3));
    assert_false(pd_round_has_given(&f->round, 3));
    pd_round_reset(&f->round);
    add(f, 2, 3, given);
    assert_true(pd_round_has_given(&f->round, 3));
    assert_false(pd_round_is_absent(&f->round, 3));
    assert_int_equal(pd_round_given(&f->round), PD_GIVEN_ALL);
}

enum { ELEMENTS = 150 };

/* Gives the five ranks random ranges over three chunks. The round knows the ranges of all ranks. */
static void random_ranges(fixture *f, pd_rank_range *ranges, uint64_t *seed)
{
    memset(ranges, 0, WORLD * sizeof *ranges);
    memset(f->slots, 0, sizeof f->slots);
    lay_round(&f->round, ELEMENTS, 64, WORLD, f->chunks, f->slots, ranges);
    for (uint32_t r = 0; r < WORLD; r++) {
        int64_t a = (int64_t)(rig_random(seed) % (ELEMENTS + 1)), b = (int64_t)(rig_random(seed) % (ELEMENTS + 1));
        if (rig_random(seed) % 4 == 0) b = a;
        pd_round_set_range(&f->round, r, a < b ? a : b, a < b ? b : a);
    }
}

static bool in_range(const pd_rank_range *range, int64_t e)
{
    return range->start <= e && e < range->end;
}

TEST(a_chunk_waits_for_the_ranks_whose_range_touches_it, fixture *f)
{
    pd_rank_range ranges[WORLD];
    uint64_t seed = 3;

    for (int turn = 0; turn < 300; turn++) {
        random_ranges(f, ranges, &seed);
        if (turn % 2 == 1) pd_round_reset(&f->round);
        for (uint32_t c = 0; c < CHUNKS; c++) {
            const pd_chunk *chunk = &f->chunks[c];
            uint32_t outside = 0, prefix = 0;
            for (uint32_t r = 0; r < WORLD; r++) {
                int64_t first = -1, n = 0;
                for (int64_t e = chunk->first; e < chunk->first + chunk->n; e++) {
                    if (!in_range(&ranges[r], e)) continue;
                    if (n++ == 0) first = e;
                }
                pd_range run = pd_round_chunk_range(&f->round, chunk, r);
                assert_int_equal(run.n, n);
                if (n > 0) assert_int_equal(run.first, first);
                assert_int_equal(pd_chunk_state(chunk, r), n > 0 ? PD_CONTRIBUTION_EMPTY : PD_CONTRIBUTION_OUTSIDE);
                outside += n == 0;
            }
            while (prefix < WORLD && pd_chunk_state(chunk, prefix) == PD_CONTRIBUTION_OUTSIDE) prefix++;
            assert_int_equal(chunk->came, outside);
            assert_int_equal(chunk->prefix, prefix);
            for (uint32_t r = 0, left = WORLD - outside; r < WORLD; r++)
                if (pd_chunk_state(chunk, r) == PD_CONTRIBUTION_EMPTY)
                    assert_true(add(f, c, r, given) == (--left == 0));
        }
    }
}

TEST(a_rank_that_gave_all_of_its_range_is_not_missing, fixture *f)
{
    pd_rank_range ranges[WORLD] = { 0 };
    char text[64];

    memset(f->slots, 0, sizeof f->slots);
    lay_round(&f->round, ELEMENTS, 64, WORLD, f->chunks, f->slots, ranges);
    pd_round_set_range(&f->round, 0, 0, 60);
    pd_round_set_range(&f->round, 1, 60, 130);
    pd_round_set_range(&f->round, 2, 130, 130);
    pd_round_set_range(&f->round, 4, 130, 150);
    assert_int_equal(pd_round_count_chunks(&f->round, 1), 3);
    assert_int_equal(pd_round_count_chunks(&f->round, 2), 0);
    assert_int_equal(pd_round_count_chunks(&f->round, 3), 3); /* rank 3 has not declared: it may have any elements */
    add(f, 0, 0, given);
    assert_false(pd_round_misses(&f->round, 0));
    assert_false(pd_round_misses(&f->round, 2));
    assert_string_equal(pd_round_missing(&f->round, text, sizeof text), "1,3,4");
    add(f, 0, 1, absent);
    add(f, 1, 1, absent);
    add(f, 2, 1, absent);
    assert_true(pd_round_is_absent(&f->round, 1));
    assert_false(pd_round_is_absent(&f->round, 2));
    assert_false(pd_round_has_given(&f->round, 2));
    assert_string_equal(pd_round_missing(&f->round, text, sizeof text), "3,4");
}

TEST(a_range_that_is_taken_back_leaves_nothing_behind, fixture *f)
{
    pd_rank_range ranges[WORLD] = { 0 };
    pd_chunk chunks[CHUNKS];
    pd_contribution slots[CHUNKS * WORLD];

    memset(f->slots, 0, sizeof f->slots);
    lay_round(&f->round, ELEMENTS, 64, WORLD, f->chunks, f->slots, ranges);
    pd_round_set_range(&f->round, 0, 10, 20);
    pd_round_set_range(&f->round, 3, 70, 80);
    memcpy(chunks, f->chunks, sizeof chunks);
    memcpy(slots, f->slots, sizeof slots);
    pd_round_set_range(&f->round, 1, 130, 150);
    pd_round_unset_range(&f->round, 1);
    assert_memory_equal(f->chunks, chunks, sizeof chunks);
    assert_memory_equal(f->slots, slots, sizeof slots);
    assert_false(ranges[1].known);
}

/* Element by element. */
TEST(finds_the_first_gap_and_what_was_given, fixture *f)
{
    pd_rank_range ranges[WORLD], gap;
    uint64_t seed = 5;

    for (int turn = 0; turn < 500; turn++) {
        bool none = true, part = false, absent_rank[WORLD];
        int64_t first = ELEMENTS, end;
        random_ranges(f, ranges, &seed);
        if (turn % 3 == 0) { /* one rank has all elements, so that only absence matters */
            pd_round_unset_range(&f->round, turn % WORLD);
            pd_round_set_range(&f->round, turn % WORLD, 0, ELEMENTS);
        }
        for (uint32_t r = 0; r < WORLD; r++) {
            absent_rank[r] = rig_random(&seed) % 2 == 0;
            for (uint32_t c = 0; c < CHUNKS; c++)
                if (pd_chunk_state(&f->chunks[c], r) == PD_CONTRIBUTION_EMPTY)
                    add(f, c, r, absent_rank[r] ? absent : given);
        }
        for (int64_t e = 0; e < ELEMENTS; e++) {
            bool covered = false, has = false;
            for (uint32_t r = 0; r < WORLD; r++) {
                covered = covered || in_range(&ranges[r], e);
                has = has || (in_range(&ranges[r], e) && !absent_rank[r]);
            }
            if (!covered && first == ELEMENTS) first = e;
            if (has)
                none = false;
            else
                part = true;
        }
        assert_true(pd_round_gap(&f->round, false, &gap) == (first < ELEMENTS));
        if (first < ELEMENTS) {
            end = ELEMENTS;
            for (uint32_t r = 0; r < WORLD; r++)
                if (ranges[r].start > first && ranges[r].start < ranges[r].end && ranges[r].start < end)
                    end = ranges[r].start;
            assert_int_equal(gap.start, first);
            assert_int_equal(gap.end, end);
        }
        if (first == ELEMENTS)
            assert_int_equal(pd_round_given(&f->round), none ? PD_GIVEN_NOTHING : part ? PD_GIVEN_PART : PD_GIVEN_ALL);
    }
}
