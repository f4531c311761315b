/* Tests vectors that consist of several runs, each of any element type. */
#include "test.h"
#include "convert.h"
#include "vector_runs.h"

enum { N = 20 };

/* Two vectors of 20 elements, in runs of 5, 1 and 14 elements. Element i is i in the first vector and 100 + i in the
 * second. In the second vector, the middle run is absent and the last run is bfloat16. */
typedef struct fixture {
    float x[N], y[N], tile[N + 8];
    uint16_t b[N];
    int64_t ends[3];
    pd_vector_run at[6];
    pd_vectors v;
} fixture;

static void new_fixture(fixture *f)
{
    for (int i = 0; i < N; i++) f->x[i] = (float)i, f->y[i] = 100 + (float)i;
    pd_convert(f->b, PD_BF16, f->y, PD_F32, N);
    f->ends[0] = 5, f->ends[1] = 6, f->ends[2] = N;
    f->at[0] = (pd_vector_run){ .at = f->x, .dtype = PD_F32 },
    f->at[1] = (pd_vector_run){ .at = f->y, .dtype = PD_F32 };
    f->at[2] = (pd_vector_run){ .at = f->x + 5, .dtype = PD_F32 },
    f->at[3] = (pd_vector_run){ .at = NULL, .dtype = PD_F32 };
    f->at[4] = (pd_vector_run){ .at = f->x + 6, .dtype = PD_F32 },
    f->at[5] = (pd_vector_run){ .at = f->b + 6, .dtype = PD_BF16 };
    f->v = (pd_vectors){ 2, 3, f->ends, f->at };
}

TEST(finds_the_run_of_every_element)
{
    fixture f;

    new_fixture(&f);
    for (int i = 0; i < N; i++) assert_int_equal(pd_vectors_run(&f.v, i), i < 5 ? 0 : i < 6 ? 1 : 2);
}

TEST(what_lies_in_one_run_of_float32_is_not_copied)
{
    fixture f;

    new_fixture(&f);
    assert_ptr_equal(pd_vectors_load(&f.v, 0, 0, 2, 3, 3, f.tile), f.x + 2);
    assert_ptr_equal(pd_vectors_load(&f.v, 0, 2, 6, 14, 14, f.tile), f.x + 6);
    assert_ptr_equal(pd_vectors_load(&f.v, 0, 0, 2, 4, 4, f.tile), f.tile);
    assert_ptr_equal(pd_vectors_load(&f.v, 0, 0, 2, 3, 4, f.tile), f.tile);
}

TEST(everything_else_is_joined_converted_and_followed_by_zeros)
{
    fixture f;

    new_fixture(&f);
    for (int first = 0; first < N; first++)
        for (int n = 1; n <= N - first; n++) {
            memset(f.tile, 0x7f, sizeof f.tile);
            assert_ptr_equal(pd_vectors_load(&f.v, 1, pd_vectors_run(&f.v, first), first, n, n + 8, f.tile), f.tile);
            for (int i = 0; i < n; i++) assert_true(f.tile[i] == (first + i == 5 ? 0 : f.y[first + i]));
            for (int i = n; i < n + 8; i++) assert_true(f.tile[i] == 0);
        }
}

TEST(what_is_absent_is_zeros)
{
    fixture f;

    new_fixture(&f);
    f.tile[0] = 1;
    assert_ptr_equal(pd_vectors_load(&f.v, 1, 1, 5, 1, 1, f.tile), f.tile);
    assert_true(f.tile[0] == 0);
}
