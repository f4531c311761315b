/* Tests the checks of a frame's header: which pieces of a payload it may describe. */
#include "test.h"
#include "message.h"
#include "pieces.h"
#include "paramd/tensor.h"

enum { CHUNK = 100, PIECES = 4 };

static const pd_handle_facts handles[] = {
    { 0, 250, "kernel" }, { 0, 100, "bias" }, { 0, 0, "nothing" }, { 0, 1, "scalar" }
};

/* A valid payload, in which each test makes something wrong: two chunks of parameter kernel, bias in bfloat16, and
 * scalar, which is absent. */
typedef struct payload {
    Paramd__Piece piece[PIECES], *list[PIECES];
    size_t n;
    uint64_t bytes;
} payload;

static Paramd__Piece piece_at(uint32_t handle, uint32_t dtype, uint64_t first, uint64_t count, uint64_t offset)
{
    Paramd__Piece piece = PARAMD__PIECE__INIT;

    piece.handle = handle;
    piece.dtype = dtype;
    piece.first = first;
    piece.count = count;
    piece.offset = offset;
    return piece;
}

static void set_up(payload *p)
{
    p->piece[0] = piece_at(0, 1, 0, 100, 0);
    p->piece[1] = piece_at(0, 1, 200, 50, 448); /* the 400 bytes of piece 0, rounded up to a multiple of 64 */
    p->piece[2] = piece_at(1, 3, 0, 100, 704);  /* 648 -> 704 */
    p->piece[3] = piece_at(3, 0, 0, 0, 0);
    p->piece[3].absent = true;
    for (int i = 0; i < PIECES; i++) p->list[i] = &p->piece[i];
    p->n = PIECES;
    p->bytes = 904;
}

static int check(const payload *p, pd_error *err)
{
    return pd_pieces_check(p->list, p->n, handles, sizeof handles / sizeof *handles, CHUNK, p->bytes, err);
}

static void assert_refused(const payload *p, const char *names)
{
    pd_error err = { 0 };

    assert_int_equal(check(p, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, names) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, names);
}

FIXTURE(payload, set_up, NULL);

HOLDS_FOR(payload *p, takes_chunks_of_several_parameters_and_types, assert_int_equal(check(p, NULL), PD_OK));

TEST(takes_a_payload_with_or_without_the_last_padding, payload *p)
{
    p->bytes = 960;
    assert_int_equal(check(p, NULL), PD_OK);
    p->bytes = 961;
    assert_refused(p, "payload of 961 bytes: expected 904");
    p->bytes = 905;
    assert_refused(p, "payload of 905 bytes: expected 904");
}

TEST(takes_no_pieces_and_no_payload, payload *p)
{
    p->n = 0;
    assert_refused(p, "expected 0");
    p->bytes = 0;
    assert_int_equal(check(p, NULL), PD_OK);
}

TEST(takes_handles_in_any_order, payload *p)
{
    p->piece[0].handle = 1;
    p->piece[2] = piece_at(0, 3, 100, 100, 704);
    assert_int_equal(check(p, NULL), PD_OK);
}

TEST(takes_the_one_chunk_of_a_parameter_without_elements, payload *p)
{
    p->piece[0] = piece_at(2, 1, 0, 0, 0);
    p->n = 1;
    p->bytes = 0;
    assert_int_equal(check(p, NULL), PD_OK);
    p->piece[0].count = 1;
    assert_refused(p, "piece 0 (nothing)");
}

TEST(refuses_a_handle_that_is_not_declared, payload *p)
{
    p->piece[1].handle = 4;
    assert_refused(p, "piece 1: handle 4: 4 parameters are declared");
    p->piece[1].handle = UINT32_MAX;
    assert_refused(p, "4294967295");
}

TEST(refuses_a_range_that_is_not_one_chunk, payload *p)
{
    p->piece[0].first = 50;
    assert_refused(p, "piece 0 (kernel): first element 50: expected 0, or a multiple of 100 between that and 250");
    p->piece[0].first = 300;
    assert_refused(p, "first element 300");
    p->piece[0].first = UINT64_MAX / 100 * 100;
    assert_refused(p, "first element");
    p->piece[0].first = 0;
    p->piece[0].count = 99;
    assert_refused(p, "99 elements from 0: expected 100, to the end of the chunk");
    p->piece[0].count = 250;
    assert_refused(p, "250 elements");
    p->piece[0].count = 100;
    p->piece[1].count = 100;
    assert_refused(p, "piece 1 (kernel): 100 elements from 200: expected 50, to the end of the chunk");
}

static bool takes_piece(int64_t start, int64_t end, uint64_t first, uint64_t count)
{
    const pd_handle_facts shard = { start, end, "shard" };
    Paramd__Piece piece = piece_at(0, 1, first, count, 0), *list = &piece;

    return pd_pieces_check(&list, 1, &shard, 1, CHUNK, count * 4, NULL) == PD_OK;
}

TEST(takes_of_a_range_what_it_shares_with_each_chunk)
{
    assert_true(takes_piece(50, 320, 50, 50));
    assert_true(takes_piece(50, 320, 100, 100));
    assert_true(takes_piece(50, 320, 200, 100));
    assert_true(takes_piece(50, 320, 300, 20));
    assert_true(takes_piece(110, 120, 110, 10));
    assert_true(takes_piece(100, 200, 100, 100));
    assert_true(takes_piece(INT64_MAX - 7, INT64_MAX - 3, INT64_MAX - 7, 4));
}

TEST(takes_of_an_empty_range_one_piece_of_nothing)
{
    assert_true(takes_piece(0, 0, 0, 0));
    assert_true(takes_piece(70, 70, 70, 0));
    assert_true(takes_piece(100, 100, 100, 0));
    assert_false(takes_piece(70, 70, 0, 0));
    assert_false(takes_piece(70, 70, 100, 0));
    assert_false(takes_piece(70, 70, 70, 1));
}

TEST(refuses_what_lies_outside_a_range_or_is_cut_otherwise)
{
    payload p = { .n = 1 };
    const pd_handle_facts shard = { 50, 320, "shard" };
    pd_error err;

    assert_false(takes_piece(50, 320, 0, 50));
    assert_false(takes_piece(50, 320, 0, 100));
    assert_false(takes_piece(50, 320, 60, 40));
    assert_false(takes_piece(50, 320, 50, 100));
    assert_false(takes_piece(50, 320, 50, 270));
    assert_false(takes_piece(50, 320, 300, 100));
    assert_false(takes_piece(50, 320, 320, 0));
    assert_false(takes_piece(50, 320, 400, 0));
    assert_false(takes_piece(50, 300, 300, 0));
    assert_false(takes_piece(110, 120, 100, 100));
    p.piece[0] = piece_at(0, 1, 0, 50, 0);
    p.list[0] = &p.piece[0];
    assert_int_equal(pd_pieces_check(p.list, 1, &shard, 1, CHUNK, 200, &err), PD_INVALID_ARGUMENT);
    assert_non_null(
        strstr(err.text, "piece 0 (shard): first element 0: expected 50, or a multiple of 100 between that and 320"));
    p.piece[0] = piece_at(0, 1, 50, 100, 0);
    assert_int_equal(pd_pieces_check(p.list, 1, &shard, 1, CHUNK, 400, &err), PD_INVALID_ARGUMENT);
    assert_non_null(
        strstr(err.text, "100 elements from 50: expected 50, to the end of the chunk or of elements 50 to 320"));
}

/* Checks that any range is covered by consecutive pieces from its start to its end, each within one chunk. */
TEST(the_pieces_of_any_range_are_the_range)
{
    for (int64_t start = 0; start <= 40; start++)
        for (int64_t end = start; end <= 40; end++)
            for (uint64_t chunk = 1; chunk <= 41; chunk += 5) {
                int64_t at = start, n;
                do {
                    n = pd_range_piece(start, end, chunk, (uint64_t)at);
                    assert_true(start == end ? n == 0
                                             : n > 0 && (uint64_t)at / chunk == (uint64_t)(at + n - 1) / chunk);
                    at += n;
                } while (at < end);
                assert_int_equal(at, end);
                for (int64_t first = 0; first < 45; first++)
                    if (first != start && (first <= start || first >= end || (uint64_t)first % chunk != 0))
                        assert_int_equal(pd_range_piece(start, end, chunk, (uint64_t)first), -1);
            }
}

TEST(refuses_a_type_it_does_not_know, payload *p)
{
    p->piece[0].dtype = 0;
    assert_refused(p, "piece 0 (kernel): dtype 0: expected 1 float32, 2 float16, 3 bfloat16, 4 int8 or 5 int4");
    p->piece[0].dtype = 6;
    assert_refused(p, "dtype 6");
}

TEST(a_quantized_piece_has_scales_and_codes, payload *p)
{
    static const struct {
        uint32_t dtype;
        uint64_t bytes;
    } cases[] = { { 4, 2 * 4 + 100 }, { 5, 2 * 4 + 50 } };

    for (int i = 0; i < 2; i++) {
        p->piece[2].dtype = cases[i].dtype;
        p->bytes = 704 + cases[i].bytes;
        assert_int_equal(check(p, NULL), PD_OK);
        p->bytes--;
        assert_refused(p, "piece 2 (bias): 100 elements of int");
    }
}

TEST(refuses_a_quantized_piece_of_too_many_elements, payload *p)
{
    p->piece[1].dtype = 5;
    p->piece[1].count = UINT64_MAX;
    assert_refused(p, "piece 1 (kernel)");
}

TEST(refuses_data_that_is_misaligned_overlapping_or_apart, payload *p)
{
    p->piece[1].offset = 400;
    assert_refused(p, "piece 1 (kernel): data at offset 400: expected 448");
    p->piece[1].offset = 384;
    assert_refused(p, "offset 384: expected 448");
    p->piece[1].offset = 512;
    assert_refused(p, "offset 512: expected 448");
    p->piece[1].offset = 448;
    p->piece[0].offset = 64;
    assert_refused(p, "piece 0 (kernel): data at offset 64: expected 0");
}

TEST(refuses_data_past_the_payload, payload *p)
{
    p->bytes = 903;
    assert_refused(p,
                   "piece 2 (bias): 100 elements of bfloat16, which take 200 bytes, at offset 704: the payload ends at "
                   "903");
    p->bytes = 0;
    assert_refused(p, "piece 0 (kernel)");
}

TEST(refuses_an_absent_piece_that_holds_something, payload *p)
{
    p->piece[3].count = 1;
    assert_refused(p, "piece 3 (scalar): an absent piece has first, count and offset 0, got 0, 1, 0");
}

TEST(refuses_a_chunk_twice_wherever_it_stands, payload *p)
{
    p->piece[2] = piece_at(0, 1, 0, 100, 704);
    p->bytes = 704 + 400;
    assert_refused(p, "pieces 0 and 2 (kernel): duplicate chunk at element 0");
    p->piece[0].absent = true;
    p->piece[0].count = 0;
    p->list[0] = &p->piece[3];
    p->piece[3] = p->piece[0];
    p->list[1] = &p->piece[0];
    p->n = 2;
    p->bytes = 0;
    assert_refused(p, "pieces 0 and 1 (kernel): duplicate chunk");
}

TEST(refuses_a_chunk_of_a_parameter_that_is_absent, payload *p)
{
    p->piece[3].handle = 0;
    assert_refused(p, "and 3 (kernel): one has data, the other is absent");
    p->piece[0] = piece_at(0, 0, 0, 0, 0); /* the order does not matter: here the absent piece comes first */
    p->piece[0].absent = true;
    p->piece[1].offset = 0;
    p->n = 2;
    p->bytes = 200;
    assert_refused(p, "pieces 0 and 1 (kernel): one has data");
}

TEST(what_it_refuses_needs_no_text, payload *p)
{
    p->piece[0].handle = 9;
    assert_int_equal(check(p, NULL), PD_INVALID_ARGUMENT);
}

TEST(many_pieces_in_a_bad_order_are_still_checked)
{
    enum { MANY = 5000 };
    static const pd_handle_facts one = { 0, (int64_t)MANY * CHUNK, "long" };
    Paramd__Piece *pieces = calloc(MANY, sizeof *pieces), **list = calloc(MANY, sizeof *list);
    uint64_t end = 0;

    for (size_t i = 0; i < MANY; i++) {
        pieces[i] = piece_at(0, 1, i * 2477 % MANY * CHUNK, CHUNK, end); /* a permutation */
        end = pd_piece_end(end, CHUNK * 4);
        list[i] = &pieces[i];
    }
    assert_int_equal(pd_pieces_check(list, MANY, &one, 1, CHUNK, end, NULL), PD_OK);
    pieces[4321].first = pieces[17].first;
    assert_int_equal(pd_pieces_check(list, MANY, &one, 1, CHUNK, end, NULL), PD_INVALID_ARGUMENT);
    free(list);
    free(pieces);
}

static Paramd__Want want_at(uint32_t handle, uint64_t first)
{
    Paramd__Want want = PARAMD__WANT__INIT;

    want.handle = handle;
    want.first = first;
    return want;
}

TEST(takes_wants_in_any_order)
{
    Paramd__Want want[] = { want_at(1, 0), want_at(0, 200), want_at(0, 0) },
                 *wants[] = { &want[0], &want[1], &want[2] };

    assert_int_equal(pd_wants_check_distinct(wants, 3, handles, NULL), PD_OK);
}

TEST(refuses_a_want_twice_wherever_it_stands)
{
    Paramd__Want want[] = { want_at(0, 100), want_at(1, 0), want_at(0, 100) },
                 *wants[] = { &want[0], &want[1], &want[2] };
    pd_error err;

    assert_int_equal(pd_wants_check_distinct(wants, 3, handles, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "wants 0 and 2 (kernel): duplicate chunk at element 100");
}

TEST(refuses_neighbouring_wants_that_are_the_same)
{
    Paramd__Want want[] = { want_at(0, 0), want_at(1, 0), want_at(1, 0) }, *wants[] = { &want[0], &want[1], &want[2] };

    assert_int_equal(pd_wants_check_distinct(wants, 3, handles, NULL), PD_INVALID_ARGUMENT);
}

TEST(without_memory_to_sort_it_says_so, payload *p)
{
    p->piece[0].handle = 1;
    p->piece[2] = piece_at(0, 3, 100, 100, 704);
    oom_arm(0);
    int rc = check(p, NULL);
    assert_true(oom_disarm());
    assert_int_equal(rc, PD_NO_MEMORY);
}

/* An absent piece with the sparse flag is refused too: the two flags contradict each other. */
TEST(refuses_a_sparse_piece_with_what_to_do, payload *p)
{
    p->piece[2].sparse = true;
    assert_refused(p, "piece 2 (bias): its gradient is sparse, and a parameter must be dense here: make it dense "
                      "before the push (in PyTorch: Embedding(sparse=False), or grad.to_dense())");
    p->piece[2].sparse = false;
    p->piece[3].sparse = true;
    assert_refused(p, "piece 3 (scalar): its gradient is sparse");
}

TEST(the_end_of_a_piece_is_rounded_up_and_cannot_wrap)
{
    assert_int_equal(pd_piece_end(0, 0), 0);
    assert_int_equal(pd_piece_end(0, 1), 64);
    assert_int_equal(pd_piece_end(64, 64), 128);
    assert_int_equal(pd_piece_end(64, 65), 192);
    assert_true(pd_piece_end(UINT64_MAX - 3, 2) == UINT64_MAX);
    assert_true(pd_piece_end(64, UINT64_MAX) == UINT64_MAX);
}
