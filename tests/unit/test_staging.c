/* Tests the places of gradients in a worker's segment of shared memory, with random frames: which ones lie there
 * already, where copies of the others go, and when a place is free again. */
#include "test.h"
#include "frame.h"
#include "outgoing.h"

/* A segment has whole pages: two here, of which one home takes the beginning. */
enum { UNIT = PD_PAYLOAD_ALIGN, HOMES = 68 * UNIT, COPIES = 60 * UNIT, LIVE = 32, SPANS = 6 };

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

static pd_staging empty(void)
{
    pd_staging staging = { 0 };

    assert_int_equal(pd_staging_make(&staging, HOMES + COPIES, NULL), PD_OK);
    return staging;
}

static pd_staging made(void)
{
    pd_staging staging = empty();

    assert_ptr_equal(pd_staging_take_buffer(&staging, 0, HOMES), staging.segment.at);
    return staging;
}

/* Makes a frame whose payload has these spans. */
static pd_outgoing_frame *frame_of(const struct iovec *iov, size_t n)
{
    pd_outgoing_frame *frame = pd_outgoing_frame_new(calloc(1, PD_PREFIX_BYTES), PD_PREFIX_BYTES, NULL, 0, iov, n);

    assert_non_null(frame);
    frame->step = 1;
    return frame;
}

static pd_outgoing_frame *frame_at(void *at, size_t bytes)
{
    return frame_of(&(struct iovec){ at, bytes }, 1);
}

static void free_frame(pd_staging *staging, pd_outgoing_frame *frame)
{
    pd_staging_end(staging, frame, true);
    pd_outgoing_frame_free(frame);
}

/* Returns whether one block can take all that the home has left. */
static bool all_free(pd_staging *staging)
{
    static uint8_t bulk[COPIES];
    pd_outgoing_frame *frame = frame_at(bulk, COPIES);
    bool fits = pd_staging_place(staging, frame);

    free_frame(staging, frame);
    return fits;
}

TEST(a_gradient_in_its_home_is_not_copied)
{
    pd_staging staging = made();
    pd_outgoing_frame *frame = frame_at(staging.segment.at + 3 * UNIT, 100);

    assert_true(pd_staging_place(&staging, frame));
    assert_null(frame->block);
    assert_int_equal(frame->place, 3);
    free_frame(&staging, frame);
    pd_staging_free(&staging);
}

TEST(gradients_in_neighbouring_homes_are_not_copied)
{
    pd_staging staging = made();
    struct iovec iov[] = { { staging.segment.at + UNIT, 100 },
                           { (void *)pd_outgoing_padding, 28 },
                           { staging.segment.at + 3 * UNIT, 64 },
                           { staging.segment.at + 4 * UNIT, 9 } };
    pd_outgoing_frame *frame = frame_of(iov, 4);

    assert_true(pd_staging_place(&staging, frame));
    assert_null(frame->block);
    assert_int_equal(frame->place, 1);
    free_frame(&staging, frame);
    pd_staging_free(&staging);
}

/* Checks that a payload of two spans is copied as a whole. */
static void assert_copied(pd_staging *staging, struct iovec first, struct iovec second)
{
    struct iovec iov[] = { first, second };
    pd_outgoing_frame *frame = frame_of(iov, 2);

    assert_true(pd_staging_place(staging, frame));
    assert_non_null(frame->block);
    assert_true(frame->place >= HOMES / UNIT);
    pd_staging_fill(staging, frame);
    assert_memory_equal(staging->segment.at + (uint64_t)frame->place * UNIT, first.iov_base, first.iov_len);
    assert_memory_equal(staging->segment.at + (uint64_t)frame->place * UNIT + first.iov_len, second.iov_base,
                        second.iov_len);
    free_frame(staging, frame);
}

TEST(gradients_in_homes_that_are_apart_are_copied)
{
    pd_staging staging = made();

    assert_copied(&staging, (struct iovec){ staging.segment.at, 64 }, (struct iovec){ staging.segment.at + 128, 64 });
    pd_staging_free(&staging);
}

TEST(gradients_in_homes_in_another_order_are_copied)
{
    pd_staging staging = made();

    assert_copied(&staging, (struct iovec){ staging.segment.at + 64, 64 }, (struct iovec){ staging.segment.at, 64 });
    pd_staging_free(&staging);
}

TEST(a_gradient_at_home_before_one_elsewhere_is_copied)
{
    static uint8_t elsewhere[64];
    pd_staging staging = made();

    assert_copied(&staging, (struct iovec){ staging.segment.at, 64 }, (struct iovec){ elsewhere, 64 });
    assert_copied(&staging, (struct iovec){ elsewhere, 64 }, (struct iovec){ staging.segment.at + 64, 64 });
    pd_staging_free(&staging);
}

TEST(a_gradient_that_begins_between_two_units_is_copied)
{
    pd_staging staging = made();
    pd_outgoing_frame *frame = frame_at(staging.segment.at + 4, 100);

    assert_true(pd_staging_place(&staging, frame));
    assert_non_null(frame->block);
    free_frame(&staging, frame);
    pd_staging_free(&staging);
}

TEST(a_payload_that_fits_nowhere_goes_through_the_socket)
{
    static uint8_t bulk[COPIES + 1];
    pd_staging staging = made();
    pd_outgoing_frame *frame = frame_at(bulk, COPIES + 1);

    assert_false(pd_staging_place(&staging, frame));
    assert_null(frame->block);
    free_frame(&staging, frame);
    pd_staging_free(&staging);
}

TEST(a_payload_goes_through_the_socket_where_no_memory_is_for_a_block)
{
    static uint8_t bulk[UNIT];
    pd_staging staging = made();
    pd_outgoing_frame *frame = frame_at(bulk, UNIT);
    bool placed;

    oom_arm(0);
    placed = pd_staging_place(&staging, frame);
    assert_true(oom_disarm());
    assert_false(placed);
    free_frame(&staging, frame);
    assert_true(all_free(&staging));
    pd_staging_free(&staging);
}

TEST(a_frame_that_is_sent_again_keeps_its_block_and_its_copy)
{
    static uint8_t bulk[UNIT];
    pd_staging staging = made();
    pd_outgoing_frame *frame = frame_at(bulk, UNIT);
    uint32_t place;

    pd_staging_place(&staging, frame);
    pd_staging_fill(&staging, frame);
    place = frame->place;
    memset(bulk, 1, sizeof bulk); /* the caller's memory is not read again */
    assert_true(pd_staging_place(&staging, frame));
    pd_staging_fill(&staging, frame);
    assert_int_equal(frame->place, place);
    assert_int_equal(staging.segment.at[(uint64_t)place * UNIT], 0);
    free_frame(&staging, frame);
    pd_staging_free(&staging);
}

TEST(a_block_that_was_given_up_stays_until_its_step_has_closed)
{
    static uint8_t bulk[COPIES];
    pd_staging staging = made();
    pd_outgoing_frame *frame = frame_at(bulk, UNIT);

    frame->step = 7;
    assert_true(pd_staging_place(&staging, frame));
    pd_staging_end(&staging, frame, false);
    pd_outgoing_frame_free(frame);
    pd_staging_reclaim(&staging, 6);
    assert_false(all_free(&staging));
    pd_staging_reclaim(&staging, 7);
    assert_true(all_free(&staging));
    pd_staging_free(&staging);
}

TEST(a_buffer_whose_frame_was_given_up_is_read_until_the_frames_step_has_closed)
{
    pd_staging staging = empty();
    uint8_t *one = pd_staging_take_buffer(&staging, 0, UNIT), *two = pd_staging_take_buffer(&staging, UNIT, UNIT);
    pd_outgoing_frame *frame = frame_at(two, 100 - UNIT);

    frame->step = 7;
    assert_true(pd_staging_place(&staging, frame));
    pd_staging_end(&staging, frame, false);
    pd_outgoing_frame_free(frame);
    assert_false(pd_staging_is_read(&staging, one));
    assert_true(pd_staging_is_read(&staging, two));
    pd_staging_reclaim(&staging, 6);
    assert_true(pd_staging_is_read(&staging, two));
    pd_staging_reclaim(&staging, 7);
    assert_false(pd_staging_is_read(&staging, two));
    assert_int_equal(staging.given_up, 0);
    pd_staging_free(&staging);
}

TEST(a_segment_that_cannot_be_made_is_none)
{
    pd_staging staging = { 0 };

    assert_int_equal(pd_staging_make(&staging, UINT64_MAX, NULL), PD_UNAVAILABLE);
    assert_null(staging.segment.at);
    pd_staging_free(&staging);
}

TEST(homes_lie_where_they_are_wanted_in_any_order)
{
    static const uint64_t order[] = { 3, 0, 5, 1, 4, 2 };
    pd_staging staging = empty();

    for (size_t i = 0; i < 6; i++)
        assert_ptr_equal(pd_staging_take_buffer(&staging, order[i] * 3 * UNIT, 3 * UNIT),
                         staging.segment.at + order[i] * 3 * UNIT);
    pd_staging_free(&staging);
}

TEST(a_home_is_zeroed_where_a_copy_was_and_lies_elsewhere_while_the_copy_is_there)
{
    static uint8_t ones[2 * UNIT] = { 1, 1, 1 };
    pd_staging staging = empty();
    pd_outgoing_frame *frame = frame_at(ones, sizeof ones);
    uint8_t *home;

    assert_true(pd_staging_place(&staging, frame));
    pd_staging_fill(&staging, frame);
    home = pd_staging_take_buffer(&staging, UNIT, UNIT);
    assert_true(home >= staging.segment.at + sizeof ones);
    free_frame(&staging, frame);
    assert_int_equal(staging.segment.at[1], 1);
    home = pd_staging_take_buffer(&staging, 0, UNIT);
    assert_ptr_equal(home, staging.segment.at);
    assert_int_equal(home[1], 0);
    pd_staging_free(&staging);
}

TEST(a_home_has_no_room_where_copies_have_all)
{
    static uint8_t bulk[HOMES + COPIES];
    pd_staging staging = empty();
    pd_outgoing_frame *frame = frame_at(bulk, sizeof bulk);

    assert_true(pd_staging_place(&staging, frame));
    assert_null(pd_staging_take_buffer(&staging, 0, UNIT));
    free_frame(&staging, frame);
    assert_non_null(pd_staging_take_buffer(&staging, 0, UNIT));
    pd_staging_free(&staging);
}

TEST(a_copy_never_lies_in_a_home)
{
    static uint8_t bulk[UNIT];
    pd_staging staging = empty();
    pd_outgoing_frame *frames[HOMES / UNIT + COPIES / UNIT];
    size_t n = sizeof frames / sizeof *frames, placed = 0;

    assert_ptr_equal(pd_staging_take_buffer(&staging, 7 * UNIT, UNIT), staging.segment.at + (size_t)7 * UNIT);
    for (size_t i = 0; i < n; i++) {
        frames[i] = frame_at(bulk, UNIT);
        placed += pd_staging_place(&staging, frames[i]);
        if (frames[i]->block != NULL) assert_int_not_equal(frames[i]->place, 7);
    }
    assert_int_equal(placed, n - 1);
    for (size_t i = 0; i < n; i++) free_frame(&staging, frames[i]);
    pd_staging_free(&staging);
}

/* A frame that is placed, or that was given up; then `frame` is NULL. */
typedef struct placed {
    pd_outgoing_frame *frame;
    uint8_t *memory;    /* the caller's copy of the payload */
    uint64_t at, bytes; /* its block */
    uint64_t step;
    uint8_t bytes_of[COPIES]; /* what the server must find there */
} placed;

typedef struct bench {
    pd_staging staging;
    placed live[LIVE];
    size_t n;
    uint64_t seed, step; /* step: steps up to this one have closed */
} bench;

/* Makes a frame of one to SPANS tensors of random lengths with padding between them, like a push. */
static pd_outgoing_frame *random_frame(bench *b, placed *p)
{
    struct iovec iov[2 * SPANS];
    size_t spans = 1 + draw(&b->seed, SPANS), n = 0, used = 0;

    p->memory = malloc(COPIES);
    for (size_t i = 0; i < COPIES; i++) p->memory[i] = (uint8_t)draw(&b->seed, 256);
    memset(p->bytes_of, 0, sizeof p->bytes_of);
    p->bytes = 0;
    for (size_t i = 0; i < spans; i++) {
        size_t bytes = 1 + draw(&b->seed, 3 * UNIT), pad = i + 1 < spans ? (UNIT - bytes % UNIT) % UNIT : 0;
        memcpy(p->bytes_of + p->bytes, p->memory + used, bytes);
        iov[n++] = (struct iovec){ p->memory + used, bytes };
        if (pad > 0) iov[n++] = (struct iovec){ (void *)pd_outgoing_padding, pad };
        used += bytes;
        p->bytes += bytes + pad;
    }
    return frame_of(iov, n);
}

static void forget(bench *b, size_t i)
{
    free(b->live[i].memory);
    b->live[i] = b->live[--b->n];
}

/* Checks that blocks lie behind the home, begin on a unit, overlap nothing, and keep their bytes. */
static void check(const bench *b)
{
    for (size_t i = 0; i < b->n; i++) {
        const placed *p = &b->live[i];
        assert_true(p->at >= HOMES && p->at + p->bytes <= HOMES + COPIES && p->at % UNIT == 0);
        assert_memory_equal(b->staging.segment.at + p->at, p->bytes_of, p->bytes);
        for (size_t k = 0; k < i; k++)
            assert_true(b->live[k].at + b->live[k].bytes <= p->at || p->at + p->bytes <= b->live[k].at);
    }
}

static void place_one(bench *b)
{
    placed *p = &b->live[b->n];

    p->frame = random_frame(b, p);
    p->step = p->frame->step = b->step + 1 + draw(&b->seed, 3);
    if (!pd_staging_place(&b->staging, p->frame)) {
        free_frame(&b->staging, p->frame);
        free(p->memory);
        return;
    }
    p->at = (uint64_t)p->frame->place * UNIT;
    pd_staging_fill(&b->staging, p->frame);
    b->n++;
}

/* Ends a frame: the server has read it, or the client gives it up. */
static void end_one(bench *b, size_t i)
{
    bool read = draw(&b->seed, 3) > 0;

    if (b->live[i].frame == NULL) return;
    pd_staging_end(&b->staging, b->live[i].frame, read);
    pd_outgoing_frame_free(b->live[i].frame);
    b->live[i].frame = NULL;
    if (read) forget(b, i);
}

static void close_step(bench *b)
{
    pd_staging_reclaim(&b->staging, ++b->step);
    for (size_t i = b->n; i-- > 0;)
        if (b->live[i].frame == NULL && b->live[i].step <= b->step) forget(b, i);
}

static void run_seed(uint64_t seed)
{
    bench *b = calloc(1, sizeof *b);

    b->staging = made();
    b->seed = seed;
    for (int turn = 0; turn < 150; turn++) {
        uint64_t what = draw(&b->seed, 10);
        if (what < 5 && b->n < LIVE)
            place_one(b);
        else if (what < 9 && b->n > 0)
            end_one(b, draw(&b->seed, b->n));
        else
            close_step(b);
        check(b);
    }
    for (size_t i = b->n; i-- > 0;) end_one(b, i);
    for (int i = 0; i < 4; i++) close_step(b);
    assert_int_equal(b->n, 0);
    assert_null(b->staging.first->next); /* only the buffer's block */
    assert_int_equal(b->staging.given_up, 0);
    assert_true(all_free(&b->staging));
    pd_staging_free(&b->staging);
    free(b);
}

TEST(blocks_never_overlap_and_all_are_free_at_the_end)
{
    for (uint64_t seed = 1; seed <= 150; seed++) run_seed(seed);
}

/* Where the free bytes are enough in one gap, a block is found there, wherever the search begins. */
TEST(a_gap_that_is_long_enough_is_found)
{
    static uint8_t bulk[COPIES];

    for (size_t kept = 0; kept < 60; kept++)
        for (size_t recent = 0; recent < 60; recent += 7) {
            pd_staging staging = made();
            pd_outgoing_frame *frames[60], *wide;
            size_t longest = kept > 59 - kept ? kept : 59 - kept;
            for (size_t i = 0; i < 60; i++) assert_true(pd_staging_place(&staging, frames[i] = frame_at(bulk, UNIT)));
            for (size_t i = 0; i < 60; i++) {
                size_t next = (recent + i) % 60;
                if (next != kept) free_frame(&staging, frames[next]);
            }
            wide = frame_at(bulk, longest * UNIT);
            assert_true(pd_staging_place(&staging, wide));
            free_frame(&staging, wide);
            free_frame(&staging, frames[kept]);
            pd_staging_free(&staging);
        }
}
